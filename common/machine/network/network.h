/** @file network.h  Links that transfers share: a fluid model with max-min fairness.
 *
 * A *link* is directed and has a capacity. A *route* is a set of links. A *flow* is a number of
 * bytes that travels over all links of its route at once, with one rate. At every instant the rates
 * are the max-min fair ones: no link carries more than its capacity, and every flow has a
 * bottleneck, a link that is used fully and on which no other flow is faster (progressive filling;
 * Bertsekas and Gallager, Data Networks, 2nd edition, section 6.5.2). Rates change only when a flow
 * starts or ends.
 *
 * **Cost.** Flows on the same route have the same rate, so they are one *group*: a count and a heap
 * of the amounts of service at which each flow is done. A change recomputes the groups that it can
 * reach through common links and nothing else; links that cannot be filled by what is on them do
 * not count. What was reached is kept while changes are connected with it.
 * All changes at one instant are one recomputation, and none at all where a route's count of flows
 * is the same afterwards. 4096 flows on 64 routes cost about as much per event as 64 flows.
 *
 * **Time** is an int64 in *ticks*; the caller says how many there are per second: picoseconds in
 * the simulator, down to femtoseconds in rpsim --flows. Things happen at whole ticks only: a flow
 * ends at the tick nearest to the end that its rate implies, never before its start, and holds its
 * share until that tick. So equal ends are equal integers, the clock of the network and that of the
 * simulator never disagree, the error does not grow with the length of the run, and no tolerance is
 * needed to tell what is simultaneous. (A double of seconds would need one, and lose digits in long
 * runs; long double is another type on every machine.) Completions are ordered by (time, sequence
 * of the start).
 *
 * **Accuracy.** Each completion is rounded by at most half a tick; rates and service are doubles.
 * With ticks of 1 fs the scenarios of tests/golden/contention.json come out within 1e-15 s of exact
 * rational arithmetic, random networks within 1e-11 s (tests/common/machine/network.c).
 *
 * **Chaos.** With fixed starts the ends depend continuously on sizes and capacities. A pipeline is
 * different: ends decide which transfer starts next and whom it meets on the links. Where links are
 * the bottleneck, differences of a picosecond grow by meeting after meeting until the runs of two
 * simulators differ visibly, though both are right. Runs of this one are reproducible to the bit,
 * at every optimisation level (only +, -, *, / of doubles and integers, and orders that do not
 * depend on addresses), but no test pins tight expected values on link-bound pipelines.
 */
#pragma once

#include "common/base/reason.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** Valid capacities of a link, in bytes per second. */
#define RP_MIN_CAPACITY 1e-3
#define RP_MAX_CAPACITY 1e18
/** Most bytes of one flow. */
#define RP_MAX_FLOW_BYTES 1e18
/** Ticks per second where a tick is a picosecond. */
#define RP_PICOSECONDS 1e12
/** No completion is to come. */
#define RP_NEVER INT64_MAX
/** No link limits the flows of a route. */
#define RP_NO_LINK UINT32_MAX

typedef struct rp_network rp_network;

/** A flow that has ended. */
typedef struct rp_completion {
    int64_t time_ticks;
    uint64_t sequence; /**< number of flows started before this one */
    uint64_t tag;      /**< as given to rp_network_start */
} rp_completion;

/** Work that a link has done so far. */
typedef struct rp_link_usage {
    double bytes;       /**< carried, of flows that have not ended too */
    int64_t busy_ticks; /**< time in which at least one flow was on the link */
    int64_t full_ticks; /**< time in which it was the bottleneck of at least one flow */
} rp_link_usage;

/**
 * Creates a network without routes and flows, its clock at 0.
 * @param capacities_Bps of each link, bytes per second, RP_MIN_CAPACITY to RP_MAX_CAPACITY
 * @param ticks_per_s 1 to 1e15
 * @param network_out owned by the caller; NULL on failure
 * @retval RP_OK, RP_INPUT (a capacity or ticks_per_s out of range; logged), RP_NO_MEMORY
 */
rp_status rp_network_create(const double *capacities_Bps, uint32_t link_count, double ticks_per_s,
                            rp_network **network_out, rp_reason *reason);

/** Frees the network with its flows. NULL is allowed. */
void rp_network_destroy(rp_network *network);

/**
 * Gives the route over a set of links a number. The order of the links does not matter: the same
 * set always has the same number. No links: a route of infinite rate. May be called at any time.
 * @param links indices below link_count, each at most once
 * @param route_out 0, 1, … in the order of first use
 * @retval RP_OK, RP_INPUT (an unknown link, or one that comes twice; logged), RP_NO_MEMORY
 */
rp_status rp_network_route(rp_network *network, const uint32_t *links, uint32_t link_count,
                           uint32_t *route_out);

/**
 * Starts a flow. Completions up to `now_ticks` happen first; they wait for rp_network_pop.
 * A flow of zero bytes and one on a route without links end at once, at `now_ticks`.
 * @param bytes 0 to RP_MAX_FLOW_BYTES, need not be whole
 * @param now_ticks not before any time given to this network earlier (0 at first)
 * @param tag comes back with the completion
 * @retval RP_OK, RP_BROKEN (a parameter out of range; logged), RP_NO_MEMORY
 */
rp_status rp_network_start(rp_network *network, uint32_t route, double bytes, int64_t now_ticks,
                           uint64_t tag);

/**
 * @return the time of the next completion that rp_network_pop would give, not before the clock;
 * RP_NEVER where there is none, or none within the range of int64. Where two flows of an instant
 * take less than half a tick, this call is what finds that they end now.
 */
int64_t rp_network_next(rp_network *network);

/**
 * Takes the next completion, in the order of (time, sequence), if it is not after `until_ticks`.
 * Moves the clock to the completion's time, not to `until_ticks`. Completions that follow from
 * starts at the clock's own instant appear once rp_network_next was called.
 * @return false, and `*completion_out` as before, where there is none.
 */
bool rp_network_pop(rp_network *network, int64_t until_ticks, rp_completion *completion_out);

/**
 * Moves the clock to `now_ticks`, if that is later; completions until then wait for
 * rp_network_pop.
 */
void rp_network_advance(rp_network *network, int64_t now_ticks);

/** @return the clock: the latest time of a start, an advance or a completion so far. */
int64_t rp_network_clock(const rp_network *network);

/** @return flows that have been started and have not ended. */
uint64_t rp_network_flows(const rp_network *network);

/**
 * @return the rate of each flow on `route` from the clock on, bytes per second: 0 where there is no
 * flow, infinite where the route has no links.
 */
double rp_network_rate(rp_network *network, uint32_t route);

/** @return the link that limits the flows on `route` from the clock on; RP_NO_LINK where there
 * is no flow. Of several such links the one with the lowest index. */
uint32_t rp_network_bottleneck(rp_network *network, uint32_t route);

/** @return the usage of `link` up to the clock. Costs a look at every route: for reports. */
rp_link_usage rp_network_usage(rp_network *network, uint32_t link);

/** Recomputes the rates of all flows, not only of those that a change reaches: for tests, which
 * find that nothing ever changes by it. */
void rp_network_recompute(rp_network *network);

/** @return the number of links of a route. `route` must be one of rp_network_route. */
uint32_t rp_network_route_length(const rp_network *network, uint32_t route);

/** @return the link at a place of a route, 0 to its length - 1. */
uint32_t rp_network_route_link(const rp_network *network, uint32_t route, uint32_t place);

/** @return the number of links of the network. */
uint32_t rp_network_link_count(const rp_network *network);

/** @return a link's capacity in bytes per second. */
double rp_network_capacity(const rp_network *network, uint32_t link);
