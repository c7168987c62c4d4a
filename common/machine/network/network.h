/** @file network.h  Links that transfers share: a fluid model with max-min fairness.
 *
 * A *link* is directed and has a capacity. A *route* is a set of links. A *flow* is a number of
 * bytes that travels over all links of its route at once, at the same rate. At every instant the
 * rates are max-min fair: no link carries more than its capacity, and every flow has a bottleneck,
 * a link that is used fully and on which no other flow is faster (progressive filling; Bertsekas
 * and Gallager, Data Networks, 2nd edition, section 6.5.2). Rates change only when a flow starts or
 * ends.
 *
 * **Cost.** Flows on the same route have the same rate, so they form a *group*: a count and a heap
 * of the amounts of service at which each flow is done. A change recomputes only the groups that it
 * can reach through common links; links that their flows cannot fill do not count. The reached set
 * is kept while changes are connected with it. All changes at an instant share a single
 * recomputation, which is left out if a route's count of flows is the same afterwards. 4096 flows
 * on 64 routes cost about as much per event as 64 flows.
 *
 * **Time** is an int64 in *ticks*; the caller sets their number per second: picoseconds in the
 * simulator, down to femtoseconds in rpsim --flows. Things happen at whole ticks only: a flow ends
 * at the tick nearest to the end that its rate implies, never before its start, and holds its share
 * until that tick. So equal ends are equal integers, the clocks of network and simulator never
 * disagree, the error does not grow with the length of the run, and no tolerance is needed to
 * decide which ends are simultaneous. (A double of seconds would need a tolerance and lose digits
 * in long runs; long double differs between machines.) Completions are ordered by (time, sequence
 * of the start).
 *
 * **Accuracy.** Each completion is rounded by at most half a tick; rates and service are doubles.
 * With ticks of 1 fs the scenarios of tests/golden/contention.json come out within 1e-15 s of exact
 * rational arithmetic, random networks within 1e-11 s (tests/common/machine/network.c).
 *
 * **Chaos.** With fixed starts the ends depend continuously on sizes and capacities. A pipeline is
 * different: ends decide which transfer starts next and which transfers it meets on the links. If
 * links are the bottleneck, differences of a picosecond grow with every meeting until the runs of
 * two simulators differ visibly, though both are right. Runs of this simulator are reproducible to
 * the bit, at every optimisation level (only +, -, *, / of doubles and integers, and orders that do
 * not depend on addresses), but no test pins tight expected values on link-bound pipelines.
 */
#pragma once

#include "common/base/reason.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** Valid capacities of a link, in bytes per second. */
#define RP_MIN_CAPACITY 1e-3
#define RP_MAX_CAPACITY 1e18
/** Most bytes of a flow. */
#define RP_MAX_FLOW_BYTES 1e18
/** Ticks per second if a tick is a picosecond. */
#define RP_PICOSECONDS 1e12
/** Time of a completion that never comes. */
#define RP_NEVER INT64_MAX
/** Result if no link limits the flows of a route. */
#define RP_NO_LINK UINT32_MAX

typedef struct rp_network rp_network;

/** A flow that has ended. */
typedef struct rp_completion {
    int64_t time_ticks;
    uint64_t sequence; /**< number of flows that were started before */
    uint64_t tag;      /**< tag given to rp_network_start */
} rp_completion;

/** Work that a link has done so far. */
typedef struct rp_link_usage {
    double bytes;       /**< bytes carried, also of flows that have not ended */
    int64_t busy_ticks; /**< time in which at least one flow was on the link */
    int64_t full_ticks; /**< time in which the link was the bottleneck of at least one flow */
} rp_link_usage;

/**
 * Creates a network without routes and flows, its clock at 0.
 * @param capacities_Bps each link's, bytes per second, RP_MIN_CAPACITY to RP_MAX_CAPACITY
 * @param ticks_per_s 1 to 1e15
 * @param network_out owned by the caller; NULL on failure
 * @retval RP_OK, RP_INPUT (a capacity or ticks_per_s out of range; given as the reason),
 * RP_NO_MEMORY
 */
rp_status rp_network_create(const double *capacities_Bps, uint32_t link_count, double ticks_per_s,
                            rp_network **network_out, rp_reason *reason);

/** Frees the network with its flows. NULL is allowed. */
void rp_network_destroy(rp_network *network);

/**
 * Gives the route over a set of links a number. The order of the links does not matter: the same
 * set always has the same number. Without links it is a route of infinite rate. May be called at
 * any time.
 * @param links indices below link_count, each at most once
 * @param route_out 0, 1, … in the order of first use
 * @retval RP_OK, RP_INPUT (a link that is unknown or listed twice; logged), RP_NO_MEMORY
 */
rp_status rp_network_route(rp_network *network, const uint32_t *links, uint32_t link_count,
                           uint32_t *route_out);

/**
 * Starts a flow. Completions up to `now_ticks` happen first; they wait for rp_network_pop. A flow
 * of zero bytes, or on a route without links, ends at once, at `now_ticks`.
 * @param bytes 0 to RP_MAX_FLOW_BYTES, also fractions
 * @param now_ticks not before any time given to this network earlier (0 at first)
 * @param tag comes back with the completion
 * @retval RP_OK, RP_BROKEN (a parameter out of range; logged), RP_NO_MEMORY
 */
rp_status rp_network_start(rp_network *network, uint32_t route, double bytes, int64_t now_ticks,
                           uint64_t tag);

/**
 * @return the time of the next completion that rp_network_pop would give, not before the clock;
 * RP_NEVER if no flow ends within the range of int64. If flows of an instant take less than half a
 * tick, only this call finds that they end now.
 */
int64_t rp_network_next(rp_network *network);

/**
 * Takes the next completion, in the order of (time, sequence), if it is not after `until_ticks`.
 * Moves the clock to the completion's time, not to `until_ticks`. Completions that follow from
 * starts at the clock's own instant appear after a call of rp_network_next.
 * @return false if there is no such completion; *completion_out is unchanged then.
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
 * @return the rate of each flow on `route` from the clock on, bytes per second: 0 without a flow,
 * infinite if the route has no links.
 */
double rp_network_rate(rp_network *network, uint32_t route);

/** @return the link that limits the flows on `route` from the clock on, with the lowest index if
 * several do; RP_NO_LINK without a flow. */
uint32_t rp_network_bottleneck(rp_network *network, uint32_t route);

/** @return the usage of `link` up to the clock. It looks at every route, so it is meant for
 * reports. */
rp_link_usage rp_network_usage(rp_network *network, uint32_t link);

/** Recomputes the rates of all flows, not only of the flows that a change reaches. Tests use it to
 * show that this never changes a rate. */
void rp_network_recompute(rp_network *network);

/** @return the number of links of a route. `route` must come from rp_network_route. */
uint32_t rp_network_route_length(const rp_network *network, uint32_t route);

/** @return the link at a place of a route, 0 to its length - 1. */
uint32_t rp_network_route_link(const rp_network *network, uint32_t route, uint32_t place);

/** @return the number of links of the network. */
uint32_t rp_network_link_count(const rp_network *network);

/** @return a link's capacity in bytes per second. */
double rp_network_capacity(const rp_network *network, uint32_t link);
