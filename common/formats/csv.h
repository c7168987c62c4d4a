/** @file csv.h  Strict reader of separated values with a header row, and writer of cells, after RFC
 * 4180.
 *
 * Rows end in LF or CRLF; a cell may be quoted ("" is a quote); every row has as many cells as the
 * header; header names are unique. Mistakes are logged as "FILE:LINE: row R, column C: cause; valid
 * values are …", rows and columns counted from 1, the header being row 1.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RP_CSV_MAX_BYTES ((size_t)256 << 20)
#define RP_CSV_MAX_COLUMNS 1024u

/** A table in an arena; cells are NUL-terminated UTF-8. */
typedef struct rp_csv {
    const char *name; /**< for messages; borrowed */
    uint32_t columns;
    uint32_t rows;       /**< without the header */
    const char **header; /**< [columns] */
    const char **cells;  /**< [rows * columns] */
    uint32_t *lines;     /**< [rows] one-based line at which the row begins */
} rp_csv;

/**
 * Reads a table.
 * @param name origin of the bytes, for messages; must outlive the table
 * @param bytes need not end in NUL; not kept
 * @param separator ',' or ';' or any other byte but a quote or a line end
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rp_csv_parse(const char *name, const char *bytes, size_t length, char separator,
                       rp_arena *arena, rp_csv *table_out);

/**
 * Reads a table of comma-separated values from a file.
 * @param path must outlive the table
 * @retval RP_OK, RP_INPUT (cannot be opened or is not a table; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_csv_read_file(const char *path, rp_arena *arena, rp_csv *table_out);

/**
 * Finds a column by its name.
 * @retval RP_OK, RP_INPUT (logged, with the existing columns)
 */
rp_status rp_csv_column(const rp_csv *table, const char *header, uint32_t *column_out);

/** @return the cell; row and column must be in range. */
const char *rp_csv_cell(const rp_csv *table, uint32_t row, uint32_t column);

/** Reads a whole number from low to high. @retval RP_OK, RP_INPUT (logged) */
rp_status rp_csv_u64(const rp_csv *table, uint32_t row, uint32_t column, uint64_t low,
                     uint64_t high, uint64_t *value_out);

/** Reads a finite number from low to high. @retval RP_OK, RP_INPUT (logged) */
rp_status rp_csv_double(const rp_csv *table, uint32_t row, uint32_t column, double low, double high,
                        double *value_out);

/** Writes a cell as RFC 4180 demands: in quotes if it needs them, with quotes doubled. */
void rp_csv_write_cell(const char *text, FILE *stream);

#define RP_CSV_SHOW_SIZE 44

/**
 * Gives a cell as a message shows it: on a single line, at most 40 bytes.
 * @return `buffer`
 */
const char *rp_csv_show(const char *cell, char buffer[static RP_CSV_SHOW_SIZE]);
