/** @file hardware_engine.h  The engine of --fidelity hardware: ops compete for links, copy engines
 * and the host.
 *
 * Discrete events. A compute op takes its time once its queue and its waits let it. A transfer
 * takes its turn on its GPU's copy engine of that direction (first come, first served, one at a
 * time) and then flows over its route with max-min fair sharing (network.h). Host ops are streams
 * of memory traffic, one after the other. Joined ops need not follow each other here: a recompute
 * begins as soon as its own waits allow.
 */
#pragma once

#include "common/timeline.h"
#include "sim/layer_costs.h"

/** The machine as the engine sees it; bytes per second, per GPU. */
typedef struct rpsim_machine {
    double upload_Bps;        /**< host to GPU */
    double download_Bps;      /**< GPU to host */
    double host_Bps;          /**< memory traffic of the host's optimizer, cast and collect */
    double dram_Bps;          /**< shared by all transfers and host ops; 0: not a bottleneck */
    int64_t copy_latency_ps;  /**< of every transfer, on its copy engine */
    double collective_Bps;    /**< of a collective through each GPU; 0: there can be none */
    double collect_Bps;       /**< of the host taking gradients in; 0: host_Bps */
    const double *link_scale; /**< [gpu] factor on both directions of its host link; NULL: all 1 */
} rpsim_machine;

/**
 * Runs a lowered program.
 * @param program made by rp_lower
 * @param timeline_out owned by the caller
 * @retval RP_OK, RP_INPUT (rates out of range; logged), RP_INVALID_PROGRAM (deadlock: names an op
 * that never starts), RP_NO_MEMORY
 */
rp_status rpsim_hardware_run(const rp_program *program, const rpsim_compute_costs *costs,
                             const rpsim_machine *machine, rp_timeline **timeline_out);

/**
 * As rpsim_hardware_run, the time of each compute op multiplied by its factor (noise.h).
 * @param factors [op_count] positive, those of other ops unused, or NULL: none
 * @retval as rpsim_hardware_run
 */
rp_status rpsim_hardware_run_scaled(const rp_program *program, const rpsim_compute_costs *costs,
                                    const rpsim_machine *machine, const double *factors,
                                    rp_timeline **timeline_out);
