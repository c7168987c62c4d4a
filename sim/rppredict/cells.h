/** @file cells.h  Predictions for a table of cells, which need not have been measured (rppredict
 * --cells).
 */
#pragma once

#include "common/formats/csv.h"
#include "sim/rppredict/run.h"

#include <stdio.h>

/** Inputs that a table's rows share. */
typedef struct rpsim_cells_inputs {
    rp_platform platform;
    rp_costs *tables; /**< [table_count] each for a model; they take precedence over the tables of
                         traces/ */
    uint32_t table_count;
} rpsim_cells_inputs;

/** A table of cells that has been read. */
typedef struct rpsim_cells {
    rp_csv csv;
    rpsim_question *questions; /**< [csv.rows] */
} rpsim_cells;

/**
 * Loads a platform and cost tables.
 * @param platform a name or a file
 * @param tables [table_count] names or files; the name of each table is MODEL@ANYTHING
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_cells_load(const char *platform, const char *const *tables, uint32_t table_count,
                           rp_arena *arena, rpsim_cells_inputs *inputs_out);

/**
 * Reads a table of cells in the form of rpsim_predict_cells.
 * @param inputs must outlive the cells
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged with file and line), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_cells_read(const char *path, const rpsim_cells_inputs *inputs, rp_arena *arena,
                           rpsim_cells *cells_out);

/**
 * Answers every row of a CSV file and prints a row for each:
 * `framework,model,platform,gpus,seq_len,fits,tokens_per_s,tokens_per_s_p10,tokens_per_s_p50,
 * tokens_per_s_p90`.
 *
 * Columns of the file (others are ignored): `framework` (as published) and `model`; `seq_len` in
 * tokens (4k is 4096), or `longest` for the longest sequence that fits, in steps of 1024 tokens;
 * `global_batch`, `microbatches`, `calls`, `grain` (stage, layer) and `sequence_slices` as in
 * traces/configs/paper_seqlen.csv, or all five empty for the configuration of the published run
 * (paper.csv for a throughput, paper_seqlen.csv for a length). Without a column `gpus` a row uses
 * all GPUs of the platform. Only the framework roundpipe trains asynchronously.
 *
 * In the output `fits` is yes, no, or unknown: the GPUs have room, but the platform's host memory
 * is not known. `tokens_per_s` and its percentiles over the ranges of the inputs
 * (sim/run/intervals.h) are empty if a length is asked for or the run does not fit; `seq_len` is 0
 * if no length fits.
 * @param draws number of draws of the inputs, 1 to RPSIM_PREDICT_DRAWS
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged with file and line), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_predict_cells(const char *path, const rpsim_cells_inputs *inputs, uint32_t draws,
                              rp_arena *arena, FILE *stream);
