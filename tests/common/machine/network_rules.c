/* The network's rules of time, order, routes and mistakes, on networks solved by hand. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/machine/network/network.h"
#include "tests/reference/slow_flows.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define PS_PER_MS INT64_C(1000000000)

static rp_network *network;
static char messages[1024];

static void begin(void)
{
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rp_network_destroy(network);
    rp_test_end(NULL);
}

TestSuite(network_rules, .init = begin, .fini = end, .timeout = 60);

/* Links of 25e9 bytes/s: 40 ps per byte. */
static void create(uint32_t links)
{
    double capacities[16];
    for (uint32_t i = 0; i < links; i++) {
        capacities[i] = 25e9;
    }
    cr_assert(eq(int, rp_network_create(capacities, links, RP_PICOSECONDS, &network, NULL), RP_OK));
}

static uint32_t route(uint32_t count, uint32_t a, uint32_t b)
{
    uint32_t links[2] = {a, b};
    uint32_t index = UINT32_MAX;
    cr_assert(eq(int, rp_network_route(network, links, count, &index), RP_OK));
    return index;
}

static void start(uint32_t on, double bytes, int64_t now_ps, uint64_t tag)
{
    cr_assert(eq(int, rp_network_start(network, on, bytes, now_ps, tag), RP_OK));
}

static void expect(int64_t time_ps, uint64_t tag)
{
    rp_completion done = {-1, 0, 0};
    cr_expect(eq(i64, rp_network_next(network), time_ps));
    cr_assert(not(rp_network_pop(network, time_ps - 1, &done)));
    cr_assert(rp_network_pop(network, time_ps, &done));
    cr_expect(eq(i64, done.time_ticks, time_ps));
    cr_expect(eq(u64, done.tag, tag));
}

static void expect_none(void)
{
    rp_completion done;
    cr_expect(eq(i64, rp_network_next(network), RP_NEVER));
    cr_expect(not(rp_network_pop(network, RP_NEVER, &done)));
    cr_expect(eq(u64, rp_network_flows(network), 0));
}

Test(network_rules, a_flow_alone_takes_bytes_over_capacity)
{
    create(2);
    start(route(2, 0, 1), 1000, 17, 42);
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, 0), 25e9, 1e-3));
    expect(17 + 40000, 42);
    expect_none();
    cr_expect(eq(dbl, rp_network_rate(network, 0), 0));
    cr_expect(eq(u32, rp_network_bottleneck(network, 0), RP_NO_LINK));
}

Test(network_rules, nothing_to_send_ends_at_once)
{
    create(1);
    uint32_t shared = route(1, 0, 0);
    uint32_t free_route = route(0, 0, 0);
    cr_expect(isinf(rp_network_rate(network, free_route)));
    start(shared, 0, 5, 1);
    start(free_route, 1e9, 5, 2);
    start(shared, 100, 5, 3);
    start(free_route, 0, 5, 4);
    expect(5, 1);
    expect(5, 2);
    expect(5, 4);
    expect(4005, 3);
    expect_none();
    cr_expect(eq(dbl, rp_network_usage(network, 0).bytes, 100));
}

/* Equal ends come in the order of starts, whatever the routes. */
Test(network_rules, ties_go_by_the_order_of_starts)
{
    create(3);
    for (uint64_t tag = 0; tag < 9; tag++) {
        start(route(1, (uint32_t)(tag * 2 % 3), 0), 3000, 0, tag);
    }
    for (uint64_t tag = 0; tag < 9; tag++) {
        expect(3 * 120000, tag);
    }
    expect_none();
}

/* 1 byte at 25e9 bytes/s takes 40 ps; on the fastest link 1e-6 ps, rounded to 0. */
Test(network_rules, ends_are_rounded_to_the_nearest_tick_and_never_before_the_start)
{
    double capacities[] = {1e18, 3e12};
    cr_assert(eq(int, rp_network_create(capacities, 2, RP_PICOSECONDS, &network, NULL), RP_OK));
    start(route(1, 0, 0), 1, 1000, 1);
    expect(1000, 1);
    start(route(1, 1, 0), 1, 1000, 2); /* a third of a tick */
    expect(1000, 2);
    start(route(1, 1, 0), 2, 1000, 3); /* two thirds */
    expect(1001, 3);
    expect_none();
}

/* A flow that starts as another ends never meets it. */
Test(network_rules, an_end_comes_before_a_start_of_the_same_instant)
{
    create(1);
    start(route(1, 0, 0), 1000, 0, 1);
    start(route(1, 0, 0), 1000, 40000, 2);
    expect(40000, 1);
    expect(80000, 2);
    rp_link_usage usage = rp_network_usage(network, 0);
    cr_expect(eq(i64, usage.busy_ticks, 80000));
    cr_expect(eq(i64, usage.full_ticks, 80000));
    start(route(1, 0, 0), 1000, 100000, 3);
    expect(140000, 3);
    cr_expect(eq(i64, rp_network_usage(network, 0).busy_ticks, 120000));
}

Test(network_rules, completions_wait_until_they_are_popped)
{
    create(1);
    start(route(1, 0, 0), 1000, 0, 1);
    rp_network_advance(network, 50000);
    cr_expect(eq(i64, rp_network_clock(network), 50000));
    start(route(1, 0, 0), 1000, 60000, 2);
    rp_network_advance(network, 10);
    cr_expect(eq(i64, rp_network_clock(network), 60000));
    cr_expect(eq(u64, rp_network_flows(network), 1));
    expect(40000, 1);
    expect(100000, 2);
    expect_none();
}

/* Three flows on a link, one also on a narrow link: 5, and (25 - 5) / 2 each. */
Test(network_rules, the_narrow_flow_leaves_the_rest_to_the_others)
{
    double capacities[] = {25e9, 5e9};
    cr_assert(eq(int, rp_network_create(capacities, 2, RP_PICOSECONDS, &network, NULL), RP_OK));
    uint32_t wide = route(1, 0, 0);
    uint32_t narrow = route(2, 1, 0);
    start(wide, 10e6, 0, 1);
    start(wide, 20e6, 0, 2);
    start(narrow, 10e6, 0, 3);
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, wide), 10e9, 1));
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, narrow), 5e9, 1));
    cr_expect(eq(u32, rp_network_bottleneck(network, wide), 0));
    cr_expect(eq(u32, rp_network_bottleneck(network, narrow), 1));
    expect(PS_PER_MS, 1);
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, wide), 20e9, 1));
    expect(PS_PER_MS * 3 / 2, 2);
    expect(2 * PS_PER_MS, 3);
    rp_link_usage usage = rp_network_usage(network, 0);
    cr_expect(eq(dbl, usage.bytes, 40e6));
    cr_expect(eq(i64, usage.full_ticks, PS_PER_MS * 3 / 2));
    cr_expect(eq(i64, usage.busy_ticks, 2 * PS_PER_MS));
}

/* A link that its groups cannot fill limits nobody until another group comes. Link 1 (30) is first
 * shared with link 0 (100), then empty, then has a group that link 2 limits to 10, and is then
 * shared again: 10 for that group, 20 for the other, 80 for flows on link 0 only. */
Test(network_rules, a_wide_link_limits_when_it_gets_full)
{
    double capacities[] = {100e9, 30e9, 10e9};
    cr_assert(eq(int, rp_network_create(capacities, 3, RP_PICOSECONDS, &network, NULL), RP_OK));
    uint32_t first = route(1, 0, 0);
    uint32_t both = route(2, 0, 1);
    uint32_t wide = route(1, 1, 0);
    uint32_t narrow = route(2, 1, 2);
    start(first, 1e9, 0, 1);
    start(both, 15e6, 0, 2);
    start(wide, 45e6, 0, 3);
    expect(PS_PER_MS, 2);
    expect(2 * PS_PER_MS, 3);
    start(narrow, 1e9, 3 * PS_PER_MS, 4);
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, narrow), 10e9, 1));
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, first), 100e9, 1));
    start(both, 1e9, 4 * PS_PER_MS, 5);
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, narrow), 10e9, 1));
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, both), 20e9, 1));
    cr_expect(epsilon_eq(dbl, rp_network_rate(network, first), 80e9, 1));
    cr_expect(eq(u32, rp_network_bottleneck(network, narrow), 2));
    cr_expect(eq(u32, rp_network_bottleneck(network, both), 1));
    cr_expect(eq(i64, rp_network_usage(network, 1).full_ticks, 2 * PS_PER_MS));
    cr_expect(eq(i64, rp_network_usage(network, 1).busy_ticks, 3 * PS_PER_MS));
}

Test(network_rules, a_set_of_links_is_one_route)
{
    create(16);
    cr_expect(eq(u32, route(2, 3, 7), 0));
    cr_expect(eq(u32, route(2, 7, 3), 0));
    cr_expect(eq(u32, route(1, 7, 0), 1));
    cr_expect(eq(u32, route(0, 0, 0), 2));
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t k = 0; k < i; k++) {
            route(2, i, k);
        }
    }
    uint32_t last = route(1, 15, 0);
    cr_expect(eq(u32, last, 2 + 120)); /* 120 pairs; one flow was there before */
    cr_expect(eq(u32, route(2, 3, 7), 0));
}

/* 300 flows, always at least two, on one route for minutes: the group restarts its count, and ends
 * equal the reference's. */
Test(network_rules, a_group_that_is_never_empty_stays_exact)
{
    static slow_flow flows[300];
    static const int links[] = {0};
    double capacity = 25e9;
    cr_assert(eq(int, rp_network_create(&capacity, 1, 1e15, &network, NULL), RP_OK));
    for (int i = 0; i < 300; i++) {
        int64_t start_ms = i < 2 ? 0 : 400 * (i - 1);
        flows[i] = (slow_flow){.bytes = 1e10 + i, .start_s = (double)start_ms / 1e3, links, 1};
        start(route(1, 0, 0), flows[i].bytes, start_ms * INT64_C(1000000000000), (uint64_t)i);
    }
    slow_flows_run(&capacity, 1, flows, 300);
    rp_completion done;
    double worst_s = 0;
    double sum_bytes = 0;
    while (rp_network_pop(network, rp_network_next(network), &done)) {
        long double end_s = (long double)done.time_ticks / 1e15L;
        worst_s = fmax(worst_s, (double)fabsl(end_s - flows[done.tag].end_s));
        sum_bytes += flows[done.tag].bytes;
    }
    cr_log_info("worst difference %.3g s after %.3g s", worst_s, (double)flows[299].end_s);
    cr_expect(lt(dbl, worst_s, 1e-12));
    cr_expect(eq(dbl, rp_network_usage(network, 0).bytes, sum_bytes));
    expect_none();
}

Test(network_rules, an_end_beyond_the_clock_never_comes)
{
    double capacity = RP_MIN_CAPACITY;
    cr_assert(eq(int, rp_network_create(&capacity, 1, 1e15, &network, NULL), RP_OK));
    start(route(1, 0, 0), RP_MAX_FLOW_BYTES, 0, 1);
    rp_completion done;
    cr_expect(eq(i64, rp_network_next(network), RP_NEVER));
    cr_expect(not(rp_network_pop(network, RP_NEVER, &done)));
    rp_network_advance(network, RP_NEVER - 1);
    cr_expect(eq(u64, rp_network_flows(network), 1));
}

Test(network_rules, bad_links_and_ticks_are_refused)
{
    double capacities[2] = {25e9, 0};
    const double bad[] = {0, -1, NAN, INFINITY, 1e-4, 1e19};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        capacities[1] = bad[i];
        rp_log_capture_end();
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = rp_network_create(capacities, 2, RP_PICOSECONDS, &network, NULL);
        cr_expect(eq(int, status, RP_INPUT));
        cr_expect(ne(ptr, strstr(messages, "valid values are"), NULL), "%s", messages);
        cr_expect(eq(ptr, network, NULL));
    }
    capacities[1] = 1;
    cr_expect(eq(int, rp_network_create(capacities, 2, 0.5, &network, NULL), RP_INPUT));
    cr_expect(eq(int, rp_network_create(capacities, 2, 1e16, &network, NULL), RP_INPUT));
}

Test(network_rules, bad_routes_and_flows_are_refused)
{
    create(2);
    uint32_t index = 77;
    const uint32_t twice[] = {1, 0, 1};
    const uint32_t unknown[] = {0, 2};
    const uint32_t same[] = {1, 1};
    cr_expect(eq(int, rp_network_route(network, twice, 3, &index), RP_INPUT));
    cr_expect(eq(int, rp_network_route(network, unknown, 2, &index), RP_INPUT));
    cr_expect(eq(int, rp_network_route(network, same, 2, &index), RP_INPUT));
    cr_expect(eq(u32, index, 77));
    start(route(1, 0, 0), 10, 100, 1);
    cr_expect(eq(int, rp_network_start(network, 0, 10, 99, 1), RP_BROKEN));
    cr_expect(eq(int, rp_network_start(network, 1, 10, 100, 1), RP_BROKEN));
    cr_expect(eq(int, rp_network_start(network, 0, -1, 100, 1), RP_BROKEN));
    cr_expect(eq(int, rp_network_start(network, 0, NAN, 100, 1), RP_BROKEN));
    cr_expect(eq(int, rp_network_start(network, 0, 1e19, 100, 1), RP_BROKEN));
    cr_expect(eq(int, rp_network_start(network, 0, 1, RP_NEVER, 1), RP_BROKEN));
    expect(500, 1);
    expect_none();
}
