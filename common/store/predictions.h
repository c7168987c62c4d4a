/** @file predictions.h  Runs that were predicted and measured. */
#pragma once

#include "common/store/store.h"

/** A run with both times. Texts live in the reader's arena, "" where the store has none. */
typedef struct rp_store_prediction {
    const char *model;
    const char *backend; /**< runs.fidelity: what has measured it */
    const char *optimizer;
    const char *schedule;
    uint32_t gpus;
    uint32_t microbatches;
    uint32_t microbatch_size;
    uint32_t seq_len;
    /** Everything else that all runs of one comparison share, as KEY=VALUE with spaces between;
     * defaults of rpexec are left out, and what no time depends on (seed, data, Adam's numbers). */
    const char *settings;
    /** In the same form, what belongs to the schedule: grain, partition, round, a program from a
     * file. */
    const char *variant;
    const char *recompute;
    double predicted_ms; /**< an iteration */
    double measured_ms;  /**< the median iteration, without the first */
} rp_store_prediction;

/**
 * Reads all runs that have both times (rpexec --predict --db), those of one configuration one after
 * the other: sorted by all texts and numbers before the times, the schedule last.
 * @param runs_out in `arena`
 * @retval RP_OK, RP_DATABASE (logged), RP_NO_MEMORY
 */
rp_status rp_store_read_predictions(rp_store *store, rp_arena *arena,
                                    rp_store_prediction **runs_out, uint32_t *count_out);
