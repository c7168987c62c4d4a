/* The network's flows and its clock: network.h. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/reason.h"
#include "common/machine/network/network_internal.h"

#include <math.h>

static rp_status check_capacities(const double *capacities, uint32_t count, double ticks_per_s,
                                  rp_reason *reason)
{
    if (!(ticks_per_s >= 1 && ticks_per_s <= 1e15)) {
        return rp_refuse(reason, RP_INPUT,
                         "network: %g ticks per second; valid values are 1 to 1e15", ticks_per_s);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!(capacities[i] >= RP_MIN_CAPACITY && capacities[i] <= RP_MAX_CAPACITY)) {
            return rp_refuse(reason, RP_INPUT,
                             "network: link %u has capacity %g; valid values are %g to %g bytes/s",
                             i, capacities[i], RP_MIN_CAPACITY, RP_MAX_CAPACITY);
        }
    }
    return RP_OK;
}

static rp_status allocate_links(uint32_t link_count, rp_network *network)
{
    size_t count = link_count > 0 ? link_count : 1;
    RP_TRY(rp_mem_resize(&network->links, count * sizeof *network->links));
    network->link_count = link_count;
    for (uint32_t i = 0; i < link_count; i++) {
        network->links[i] = (rp_link){0};
    }
    RP_TRY(rp_mem_resize(&network->sorted_links, count * sizeof *network->sorted_links));
    RP_TRY(rp_mem_resize(&network->reached_links, count * sizeof *network->reached_links));
    return rp_mem_resize(&network->shares, count * sizeof *network->shares);
}

rp_status rp_network_create(const double *capacities_Bps, uint32_t link_count, double ticks_per_s,
                            rp_network **network_out, rp_reason *reason)
{
    *network_out = NULL;
    RP_TRY(check_capacities(capacities_Bps, link_count, ticks_per_s, reason));
    rp_network *network = NULL;
    RP_TRY(rp_mem_resize(&network, sizeof *network));
    *network = (rp_network){.ticks_per_s = ticks_per_s, .mark = 1, .limit = NULL};
    rp_status status = allocate_links(link_count, network);
    if (status != RP_OK) {
        rp_network_destroy(network);
        return status;
    }
    for (uint32_t i = 0; i < link_count; i++) {
        network->links[i].capacity = capacities_Bps[i] / ticks_per_s;
    }
    *network_out = network;
    return RP_OK;
}

void rp_network_destroy(rp_network *network)
{
    if (network == NULL) {
        return;
    }
    for (uint32_t i = 0; i < network->link_count; i++) {
        rp_mem_release(&network->links[i].members);
    }
    for (uint32_t i = 0; i < network->group_count; i++) {
        rp_mem_release(&network->groups[i].flows.entries);
    }
    rp_mem_release(&network->links);
    rp_mem_release(&network->groups);
    rp_mem_release(&network->hops);
    rp_mem_release(&network->sorted_links);
    rp_mem_release(&network->table);
    rp_mem_release(&network->ended.entries);
    rp_mem_release(&network->dirty);
    rp_mem_release(&network->reached_links);
    rp_mem_release(&network->reached_groups);
    rp_mem_release(&network->starts);
    rp_mem_release(&network->changed);
    rp_mem_release(&network->shares);
    rp_mem_release(&network->ends);
    rp_mem_release(&network);
}

/* Ends a flow. Room in the heap was reserved when the flow started. */
static void end_flow(rp_network *network, rp_group *group, int64_t time_ticks)
{
    rp_heap_entry flow = rp_heap_pop(&group->flows);
    group->ended_bytes += flow.amount;
    group->service_at_starts -= rp_key_service(flow.key) - flow.amount;
    flow.key = (uint64_t)time_ticks;
    rp_heap_push(&network->ended, flow);
}

/* Ends the flows of the groups whose next end is `time_ticks`: all flows that end then at the rates
 * that held so far. */
static void end_flows(rp_network *network, int64_t time_ticks)
{
    network->clock_ticks = time_ticks;
    while (network->end_count > 0 && network->ends[0].ticks <= time_ticks) {
        uint32_t index = network->ends[0].group;
        rp_group *group = &network->groups[index];
        rp_ends_remove(network, 0);
        rp_network_touch(network, index);
        while (group->flows.count > 0 &&
               rp_group_end(group, group->flows.entries[0].key) <= time_ticks) {
            end_flow(network, group, time_ticks);
        }
        group->service = rp_group_service(network, group);
        group->since_ticks = time_ticks;
        if (group->flows.count == 0) {
            group->service = 0;
            group->service_at_starts = 0;
        }
    }
}

static int64_t next_end(const rp_network *network)
{
    return network->end_count > 0 ? network->ends[0].ticks : RP_NEVER;
}

int64_t rp_network_next(rp_network *network)
{
    rp_network_settle(network);
    int64_t next = next_end(network);
    if (network->ended.count > 0 && (int64_t)network->ended.entries[0].key < next) {
        next = (int64_t)network->ended.entries[0].key;
    }
    return next;
}

bool rp_network_pop(rp_network *network, int64_t until_ticks, rp_completion *completion_out)
{
    rp_heap *ended = &network->ended;
    for (;;) {
        if (until_ticks > network->clock_ticks) {
            rp_network_settle(network);
        }
        int64_t limit = until_ticks;
        if (ended->count > 0 && (int64_t)ended->entries[0].key < limit) {
            limit = (int64_t)ended->entries[0].key;
        }
        if (next_end(network) > limit || next_end(network) == RP_NEVER) {
            break;
        }
        end_flows(network, network->ends[0].ticks);
    }
    if (ended->count == 0 || (int64_t)ended->entries[0].key > until_ticks) {
        return false;
    }
    rp_heap_entry flow = rp_heap_pop(ended);
    *completion_out = (rp_completion){(int64_t)flow.key, flow.sequence, flow.tag};
    network->flow_count--;
    return true;
}

void rp_network_advance(rp_network *network, int64_t now_ticks)
{
    for (;;) {
        if (now_ticks > network->clock_ticks) {
            rp_network_settle(network);
        }
        if (next_end(network) > now_ticks || next_end(network) == RP_NEVER) {
            break;
        }
        end_flows(network, network->ends[0].ticks);
    }
    if (now_ticks > network->clock_ticks) {
        network->clock_ticks = now_ticks;
    }
}

static rp_status check_start(const rp_network *network, uint32_t route, double bytes,
                             int64_t now_ticks)
{
    if (route >= network->group_count || !(bytes >= 0 && bytes <= RP_MAX_FLOW_BYTES) ||
        now_ticks < network->clock_ticks || now_ticks == RP_NEVER) {
        rp_log_error("network: flow of %g bytes on route %u at %lld; valid are routes below %u, "
                     "0 to %g bytes, times from %lld",
                     bytes, route, (long long)now_ticks, network->group_count, RP_MAX_FLOW_BYTES,
                     (long long)network->clock_ticks);
        return rp_broken();
    }
    return RP_OK;
}

/* The service of a group that is never empty would grow until its double loses the low bits. Above
 * this limit (64 GiB, at which the last bit is worth 2^-17 bytes) it starts again at 0. */
#define LARGE_SERVICE 68719476736.0

static void rebase(rp_group *group)
{
    uint64_t count = group->flows.count;
    group->flows.count = 0;
    for (uint64_t i = 0; i < count; i++) {
        rp_heap_entry flow = group->flows.entries[i];
        double left = rp_key_service(flow.key) - group->service;
        flow.key = rp_service_key(left > 0 ? left : 0);
        rp_heap_push(&group->flows, flow);
    }
    group->service_at_starts -= (double)count * group->service;
    group->service = 0;
}

static void add_flow(rp_network *network, uint32_t route, rp_heap_entry flow)
{
    rp_group *group = &network->groups[route];
    if (group->flows.count > 0) {
        group->service = rp_group_service(network, group);
    }
    group->since_ticks = network->clock_ticks;
    if (group->service > LARGE_SERVICE) {
        rebase(group);
    }
    group->service_at_starts += group->service;
    flow.key = rp_service_key(group->service + flow.amount);
    rp_heap_push(&group->flows, flow);
    rp_network_touch(network, route);
}

rp_status rp_network_start(rp_network *network, uint32_t route, double bytes, int64_t now_ticks,
                           uint64_t tag)
{
    RP_TRY(check_start(network, route, bytes, now_ticks));
    RP_TRY(rp_heap_reserve(&network->ended, network->flow_count + 1));
    rp_group *group = &network->groups[route];
    RP_TRY(rp_heap_reserve(&group->flows, group->flows.count + 1));
    rp_network_advance(network, now_ticks);
    rp_heap_entry flow = {.sequence = network->sequence++, .tag = tag, .amount = bytes};
    network->flow_count++;
    if (bytes > 0 && group->hop_count > 0) {
        add_flow(network, route, flow);
    } else {
        group->ended_bytes += bytes;
        flow.key = (uint64_t)now_ticks;
        rp_heap_push(&network->ended, flow);
    }
    return RP_OK;
}

int64_t rp_network_clock(const rp_network *network)
{
    return network->clock_ticks;
}

uint64_t rp_network_flows(const rp_network *network)
{
    return network->flow_count - network->ended.count;
}

double rp_network_rate(rp_network *network, uint32_t route)
{
    rp_network_settle(network);
    const rp_group *group = &network->groups[route];
    return group->hop_count > 0 ? group->rate * network->ticks_per_s : INFINITY;
}

uint32_t rp_network_bottleneck(rp_network *network, uint32_t route)
{
    rp_network_settle(network);
    const rp_link *link = network->groups[route].bottleneck;
    return link != NULL ? (uint32_t)(link - network->links) : RP_NO_LINK;
}

static double carried_bytes(const rp_network *network, const rp_group *group)
{
    if (group->flows.count == 0) {
        return group->ended_bytes;
    }
    return group->ended_bytes + (double)group->flows.count * rp_group_service(network, group) -
           group->service_at_starts;
}

rp_link_usage rp_network_usage(rp_network *network, uint32_t link)
{
    rp_network_settle(network);
    const rp_link *of = &network->links[link];
    rp_link_usage usage = {0, of->busy_ticks, of->full_ticks};
    usage.busy_ticks += of->member_count > 0 ? network->clock_ticks - of->busy_since : 0;
    usage.full_ticks += of->full ? network->clock_ticks - of->full_since : 0;
    for (uint32_t i = 0; i < network->group_count; i++) {
        const rp_group *group = &network->groups[i];
        for (uint32_t k = 0; k < group->hop_count; k++) {
            if (network->hops[group->hop_begin + k].link == of) {
                usage.bytes += carried_bytes(network, group);
                break;
            }
        }
    }
    return usage;
}
