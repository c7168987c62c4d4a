#include "common/formats/csv.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CELLS_WANTED "valid values are rows with as many cells as the header"

typedef struct reader {
    const char *name;
    const char *at;
    const char *end;
    char separator;
    size_t line;
    size_t row;    /* one-based, the header is 1 */
    size_t column; /* one-based */
    char *copy;    /* next free byte of the cells' text */
    const char **cells;
    size_t cell_count;
    size_t cell_capacity;
    uint32_t *lines;
    size_t line_capacity;
    uint32_t columns; /* 0 until the header has been read */
} reader;

RP_PRINTF(2, 3) static rp_status refuse(const reader *in, const char *format, ...)
{
    char cause[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof cause, format, arguments);
    va_end(arguments);
    rp_log_error_at(in->name, in->line, "row %zu, column %zu: %s", in->row, in->column, cause);
    return RP_INPUT;
}

static bool at_line_end(const reader *in)
{
    return *in->at == '\n' || (*in->at == '\r' && in->at + 1 < in->end && in->at[1] == '\n');
}

static bool at_cell_end(const reader *in)
{
    return in->at == in->end || *in->at == in->separator || at_line_end(in);
}

/* Length of the UTF-8 sequence at `at`; 0 if it is malformed, overlong or a surrogate. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (at[0] < 0x80) {
        return 1;
    }
    size_t length = at[0] >= 0xF0 ? 4 : at[0] >= 0xE0 ? 3 : 2;
    if (at[0] < 0xC2 || at[0] > 0xF4 || length > left) {
        return 0;
    }
    uint32_t point = at[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
        point = point << 6 | (at[i] & 0x3F);
    }
    bool valid = point >= least[length] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
    return valid ? length : 0;
}

static rp_status check_bytes(reader *in)
{
    const char *at = in->at;
    in->row = 1;
    in->column = 1;
    while (at < in->end) {
        size_t length = utf8_length((const unsigned char *)at, (size_t)(in->end - at));
        if (length == 0 || *at == '\0') {
            rp_log_error_at(in->name, in->line, "a %s; valid values are UTF-8 text",
                            length == 0 ? "byte that is not UTF-8" : "NUL byte");
            return RP_INPUT;
        }
        in->line += *at == '\n';
        at += length;
    }
    in->line = 1;
    return RP_OK;
}

static rp_status copy_quoted(reader *in)
{
    size_t first_line = in->line;
    for (in->at++; in->at < in->end; in->at++) {
        if (*in->at == '"') {
            in->at++;
            if (in->at == in->end || *in->at != '"') {
                return at_cell_end(in) ? RP_OK
                                       : refuse(in, "text after a closing quote; valid values are "
                                                    "cells quoted as a whole");
            }
        }
        in->line += *in->at == '\n';
        *in->copy++ = *in->at;
    }
    in->line = first_line;
    return refuse(in, "a quote without its end; valid values are cells like \"a \"\"b\"\"\"");
}

static rp_status copy_plain(reader *in)
{
    for (; !at_cell_end(in); in->at++) {
        if (*in->at == '"') {
            return refuse(in, "a quote inside a cell; valid values are cells quoted as a whole, "
                              "like \"a \"\"b\"\"\"");
        }
        if (*in->at == '\r') {
            return refuse(in, "a carriage return inside a cell; valid values are line ends LF and "
                              "CRLF");
        }
        *in->copy++ = *in->at;
    }
    return RP_OK;
}

static rp_status add_cell(reader *in)
{
    if (in->cell_count == in->cell_capacity) {
        in->cell_capacity = in->cell_capacity ? in->cell_capacity * 2 : 64;
        RP_TRY(rp_mem_resize(&in->cells, in->cell_capacity * sizeof *in->cells));
    }
    if (in->columns != 0 && in->column > in->columns) {
        return refuse(in, "more cells than the header's %u; " CELLS_WANTED, in->columns);
    }
    if (in->column > RP_CSV_MAX_COLUMNS) {
        return refuse(in, "too many cells; valid values are at most %u columns",
                      RP_CSV_MAX_COLUMNS);
    }
    in->cells[in->cell_count++] = in->copy;
    bool quoted = in->at < in->end && *in->at == '"';
    RP_TRY(quoted ? copy_quoted(in) : copy_plain(in));
    *in->copy++ = '\0';
    return RP_OK;
}

static rp_status note_line(reader *in)
{
    if (in->row > in->line_capacity) {
        in->line_capacity = in->line_capacity ? in->line_capacity * 2 : 64;
        RP_TRY(rp_mem_resize(&in->lines, in->line_capacity * sizeof *in->lines));
    }
    in->lines[in->row - 1] = (uint32_t)in->line;
    return RP_OK;
}

static void skip_line_end(reader *in)
{
    if (in->at < in->end) {
        in->at += *in->at == '\r' ? 2 : 1;
        in->line++;
    }
}

static rp_status read_row(reader *in)
{
    RP_TRY(note_line(in));
    for (in->column = 1;; in->column++) {
        RP_TRY(add_cell(in));
        if (in->at == in->end || *in->at != in->separator) {
            break;
        }
        in->at++;
    }
    if (in->columns != 0 && in->column < in->columns) {
        return refuse(in, "only %zu of the header's %u cells; " CELLS_WANTED, in->column,
                      in->columns);
    }
    skip_line_end(in);
    return RP_OK;
}

static rp_status read_header(reader *in)
{
    in->row = 1;
    RP_TRY(read_row(in));
    in->columns = (uint32_t)in->cell_count;
    size_t next_line = in->line; /* more than 2 if a quoted header cell spans lines */
    in->line = 1;
    for (in->column = 1; in->column <= in->columns; in->column++) {
        const char *name = in->cells[in->column - 1];
        if (*name == '\0') {
            return refuse(in, "a column without a name; valid values are unique names");
        }
        for (size_t i = 0; i + 1 < in->column; i++) {
            if (strcmp(in->cells[i], name) == 0) {
                char shown[RP_CSV_SHOW_SIZE];
                return refuse(in, "a second column '%s'; valid values are unique names",
                              rp_csv_show(name, shown));
            }
        }
    }
    in->line = next_line;
    return RP_OK;
}

static rp_status read_rows(reader *in)
{
    RP_TRY(check_bytes(in));
    if (in->at == in->end) {
        rp_log_error_at(in->name, 1, "the file is empty; valid values are a header row and rows");
        return RP_INPUT;
    }
    RP_TRY(read_header(in));
    while (in->at < in->end) {
        in->row++;
        RP_TRY(read_row(in));
    }
    return RP_OK;
}

static rp_status keep_cells(const reader *in, rp_arena *arena, rp_csv *table_out)
{
    *table_out = (rp_csv){.name = in->name, .columns = in->columns};
    table_out->rows = (uint32_t)(in->row - 1);
    size_t cells = (size_t)table_out->rows * in->columns;
    RP_TRY(rp_arena_alloc(arena, in->columns, sizeof *in->cells, &table_out->header));
    RP_TRY(rp_arena_alloc(arena, cells, sizeof *in->cells, &table_out->cells));
    RP_TRY(rp_arena_alloc(arena, table_out->rows, sizeof *in->lines, &table_out->lines));
    memcpy(table_out->header, in->cells, in->columns * sizeof *in->cells);
    if (table_out->rows > 0) {
        memcpy(table_out->cells, in->cells + in->columns, cells * sizeof *in->cells);
        memcpy(table_out->lines, in->lines + 1, table_out->rows * sizeof *in->lines);
    }
    return RP_OK;
}

rp_status rp_csv_parse(const char *name, const char *bytes, size_t length, char separator,
                       rp_arena *arena, rp_csv *table_out)
{
    if (length > RP_CSV_MAX_BYTES) {
        rp_log_error_at(name, 0, "the file is too long; valid values are at most %zu bytes",
                        RP_CSV_MAX_BYTES);
        return RP_INPUT;
    }
    bool mark = length >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0;
    reader in = {.name = name,
                 .at = bytes + (mark ? 3 : 0),
                 .end = bytes + length,
                 .separator = separator,
                 .line = 1};
    /* A cell with its NUL is never longer than with its separator, which the last cell lacks. */
    RP_TRY(rp_arena_alloc(arena, length + 2, 1, &in.copy));
    rp_status status = read_rows(&in);
    if (status == RP_OK) {
        status = keep_cells(&in, arena, table_out);
    }
    rp_mem_release(&in.cells);
    rp_mem_release(&in.lines);
    return status;
}

rp_status rp_csv_read_file(const char *path, rp_arena *arena, rp_csv *table_out)
{
    rp_text text = {0};
    rp_status status = rp_text_read_file(path, RP_CSV_MAX_BYTES, &text);
    if (status == RP_OK) {
        const char *bytes = text.bytes != NULL ? text.bytes : "";
        status = rp_csv_parse(path, bytes, text.length, ',', arena, table_out);
    }
    rp_text_fini(&text);
    return status;
}

rp_status rp_csv_column(const rp_csv *table, const char *header, uint32_t *column_out)
{
    for (uint32_t i = 0; i < table->columns; i++) {
        if (strcmp(table->header[i], header) == 0) {
            *column_out = i;
            return RP_OK;
        }
    }
    char known[512] = "";
    for (uint32_t i = 0; i < table->columns; i++) {
        size_t length = strlen(known);
        char shown[RP_CSV_SHOW_SIZE];
        snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                 rp_csv_show(table->header[i], shown));
    }
    rp_log_error_at(table->name, 1,
                    "there is no column '%s', only %s; valid values are tables "
                    "with that column",
                    header, known);
    return RP_INPUT;
}

const char *rp_csv_show(const char *cell, char buffer[static RP_CSV_SHOW_SIZE])
{
    size_t length = strlen(cell);
    size_t kept = length <= 40 ? length : 40;
    while (kept < length && kept > 0 && ((unsigned char)cell[kept] & 0xC0) == 0x80) {
        kept--; /* not inside a UTF-8 sequence */
    }
    memcpy(buffer, cell, kept);
    memcpy(buffer + kept, kept < length ? "..." : "", kept < length ? 4 : 1);
    return buffer;
}

const char *rp_csv_cell(const rp_csv *table, uint32_t row, uint32_t column)
{
    return table->cells[(size_t)row * table->columns + column];
}

rp_status rp_csv_u64(const rp_csv *table, uint32_t row, uint32_t column, uint64_t low,
                     uint64_t high, uint64_t *value_out)
{
    const char *cell = rp_csv_cell(table, row, column);
    if (rp_parse_u64(cell, low, high, value_out)) {
        return RP_OK;
    }
    char header_shown[RP_CSV_SHOW_SIZE];
    char shown[RP_CSV_SHOW_SIZE];
    rp_log_error_at(table->name, table->lines[row],
                    "row %u, column %u: '%s' is '%s'; valid values are whole numbers from %llu to "
                    "%llu",
                    row + 2, column + 1, rp_csv_show(table->header[column], header_shown),
                    rp_csv_show(cell, shown), (unsigned long long)low, (unsigned long long)high);
    return RP_INPUT;
}

rp_status rp_csv_double(const rp_csv *table, uint32_t row, uint32_t column, double low, double high,
                        double *value_out)
{
    const char *cell = rp_csv_cell(table, row, column);
    if (rp_parse_double(cell, low, high, value_out)) {
        return RP_OK;
    }
    char header_shown[RP_CSV_SHOW_SIZE];
    char shown[RP_CSV_SHOW_SIZE];
    rp_log_error_at(table->name, table->lines[row],
                    "row %u, column %u: '%s' is '%s'; valid values are numbers from %.15g to %.15g",
                    row + 2, column + 1, rp_csv_show(table->header[column], header_shown),
                    rp_csv_show(cell, shown), low, high);
    return RP_INPUT;
}

void rp_csv_write_cell(const char *text, FILE *stream)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stream);
        return;
    }
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            fputc('"', stream);
        }
        fputc(*text, stream);
    }
    fputc('"', stream);
}
