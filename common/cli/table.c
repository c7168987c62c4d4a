#include "common/cli/table.h"

#include "common/cli/paragraph.h"

#include <stdarg.h>
#include <string.h>

#define MOST_COLUMNS 16u
#define CELL_SIZE 256

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
    if (column_count == 0 || column_count > MOST_COLUMNS) {
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

static uint32_t width_of(const char *text)
{
    return rp_paragraph_width(text, strlen(text));
}

/* Widest cell of a column; 0: nobody filled it. */
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

/* Sets the widths of columns that have no place to 0. */
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
            return;
        }
        widths[least] = 0;
    }
}

static void write_line(const rp_table *t, const uint32_t *widths, const char *const *cells,
                       uint32_t indent, FILE *stream)
{
    uint32_t blanks = indent; /* due before the next cell: a line ends without any */
    for (uint32_t i = 0; i < t->column_count; i++) {
        if (widths[i] == 0) {
            continue;
        }
        const char *cell = cells != NULL ? cells[i] : t->columns[i].heading;
        uint32_t pad = widths[i] - width_of(cell);
        bool left = t->columns[i].left;
        if (*cell != '\0') {
            fprintf(stream, "%*s%s", (int)(blanks + (left ? 0 : pad)), "", cell);
            blanks = left ? pad : 0;
        } else {
            blanks += pad;
        }
        blanks++;
    }
    fputc('\n', stream);
}

void rp_table_write(const rp_table *table, uint32_t indent, uint32_t width, FILE *stream)
{
    uint32_t widths[MOST_COLUMNS];
    for (uint32_t i = 0; i < table->column_count; i++) {
        widths[i] = column_width(table, i);
    }
    leave_out(table, width > indent ? width - indent : 0, widths);
    write_line(table, widths, NULL, indent, stream);
    for (uint32_t at = 0; at + table->column_count <= table->cell_count;
         at += table->column_count) {
        write_line(table, widths, &table->cells[at], indent, stream);
    }
}
