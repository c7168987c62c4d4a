#include "common/cli/table.h"

#include "common/cli/paragraph.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define CELL_SIZE 512
#define LEAST_WORDS 28u /* least columns for a sentence */

struct rp_table {
    rp_arena *arena;
    const rp_table_column *columns;
    uint32_t column_count;
    const char **cells; /* [rows][column_count] */
    uint32_t cell_count;
    uint32_t room;
};

rp_status rp_table_create(const rp_table_column *columns, uint32_t column_count, uint32_t rows,
                          rp_arena *arena, rp_table **table_out)
{
    rp_table *t = NULL;
    if (column_count == 0 || column_count > RP_TABLE_MAX_COLUMNS) {
        return rp_broken();
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *t, &t));
    *t = (rp_table){.arena = arena,
                    .columns = columns,
                    .column_count = column_count,
                    .room = rows * column_count};
    RP_TRY(rp_arena_alloc(arena, (size_t)rows * column_count, sizeof *t->cells, &t->cells));
    *table_out = t;
    return RP_OK;
}

rp_status rp_table_print(rp_table *table, const char *format, ...)
{
    char text[CELL_SIZE];
    va_list arguments;
    if (table->cell_count == table->room) {
        return rp_broken();
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return rp_arena_copy_text(table->arena, text, strlen(text), &table->cells[table->cell_count++]);
}

rp_status rp_table_number(rp_table *table, double value, int decimals)
{
    return isnan(value) ? rp_table_print(table, "-")
                        : rp_table_print(table, "%.*f", decimals, value);
}

/* ---- widths ---------------------------------------------------------------------------------- */

static uint32_t width_of(const char *text)
{
    return rp_paragraph_width(text, strlen(text));
}

/* Width of a column's widest cell; 0: no cell is filled. */
static uint32_t column_width(const rp_table *t, uint32_t column)
{
    uint32_t widest = 0;
    for (uint32_t i = column; i < t->cell_count; i += t->column_count) {
        uint32_t width = width_of(t->cells[i]);
        widest = width > widest ? width : widest;
    }
    uint32_t heading = width_of(t->columns[column].heading);
    return widest == 0 || widest > heading ? widest : heading;
}

static uint32_t total_width(const uint32_t *widths, uint32_t count)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += widths[i] != 0 ? widths[i] + 1 : 0;
    }
    return total != 0 ? total - 1 : 0;
}

/* Sets the widths of columns that have no place to 0; if a single column remains, it is cut. */
static void leave_out(const rp_table *t, uint32_t width, uint32_t *widths)
{
    while (total_width(widths, t->column_count) > width) {
        uint32_t shown = 0;
        uint32_t least = 0;
        for (uint32_t i = 0; i < t->column_count; i++) {
            bool goes = shown == 0 || t->columns[i].keep <= t->columns[least].keep;
            if (widths[i] != 0) {
                least = goes ? i : least;
                shown++;
            }
        }
        if (shown < 2) {
            widths[least] = width;
            return;
        }
        widths[least] = 0;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Bytes of the first `width` characters. */
static int bytes_of(const char *text, uint32_t width)
{
    size_t length = 0;
    while (text[length] != '\0' && rp_paragraph_width(text, length + 1) <= width) {
        length++;
    }
    return (int)length;
}

static void write_cell(const char *cell, uint32_t width, FILE *stream)
{
    if (width_of(cell) <= width) {
        fputs(cell, stream);
    } else {
        fprintf(stream, "%.*s…", bytes_of(cell, width - 1), cell);
    }
}

static void write_line(const rp_table *t, const uint32_t *widths, const char *const *cells,
                       uint32_t indent, FILE *stream)
{
    uint32_t blanks = indent; /* due before the next cell, so that no line ends with blanks */
    uint32_t at = indent;     /* column at which the cell begins */
    for (uint32_t i = 0; i < t->column_count; i++) {
        if (widths[i] == 0) {
            continue;
        }
        const char *cell = cells != NULL ? cells[i] : t->columns[i].heading;
        uint32_t width = width_of(cell);
        uint32_t pad = widths[i] > width ? widths[i] - width : 0;
        bool left = t->columns[i].left;
        if (*cell != '\0') {
            fprintf(stream, "%*s", (int)(blanks + (left ? 0 : pad)), "");
            if (t->columns[i].words) {
                rp_paragraph_write(cell, at, at, at + widths[i], stream);
                return;
            }
            write_cell(cell, widths[i], stream);
            blanks = left ? pad : 0;
        } else {
            blanks += pad;
        }
        blanks++;
        at += widths[i] + 1;
    }
    fputc('\n', stream);
}

static void write_lines(const rp_table *table, const uint32_t *widths, uint32_t indent,
                        FILE *stream)
{
    bool headed = false;
    for (uint32_t i = 0; i < table->column_count; i++) {
        headed = headed || (widths[i] != 0 && table->columns[i].heading[0] != '\0');
    }
    if (headed) {
        write_line(table, widths, NULL, indent, stream);
    }
    for (uint32_t at = 0; at + table->column_count <= table->cell_count;
         at += table->column_count) {
        write_line(table, widths, &table->cells[at], indent, stream);
    }
}

static uint32_t inner_width(uint32_t width, uint32_t indent)
{
    return width > indent ? width - indent : 1;
}

static void choose_widths(const rp_table *table, uint32_t inner, uint32_t *widths)
{
    for (uint32_t i = 0; i < table->column_count; i++) {
        widths[i] = column_width(table, i);
        if (table->columns[i].words && widths[i] > LEAST_WORDS) {
            widths[i] = LEAST_WORDS;
        }
    }
    leave_out(table, inner, widths);
    uint32_t last = table->column_count - 1;
    if (table->columns[last].words && widths[last] != 0) { /* a sentence gets the rest */
        widths[last] += inner - total_width(widths, table->column_count);
    }
}

void rp_table_write(const rp_table *table, uint32_t indent, uint32_t width, FILE *stream)
{
    uint32_t widths[RP_TABLE_MAX_COLUMNS];
    choose_widths(table, inner_width(width, indent), widths);
    write_lines(table, widths, indent, stream);
}

bool rp_table_has_place(const rp_table *table, uint32_t column, uint32_t indent, uint32_t width)
{
    uint32_t widths[RP_TABLE_MAX_COLUMNS];
    choose_widths(table, inner_width(width, indent), widths);
    return widths[column] != 0;
}

void rp_table_write_all(const rp_table *table, uint32_t keys, uint32_t indent, uint32_t width,
                        FILE *stream)
{
    uint32_t wanted[RP_TABLE_MAX_COLUMNS];
    uint32_t most = inner_width(width, indent);
    for (uint32_t i = 0; i < table->column_count; i++) {
        wanted[i] = column_width(table, i);
        wanted[i] = wanted[i] < most ? wanted[i] : most;
    }
    for (uint32_t at = keys < table->column_count ? keys : 0; at < table->column_count;) {
        uint32_t widths[RP_TABLE_MAX_COLUMNS] = {0};
        memcpy(widths, wanted, keys * sizeof *widths);
        uint32_t begin = at;
        while (at < table->column_count) {
            widths[at] = wanted[at];
            if (total_width(widths, table->column_count) > most && at > begin) {
                widths[at] = 0;
                break;
            }
            at++;
        }
        uint32_t others = total_width(widths, table->column_count);
        if (others > most) { /* a single column beside the keys is too wide */
            uint32_t over = others - most;
            widths[begin] = widths[begin] > over + 1 ? widths[begin] - over : 1;
        }
        fputs(begin > keys ? "\n" : "", stream);
        write_lines(table, widths, indent, stream);
    }
}

/* ---- Markdown -------------------------------------------------------------------------------- */

static void write_markdown_cell(const char *cell, FILE *stream)
{
    fputs("| ", stream);
    for (; *cell != '\0'; cell++) {
        fprintf(stream, *cell == '|' ? "\\%c" : "%c", *cell);
    }
    fputc(' ', stream);
}

void rp_table_write_markdown(const rp_table *table, FILE *stream)
{
    uint32_t lines = table->cell_count / table->column_count;
    for (uint32_t line = 0; line < lines + 2; line++) { /* headings, rule, rows */
        for (uint32_t i = 0; i < table->column_count; i++) {
            if (column_width(table, i) == 0) {
                continue;
            }
            if (line == 1) {
                fputs(table->columns[i].left ? "|---" : "|--:", stream);
            } else {
                write_markdown_cell(line == 0 ? table->columns[i].heading
                                              : table->cells[(line - 2) * table->column_count + i],
                                    stream);
            }
        }
        fputs("|\n", stream);
    }
}
