/** @file machine.h  The machine of hardware fidelity: its links, and the routes of each queue's ops
 * over them.
 *
 * Every GPU has an upload and a download link, with one copy engine each, a bus for its collectives
 * and, if GPUs reach each other, two ports: for sending to other GPUs and for receiving from them.
 * On the way to memory GPUs share links, all of them optional, with a rate per direction: the
 * uplink of a PCIe switch, a root complex, the links between the sockets of a node, the network
 * port of a node. Successive GPUs belong together: to a switch, a root complex, a socket, a node.
 * The host has a rate for its memory traffic, separate rates for some kinds of host ops and, if
 * DRAM is limited, a rate of DRAM that transfers and host ops share.
 *
 * **Both directions.** PCIe links (of GPUs, switches, root complexes) reach both directions' rates
 * at once, unless `duplex` makes both together slower: both directions then pass another link of
 * capacity duplex x (up + down). So a direction by itself keeps its rate, and a direction that
 * needs little leaves the rest to the other. The reason is that DMA in both directions shares the
 * capacity of requests, acknowledgements and the memory behind them.
 *
 * **Places of memory.** Each socket of each node has its part of the host's memory. Weights,
 * gradients and optimizer states are interleaved over all of them, as a runtime that does not know
 * the topology would place them: successive transfers of a queue take turns, so with S sockets (S -
 * 1) / S of the traffic comes from another socket. Data-parallel ranks hold their shards near their
 * GPU (`local_memory`). Activations and boundary gradients lie near the GPU that wrote them. Host
 * work is spread evenly: each socket does its part with its own share of the rates. Traffic from
 * another node passes both nodes' network ports and the GPU's PCIe path, but not the links between
 * sockets, as network adapters are assumed to be near the memory.
 *
 * **Between GPUs.** NVLink joins `nvlink_gpus` successive GPUs all-to-all (2: bridged pairs), or
 * the groups that `each` lists. Other
 * GPUs reach each other over their PCIe links, the switches and root complexes between them and,
 * from node to node, the network, if `peer_pcie` is set. The SEND carries the bytes when its sender
 * is ready; its RECV takes no time. Collectives have a measured rate of their own, which includes
 * the cost of switches; over several nodes it is at most the network's. Hosts of servers that each
 * run a copy of the program add up gradients in a ring through their ports, which the copies use
 * for nothing else. The received bytes also pass the DRAM if it is limited.
 *
 * **Emulated GPUs** (`cores`). If threads of the host play the GPUs, work is time of a core. All
 * threads with work share the cores by max-min fairness, and no thread has more than a single core:
 * this is a network whose unit of flow is the picosecond of a core. Each queue is a thread, a host
 * op several. Copies are work of threads as well (`copies_on_cores`); otherwise links carry them as
 * above, because the emulation makes threads sleep for as long as a link would take. `cores` need
 * not be whole: two hyperthreads of a core do less than two cores. Threads of GPUs may be bound to
 * a core each (`bound_cores`), which they share then with the other GPUs of that core, even while
 * other cores are idle.
 */
#pragma once

#include "common/base/reason.h"
#include "common/machine/network/network.h"
#include "common/program/limits.h"
#include "common/program/program.h"

/** X(enumerator, JSON key, phrase for a single link, phrase for all links). Links that several GPUs
 * share; a link's number follows the third word. This is the only list of them. */
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
    uint32_t gpus;       /**< 0: the layout has no such groups */
    uint32_t of_node;    /**< GPUs of a group that are in the same node */
    uint32_t leaf_nodes; /**< nodes of a group that are below the same leaf switch */
    double Bps;          /**< bytes per second through each GPU, if the network has room for it */
    rp_collectives algorithm;
} rp_machine_group;

/** A step of a collective. Steps follow each other; each uses all its links at the same time. */
typedef struct rp_collective_step {
    int64_t latency_ps; /**< time before its bytes flow */
    double bus;         /**< bytes through each GPU, for each of the op's bytes */
    double network; /**< bytes through the network ports of its node, for each of the op's bytes */
    double leaf;    /**< bytes through the uplinks of its leaf switch, for each of the op's bytes */
} rp_collective_step;

#define RP_COLLECTIVE_STEPS 3u

/** A GPU of a node whose GPUs differ. */
typedef struct rp_machine_gpu {
    double upload;   /**< factor on upload_Bps */
    double download; /**< factor on download_Bps */
    uint32_t first;  /**< first GPU of the node that NVLink joins it with; itself if none */
} rp_machine_gpu;

/** The machine as the engine sees it. Rates are in bytes per second, per GPU; a rate of 0 means
 * that there is no such link. */
typedef struct rp_machine {
    double upload_Bps;   /**< host to GPU */
    double download_Bps; /**< GPU to host */
    double host_Bps;     /**< memory traffic of a node's host ops */
    double adam_Bps;     /**< rate of a node's OPTIMIZER ops; 0: host_Bps */
    double refresh_Bps;  /**< rate of a node's REFRESH ops; 0: host_Bps */
    double collect_Bps;  /**< rate of a node's COLLECT ops; 0: host_Bps */
    double dram_Bps;     /**< a node's DRAM, which transfers and host ops share; 0: no bottleneck */
    int64_t copy_latency_ps; /**< latency of every transfer, on its copy engine */
    int64_t op_gap_ps;       /**< least time from the end of an op to the next one of its queue */
    int64_t op_wake_ps; /**< least time from the end of an op to the start of an op of another queue
                           that waits for it */
    int64_t collective_latency_ps; /**< latency of every collective, before its bytes flow */
    double collective_part_Bps; /**< rate of groups with some GPUs of a node; 0: collective_Bps */
    int64_t collective_hop_ps;  /**< additional latency per step of a ring, to a GPU of the node */
    int64_t network_hop_ps;     /**< additional latency per step to a GPU of the next node */
    double collective_Bps;      /**< rate of a collective through each GPU; 0: no collectives are
                                   possible */
    uint32_t servers; /**< servers, each with a copy of the program, whose hosts add up gradients;
                         0: a single server */
    rp_machine_group tensor;  /**< set by rp_machine_fold */
    rp_machine_group data;    /**< set by rp_machine_fold */
    rp_machine_group expert;  /**< set by rp_machine_fold */
    rp_machine_group replica; /**< set by rp_machine_fold */
    double duplex; /**< rate of both directions of a PCIe link at once, over the sum of the single
                      directions' rates, 0.5 to 1; 0: 1 */
    uint32_t gpus_per_switch; /**< GPUs that share an uplink; 0: no switches */
    double switch_Bps; /**< rate of an uplink, per direction; read only if there are switches */
    uint32_t gpus_per_root; /**< GPUs that share a root complex; 0: it limits nothing */
    double root_Bps;        /**< rate of a root complex, per direction */
    uint32_t gpus_per_node; /**< 0: all GPUs are in the same node */
    uint32_t sockets;       /**< sockets of a node; 0: a single socket */
    double intersocket_Bps; /**< between any two sockets, per direction; 0: no bottleneck */
    double network_Bps;     /**< rate of a node, per direction; read only with several nodes */
    uint32_t adapters;      /**< adapters of a node, which share its network_Bps and its GPUs; 0: a
                               single adapter */
    uint32_t leaf_nodes; /**< successive nodes below a leaf switch; 0: a single switch joins all */
    bool rails;      /**< a leaf switch joins the adapters of one number; otherwise all adapters */
    double leaf_Bps; /**< rate of a leaf switch's uplinks, per direction; with leaf_nodes */
    bool local_memory;    /**< parameters are in memory near their GPU, not interleaved */
    double peer_Bps;      /**< rate at which a GPU sends, and at which it receives; 0: no peers */
    uint32_t nvlink_gpus; /**< successive GPUs that NVLink joins; 0: none; with `listed` only
                             whether it joins any */
    bool peer_pcie;       /**< GPUs that NVLink does not join reach each other over PCIe */
    int64_t module_ps;    /**< host time for each module that a job clones (dispatch.h) */
    int64_t object_ps;    /**< host time for each module or tensor (dispatch.h) */
    double cores; /**< cores of the host, which the GPUs' compute and host ops share; 0: GPUs
                     compute themselves. Requires a single socket and a single node */
    uint32_t bound_cores;  /**< with cores: GPU g's threads run on core g mod this; 0: on any */
    bool copies_on_cores;  /**< cores also do transfers, at their rates while each has a core */
    uint32_t host_threads; /**< with cores: threads of a host op, together as fast as host_Bps; 0: a
                              single thread */
    uint32_t listed;       /**< GPUs of a node in `each`; 0: all GPUs are alike */
    rp_machine_gpu each[RP_LISTED_GPUS];
    const double *link_scale; /**< [gpu] factor on both directions of its host link; NULL: all 1 */
    /** [kind][number] factors on single shared links, all their directions; NULL: all 1 */
    const double *shared_scale[RP_SHARED_COUNT];
} rp_machine;

/** @return the separate rate of a kind's host ops; 0: they share host_Bps with the others. */
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

/** @return the description of a GPU of a machine that lists them. */
static inline const rp_machine_gpu *rp_machine_listed(const rp_machine *machine, uint32_t gpu)
{
    return &machine->each[machine->gpus_per_node > 0 ? gpu % machine->gpus_per_node : gpu];
}

/** @return rate of a GPU's link from the host. */
static inline double rp_machine_upload_Bps(const rp_machine *machine, uint32_t gpu)
{
    double share = machine->listed > 0 ? rp_machine_listed(machine, gpu)->upload : 1;
    return share * machine->upload_Bps;
}

/** @return rate of a GPU's link to the host. */
static inline double rp_machine_download_Bps(const rp_machine *machine, uint32_t gpu)
{
    double share = machine->listed > 0 ? rp_machine_listed(machine, gpu)->download : 1;
    return share * machine->download_Bps;
}

/** @return whether NVLink joins two GPUs. */
static inline bool rp_machine_joined(const rp_machine *machine, uint32_t from, uint32_t to)
{
    if (machine->nvlink_gpus == 0 ||
        rp_machine_node(machine, from) != rp_machine_node(machine, to)) {
        return false;
    }
    return machine->listed > 0
               ? rp_machine_listed(machine, from)->first == rp_machine_listed(machine, to)->first
               : from / machine->nvlink_gpus == to / machine->nvlink_gpus;
}

/**
 * Lists which GPUs of a program send to each other directly, if the machine lists its GPUs.
 * @param groups_out [gpus] rp_lower_config.peer_groups; NULL: nvlink_gpus says it
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_machine_peer_groups(const rp_machine *machine, uint32_t gpus, rp_arena *arena,
                                 const uint32_t **groups_out);

/** @return the number of links of a kind that a program on GPUs 0 to gpus - 1 uses: switches, root
 * complexes, nodes (for the links between their sockets and for their network ports), sockets (for
 * DRAM); 0 if the kind limits nothing. */
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
 * Steps of a group's collective (sim/model.md section 14). A ring or trees are a single step; a
 * hierarchical collective has its steps within nodes and between nodes in sequence.
 * @return their number, at least 1
 */
uint32_t rp_machine_group_steps(const rp_machine *machine, const rp_machine_group *group,
                                rp_op_kind kind,
                                rp_collective_step steps[static RP_COLLECTIVE_STEPS]);

/** @return the group of a queue's collectives; NULL if its group is all GPUs of the program. */
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
 * Adapts the machine to a program whose GPUs each stand for a tensor group times a data group of
 * GPUs (schedules.md 16), which are placed as the layout's axes say. By default GPU g stands for
 * the successive GPUs from g x rp_layout_gpus(layout) on, with the tensor group innermost. These
 * GPUs do the same work at the same time, so the rate of a shared link is divided by the number of
 * GPUs that a GPU stands for, and groups have rates of their own. This is exact: the times are
 * those of a program with all GPUs.
 * @param gpus number of the program's GPUs
 * @retval RP_OK, RP_USAGE (groups that fit no node, switch or root complex equally; given as the
 * reason)
 */
rp_status rp_machine_fold(rp_machine *machine, const rp_layout *layout, uint32_t gpus,
                          rp_reason *reason);

/**
 * @return successive GPUs that are enough to simulate `gpus` GPUs which all do the same at the same
 * time and meet in collectives of all: they share links with no other GPUs, and all such blocks are
 * alike. 1 if GPUs share no links; `gpus` if blocks differ, or GPUs or links do.
 */
uint32_t rp_machine_block(const rp_machine *machine, uint32_t gpus);

/** Copy engines of a GPU; its engines are numbered from this times the GPU's number on. */
#define RP_ENGINES_PER_GPU 2u

/** Result of rp_copy_engine for queues whose ops need none. */
#define RP_NO_ENGINE UINT32_MAX

/** @return the number of the copy engine that the ops of a queue take turns on: upload or download
 * of its GPU; RP_NO_ENGINE for compute, peers and the host, and if threads do the copies.
 * @param machine NULL: a machine whose links carry the transfers */
uint32_t rp_copy_engine(const rp_machine *machine, const rp_queue *queue);

/** Route of kinds without a route of their own. */
#define RP_NO_ROUTE UINT32_MAX

/** Routes of a machine's network. */
typedef struct rp_routes {
    uint32_t *of_queue; /**< [queue] route of its ops with memory near the GPU; not of SENDs, nor of
                           ops whose kind has a route */
    uint32_t of_kind[RP_OP_KIND_COUNT]; /**< route of host ops with a rate of their own; otherwise
                                           RP_NO_ROUTE */
    uint32_t *of_op;   /**< [op] route of each op if ops of a queue differ, otherwise NULL */
    double homes;      /**< number of sockets, over which host ops are spread: each does its part */
    uint32_t *network; /**< [queue] route of a group's collectives over its node's ports; or
                          RP_NO_ROUTE */
    uint32_t *leaf;  /**< [queue] route of a group's collectives over its leaf switch's uplinks; or
                        RP_NO_ROUTE */
    uint32_t *cores; /**< [queue] route of its ops that are work of a thread; NULL: no ops are */
    double core_ps_per_byte[RP_OP_KIND_COUNT]; /**< time that a transfer or host op of this kind
                                                  takes of each of its threads; 0: it moves bytes */
    uint32_t host_threads;                     /**< number of flows of a host op */
} rp_routes;

/**
 * Creates the network of a machine and routes for all ops.
 * @param arena owns the routes' arrays
 * @param network_out owned by the caller; NULL on failure
 * @retval RP_OK, RP_INPUT (a rate out of range; given as the reason), RP_NO_MEMORY
 */
rp_status rp_machine_network(const rp_program *program, const rp_machine *machine, rp_arena *arena,
                             rp_routes *routes_out, rp_network **network_out, rp_reason *reason);

/**
 * Makes the route from a GPU's memory to another GPU's (from != to). If the machine's GPUs reach
 * each other, it is the route of SENDs, otherwise a route over both PCIe links and the links
 * between them.
 * @param network of the same program and machine
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_machine_peer_route(const rp_program *program, const rp_machine *machine, uint32_t from,
                                uint32_t to, rp_network *network, uint32_t *route_out);

/** @return the route of a kind's ops on a queue, unless they have routes of their own. */
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

/** @return bytes that an op carries over each link of its route. A RECV carries none, as its SEND
 * has carried them; of a host op each socket does its part. For work of threads it is picoseconds
 * of a core for each thread.
 * @param op_bytes the op's rp_program.op_bytes */
static inline double rp_flow_bytes(const rp_routes *routes, uint64_t op_bytes, rp_op_kind kind)
{
    double bytes = rp_op_kinds[kind].way == RP_WAY_IN ? 0 : (double)op_bytes;
    if (routes->core_ps_per_byte[kind] > 0) {
        return bytes * routes->core_ps_per_byte[kind];
    }
    return rp_op_kind_class(kind) == RP_CLASS_HOST ? bytes / routes->homes : bytes;
}

/** @return number of flows of an op: one for each thread, and a single flow through a port. */
static inline uint32_t rp_flow_count(const rp_routes *routes, rp_op_kind kind)
{
    bool threads = rp_op_kind_class(kind) == RP_CLASS_HOST && !rp_op_kind_uses_port(kind);
    return threads ? routes->host_threads : 1;
}

/** @retval RP_OK, RP_INPUT: an op moves more than RP_MAX_FLOW_BYTES, or there are transfers between
 * GPUs that the machine cannot do: point to point, or collectives without a rate (given as the
 * reason) */
rp_status rp_machine_check(const rp_program *program, const rp_machine *machine, rp_reason *reason);
