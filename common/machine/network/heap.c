/* The two heaps of the network: flows by (key, sequence), groups by their next end. */
#include "common/base/mem.h"
#include "common/machine/network/network_internal.h"

rp_status rp_grow(void *array, uint64_t *capacity, uint64_t count, size_t size)
{
    if (count <= *capacity) {
        return RP_OK;
    }
    uint64_t wanted = count > 2 * *capacity ? count : 2 * *capacity;
    wanted = wanted < 8 ? 8 : wanted;
    RP_TRY(rp_mem_resize(array, wanted * size));
    *capacity = wanted;
    return RP_OK;
}

static bool before(const rp_heap_entry *a, const rp_heap_entry *b)
{
    return a->key != b->key ? a->key < b->key : a->sequence < b->sequence;
}

void rp_heap_push(rp_heap *heap, rp_heap_entry entry)
{
    uint64_t at = heap->count++;
    while (at > 0 && before(&entry, &heap->entries[(at - 1) / 2])) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entries[at] = entry;
}

rp_heap_entry rp_heap_pop(rp_heap *heap)
{
    rp_heap_entry first = heap->entries[0];
    rp_heap_entry last = heap->entries[--heap->count];
    uint64_t at = 0;
    for (uint64_t child = 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count && before(&heap->entries[child + 1], &heap->entries[child])) {
            child++;
        }
        if (!before(&heap->entries[child], &last)) {
            break;
        }
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = last;
    return first;
}

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

/* Brings the least end to the front of few. */
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

/* Few ends get in and out of order as their number passes RP_FEW_ENDS. */
void rp_ends_update(rp_network *network, const uint32_t *groups, uint32_t count)
{
    bool one_by_one = network->end_count > RP_FEW_ENDS && count <= network->end_count / 8;
    for (uint32_t i = 0; i < count; i++) {
        rp_group *group = &network->groups[groups[i]];
        bool fresh = group->end_slot == RP_NO_SLOT;
        ends_put(network, fresh ? network->end_count++ : group->end_slot,
                 (rp_end){group->end_ticks, groups[i]});
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
