/** @file fit.h  rppredict --fit: sets constants of a platform on some of one's own runs, and
 * predicts the others.
 *
 * The table is one of cells (cells.h) with two columns more: `tokens_per_s`, measured, and `use`,
 * which is `fit` for runs that constants are set on and `predict` for the others.
 *
 * Least squares of the logarithms of predicted over measured, over the logarithms of the constants
 * (GSL, Levenberg-Marquardt), each run counting with RPSIM_FIT_RUN_SIGMA. A constant's own value
 * counts as one more measurement, whose deviation is a quarter of the logarithm of its physical
 * range: runs that say something overrule it, and what they do not say stays. A constant that the
 * runs tell less than half better than its range does is not determined: it is left as it is, with
 * a warning. One that leaves its physical range is held at its end, with a warning.
 */
#pragma once

#include "sim/rppredict/cells.h"

/** Standard deviation of the logarithm of one run's throughput. */
#define RPSIM_FIT_RUN_SIGMA 0.02

/** Most constants. */
#define RPSIM_FIT_MOST 16u

typedef struct rpsim_fit_constant {
    const char *key; /**< of the platform file */
    double low;      /**< physical range */
    double high;
    double before; /**< as the platform file has it */
    double value;
    double spread_pct; /**< one standard deviation; NaN where it was not fitted */
    bool undetermined; /**< left as it was */
    bool at_end;       /**< the runs ask for more than its range: held at its end */
    double asked;      /**< what they ask for, where `at_end` */
} rpsim_fit_constant;

typedef struct rpsim_fit_row {
    const rpsim_question *question;
    bool fit; /**< constants are set on it */
    double measured_tokens_per_s;
    double before_tokens_per_s; /**< predicted with the platform's constants */
    double predicted_tokens_per_s;
} rpsim_fit_row;

typedef struct rpsim_fit {
    rpsim_fit_constant constants[RPSIM_FIT_MOST];
    uint32_t constant_count;
    rpsim_fit_row *rows; /**< [row_count] in the file's order */
    uint32_t row_count;
    rp_platform platform; /**< with the constants set; its name is the given one's */
} rpsim_fit;

/**
 * Fits and predicts. Warnings are logged.
 * @param keys [key_count] of the constants; none: those of the default list that the platform has
 * @param arena owns what fit_out has
 * @retval RP_OK, RP_USAGE (a key that cannot be set), RP_INPUT (logged with file and line: a row
 *         without throughput or use, no row to fit), RP_IO, RP_NO_MEMORY, and what runs return
 */
rp_status rpsim_fit_run(const char *path, const rpsim_cells_inputs *inputs, const char *const *keys,
                        uint32_t key_count, rp_arena *arena, rpsim_fit *fit_out);

/**
 * Sets a constant of a platform: a link's rate with those of its directions, the host's with those
 * of Adam, refresh and collection, each in proportion.
 * @param key of a rate that the platform has
 */
void rpsim_fit_set(rp_platform *platform, const char *key, double value);

/** Prints constants, rows and means as Markdown. */
void rpsim_fit_write(const rpsim_fit *fit, FILE *stream);

/**
 * Writes the platform with the constants set, each with where it comes from.
 * @param name of the platform in the file
 */
void rpsim_fit_write_platform(const rpsim_fit *fit, const char *name, const char *runs,
                              FILE *stream);
