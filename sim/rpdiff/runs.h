/** @file runs.h  Compares many predicted and measured runs: errors of the iteration time, and
 * whether the prediction puts schedules in the right order.
 */
#pragma once

#include "common/store/predictions.h"

#include <stdio.h>

/** Runs of the same configuration; seeds and other data may differ. */
typedef struct rpsim_diff_configuration {
    const rp_store_prediction *first; /**< the first of `runs` successive runs */
    uint32_t runs;
    double predicted_ms; /**< median over runs; their costs may come from different records */
    double measured_ms;  /**< median over runs */
    double spread;       /**< (largest - smallest measured) / measured_ms */
    double error;        /**< predicted / measured - 1 */
} rpsim_diff_configuration;

/** Configurations that differ only in their schedule. */
typedef struct rpsim_diff_order {
    const rpsim_diff_configuration *first; /**< the first of `count` successive configurations */
    uint32_t count;
    uint32_t pairs; /**< pairs whose measured times differ by more than the larger spread */
    double tau; /**< Kendall's tau over these pairs: (agreeing - disagreeing) / pairs; NaN if there
                   are none */
} rpsim_diff_order;

typedef struct rpsim_diff_runs {
    rpsim_diff_configuration *configurations;
    uint32_t configuration_count;
    rpsim_diff_order *orders;
    uint32_t order_count;
    double mean_error; /**< over configurations */
    double mean_absolute_error;
    double worst_error; /**< the error with the largest absolute value */
} rpsim_diff_runs;

/**
 * @param runs sorted as rp_store_read_predictions gives them, at least 1; they must outlive the
 * result
 * @param arena owns the arrays
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_diff_runs_compare(const rp_store_prediction *runs, uint32_t count, rp_arena *arena,
                                  rpsim_diff_runs *out);

/** Prints tables for people. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_diff_runs_print(const rpsim_diff_runs *runs, rp_arena *arena, FILE *stream);

/** Writes CSV: rows of kind configuration, order, and the means. Percent, ms. */
void rpsim_diff_runs_write_csv(const rpsim_diff_runs *runs, FILE *stream);

/** Writes one JSON object. */
void rpsim_diff_runs_write_json(const rpsim_diff_runs *runs, FILE *stream);
