/* Pictures of the settings that varied: a parameter to the right, the measure upwards, a line per
 * series. */
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/timeline/gantt.h"
#include "experiments/report/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A picture with more names below its axis cannot be read. */
#define MOST_NAMES 32
#define NAME_LENGTH 40
/* Largest count of numbers that do not touch each other on a phone. */
#define MOST_TICS 8

/* A point of a series: the best of all runs with this series and this value of the parameter. */
typedef struct point {
    const char *series;
    const char *at;
    double y;
    uint32_t place; /* place of a name on the axis */
} point;

typedef struct picture {
    const rpsweep_findings *findings;
    const rpsweep_parameter *parameter;
    const rpsweep_parameter *series_or_null; /* parameter of the lines; NULL: a single line */
    point *points;                           /* sorted by series, then by value */
    uint32_t count;
    uint32_t capacity;
    const char *series[RPSWEEP_MOST_SERIES]; /* the series that are drawn */
    uint32_t series_count;
    const char *names[MOST_NAMES];
    uint32_t name_count;
} picture;

/* ---- data ------------------------------------------------------------------------------------ */

static rp_status read_point(void *context, const char *const *cells, int columns)
{
    picture *p = context;
    rp_arena *arena = p->findings->arena;
    (void)columns;
    RP_TRY(rp_mem_reserve(&p->points, p->count, &p->capacity, sizeof *p->points));
    point *now = &p->points[p->count++];
    *now = (point){.y = strtod(cells[2], NULL)};
    RP_TRY(rp_arena_copy_text(arena, cells[0], strlen(cells[0]), &now->series));
    return rp_arena_copy_text(arena, cells[1], strlen(cells[1]), &now->at);
}

static rp_status read_points(picture *p)
{
    const rpsweep_findings *f = p->findings;
    const char *key = p->parameter->key;
    const char *series = "'all runs'";
    const char *sql = NULL;
    if (p->series_or_null != NULL) {
        RP_TRY(rp_arena_print(f->arena, &series, "coalesce(p_%s, 'none')", p->series_or_null->key));
    }
    RP_TRY(rp_arena_print(f->arena, &sql,
                          "SELECT %s, coalesce(p_%s, 'none'), %s(y) FROM temp.report WHERE %s"
                          " GROUP BY 1, 2 ORDER BY 1, p_%s",
                          series, key, f->measure.least_is_best ? "min" : "max",
                          rpsweep_compared(f), key));
    return rp_store_query(f->store, sql, read_point, p);
}

static bool is_better(const picture *p, double a, double b)
{
    return p->findings->measure.least_is_best ? a < b : a > b;
}

/* Chooses the series with the best points, best first. */
static void choose_series(picture *p)
{
    double best[RPSWEEP_MOST_SERIES];
    for (uint32_t i = 0; i < p->count;) {
        const char *name = p->points[i].series;
        double y = p->points[i].y;
        for (; i < p->count && strcmp(p->points[i].series, name) == 0; i++) {
            y = is_better(p, p->points[i].y, y) ? p->points[i].y : y;
        }
        uint32_t at = p->series_count;
        while (at > 0 && is_better(p, y, best[at - 1])) {
            at--;
        }
        if (at == RPSWEEP_MOST_SERIES) {
            continue;
        }
        p->series_count += p->series_count < RPSWEEP_MOST_SERIES ? 1 : 0;
        for (uint32_t k = p->series_count - 1; k > at; k--) {
            p->series[k] = p->series[k - 1];
            best[k] = best[k - 1];
        }
        p->series[at] = name;
        best[at] = y;
    }
}

static void place_names(picture *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t place = 0;
        while (place < p->name_count && strcmp(p->names[place], p->points[i].at) != 0) {
            place++;
        }
        if (place == p->name_count && place < MOST_NAMES) {
            p->names[p->name_count++] = p->points[i].at;
        }
        p->points[i].place = place;
    }
}

/* ---- gnuplot --------------------------------------------------------------------------------- */

/* Writes a name as a string of gnuplot in single quotes; a long name is cut. */
static void write_name(const char *name, FILE *script)
{
    uint32_t length = 0;
    fputc('\'', script);
    for (const char *at = name; *at != '\0' && (length < NAME_LENGTH || (*at & 0xc0) == 0x80);
         at++, length++) {
        unsigned char byte = (unsigned char)*at;
        fputs(byte == '\'' ? "'" : "", script);
        fputc(byte < ' ' || byte == 127 ? ' ' : byte, script);
    }
    fputs(strlen(name) > length ? "…'" : "'", script);
}

static bool is_wide_range(const picture *p, bool of_parameter)
{
    double least = INFINITY;
    double most = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        double value = of_parameter ? strtod(p->points[i].at, NULL) : p->points[i].y;
        least = fmin(least, value);
        most = fmax(most, value);
    }
    return least > 0 && most / least > (of_parameter ? 7 : 20);
}

/* Writes the tics: if there are few values, a tic at each of them. */
static void write_tics(const picture *p, FILE *script)
{
    if (p->name_count > MOST_TICS) {
        return;
    }
    fputs("set xtics ()\n", script);
    for (uint32_t i = 0; i < p->name_count; i++) {
        fprintf(script, "set xtics add ('%.6g' %s)\n", strtod(p->names[i], NULL), p->names[i]);
    }
}

static void write_axes(const picture *p, bool narrow, FILE *script)
{
    const rpsweep_parameter *parameter = p->parameter;
    fprintf(script, "width = %d\nheight = %d\next = 'svg'\n", narrow ? 358 : 900,
            narrow ? 380 : 420);
    fprintf(script, "load '%s/style.gp'\n", rp_plots_root());
    fputs("set border 3\nset grid ytics linecolor rgb faint linewidth 0.6 linetype 1\n"
          "set tics nomirror out scale 0.5 font font_text\n"
          "set format y '%.10g'\nset offsets graph 0.04, graph 0.04, graph 0.06, graph 0\n",
          script);
    fprintf(script, "set key outside %s Left reverse noenhanced samplen 1.5 font font_text%s\n",
            narrow ? "above left horizontal" : "right top vertical",
            p->series_or_null == NULL ? "\nunset key" : "");
    fprintf(script, "set xlabel '%s' noenhanced font font_text\n", parameter->key);
    fprintf(script, "set ylabel '%s' noenhanced font font_text\n", p->findings->measure.name);
    if (is_wide_range(p, false)) {
        fputs("set logscale y\n", script);
    } else {
        fputs("set yrange [0 : *]\n", script);
    }
    if (!parameter->is_number) {
        fprintf(script, "set xtics () rotate by %d right noenhanced font font_small\n",
                narrow && p->name_count > 8 ? 90 : 35);
        for (uint32_t i = 0; i < p->name_count; i++) {
            fputs("set xtics add (", script);
            write_name(p->names[i], script);
            fprintf(script, " %u)\n", i);
        }
        fprintf(script, "set xrange [-0.5 : %u.5]\nset offsets 0, 0, graph 0.06, 0\n",
                p->name_count - 1);
    } else {
        fputs(is_wide_range(p, true) ? "set logscale x 2\n" : "", script);
        write_tics(p, script);
    }
}

static void write_script(const picture *p, bool narrow, FILE *script)
{
    static const char *const colours[RPSWEEP_MOST_SERIES] = {
        "#5b2a86", "#b5452c", "#2f6fa8", "#1f8a5b", "#b8860b", "#d0679d", "#222222", "#7fb8e6"};
    write_axes(p, narrow, script);
    for (uint32_t s = 0; s < p->series_count; s++) {
        fprintf(script, "$series%u << END\n", s);
        for (uint32_t i = 0; i < p->count; i++) {
            const point *now = &p->points[i];
            if (strcmp(now->series, p->series[s]) != 0) {
                continue;
            }
            if (p->parameter->is_number) {
                fprintf(script, "%s %.17g\n", now->at, now->y);
            } else {
                fprintf(script, "%u %.17g\n", now->place, now->y);
            }
        }
        fputs("END\n", script);
    }
    fputs("plot", script);
    for (uint32_t s = 0; s < p->series_count; s++) {
        fprintf(script,
                "%s $series%u using 1:2 with %s linecolor rgb '%s' linewidth 1.5 pointtype %d"
                " pointsize 1.8 * mark title ",
                s > 0 ? "," : "", s, p->parameter->is_number ? "linespoints" : "points", colours[s],
                (int[]){7, 5, 9, 13, 6, 4, 8, 12}[s]);
        write_name(p->series[s], script);
    }
    fputc('\n', script);
}

/* Encodes a whole file as a data URL. */
static rp_status encode(FILE *svg, rp_arena *arena, const char **url_out)
{
    rp_text url = {0};
    rp_status status = rp_text_print(&url, "data:image/svg+xml,");
    rewind(svg);
    for (int byte = fgetc(svg); byte != EOF && status == RP_OK; byte = fgetc(svg)) {
        char plain = (char)byte;
        bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                        (byte >= 'A' && byte <= 'Z') ||
                        (byte != 0 && strchr("-._~/:=;()!*@$", byte));
        status = is_plain ? rp_text_append(&url, &plain, 1)
                          : rp_text_print(&url, "%%%02X", (unsigned)byte);
    }
    if (status == RP_OK) {
        status = rp_arena_copy_text(arena, url.bytes, url.length, url_out);
    }
    rp_text_fini(&url);
    return status;
}

static rp_status run_gnuplot(const picture *p, bool narrow, const char **url_out)
{
    static const char *const argv[] = {"gnuplot", "-", NULL};
    FILE *script = tmpfile();
    FILE *svg = tmpfile();
    rp_status status = RP_IO;
    if (script == NULL || svg == NULL) {
        rp_log_error("a temporary file for a picture cannot be made: %s", strerror(errno));
    } else {
        write_script(p, narrow, script);
        status = fflush(script) == 0 && !ferror(script) ? RP_OK : RP_IO;
    }
    if (status == RP_OK) {
        status = rp_process_run(
            &(rp_process){.argv = argv, .package = "gnuplot-nox", .input = script, .output = svg});
    }
    if (status == RP_OK && (fflush(svg) != 0 || ferror(svg))) {
        rp_log_error("a temporary file for a picture cannot be written: %s", strerror(errno));
        status = RP_IO;
    }
    if (status == RP_OK) {
        status = encode(svg, p->findings->arena, url_out);
    }
    if (script != NULL) {
        fclose(script);
    }
    if (svg != NULL) {
        fclose(svg);
    }
    return status;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Adds a result and the value of the parameter, with as many digits as are significant. */
static rp_status add_point(rp_text *text, const char *before, const point *at)
{
    RP_TRY(rp_text_print(text, "%s%.*f at ", before,
                         fabs(at->y) >= 1000 ? 0
                         : fabs(at->y) >= 1  ? 2
                                             : 5,
                         at->y));
    return rp_text_print(text, "%s", at->at);
}

/* Describes a line by its first, its last and its best point. */
static rp_status describe_series(const picture *p, const char *series, rp_text *text)
{
    const point *first = NULL;
    const point *last = NULL;
    const point *best = NULL;
    for (uint32_t i = 0; i < p->count; i++) {
        const point *now = &p->points[i];
        if (strcmp(now->series, series) == 0) {
            first = first != NULL ? first : now;
            best = best == NULL || is_better(p, now->y, best->y) ? now : best;
            last = now;
        }
    }
    RP_TRY(rp_text_print(text, " %s: ", series));
    RP_TRY(add_point(text, "", first));
    if (last != first) {
        RP_TRY(add_point(text, ", ", last));
        RP_TRY(add_point(text, "; best ", best));
    }
    return rp_text_print(text, ".");
}

static rp_status describe(const picture *p, const char **shows_out)
{
    const rpsweep_findings *f = p->findings;
    rp_text text = {0};
    rp_status status = rp_text_print(&text, "%s against %s%s%s.", f->measure.name,
                                     p->parameter->key, p->series_or_null != NULL ? ", by " : "",
                                     p->series_or_null != NULL ? p->series_or_null->key : "");
    for (uint32_t s = 0; s < p->series_count && status == RP_OK; s++) {
        status = describe_series(p, p->series[s], &text);
    }
    if (status == RP_OK) {
        status = rp_arena_copy_text(f->arena, text.bytes, text.length, shows_out);
    }
    rp_text_fini(&text);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static const rpsweep_parameter *series_for(const rpsweep_findings *f, const char *key)
{
    for (uint32_t i = 0; i < f->varied.count; i++) {
        const rpsweep_parameter *parameter = &f->varied.list[i];
        if (!parameter->is_number && strcmp(parameter->key, key) != 0) {
            return parameter;
        }
    }
    return NULL;
}

static rp_status draw(const rpsweep_findings *f, const rpsweep_parameter *parameter, bool drawn,
                      rpsweep_plot *plot, bool *empty_out)
{
    picture p = {
        .findings = f, .parameter = parameter, .series_or_null = series_for(f, parameter->key)};
    rp_status status = read_points(&p);
    choose_series(&p);
    place_names(&p);
    *empty_out = p.count == 0;
    *plot = (rpsweep_plot){.parameter = parameter};
    if (status == RP_OK && !*empty_out) {
        status = describe(&p, &plot->shows);
    }
    if (status == RP_OK && !*empty_out && drawn) {
        status = run_gnuplot(&p, false, &plot->wide);
        status = status == RP_OK ? run_gnuplot(&p, true, &plot->narrow) : status;
    }
    rp_mem_release(&p.points);
    return status;
}

static bool has_gnuplot(rp_arena *arena)
{
    const char *folder = getenv("PATH");
    while (folder != NULL && *folder != '\0') {
        size_t length = strcspn(folder, ":");
        const char *path = NULL;
        if (rp_arena_print(arena, &path, "%.*s/gnuplot", (int)length, folder) == RP_OK &&
            access(path, X_OK) == 0) {
            return true;
        }
        folder += length + (folder[length] == ':' ? 1 : 0);
    }
    return false;
}

rp_status rpsweep_draw(const rpsweep_findings *findings, rpsweep_plot **plots_out,
                       uint32_t *count_out, bool *drawn_out)
{
    *drawn_out = has_gnuplot(findings->arena);
    *count_out = 0;
    RP_TRY(rp_arena_alloc(findings->arena, RPSWEEP_MOST_PLOTS, sizeof **plots_out, plots_out));
    for (uint32_t i = 0; i < findings->varied.count && *count_out < RPSWEEP_MOST_PLOTS; i++) {
        const rpsweep_parameter *parameter = &findings->varied.list[i];
        bool empty = true;
        if (!parameter->is_number && parameter->values > MOST_NAMES) {
            continue;
        }
        RP_TRY(draw(findings, parameter, *drawn_out, &(*plots_out)[*count_out], &empty));
        *count_out += empty ? 0 : 1;
    }
    return RP_OK;
}
