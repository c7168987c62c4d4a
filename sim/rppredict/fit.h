/** @file fit.h  rppredict --fit: sets constants of a platform on some of one's own runs, and
 * predicts the others.
 *
 * The table is one of cells (cells.h) with two columns more: `tokens_per_s`, measured, and `use`,
 * which is `fit` for runs that constants are set on and `predict` for the others.
 *
 * A constant is only set where the runs leave no other explanation. Each has a range that hardware
 * and software allow, most of them parts of what the data sheet says, and the runs a deviation of
 * RPSIM_FIT_RUN_SIGMA. Within these ranges the sum of the squared logarithms of predicted over
 * measured is made least (least_squares.h):
 *  - with all constants free whose range changes a run by more than 1 %;
 *  - for each of them with the platform's value for it and the others free. Where that is as good,
 *    by less than 4 squared deviations, the runs do not need the constant: they agree with it, or
 *    others (the layers' times first of all) explain them as well, and it stays as it is;
 *  - with the constants that are needed and the platform's values for the rest.
 * A needed constant that ends at an end of its range stays as well: something is wrong that is no
 * constant. Where the constants that were found leave a run to fit further off than one run may be
 * (traces/ranges.csv, run), nothing is set. Runs that do not fit into memory are left out. Times of
 * layers are one of the constants (`layer_time_factor`), so that no link or
 * host is blamed for compute that is slow; where every run to fit has a cost table of its own they
 * are known and stay.
 */
#pragma once

#include "sim/rppredict/cells.h"

/** Standard deviation of the logarithm of one run's throughput. */
#define RPSIM_FIT_RUN_SIGMA 0.02

/** Most constants. */
#define RPSIM_FIT_MOST 16u

/** Outcome for a constant. */
typedef enum rpsim_fit_state {
    RPSIM_FIT_UNSEEN,      /**< left: the runs are the same over all of its range */
    RPSIM_FIT_AGREES,      /**< left: the runs say that it is what the platform has */
    RPSIM_FIT_RIVALS,      /**< left: others explain the runs as well */
    RPSIM_FIT_AT_END,      /**< left: the runs ask for an end of its range, or more */
    RPSIM_FIT_UNEXPLAINED, /**< left: with it runs to fit are still far off */
    RPSIM_FIT_SET,
} rpsim_fit_state;

typedef struct rpsim_fit_constant {
    const char *key; /**< of the platform file */
    double low;      /**< physical range */
    double high;
    double before; /**< as the platform file has it */
    double value;
    double spread_pct; /**< one standard deviation, where it is set */
    rpsim_fit_state state;
    const char *rivals; /**< keys that would be others instead; "": none */
    const char *said;   /**< what becomes of it, in a few words */
    const char *why;    /**< in more */
} rpsim_fit_constant;

typedef struct rpsim_fit_row {
    const rpsim_question *question;
    bool fit;      /**< its use is fit */
    bool left_out; /**< it does not fit into memory: it counts for nothing */
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
 *         without throughput or use, no row to fit or none that fits into memory), RP_IO,
 * RP_NO_MEMORY, and what runs return
 */
rp_status rpsim_fit_run(const char *path, const rpsim_cells_inputs *inputs, const char *const *keys,
                        uint32_t key_count, rp_arena *arena, rpsim_fit *fit_out);

/**
 * Sets a constant of a platform: a link's rate with those of its directions, the host's with those
 * of Adam, refresh and collection, each in proportion.
 * @param key of a rate that the platform has
 */
void rpsim_fit_set(rp_platform *platform, const char *key, double value);

/** @return whether constants are set on the row */
static inline bool rpsim_fit_uses(const rpsim_fit_row *row)
{
    return row->fit && !row->left_out;
}

/**
 * Warns of constants that stay, of what a fit leaves open, and of rows that it makes worse.
 * rpsim_fit_run has done so; sets `said` and `why` of the constants.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_fit_warn(rpsim_fit *fit, rp_arena *arena);

/** Prints constants, rows and means as Markdown. */
void rpsim_fit_write(const rpsim_fit *fit, FILE *stream);

/**
 * Writes the platform with the constants set, each with what has become of it.
 * @param name of the platform in the file
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_fit_write_platform(const rpsim_fit *fit, const char *name, const char *runs,
                                   rp_arena *arena, FILE *stream);
