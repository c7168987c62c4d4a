/* Steady traffic over links of very different capacity. As in a pipeline, each end starts the next
 * flow; after every event all rates equal the slow reference's, filled from zero. Most links can
 * never be full, and the set that can changes all the time. */
#include "common/base/mem.h"
#include "common/machine/network/network.h"
#include "tests/reference/slow_flows.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINKS 16
#define MAX_ROUTES 14
#define MAX_HOPS 5
#define MAX_FLOWS 24
#define EVENTS 200

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NETWORKS 100u
#else
#define NETWORKS 1500u
#endif

typedef struct traffic {
    rp_random random;
    uint32_t link_count;
    double capacities[MAX_LINKS];
    uint32_t route_count;
    int links[MAX_ROUTES][MAX_HOPS];
    int link_counts[MAX_ROUTES];
    uint32_t routes[MAX_ROUTES]; /* the network's numbers, shared by equal sets */
    uint32_t most;               /* flows at a time */
    rp_network *network;
    slow_flow flows[MAX_FLOWS]; /* a place per running flow */
    uint32_t route_of[MAX_FLOWS];
    uint32_t shared; /* events with flows of different bottlenecks */
} traffic;

/* Powers of two, or within one decade, or within six. */
static double draw_capacity(rp_random *random, uint32_t kind)
{
    double decades = kind == 1 ? 1 : 6;
    double exponent = 6 + 1e-6 * decades * rp_random_between(random, 0, 1000000);
    return kind == 0 ? pow(2, 20 + rp_random_between(random, 0, 4)) : pow(10, exponent);
}

static void draw_route(traffic *t, uint32_t route)
{
    uint32_t hops = rp_random_between(&t->random, 1, MAX_HOPS);
    int count = 0;
    for (uint32_t k = 0; k < hops; k++) {
        int link = (int)rp_random_between(&t->random, 0, t->link_count - 1);
        bool twice = false;
        for (int i = 0; i < count; i++) {
            twice = twice || t->links[route][i] == link;
        }
        if (!twice) {
            t->links[route][count++] = link;
        }
    }
    t->link_counts[route] = count;
    uint32_t links[MAX_HOPS];
    for (int i = 0; i < count; i++) {
        links[i] = (uint32_t)t->links[route][i];
    }
    cr_assert(
        eq(int, rp_network_route(t->network, links, (uint32_t)count, &t->routes[route]), RP_OK));
}

static void draw(traffic *t, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    t->random.state = seed;
    t->link_count = rp_random_between(&t->random, 1, MAX_LINKS);
    t->route_count = rp_random_between(&t->random, 1, MAX_ROUTES);
    bool sparse = rp_random_between(&t->random, 0, 1) == 0;
    t->most = rp_random_between(&t->random, 1, sparse ? 5 : MAX_FLOWS);
    uint32_t kind = rp_random_between(&t->random, 0, 2);
    for (uint32_t i = 0; i < t->link_count; i++) {
        t->capacities[i] = draw_capacity(&t->random, kind);
    }
    cr_assert(eq(int,
                 rp_network_create(t->capacities, t->link_count, RP_PICOSECONDS, &t->network, NULL),
                 RP_OK));
    for (uint32_t i = 0; i < t->route_count; i++) {
        draw_route(t, i);
    }
}

/* Milliseconds over the route's narrowest link; some sizes are equal. */
static void start(traffic *t, uint32_t place, int64_t now_ps)
{
    uint32_t route = rp_random_between(&t->random, 0, t->route_count - 1);
    double least = INFINITY;
    for (int i = 0; i < t->link_counts[route]; i++) {
        least = fmin(least, t->capacities[t->links[route][i]]);
    }
    bool equal = rp_random_between(&t->random, 0, 1) == 0;
    double ms = equal ? 2 : 1e-3 * rp_random_between(&t->random, 1, 5000);
    t->flows[place] =
        (slow_flow){.links = t->links[route], .link_count = t->link_counts[route], .started = 1};
    t->route_of[place] = route;
    cr_assert(eq(int,
                 rp_network_start(t->network, t->routes[route], 1e-3 * ms * least, now_ps, place),
                 RP_OK));
}

static void start_some(traffic *t, int64_t now_ps)
{
    uint32_t wanted = rp_random_between(&t->random, 0, 2);
    for (uint32_t place = 0; place < t->most && wanted > 0; place++) {
        if (!t->flows[place].started || t->flows[place].ended) {
            start(t, place, now_ps);
            wanted--;
        }
    }
}

static void compare(traffic *t)
{
    slow_flows_fill(t->capacities, (int)t->link_count, t->flows, (int)t->most);
    uint32_t first = RP_NO_LINK;
    for (uint32_t i = 0; i < t->most; i++) {
        if (t->flows[i].started && !t->flows[i].ended) {
            uint32_t route = t->routes[t->route_of[i]];
            double rate = rp_network_rate(t->network, route);
            double expected = (double)t->flows[i].rate;
            cr_assert(lt(dbl, fabs(rate - expected), 1e-12 * expected), "%.17g, not %.17g", rate,
                      expected);
            uint32_t bottleneck = rp_network_bottleneck(t->network, route);
            first = first == RP_NO_LINK ? bottleneck : first;
            t->shared += bottleneck != first ? 1 : 0;
        }
    }
}

static void pass_events(traffic *t)
{
    int64_t now_ps = 0;
    for (uint32_t i = 0; i < EVENTS; i++) {
        rp_completion done;
        bool ended = rp_network_pop(t->network, rp_network_next(t->network), &done);
        if (ended) {
            t->flows[done.tag].ended = 1;
            now_ps = done.time_ticks;
        }
        start_some(t, now_ps);
        if (rp_network_next(t->network) > now_ps) { /* not between simultaneous ends */
            compare(t);
        }
    }
}

Test(network_steady, rates_are_those_of_filling_from_zero, .timeout = 300)
{
    traffic *t = malloc(sizeof *t);
    uint64_t several = 0;
    for (uint64_t seed = 1; seed <= NETWORKS; seed++) {
        draw(t, seed);
        pass_events(t);
        several += t->shared > 0 ? 1 : 0;
        rp_network_destroy(t->network);
    }
    free(t);
    cr_log_info("%" PRIu64 " of %u networks had several bottlenecks at a time", several, NETWORKS);
    cr_expect(gt(u64, several, NETWORKS / 2));
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}
