/** @file machine.h  The machine of hardware fidelity: which links there are, and which of them the
 * ops of a queue use.
 *
 * Every GPU has an upload and a download link (full duplex), with one copy engine each, and a bus
 * for its collectives. GPUs behind a PCIe switch share its uplink, one link per direction; the GPUs
 * of a switch have successive numbers. Collectives have a measured rate of their own, which already
 * says what the switches cost them. The host has its memory traffic, its taking in of gradients
 * and, where it is limited, DRAM that transfers and host ops share.
 */
#pragma once

#include "common/program.h"
#include "sim/network.h"

/** The machine as the engine sees it; bytes per second, per GPU. */
typedef struct rpsim_machine {
    double upload_Bps;        /**< host to GPU */
    double download_Bps;      /**< GPU to host */
    double host_Bps;          /**< memory traffic of the host's optimizer, cast and collect */
    double dram_Bps;          /**< shared by all transfers and host ops; 0: not a bottleneck */
    int64_t copy_latency_ps;  /**< of every transfer, on its copy engine */
    double collective_Bps;    /**< of a collective through each GPU; 0: there can be none */
    double collect_Bps;       /**< of the host taking gradients in; 0: host_Bps */
    uint32_t gpus_per_switch; /**< that share an uplink; 0: every GPU has a root port of its own */
    double switch_Bps;        /**< of an uplink, per direction; read where there are switches */
    int64_t module_ps;        /**< host time per module that a job clones (dispatch.h) */
    const double *link_scale; /**< [gpu] factor on both directions of its host link; NULL: all 1 */
} rpsim_machine;

/** Copy engines, numbered from this times the GPU on. */
#define RPSIM_ENGINES_PER_GPU 2u

/** What a queue has whose ops need no copy engine. */
#define RPSIM_NO_ENGINE UINT32_MAX

/** @return the number of the copy engine that the ops of a queue take turns on: upload or download
 * of its GPU; RPSIM_NO_ENGINE for compute, peers and the host. */
uint32_t rpsim_copy_engine(const rp_queue *queue);

/** Routes of a machine's network. */
typedef struct rpsim_routes {
    uint32_t *of_queue; /**< [queue] of its ops, but for those that collect gradients */
    uint32_t collect;   /**< of ops of kind COLLECT */
} rpsim_routes;

/**
 * Creates the network of a machine and a route for every queue.
 * @param arena owns the routes' array
 * @param network_out owned by the caller; NULL on failure
 * @retval RP_OK, RP_INPUT (a rate out of range; logged), RP_NO_MEMORY
 */
rp_status rpsim_machine_network(const rp_program *program, const rpsim_machine *machine,
                                rp_arena *arena, rpsim_routes *routes_out,
                                rpsim_network **network_out);

/** @retval RP_OK, RP_INPUT: the program has transfers between GPUs that the machine cannot do,
 * point to point or collectives without a rate (logged) */
rp_status rpsim_machine_check(const rp_program *program, const rpsim_machine *machine);
