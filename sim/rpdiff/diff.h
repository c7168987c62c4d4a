/** @file diff.h  Compares two timelines of the same ops, predicted and measured.
 *
 * Errors are signed: predicted / measured - 1. All times are picoseconds.
 */
#pragma once

#include "common/formats/json.h"
#include "common/timeline/timeline.h"

/** A time that both timelines have. */
typedef struct rpsim_diff_time {
    double predicted_ps;
    double measured_ps;
} rpsim_diff_time;

/** Ops of one kind. */
typedef struct rpsim_diff_kind {
    uint32_t count;
    rpsim_diff_time sum;  /**< sum of their durations */
    double difference_ps; /**< sum of |predicted - measured| over their durations */
} rpsim_diff_kind;

typedef struct rpsim_diff_gpu {
    rpsim_diff_time busy; /**< sum of the durations of its compute ops */
    rpsim_diff_time end;  /**< end of its last op */
} rpsim_diff_gpu;

typedef struct rpsim_diff {
    const rp_timeline *predicted; /**< borrowed */
    const rp_timeline *measured;
    rpsim_diff_time makespan;
    rpsim_diff_kind kinds[RP_OP_KIND_COUNT];
    rpsim_diff_gpu *gpus;        /**< [gpu_count] */
    rpsim_diff_time *iterations; /**< [iteration_count] from the end of all iterations before it to
                                    its own end */
    uint32_t *worst;             /**< [worst_count] ops with the largest differences of durations */
    uint32_t worst_count;
} rpsim_diff;

/**
 * Compares two timelines.
 * @param names names of the two timelines, for messages
 * @param worst_count largest number of worst ops
 * @param arena owns the arrays
 * @retval RP_OK, RP_INPUT (their ops differ: the first difference is logged), RP_NO_MEMORY
 */
rp_status rpsim_diff_compare(const rp_timeline *predicted, const rp_timeline *measured,
                             const char *const names[2], uint32_t worst_count, rp_arena *arena,
                             rpsim_diff *diff_out);

/** @return predicted / measured - 1 in percent; NaN if nothing was measured. */
double rpsim_diff_pct(const rpsim_diff_time *time);

/** Prints tables for people. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_diff_print(const rpsim_diff *diff, rp_arena *arena, FILE *stream);

/** Writes one JSON object. */
void rpsim_diff_write_json(const rpsim_diff *diff, FILE *stream);
