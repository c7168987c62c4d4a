/* Groups by the end of their first flow: a heap in which each group knows its place. */
#include "common/machine/network/network_internal.h"

static void ends_put(rp_network *network, uint32_t slot, rp_end end)
{
    network->ends[slot] = end;
    network->groups[end.group].end_slot = slot;
}

static void ends_up(rp_network *network, uint32_t slot)
{
    rp_end end = network->ends[slot];
    while (slot > 0 && end.ticks < network->ends[(slot - 1) / 2].ticks) {
        ends_put(network, slot, network->ends[(slot - 1) / 2]);
        slot = (slot - 1) / 2;
    }
    ends_put(network, slot, end);
}

static void ends_down(rp_network *network, uint32_t slot)
{
    rp_end end = network->ends[slot];
    for (uint32_t child = 2 * slot + 1; child < network->end_count; child = 2 * slot + 1) {
        if (child + 1 < network->end_count &&
            network->ends[child + 1].ticks < network->ends[child].ticks) {
            child++;
        }
        if (network->ends[child].ticks >= end.ticks) {
            break;
        }
        ends_put(network, slot, network->ends[child]);
        slot = child;
    }
    ends_put(network, slot, end);
}

/* Brings the least end to the front, if there are few ends. */
static void ends_select(rp_network *network)
{
    uint32_t least = 0;
    int64_t ticks = network->ends[0].ticks;
    for (uint32_t slot = 1; slot < network->end_count; slot++) {
        bool less = network->ends[slot].ticks < ticks;
        ticks = less ? network->ends[slot].ticks : ticks;
        least = less ? slot : least;
    }
    if (least > 0) {
        rp_end first = network->ends[0];
        ends_put(network, 0, network->ends[least]);
        ends_put(network, least, first);
    }
}

void rp_ends_remove(rp_network *network, uint32_t slot)
{
    network->groups[network->ends[slot].group].end_slot = RP_NO_SLOT;
    rp_end last = network->ends[--network->end_count];
    if (slot == network->end_count) {
        return;
    }
    ends_put(network, slot, last);
    if (network->end_count <= RP_FEW_ENDS) {
        ends_select(network);
    } else {
        ends_up(network, slot);
        ends_down(network, network->groups[last.group].end_slot);
    }
}

/* Up to RP_FEW_ENDS ends only the least is brought to the front. In a heap of more ends a few
 * changes are moved singly; after many changes the heap is built anew. */
void rp_ends_update(rp_network *network)
{
    uint32_t count = network->changed_count;
    bool one_by_one = network->end_count > RP_FEW_ENDS && count <= network->end_count / 8;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = network->changed[i];
        rp_group *group = &network->groups[index];
        if (group->end_slot == RP_NO_SLOT) {
            group->end_slot = network->end_count++;
        }
        network->ends[group->end_slot] = (rp_end){group->end_ticks, index};
        if (one_by_one) {
            ends_up(network, group->end_slot);
            ends_down(network, group->end_slot);
        }
    }
    if (network->end_count <= RP_FEW_ENDS) {
        ends_select(network);
        return;
    }
    for (uint32_t slot = one_by_one ? 0 : network->end_count / 2; slot-- > 0;) {
        ends_down(network, slot);
    }
}
