/* Finds the groups that a change reaches: those that links connect with it. */
#include "common/machine/network/network_internal.h"

/* The reached links and groups are kept. As long as changes are connected with them, they remain
 * closed (no group with flows has a connecting link inside and another outside), and need not be
 * searched again. They may then hold more than the change reaches, which changes the cost, not the
 * result, so an occasional search is enough. */
#define SEARCH_EVERY 16u

/* ---- Links and the groups on them ------------------------------------------------------------ */

static void list(rp_network *network, rp_link *link, rp_hop *hop, rp_member member)
{
    if (link->member_count == 0) {
        link->busy_since = network->clock_ticks;
    }
    hop->slot = link->member_count;
    link->members[link->member_count++] = member;
    link->demand += hop->demand;
}

static void unlist(rp_network *network, rp_link *link, const rp_hop *hop)
{
    rp_member moved = link->members[--link->member_count];
    if (link->member_count == 0) {
        link->busy_ticks += network->clock_ticks - link->busy_since;
    } else {
        link->members[hop->slot] = moved;
        network->hops[network->groups[moved.group].hop_begin + moved.hop].slot = hop->slot;
    }
    link->demand -= hop->demand;
}

/* Removes a group that has lost its last flow from the reached groups. */
static void leave(rp_network *network, rp_group *group)
{
    uint32_t moved = network->reached_groups[--network->reached_group_count];
    network->reached_groups[group->reached_slot] = moved;
    network->groups[moved].reached_slot = group->reached_slot;
    group->mark = 0;
}

void rp_network_relink(rp_network *network, uint32_t index)
{
    rp_group *group = &network->groups[index];
    uint64_t more = group->flows.count - group->solved_flows; /* modulo 2^64 */
    bool listed = group->flows.count > 0;
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rp_hop *hop = &network->hops[group->hop_begin + i];
        rp_link *link = hop->link;
        link->flows += more;
        link->first_share = link->flows > 0 ? link->capacity / (double)(int64_t)link->flows : 0;
        if (listed && !group->listed) {
            list(network, link, hop, (rp_member){index, i});
        } else if (!listed && group->listed) {
            unlist(network, link, hop);
        }
    }
    if (!listed && group->mark == network->mark) {
        leave(network, group);
    }
    group->listed = listed;
    group->solved_flows = group->flows.count;
}

/* ---- Reaching -------------------------------------------------------------------------------- */

static void reach_link(rp_network *network, rp_link *link)
{
    if (link->mark != network->mark) {
        link->mark = network->mark;
        network->reached_links[network->reached_link_count++] = link;
    }
}

static void reach_links(rp_network *network, const rp_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rp_link *link = network->hops[group->hop_begin + i].link;
        if (network->whole || rp_link_connects(link)) {
            reach_link(network, link);
        }
    }
}

/* Adds a group to the reached groups. */
static void enter(rp_network *network, rp_group *group, uint32_t index)
{
    group->mark = network->mark;
    group->reached_slot = network->reached_group_count;
    network->reached_groups[network->reached_group_count++] = index;
}

static void reach_group(rp_network *network, uint32_t index)
{
    rp_group *group = &network->groups[index];
    if (group->mark != network->mark) {
        enter(network, group, index);
        reach_links(network, group);
    }
}

static void reach_members(rp_network *network, const rp_link *link)
{
    for (uint32_t k = 0; k < link->member_count; k++) {
        reach_group(network, link->members[k].group);
    }
}

/* Reaches the groups of all reached links from `begin` on. The list of links grows during the walk:
 * breadth first. */
static void reach_from(rp_network *network, uint32_t begin)
{
    for (uint32_t i = begin; i < network->reached_link_count; i++) {
        reach_members(network, network->reached_links[i]);
    }
}

static void begin_search(rp_network *network)
{
    network->mark++;
    network->reuse = 0;
    network->limit = NULL;
    network->reached_link_count = 0;
    network->reached_group_count = 0;
}

/* @return whether a link of the group is reached and connected before, with all groups on it. */
static bool is_connected(const rp_network *network, const rp_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        const rp_link *link = network->hops[group->hop_begin + i].link;
        if (link->tight && link->mark == network->mark) {
            return true;
        }
    }
    return false;
}

static bool all_connected(const rp_network *network)
{
    for (uint32_t i = 0; i < network->start_count; i++) {
        if (!is_connected(network, &network->groups[network->starts[i]])) {
            return false;
        }
    }
    return true;
}

/* Reach of a single change: the group's links that connect, and the groups on reached links that
 * did not connect before. */
static void reach_start(rp_network *network, uint32_t index)
{
    rp_group *group = &network->groups[index];
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rp_link *link = network->hops[group->hop_begin + i].link;
        if (!rp_link_connects(link)) {
            continue;
        }
        if (link->mark != network->mark) {
            reach_link(network, link);
        } else if (!link->tight) {
            reach_members(network, link);
        }
    }
    if (group->listed && group->mark != network->mark) {
        enter(network, group, index);
    }
}

void rp_network_reach(rp_network *network)
{
    uint32_t begin = network->reached_link_count;
    if (!all_connected(network) || ++network->reuse >= SEARCH_EVERY) {
        begin_search(network);
        begin = 0;
    }
    for (uint32_t i = 0; i < network->start_count; i++) {
        reach_start(network, network->starts[i]);
    }
    reach_from(network, begin);
}

void rp_network_join(rp_network *network, uint32_t index)
{
    reach_links(network, &network->groups[index]);
    reach_group(network, index);
}

void rp_network_reach_all(rp_network *network)
{
    begin_search(network);
    for (uint32_t i = 0; i < network->group_count; i++) {
        if (network->groups[i].listed) {
            reach_group(network, i);
        }
    }
}
