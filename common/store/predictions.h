/** @file predictions.h  Runs that were predicted and measured. */
#pragma once

#include "common/store/store.h"

/** A run with predicted and measured time. Texts live in the reader's arena; "" if the store has
 * none. */
typedef struct rp_store_prediction {
    const char *model;
    const char *backend; /**< runs.fidelity: the backend that measured the run */
    const char *optimizer;
    const char *schedule;
    uint32_t gpus;
    uint32_t microbatches;
    uint32_t microbatch_size;
    uint32_t seq_len;
    /** All other settings that the runs of a comparison share, as KEY=VALUE with spaces between.
     * Defaults of rpexec and settings without effect on times (seed, data, Adam's numbers) are left
     * out. */
    const char *settings;
    /** Settings of the schedule in the same form: grain, partition, round, a program from a
     * file. */
    const char *variant;
    const char *recompute;
    double predicted_ms; /**< predicted time of an iteration */
    double measured_ms;  /**< median over the iterations except the first */
} rp_store_prediction;

/**
 * Reads all runs that have both times (rpexec --predict --db), sorted by all texts and numbers
 * before the times, the schedule last: runs of the same configuration are neighbours.
 * @param runs_out in `arena`
 * @retval RP_OK, RP_DATABASE (logged), RP_NO_MEMORY
 */
rp_status rp_store_read_predictions(rp_store *store, rp_arena *arena,
                                    rp_store_prediction **runs_out, uint32_t *count_out);
