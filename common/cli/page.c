#define _GNU_SOURCE /* fopencookie */
#include "common/cli/page.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/paragraph.h"
#include "common/cli/table.h"

#include <string.h>

#define FARTHEST_LABEL 32u /* columns */

struct rp_page_wrap {
    FILE *out;
    uint32_t columns;
    rp_text line;    /* without its end */
    rp_arena *arena; /* arena of tables; NULL: lines of Markdown are not made into tables */
    rp_text rows;    /* of the table that has begun */
    uint32_t row_count;
};

/* Column at which the rest of a long line begins. */
static uint32_t indent_of(const char *line)
{
    uint32_t leading = (uint32_t)strspn(line, " ");
    const char *label = strstr(line + leading, "  ");
    if (label != NULL) {
        uint32_t width = rp_paragraph_width(line, (size_t)(label - line));
        uint32_t behind = width + (uint32_t)strspn(label, " ");
        if (behind <= FARTHEST_LABEL) {
            return behind;
        }
    }
    return leading + 2;
}

static void write_line(struct rp_page_wrap *wrap)
{
    const char *line = wrap->line.bytes != NULL ? wrap->line.bytes : "";
    if (rp_paragraph_width(line, wrap->line.length) <= wrap->columns) {
        fprintf(wrap->out, "%s\n", line);
    } else {
        uint32_t indent = indent_of(line);
        uint32_t leading = (uint32_t)strspn(line, " ");
        fprintf(wrap->out, "%*s", (int)leading, "");
        rp_paragraph_write(line + leading, leading, indent, wrap->columns, wrap->out);
    }
    wrap->line.length = 0;
    if (wrap->line.bytes != NULL) {
        wrap->line.bytes[0] = '\0';
    }
}

/* ---- tables of Markdown ---------------------------------------------------------------------- */

/* Takes the next cell of a row, without the blanks around it. @return its length */
static size_t next_cell(const char **row)
{
    *row += strspn(*row, " ");
    *row += **row == '|' ? 1 : 0;
    *row += strspn(*row, " ");
    size_t length = strcspn(*row, "|\n");
    size_t used = length;
    while (used > 0 && (*row)[used - 1] == ' ') {
        used--;
    }
    return used;
}

static uint32_t count_cells(const char *row)
{
    uint32_t bars = 0;
    for (; *row != '\0' && *row != '\n'; row++) {
        bars += *row == '|' ? 1 : 0;
    }
    return bars > 0 ? bars - 1 : 0;
}

static bool is_number(const char *text)
{
    return *text != '\0' && strchr("+-0123456789", *text) != NULL;
}

/* Writes the headings, the rule below them and the rows. */
static rp_status write_table(struct rp_page_wrap *wrap)
{
    const char *text = wrap->rows.bytes;
    uint32_t count = count_cells(text);
    rp_table_column columns[RP_TABLE_MAX_COLUMNS] = {0};
    rp_table *table = NULL;
    const char *rows = strchr(strchr(text, '\n') + 1, '\n') + 1;
    const char *first = rows;
    RP_TRY(rp_table_create(columns, count, wrap->row_count, wrap->arena, &table));
    for (uint32_t i = 0; i < count; i++) {
        size_t length = next_cell(&text);
        columns[i] = (rp_table_column)RP_TABLE_LEFT("", count - i);
        RP_TRY(rp_arena_copy_text(wrap->arena, text, length, &columns[i].heading));
        text += length;
        length = next_cell(&first);
        columns[i].left = !is_number(first);
        first += length;
    }
    for (; *rows != '\0'; rows = strchr(rows, '\n') + 1) {
        const char *at = rows;
        for (uint32_t i = 0; i < count; i++) {
            size_t length = next_cell(&at);
            RP_TRY(rp_table_print(table, "%.*s", (int)length, at));
            at += length;
        }
    }
    rp_table_write(table, 0, wrap->columns, wrap->out);
    return RP_OK;
}

static void end_table(struct rp_page_wrap *wrap)
{
    if (wrap->row_count > 0 && (wrap->row_count < 3 || write_table(wrap) != RP_OK)) {
        fputs(wrap->rows.bytes, wrap->out);
    }
    rp_text_fini(&wrap->rows);
    wrap->row_count = 0;
}

static rp_status end_line(struct rp_page_wrap *wrap)
{
    if (wrap->arena != NULL && wrap->line.length > 0 && wrap->line.bytes[0] == '|') {
        RP_TRY(rp_text_print(&wrap->rows, "%s\n", wrap->line.bytes));
        wrap->row_count++;
        wrap->line.length = 0;
        wrap->line.bytes[0] = '\0';
        return RP_OK;
    }
    end_table(wrap);
    write_line(wrap);
    return RP_OK;
}

/* ---- the stream ------------------------------------------------------------------------------ */

static ssize_t take(void *cookie, const char *bytes, size_t count)
{
    struct rp_page_wrap *wrap = cookie;
    for (size_t at = 0; at < count;) {
        const char *end = memchr(bytes + at, '\n', count - at);
        size_t length = end != NULL ? (size_t)(end - (bytes + at)) : count - at;
        if (rp_text_append(&wrap->line, bytes + at, length) != RP_OK) {
            return 0;
        }
        at += length;
        if (end != NULL) {
            if (end_line(wrap) != RP_OK) {
                return 0;
            }
            at++;
        }
    }
    return (ssize_t)count;
}

rp_status rp_page_open(FILE *out, rp_arena *arena, rp_page *page_out)
{
    static const cookie_io_functions_t functions = {.write = take};
    struct rp_page_wrap *wrap = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *wrap, &wrap));
    *wrap =
        (struct rp_page_wrap){.out = out, .columns = rp_paragraph_columns(out, RP_TABLE_COLUMNS)};
    FILE *stream = fopencookie(wrap, "w", functions);
    if (stream == NULL) {
        rp_log_error("out of memory");
        return RP_NO_MEMORY;
    }
    *page_out = (rp_page){.stream = stream, .columns = wrap->columns, .wrap = wrap};
    return RP_OK;
}

rp_status rp_page_open_markdown(FILE *out, rp_arena *arena, rp_page *page_out)
{
    RP_TRY(rp_page_open(out, arena, page_out));
    page_out->wrap->arena = arena;
    return RP_OK;
}

void rp_page_close(rp_page *page)
{
    (void)fclose(page->stream);
    if (page->wrap->line.length > 0) {
        (void)end_line(page->wrap);
    }
    end_table(page->wrap);
    rp_text_fini(&page->wrap->line);
    page->stream = NULL;
}
