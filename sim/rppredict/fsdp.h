/** @file fsdp.h  Predicted against measured throughput of MPT models under FSDP on A100 servers,
 * row by row (paper-figures/published/fsdp_mpt_a100.csv).
 */
#pragma once

#include "sim/rppredict/prediction.h"

/** A measured run and its prediction. */
typedef struct rpsim_fsdp_row {
    const char *group; /**< "fsdp-" and the GPU; rows that set a constant end in "-set" */
    const char *model;
    uint32_t seq_len;         /**< tokens */
    uint32_t gpus;            /**< number of GPUs, in servers of 8 */
    uint32_t microbatch_size; /**< sequences */
    bool recomputes;
    bool fits;
    double measured_tokens_per_s;
    double predicted_tokens_per_s;
    double error_pct;     /**< predicted / measured - 1 */
    rpsim_interval range; /**< tokens per second over the ranges of the inputs */
} rpsim_fsdp_row;

typedef struct rpsim_fsdp {
    rpsim_fsdp_row *rows;
    uint32_t count;
    uint32_t draws; /**< number of draws of the inputs */
} rpsim_fsdp;

/**
 * Simulates every row on a100-80x8 or a100-40x8, as rpsim does with --schedule fsdp, --dtype bf16,
 * --reduce-each microbatch and --reduce-dtype as the row says, on all cores.
 * @param folder the folder that has fsdp_mpt_a100.csv
 * @param draws number of draws of the inputs for the intervals; a number above 8 counts as 8
 * @param fsdp_out lives in `arena`
 * @retval RP_OK, RP_INPUT (the file is malformed), RP_IO, RP_NO_MEMORY, and the statuses of runs
 */
rp_status rpsim_predict_fsdp(const char *folder, uint32_t draws, rp_arena *arena,
                             rpsim_fsdp *fsdp_out);

/** @return mean absolute error in percent of a group's rows; NaN if it has none. */
double rpsim_fsdp_mape(const rpsim_fsdp *fsdp, const char *group);

/** Adds the rows that set no constant to a calibration, but not their widths. */
void rpsim_fsdp_calibrate(const rpsim_fsdp *fsdp, rpsim_calibration *calibration);

/** Prints the groups, the calibration and the rows as Markdown tables.
 * @param others calibration of the RTX 4090's cells, which are counted together with these rows */
void rpsim_fsdp_write(const rpsim_fsdp *fsdp, const rpsim_calibration *others, FILE *stream);
