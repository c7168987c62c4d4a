/** @file machine.h  The machine of hardware fidelity: which links there are, and which of them the
 * ops of a queue use.
 *
 * Every GPU has an upload and a download link, with one copy engine each, a bus for
 * its collectives and, where GPUs reach each other, a port for what it sends to and one for what it
 * receives from other GPUs. On the way to memory GPUs share links, all of them optional, with a
 * rate per direction: the uplink of a PCIe switch, a root complex, the links between the sockets of
 * a node, the network port of a node. Successive GPUs belong together: to a switch, a root complex,
 * a socket, a node. The host has its memory traffic, a rate of its own for each kind of host op
 * that has one and, where it is limited, DRAM that transfers and host ops share.
 *
 * **Both directions.** PCIe links (of GPUs, switches, root complexes) do each direction's rate in
 * both at once, unless `duplex` says how much less they do then: both pass one more link of
 * duplex x (up + down), so that a direction alone is as fast as ever, and a direction that needs
 * little leaves the rest to the other. DMA both ways shares what requests, acknowledgements and
 * the memory behind them can take.
 *
 * **Where memory is.** Each socket of each node has its part of the host's memory. Weights,
 * gradients and optimizer states are interleaved over all of them, as a runtime that does not know
 * the topology would place them: successive transfers of a queue take turns, so that of S sockets
 * (S - 1) / S of the traffic comes from another one. Data-parallel ranks hold their shards near
 * their GPU (`local_memory`). Activations and boundary gradients lie near the GPU that wrote them.
 * Host work is spread evenly: each socket does its part with its own share of the rates. What comes
 * from another node passes both nodes' network ports and the GPU's PCIe path, but not the links
 * between sockets: network adapters are assumed to be near the memory.
 *
 * **Between GPUs.** NVLink joins `nvlink_gpus` successive GPUs all-to-all (2: bridged pairs). Other
 * GPUs reach each other over their PCIe links, the switches and root complexes between them and,
 * from node to node, the network, where `peer_pcie` says so. The SEND carries the bytes when its
 * sender is ready; its RECV takes no time. Collectives have a measured rate of their own, which
 * already says what switches cost them; over several nodes it is at most the network's. Hosts of
 * servers that each run a copy of the program add up gradients in a ring through their ports, which
 * nothing else of the copies uses; what arrives also passes the DRAM where it is limited.
 *
 * **Emulated GPUs** (`cores`). Where threads of the host play the GPUs, work is time of a core, and
 * all threads that have some share the cores by max-min fairness, none having more than one: a
 * network whose unit of flow is the picosecond of a core. Each queue is a thread, a host op
 * several. Copies are such work as well (`copies_on_cores`), or links carry them as above where the
 * emulation makes threads sleep for as long as a link would take. `cores` need not be whole: two
 * hyperthreads of a core do less than two cores. Threads of GPUs may be bound to a core each
 * (`bound_cores`), which they share then with the other GPUs of that core, even while others are
 * idle.
 */
#pragma once

#include "common/base/reason.h"
#include "common/machine/network/network.h"
#include "common/program/program.h"

/** X(enumerator, JSON key, one of several, all of them). Links that several GPUs share; a number
 * follows the third. Nothing else enumerates them. */
#define RP_SHARED_LIST(X)                                                                          \
    X(SWITCH, "switch", "the uplink of PCIe switch", "the uplinks of PCIe switches")               \
    X(ROOT, "root", "root complex", "the root complexes")                                          \
    X(INTERSOCKET, "intersocket", "the links between the sockets of node",                         \
      "the links between sockets")                                                                 \
    X(DRAM, "dram", "the DRAM of socket", "the host's DRAM")                                       \
    X(NETWORK, "network", "the network port of node", "the network between nodes")                 \
    X(LEAF, "leaf", "the uplinks of leaf switch", "the uplinks of leaf switches")

typedef enum rp_shared {
#define RP_SHARED_ENUM(name, key, one, all) RP_SHARED_##name,
    RP_SHARED_LIST(RP_SHARED_ENUM)
#undef RP_SHARED_ENUM
        RP_SHARED_COUNT
} rp_shared;

/** Collectives of a tensor or data group of a layout (schedules.md 16). */
typedef struct rp_machine_group {
    uint32_t gpus;       /**< 0: there are no such groups */
    uint32_t of_node;    /**< GPUs of a group that are in one node */
    uint32_t leaf_nodes; /**< nodes of a group that are below one leaf switch */
    double Bps;          /**< through each GPU, where the network has room for it */
    rp_collectives algorithm;
} rp_machine_group;

/** One of the steps of a collective that follow each other, over all links at the same time. */
typedef struct rp_collective_step {
    int64_t latency_ps; /**< before its bytes flow */
    double bus;         /**< bytes through each GPU, of each of the op's */
    double network;     /**< through the network ports of its node */
    double leaf;        /**< through the uplinks of its leaf switch */
} rp_collective_step;

#define RP_COLLECTIVE_STEPS 3u

/** The machine as the engine sees it; bytes per second, per GPU. 0: there is none. */
typedef struct rp_machine {
    double upload_Bps;       /**< host to GPU */
    double download_Bps;     /**< GPU to host */
    double host_Bps;         /**< of a node: memory traffic of host ops */
    double adam_Bps;         /**< of a node's OPTIMIZER ops; 0: host_Bps */
    double refresh_Bps;      /**< of a node's REFRESH ops; 0: host_Bps */
    double collect_Bps;      /**< of a node's COLLECT ops; 0: host_Bps */
    double dram_Bps;         /**< of a node: shared by transfers and host ops; 0: no bottleneck */
    int64_t copy_latency_ps; /**< of every transfer, on its copy engine */
    int64_t op_gap_ps;       /**< least time from the end of an op to the next one of its queue */
    int64_t op_wake_ps;      /**< least time from the end of an op to one of another queue that
                                  waits for it */
    int64_t collective_latency_ps; /**< of every collective, before its bytes flow */
    double collective_part_Bps;    /**< of groups with some GPUs of a node; 0: collective_Bps */
    int64_t collective_hop_ps;     /**< more of it per step of a ring, to a GPU of the node */
    int64_t network_hop_ps;        /**< and to one of the next node */
    double collective_Bps;         /**< of a collective through each GPU; 0: there can be none */
    uint32_t servers;              /**< whose hosts add up gradients, each a copy; 0: one */
    rp_machine_group tensor;       /**< set by rp_machine_fold */
    rp_machine_group data;         /**< likewise */
    rp_machine_group expert;       /**< likewise */
    rp_machine_group replica;      /**< likewise */
    double duplex;            /**< what both directions of a PCIe link do together over what each
                                   does alone, 0.5 to 1; 0: 1 */
    uint32_t gpus_per_switch; /**< that share an uplink; 0: no switches */
    double switch_Bps;        /**< of an uplink, per direction; read where there are switches */
    uint32_t gpus_per_root;   /**< that share a root complex; 0: it limits nothing */
    double root_Bps;          /**< of a root complex, per direction */
    uint32_t gpus_per_node;   /**< 0: all GPUs are in one */
    uint32_t sockets;         /**< of a node; 0: one */
    double intersocket_Bps;   /**< between any two sockets, per direction; 0: no bottleneck */
    double network_Bps;       /**< of a node, per direction; read where there are several nodes */
    uint32_t adapters;        /**< of a node, which share its network_Bps and its GPUs; 0: one */
    uint32_t leaf_nodes;      /**< successive nodes below a leaf switch; 0: one switch has all */
    bool rails;               /**< a leaf switch joins adapters of one number; otherwise all */
    double leaf_Bps;          /**< of a leaf switch's uplinks, per direction; with leaf_nodes */
    bool local_memory;        /**< parameters near their GPU, not interleaved */
    double peer_Bps;          /**< of what a GPU sends, and of what it receives; 0: no peers */
    uint32_t nvlink_gpus;     /**< successive GPUs that NVLink joins; 0: none */
    bool peer_pcie;           /**< GPUs that NVLink does not join reach each other over PCIe */
    int64_t module_ps;        /**< host time per module that a job clones (dispatch.h) */
    int64_t object_ps;        /**< host time per module or tensor (dispatch.h) */
    double cores;             /**< of the host, that compute of GPUs and host ops share; 0: GPUs
                                   compute themselves. Sockets and nodes must be one */
    uint32_t bound_cores;     /**< with cores: GPU g's threads run on core g mod this; 0: on any */
    bool copies_on_cores;     /**< so do transfers, at their rates while they have a core each */
    uint32_t host_threads;    /**< with cores: of a host op, together as fast as host_Bps; 0: one */
    const double *link_scale; /**< [gpu] factor on both directions of its host link; NULL: all 1 */
    /** [kind][number] factors on single shared links, all their directions; NULL: all 1 */
    const double *shared_scale[RP_SHARED_COUNT];
} rp_machine;

/** @return the rate of a kind's host ops alone; 0: it shares host_Bps with the others. */
static inline double rp_machine_own_host_Bps(const rp_machine *machine, rp_op_kind kind)
{
#define RP_HOST_RATE_OF(name, rate) [RP_HOST_RATE_##name] = machine->rate,
    const double own_Bps[RP_HOST_RATE_COUNT] = {RP_HOST_RATE_LIST(RP_HOST_RATE_OF)};
#undef RP_HOST_RATE_OF
    return own_Bps[rp_op_kinds[kind].host_rate];
}

/** @return the rate of a kind's host ops. */
static inline double rp_machine_host_Bps(const rp_machine *machine, rp_op_kind kind)
{
    double own = rp_machine_own_host_Bps(machine, kind);
    return own > 0 ? own : machine->host_Bps;
}

/** @return the node of a GPU. */
static inline uint32_t rp_machine_node(const rp_machine *machine, uint32_t gpu)
{
    return machine->gpus_per_node > 0 ? gpu / machine->gpus_per_node : 0;
}

/** @return whether NVLink joins two GPUs. */
static inline bool rp_machine_joined(const rp_machine *machine, uint32_t from, uint32_t to)
{
    return machine->nvlink_gpus > 0 && from / machine->nvlink_gpus == to / machine->nvlink_gpus &&
           rp_machine_node(machine, from) == rp_machine_node(machine, to);
}

/** @return the number of links of a kind that a program on GPUs 0 to gpus - 1 uses: switches, root
 * complexes, nodes (for the links between their sockets and for their network ports), sockets (for
 * DRAM); 0 where the kind limits nothing. */
uint32_t rp_machine_shared_count(const rp_machine *machine, uint32_t gpus, rp_shared kind);

/** @return bytes per second of a collective of `gpus` GPUs through each of them. */
double rp_machine_bus_Bps(const rp_machine *machine, uint32_t gpus);

/** @return time before the bytes of a collective flow: a ring of n GPUs has n - 1 steps, an
 * all-reduce twice as many. */
int64_t rp_machine_collective_ps(const rp_machine *machine, uint32_t gpus, rp_op_kind kind);

/** @return time before the bytes of a sum over the servers flow: a ring's hops. */
static inline int64_t rp_machine_exchange_ps(const rp_machine *machine)
{
    return machine->servers > 1 ? 2 * (int64_t)(machine->servers - 1) * machine->network_hop_ps : 0;
}

/**
 * Steps of a group's collective (sim/model.md section 14): one, where it is a ring or trees; those
 * within nodes and between them, one after the other, where it is hierarchical.
 * @return their number, at least 1
 */
uint32_t rp_machine_group_steps(const rp_machine *machine, const rp_machine_group *group,
                                rp_op_kind kind,
                                rp_collective_step steps[static RP_COLLECTIVE_STEPS]);

/** @return the group of a queue's collectives; NULL where all GPUs of the program are one. */
static inline const rp_machine_group *rp_machine_group_of(const rp_machine *machine,
                                                          rp_queue_kind kind)
{
    return kind == RP_QUEUE_TENSOR    ? &machine->tensor
           : kind == RP_QUEUE_DATA    ? &machine->data
           : kind == RP_QUEUE_EXPERT  ? &machine->expert
           : kind == RP_QUEUE_REPLICA ? &machine->replica
                                      : NULL;
}

/**
 * Makes the machine one for a program whose GPUs each stand for a tensor group times a data group
 * of GPUs (schedules.md 16), which are placed as the layout's axes say; by default GPU g for the
 * successive GPUs from g x rp_layout_gpus(layout) on, the tensor group innermost. They do the same
 * at the same time, so what GPUs share is divided by those that a GPU stands for, and groups have
 * rates of their own. Exact: the times are those of a program with all GPUs.
 * @param gpus of the program
 * @retval RP_OK, RP_USAGE (groups that fit no node, switch or root complex equally; logged)
 */
rp_status rp_machine_fold(rp_machine *machine, const rp_layout *layout, uint32_t gpus,
                          rp_reason *reason);

/** Copy engines, numbered from this times the GPU on. */
#define RP_ENGINES_PER_GPU 2u

/** Result of rp_copy_engine for queues whose ops need none. */
#define RP_NO_ENGINE UINT32_MAX

/** @return the number of the copy engine that the ops of a queue take turns on: upload or download
 * of its GPU; RP_NO_ENGINE for compute, peers and the host, and where threads copy.
 * @param machine NULL: one whose transfers links carry */
uint32_t rp_copy_engine(const rp_machine *machine, const rp_queue *queue);

/** Kinds without a route of their own. */
#define RP_NO_ROUTE UINT32_MAX

/** Routes of a machine's network. */
typedef struct rp_routes {
    uint32_t *of_queue; /**< [queue] of its ops with memory near the GPU; not of those whose kind
                           has a route, nor of SENDs */
    uint32_t of_kind[RP_OP_KIND_COUNT]; /**< of host ops with a rate of their own; RP_NO_ROUTE */
    uint32_t *of_op;                    /**< [op] where ops of a queue differ, otherwise NULL */
    double homes;      /**< sockets, over which host ops are spread: each does its part */
    uint32_t *network; /**< [queue] of a group's collectives, over its node's ports; RP_NO_ROUTE */
    uint32_t *leaf;    /**< [queue] likewise, over its leaf switch's uplinks; RP_NO_ROUTE */
    uint32_t *cores;   /**< [queue] of its ops that are work of a thread; NULL: none are */
    double core_ps_per_byte[RP_OP_KIND_COUNT]; /**< what such a transfer or host op takes of each of
                                                    its threads; 0: it moves bytes */
    uint32_t host_threads;                     /**< flows of a host op */
} rp_routes;

/**
 * Creates the network of a machine and routes for all ops.
 * @param arena owns the routes' arrays
 * @param network_out owned by the caller; NULL on failure
 * @retval RP_OK, RP_INPUT (a rate out of range; logged), RP_NO_MEMORY
 */
rp_status rp_machine_network(const rp_program *program, const rp_machine *machine, rp_arena *arena,
                             rp_routes *routes_out, rp_network **network_out, rp_reason *reason);

/**
 * The route from one GPU's memory to another's (from != to): that of its SENDs where the machine
 * has peers that reach each other, otherwise over both PCIe links and what lies between them.
 * @param network of the same program and machine
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_machine_peer_route(const rp_program *program, const rp_machine *machine, uint32_t from,
                                uint32_t to, rp_network *network, uint32_t *route_out);

/** @return the route of a kind's ops on a queue, unless they differ. */
static inline uint32_t rp_route_of_kind(const rp_routes *routes, uint32_t queue, rp_op_kind kind)
{
    return routes->of_kind[kind] != RP_NO_ROUTE ? routes->of_kind[kind] : routes->of_queue[queue];
}

/** @return the route of an op that is not compute. */
static inline uint32_t rp_route_of(const rp_routes *routes, uint32_t queue, uint32_t op,
                                   rp_op_kind kind)
{
    return routes->of_op != NULL ? routes->of_op[op] : rp_route_of_kind(routes, queue, kind);
}

/** @return bytes that an op carries over each link of its route: its SEND has carried those of a
 * RECV, and each socket does its part of a host op. Of work of threads, picoseconds of a core for
 * each of them. @param op_bytes rp_program.op_bytes of it */
static inline double rp_flow_bytes(const rp_routes *routes, uint64_t op_bytes, rp_op_kind kind)
{
    double bytes = rp_op_kinds[kind].way == RP_WAY_IN ? 0 : (double)op_bytes;
    if (routes->core_ps_per_byte[kind] > 0) {
        return bytes * routes->core_ps_per_byte[kind];
    }
    return rp_op_kind_class(kind) == RP_CLASS_HOST ? bytes / routes->homes : bytes;
}

/** @return flows that an op has: one for each thread, and one through a port. */
static inline uint32_t rp_flow_count(const rp_routes *routes, rp_op_kind kind)
{
    bool threads = rp_op_kind_class(kind) == RP_CLASS_HOST && !rp_op_kind_uses_port(kind);
    return threads ? routes->host_threads : 1;
}

/** @retval RP_OK, RP_INPUT: an op moves more than RP_MAX_FLOW_BYTES, or there are transfers
 * between GPUs that the machine cannot do, point to point or collectives without a rate (logged) */
rp_status rp_machine_check(const rp_program *program, const rp_machine *machine, rp_reason *reason);
