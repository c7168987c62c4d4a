/** @file metrics.h  Makespan, the bubble and its parts, measured on a timeline.
 *
 * bubble = GPUs * makespan - busy = fill + switch + drain + intra, where each part is measured
 * separately from the gaps between non-empty ops of the GPUs' compute queues:
 *  - fill: idle before a GPU's first non-empty op (the whole makespan if there is none);
 *  - drain: idle after its last non-empty backward (after its last op if there is none);
 *  - switch: idle between the end of its last warm-up forward and its first backward; the warm-up
 *    forwards are the first N - rank that end no later than that backward starts; for schedules
 *    with separate backward stages the number is not limited;
 *  - intra: the other idle time between them, and the time for which ops were held
 * (rp_timeline.held_ps). A backward includes the pre-work joined to it.
 */
#pragma once

#include "common/base/reason.h"
#include "common/timeline/timeline.h"

typedef struct rp_metrics {
    int64_t makespan_ps;
    int64_t busy_ps;    /**< busy time summed over GPUs, as are the members below */
    int64_t passes_ps;  /**< busy time without updates of weights on GPUs */
    int64_t fullest_ps; /**< passes_ps of the GPU with the most, not summed */
    int64_t bubble_ps;
    int64_t fill_ps;
    int64_t switch_ps;
    int64_t drain_ps;
    int64_t intra_ps;
    /** Stage fidelity: hop * data waits (schedules.md 7); hardware: time of all transfers */
    int64_t comm_total_ps;
    int64_t comm_exposed_ps; /**< time by which hops delay ops; hardware: waits for transfers */
    int64_t lower_bound_ps;  /**< bound on the makespan from the program's edges and placement */
} rp_metrics;

/**
 * Measures makespan, busy and the bubble's parts; comm and bound come from the engine.
 * @param separate_backward the schedule has separate backward stages
 * @retval RP_OK, RP_INPUT (the GPU time is too long; given as the reason), RP_BROKEN (a part is
 * negative or the sum differs; logged)
 */
rp_status rp_metrics_measure(const rp_timeline *timeline, bool separate_backward,
                             rp_metrics *metrics_out, rp_reason *reason);

/** @return the end of the last op that takes time, in ps; 0 if there is none. */
int64_t rp_metrics_makespan_ps(const rp_timeline *timeline);

/** Iterations from which on the period counts as that of a steady state; with fewer it is an
 * estimate.
 */
#define RP_STEADY_ITERATIONS 16u

/**
 * Period of an iteration: (end of the last - end of iteration I/2) / (I - I/2), I/2 rounded down,
 * in ps. For a single synchronous iteration it is the makespan, after which the next iteration
 * would begin.
 * @return NaN for a single asynchronous iteration, as the end of the next iteration is unknown
 */
double rp_metrics_period_ps(const rp_timeline *timeline);
