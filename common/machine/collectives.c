/* Times of collectives, for all GPUs of a program and for the groups of a layout. */
#include "common/machine/machine_internal.h"

#include <math.h>

double rp_machine_slowest_link_Bps(const rp_machine *m, uint32_t gpu)
{
    return fmin(rp_machine_upload_Bps(m, gpu), rp_machine_download_Bps(m, gpu));
}

/* Rate of the slowest member of a ring of listed GPUs, unless NVLink joins them all: others reach
 * their neighbours over their links to the host. */
static double limit_listed(const rp_machine *m, uint32_t gpus, double Bps)
{
    double slowest_Bps = Bps;
    bool joined = true;
    for (uint32_t gpu = 0; m->listed > 0 && gpu < gpus; gpu++) {
        joined &= rp_machine_joined(m, 0, gpu);
        slowest_Bps = fmin(slowest_Bps, rp_machine_slowest_link_Bps(m, gpu));
    }
    return joined ? Bps : slowest_Bps;
}

/* A ring over several nodes leaves and enters each node, and each leaf, as often as it passes each
 * of its GPUs. */
double rp_machine_bus_Bps(const rp_machine *m, uint32_t gpus)
{
    double Bps = m->collective_Bps > 0 ? m->collective_Bps : m->upload_Bps;
    uint32_t nodes = rp_machine_shared_count(m, gpus, RP_SHARED_NETWORK);
    Bps = m->listed > 0 ? limit_listed(m, gpus, Bps) : Bps;
    for (uint32_t i = 0; i < nodes; i++) {
        const double *scale = m->shared_scale[RP_SHARED_NETWORK];
        double port_Bps = (scale != NULL ? scale[i] : 1.0) * m->network_Bps;
        Bps = port_Bps < Bps ? port_Bps : Bps;
    }
    if (m->leaf_nodes > 0 && nodes > m->leaf_nodes) {
        double leaf_Bps = m->leaf_Bps * (m->rails ? rp_machine_port_count(m) : 1);
        Bps = leaf_Bps < Bps ? leaf_Bps : Bps;
    }
    return Bps;
}

int64_t rp_machine_collective_ps(const rp_machine *m, uint32_t gpus, rp_op_kind kind)
{
    uint32_t of_node = m->gpus_per_node != 0 ? m->gpus_per_node : gpus;
    int64_t away = (int64_t)(gpus - 1) / of_node; /* steps to another node */
    int64_t ring = away * m->network_hop_ps + ((int64_t)gpus - 1 - away) * m->collective_hop_ps;
    return m->collective_latency_ps + rp_op_kind_passes(kind) * ring;
}

/* ---- groups of a layout ---------------------------------------------------------------------- */

/* Sets the bytes of a step that leave nodes and leaves. They spread over the group's GPUs in a
 * node, or below a leaf. `away` and `over_leaf` are the bytes that a node, or a leaf, sends for
 * each of the op's bytes. */
static void send_away(const rp_machine_group *g, double away, double over_leaf,
                      rp_collective_step *step)
{
    bool leaves = rp_machine_leaves_leaf(g);
    step->network = rp_machine_leaves_node(g) ? away / g->of_node : 0;
    step->leaf = leaves ? over_leaf / g->of_node / g->leaf_nodes : 0;
}

/* A single ring of all GPUs, in the order of nodes and leaves. */
static uint32_t ring_steps(const rp_machine *m, const rp_machine_group *g, rp_op_kind kind,
                           rp_collective_step *steps)
{
    int64_t away = (int64_t)(g->gpus - 1) / g->of_node;
    int64_t near = (int64_t)g->gpus - 1 - away;
    int64_t ring = away * m->network_hop_ps + near * m->collective_hop_ps;
    steps[0] =
        (rp_collective_step){m->collective_latency_ps + rp_op_kind_passes(kind) * ring, 1, 0, 0};
    send_away(g, 1, 1, &steps[0]);
    return 1;
}

static int64_t depth_of(uint32_t members)
{
    int64_t depth = 0;
    for (uint64_t reached = 1; reached < members; reached *= 2) {
        depth++;
    }
    return depth;
}

/* Bytes that a member of two trees sends for each byte that is reduced: up to its parents and down
 * to its children. If there are only two members, they send half of it to each other, twice. */
static double tree_bytes(uint32_t members)
{
    return members > 2 ? 2 : 1;
}

/* Two binary trees, each for a half of the bytes, in which every GPU is an inner node of one tree
 * and a leaf of the other (Sanders, Speck, Träff, "Two-tree algorithms", 2009); within nodes first,
 * then over nodes, then over leaves. */
static uint32_t tree_steps(const rp_machine *m, const rp_machine_group *g,
                           rp_collective_step *steps)
{
    uint32_t nodes = g->gpus / g->of_node;
    uint32_t leaves = rp_machine_leaves_leaf(g) ? nodes / g->leaf_nodes : 1;
    double reduced = g->gpus / (2.0 * (g->gpus - 1)); /* part of the op's bytes, as a ring's */
    int64_t depth_ps =
        depth_of(g->of_node) * m->collective_hop_ps + depth_of(nodes) * m->network_hop_ps;
    steps[0] = (rp_collective_step){m->collective_latency_ps + 2 * depth_ps,
                                    reduced * tree_bytes(g->gpus), 0, 0};
    send_away(g, reduced * tree_bytes(nodes), reduced * tree_bytes(leaves), &steps[0]);
    return 1;
}

/* A ring within each node, then as many rings over nodes as a node has GPUs of the group, each for
 * its shard. Reduce-scatter goes inwards, all-gather outwards, an all-reduce does both. */
static uint32_t hierarchical_steps(const rp_machine *m, const rp_machine_group *g, rp_op_kind kind,
                                   rp_collective_step *steps)
{
    double k = g->of_node;
    double nodes = g->gpus / k;
    double whole =
        g->gpus / (rp_op_kind_passes(kind) * (g->gpus - 1.0)); /* tensor, of a ring's bytes */
    double away = rp_op_kind_passes(kind) * (nodes - 1) / nodes * whole / k;
    rp_collective_step near = {m->collective_latency_ps +
                                   ((int64_t)g->of_node - 1) * m->collective_hop_ps,
                               (k - 1) / k * whole, 0, 0};
    rp_collective_step far = {m->collective_latency_ps + rp_op_kind_passes(kind) *
                                                             ((int64_t)nodes - 1) *
                                                             m->network_hop_ps,
                              away, 0, 0};
    send_away(g, away * k, away * k, &far);
    uint32_t count = 0;
    if ((rp_op_kinds[kind].group & RP_GROUP_REDUCES) != 0) {
        steps[count++] = near;
    }
    steps[count++] = far;
    if ((rp_op_kinds[kind].group & RP_GROUP_GATHERS) != 0) {
        steps[count++] = near;
    }
    return count;
}

/* Each GPU sends equally much to every other GPU, to all at once. */
static uint32_t all_to_all_steps(const rp_machine *m, const rp_machine_group *g,
                                 rp_collective_step *steps)
{
    bool leaves = rp_machine_leaves_node(g);
    double others = g->gpus - 1.0;
    int64_t hop_ps = leaves ? m->network_hop_ps : m->collective_hop_ps;
    steps[0] = (rp_collective_step){m->collective_latency_ps + hop_ps, 1, 0, 0};
    steps[0].network = leaves ? (g->gpus - g->of_node) / others : 0;
    if (rp_machine_leaves_leaf(g)) {
        steps[0].leaf = (g->gpus - g->of_node * g->leaf_nodes) / others;
    }
    return 1;
}

uint32_t rp_machine_group_steps(const rp_machine *m, const rp_machine_group *g, rp_op_kind kind,
                                rp_collective_step steps[static RP_COLLECTIVE_STEPS])
{
    if ((rp_op_kinds[kind].group & RP_GROUP_EXCHANGES) != 0) {
        return all_to_all_steps(m, g, steps);
    }
    bool inside = !rp_machine_leaves_node(g) || g->of_node == 1;
    if (g->algorithm == RP_COLLECTIVES_TREE && rp_op_kind_passes(kind) > 1) {
        return tree_steps(m, g, steps);
    }
    return g->algorithm == RP_COLLECTIVES_HIERARCHICAL && !inside
               ? hierarchical_steps(m, g, kind, steps)
               : ring_steps(m, g, kind, steps);
}
