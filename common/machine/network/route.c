/* Routes: equal sets of links are the same route, which is found by its hash. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/machine/network/network_internal.h"

#include <math.h>
#include <stdlib.h>

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

static int compare_links(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static rp_status sort_links(rp_network *network, const uint32_t *links, uint32_t count)
{
    uint32_t *sorted = network->sorted_links;
    for (uint32_t i = 0; i < count; i++) {
        if (links[i] >= network->link_count || i == network->link_count) {
            rp_log_error("route: it has link %u at place %u; valid are different links below %u",
                         links[i], i, network->link_count);
            return RP_INPUT;
        }
        sorted[i] = links[i];
    }
    qsort(sorted, count, sizeof *sorted, compare_links);
    for (uint32_t i = 1; i < count; i++) {
        if (sorted[i] == sorted[i - 1]) {
            rp_log_error("route: link %u comes twice; valid are different links", sorted[i]);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

static uint32_t link_at(const rp_network *network, const rp_group *group, uint32_t place)
{
    return (uint32_t)(network->hops[group->hop_begin + place].link - network->links);
}

static bool is_route(const rp_network *network, uint32_t route, uint32_t count)
{
    const rp_group *group = &network->groups[route];
    if (group->hop_count != count) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (link_at(network, group, i) != network->sorted_links[i]) {
            return false;
        }
    }
    return true;
}

/* FNV-1a over the link numbers. */
static uint32_t hash_step(uint32_t hash, uint32_t link)
{
    return (hash ^ link) * 16777619u;
}

/* The route's place in the table, or the empty place for it. */
static uint32_t find_place(const rp_network *network, uint32_t count)
{
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < count; i++) {
        hash = hash_step(hash, network->sorted_links[i]);
    }
    uint32_t place = (hash ^ hash >> 15) & (network->table_size - 1);
    while (network->table[place] != 0 && !is_route(network, network->table[place] - 1, count)) {
        place = (place + 1) & (network->table_size - 1);
    }
    return place;
}

static uint32_t hash_of_group(const rp_network *network, const rp_group *group)
{
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < group->hop_count; i++) {
        hash = hash_step(hash, link_at(network, group, i));
    }
    return hash ^ hash >> 15;
}

/* Doubles the table: at most half of it is used. */
static rp_status grow_table(rp_network *network)
{
    if (network->table_size > 2 * network->group_count) {
        return RP_OK;
    }
    uint32_t size = network->table_size > 0 ? 2 * network->table_size : 64;
    RP_TRY(rp_mem_resize(&network->table, size * sizeof *network->table));
    network->table_size = size;
    for (uint32_t i = 0; i < size; i++) {
        network->table[i] = 0;
    }
    for (uint32_t route = 0; route < network->group_count; route++) {
        uint32_t place = hash_of_group(network, &network->groups[route]) & (size - 1);
        while (network->table[place] != 0) {
            place = (place + 1) & (size - 1);
        }
        network->table[place] = route + 1;
    }
    return RP_OK;
}

/* Grows all arrays that a recomputation needs, so that it cannot fail. */
static rp_status grow_groups(rp_network *network)
{
    if (network->group_count < network->group_capacity) {
        return RP_OK;
    }
    size_t capacity = network->group_capacity > 0 ? 2 * (size_t)network->group_capacity : 16;
    RP_TRY(rp_mem_resize(&network->groups, capacity * sizeof *network->groups));
    RP_TRY(rp_mem_resize(&network->dirty, capacity * sizeof *network->dirty));
    RP_TRY(rp_mem_resize(&network->starts, capacity * sizeof *network->starts));
    RP_TRY(rp_mem_resize(&network->changed, capacity * sizeof *network->changed));
    RP_TRY(rp_mem_resize(&network->reached_groups, capacity * sizeof *network->reached_groups));
    RP_TRY(rp_mem_resize(&network->ends, capacity * sizeof *network->ends));
    network->group_capacity = (uint32_t)capacity;
    return RP_OK;
}

/* Part of a link that a route could take if its narrowest link has capacity `least`. It is rounded
 * up, so that a sum below RP_TIGHT proves that the rates are below the capacity. */
static uint32_t demand_of(double least, double capacity)
{
    return least < capacity ? (uint32_t)(least / capacity * RP_WHOLE) + 1 : RP_WHOLE;
}

static rp_status add_hops(rp_network *network, uint32_t count)
{
    RP_TRY(rp_grow(&network->hops, &network->hop_capacity, network->hop_count + count,
                   sizeof *network->hops));
    double least = INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        least = fmin(least, network->links[network->sorted_links[i]].capacity);
    }
    for (uint32_t i = 0; i < count; i++) {
        rp_link *link = &network->links[network->sorted_links[i]];
        RP_TRY(rp_grow(&link->members, &link->member_capacity, link->route_count + 1,
                       sizeof *link->members));
        network->hops[network->hop_count + i] =
            (rp_hop){.link = link, .demand = demand_of(least, link->capacity)};
    }
    for (uint32_t i = 0; i < count; i++) {
        network->links[network->sorted_links[i]].route_count++;
    }
    return RP_OK;
}

rp_status rp_network_route(rp_network *network, const uint32_t *links, uint32_t link_count,
                           uint32_t *route_out)
{
    RP_TRY(sort_links(network, links, link_count));
    RP_TRY(grow_table(network));
    uint32_t place = find_place(network, link_count);
    if (network->table[place] != 0) {
        *route_out = network->table[place] - 1;
        return RP_OK;
    }
    RP_TRY(grow_groups(network));
    RP_TRY(add_hops(network, link_count));
    uint32_t route = network->group_count++;
    network->groups[route] = (rp_group){.hop_begin = network->hop_count,
                                        .hop_count = link_count,
                                        .bottleneck = NULL,
                                        .end_slot = RP_NO_SLOT};
    network->hop_count += link_count;
    network->table[place] = route + 1;
    *route_out = route;
    return RP_OK;
}

uint32_t rp_network_route_length(const rp_network *network, uint32_t route)
{
    return network->groups[route].hop_count;
}

uint32_t rp_network_route_link(const rp_network *network, uint32_t route, uint32_t place)
{
    return link_at(network, &network->groups[route], place);
}

uint32_t rp_network_link_count(const rp_network *network)
{
    return network->link_count;
}

double rp_network_capacity(const rp_network *network, uint32_t link)
{
    return network->links[link].capacity * network->ticks_per_s;
}
