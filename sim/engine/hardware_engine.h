/** @file hardware_engine.h  The engine of --fidelity hardware: ops compete for links, copy engines
 * and the host.
 *
 * Discrete events. A compute op takes its time once its queue and its waits let it: where the
 * machine says so, some time after they have ended (rp_machine.op_gap_ps, op_wake_ps). A transfer
 * takes its turn on its GPU's copy engine of that direction (first come, first served, one at a
 * time) and then flows over its route with max-min fair sharing (network.h). Host ops are streams
 * of memory traffic, one after the other. Where the machine has cores (machine.h), compute and host
 * ops are work of threads that share them. Joined ops need not follow each other here: a recompute
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
 * clock; logged), RP_INVALID_PROGRAM (deadlock: names an op that never starts), RP_NO_MEMORY
 */
rp_status rpsim_hardware_run(const rp_program *program, const rpsim_compute_costs *costs,
                             const rp_machine *machine, rp_timeline **timeline_out,
                             rp_reason *reason);

/**
 * As rpsim_hardware_run, the time of each compute op multiplied by its factor (noise.h).
 * @param factors [op_count] positive, those of other ops unused, or NULL: none
 * @retval as rpsim_hardware_run
 */
rp_status rpsim_hardware_run_scaled(const rp_program *program, const rpsim_compute_costs *costs,
                                    const rp_machine *machine, const double *factors,
                                    rp_timeline **timeline_out, rp_reason *reason);
