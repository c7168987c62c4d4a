/** @file ranking.h  --schedule all: who is ahead at equal assumptions, who cannot run and why, and
 * which of these conclusions hang on an assumption.
 *
 * Rows are compared with the rows of the same model in the same recompute mode: partitions, hops,
 * links and batch are the same choice for all of them. More tokens per second are better. What does
 * not fit is behind all that may, an unknown rate behind all known ones; neither has a rank.
 *
 * **Flips.** All schedules once more with one assumption changed and everything else as it was: the
 * recompute mode, the way to choose partitions, the optimizer mode, the sequences per microbatch
 * (hardware fidelity: 1, and twice as many), the price of a transfer (the hop at stage fidelity,
 * the rate of the host links at hardware fidelity). A conclusion changes where the best schedule is
 * another one, or where of two schedules the other one is ahead. Each flip is one run of every
 * schedule in one recompute mode, without draws, and there are at most RPSIM_MAX_FLIPS per model.
 * Other sequences per microbatch leave the step's batch as it is, so the smaller ones are as many
 * more: beyond RPSIM_FLIP_JOBS they are not run, and the report says so.
 */
#pragma once

#include "sim/study/study.h"

#include <stdio.h>

/**
 * Notes why a schedule is not among the rows, once per schedule and model.
 * @param reason one line, copied
 * @param warn whether to log "NAME left out: reason", too
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_study_refuse(rpsim_study *study, const char *schedule, const char *model,
                             const char *reason, bool warn);

/**
 * Sorts the rows of each model: by recompute mode in the order asked for, then what may fit, then
 * by tokens per second; equals stay in the order of schedules. Sets their ranks.
 */
void rpsim_study_rank(rpsim_study *study);

/** False for a row that is known not to fit. */
bool rpsim_row_may_fit(const rpsim_row *row);

/** True where `a` comes first: what may fit, then the longer sequence, then the higher rate. */
bool rpsim_row_is_ahead(const rpsim_row *a, const rpsim_row *b);

/**
 * The rows that stand in one table, from a row on: the best first; a ranking has its order already.
 * @param begin the first of them in the study
 * @param order_out [rows from `begin` on] numbers of rows
 * @return how many stand in the table
 */
uint32_t rpsim_study_order(const rpsim_study *study, uint32_t begin, uint32_t *order_out);

/** One schedule under one set of assumptions. */
typedef struct rpsim_standing {
    const char *schedule;
    double tokens_per_s; /**< 0 where it is refused, does not run or does not fit */
} rpsim_standing;

/** All schedules with one assumption changed. */
typedef struct rpsim_flip {
    const char *what;          /**< "recompute early" */
    rpsim_standing *standings; /**< [count of the comparison] */
} rpsim_flip;

#define RPSIM_MAX_FLIPS 10u

/** Most microbatches times GPUs of a flip that has more microbatches than the run itself. */
#define RPSIM_FLIP_JOBS 1024u

/** Comparison of the rows of one model in one recompute mode. */
typedef struct rpsim_comparison {
    const char *model_name;
    rp_recompute recompute;
    uint32_t first;        /**< index of the first row */
    uint32_t untried_size; /**< sequences per microbatch of a flip that would take long; 0: none */
    uint32_t count;
    rpsim_standing *standings; /**< in the order of the study's rows, best first; then refusals */
    rpsim_flip flips[RPSIM_MAX_FLIPS];
    uint32_t flip_count;
} rpsim_comparison;

/** A pair of schedules that changes places. */
typedef struct rpsim_reversal {
    uint32_t ahead;  /**< index of the one that was ahead */
    uint32_t behind; /**< and falls behind this one */
    double lead;     /**< by how much it was ahead, tokens per second relative to the other */
    double loss;     /**< by how much the other one is ahead after the flip */
} rpsim_reversal;

/**
 * Runs all flips of the rows of a model, in the first recompute mode that they have.
 * @param study has run and is ranked; --schedule all
 * @param first index of the model's first row
 * @param comparison_out in the study's arena
 * @retval RP_OK, RP_NO_MEMORY, or what a study returns
 */
rp_status rpsim_comparison_make(const rpsim_study *study, uint32_t first,
                                rpsim_comparison *comparison_out);

/**
 * The pairs that a flip reverses, largest change first (the lesser of lead and loss decides). Pairs
 * of which one does not run or fit on either side are left out.
 * @param reversals_out [count * (count - 1) / 2]
 * @param pairs_out how many pairs could be compared
 * @return their number
 */
uint32_t rpsim_flip_reversals(const rpsim_comparison *comparison, const rpsim_flip *flip,
                              rpsim_reversal *reversals_out, uint32_t *pairs_out);

/** Prints what could not run. */
void rpsim_refusals_write(const rpsim_study *study, FILE *stream);

/**
 * Prints the settings that all rows have in common, who searches them (rpadvise), and what each
 * flip changes.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_comparison_write(const rpsim_study *study, const rpsim_comparison *comparison,
                                 FILE *stream);
