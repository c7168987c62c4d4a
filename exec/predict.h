/** @file predict.h  --predict: the very program that runs, simulated by the rpsim beside rpexec
 * with the costs that an earlier run has recorded. */
#pragma once

#include "common/model.h"
#include "common/program.h"

/** Files of an earlier run. */
typedef struct rpexec_prediction {
    const char *costs_path;
    const char *platform_path;
    rp_costs costs;
} rpexec_prediction;

/**
 * Finds and reads them, before anything runs.
 * @param from a folder of --record, or the cost table in one; platform.yaml is beside it
 * @param layers, sequences, seq_len that the costs must have been measured with
 * @retval RP_OK, RP_INPUT (missing, malformed, or of other sizes; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_predict_read(const char *from, uint32_t layers, uint32_t sequences,
                              uint32_t seq_len, rp_arena *arena, rpexec_prediction *prediction_out);

/**
 * Simulates a program at hardware fidelity.
 * @param model name or file, as rpsim has it
 * @param timeline_out file for the simulated timeline (common/timeline_csv.h), or NULL
 * @param makespan_ms_out of all its iterations
 * @retval RP_OK, RP_TOOL (rpsim is missing, or has failed; logged with its message), RP_IO,
 *         RP_NO_MEMORY
 */
rp_status rpexec_predict(const rpexec_prediction *prediction, const rp_program *program,
                         const char *model, const char *timeline_out, rp_arena *arena,
                         double *makespan_ms_out);
