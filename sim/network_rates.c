/* Rates: which groups a change reaches, progressive filling over them, and what follows for the
 * ends of their flows. */
#include "sim/network_inside.h"

double rpsim_group_service(const rpsim_network *network, const rpsim_group *group)
{
    return group->service + group->rate * (double)(network->clock_ticks - group->since_ticks);
}

int64_t rpsim_group_end(const rpsim_group *group, uint64_t key)
{
    double left = rpsim_key_service(key) - group->service;
    double ticks = left > 0 ? left / group->rate + 0.5 : 0;
    if (ticks >= (double)(RPSIM_NEVER - group->since_ticks)) {
        return RPSIM_NEVER;
    }
    return group->since_ticks + (int64_t)ticks;
}

void rpsim_network_touch(rpsim_network *network, uint32_t group)
{
    if (!network->groups[group].dirty) {
        network->groups[group].dirty = true;
        network->dirty[network->dirty_count++] = group;
    }
}

/* The reached links and groups are kept: as long as changes stay within them, they remain closed
 * (no group with flows has one link inside and another one outside), and need not be searched
 * again. They may then hold more than the change reaches, which changes the cost, not the result,
 * so a search now and then is enough. */
#define SEARCH_EVERY 16u

static void reach_links(rpsim_network *network, const rpsim_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        uint32_t link = network->hops[group->hop_begin + i].link;
        if (network->links[link].mark != network->mark) {
            network->links[link].mark = network->mark;
            network->reached_links[network->reached_link_count++] = link;
        }
    }
}

static void list(rpsim_network *network, uint32_t index)
{
    const rpsim_group *group = &network->groups[index];
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rpsim_hop *hop = &network->hops[group->hop_begin + i];
        rpsim_link *link = &network->links[hop->link];
        hop->slot = link->member_count;
        link->members[link->member_count++] = (rpsim_member){index, i};
    }
}

static void unlist(rpsim_network *network, const rpsim_group *group)
{
    for (uint32_t i = 0; i < group->hop_count; i++) {
        const rpsim_hop *hop = &network->hops[group->hop_begin + i];
        rpsim_link *link = &network->links[hop->link];
        rpsim_member moved = link->members[--link->member_count];
        link->members[hop->slot] = moved;
        network->hops[network->groups[moved.group].hop_begin + moved.hop].slot = hop->slot;
    }
}

/* Brings the links up to date with the group's count; they are where the change begins. Returns
 * whether they are all among the reached ones. */
static bool begin_change(rpsim_network *network, uint32_t index)
{
    rpsim_group *group = &network->groups[index];
    bool inside = true;
    for (uint32_t i = 0; i < group->hop_count; i++) {
        rpsim_link *link = &network->links[network->hops[group->hop_begin + i].link];
        link->flows += group->flows.count - group->solved_flows; /* modulo 2^64 */
        inside = inside && link->mark == network->mark;
    }
    if (group->listed != (group->flows.count > 0)) {
        if (group->listed) {
            unlist(network, group);
        } else {
            list(network, index);
        }
        group->listed = !group->listed;
    }
    group->solved_flows = group->flows.count;
    network->changed[network->changed_count++] = index;
    return inside;
}

static void reach_group(rpsim_network *network, uint32_t index)
{
    if (network->groups[index].mark != network->mark) {
        network->groups[index].mark = network->mark;
        network->reached_groups[network->reached_group_count++] = index;
    }
}

/* The list of links grows while it is walked: breadth first. */
static void reach_groups(rpsim_network *network)
{
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        const rpsim_link *link = &network->links[network->reached_links[i]];
        for (uint32_t k = 0; k < link->member_count; k++) {
            uint32_t index = link->members[k].group;
            if (network->groups[index].mark != network->mark) {
                reach_group(network, index);
                reach_links(network, &network->groups[index]);
            }
        }
    }
}

/* What each flow that is not fixed would get of a link now. It never falls from level to level;
 * the comparison keeps rounding from making it so. */
static double share_of(const rpsim_link *link)
{
    double rest = link->rest - link->level_rate * (double)link->level_flows;
    double share = rest / (double)link->unfixed;
    return share > link->level_rate ? share : link->level_rate;
}

static bool share_before(const rpsim_share *a, const rpsim_share *b)
{
    return a->rate != b->rate ? a->rate < b->rate : a->link < b->link;
}

static void share_down(rpsim_network *network, uint32_t slot, rpsim_share share)
{
    rpsim_share *shares = network->shares;
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

static void begin_filling(rpsim_network *network)
{
    network->fill++;
    network->share_count = 0;
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        rpsim_link *link = &network->links[network->reached_links[i]];
        link->becomes_full = false;
        if (link->flows > 0) {
            link->rest = link->capacity;
            link->level_rate = 0;
            link->level_flows = 0;
            link->unfixed = link->flows;
            network->shares[network->share_count++] =
                (rpsim_share){share_of(link), network->reached_links[i]};
        }
    }
    for (uint32_t slot = network->share_count / 2; slot-- > 0;) {
        share_down(network, slot, network->shares[slot]);
    }
}

static void take(rpsim_link *link, double rate, uint64_t flows)
{
    if (link->level_rate != rate) {
        link->rest -= link->level_rate * (double)link->level_flows;
        link->level_rate = rate;
        link->level_flows = 0;
    }
    link->level_flows += flows;
    link->unfixed -= flows;
}

/* All flows on the bottleneck that are not fixed get its share. Returns how many groups. */
static uint32_t fix(rpsim_network *network, uint32_t bottleneck, double rate)
{
    const rpsim_link *link = &network->links[bottleneck];
    uint32_t fixed = 0;
    for (uint32_t k = 0; k < link->member_count; k++) {
        rpsim_group *group = &network->groups[link->members[k].group];
        if (group->fill != network->fill) {
            group->fill = network->fill;
            fixed++;
            group->new_rate = rate;
            group->bottleneck = bottleneck;
            for (uint32_t i = 0; i < group->hop_count; i++) {
                take(&network->links[network->hops[group->hop_begin + i].link], rate,
                     group->flows.count);
            }
        }
    }
    return fixed;
}

/* One group has all reached links to itself: its rate is the least of what they give, with the
 * same operations as in `fill` and so with the same bits. */
static void fill_one(rpsim_network *network, rpsim_group *group)
{
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        network->links[network->reached_links[i]].becomes_full = false;
    }
    rpsim_share least = {0, RPSIM_NO_LINK};
    for (uint32_t i = 0; i < group->hop_count; i++) {
        uint32_t index = network->hops[group->hop_begin + i].link;
        const rpsim_link *link = &network->links[index];
        rpsim_share share = {link->capacity / (double)link->flows, index};
        if (least.link == RPSIM_NO_LINK || share_before(&share, &least)) {
            least = share;
        }
    }
    network->links[least.link].becomes_full = true;
    group->new_rate = least.rate;
    group->bottleneck = least.link;
}

/* Shares only grow while others are fixed, so an entry is a lower bound: the first one that is up
 * to date is the least. Equal shares go by the link's index, never by where the search began. */
static void fill(rpsim_network *network)
{
    begin_filling(network);
    uint32_t open = network->reached_group_count;
    while (open > 0) {
        uint32_t index = network->shares[0].link;
        rpsim_link *link = &network->links[index];
        double share = link->unfixed > 0 ? share_of(link) : 0;
        if (link->unfixed > 0 && share > network->shares[0].rate) {
            share_down(network, 0, (rpsim_share){share, index});
            continue;
        }
        if (link->unfixed > 0) {
            open -= fix(network, index, share);
            link->becomes_full = true;
        }
        network->share_count--;
        share_down(network, 0, network->shares[network->share_count]);
    }
}

static void count_time(bool *state, bool new_state, int64_t *since, int64_t *ticks, int64_t now)
{
    if (*state != new_state) {
        *ticks += new_state ? 0 : now - *since;
        *since = now;
        *state = new_state;
    }
}

static void account(rpsim_network *network)
{
    for (uint32_t i = 0; i < network->reached_link_count; i++) {
        rpsim_link *link = &network->links[network->reached_links[i]];
        count_time(&link->busy, link->flows > 0, &link->busy_since, &link->busy_ticks,
                   network->clock_ticks);
        count_time(&link->full, link->becomes_full, &link->full_since, &link->full_ticks,
                   network->clock_ticks);
    }
}

/* A group whose rate or first flow changed gets a new end. One whose rate did not change keeps its
 * service as it is: what a change does not reach is not rounded again either. */
static void change_end(rpsim_network *network, uint32_t index, double rate)
{
    rpsim_group *group = &network->groups[index];
    if (group->rate != rate) {
        group->service = rpsim_group_service(network, group);
        group->since_ticks = network->clock_ticks;
        group->rate = rate;
    }
    group->end_ticks = rpsim_group_end(group, group->flows.entries[0].key);
    if (group->end_ticks < network->clock_ticks) {
        group->end_ticks = network->clock_ticks;
    }
    network->changed[network->changed_count++] = index;
}

/* Groups that have lost their last flow leave the reached ones. */
static void drop_empty_groups(rpsim_network *network)
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
}

static void change_reached(rpsim_network *network)
{
    for (uint32_t i = 0; i < network->reached_group_count; i++) {
        rpsim_group *group = &network->groups[network->reached_groups[i]];
        if (group->dirty || group->rate != group->new_rate) {
            group->dirty = false;
            change_end(network, network->reached_groups[i], group->new_rate);
        }
    }
}

/* What is still dirty was not reached: it has ended, or its rate is as before. */
static void change_rest(rpsim_network *network)
{
    for (uint32_t i = 0; i < network->dirty_count; i++) {
        rpsim_group *group = &network->groups[network->dirty[i]];
        if (group->dirty && group->flows.count > 0) {
            change_end(network, network->dirty[i], group->rate);
        } else if (group->flows.count == 0) {
            group->rate = 0;
            group->bottleneck = RPSIM_NO_LINK;
        }
        group->dirty = false;
    }
    network->dirty_count = 0;
}

static void begin_reaching(rpsim_network *network)
{
    network->mark++;
    network->reuse = 0;
    network->reached_link_count = 0;
    network->reached_group_count = 0;
}

static void recompute_reached(rpsim_network *network)
{
    drop_empty_groups(network);
    if (network->reached_group_count == 1) {
        fill_one(network, &network->groups[network->reached_groups[0]]);
    } else {
        fill(network);
    }
    account(network);
    network->changed_count = 0;
    change_reached(network);
}

/* The groups in `changed` are where the search begins. */
static void reach(rpsim_network *network, bool inside)
{
    if (inside && ++network->reuse < SEARCH_EVERY) {
        for (uint32_t i = 0; i < network->changed_count; i++) {
            reach_group(network, network->changed[i]);
        }
        return;
    }
    begin_reaching(network);
    for (uint32_t i = 0; i < network->changed_count; i++) {
        reach_links(network, &network->groups[network->changed[i]]);
    }
    reach_groups(network);
}

void rpsim_network_settle(rpsim_network *network)
{
    if (network->dirty_count == 0) {
        return;
    }
    bool inside = true;
    network->changed_count = 0;
    for (uint32_t i = 0; i < network->dirty_count; i++) {
        const rpsim_group *group = &network->groups[network->dirty[i]];
        if (group->flows.count != group->solved_flows) {
            inside = begin_change(network, network->dirty[i]) && inside;
        }
    }
    if (network->changed_count > 0) {
        reach(network, inside);
        recompute_reached(network);
    }
    change_rest(network);
    rpsim_ends_update(network, network->changed, network->changed_count);
}

void rpsim_network_recompute(rpsim_network *network)
{
    rpsim_network_settle(network);
    begin_reaching(network);
    for (uint32_t i = 0; i < network->group_count; i++) {
        if (network->groups[i].listed) {
            reach_links(network, &network->groups[i]);
        }
    }
    reach_groups(network);
    recompute_reached(network);
    rpsim_ends_update(network, network->changed, network->changed_count);
}
