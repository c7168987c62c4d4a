/** @file machine_internal.h  Places of GPUs: their node, socket, network adapter and leaf switch.
 * Not for other modules. */
#pragma once

#include "common/machine/machine.h"

/* Rate of the slower direction of the link between the host and a GPU of a machine that lists
 * them. */
double rp_machine_slowest_link_Bps(const rp_machine *m, uint32_t gpu);

static inline uint32_t rp_machine_groups(uint32_t gpus, uint32_t per_group)
{
    return per_group > 0 && gpus > 0 ? (gpus - 1) / per_group + 1 : 0;
}

static inline uint32_t rp_machine_node_count(const rp_machine *m, uint32_t gpus)
{
    return m->gpus_per_node > 0 ? rp_machine_groups(gpus, m->gpus_per_node) : 1;
}

static inline uint32_t rp_machine_socket_count(const rp_machine *m)
{
    return m->sockets > 0 ? m->sockets : 1;
}

/* The memory near a GPU: the number of its socket, counted over all nodes. */
static inline uint32_t rp_machine_home_of(const rp_machine *m, uint32_t gpus, uint32_t gpu)
{
    uint32_t per_node = m->gpus_per_node > 0 ? m->gpus_per_node : gpus;
    uint32_t per_socket = (per_node - 1) / rp_machine_socket_count(m) + 1;
    return rp_machine_node(m, gpu) * rp_machine_socket_count(m) + gpu % per_node / per_socket;
}

/* Number of adapters of a node. */
static inline uint32_t rp_machine_port_count(const rp_machine *m)
{
    return m->adapters > 0 ? m->adapters : 1;
}

static inline uint32_t rp_machine_port_of(const rp_machine *m, uint32_t gpu)
{
    uint32_t each = m->gpus_per_node / rp_machine_port_count(m);
    return each > 0 ? gpu % m->gpus_per_node / each : 0;
}

static inline uint32_t rp_machine_leaf_of(const rp_machine *m, uint32_t node, uint32_t port)
{
    uint32_t switches = m->rails ? rp_machine_port_count(m) : 1;
    return node / m->leaf_nodes * switches + (m->rails ? port : 0);
}

/* @return whether a group goes from node to node. The GPUs that a GPU of the program stands for may
 * be in several nodes, and below several leaf switches. */
static inline bool rp_machine_leaves_node(const rp_machine_group *group)
{
    return group->gpus > group->of_node;
}

static inline bool rp_machine_leaves_leaf(const rp_machine_group *group)
{
    return rp_machine_leaves_node(group) && group->gpus / group->of_node > group->leaf_nodes;
}
