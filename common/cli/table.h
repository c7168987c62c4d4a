/** @file table.h  Tables for people, never wider than the reader's terminal. */
#pragma once

#include "common/base/log.h"
#include "common/base/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/** Width of a table, in columns, if the stream is no terminal and COLUMNS is not set. */
#define RP_TABLE_COLUMNS 100u

/** Most columns of a table. */
#define RP_TABLE_MAX_COLUMNS 80u

typedef struct rp_table_column {
    const char *heading;
    bool left;     /**< flush left; otherwise right */
    uint32_t keep; /**< priority: columns with the least are left out first, among equals the last
                      column */
    bool words;    /**< a sentence, wrapped to the remaining width; for the last column only */
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
 * @param rows most rows
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (too many columns)
 */
rp_status rp_table_create(const rp_table_column *columns, uint32_t column_count, uint32_t rows,
                          rp_arena *arena, rp_table **table_out);

/** Appends the next cell, row by row; "" leaves it empty. @retval RP_OK, RP_NO_MEMORY, RP_BROKEN
 * (no room) */
RP_PRINTF(2, 3) rp_status rp_table_print(rp_table *table, const char *format, ...);

/** As rp_table_print, with the decimals of a number; "-" for NaN. */
rp_status rp_table_number(rp_table *table, double value, int decimals);

/** Writes headings, unless all are empty, and rows, `indent` blanks before each, within `width`
 * columns: columns are left out until the rest fits. If a single column remains that is still too
 * wide, its cells are cut, with "…" at the end. Columns without a filled cell are left out. */
void rp_table_write(const rp_table *table, uint32_t indent, uint32_t width, FILE *stream);

/** @return whether rp_table_write writes this column. */
bool rp_table_has_place(const rp_table *table, uint32_t column, uint32_t indent, uint32_t width);

/** As rp_table_write, but writes all columns: columns without a place follow in further tables
 * below, each of which begins with the first `keys` columns. */
void rp_table_write_all(const rp_table *table, uint32_t keys, uint32_t indent, uint32_t width,
                        FILE *stream);

/** Writes all columns with a filled cell as a table of Markdown. */
void rp_table_write_markdown(const rp_table *table, FILE *stream);
