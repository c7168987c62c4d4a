/* Machines of programs whose GPUs stand for several GPUs that do the same work. */
#include "common/base/reason.h"
#include "common/machine/machine_internal.h"

#include <math.h>

/* Placement of a program's GPUs: each stands for `inner` successive GPUs, and `gpus` such blocks
 * follow each other. If copies are further apart than the pipeline, all of that is repeated for
 * each of them. */
typedef struct placement {
    uint32_t inner;
    uint32_t gpus;
    uint32_t outer; /* number of repetitions; 1: the pipeline is the outermost axis */
    bool in_one;    /* without repetitions and sockets: all GPUs may be a part of a server's */
} placement;

/* Adapts a link of rate `*rate` that `*count` successive GPUs share: of GPUs that do the same work
 * a single GPU is left, and the rate is divided. */
static rp_status share(const char *what, const placement *p, uint32_t *count, double *rate,
                       rp_reason *reason)
{
    uint32_t shared = *count;
    uint32_t all = p->inner * p->gpus;
    if (shared == 0) {
        return RP_OK;
    }
    bool few = shared <= p->inner;
    bool whole = p->outer > 1 && shared > all; /* whole pipelines share it */
    bool fits = few     ? p->inner % shared == 0
                : whole ? shared % all == 0
                        : shared % p->inner == 0 && (p->outer == 1 || all % shared == 0);
    if (!fits && p->in_one && all <= shared) { /* with others that the program does not use */
        *count = p->gpus;
        *rate /= p->inner;
        return RP_OK;
    }
    if (!fits) {
        return rp_refuse(
            reason, RP_USAGE,
            "{data_parallel}: %u GPUs of a stage and %u GPUs of a %s; valid are numbers "
            "of which one divides the other",
            p->outer > 1 && !few ? all : p->inner, shared, what);
    }
    *count = few ? 1 : whole ? p->gpus : shared / p->inner;
    *rate /= few ? shared : whole ? shared / p->gpus : p->inner;
    return RP_OK;
}

/* Number, in its node, of the GPU that is copy `copy` of a program's GPU; at least `node` if that
 * is in another node. */
static uint32_t real_gpu(const placement *p, uint32_t gpu, uint32_t copy)
{
    return copy / p->inner * p->inner * p->gpus + gpu * p->inner + copy % p->inner;
}

/* @return whether NVLink joins all copies of a program's GPU with those of another. */
static bool copies_joined(const rp_machine *m, const placement *p, uint32_t from, uint32_t to,
                          uint32_t node)
{
    for (uint32_t copy = 0; copy < p->inner * p->outer; copy++) {
        uint32_t a = real_gpu(p, from, copy);
        uint32_t b = real_gpu(p, to, copy);
        if (a < node && b < node && m->each[a].first != m->each[b].first) {
            return false;
        }
    }
    return true;
}

/* Lists the program's GPUs of a node, each as slow as the slowest GPU that it stands for. */
static void share_listed(rp_machine *m, const placement *p, uint32_t node, uint32_t of_node)
{
    const rp_machine all = *m;
    m->listed = of_node;
    for (uint32_t gpu = 0; gpu < m->listed; gpu++) {
        rp_machine_gpu *folded = &m->each[gpu];
        *folded = all.each[real_gpu(p, gpu, 0)];
        for (uint32_t copy = 1; copy < p->inner * p->outer; copy++) {
            uint32_t real = real_gpu(p, gpu, copy);
            if (real < node) {
                folded->upload = fmin(folded->upload, all.each[real].upload);
                folded->download = fmin(folded->download, all.each[real].download);
            }
        }
        folded->first = 0;
        while (!copies_joined(&all, p, folded->first, gpu, node)) {
            folded->first++; /* at most `gpu` */
        }
    }
}

/* Makes the group of `gpus` GPUs that lie `stride` apart, with `node` GPUs in a node. */
static rp_status make_group(const char *setting, const rp_machine *m, uint32_t gpus,
                            uint32_t stride, uint32_t node, rp_machine_group *group_out,
                            rp_reason *reason)
{
    uint32_t larger = stride < node ? node : stride;
    if (gpus > 1 && larger % (stride < node ? stride : node) != 0) {
        return rp_refuse_setting(reason, RP_USAGE, setting,
                                 "GPUs of a group are %u apart, and a server has %u; valid are "
                                 "numbers of which one divides the other",
                                 stride, node);
    }
    uint32_t of_node = stride < node ? node / stride : 1;
    of_node = of_node < gpus ? of_node : gpus;
    if (gpus % of_node != 0) {
        return rp_refuse_setting(
            reason, RP_USAGE, setting,
            "groups of %u GPUs, of which a server has %u; valid are multiples of %u", gpus, of_node,
            of_node);
    }
    uint32_t nodes = gpus / of_node;
    uint32_t apart = stride < node ? 1 : stride / node;
    uint32_t below = m->leaf_nodes == 0 ? nodes : apart < m->leaf_nodes ? m->leaf_nodes / apart : 1;
    double Bps = m->collective_Bps > 0 ? m->collective_Bps : m->upload_Bps;
    bool part = of_node < node && m->collective_part_Bps > 0;
    *group_out = (rp_machine_group){.gpus = gpus,
                                    .of_node = of_node,
                                    .leaf_nodes = below < nodes ? below : nodes,
                                    .Bps = part ? m->collective_part_Bps : Bps};
    return RP_OK;
}

/* Adapts leaf switches. A leaf switch has the adapters of one number, or all adapters, of its
 * nodes. */
static rp_status share_leaf(rp_machine *m, const placement *p, uint32_t node, rp_reason *reason)
{
    uint32_t within = p->inner < node ? p->inner : node;
    uint32_t of_port = m->adapters > 1 ? node / m->adapters : node;
    const placement nodes = {p->inner / within, p->gpus, 1, false};
    if (p->outer > 1) {
        return rp_refuse(
            reason, RP_USAGE,
            "{axes}: leaf switches are modelled for pipelines over successive GPUs; valid "
            "are tdp and dtp");
    }
    RP_TRY(share("leaf switch, in servers,", &nodes, &m->leaf_nodes, &m->leaf_Bps, reason));
    m->leaf_Bps /= m->rails && of_port < within ? of_port : within;
    return RP_OK;
}

/* Sets a group's rate on a machine that lists its GPUs: that of the slowest of all groups. NVLink
 * carries groups whose GPUs it joins, the links to the host all others.
 * @param used GPUs of the first node that the program uses */
static void limit_group(const rp_machine *m, uint32_t stride, uint32_t used, rp_machine_group *g)
{
    uint32_t span = stride * g->gpus;
    double slowest_Bps = INFINITY;
    for (uint32_t a = 0; a < used; a++) {
        for (uint32_t b = 0; b < used; b++) {
            bool same = a / span == b / span && a % stride == b % stride;
            if (same && !rp_machine_joined(m, a, b)) {
                slowest_Bps = fmin(slowest_Bps, rp_machine_slowest_link_Bps(m, a));
            }
        }
    }
    if (slowest_Bps < INFINITY) {
        bool bridges = m->nvlink_gpus > 0 && m->collective_Bps > 0;
        g->Bps = fmin(bridges ? m->collective_Bps : g->Bps, slowest_Bps);
    }
}

static void limit_groups(rp_machine *m, const rp_strides *strides, uint32_t experts, uint32_t used)
{
    limit_group(m, strides->tensor, used, &m->tensor);
    limit_group(m, strides->data, used, &m->data);
    limit_group(m, strides->expert, used, &m->expert);
    limit_group(m, strides->expert * experts, used, &m->replica);
}

static rp_status make_groups(rp_machine *m, const rp_layout *layout, const rp_strides *strides,
                             uint32_t node, rp_reason *reason)
{
    uint32_t experts = rp_layout_expert(layout);
    RP_TRY(make_group("tensor_parallel", m, rp_layout_tensor(layout), strides->tensor, node,
                      &m->tensor, reason));
    RP_TRY(make_group("data_parallel", m, rp_layout_data(layout), strides->data, node, &m->data,
                      reason));
    RP_TRY(make_group("expert_parallel", m, experts, strides->expert, node, &m->expert, reason));
    RP_TRY(make_group("expert_parallel", m, rp_layout_replicas(layout), strides->expert * experts,
                      node, &m->replica, reason));
    m->tensor.algorithm = m->data.algorithm = m->replica.algorithm =
        (rp_collectives)layout->collectives;
    return RP_OK;
}

rp_status rp_machine_fold(rp_machine *m, const rp_layout *layout, uint32_t gpus, rp_reason *reason)
{
    uint32_t copies = rp_layout_gpus(layout);
    uint32_t node = m->gpus_per_node != 0 ? m->gpus_per_node : gpus * copies;
    uint32_t nvlink = m->nvlink_gpus;
    double unshared = 0;
    if (copies == 1) {
        return RP_OK;
    }
    const rp_strides strides = rp_layout_strides(layout, gpus);
    uint32_t outer = copies / strides.pipeline;
    const placement p = {strides.pipeline, gpus, outer, outer == 1 && m->sockets <= 1};
    uint32_t of_node = node;
    uint32_t of_memory = node;
    uint32_t of_sockets = node;
    uint32_t of_socket = m->sockets > 1 && node % m->sockets == 0 ? node / m->sockets : 0;
    uint32_t of_port = m->adapters > 1 ? node / m->adapters : 0;
    RP_TRY(make_groups(m, layout, &strides, node, reason));
    RP_TRY(m->leaf_nodes != 0 ? share_leaf(m, &p, node, reason) : RP_OK);
    RP_TRY(share("server", &p, &of_node, &m->network_Bps, reason));
    RP_TRY(share("server", &p, &of_memory, &m->dram_Bps, reason));
    RP_TRY(share("server", &p, &of_sockets, &m->intersocket_Bps, reason));
    RP_TRY(share("network adapter", &p, &of_port, &unshared, reason));
    RP_TRY(share("socket", &p, &of_socket, &unshared, reason));
    RP_TRY(share("PCIe switch", &p, &m->gpus_per_switch, &m->switch_Bps, reason));
    RP_TRY(share("root complex", &p, &m->gpus_per_root, &m->root_Bps, reason));
    RP_TRY(m->listed > 0 ? RP_OK : share("group joined by NVLink", &p, &nvlink, &unshared, reason));
    if (m->listed > 0) {
        uint32_t used = gpus * copies < node ? gpus * copies : node;
        limit_groups(m, &strides, rp_layout_expert(layout), used);
        share_listed(m, &p, node, of_node);
    }
    m->gpus_per_node = m->gpus_per_node != 0 ? of_node : 0;
    m->nvlink_gpus = nvlink;
    m->sockets = of_socket != 0 ? of_node / of_socket : m->sockets;
    m->adapters = of_port != 0 ? of_node / of_port : m->adapters;
    return RP_OK;
}

/* Grows a block to whole links, each of which `each` successive GPUs share; 0 if that is not
 * possible. */
static uint32_t whole_links(uint32_t block, uint32_t each)
{
    uint32_t larger = block > each ? block : each;
    return each == 0 || block == 0                       ? block
           : larger % (block < each ? block : each) == 0 ? larger
                                                         : 0;
}

static bool scales_links(const rp_machine *m)
{
    bool scales = m->link_scale != NULL;
    for (uint32_t kind = 0; kind < RP_SHARED_COUNT; kind++) {
        scales |= m->shared_scale[kind] != NULL;
    }
    return scales;
}

uint32_t rp_machine_block(const rp_machine *m, uint32_t gpus)
{
    uint32_t node = m->gpus_per_node != 0 && m->gpus_per_node < gpus ? m->gpus_per_node : gpus;
    if (m->listed > 0 || m->cores > 0 || scales_links(m)) {
        return gpus;
    }
    uint32_t block = whole_links(whole_links(1, m->gpus_per_switch), m->gpus_per_root);
    if (m->dram_Bps > 0) { /* all sockets of a node, which host ops join */
        block = whole_links(block, node);
    }
    bool alike = block != 0 && gpus % block == 0 && (block == 1 || node % block == 0);
    return alike ? block : gpus;
}
