/* Machines of programs whose GPUs stand for several that do the same. */
#include "common/base/log.h"
#include "common/machine/machine.h"

/* `*count` successive GPUs share `*rate`. Of `copies` successive GPUs that do the same one is left.
 */
static rp_status share(const char *what, uint32_t copies, uint32_t *count, double *rate)
{
    uint32_t within = copies < *count ? copies : *count;
    uint32_t larger = copies < *count ? *count : copies;
    if (*count == 0) {
        return RP_OK;
    }
    if (larger % within != 0) {
        rp_log_error("--data-parallel: %u GPUs of a stage and %u GPUs of a %s; valid are numbers "
                     "of which one divides the other",
                     copies, *count, what);
        return RP_USAGE;
    }
    *count /= within;
    *rate /= within;
    return RP_OK;
}

/* GPUs that lie `stride` apart, `node` GPUs in a node. */
static rp_status make_group(const char *option, const rp_machine *m, uint32_t gpus, uint32_t stride,
                            uint32_t node, rp_machine_group *group_out)
{
    uint32_t of_node = stride < node ? node / stride : 1;
    of_node = of_node < gpus ? of_node : gpus;
    if (gpus % of_node != 0) {
        rp_log_error("--%s: groups of %u GPUs, of which a server has %u; valid are multiples of %u",
                     option, gpus, of_node, of_node);
        return RP_USAGE;
    }
    uint32_t nodes = gpus / of_node;
    uint32_t apart = stride < node ? 1 : stride / node;
    uint32_t below = m->leaf_nodes == 0 ? nodes : apart < m->leaf_nodes ? m->leaf_nodes / apart : 1;
    *group_out =
        (rp_machine_group){.gpus = gpus,
                           .of_node = of_node,
                           .leaf_nodes = below < nodes ? below : nodes,
                           .Bps = m->collective_Bps > 0 ? m->collective_Bps : m->upload_Bps};
    return RP_OK;
}

/* Of a leaf switch, which has the adapters of one number, or all of them, of its nodes. */
static rp_status share_leaf(rp_machine *m, uint32_t copies, uint32_t node)
{
    uint32_t within = copies < node ? copies : node;
    uint32_t of_port = m->adapters > 1 ? node / m->adapters : node;
    RP_TRY(share("leaf switch, in servers,", copies / within, &m->leaf_nodes, &m->leaf_Bps));
    m->leaf_Bps /= m->rails && of_port < within ? of_port : within;
    return RP_OK;
}

rp_status rp_machine_fold(rp_machine *m, const rp_layout *layout, uint32_t gpus)
{
    uint32_t tensor = rp_layout_tensor(layout);
    uint32_t copies = rp_layout_gpus(layout);
    uint32_t node = m->gpus_per_node != 0 ? m->gpus_per_node : gpus * copies;
    uint32_t nvlink = m->nvlink_gpus;
    double unshared = 0;
    if (copies == 1) {
        return RP_OK;
    }
    RP_TRY(make_group("tensor-parallel", m, tensor, 1, node, &m->tensor));
    RP_TRY(make_group("data-parallel", m, rp_layout_data(layout), tensor, node, &m->data));
    m->tensor.algorithm = m->data.algorithm = (rp_collectives)layout->collectives;
    uint32_t shared = copies < node ? copies : node;
    RP_TRY(m->leaf_nodes != 0 ? share_leaf(m, copies, node) : RP_OK);
    RP_TRY(share("server", copies, &m->gpus_per_node, &m->network_Bps));
    RP_TRY(share("PCIe switch", copies, &m->gpus_per_switch, &m->switch_Bps));
    RP_TRY(share("root complex", copies, &m->gpus_per_root, &m->root_Bps));
    RP_TRY(share("group joined by NVLink", copies, &nvlink, &unshared));
    m->nvlink_gpus = nvlink;
    m->adapters = m->adapters < m->gpus_per_node ? m->adapters : m->gpus_per_node;
    m->dram_Bps /= shared;
    m->intersocket_Bps /= shared;
    return RP_OK;
}
