/** @file columns.h  Columns of rpsim's output, each defined by a row in columns.c.
 *
 * JSON, CSV, the text tables, the metrics of the store and the list of keys in docs/generated come
 * from these rows. A new column is a row and the function of its value.
 */
#pragma once

#include "common/formats/json.h"
#include "common/inputs/load/documents.h"
#include "sim/study/study.h"

#include <stdio.h>

typedef enum rpsim_value_type {
    RPSIM_VALUE_NULL,   /**< not modelled at this fidelity, or not simulated */
    RPSIM_VALUE_ABSENT, /**< belongs to an option that was not given: the report has no such key */
    RPSIM_VALUE_TEXT,
    RPSIM_VALUE_UINT,
    RPSIM_VALUE_BOOL,
    RPSIM_VALUE_UINTS,   /**< a list; in CSV a single cell, in tables its largest value */
    RPSIM_VALUE_MS,      /**< picoseconds, printed as milliseconds */
    RPSIM_VALUE_REAL,    /**< NaN is null */
    RPSIM_VALUE_REAL_MS, /**< fractional picoseconds, printed as milliseconds */
    RPSIM_VALUE_OBJECT,  /**< an object, only in JSON */
} rpsim_value_type;

/** Writes a column's value as an object. */
typedef void (*rpsim_write_object)(const rpsim_study *study, const rpsim_row *row, rp_json *json);

typedef struct rpsim_field {
    const char *key; /**< key of the column */
    rpsim_value_type type;
    const char *text;
    uint64_t uint;         /**< value of a UINT or BOOL; largest value of a list */
    const uint64_t *uints; /**< [count] */
    uint32_t count;
    int64_t ps;
    double real;
    rpsim_write_object object;
} rpsim_field;

/** Text tables that contain a column; flags. */
typedef enum rpsim_table {
    RPSIM_TABLE_NONE = 0,
    RPSIM_TABLE_RANK = 1, /**< with --schedule all, to the left of the best row's mark */
    RPSIM_TABLE_STAGE = 2,
    RPSIM_TABLE_HARDWARE = 4,
    RPSIM_TABLE_NOISE = 8,      /**< the table of --jitter */
    RPSIM_TABLE_INTERVALS = 16, /**< the table of hardware fidelity, only with --intervals */
    RPSIM_TABLE_RUNS = RPSIM_TABLE_STAGE | RPSIM_TABLE_HARDWARE,
    RPSIM_TABLE_ALL = RPSIM_TABLE_RUNS | RPSIM_TABLE_NOISE,
} rpsim_table;

typedef struct rpsim_column {
    const char *key;  /**< name in JSON and CSV */
    const char *unit; /**< unit for docs/generated; NULL: none */
    const char *help; /**< meaning for docs/generated; NULL: none */
    rpsim_field (*value)(const rpsim_study *study, const rpsim_row *row);
    bool stored_only;    /**< kept in the store, but in no report */
    const char *metric;  /**< name in the store, which has times in picoseconds; NULL: not stored */
    unsigned tables;     /**< rpsim_table, OR-ed */
    uint32_t place;      /**< position in these tables from the left; if the width is short, columns
                            farther right are left out first */
    const char *heading; /**< heading in tables; NULL: the key */
    const char *before;  /**< text that joins the value to the previous column's; NULL: a column of
                            its own */
    int decimals;
    double (*shown)(const rpsim_field *field, const rpsim_row *row); /**< NULL: as in JSON */
} rpsim_column;

#define RPSIM_MAX_FIELDS 112

/** All columns, in the order of JSON, CSV and the tables. */
extern const rpsim_column rpsim_columns[];
extern const uint32_t rpsim_column_count; /**< at most RPSIM_MAX_FIELDS */

/** Lists the keys and values of a row for JSON and CSV. @return their number */
uint32_t rpsim_row_fields(const rpsim_study *study, const rpsim_row *row,
                          rpsim_field fields_out[static RPSIM_MAX_FIELDS]);

/** @return index of the column with this key among those that reports have; rpsim_column_count: no
 * column. */
uint32_t rpsim_column_find(const char *key);

/** @return the key most similar to `key`; NULL: no key is similar. */
const char *rpsim_column_nearest(const char *key);

/** @return a value as JSON prints it; NaN if it is no number. */
double rpsim_field_number(const rpsim_field *field);

/** @return the number of GPUs of a row: each simulated GPU stands for all GPUs of the row's
 * layout. */
uint32_t rpsim_row_gpus(const rpsim_row *row);

/** @return the sequences in a step of all copies. */
uint32_t rpsim_row_global_batch(const rpsim_row *row);

/** @return the sequences per microbatch, on average: batches need not divide evenly. */
double rpsim_row_microbatch_size(const rpsim_row *row);

/** @return true if makespan, bubbles and other measures of the timeline describe a single
 * iteration; for a given program (--program-in) they describe all its iterations. */
bool rpsim_row_of_one_iteration(const rpsim_row *row);

/** @return the tokens per second of a row over its period; NaN if the period is unknown. */
double rpsim_row_tokens_per_s(const rpsim_row *row);

/** @return share of a step's tokens that are no padding. */
static inline double rpsim_row_real_share(const rpsim_row *row)
{
    const rp_documents *documents = row->run.model != NULL ? row->run.model->documents : NULL;
    return documents != NULL ? 1 - documents->padding : 1;
}

/** @return the TFLOP/s of products and attention of a GPU, on average over the period; NaN if
 * unknown. */
double rpsim_row_tflops(const rpsim_row *row);

/** @return the same over the peak for the run's arithmetic; NaN if the platform does not say it. */
double rpsim_row_peak_share(const rpsim_row *row);

/** @return the tokens per second that a row's GPUs reach at most: with nothing but products and
 * attention on all of them, forward and backward; NaN without --stack. */
double rpsim_row_speed_limit(const rpsim_row *row);

/** @return true for rows of the same work: model, times and sequence length. */
bool rpsim_row_same_group(const rpsim_row *a, const rpsim_row *b);

/** Writes a field's value. */
void rpsim_field_write(const rpsim_study *study, const rpsim_row *row, const rpsim_field *field,
                       rp_json *json);

/** Writes keys and values of a row's columns into an open object. */
void rpsim_row_write_members(const rpsim_study *study, const rpsim_row *row, rp_json *json);

/** Writes all rows as an array of objects. Write errors stay in the stream. */
void rpsim_study_write_json(const rpsim_study *study, FILE *stream);
