/** @file report.h  Output of a study on stdout: table, JSON, CSV, key=value. */
#pragma once

#include "common/store/store.h"
#include "sim/rpsim/study.h"

#include <stdio.h>

/** Writes the study in options->format. Write errors stay in the stream. @retval RP_OK,
 * RP_NO_MEMORY */
rp_status rpsim_report_write(const rpsim_study *study, FILE *stream);

/** Output of --list. @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY */
rp_status rpsim_report_list(const char *kind, rp_arena *arena, FILE *stream);

/** Output of --check: one line per valid program. */
void rpsim_report_check(const rpsim_study *study, FILE *stream);

typedef enum rpsim_value_type {
    RPSIM_VALUE_NULL, /**< not modelled at this fidelity, or not simulated */
    RPSIM_VALUE_TEXT,
    RPSIM_VALUE_UINT,
    RPSIM_VALUE_MS,   /**< picoseconds, printed as milliseconds */
    RPSIM_VALUE_REAL, /**< NaN is null */
    RPSIM_VALUE_BOOL,
    RPSIM_VALUE_UINTS, /**< a list; in CSV one cell */
} rpsim_value_type;

typedef struct rpsim_field {
    const char *key; /**< of cli.md */
    rpsim_value_type type;
    const char *text;
    uint64_t uint; /**< a BOOL's value, a list's length */
    const uint64_t *uints;
    int64_t ps;
    double real;
} rpsim_field;

#define RPSIM_MAX_FIELDS 64

/** The keys of cli.md with their values, in its order. @return their number */
uint32_t rpsim_row_fields(const rpsim_study *study, const rpsim_row *row,
                          rpsim_field fields_out[static RPSIM_MAX_FIELDS]);

/** Sequences per microbatch, on average: batches need not divide evenly. */
double rpsim_row_microbatch_size(const rpsim_row *row);

/** True where makespan, bubbles and other measures of a timeline are of one iteration; of a
 * program that was given (--program-in) they are of all its iterations. */
bool rpsim_row_of_one_iteration(const rpsim_row *row);

/** Tokens per second of a row: of its period; NaN where that is unknown. */
double rpsim_row_tokens_per_s(const rpsim_row *row);

/** "1.7b_roundpipe.svg": the picture's name in the artifact's log format (formats.md 4). */
rp_status rpsim_row_picture(const rpsim_row *row, rp_arena *arena, const char **name_out);
