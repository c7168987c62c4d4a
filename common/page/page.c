/* The page's HTML: page.html with its marks replaced, tables, and data for the scripts. */
#include "common/page/page.h"

#include "common/base/log.h"
#include "common/page/page_internal.h"

#include <ctype.h>
#include <string.h>

typedef struct writer {
    const rp_page *page;
    const rp_page_causes *causes; /* [run_count] */
    rp_arena *arena;
    FILE *stream;
} writer;

void rp_page_write_text(const char *text, FILE *stream)
{
    size_t left = text != NULL ? strlen(text) : 0;
    while (left > 0) {
        uint32_t code = 0;
        size_t size = rp_utf8_decode(text, left, &code);
        const char *entity = *text == '&'   ? "&amp;"
                             : *text == '<' ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        if (size == 0 || (rp_is_control(code) && code != '\n')) {
            entity = "\xef\xbf\xbd"; /* U+FFFD */
        }
        size = size > 0 ? size : 1;
        if (entity != NULL) {
            fputs(entity, stream);
        } else {
            fwrite(text, 1, size, stream);
        }
        text += size;
        left -= size;
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Numbers are set flush right; "-" and empty cells count as numbers. */
static bool is_number(const char *text)
{
    const char *digits = text + strspn(text, "+-");
    return isdigit((unsigned char)digits[0]) || digits[0] == '\0';
}

static bool is_number_column(const rp_page_table *t, uint32_t column)
{
    bool all = t->rows > 0;
    for (uint32_t r = 0; r < t->rows && all; r++) {
        const char *cell = t->cells[r * t->columns + column];
        all = cell == NULL || is_number(cell);
    }
    return all;
}

static void write_row(const rp_page_table *t, const char *const *cells, bool head, FILE *stream)
{
    fputs("<tr>", stream);
    for (uint32_t c = 0; c < t->columns; c++) {
        const char *class = is_number_column(t, c) ? " class=\"n\"" : "";
        fprintf(stream, head ? "<th scope=\"col\"%s>" : "<td%s>", class);
        rp_page_write_text(cells[c], stream);
        fputs(head ? "</th>" : "</td>", stream);
    }
    fputs("</tr>\n", stream);
}

static void write_table(const rp_page *page, const rp_page_table *t, FILE *stream)
{
    bool names_run = t->run != RP_PAGE_ALL_RUNS && page->run_count > 1;
    fputs("<section class=\"table\"", stream);
    if (t->run != RP_PAGE_ALL_RUNS) {
        fprintf(stream, " data-run=\"%u\"", t->run);
    }
    fputs(t->folded ? ">\n<details><summary>" : ">\n<h2>", stream);
    rp_page_write_text(t->title, stream);
    fputs(names_run ? ": " : "", stream);
    rp_page_write_text(names_run ? page->runs[t->run].name : "", stream);
    fputs(t->folded ? "</summary>\n" : "</h2>\n", stream);
    if (t->note != NULL) {
        fputs("<p>", stream);
        rp_page_write_text(t->note, stream);
        fputs("</p>\n", stream);
    }
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", stream);
    rp_page_write_text(t->title, stream);
    fputs("\"><table><thead>", stream);
    write_row(t, t->headings, true, stream);
    fputs("</thead><tbody>\n", stream);
    for (uint32_t r = 0; r < t->rows; r++) {
        write_row(t, t->cells + (size_t)r * t->columns, false, stream);
    }
    fprintf(stream, "</tbody></table></div>\n%s</section>\n", t->folded ? "</details>" : "");
}

/* ---- marks of page.html ---------------------------------------------------------------------- */

static rp_status write_title(const writer *w)
{
    rp_page_write_text(w->page->title, w->stream);
    return RP_OK;
}

static rp_status write_answer(const writer *w)
{
    rp_page_write_text(w->page->answer, w->stream);
    return RP_OK;
}

static rp_status write_command(const writer *w)
{
    rp_page_write_text(w->page->command, w->stream);
    return RP_OK;
}

static rp_status write_made_by(const writer *w)
{
    rp_page_write_text(w->page->made_by, w->stream);
    return RP_OK;
}

static rp_status write_style(const writer *w)
{
    fputs(rp_page_css, w->stream);
    return RP_OK;
}

static rp_status write_script(const writer *w)
{
    fputs(rp_page_js, w->stream);
    return RP_OK;
}

static void write_tables_of(const writer *w, uint32_t run)
{
    for (uint32_t i = 0; i < w->page->table_count; i++) {
        if (w->page->tables[i].run == run) {
            write_table(w->page, &w->page->tables[i], w->stream);
        }
    }
}

/* Writes the tables of all runs, which stand before the timeline. */
static rp_status write_summary(const writer *w)
{
    write_tables_of(w, RP_PAGE_ALL_RUNS);
    return RP_OK;
}

static rp_status write_tables(const writer *w)
{
    for (uint32_t i = 0; i < w->page->run_count; i++) {
        rp_page_table kinds;
        RP_TRY(rp_page_kinds_table(&w->page->runs[i], i, &w->causes[i], w->arena, &kinds));
        write_tables_of(w, i);
        write_table(w->page, &kinds, w->stream);
    }
    return RP_OK;
}

static rp_status write_data(const writer *w)
{
    rp_json json;
    fputs("<script type=\"application/json\" id=\"data\">", w->stream);
    rp_json_begin_document(&json, w->stream, 0);
    json.in_html = true;
    rp_page_write_head(w->page, w->causes, &json);
    rp_json_end_document(&json);
    fputs("</script>\n", w->stream);
    for (uint32_t i = 0; i < w->page->run_count; i++) {
        fprintf(w->stream, "<script type=\"text/plain\" id=\"ops-%u\">", i);
        RP_TRY(rp_page_write_ops(&w->page->runs[i], &w->causes[i], w->arena, w->stream));
        fputs("</script>\n", w->stream);
    }
    return RP_OK;
}

static const struct {
    const char *name; /* name of a mark <!--name--> in page.html */
    rp_status (*write)(const writer *w);
} marks[] = {{"title", write_title},     {"answer", write_answer}, {"command", write_command},
             {"made-by", write_made_by}, {"style", write_style},   {"script", write_script},
             {"summary", write_summary}, {"tables", write_tables}, {"data", write_data}};

static rp_status write_mark(const writer *w, const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (strlen(marks[i].name) == length && memcmp(marks[i].name, name, length) == 0) {
            return marks[i].write(w);
        }
    }
    return rp_broken(); /* page.html has a mark without a writer */
}

static rp_status write_page(const writer *w)
{
    const char *at = rp_page_html;
    for (const char *mark = strstr(at, "<!--"); mark != NULL; mark = strstr(at, "<!--")) {
        const char *end = strstr(mark, "-->");
        if (end == NULL) {
            return rp_broken();
        }
        fwrite(at, 1, (size_t)(mark - at), w->stream);
        RP_TRY(write_mark(w, mark + 4, (size_t)(end - mark - 4)));
        at = end + 3;
    }
    fputs(at, w->stream);
    return RP_OK;
}

rp_status rp_page_write(const rp_page *page, FILE *stream)
{
    rp_arena *arena = NULL;
    rp_page_causes *causes = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, page->run_count, sizeof *causes, &causes);
    for (uint32_t i = 0; i < page->run_count && status == RP_OK; i++) {
        status = rp_page_causes_find(&page->runs[i], arena, &causes[i]);
    }
    const writer w = {page, causes, arena, stream};
    status = status == RP_OK ? write_page(&w) : status;
    rp_arena_destroy(arena);
    return status;
}
