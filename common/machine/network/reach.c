/* Which groups a change reaches: those that links connect with it. */
#include "common/machine/network/network_internal.h"

/* The reached links and groups are kept: as long as changes are connected with them, they remain
 * closed (no group with flows has one link that connects inside and another one outside), and need
 * not be searched again. They may then hold more than the change reaches, which changes the cost,
 * not the result, so a search now and then is enough. */
#define SEARCH_EVERY 16u

/* ---- Links and the groups on them ---- */

static void list(rp_network *network, uint32_t index)
{
    const rp_group *group = &network->groups[index];
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rp_hop *hop = &network->hops[group->hop_begin + i];
        rp_link *link = &network->links[hop->link];
        hop->slot = link->member_count;
        link->members[link->member_count++] = (rp_member){index, i};
        link->demand += hop->demand;
    }
}

static void unlist(rp_network *network, const rp_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        const rp_hop *hop = &network->hops[group->hop_begin + i];
        rp_link *link = &network->links[hop->link];
        rp_member moved = link->members[--link->member_count];
        link->members[hop->slot] = moved;
        network->hops[network->groups[moved.group].hop_begin + moved.hop].slot = hop->slot;
        link->demand -= hop->demand;
    }
}

static void count_busy(rp_link *link, int64_t now)
{
    bool busy = link->flows > 0;
    if (link->busy != busy) {
        link->busy_ticks += busy ? 0 : now - link->busy_since;
        link->busy_since = now;
        link->busy = busy;
    }
}

void rp_network_relink(rp_network *network, uint32_t index)
{
    rp_group *group = &network->groups[index];
    uint64_t more = group->flows.count - group->solved_flows; /* modulo 2^64 */
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rp_link *link = &network->links[network->hops[group->hop_begin + i].link];
        link->flows += more;
        link->first_share = link->flows > 0 ? link->capacity / (double)link->flows : 0;
        count_busy(link, network->clock_ticks);
    }
    if (group->listed != (group->flows.count > 0)) {
        if (group->listed) {
            unlist(network, group);
            network->group_left = true;
        } else {
            list(network, index);
        }
        group->listed = !group->listed;
    }
    group->solved_flows = group->flows.count;
}

bool rp_group_is_alone(const rp_network *network, const rp_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        const rp_link *link = &network->links[network->hops[group->hop_begin + i].link];
        if (link->member_count > group->listed && rp_link_connects(link)) {
            return false;
        }
    }
    return true;
}

/* ---- Reaching ---- */

static void reach_link(rp_network *network, uint32_t index)
{
    rp_link *link = &network->links[index];
    if (link->mark != network->mark) {
        link->mark = network->mark;
        network->reached_links[network->reached_link_count++] = index;
    }
}

static void reach_links(rp_network *network, const rp_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        uint32_t index = network->hops[group->hop_begin + i].link;
        if (network->whole || rp_link_connects(&network->links[index])) {
            reach_link(network, index);
        }
    }
}

static void reach_group(rp_network *network, uint32_t index)
{
    if (network->groups[index].mark != network->mark) {
        network->groups[index].mark = network->mark;
        network->reached_groups[network->reached_group_count++] = index;
        reach_links(network, &network->groups[index]);
    }
}

static void reach_members(rp_network *network, const rp_link *link)
{
    for (uint32_t k = 0; k < link->member_count; k++) {
        reach_group(network, link->members[k].group);
    }
}

/* The list of links grows while it is walked: breadth first. */
static void reach_from(rp_network *network, uint32_t begin)
{
    for (uint32_t i = begin; i < network->reached_link_count; i++) {
        reach_members(network, &network->links[network->reached_links[i]]);
    }
}

/* Groups that have lost their last flow leave the reached ones. */
static void drop_empty_groups(rp_network *network)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < network->reached_group_count; i++) {
        uint32_t index = network->reached_groups[i];
        if (network->groups[index].listed) {
            network->reached_groups[count++] = index;
        } else {
            network->groups[index].mark = 0;
        }
    }
    network->reached_group_count = count;
    network->group_left = false;
}

static void begin_search(rp_network *network)
{
    network->mark++;
    network->reuse = 0;
    network->limit = RP_NO_LINK;
    network->reached_link_count = 0;
    network->reached_group_count = 0;
}

/* True where one of the group's links is reached and connected before, with all groups on it. */
static bool is_connected(const rp_network *network, const rp_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        const rp_link *link = &network->links[network->hops[group->hop_begin + i].link];
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

/* Reach of one change: the group's links that connect, and the groups on links that are among
 * the reached ones, but did not connect before. */
static void reach_start(rp_network *network, uint32_t index)
{
    rp_group *group = &network->groups[index];
    for (uint32_t i = 0; i < group->hop_count; i++) {
        uint32_t at = network->hops[group->hop_begin + i].link;
        const rp_link *link = &network->links[at];
        if (!rp_link_connects(link)) {
            continue;
        }
        if (link->mark != network->mark) {
            reach_link(network, at);
        } else if (!link->tight) {
            reach_members(network, link);
        }
    }
    if (group->listed && group->mark != network->mark) {
        group->mark = network->mark;
        network->reached_groups[network->reached_group_count++] = index;
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
    if (network->group_left) {
        drop_empty_groups(network);
    }
}

/* True where the group or one of its links that connect is among the reached ones. */
static bool is_reached(const rp_network *network, const rp_group *group)
{
    if (group->mark == network->mark) {
        return true;
    }
    for (uint32_t i = 0; i < group->hop_count; i++) {
        const rp_link *link = &network->links[network->hops[group->hop_begin + i].link];
        if (link->mark == network->mark && rp_link_connects(link)) {
            return true;
        }
    }
    return false;
}

void rp_network_reach_alone(rp_network *network, uint32_t index)
{
    const rp_group *group = &network->groups[index];
    if (group->listed && is_reached(network, group)) {
        reach_links(network, group);
        reach_group(network, index);
    }
}

void rp_network_reach_all(rp_network *network)
{
    begin_search(network);
    for (uint32_t i = 0; i < network->group_count; i++) {
        if (network->groups[i].listed) {
            reach_group(network, i);
        }
    }
    network->group_left = false;
}
