/** @file columns.h  Columns of rpsim's output: one row each, in columns.c.
 *
 * JSON, CSV, the text tables, the metrics of the store and the list of keys in docs/generated come
 * from these rows. A new column is a row and the function of its value.
 */
#pragma once

#include "common/formats/json.h"
#include "sim/study/study.h"

#include <stdio.h>

typedef enum rpsim_value_type {
    RPSIM_VALUE_NULL,   /**< not modelled at this fidelity, or not simulated */
    RPSIM_VALUE_ABSENT, /**< belongs to an option that was not given: the report has no such key */
    RPSIM_VALUE_TEXT,
    RPSIM_VALUE_UINT,
    RPSIM_VALUE_BOOL,
    RPSIM_VALUE_UINTS,   /**< a list; in CSV one cell, elsewhere its largest */
    RPSIM_VALUE_MS,      /**< picoseconds, printed as milliseconds */
    RPSIM_VALUE_REAL,    /**< NaN is null */
    RPSIM_VALUE_REAL_MS, /**< picoseconds that need not be whole, printed as milliseconds */
    RPSIM_VALUE_OBJECT,  /**< in JSON only */
} rpsim_value_type;

/** Writes an object, as a value. */
typedef void (*rpsim_write_object)(const rpsim_study *study, const rpsim_row *row, rp_json *json);

typedef struct rpsim_field {
    const char *key; /**< of the column */
    rpsim_value_type type;
    const char *text;
    uint64_t uint;         /**< also a BOOL's value, a list's largest */
    const uint64_t *uints; /**< [count] */
    uint32_t count;
    int64_t ps;
    double real;
    rpsim_write_object object;
} rpsim_field;

/** Text tables that a column stands in; flags. */
typedef enum rpsim_table {
    RPSIM_TABLE_NONE = 0,
    RPSIM_TABLE_RANK = 1, /**< before the mark of the best row, with --schedule all */
    RPSIM_TABLE_STAGE = 2,
    RPSIM_TABLE_HARDWARE = 4,
    RPSIM_TABLE_NOISE = 8,      /**< of --jitter */
    RPSIM_TABLE_INTERVALS = 16, /**< with --intervals, in the table of hardware fidelity */
    RPSIM_TABLE_RUNS = RPSIM_TABLE_STAGE | RPSIM_TABLE_HARDWARE,
    RPSIM_TABLE_ALL = RPSIM_TABLE_RUNS | RPSIM_TABLE_NOISE,
} rpsim_table;

typedef struct rpsim_column {
    const char *key;  /**< in JSON and CSV */
    const char *unit; /**< for docs/generated; NULL: none */
    const char *help; /**< likewise */
    rpsim_field (*value)(const rpsim_study *study, const rpsim_row *row);
    bool stored_only;    /**< in no report */
    const char *metric;  /**< name in the store, where times are picoseconds; NULL: not stored */
    unsigned tables;     /**< rpsim_table, OR-ed */
    uint32_t place;      /**< in these tables, from the left; what is farther right is left out
                              first where the width is short */
    const char *heading; /**< in tables; NULL: the key */
    const char *before;  /**< joins the value to that of the column before it; NULL: stands alone */
    int decimals;
    double (*shown)(const rpsim_field *field, const rpsim_row *row); /**< NULL: as in JSON */
} rpsim_column;

#define RPSIM_MAX_FIELDS 80

/** In the order of JSON and CSV, which is that of the tables, too. */
extern const rpsim_column rpsim_columns[];
extern const uint32_t rpsim_column_count; /**< at most RPSIM_MAX_FIELDS */

/** The keys of JSON and CSV with their values. @return their number */
uint32_t rpsim_row_fields(const rpsim_study *study, const rpsim_row *row,
                          rpsim_field fields_out[static RPSIM_MAX_FIELDS]);

/** @return index of the column with a key that reports have; rpsim_column_count: none has. */
uint32_t rpsim_column_find(const char *key);

/** @return the key that is most like `key`; NULL: none is. */
const char *rpsim_column_nearest(const char *key);

/** A value as JSON prints it; NaN where it is no number. */
double rpsim_field_number(const rpsim_field *field);

/** GPUs of a row: those that are simulated stand for as many each as its layout has. */
uint32_t rpsim_row_gpus(const rpsim_row *row);

/** Sequences of a step, of all copies. */
uint32_t rpsim_row_global_batch(const rpsim_row *row);

/** Sequences per microbatch, on average: batches need not divide evenly. */
double rpsim_row_microbatch_size(const rpsim_row *row);

/** True where makespan, bubbles and other measures of a timeline are of one iteration; of a
 * program that was given (--program-in) they are of all its iterations. */
bool rpsim_row_of_one_iteration(const rpsim_row *row);

/** Tokens per second of a row: of its period; NaN where that is unknown. */
double rpsim_row_tokens_per_s(const rpsim_row *row);

/** TFLOP/s of products and attention of a GPU, on average over the period; NaN where unknown. */
double rpsim_row_tflops(const rpsim_row *row);

/** The same over the peak of what the run computes in; NaN where the platform does not say it. */
double rpsim_row_peak_share(const rpsim_row *row);

/** True for rows of the same work: model, times and sequence length. */
bool rpsim_row_same_group(const rpsim_row *a, const rpsim_row *b);

/** Writes a field's value. */
void rpsim_field_write(const rpsim_study *study, const rpsim_row *row, const rpsim_field *field,
                       rp_json *json);

/** Writes keys and values of a row's columns into an open object. */
void rpsim_row_write_members(const rpsim_study *study, const rpsim_row *row, rp_json *json);

/** Writes all rows as an array of objects. Write errors stay in the stream. */
void rpsim_study_write_json(const rpsim_study *study, FILE *stream);
