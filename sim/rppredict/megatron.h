/** @file megatron.h  Predicted against measured iterations of GPT models under Megatron-LM on A100
 * servers, with tensor, data and pipeline parallelism (paper-figures/published/megatron_a100.csv).
 */
#pragma once

#include "common/run/run.h"

#include <stdio.h>

/** A measured run and its prediction. */
typedef struct rpsim_megatron_row {
    const char *group;  /**< "megatron-a100" for a single server, "megatron-a100-servers" for
                           several; rows that set a constant end in "-set" */
    const char *model;  /**< gpt:HIDDENxHEADSxLAYERS */
    rp_run run;         /**< synchronous, its `gpus` those of all servers */
    double measured_ms; /**< time of an iteration */
    double predicted_ms;
    double error_pct; /**< predicted / measured - 1 */
} rpsim_megatron_row;

typedef struct rpsim_megatron {
    rpsim_megatron_row *rows;
    uint32_t count;
} rpsim_megatron;

/**
 * Simulates every row on servers of a100-80x8, as rpsim does with --schedule megatron-pp and
 * --recompute wait, on all cores.
 * @param folder the folder that has megatron_a100.csv
 * @param megatron_out lives in `arena`
 * @retval RP_OK, RP_INPUT (the file is malformed), RP_IO, RP_NO_MEMORY, and the statuses of runs
 */
rp_status rpsim_predict_megatron(const char *folder, rp_arena *arena, rpsim_megatron *megatron_out);

/** Errors of a set of rows. */
typedef struct rpsim_megatron_errors {
    uint32_t count;
    double mean_pct;     /**< signed */
    double absolute_pct; /**< mean of absolute values */
    double worst_pct;    /**< signed */
} rpsim_megatron_errors;

/** @return the errors of a group. @param tensor_parallel 0: all rows of the group; otherwise only
 * the rows of this degree */
rpsim_megatron_errors rpsim_megatron_group(const rpsim_megatron *megatron, const char *group,
                                           uint32_t tensor_parallel);

/** Prints the groups, and their parts by degree of tensor parallelism, as a Markdown table. */
void rpsim_megatron_write(const rpsim_megatron *megatron, FILE *stream);
