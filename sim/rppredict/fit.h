/** @file fit.h  rppredict --fit: sets constants of a platform on some of the user's own runs, and
 * predicts the other runs.
 *
 * The table has the form of cells (cells.h) with two more columns: `tokens_per_s`, the measured
 * value, and `use`, which is `fit` for runs that constants are set on and `predict` for the others.
 *
 * A constant is set only if the runs leave no other explanation. Each constant has a range that
 * hardware and software allow, mostly given as parts of a value of the data sheet, and each run has
 * a deviation of RPSIM_FIT_RUN_SIGMA. Within these ranges the sum of the squared logarithms of
 * predicted over measured is minimised (least_squares.h) three times:
 *  - with all constants free whose range changes a run by more than 1 %;
 *  - for each of these, with the constant at the platform's value and the others free. If the sum
 *    grows by less than 4 squared deviations, the runs do not need the constant: they agree with
 *    its value, or other constants (first of all the layers' times) explain them as well, and it
 *    stays as it is;
 *  - with only the needed constants free, and the platform's values for the rest.
 * A needed constant whose best value is an end of its range stays, too: the cause of the error is
 * no constant. If the best constants leave a run to fit further off than a single run may be
 * (traces/ranges.csv, run), nothing is set. Runs that do not fit into memory are left out. The
 * times of layers are among the constants (`layer_time_factor`), so that no link or host is blamed
 * for slow compute; if every run to fit has a cost table of its own, these times are known and
 * stay.
 */
#pragma once

#include "sim/rppredict/cells.h"

/** Standard deviation of the logarithm of a run's throughput. */
#define RPSIM_FIT_RUN_SIGMA 0.02

/** Largest number of constants. */
#define RPSIM_FIT_MOST 16u

/** Outcome for a constant. */
typedef enum rpsim_fit_state {
    RPSIM_FIT_UNSEEN,      /**< left: the runs are the same over all of its range */
    RPSIM_FIT_AGREES,      /**< left: the runs confirm the platform's value */
    RPSIM_FIT_RIVALS,      /**< left: other constants explain the runs as well */
    RPSIM_FIT_AT_END,      /**< left: the runs ask for an end of its range, or for a value beyond */
    RPSIM_FIT_UNEXPLAINED, /**< left: even with the best value, runs to fit are far off */
    RPSIM_FIT_SET,
} rpsim_fit_state;

typedef struct rpsim_fit_constant {
    const char *key; /**< key of the platform file */
    double low;      /**< lower end of its physical range */
    double high;
    double before; /**< value of the platform file */
    double value;
    double spread_pct; /**< standard deviation in percent, if it is set */
    rpsim_fit_state state;
    const char *rivals; /**< keys of constants that would change in its place; "": none */
    const char *said;   /**< its outcome, in a few words */
    const char *why;    /**< the reason, as a sentence */
} rpsim_fit_constant;

typedef struct rpsim_fit_row {
    const rpsim_question *question;
    bool fit;      /**< its column `use` is fit */
    bool left_out; /**< it does not fit into memory, and is ignored */
    double measured_tokens_per_s;
    double before_tokens_per_s; /**< predicted with the platform's constants */
    double predicted_tokens_per_s;
} rpsim_fit_row;

typedef struct rpsim_fit {
    rpsim_fit_constant constants[RPSIM_FIT_MOST];
    uint32_t constant_count;
    rpsim_fit_row *rows; /**< [row_count] in the file's order */
    uint32_t row_count;
    rp_platform platform; /**< the given platform with the constants set; it keeps its name */
} rpsim_fit;

/**
 * Fits and predicts. Warnings are logged.
 * @param keys [key_count] keys of the constants; if there are none, those of the default list that
 * the platform has
 * @param arena owns the arrays and texts of fit_out
 * @retval RP_OK, RP_USAGE (a key that cannot be set), RP_INPUT (logged with file and line: a row
 *         without throughput or use, no row to fit or none that fits into memory), RP_IO,
 *         RP_NO_MEMORY, and the statuses of runs
 */
rp_status rpsim_fit_run(const char *path, const rpsim_cells_inputs *inputs, const char *const *keys,
                        uint32_t key_count, rp_arena *arena, rpsim_fit *fit_out);

/**
 * Sets a constant of a platform: a link's rate together with the rates of its directions, the
 * host's rate together with the rates of Adam, refresh and collection, each in proportion.
 * @param key key of a rate that the platform has
 */
void rpsim_fit_set(rp_platform *platform, const char *key, double value);

/** @return whether constants are set on the row */
static inline bool rpsim_fit_uses(const rpsim_fit_row *row)
{
    return row->fit && !row->left_out;
}

/**
 * Warns of constants that stay, of constants that a fit leaves open, and of rows that it makes
 * worse, and sets `said` and `why` of the constants. rpsim_fit_run calls this function.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_fit_warn(rpsim_fit *fit, rp_arena *arena);

/** Prints constants, rows and means as Markdown. */
void rpsim_fit_write(const rpsim_fit *fit, FILE *stream);

/**
 * Writes the platform with the constants set, and beside each constant its outcome.
 * @param name name of the platform in the file
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_fit_write_platform(const rpsim_fit *fit, const char *name, const char *runs,
                                   rp_arena *arena, FILE *stream);
