/** @file even.h  Partitions by time: the `even` partition, the partition of a program, and the
 * times of its stages.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/schedule_type.h"

/**
 * Makes the `even` partition of cli.md: contiguous stages with the least maximum of forward +
 * recompute + backward including the head, ties to the front. Schedules with separate backward
 * stages get as many backward stages as GPUs, then the fewest forward stages that take no longer
 * than the slowest backward stage. If `stages` is 0, a GPU has a single stage, or, if the schedule
 * takes more, the number is the multiple of the GPUs nearest to the number of layers.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY
 */
rp_status rp_partition_even(const rp_schedule_type *schedule, const rp_costs *costs, uint32_t gpus,
                            uint32_t stages, rp_arena *arena, rp_partition *partition_out,
                            rp_reason *reason);

/** Duration of every op kind of every stage: ps[stage * RP_OP_KIND_COUNT + kind]. */
typedef struct rp_stage_times {
    int64_t *ps;
    int64_t hop_ps;
    double overlap_saving; /**< rp_costs */
} rp_stage_times;

/** @return time that an overlapped forward and backward save together (rp_costs.overlap_saving). */
static inline int64_t rp_overlap_saved_ps(double saving, int64_t forward_ps, int64_t backward_ps)
{
    int64_t shorter = forward_ps < backward_ps ? forward_ps : backward_ps;
    return (int64_t)(saving * (double)shorter);
}

/**
 * Gives the times of each stage: FORWARD = layers (if the stage holds their forward) + head;
 * RECOMPUTE = forward of its layers; BACKWARD = layers + head; BACKWARD_INPUT = its input part
 * (with the head's whole backward, whose weight part is not measured separately); BACKWARD_WEIGHT =
 * the rest. HOST ops take no time at stage fidelity.
 * @retval RP_OK, RP_INPUT (layer counts differ; given as the reason), RP_NO_MEMORY
 */
rp_status rp_stage_times_compute(const rp_program *program, const rp_costs *costs, rp_arena *arena,
                                 rp_stage_times *times_out, rp_reason *reason);

/** Gives the partition of a program's stages. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_partition_of_program(const rp_program *program, rp_arena *arena,
                                  rp_partition *partition_out);
