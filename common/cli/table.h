/** @file table.h  Tables for people that are never wider than where they are read. */
#pragma once

#include "common/base/log.h"
#include "common/base/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/** Columns of a table where the stream is no terminal and COLUMNS is not set. */
#define RP_TABLE_COLUMNS 100u

/** Most columns of a table. */
#define RP_TABLE_MAX_COLUMNS 80u

typedef struct rp_table_column {
    const char *heading;
    bool left;     /**< flush left; otherwise right */
    uint32_t keep; /**< columns that keep least are left out first, of equals the last */
    bool words;    /**< a sentence, of the last column only: wrapped to the width that is left */
} rp_table_column;

#define RP_TABLE_LEFT(heading, keep)                                                               \
    {                                                                                              \
        (heading), true, (keep), false                                                             \
    }
#define RP_TABLE_RIGHT(heading, keep)                                                              \
    {                                                                                              \
        (heading), false, (keep), false                                                            \
    }
#define RP_TABLE_WORDS(heading, keep)                                                              \
    {                                                                                              \
        (heading), true, (keep), true                                                              \
    }

typedef struct rp_table rp_table;

/**
 * @param columns [column_count] borrowed; most are RP_TABLE_MAX_COLUMNS
 * @param rows most of them
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (too many columns)
 */
rp_status rp_table_create(const rp_table_column *columns, uint32_t column_count, uint32_t rows,
                          rp_arena *arena, rp_table **table_out);

/** Appends a cell, row by row; "" for none. @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (no room) */
RP_PRINTF(2, 3) rp_status rp_table_print(rp_table *table, const char *format, ...);

/** As rp_table_print, with the decimals of a number; "-" for NaN. */
rp_status rp_table_number(rp_table *table, double value, int decimals);

/** Writes headings, unless all are empty, and rows, `indent` blanks before each, within `width`
 * columns as long as one column of the table remains; a cell that is wider than all is cut, with
 * "…" at its end. Columns that nobody filled are left out. */
void rp_table_write(const rp_table *table, uint32_t indent, uint32_t width, FILE *stream);

/** @return true where rp_table_write writes this column. */
bool rp_table_has_place(const rp_table *table, uint32_t column, uint32_t indent, uint32_t width);

/** As rp_table_write, but all columns: those that have no place follow in further tables below,
 * each of which begins with the first `keys` columns. */
void rp_table_write_all(const rp_table *table, uint32_t keys, uint32_t indent, uint32_t width,
                        FILE *stream);

/** Writes all columns that somebody filled as a table of Markdown. */
void rp_table_write_markdown(const rp_table *table, FILE *stream);
