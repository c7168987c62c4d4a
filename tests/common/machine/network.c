/* Flows that share links: golden scenarios, the slow reference, max-min fairness, and the rules of
 * time and order in common/machine/network/network.h. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "tests/support/assertions.h"
#include "tests/support/random_flows.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NETWORKS 300u
#else
#define NETWORKS 2500u
#endif

#define FEMTOSECONDS 1e15
#define TOLERANCE_S 1e-11 /* ten picoseconds */

static rp_random_flows *flows;

static void begin(void)
{
    flows = malloc(sizeof *flows);
}

static void end(void)
{
    free(flows);
    rp_test_end(NULL);
}

TestSuite(network, .init = begin, .fini = end, .timeout = 500);

/* ---- the slow reference ---------------------------------------------------------------------- */

static double worst_difference(void)
{
    double worst_s = 0;
    for (uint32_t i = 0; i < flows->flow_count; i++) {
        long double end_s = flows->end_ticks[i] / (long double)FEMTOSECONDS;
        worst_s = fmax(worst_s, (double)fabsl(end_s - flows->flows[i].end_s));
    }
    return worst_s;
}

static void compare_with_reference(uint64_t seed)
{
    rp_random random = {seed};
    uint32_t trees = 0;
    uint32_t ties = 0;
    uint32_t large = 0;
    double worst_s = 0;
    double latest_s = 0;
    for (uint32_t i = 0; i < NETWORKS / 2; i++) {
        rp_random_flows_draw(&random, flows);
        rp_random_flows_run(flows, RP_FLOWS_PLAIN);
        slow_flows_run(flows->capacities, (int)flows->link_count, flows->flows,
                       (int)flows->flow_count);
        double difference_s = worst_difference();
        cr_assert(lt(dbl, difference_s, TOLERANCE_S), "seed %" PRIu64 ", network %u", seed, i);
        worst_s = fmax(worst_s, difference_s);
        for (uint32_t k = 0; k < flows->flow_count; k++) {
            latest_s = fmax(latest_s, (double)flows->flows[k].end_s);
        }
        trees += flows->tree ? 1 : 0;
        ties += flows->ties ? 1 : 0;
        large += flows->flow_count > 150 && flows->link_count > 20 ? 1 : 0;
    }
    cr_log_info("worst difference %.3g s (latest end %.3g s); %u trees, %u with ties, %u large",
                worst_s, latest_s, trees, ties, large);
    cr_assert(gt(u32, trees, NETWORKS / 8));
    cr_assert(gt(u32, ties, NETWORKS / 8));
    cr_assert(gt(u32, large, NETWORKS / 150));
}

Test(network, random_networks_equal_the_reference_a)
{
    compare_with_reference(3);
}

Test(network, random_networks_equal_the_reference_b)
{
    compare_with_reference(20261121);
}

/* ---- variants without effect ----------------------------------------------------------------- */

/* Runs random networks in the form `variant` and plainly; ends may differ by `slack_ticks`. */
static void compare_with_plain(rp_flows_variant variant, int64_t slack_ticks)
{
    static int64_t plain_ticks[RP_TEST_MAX_FLOWS];
    rp_random random = {5};
    int64_t worst_ticks = 0;
    for (uint32_t i = 0; i < NETWORKS / 4; i++) {
        rp_random_flows_draw(&random, flows);
        rp_random_flows_run(flows, RP_FLOWS_PLAIN);
        memcpy(plain_ticks, flows->end_ticks, sizeof plain_ticks);
        rp_random_flows_run(flows, variant);
        for (uint32_t k = 0; k < flows->flow_count; k++) {
            int64_t difference = llabs(flows->end_ticks[k] - plain_ticks[k]);
            worst_ticks = difference > worst_ticks ? difference : worst_ticks;
        }
        cr_assert(le(i64, worst_ticks, slack_ticks), "network %u", i);
    }
    cr_log_info("worst difference %" PRId64 " fs", worst_ticks);
}

Test(network, local_recomputation_equals_global_recomputation)
{
    compare_with_plain(RP_FLOWS_RECOMPUTE, 0);
}

Test(network, order_of_starts_at_one_instant_does_not_matter)
{
    compare_with_plain(RP_FLOWS_REVERSED, 0);
}

/* A flow alone counts its service from its own start: other roundings, hence the slack. */
Test(network, grouping_does_not_change_ends)
{
    compare_with_plain(RP_FLOWS_ALONE, 100);
}

Test(network, completions_are_in_order_of_time_and_start)
{
    rp_random random = {6};
    for (uint32_t i = 0; i < NETWORKS / 4; i++) {
        rp_random_flows_draw(&random, flows);
        rp_random_flows_run(flows, RP_FLOWS_PLAIN);
        for (uint32_t k = 0; k + 1 < flows->flow_count; k++) {
            uint32_t this = flows->completions[k];
            uint32_t next = flows->completions[k + 1];
            bool ordered = flows->end_ticks[this] < flows->end_ticks[next] ||
                           (flows->end_ticks[this] == flows->end_ticks[next] && this < next);
            cr_assert(ordered, "network %u, completions %u and %u", i, k, k + 1);
            int64_t start_ticks = llround(flows->flows[this].start_s * FEMTOSECONDS);
            cr_assert(ge(i64, flows->end_ticks[this], start_ticks));
        }
    }
}

/* Every build computes the same ticks, as the release build did. Changes of arithmetic in
 * common/machine/network/rates.c change them; compilers and flags must not. */
Test(network, every_build_gives_the_same_ticks)
{
    rp_random random = {8};
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < 200; i++) {
        rp_random_flows_draw(&random, flows);
        rp_random_flows_run(flows, RP_FLOWS_PLAIN);
        for (uint32_t k = 0; k < flows->flow_count; k++) {
            hash = (hash ^ (uint64_t)flows->end_ticks[k]) * UINT64_C(1099511628211);
        }
    }
    cr_expect(eq(u64, hash, UINT64_C(5347725827358560110)));
}

/* ---- max-min fairness, conservation: at every event of random networks ----------------------- */

typedef struct observed {
    rp_network *network;
    uint32_t routes[RP_TEST_MAX_FLOWS];
    bool active[RP_TEST_MAX_FLOWS];
    double load[RP_TEST_MAX_LINKS];    /* bytes per second */
    double fastest[RP_TEST_MAX_LINKS]; /* of the link's flows */
    uint32_t on_link[RP_TEST_MAX_LINKS];
    double carried[RP_TEST_MAX_LINKS]; /* integral of the load */
    int64_t busy_ticks[RP_TEST_MAX_LINKS];
} observed;

static void measure_loads(observed *o)
{
    for (uint32_t l = 0; l < flows->link_count; l++) {
        o->load[l] = 0;
        o->fastest[l] = 0;
        o->on_link[l] = 0;
    }
    for (uint32_t i = 0; i < flows->flow_count; i++) {
        for (int k = 0; o->active[i] && k < flows->flows[i].link_count; k++) {
            double rate = rp_network_rate(o->network, o->routes[i]);
            int link = flows->links[i][k];
            o->load[link] += rate;
            o->fastest[link] = fmax(o->fastest[link], rate);
            o->on_link[link]++;
        }
    }
}

/* By definition no link exceeds its capacity, and each flow has a full link on which no flow is
 * faster. */
static void check_max_min(const observed *o)
{
    for (uint32_t l = 0; l < flows->link_count; l++) {
        cr_assert(le(dbl, o->load[l], flows->capacities[l] * (1 + 1e-12)), "link %u", l);
    }
    for (uint32_t i = 0; i < flows->flow_count; i++) {
        if (!o->active[i] || flows->flows[i].link_count == 0) {
            continue;
        }
        double rate = rp_network_rate(o->network, o->routes[i]);
        uint32_t bottleneck = rp_network_bottleneck(o->network, o->routes[i]);
        cr_assert(lt(u32, bottleneck, flows->link_count));
        cr_assert(ge(dbl, o->load[bottleneck], flows->capacities[bottleneck] * (1 - 1e-12)));
        cr_assert(ge(dbl, rate, o->fastest[bottleneck] * (1 - 1e-12)), "flow %u", i);
        bool on_route = false;
        for (int k = 0; k < flows->flows[i].link_count; k++) {
            on_route = on_route || flows->links[i][k] == (int)bottleneck;
        }
        cr_assert(on_route);
    }
}

static void check_usage(const observed *o)
{
    for (uint32_t l = 0; l < flows->link_count; l++) {
        rp_link_usage usage = rp_network_usage(o->network, l);
        cr_assert(lt(dbl, fabs(usage.bytes - o->carried[l]), 1 + 1e-9 * o->carried[l]),
                  "link %u: %.17g, integral %.17g", l, usage.bytes, o->carried[l]);
        cr_assert(eq(i64, usage.busy_ticks, o->busy_ticks[l]));
        cr_assert(le(i64, usage.full_ticks, usage.busy_ticks));
        double most = flows->capacities[l] * (double)usage.busy_ticks / FEMTOSECONDS;
        cr_assert(le(dbl, usage.bytes, most * (1 + 1e-9) + 1), "link %u", l);
        double least = flows->capacities[l] * (double)usage.full_ticks / FEMTOSECONDS;
        cr_assert(ge(dbl, usage.bytes, least * (1 - 1e-9) - 1), "link %u", l);
    }
}

static void pass_time(observed *o, int64_t to_ticks)
{
    measure_loads(o);
    check_max_min(o);
    int64_t ticks = to_ticks - rp_network_clock(o->network);
    for (uint32_t l = 0; l < flows->link_count; l++) {
        o->carried[l] += o->load[l] * ((double)ticks / FEMTOSECONDS);
        o->busy_ticks[l] += o->on_link[l] > 0 ? ticks : 0;
    }
    rp_network_advance(o->network, to_ticks);
    rp_completion done;
    while (rp_network_pop(o->network, to_ticks, &done)) {
        cr_assert(eq(i64, done.time_ticks, to_ticks));
        o->active[done.tag] = false;
    }
}

/* Passes events up to `to_ticks`, and points halfway between. */
static void pass_until(observed *o, int64_t to_ticks)
{
    int64_t next_ticks = 0;
    while ((next_ticks = rp_network_next(o->network)) <= to_ticks && next_ticks != RP_NEVER) {
        int64_t clock_ticks = rp_network_clock(o->network);
        pass_time(o, clock_ticks + (next_ticks - clock_ticks) / 2);
        pass_time(o, next_ticks);
    }
    if (to_ticks != RP_NEVER) {
        pass_time(o, to_ticks);
    }
}

static void observe_run(observed *o)
{
    memset(o, 0, sizeof *o);
    for (uint32_t i = flows->link_count; i < RP_TEST_MAX_LINKS + RP_TEST_MAX_FLOWS; i++) {
        flows->capacities[i] = 1e9;
    }
    o->network = rp_random_flows_network(flows, FEMTOSECONDS);
    for (uint32_t i = 0; i < flows->flow_count; i++) {
        uint32_t links[RP_TEST_MAX_HOPS];
        for (int k = 0; k < flows->flows[i].link_count; k++) {
            links[k] = (uint32_t)flows->links[i][k];
        }
        cr_assert(eq(int,
                     rp_network_route(o->network, links, (uint32_t)flows->flows[i].link_count,
                                      &o->routes[i]),
                     RP_OK));
        pass_until(o, llround(flows->flows[i].start_s * FEMTOSECONDS));
        rp_random_flows_start(flows, i, FEMTOSECONDS, o->network);
        o->active[i] = flows->flows[i].bytes > 0 && flows->flows[i].link_count > 0;
        if (i % 8 == 0) {
            check_usage(o);
        }
    }
    pass_until(o, RP_NEVER);
    check_usage(o);
}

/* In the end the integral equals the sent bytes exactly. */
static void check_conservation(observed *o)
{
    for (uint32_t l = 0; l < flows->link_count; l++) {
        double bytes = 0;
        for (uint32_t i = 0; i < flows->flow_count; i++) {
            for (int k = 0; k < flows->flows[i].link_count; k++) {
                bytes += flows->links[i][k] == (int)l ? flows->flows[i].bytes : 0;
            }
        }
        cr_assert(eq(dbl, rp_network_usage(o->network, l).bytes, bytes), "link %u", l);
    }
}

Test(network, rates_are_max_min_fair_and_bytes_are_conserved)
{
    rp_random random = {7};
    observed *o = malloc(sizeof *o);
    for (uint32_t i = 0; i < NETWORKS / 10; i++) {
        rp_random_flows_draw(&random, flows);
        observe_run(o);
        check_conservation(o);
        rp_network_destroy(o->network);
    }
    free(o);
}
