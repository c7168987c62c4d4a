/** @file single.h  Training on a single device in plain loops, with which every schedule is
 * compared.
 *
 * It runs the same operators on the same microbatches in ascending order, without the additions of
 * a schedule: no program, no queues, no transfers, no arenas, no recompute; all layers are one
 * stage. A schedule that accumulates microbatches in the same order, and with overlapping calls
 * sums each call on its own, gives the same bits.
 */
#pragma once

#include "exec/run/execute.h"

typedef struct rpexec_single {
    const rpexec_model *model;
    rpexec_state *state;
    rpexec_adam adam;
    uint32_t microbatches;     /**< per iteration */
    const uint32_t *sequences; /**< [microbatches] sequences of each */
    /** Microbatches whose gradients are summed before these sums are added up in their order, as in
     * schedules whose calls overlap (common/lower/lower.h); 0: all of an iteration. */
    uint32_t slot_microbatches;
    /** 16-bit types: microbatches whose gradients are added up in fp32 before they are rounded, as
     * jobs do (exec/plan/plan.h); 0: all that are summed. */
    uint32_t job_microbatches;
    uint32_t iterations;
    const rpexec_batch *batches; /**< [iterations] */
    bool asynchronous; /**< iteration t uses the weights of step t - 2 (executor.md 1.8) */
    const rpexec_operators *operators;
    rpexec_lane *lane;
    double *losses;         /**< [iterations] mean over the valid tokens */
    double *norms;          /**< [iterations] norm of the gradients, before clipping; NULL: not
                                 wanted */
    float *first_gradients; /**< [trained values] gradients of the first iteration; NULL: not
                                 wanted */
} rpexec_single;

/**
 * Trains on from `state` as it is; afterwards its gradients are the last iteration's.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_single_run(rpexec_single *single);
