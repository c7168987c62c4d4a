/** @file stage_engine.h  The engine of --fidelity stage: ops take their time, a boundary tensor
 * that changes GPUs takes a fixed hop, and nothing else takes time (schedules.md 7).
 *
 * Nothing is shared between queues at this fidelity, so no clock is needed: the start of an op
 * follows from the ends of the op before it and of the ops it waits for. The engine walks every
 * queue as far as it can, parks it on the first awaited op that has not ended, and wakes it when
 * that op ends. Each op is visited once, and the result does not depend on the order of the walk.
 */
#pragma once

#include "common/base/reason.h"
#include "common/base/units.h"
#include "common/program/producers.h"
#include "common/schedule/even.h"
#include "common/timeline/metrics.h"
#include "common/timeline/timeline.h"

/**
 * Runs `program` with the stage times of its stages.
 * @param program accepted by rp_program_check
 * @param times of the same program (rp_stage_times_compute)
 * @param timeline_out owned by the caller
 * @param metrics_out comm_total_ps and comm_exposed_ps are set, the rest is zero. Total = hop *
 * data waits. Exposed = the delay of each op (or joined group) due to its hops: its start minus the
 * start it would have had if its producers' tensors took no time.
 * @retval RP_OK, RP_INPUT (an op kind has no cost at this fidelity, or the times could overflow;
 *         given as the reason), RP_INVALID_PROGRAM (deadlock: the log names an op that never
 *         starts), RP_NO_MEMORY
 */
rp_status rpsim_stage_run(const rp_program *program, const rp_stage_times *times,
                          rp_timeline **timeline_out, rp_metrics *metrics_out, rp_reason *reason);

/** @return a time multiplied by a factor, rounded to the nearest picosecond; a factor of 1 leaves
 * it as it is. */
static inline int64_t rpsim_scaled_ps(int64_t ps, double factor)
{
    return rp_round_ps((double)ps * factor);
}

/**
 * Same as rpsim_stage_run, but multiplies the time of each op by its factor (noise.h).
 * @param factors [op_count] positive; NULL: every factor is 1
 * @retval as rpsim_stage_run
 */
rp_status rpsim_stage_run_scaled(const rp_program *program, const rp_stage_times *times,
                                 const double *factors, rp_timeline **timeline_out,
                                 rp_metrics *metrics_out, rp_reason *reason);
