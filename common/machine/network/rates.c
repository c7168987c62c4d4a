/* Rates: progressive filling over the groups that a change reaches, and the new ends of their
 * flows. */
#include "common/machine/network/network_internal.h"

#include <math.h>

/* Rate of a link that each unfixed flow would get now. In exact arithmetic it never falls from
 * level to level; the comparison keeps rounding from lowering it. */
static double share_of(const rp_link *link)
{
    double rest = link->rest - link->level_rate * (double)link->level_flows;
    double share = rest / (double)link->unfixed;
    return share > link->level_rate ? share : link->level_rate;
}

static bool share_before(const rp_share *a, const rp_share *b)
{
    return a->rate != b->rate ? a->rate < b->rate : a->link < b->link;
}

static void share_down(rp_network *network, uint32_t slot, rp_share share)
{
    rp_share *shares = network->shares;
    for (uint32_t child = 2 * slot + 1; child < network->share_count; child = 2 * slot + 1) {
        if (child + 1 < network->share_count && share_before(&shares[child + 1], &shares[child])) {
            child++;
        }
        if (!share_before(&shares[child], &share)) {
            break;
        }
        shares[slot] = shares[child];
        slot = child;
    }
    shares[slot] = share;
}

static void begin_filling(rp_network *network)
{
    network->fill++;
    network->share_count = network->reached_link_count;
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        rp_link *link = network->reached_links[i];
        link->becomes_full = false;
        link->rest = link->capacity;
        link->level_rate = 0;
        link->level_flows = 0;
        link->unfixed = link->flows;
        network->shares[i] = (rp_share){link->first_share, link};
    }
    for (uint32_t slot = network->share_count / 2; slot-- > 0;) {
        share_down(network, slot, network->shares[slot]);
    }
}

static void take_share(rp_link *link, double rate, uint64_t flows)
{
    if (link->level_rate != rate) {
        link->rest -= link->level_rate * (double)link->level_flows;
        link->level_rate = rate;
        link->level_flows = 0;
    }
    link->level_flows += flows;
    link->unfixed -= flows;
}

/* Fixes all unfixed flows on the bottleneck at its share. @return the number of groups */
static uint32_t fix(rp_network *network, const rp_link *bottleneck, double rate)
{
    uint32_t fixed = 0;
    for (uint32_t k = 0; k < bottleneck->member_count; k++) {
        rp_group *group = &network->groups[bottleneck->members[k].group];
        if (group->fill != network->fill) {
            group->fill = network->fill;
            fixed++;
            group->new_rate = rate;
            group->bottleneck = bottleneck;
            for (uint32_t i = 0; i < group->hop_count; i++) {
                take_share(network->hops[group->hop_begin + i].link, rate, group->flows.count);
            }
        }
    }
    return fixed;
}

/* Shares only grow while others are fixed, so an entry is a lower bound: the first entry that is up
 * to date is the least. Equal shares are ordered by the link's index, never by the start of the
 * search. */
static void fill_links(rp_network *network)
{
    begin_filling(network);
    uint32_t open = network->reached_group_count;
    while (open > 0) {
        rp_link *link = network->shares[0].link;
        double share = link->unfixed > 0 ? share_of(link) : 0;
        if (link->unfixed > 0 && share > network->shares[0].rate) {
            share_down(network, 0, (rp_share){share, link});
            continue;
        }
        if (link->unfixed > 0) {
            open -= fix(network, link, share);
            link->becomes_full = true;
        }
        network->share_count--;
        share_down(network, 0, network->shares[network->share_count]);
    }
}

static void set_full(rp_network *network, rp_link *link, bool full)
{
    if (link->full != full) {
        link->full_ticks += full ? 0 : network->clock_ticks - link->full_since;
        link->full_since = network->clock_ticks;
        link->full = full;
    }
}

/* Gives a group whose rate or first flow changed a new end. If only the first flow changed, the
 * service stays as it is, so that a change does not round groups whose rates it does not alter. */
static inline void change_end(rp_network *network, uint32_t index, double rate)
{
    rp_group *group = &network->groups[index];
    if (group->rate != rate) {
        group->service = rp_group_service(network, group);
        group->since_ticks = network->clock_ticks;
        group->rate = rate;
    }
    int64_t end = rp_group_end(group, group->flows.entries[0].key);
    rp_ends_set(network, index, end > network->clock_ticks ? end : network->clock_ticks);
}

static inline void change_rate(rp_network *network, uint32_t index, double rate)
{
    rp_group *group = &network->groups[index];
    if (group->dirty || group->rate != rate) {
        group->dirty = false;
        change_end(network, index, rate);
    }
}

/* Settles groups that are still dirty, as the search has not reached them: they have ended, or
 * their rate is as before. */
static void change_rest(rp_network *network)
{
    for (uint32_t i = 0; i < network->dirty_count; i++) {
        rp_group *group = &network->groups[network->dirty[i]];
        if (group->dirty && group->flows.count > 0) {
            change_end(network, network->dirty[i], group->rate);
        } else if (group->flows.count == 0) {
            group->rate = 0;
            group->bottleneck = NULL;
        }
        group->dirty = false;
    }
    network->dirty_count = 0;
}

/* Removes from the reached links those that are not tight: they are no bottlenecks, and not all
 * groups on them need be reached.
 * @return the first bottleneck among the others */
static rp_share find_first(rp_network *network)
{
    rp_share first = {INFINITY, NULL};
    network->other_share = INFINITY;
    uint32_t count = 0;
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        rp_link *link = network->reached_links[i];
        link->tight = link->demand >= RP_TIGHT;
        if (link->flows == 0 || !(link->tight || network->whole)) {
            set_full(network, link, false);
            link->mark = 0;
            continue;
        }
        network->reached_links[count++] = link;
        rp_share share = {link->first_share, link};
        if (share_before(&share, &first)) {
            network->other_share = first.rate;
            first = share;
        } else {
            network->other_share = fmin(network->other_share, share.rate);
        }
    }
    network->reached_link_count = count;
    return first;
}

/* Takes up a reached link that has changed or is new.
 * @return false if all links must be looked at to find the limit of the groups */
static bool limit_holds(rp_network *network, rp_link *link)
{
    link->tight = link->demand >= RP_TIGHT;
    if (link == network->limit) {
        return link->tight;
    }
    set_full(network, link, false);
    if (link->tight && link->first_share < network->other_share) {
        network->other_share = link->first_share;
    }
    return true;
}

/* @return whether the link that has limited all reached groups still does. Only links that have
 * changed, or that are new (from `begin` on), are looked at. */
static bool is_limited(rp_network *network, uint32_t begin)
{
    bool holds =
        network->limit != NULL && network->limit->member_count == network->reached_group_count;
    for (uint32_t i = 0; i < network->start_count && holds; i++) {
        const rp_group *group = &network->groups[network->starts[i]];
        for (uint32_t k = 0; k < group->hop_count && holds; k++) {
            holds = limit_holds(network, network->hops[group->hop_begin + k].link);
        }
    }
    for (uint32_t i = begin; i < network->reached_link_count && holds; i++) {
        holds = limit_holds(network, network->reached_links[i]);
    }
    return holds && network->limit->first_share < network->other_share;
}

static void change_all(rp_network *network, rp_share first)
{
    for (uint32_t i = 0; i < network->reached_group_count; i++) {
        uint32_t index = network->reached_groups[i];
        network->groups[index].bottleneck = first.link;
        change_rate(network, index, first.rate);
    }
}

/* Sets the rates if a single link limits all reached groups. The result is that of `fill_links`,
 * with the same operations and so with the same bits. */
static void fill_at_once(rp_network *network, rp_share first)
{
    change_all(network, first);
    network->limit = first.link;
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        set_full(network, network->reached_links[i], network->reached_links[i] == first.link);
    }
}

static void fill_by_levels(rp_network *network)
{
    fill_links(network);
    for (uint32_t i = 0; i < network->reached_group_count; i++) {
        uint32_t index = network->reached_groups[i];
        change_rate(network, index, network->groups[index].new_rate);
    }
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        rp_link *link = network->reached_links[i];
        set_full(network, link, link->becomes_full);
    }
}

static void recompute_reached(rp_network *network)
{
    network->limit = NULL;
    rp_share first = find_first(network);
    uint32_t groups = network->reached_group_count;
    if (groups > 0 && first.link->member_count == groups) {
        fill_at_once(network, first);
    } else {
        fill_by_levels(network);
    }
}

/* Settles a group that shares none of its connecting links with another group: the narrowest of
 * them is its bottleneck.
 * @return false, with nothing done, if it shares a connecting link */
static bool settle_alone(rp_network *network, uint32_t index)
{
    rp_group *group = &network->groups[index];
    const rp_hop *hops = &network->hops[group->hop_begin];
    rp_share first = {0, NULL};
    bool reached = group->mark == network->mark;
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rp_link *link = hops[i].link;
        if (!rp_link_connects(link)) {
            continue;
        }
        if (link->member_count > group->listed) {
            return false;
        }
        reached = reached || link->mark == network->mark;
        rp_share share = {link->first_share, link};
        if (link->demand >= RP_TIGHT && (first.link == NULL || share_before(&share, &first))) {
            first = share;
        }
    }
    network->limit = NULL; /* a link of this group may be reached */
    if (group->listed && reached) {
        rp_network_join(network, index);
    }
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rp_link *link = hops[i].link;
        if (rp_link_connects(link)) {
            link->tight = link->demand >= RP_TIGHT;
            set_full(network, link, group->listed && link == first.link);
        }
    }
    if (group->listed) {
        group->bottleneck = first.link;
        change_rate(network, index, first.rate);
    }
    return true;
}

/* Takes up the changes of count, settles groups that are alone and leaves the others in
 * `starts`. */
static void begin_changes(rp_network *network)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < network->dirty_count; i++) {
        const rp_group *group = &network->groups[network->dirty[i]];
        if (group->flows.count != group->solved_flows) {
            rp_network_relink(network, network->dirty[i]);
            network->starts[count++] = network->dirty[i];
        }
    }
    network->start_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!settle_alone(network, network->starts[i])) {
            network->starts[network->start_count++] = network->starts[i];
        }
    }
}

void rp_network_settle_dirty(rp_network *network)
{
    rp_ends_begin(network, network->dirty_count);
    begin_changes(network);
    if (network->start_count > 0) {
        uint32_t begin = network->reached_link_count;
        rp_network_reach(network);
        if (is_limited(network, begin)) {
            change_all(network, (rp_share){network->limit->first_share, network->limit});
        } else {
            recompute_reached(network);
        }
    }
    change_rest(network);
    rp_ends_update(network);
}

void rp_network_recompute(rp_network *network)
{
    rp_network_settle(network);
    network->whole = true;
    rp_network_reach_all(network);
    rp_ends_begin(network, 0);
    recompute_reached(network);
    network->whole = false;
    network->limit = NULL; /* reached links include those that are not tight */
    rp_ends_update(network);
}
