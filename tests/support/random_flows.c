#include "tests/support/random_flows.h"

#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define FEMTOSECONDS 1e15
#define WIDE_LINK 1e17 /* bytes per second: never a bottleneck beside the drawn links */

/* Draws small values as often as large values. */
static uint32_t draw_size(rp_random *random, uint32_t high)
{
    uint32_t bits = 0;
    while ((high >> bits) > 1) {
        bits++;
    }
    uint32_t limit = 1u << rp_random_between(random, 0, bits + 1);
    return rp_random_between(random, 1, limit < high ? limit : high);
}

static double draw_capacity(rp_random *random, uint32_t kind)
{
    static const double usual[] = {6.5e9, 13e9, 26e9, 25e9, 32e9, 50e9};
    switch (kind) {
    case 0:
        return 25e9;
    case 1:
        return usual[rp_random_between(random, 0, 5)];
    default:
        return 1e9 + 47.0 * rp_random_between(random, 0, 2000000000);
    }
}

/* Draws GPUs below switches below a host. Each link has two numbers, up (even) and down (odd);
 * links 0 and 1 are the host's memory. A route goes from a GPU or the host to another GPU or the
 * host. */
static void draw_tree(rp_random *random, rp_random_flows *out)
{
    uint32_t switches = rp_random_between(random, 1, 6);
    uint32_t gpus = rp_random_between(random, 1, 24);
    out->link_count = 2 + 2 * switches + 2 * gpus;
    for (uint32_t i = 0; i < out->flow_count; i++) {
        uint32_t from = rp_random_between(random, 0, gpus);
        uint32_t to = rp_random_between(random, 0, gpus);
        to = to == from ? (to + 1) % (gpus + 1) : to;
        uint32_t from_switch = from % switches;
        uint32_t to_switch = to % switches;
        bool through_host = from == gpus || to == gpus || from_switch != to_switch;
        int count = 0;
        if (from < gpus) {
            out->links[i][count++] = (int)(2 + 2 * switches + 2 * from);
        }
        if (from < gpus && through_host) {
            out->links[i][count++] = (int)(2 + 2 * from_switch);
        }
        if (from == gpus || to == gpus) {
            out->links[i][count++] = from == gpus ? 1 : 0;
        }
        if (to < gpus && through_host) {
            out->links[i][count++] = (int)(2 + 2 * to_switch + 1);
        }
        if (to < gpus) {
            out->links[i][count++] = (int)(2 + 2 * switches + 2 * to + 1);
        }
        out->flows[i].link_count = count;
    }
}

static void draw_arbitrary(rp_random *random, rp_random_flows *out)
{
    out->link_count = draw_size(random, RP_TEST_MAX_LINKS);
    uint32_t longest = rp_random_between(random, 1, RP_TEST_MAX_HOPS);
    for (uint32_t i = 0; i < out->flow_count; i++) {
        uint32_t wanted = rp_random_between(random, 1, longest);
        wanted = rp_random_between(random, 0, 99) == 0 ? 0 : wanted;
        int count = 0;
        for (uint32_t k = 0; k < wanted; k++) {
            int link = (int)rp_random_between(random, 0, out->link_count - 1);
            bool twice = false;
            for (int j = 0; j < count; j++) {
                twice = twice || out->links[i][j] == link;
            }
            if (!twice) {
                out->links[i][count++] = link;
            }
        }
        out->flows[i].link_count = count;
    }
}

static double draw_bytes(rp_random *random, bool ties)
{
    if (ties) {
        return (double)(1u << 24 << rp_random_between(random, 0, 2));
    }
    return rp_random_between(random, 0, 49) == 0 ? rp_random_between(random, 0, 2)
                                                 : rp_random_between(random, 1, 1u << 30);
}

void rp_random_flows_draw(rp_random *random, rp_random_flows *out)
{
    memset(out, 0, sizeof *out);
    out->tree = rp_random_between(random, 0, 1) == 1;
    out->ties = rp_random_between(random, 0, 1) == 1;
    out->flow_count = draw_size(random, RP_TEST_MAX_FLOWS);
    if (out->tree) {
        draw_tree(random, out);
    } else {
        draw_arbitrary(random, out);
    }
    uint32_t kind = rp_random_between(random, 0, 2);
    for (uint32_t i = 0; i < out->link_count; i++) {
        out->capacities[i] = draw_capacity(random, kind);
    }
    double start_s = 0;
    bool together = rp_random_between(random, 0, 2) == 0;
    for (uint32_t i = 0; i < out->flow_count; i++) {
        if (!together && out->ties) {
            start_s += 1e-3 * (rp_random_between(random, 0, 3) / 2);
        } else if (!together) {
            start_s += 1e-12 * rp_random_between(random, 0, 2000000000);
        }
        out->flows[i].start_s = start_s;
        out->flows[i].bytes = draw_bytes(random, out->ties);
        out->flows[i].links = out->links[i];
    }
}

rp_network *rp_random_flows_network(const rp_random_flows *flows, double ticks_per_s)
{
    rp_network *network = NULL;
    cr_assert(eq(int,
                 rp_network_create(flows->capacities, RP_TEST_MAX_LINKS + RP_TEST_MAX_FLOWS,
                                   ticks_per_s, &network, NULL),
                 RP_OK));
    return network;
}

static void start(const rp_random_flows *flows, uint32_t index, bool alone, double ticks_per_s,
                  rp_network *network)
{
    const slow_flow *flow = &flows->flows[index];
    uint32_t links[RP_TEST_MAX_HOPS + 1];
    uint32_t count = 0;
    for (; count < (uint32_t)flow->link_count; count++) {
        links[count] = (uint32_t)flow->links[count];
    }
    if (alone && count > 0) {
        links[count++] = RP_TEST_MAX_LINKS + index;
    }
    uint32_t route = 0;
    int64_t now_ticks = (int64_t)llround(flow->start_s * ticks_per_s);
    cr_assert(eq(int, rp_network_route(network, links, count, &route), RP_OK));
    cr_assert(eq(int, rp_network_start(network, route, flow->bytes, now_ticks, index), RP_OK));
}

void rp_random_flows_start(const rp_random_flows *flows, uint32_t index, double ticks_per_s,
                           rp_network *network)
{
    start(flows, index, false, ticks_per_s, network);
}

static void drain(rp_random_flows *flows, rp_network *network, bool recompute)
{
    rp_completion done;
    uint32_t count = 0;
    while (rp_network_pop(network, rp_network_next(network), &done)) {
        cr_assert(lt(u32, count, flows->flow_count));
        flows->end_ticks[done.tag] = done.time_ticks;
        flows->completions[count++] = (uint32_t)done.tag;
        if (recompute) {
            rp_network_recompute(network);
        }
    }
    cr_assert(eq(u32, count, flows->flow_count), "%u of %u flows ended", count, flows->flow_count);
    cr_assert(eq(u64, rp_network_flows(network), 0));
}

/* @return the last flow that starts together with flow `first` */
static uint32_t last_together(const rp_random_flows *flows, uint32_t first)
{
    uint32_t last = first;
    while (last + 1 < flows->flow_count &&
           flows->flows[last + 1].start_s == flows->flows[first].start_s) {
        last++;
    }
    return last;
}

void rp_random_flows_run(rp_random_flows *flows, rp_flows_variant variant)
{
    for (uint32_t i = 0; i < RP_TEST_MAX_FLOWS; i++) {
        flows->capacities[flows->link_count + i] = WIDE_LINK;
        flows->capacities[RP_TEST_MAX_LINKS + i] = WIDE_LINK;
    }
    rp_network *network = rp_random_flows_network(flows, FEMTOSECONDS);
    for (uint32_t first = 0; first < flows->flow_count;) {
        uint32_t last = last_together(flows, first);
        for (uint32_t i = first; i <= last; i++) {
            uint32_t index = variant == RP_FLOWS_REVERSED ? first + last - i : i;
            start(flows, index, variant == RP_FLOWS_ALONE, FEMTOSECONDS, network);
            if (variant == RP_FLOWS_RECOMPUTE) {
                rp_network_recompute(network);
            }
        }
        first = last + 1;
    }
    drain(flows, network, variant == RP_FLOWS_RECOMPUTE);
    rp_network_destroy(network);
}
