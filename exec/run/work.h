/** @file work.h  From a schedule and sizes to the program that the executor runs. */
#pragma once

#include "common/schedule/schedule_type.h"
#include "exec/model/model.h"

typedef struct rpexec_work {
    const rp_schedule_type *schedule;
    uint32_t gpus;
    uint32_t calls;             /**< of a step, each of `microbatches` microbatches */
    uint32_t microbatches;      /**< of a call */
    uint32_t last_microbatches; /**< of the last call, fewer than the others; 0: as many */
    uint32_t microbatch_size;   /**< sequences of a microbatch */
    const uint32_t *sequences;  /**< [microbatches of a step] of each; NULL: microbatch_size */
    uint32_t iterations;
    /** Microbatches of a RoundPipe round. As many as a call has, or RP_ROUND_ALL: the library's
     * order, where the rotation goes on from call to call. Fewer: the paper's, where a round begins
     * on the GPU that is free first, and rounds of a call do not wait for each other. */
    uint32_t round;
    bool asynchronous;
    rp_recompute recompute;
    bool layer_grain;
    uint32_t peer_gpus;            /**< of resident weights: rp_lower_config.peer_gpus */
    uint64_t piece_bytes;          /**< largest piece of a parameter upload */
    const rp_partition *partition; /**< NULL: even */
} rpexec_work;

/** @return microbatches of a step. */
static inline uint32_t rpexec_work_microbatches(const rpexec_work *work)
{
    uint32_t last = work->last_microbatches != 0 ? work->last_microbatches : work->microbatches;
    return (work->calls - 1) * work->microbatches + last;
}

/** @return sequences of a microbatch of the step. */
static inline uint32_t rpexec_work_sequences(const rpexec_work *work, uint32_t microbatch)
{
    return work->sequences != NULL ? work->sequences[microbatch] : work->microbatch_size;
}

/** Time that rpexec_work_costs gives a floating-point operation: a nanosecond for ten of them. */
#define RPEXEC_PS_PER_FLOP 100

/**
 * Times of one microbatch from FLOP counts (executor.md section 5) at 10 GFLOP/s: what a partition
 * balances before anything has been measured. Only their ratios mean anything.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_work_costs(const rpexec_model *model, uint32_t sequences, rp_arena *arena,
                            rp_costs *costs_out);

/**
 * Why a schedule is simulated only; whether sizes fit is another matter.
 * @param asynchronous with --optimizer async
 * @return what it has that the executor does not do, for "NAME: ..." (static); NULL: nothing
 */
const char *rpexec_work_obstacle(const rp_schedule_type *schedule, bool asynchronous);

/**
 * Lowers a compute schedule for a model.
 * @param work what the schedule does not say: placement, calls, microbatches, their size, grain
 * @param program_out owned by the caller
 * @retval RP_OK, RP_USAGE (a form that cannot be lowered; logged), RP_NO_MEMORY
 */
rp_status rpexec_work_lower(const rpexec_work *work, const rpexec_model *model,
                            const rp_program *schedule, rp_arena *arena, rp_program **program_out);

/**
 * Builds and lowers the program.
 * @param costs places RoundPipe's rounds and the even partition; rpexec_work_costs or measured ones
 * @param program_out owned by the caller
 * @retval RP_OK, RP_USAGE (what the schedule or the executor does not do; logged), RP_NO_MEMORY
 */
rp_status rpexec_work_program(const rpexec_work *work, const rpexec_model *model,
                              const rp_costs *costs, rp_program **program_out);
