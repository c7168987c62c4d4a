/** @file metrics.h  Makespan, the bubble and its parts, measured on a timeline.
 *
 * bubble = GPUs * makespan - busy = fill + switch + drain + intra, each part measured on its own
 * from the gaps between non-empty ops of the GPUs' compute queues:
 *  - fill: idle before a GPU's first non-empty op (the whole makespan where there is none);
 *  - drain: idle after its last non-empty backward (after its last op where there is none);
 *  - switch: idle between the end of its last warm-up forward and its first backward; the warm-up
 *    forwards are the first N - rank that end no later than that backward starts; for schedules
 * with separate backward stages the window starts at the last such forward;
 *  - intra: the other idle time between, and what ops were held within (rp_timeline.held_ps).
 * A backward includes the pre-work joined to it.
 */
#pragma once

#include "common/base/reason.h"
#include "common/timeline/timeline.h"

typedef struct rp_metrics {
    int64_t makespan_ps;
    int64_t busy_ps;    /**< summed over GPUs, as all that follow */
    int64_t passes_ps;  /**< of busy: all but updates of weights on GPUs */
    int64_t fullest_ps; /**< of the GPU with the most, not summed */
    int64_t bubble_ps;
    int64_t fill_ps;
    int64_t switch_ps;
    int64_t drain_ps;
    int64_t intra_ps;
    /** Stage fidelity: hop * data waits (schedules.md 7); hardware: of all transfers */
    int64_t comm_total_ps;
    int64_t comm_exposed_ps; /**< by how much hops delay ops; hardware: waits for transfers */
    int64_t lower_bound_ps;  /**< on the makespan, by the program's own edges and placement */
} rp_metrics;

/**
 * Measures makespan, busy and the bubble's parts (not comm and bound: the engine knows those).
 * @param separate_backward see above
 * @retval RP_OK, RP_BROKEN (a part is negative or the sum differs; logged)
 */
rp_status rp_metrics_measure(const rp_timeline *timeline, bool separate_backward,
                             rp_metrics *metrics_out, rp_reason *reason);

/** @return the end of the last op that takes time, in ps; 0 where there is none. */
int64_t rp_metrics_makespan_ps(const rp_timeline *timeline);

/** From so many iterations on the period counts as that of a steady state; below it is an estimate.
 */
#define RP_STEADY_ITERATIONS 16u

/**
 * Period of an iteration: (end of the last - end of iteration I/2) / (I - I/2), I/2 rounded down,
 * in ps. One synchronous iteration: the makespan, the next one begins there.
 * @return NaN for one asynchronous iteration: nothing tells when the next one would be done
 */
double rp_metrics_period_ps(const rp_timeline *timeline);
