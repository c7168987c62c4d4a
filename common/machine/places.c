/* Numbers of the links that GPUs share. */
#include "common/machine/machine_internal.h"

static uint32_t leaf_count(const rp_machine *m, uint32_t nodes)
{
    if (m->leaf_nodes == 0) {
        return 0;
    }
    uint32_t leaves = rp_machine_leaf_of(m, nodes - 1, rp_machine_port_count(m) - 1) + 1;
    bool groups = rp_machine_leaves_leaf(&m->tensor) || rp_machine_leaves_leaf(&m->data);
    return leaves > 1 || groups ? leaves : 0;
}

/* @return whether groups of GPUs that a GPU of the program stands for leave the program's only
 * node. */
static bool group_leaves_node(const rp_machine *m)
{
    return rp_machine_leaves_node(&m->tensor) || rp_machine_leaves_node(&m->data);
}

rp_status rp_machine_peer_groups(const rp_machine *m, uint32_t gpus, rp_arena *arena,
                                 const uint32_t **groups_out)
{
    uint32_t *groups = NULL;
    *groups_out = NULL;
    if (m->listed == 0 || m->peer_pcie) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, gpus, sizeof *groups, &groups));
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        uint32_t node = rp_machine_node(m, gpu);
        groups[gpu] = node * m->gpus_per_node + rp_machine_listed(m, gpu)->first;
    }
    *groups_out = groups;
    return RP_OK;
}

uint32_t rp_machine_shared_count(const rp_machine *m, uint32_t gpus, rp_shared kind)
{
    uint32_t nodes = rp_machine_node_count(m, gpus);
    switch (kind) {
    case RP_SHARED_SWITCH:
        return rp_machine_groups(gpus, m->gpus_per_switch);
    case RP_SHARED_ROOT:
        return rp_machine_groups(gpus, m->gpus_per_root);
    case RP_SHARED_INTERSOCKET:
        return rp_machine_socket_count(m) > 1 && m->intersocket_Bps > 0 ? nodes : 0;
    case RP_SHARED_DRAM:
        return m->dram_Bps > 0 ? nodes * rp_machine_socket_count(m) : 0;
    case RP_SHARED_NETWORK:
        return nodes > 1 || group_leaves_node(m) ? nodes : 0;
    case RP_SHARED_LEAF:
        return leaf_count(m, nodes);
    case RP_SHARED_COUNT:
        break;
    }
    return 0;
}
