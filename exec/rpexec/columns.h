/** @file columns.h  Columns of rpexec's output, each a row in columns.c.
 *
 * JSON, the lines below the table of steps, the metrics of the store and the list of keys in
 * docs/generated come from the rows of a run; the file of --loss-out, the table of steps and the
 * page's table come from the rows of a step. A new column is a row with the expression of its
 * value.
 */
#pragma once

#include "common/timeline/metrics.h"
#include "exec/rpexec/loss_log.h"
#include "exec/rpexec/train.h"

typedef enum rpexec_value_type {
    RPEXEC_VALUE_NULL, /**< not asked for, or not measured: not stored, and not shown */
    RPEXEC_VALUE_TEXT,
    RPEXEC_VALUE_UINT,
    RPEXEC_VALUE_BOOL,  /**< shown only if true, by the row's text */
    RPEXEC_VALUE_REAL,  /**< NaN is null in JSON */
    RPEXEC_VALUE_MS,    /**< milliseconds, stored as picoseconds; NaN is null in JSON */
    RPEXEC_VALUE_PS,    /**< whole picoseconds */
    RPEXEC_VALUE_UINTS, /**< a list in JSON, elsewhere its largest */
    RPEXEC_VALUE_REALS, /**< a list, in JSON only */
} rpexec_value_type;

typedef struct rpexec_field {
    rpexec_value_type type;
    const char *text;
    uint64_t uint; /**< also a BOOL's value, or a list's largest */
    int64_t ps;
    double real;
    const uint64_t *uints; /**< [count] */
    const double *reals;   /**< [count] */
    uint32_t count;
} rpexec_field;

/** Times of the steps after the first, which warms up, in milliseconds. */
typedef struct rpexec_spread {
    uint32_t count; /**< number of these steps; 0: the other members are NaN */
    double mean_ms, median_ms, least_ms, most_ms;
} rpexec_spread;

/** The data of a run from which its columns are made. */
typedef struct rpexec_result {
    const rpexec_options *options;
    const rpexec_outcome *outcome; /**< NULL: it has not begun; only columns `of_run` are valid */
    const char *device;            /**< name of the device that stands for a GPU */
    const rp_metrics *metrics;     /**< metrics of the measured timeline; NULL: none */
    const rpexec_spread *spread;   /**< NULL: not computed */
} rpexec_result;

/** Ways of printing a number. */
typedef enum rpexec_number {
    RPEXEC_DECIMALS, /**< with `digits` decimals */
    RPEXEC_SIGNED,   /**< with a sign and `digits` decimals */
    RPEXEC_DIGITS,   /**< with `digits` significant digits */
    RPEXEC_SIZE,     /**< a size in bytes (rpexec_print_size) */
} rpexec_number;

/** Lines of the text; columns give their parts. */
typedef enum rpexec_line {
    RPEXEC_LINE_NONE,
    RPEXEC_LINE_RATE,
    RPEXEC_LINE_WORK,
    RPEXEC_LINE_GRAPHS,
    RPEXEC_LINE_ATTENTION,
    RPEXEC_LINE_SCALE,
    RPEXEC_LINE_DOUBT,
    RPEXEC_LINE_PREDICTION,
    RPEXEC_LINE_CHECK,
} rpexec_line;

typedef struct rpexec_column {
    const char *key;  /**< its key in JSON */
    const char *unit; /**< its unit for docs/generated; NULL: none */
    const char *help; /**< its line in docs/generated */
    rpexec_field (*value)(const rpexec_result *result);
    bool of_run;        /**< known before the run: the store keeps it as a setting, too */
    bool unlisted;      /**< not in JSON */
    const char *metric; /**< name in the store; NULL: not stored */
    rpexec_line line;   /**< its line of the text */
    uint32_t place;     /**< place in the line, from 1 on */
    const char *before; /**< text on both sides of the value */
    const char *after;
    rpexec_number number;
    int digits;
    double scale; /**< factor with which the value is shown; 0: 1 */
} rpexec_column;

#define RPEXEC_MAX_COLUMNS 80

/** The columns of a run, in the order of JSON. */
extern const rpexec_column rpexec_columns[];
extern const uint32_t rpexec_column_count; /**< at most RPEXEC_MAX_COLUMNS */

/** A column of steps. */
typedef struct rpexec_step_column {
    const char *key;  /**< its key in the file of --loss-out */
    const char *unit; /**< its unit for docs/generated; NULL: none */
    const char *help; /**< its line in docs/generated */
    double (*value)(const rpexec_loss_line *line);
    rpexec_number exact; /**< way of printing in that file */
    int exact_digits;
    bool optional;      /**< NaN is an empty cell in that file */
    uint32_t place;     /**< place in the table of steps, from 1 on; 0: not there */
    const char *before; /**< text on both sides of the value */
    const char *after;
    int width;
    rpexec_number number;
    int digits;
    const char *heading; /**< heading in the page's table of steps; NULL: not there */
} rpexec_step_column;

/** The columns of a step, in the order of the file of --loss-out and of the page. */
extern const rpexec_step_column rpexec_step_columns[];
extern const uint32_t rpexec_step_column_count;

/** @return the keys of the columns of a step, with commas between. */
const char *rpexec_step_keys(void);

#define RPEXEC_NUMBER_SIZE 320 /**< room for the longest text of a number */

/** Writes a number. @param width least characters, filled up with spaces in front @return text */
const char *rpexec_print_number(rpexec_number number, int width, int digits, double value,
                                char text[static RPEXEC_NUMBER_SIZE]);

#define RPEXEC_SIZE_TEXT 32

/** Writes "3.2 GB", or "0.4 MB" for small models. @return text */
const char *rpexec_print_size(double bytes, char text[static RPEXEC_SIZE_TEXT]);

/** @return the line of step `index` of a run, which is below outcome->steps. */
rpexec_loss_line rpexec_outcome_step(const rpexec_outcome *outcome, uint32_t index);

/** @return the number of a field: the largest of a list; NaN if it is not a number. */
double rpexec_field_number(const rpexec_field *field);
