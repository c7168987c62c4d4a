/** @file random_flows.h  Random networks with flows, and a run of each through common/network. */
#pragma once

#include "common/machine/network/network.h"
#include "tests/reference/slow_flows.h"
#include "tests/support/random_case.h"

#define RP_TEST_MAX_LINKS 64
#define RP_TEST_MAX_FLOWS 300
#define RP_TEST_MAX_HOPS 6

/** A network in the slow reference's form, and the end of each flow. Points into itself: do not
 * copy. */
typedef struct rp_random_flows {
    uint32_t link_count;
    double capacities[RP_TEST_MAX_LINKS + RP_TEST_MAX_FLOWS]; /**< with room for a further link per
                                                               * flow */
    uint32_t flow_count;
    slow_flow flows[RP_TEST_MAX_FLOWS]; /**< sorted by start */
    int links[RP_TEST_MAX_FLOWS][RP_TEST_MAX_HOPS + 1];
    bool tree;
    bool ties;
    int64_t end_ticks[RP_TEST_MAX_FLOWS];
    uint32_t completions[RP_TEST_MAX_FLOWS]; /**< flows in the order of their completion */
} rp_random_flows;

/** Draws a PCIe tree or arbitrary routes: 1 to 64 links, 1 to 300 flows of 0 to 2^30 bytes within
 * about a second; in half of the cases equal sizes and starts on a coarse grid, so that ties
 * happen.
 */
void rp_random_flows_draw(rp_random *random, rp_random_flows *out);

/** Departures of rp_random_flows_run from the plain run. */
typedef enum rp_flows_variant {
    RP_FLOWS_PLAIN,
    RP_FLOWS_RECOMPUTE, /**< computes all rates from scratch after every start and end */
    RP_FLOWS_ALONE,     /**< puts every flow on its own route over its own wide link */
    RP_FLOWS_REVERSED,  /**< starts flows that start together in reverse order */
    RP_FLOWS_VARIANT_COUNT,
} rp_flows_variant;

/** Creates the network of a drawn case, without flows. Failures fail the test. */
rp_network *rp_random_flows_network(const rp_random_flows *flows, double ticks_per_s);

/** Starts flow `index` at its time, tagged with its index, on a route that is looked up. */
void rp_random_flows_start(const rp_random_flows *flows, uint32_t index, double ticks_per_s,
                           rp_network *network);

/** Runs all flows with ticks of 1 fs; sets end_ticks and completions. */
void rp_random_flows_run(rp_random_flows *flows, rp_flows_variant variant);
