/* The page of a store. */
#include "common/page/page.h"
#include "common/base/version.h"
#include "experiments/report/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEST_ROWS 20

static const char head[] =
    "<!DOCTYPE html>\n"
    "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\" />\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n"
    "<meta name=\"color-scheme\" content=\"light dark\" />\n";

static const char style[] =
    "<style>\n"
    ":root { color-scheme: light dark; --page: #fff; --ink: #1c1c1c; --soft: #4a4a4a;"
    " --line: #d8d8d8; --link: #0a4f9c; }\n"
    "@media screen and (prefers-color-scheme: dark) {\n"
    " :root { --page: #1a1a1a; --ink: #e6e6e6; --soft: #b4b4b4; --line: #3c3c3c;"
    " --link: #86b8f4; }\n"
    " img { filter: invert(0.898) hue-rotate(180deg); } }\n"
    "* { box-sizing: border-box; }\n"
    "html { -webkit-text-size-adjust: 100%; scroll-padding-top: 3rem; }\n"
    "body { margin: 0; background: var(--page); color: var(--ink);"
    " font: 16px/1.5 system-ui, \"DejaVu Sans\", sans-serif; }\n"
    "main { max-width: 62rem; margin: 0 auto; padding: 0 1rem 3rem; overflow-wrap: anywhere; }\n"
    "nav { position: sticky; top: 0; background: var(--page); border-bottom: 1px solid var(--line);"
    " overflow-x: auto; white-space: nowrap; font-size: 0.875rem; }\n"
    "nav p { max-width: 62rem; margin: 0 auto; padding: 0.45rem 1rem; }\n"
    "nav a { margin-right: 0.8rem; }\n"
    "a { color: var(--link); }\n"
    "h1 { font-size: 1.6rem; line-height: 1.2; }\n"
    "h2 { font-size: 1.25rem; margin: 2.2rem 0 0.6rem; }\n"
    "h2 a { color: var(--soft); text-decoration: none; font-weight: 400; }\n"
    ".scroll { overflow-x: auto; }\n"
    "table { border-collapse: collapse; font-size: 0.875rem; overflow-wrap: normal; }\n"
    "th, td { padding: 0.25rem 0.6rem; text-align: left; border-bottom: 1px solid var(--line);"
    " vertical-align: top; white-space: nowrap; }\n"
    ".facts td { white-space: normal; overflow-wrap: anywhere; }\n"
    ".n { text-align: right; font-variant-numeric: tabular-nums; }\n"
    "th.n { white-space: normal; }\n"
    "figure { margin: 1rem 0; }\n"
    "img { display: block; max-width: 100%; height: auto; }\n"
    "figcaption, .note { font-size: 0.875rem; color: var(--soft); max-width: 50rem; }\n"
    "summary { cursor: pointer; padding: 0.3rem 0; }\n"
    "@media print { nav { display: none; } figure, tr { break-inside: avoid; } }\n"
    "</style>\n";

/* Writes a cell. A number is shown with five digits (more if it is large, fewer if it has fewer)
 * and stands in full in data-value; other text is written as it is. */
static void write_cell(const char *text, FILE *stream)
{
    char *end = NULL;
    double number = text != NULL ? strtod(text, &end) : 0;
    if (text == NULL) {
        fputs("<td></td>", stream);
    } else if (end == text || *end != '\0' || !isfinite(number)) {
        fputs("<td>", stream);
        rp_page_write_text(text, stream);
        fputs("</td>", stream);
    } else {
        double size = fabs(number);
        int decimals = number == trunc(number) || size >= 10000 ? 0
                       : size >= 1000                           ? 1
                       : size >= 100                            ? 2
                       : size >= 1                              ? 3
                                                                : 5;
        char shown[64];
        snprintf(shown, sizeof shown, "%.*f", decimals, number);
        fprintf(stream, "<td class=\"n\" data-value=\"%s\">%s</td>", text,
                strlen(text) < strlen(shown) ? text : shown);
    }
}

static rp_status write_row(void *context, const char *const *cells, int columns)
{
    FILE *stream = context;
    fputs("<tr>", stream);
    for (int i = 0; i < columns; i++) {
        write_cell(cells[i], stream);
    }
    fputs("</tr>\n", stream);
    return RP_OK;
}

static void write_heading(const char *id, const char *text, FILE *stream)
{
    fprintf(stream, "<h2 id=\"%s\">", id);
    rp_page_write_text(text, stream);
    fprintf(stream, " <a href=\"#%s\" aria-label=\"link to this section\">#</a></h2>\n", id);
}

/* ---- the first screen ------------------------------------------------------------------------ */

static void write_keys(const rpsweep_parameters *parameters, FILE *stream)
{
    for (uint32_t i = 0; i < parameters->count; i++) {
        const rpsweep_parameter *now = &parameters->list[i];
        fprintf(stream, "%s%s (%u)", i > 0 ? ", " : "", now->key, now->values);
    }
}

static rp_status write_question(void *context, const char *const *cells, int columns)
{
    FILE *stream = context;
    (void)columns;
    fputs("<p>Experiment <b>", stream);
    rp_page_write_text(cells[0], stream);
    fputs("</b>: ", stream);
    if (cells[1] != NULL) {
        rp_page_write_text(cells[1], stream);
    }
    fprintf(stream, " %s points", cells[2]);
    if (strcmp(cells[3], "0") != 0) {
        fprintf(stream, ", <b>%s of them failed</b>", cells[3]);
    }
    fputs(".</p>\n", stream);
    return RP_OK;
}

typedef struct best_answer {
    const rpsweep_findings *findings;
    FILE *stream;
} best_answer;

static rp_status write_best_answer(void *context, const char *const *cells, int columns)
{
    const best_answer *best = context;
    const rpsweep_findings *f = best->findings;
    fprintf(best->stream, "<li>The best run has <b>%.6g %s</b>", strtod(cells[0], NULL),
            f->measure.name);
    for (int i = 1; i < columns; i++) {
        fprintf(best->stream, "%s%s ", i == 1 ? ": " : ", ", f->varied.list[i - 1].key);
        rp_page_write_text(cells[i] != NULL ? cells[i] : "none", best->stream);
    }
    fputs(".</li>\n", best->stream);
    return RP_OK;
}

/* Makes the query "SELECT FIRST, p_KEY, ... REST" with the keys of all settings that varied. */
static rp_status select_varied(const rpsweep_findings *f, const char *first, const char *rest,
                               const char **sql_out)
{
    const char *sql = NULL;
    RP_TRY(rp_arena_print(f->arena, &sql, "SELECT %s", first));
    for (uint32_t i = 0; i < f->varied.count; i++) {
        RP_TRY(rp_arena_print(f->arena, &sql, "%s, p_%s", sql, f->varied.list[i].key));
    }
    return rp_arena_print(f->arena, sql_out, "%s %s", sql, rest);
}

static rp_status write_summary(const rpsweep_findings *f, FILE *stream)
{
    const char *sql = NULL;
    const char *rest = NULL;
    RP_TRY(rp_store_query(
        f->store,
        "SELECT name, question, count(points.id), count(failure) FROM experiments"
        " LEFT JOIN points ON experiment_id = experiments.id GROUP BY experiments.id",
        write_question, stream));
    fprintf(stream, "<ul><li><b>%" PRIu64 "</b> runs", f->latest);
    if (f->runs > f->latest) {
        fprintf(stream, "; %" PRIu64 " older ones of the same configurations are left out",
                f->runs - f->latest);
    }
    if (f->unfit > 0) {
        fprintf(stream, "; %" PRIu64 " do not fit into memory%s", f->unfit,
                f->unfit_count ? ", and are compared all the same" : " and are not compared");
    }
    fputs(".</li>\n<li>What varied, with the number of values: ", stream);
    write_keys(&f->varied, stream);
    fputs(f->varied.count == 0 ? "nothing" : "", stream);
    if (f->follow.count > 0) {
        fputs("; given by these: ", stream);
        write_keys(&f->follow, stream);
    }
    fputs(".</li>\n", stream);
    RP_TRY(rp_arena_print(f->arena, &rest,
                          "FROM temp.report WHERE %s ORDER BY y %s, run_id LIMIT 1",
                          rpsweep_compared(f), f->measure.least_is_best ? "ASC" : "DESC"));
    RP_TRY(select_varied(f, "y", rest, &sql));
    RP_TRY(rp_store_query(f->store, sql, write_best_answer, &(best_answer){f, stream}));
    fputs("</ul>\n", stream);
    return RP_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static rp_status read_count(void *context, const char *const *cells, int columns)
{
    (void)columns;
    *(bool *)context = strcmp(cells[0], "0") != 0;
    return RP_OK;
}

/* Adds a column of the view summary to the table of the best, if any run has it. */
static rp_status add_result(const rpsweep_findings *f, const char *name, const char *heading,
                            const char **sql, FILE *stream)
{
    const char *count = NULL;
    bool is_there = false;
    if (strcmp(name, f->measure.column) == 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_print(f->arena, &count, "SELECT count(%s) FROM summary WHERE latest", name));
    RP_TRY(rp_store_query(f->store, count, read_count, &is_there));
    if (!is_there) {
        return RP_OK;
    }
    bool bytes = strstr(name, "_bytes") != NULL;
    fprintf(stream, "<th class=\"n\">%s</th>", heading);
    return bytes ? rp_arena_print(f->arena, sql,
                                  "%s, CASE WHEN summary.%s > 0 THEN"
                                  " printf('%%.1f', summary.%s / 1e9) END",
                                  *sql, name, name)
                 : rp_arena_print(f->arena, sql, "%s, summary.%s", *sql, name);
}

static rp_status write_best(const rpsweep_findings *f, FILE *stream)
{
    static const char *const results[][2] = {{"tokens_per_s", "tokens/s"},
                                             {"makespan_ms", "makespan ms"},
                                             {"bubble_pct", "bubble %"},
                                             {"peak_gpu_bytes", "GPU GB"}};
    const char *sql = "SELECT y";
    write_heading("best", "Best points", stream);
    fprintf(stream,
            "<p class=\"note\">Up to %d of the best runs by %s.</p>\n"
            "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th class=\"n\">%s</th>",
            BEST_ROWS, f->measure.name, f->measure.name);
    for (uint32_t i = 0; i < f->varied.count; i++) {
        const rpsweep_parameter *now = &f->varied.list[i];
        RP_TRY(rp_arena_print(f->arena, &sql, "%s, p_%s", sql, now->key));
        fprintf(stream, "<th%s>%s</th>", now->is_number ? " class=\"n\"" : "", now->key);
    }
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        RP_TRY(add_result(f, results[i][0], results[i][1], &sql, stream));
    }
    fputs("</tr></thead><tbody>\n", stream);
    RP_TRY(rp_arena_print(f->arena, &sql,
                          "%s FROM (SELECT * FROM temp.report WHERE %s) JOIN summary USING (run_id)"
                          " ORDER BY y %s, run_id LIMIT %d",
                          sql, rpsweep_compared(f), f->measure.least_is_best ? "ASC" : "DESC",
                          BEST_ROWS));
    RP_TRY(rp_store_query(f->store, sql, write_row, stream));
    fputs("</tbody></table></div>\n", stream);
    return RP_OK;
}

static rp_status write_origin(const rpsweep_findings *f, FILE *stream)
{
    write_heading("origin", "Where it is from", stream);
    fputs("<p class=\"note\">Store ", stream);
    rp_page_write_text(f->path, stream);
    fprintf(stream,
            "; page by rpsweep %s. Every number is in the store: "
            "<code>rpsweep export summary --db F</code>.</p>\n",
            rp_version());
    fputs("<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>host</th><th>program</th>"
          "<th>version</th><th>commit</th><th class=\"n\">runs</th><th>first</th><th>last</th>"
          "</tr></thead><tbody>\n",
          stream);
    RP_TRY(rp_store_query(f->store,
                          "SELECT host, program, version, git_commit, count(*), min(created_utc),"
                          " max(created_utc) FROM runs GROUP BY host, program, version, git_commit",
                          write_row, stream));
    fputs("</tbody></table></div>\n<details><summary>The same in all runs</summary>"
          "<table class=\"facts\"><tbody>\n",
          stream);
    for (uint32_t i = 0; i < f->constant.count; i++) {
        fprintf(stream, "<tr><th>%s</th><td>", f->constant.list[i].key);
        rp_page_write_text(f->constant.list[i].same, stream);
        fputs("</td></tr>\n", stream);
    }
    fputs("</tbody></table></details>\n", stream);
    return RP_OK;
}

/* ---- pictures -------------------------------------------------------------------------------- */

static void write_plot(const rpsweep_plot *plot, FILE *stream)
{
    char id[80];
    snprintf(id, sizeof id, "by-%s", plot->parameter->key);
    write_heading(id, plot->parameter->key, stream);
    fputs("<figure>", stream);
    if (plot->wide != NULL) {
        fprintf(stream,
                "<picture><source media=\"(max-width: 44rem)\" srcset=\"%s\" />"
                "<img src=\"%s\" alt=\"",
                plot->narrow, plot->wide);
        rp_page_write_text(plot->shows, stream);
        fputs("\" /></picture>", stream);
    }
    fputs("<figcaption>", stream);
    if (plot->wide == NULL) {
        rp_page_write_text(plot->shows, stream);
    }
    fputs(" Each point is the best of all runs that share its two values.</figcaption></figure>\n",
          stream);
}

rp_status rpsweep_page(const rpsweep_findings *findings, const rpsweep_plot *plots, uint32_t count,
                       bool drawn, FILE *stream)
{
    const char *slash = strrchr(findings->path, '/');
    const char *name = slash != NULL ? slash + 1 : findings->path;
    fputs(head, stream);
    fputs("<title>", stream);
    rp_page_write_text(name, stream);
    fputs(": what varied</title>\n", stream);
    fputs(style, stream);
    fputs("</head><body><nav aria-label=\"Contents\"><p><a href=\"#top\">Summary</a>"
          "<a href=\"#best\">Best points</a>",
          stream);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, "<a href=\"#by-%s\">%s</a>", plots[i].parameter->key,
                plots[i].parameter->key);
    }
    fputs("<a href=\"#origin\">Origin</a></p></nav>\n<main id=\"top\"><h1>", stream);
    rp_page_write_text(name, stream);
    fputs("</h1>\n", stream);
    RP_TRY(write_summary(findings, stream));
    if (!drawn && count > 0) {
        fputs("<p><b>Without pictures:</b> gnuplot was missing when this page was made"
              " (package gnuplot-nox).</p>\n",
              stream);
    }
    RP_TRY(write_best(findings, stream));
    for (uint32_t i = 0; i < count; i++) {
        write_plot(&plots[i], stream);
    }
    if (count < findings->varied.count) {
        fprintf(stream,
                "<p class=\"note\">%u of the parameters have no picture: at most %d are"
                " drawn, and none of too many names.</p>\n",
                findings->varied.count - count, RPSWEEP_MOST_PLOTS);
    }
    RP_TRY(write_origin(findings, stream));
    fputs("</main></body></html>\n", stream);
    return RP_OK;
}
