/** @file hardware_engine.h  The engine of --fidelity hardware: ops compete for links, copy engines
 * and the host.
 *
 * Discrete events. A compute op starts when the op before it in its queue and its waits have ended,
 * after the delays rp_machine.op_gap_ps and op_wake_ps if the machine has them. A transfer waits
 * for its GPU's copy engine of that direction (first come, first served, a single transfer at a
 * time) and then flows over its route with max-min fair sharing (network.h). Host ops are streams
 * of memory traffic and run in sequence. If the machine has cores (machine.h), compute and host ops
 * are work of threads that share them. Joined ops need not follow each other here: a recompute
 * begins as soon as its own waits allow.
 */
#pragma once

#include "common/base/reason.h"
#include "common/machine/machine.h"
#include "common/timeline/timeline.h"
#include "sim/engine/layer_costs.h"

/**
 * Runs a lowered program.
 * @param program made by rp_lower
 * @param timeline_out owned by the caller
 * @retval RP_OK, RP_INPUT (rates out of range, or the run takes longer than the 106 days of its
 * clock; given as the reason), RP_INVALID_PROGRAM (deadlock: the log names an op that never
 * starts), RP_NO_MEMORY
 */
rp_status rpsim_hardware_run(const rp_program *program, const rpsim_compute_costs *costs,
                             const rp_machine *machine, rp_timeline **timeline_out,
                             rp_reason *reason);

/**
 * Same as rpsim_hardware_run, but multiplies the time of each compute op by its factor (noise.h).
 * @param factors [op_count] positive, read for compute ops only; NULL: every factor is 1
 * @retval as rpsim_hardware_run
 */
rp_status rpsim_hardware_run_scaled(const rp_program *program, const rpsim_compute_costs *costs,
                                    const rp_machine *machine, const double *factors,
                                    rp_timeline **timeline_out, rp_reason *reason);
