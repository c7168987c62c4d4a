/** @file cells.h  Predictions for a table of cells that nobody has to have measured
 * (rppredict --cells).
 */
#pragma once

#include "common/base/status.h"

#include <stdio.h>

/**
 * Answers every row of a CSV file, on all GPUs of a platform, and prints one row each:
 * `framework,model,platform,gpus,seq_len,fits,tokens_per_s`.
 *
 * Columns of the file (others are ignored): `framework` (as published) and `model`; `seq_len` in
 * tokens, or `longest` for the longest sequence that fits, in steps of 1024 tokens; `global_batch`,
 * `microbatches`, `calls`, `grain` (stage, layer) and `sequence_slices` as in
 * traces/configs/paper_seqlen.csv, or all five empty for the configuration of the published run
 * (paper.csv for a throughput, paper_seqlen.csv for a length). A framework trains asynchronously
 * only if it is roundpipe.
 *
 * Printed: `fits` is yes, no, or unknown where the GPUs have room and the platform does not
 * say its host memory. `tokens_per_s` is empty where a length is asked for or the run does
 * not fit; `seq_len` is 0 where no length fits.
 * @param platform a name or a file
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged with file and line), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_predict_cells(const char *path, const char *platform, FILE *stream);
