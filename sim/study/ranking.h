/** @file ranking.h  --schedule all: the order of schedules under equal assumptions, the schedules
 * that cannot run and the reasons, and the conclusions that depend on an assumption.
 *
 * Rows are compared with the rows of the same model in the same recompute mode, all with the same
 * choice of partitions, hops, links and batch. More tokens per second are better. A row that does
 * not fit comes after all rows that may fit, a row with an unknown rate after all rows with known
 * rates; neither has a rank.
 *
 * **Flips.** A flip runs all schedules once more with a single assumption changed and everything
 * else unchanged: the recompute mode, the way to choose partitions, the optimizer mode, the
 * sequences per microbatch (hardware fidelity: 1, and twice as many), the price of a transfer (the
 * hop at stage fidelity, the rate of the host links at hardware fidelity). A conclusion changes if
 * another schedule becomes the best, or if two schedules change their order. Each flip runs every
 * schedule once, in one recompute mode and without draws, and a model has at most RPSIM_MAX_FLIPS
 * flips. Changing the sequences per microbatch leaves the step's batch as it is, so smaller
 * microbatches are more in number: if they exceed RPSIM_FLIP_JOBS, the flip is not run, and the
 * report says so.
 */
#pragma once

#include "sim/study/study.h"

#include <stdio.h>

/**
 * Records the reason why a schedule is not among the rows, once per schedule and model.
 * @param reason a single line, copied
 * @param warn whether to log "NAME left out: reason" as well
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_study_refuse(rpsim_study *study, const char *schedule, const char *model,
                             const char *reason, bool warn);

/**
 * Sorts the rows of each model: by recompute mode in the order asked for, then rows that may fit
 * first, then by tokens per second; equal rows stay in the order of schedules. Sets the ranks.
 */
void rpsim_study_rank(rpsim_study *study);

/** @return false for a row that is known not to fit. */
bool rpsim_row_may_fit(const rpsim_row *row);

/** @return true if `a` comes first: a row that may fit, then the longer sequence, then the higher
 * rate. */
bool rpsim_row_is_ahead(const rpsim_row *a, const rpsim_row *b);

/**
 * Lists the rows of the table that starts at a row, the best first; a ranking is in order already.
 * @param begin number of the table's first row in the study
 * @param order_out [rows from `begin` on] numbers of rows
 * @return number of rows in the table
 */
uint32_t rpsim_study_order(const rpsim_study *study, uint32_t begin, uint32_t *order_out);

/** A schedule's result under a set of assumptions. */
typedef struct rpsim_standing {
    const char *schedule;
    double tokens_per_s; /**< 0 if it is refused, does not run or does not fit */
} rpsim_standing;

/** All schedules with a single assumption changed. */
typedef struct rpsim_flip {
    const char *what;          /**< the change, for example "recompute early" */
    rpsim_standing *standings; /**< [count of the comparison] */
} rpsim_flip;

#define RPSIM_MAX_FLIPS 10u

/** Most microbatches times GPUs in a flip with more microbatches than the run itself. */
#define RPSIM_FLIP_JOBS 1024u

/** Comparison of a model's rows in one recompute mode. */
typedef struct rpsim_comparison {
    const char *model_name;
    rp_recompute recompute;
    uint32_t first;        /**< index of the first row */
    uint32_t untried_size; /**< sequences per microbatch of the flip that was not run because it
                              takes too long; 0: none */
    uint32_t count;
    rpsim_standing *standings; /**< in the order of the study's rows, best first; then refusals */
    rpsim_flip flips[RPSIM_MAX_FLIPS];
    uint32_t flip_count;
} rpsim_comparison;

/** A pair of schedules that changes places. */
typedef struct rpsim_reversal {
    uint32_t ahead;  /**< index of the schedule that was ahead */
    uint32_t behind; /**< index of the schedule that overtakes it */
    double lead; /**< lead of `ahead` before the flip, in tokens per second relative to the other */
    double loss; /**< lead of `behind` after the flip, in tokens per second relative to `ahead` */
} rpsim_reversal;

/**
 * Runs all flips of a model's rows in their first recompute mode.
 * @param study has run and is ranked; --schedule all
 * @param first index of the model's first row
 * @param comparison_out its arrays live in the study's arena
 * @retval RP_OK, RP_NO_MEMORY, or a failure of a study
 */
rp_status rpsim_comparison_make(const rpsim_study *study, uint32_t first,
                                rpsim_comparison *comparison_out);

/**
 * Lists the pairs that a flip reverses, largest change first (measured by the lesser of lead and
 * loss). A pair is left out if either schedule does not run or fit, before or after the flip.
 * @param reversals_out [count * (count - 1) / 2]
 * @param pairs_out number of pairs that could be compared
 * @return number of reversals
 */
uint32_t rpsim_flip_reversals(const rpsim_comparison *comparison, const rpsim_flip *flip,
                              rpsim_reversal *reversals_out, uint32_t *pairs_out);

/** Prints the schedules that could not run. */
void rpsim_refusals_write(const rpsim_study *study, FILE *stream);

/**
 * Prints the settings that all rows have in common, the program that searches over them (rpadvise),
 * and the effect of each flip.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_comparison_write(const rpsim_study *study, const rpsim_comparison *comparison,
                                 FILE *stream);
