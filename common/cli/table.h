/** @file table.h  Tables for people that are never wider than where they are read. */
#pragma once

#include "common/base/log.h"
#include "common/base/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct rp_table_column {
    const char *heading;
    bool left;     /**< flush left; otherwise right */
    uint32_t keep; /**< columns that keep least are left out first, of equals the last */
} rp_table_column;

typedef struct rp_table rp_table;

/**
 * @param columns [column_count] borrowed; most are 16
 * @param rows most of them
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (too many columns)
 */
rp_status rp_table_create(const rp_table_column *columns, uint32_t column_count, uint32_t rows,
                          rp_arena *arena, rp_table **table_out);

/** Appends a cell, row by row; "" for none. @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (no room) */
RP_PRINTF(2, 3) rp_status rp_table_print(rp_table *table, const char *format, ...);

/** Writes headings and rows, `indent` blanks before each, within `width` columns as long as one
 * column of the table remains. What nobody filled is left out. */
void rp_table_write(const rp_table *table, uint32_t indent, uint32_t width, FILE *stream);
