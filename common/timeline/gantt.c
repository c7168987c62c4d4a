#define _GNU_SOURCE /* memmem */
#include "common/timeline/gantt.h"

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/inputs/data.h"
#include "common/timeline/gantt_boxes.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The picture, in pixels of the SVG; this file computes everything that gantt.gp draws. */
#define WIDTH 1200
#define LEFT 66 /* "GPU 10" */
#define RIGHT 22
#define LEGEND 34
#define TITLE 24 /* above each panel */
#define GAP 8    /* below each panel */
#define AXIS 44  /* tics and name of the time axis */
#define NOTE 20
#define ROWS_HEIGHT 3000.0 /* most pixels for all rows together */
#define ROW_LARGEST 24.0
#define ROW_SMALLEST 0.5
#define PLOT_WIDTH (WIDTH - LEFT - RIGHT)

#define MOST_BOXES 60000u /* about 8 MB of SVG */
#define FEWEST_BINS 200u
#define MOST_BINS (2u * PLOT_WIDTH)

#define BORDER_FROM_PX 4.0 /* narrower boxes would be all border */
#define DIGIT_EM 0.64      /* DejaVu Sans, the widest of the usual fonts */
#define LABEL_LARGEST 11.0
#define LABEL_SMALLEST 6.0
#define LABEL_MARGIN 2.5
#define ROW_NAME_PX 13.0

static const struct {
    const char *name;
    const char *colour;
    bool white_text;
} colours[RP_GANTT_COLOUR_COUNT] = {
#define RP_GANTT_COLOUR(name, text, colour, text_colour) {text, colour, (text_colour)[0] == 'w'},
    RP_GANTT_COLOUR_LIST(RP_GANTT_COLOUR)
#undef RP_GANTT_COLOUR
};

/* Boxes of the same panel and style form a data set of gnuplot; its number is the layer's
 * number. */
typedef enum layer_style {
    STYLE_NARROW,
    STYLE_WIDE,
    STYLE_BLACK_TEXT,
    STYLE_WHITE_TEXT,
    STYLE_COUNT
} layer_style;

static const char *const style_names[STYLE_COUNT] = {"narrow", "wide", "black_text", "white_text"};

typedef struct picture {
    const rp_gantt_panel *panels;
    size_t count;
    rp_gantt_boxes *boxes;    /* [count] */
    rp_gantt_window *windows; /* [count] */
    FILE *script;
    int64_t span_ps;
    double row_px;
    double label_px;
    int64_t least_ps;
    bool merged;
    uint32_t layers; /* data sets so far */
    bool colour_used[RP_GANTT_COLOUR_COUNT];
} picture;

/* ---- paths ----------------------------------------------------------------------------------- */

const char *rp_plots_root(void)
{
    static _Thread_local char path[PATH_MAX];
    const char *set = getenv("RP_PLOTS");
    if (set != NULL && set[0] != '\0') {
        return set;
    }
    const char *shipped = rp_data_shipped();
    int length = snprintf(path, sizeof path, "%s/plots", shipped != NULL ? shipped : ".");
    return length < (int)sizeof path ? path : "plots";
}

/* The type of picture for a file name; NULL if gnuplot is not used for it. */
static const char *file_type(const char *path)
{
    static const char *const types[] = {"svg", "png", "pdf"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot != NULL && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(dot + 1, types[i]) == 0) {
            return types[i];
        }
    }
    return NULL;
}

static rp_status check_type(const char *what, const char *path)
{
    if (file_type(path) == NULL) {
        rp_log_error("%s: unknown type of picture '%s'; valid values are names that end in .svg, "
                     ".png or .pdf",
                     what, path);
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rp_gantt_check_path(const char *what, const char *path)
{
    RP_TRY(check_type(what, path));
    rp_output output;
    RP_TRY(rp_output_open(path, &output));
    rp_output_discard(&output);
    return RP_OK;
}

/* ---- layout ---------------------------------------------------------------------------------- */

static uint32_t count_rows(const picture *p)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < p->count; i++) {
        rows += p->panels[i].timeline->program->gpu_count;
    }
    return rows;
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* Sets the window of drawn iterations and returns its duration; for all iterations the metrics give
 * it. */
static int64_t take_window(const rp_gantt_panel *panel, rp_gantt_window *window_out)
{
    if (panel->first_iteration != 0) {
        *window_out = rp_gantt_window_of(panel->timeline, panel->first_iteration - 1,
                                         panel->last_iteration - 1);
        return window_out->end_ps - window_out->begin_ps;
    }
    *window_out = (rp_gantt_window){.last = UINT32_MAX, .end_ps = panel->metrics->makespan_ps};
    return panel->metrics->makespan_ps;
}

static rp_status lay_out(picture *p)
{
    uint32_t rows = count_rows(p);
    uint32_t bins = rows < MOST_BOXES ? MOST_BOXES / (rows > 0 ? rows : 1) : 0;
    bins = bins > MOST_BINS ? MOST_BINS : bins < FEWEST_BINS ? FEWEST_BINS : bins;
    p->span_ps = 1;
    for (size_t i = 0; i < p->count; i++) {
        int64_t makespan_ps = take_window(&p->panels[i], &p->windows[i]);
        p->span_ps = makespan_ps > p->span_ps ? makespan_ps : p->span_ps;
    }
    p->row_px = clamp(ROWS_HEIGHT / (rows > 0 ? rows : 1), ROW_SMALLEST, ROW_LARGEST);
    p->label_px = clamp(0.5 * p->row_px, 0, LABEL_LARGEST);
    p->least_ps = p->span_ps / bins;
    for (size_t i = 0; i < p->count; i++) {
        RP_TRY(rp_gantt_boxes_collect(p->panels[i].timeline, &p->windows[i], p->least_ps,
                                      &p->boxes[i]));
        p->merged |= p->boxes[i].has_merged;
    }
    return RP_OK;
}

static double width_px(const picture *p, const rp_gantt_box *box)
{
    return (double)(box->end_ps - box->begin_ps) / (double)p->span_ps * PLOT_WIDTH;
}

static bool label_fits(const picture *p, const rp_gantt_box *box)
{
    char text[16];
    if (box->microbatch == RP_GANTT_NO_LABEL || p->label_px < LABEL_SMALLEST) {
        return false;
    }
    int digits = snprintf(text, sizeof text, "%" PRIu32, box->microbatch);
    return width_px(p, box) >= DIGIT_EM * p->label_px * digits + LABEL_MARGIN;
}

/* ---- script ---------------------------------------------------------------------------------- */

/* Writes a gnuplot string in single quotes, in which only the quote itself is special. */
static void write_quoted(FILE *script, const char *text)
{
    putc('\'', script);
    for (const char *c = text; *c != '\0'; c++) {
        bool control = (unsigned char)*c < 0x20 || *c == 0x7f;
        putc(control ? '?' : *c, script);
        if (*c == '\'') {
            putc('\'', script);
        }
    }
    putc('\'', script);
}

/* Writes bold text in gnuplot's enhanced notation, the only notation that all three file types
 * accept. */
static void write_bold(FILE *script, const char *text)
{
    fputs("'{/:Bold ", script);
    for (const char *c = text; *c != '\0'; c++) {
        unsigned char byte = (unsigned char)*c;
        bool plain = byte >= 0x80 || isalnum(byte) || strchr("-+. ", byte) != NULL;
        bool impossible = byte < 0x20 || byte == '\'';
        fprintf(script, "%s%c", plain ? "" : "\\", impossible ? '?' : byte);
    }
    fputs("}'", script);
}

static void write_text(FILE *script, const char *name, const char *text)
{
    fprintf(script, "%s = ", name);
    write_quoted(script, text);
    putc('\n', script);
}

static bool belongs(const picture *p, const rp_gantt_box *box, rp_gantt_colour colour,
                    layer_style style)
{
    switch (style) {
    case STYLE_NARROW:
    case STYLE_WIDE: {
        bool wide = width_px(p, box) >= BORDER_FROM_PX && p->row_px >= 2 * BORDER_FROM_PX;
        return box->colour == colour && wide == (style == STYLE_WIDE);
    }
    case STYLE_BLACK_TEXT:
    case STYLE_WHITE_TEXT:
        return colours[box->colour].white_text == (style == STYLE_WHITE_TEXT) && label_fits(p, box);
    case STYLE_COUNT:
    default:
        return false;
    }
}

/* Rows count downwards from 0, so that GPU 0 is the highest. */
static void write_box(const picture *p, const rp_gantt_box *box, layer_style style)
{
    double begin_ms = rp_ps_to_ms(box->begin_ps);
    double end_ms = rp_ps_to_ms(box->end_ps);
    if (style == STYLE_NARROW || style == STYLE_WIDE) {
        /* Leaves a gap between rows that are high enough. */
        double half = p->row_px >= 4 ? 0.43 : 0.5;
        fprintf(p->script, "%.6f %.6f %.2f %.2f\n", begin_ms, end_ms, -(double)box->row - half,
                -(double)box->row + half);
    } else {
        fprintf(p->script, "%.6f %.0f %" PRIu32 "\n", (begin_ms + end_ms) / 2, -(double)box->row,
                box->microbatch);
    }
}

/* Draws a strip from 0 to the makespan in every row; ops cover the time that is not idle. */
static void write_idle(const picture *p, size_t panel)
{
    for (uint32_t row = 0; row < p->boxes[panel].rows; row++) {
        rp_gantt_box box = {.end_ps = p->panels[panel].metrics->makespan_ps, .row = row};
        write_box(p, &box, STYLE_NARROW);
    }
}

/* Writes a data set and returns whether it has content; gnuplot cannot plot an empty data set. */
static bool write_layer(picture *p, size_t panel, rp_gantt_colour colour, layer_style style)
{
    const rp_gantt_boxes *boxes = &p->boxes[panel];
    bool any = style == STYLE_NARROW && colour == RP_GANTT_IDLE;
    if (any) {
        write_idle(p, panel);
    }
    for (size_t i = 0; i < boxes->count; i++) {
        if (belongs(p, &boxes->boxes[i], colour, style)) {
            write_box(p, &boxes->boxes[i], style);
            any = true;
        }
    }
    if (any) {
        fputs("\n\n", p->script);
    }
    return any;
}

static rp_status write_layers(picture *p, size_t panel, rp_text *layers)
{
    for (int style = 0; style < STYLE_COUNT; style++) {
        RP_TRY(rp_text_print(layers, "%s[%zu] = '", style_names[style], panel + 1));
        bool per_colour = style == STYLE_NARROW || style == STYLE_WIDE;
        for (int c = 0; c < (per_colour ? RP_GANTT_COLOUR_COUNT : 1); c++) {
            if (!write_layer(p, panel, (rp_gantt_colour)c, (layer_style)style)) {
                continue;
            }
            p->colour_used[c] |= per_colour;
            RP_TRY(rp_text_print(layers, "%" PRIu32 "%s%s ", p->layers++, per_colour ? ":" : "",
                                 per_colour ? colours[c].colour : ""));
        }
        RP_TRY(rp_text_print(layers, "'\n"));
    }
    return RP_OK;
}

/* Writes the data sets first; the assignment of data sets to panels is known, and written, after
 * them. */
static rp_status write_data(picture *p)
{
    rp_text layers = {0};
    rp_status status = RP_OK;
    fprintf(p->script, "$boxes << RP_END_OF_DATA\n");
    for (size_t i = 0; i < p->count && status == RP_OK; i++) {
        status = write_layers(p, i, &layers);
    }
    fprintf(p->script, "RP_END_OF_DATA\n");
    for (int style = 0; style < STYLE_COUNT; style++) {
        fprintf(p->script, "array %s[%zu]\n", style_names[style], p->count);
    }
    fputs(layers.bytes != NULL ? layers.bytes : "", p->script);
    rp_text_fini(&layers);
    return status;
}

static void write_details(const picture *p, size_t index)
{
    const rp_gantt_panel *panel = &p->panels[index];
    const rp_program *program = panel->timeline->program;
    const rp_gantt_window *window = &p->windows[index];
    bool part = panel->first_iteration != 0;
    int64_t span_ps = window->end_ps - window->begin_ps;
    int64_t bubble_ps =
        part ? span_ps * program->gpu_count - window->busy_ps : panel->metrics->bubble_ps;
    double makespan_ms = rp_ps_to_ms(span_ps);
    double total_ms = makespan_ms * program->gpu_count;
    double bubble_pct = total_ms > 0 ? 100 * rp_ps_to_ms(bubble_ps) / total_ms : 0;
    char text[300];
    char iterations[64] = "";
    char bubble[32] = "";
    if (!part || !program->asynchronous) { /* neighbouring iterations fill its gaps */
        snprintf(bubble, sizeof bubble, "   bubble %.1f %%", bubble_pct);
    }
    if (part && panel->first_iteration == panel->last_iteration) {
        snprintf(iterations, sizeof iterations, "iteration %" PRIu32 " of %" PRIu32 "   ",
                 panel->first_iteration, program->iteration_count);
    } else if (part) {
        snprintf(iterations, sizeof iterations,
                 "iterations %" PRIu32 " to %" PRIu32 " of %" PRIu32 "   ", panel->first_iteration,
                 panel->last_iteration, program->iteration_count);
    } else if (program->iteration_count > 1) {
        snprintf(iterations, sizeof iterations, "%" PRIu32 " iterations   ",
                 program->iteration_count);
    }
    snprintf(text, sizeof text,
             "%.60s%s%" PRIu32 " GPU%s   %" PRIu32 " microbatch%s   %s%s %.*f ms%s",
             panel->model != NULL ? panel->model : "", panel->model != NULL ? "   " : "",
             program->gpu_count, program->gpu_count == 1 ? "" : "s", program->microbatch_count,
             program->microbatch_count == 1 ? "" : "es", iterations, part ? "time" : "makespan",
             makespan_ms < 100 ? 3 : 1, makespan_ms, bubble);
    fprintf(p->script, "details[%zu] = ", index + 1);
    write_quoted(p->script, text);
    fprintf(p->script, "\nname[%zu] = ", index + 1);
    write_bold(p->script, panel->schedule);
    fprintf(p->script, "\nmakespan[%zu] = %.6f\n", index + 1, makespan_ms);
}

/* Writes the geometry of the panels; returns the height of the whole picture. */
static double write_panels(const picture *p)
{
    static const char *const arrays[] = {"name", "details",   "makespan", "rows",
                                         "host", "row_names", "top",      "bottom"};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        fprintf(p->script, "array %s[%zu]\n", arrays[i], p->count);
    }
    double y = LEGEND;
    for (size_t i = 0; i < p->count; i++) {
        const rp_gantt_boxes *boxes = &p->boxes[i];
        uint32_t step = 1;
        while (step * p->row_px < ROW_NAME_PX) {
            step *= 2;
        }
        double bottom = y + TITLE + boxes->rows * p->row_px;
        write_details(p, i);
        fprintf(p->script,
                "rows[%zu] = %" PRIu32 "\nhost[%zu] = %d\nrow_names[%zu] = %" PRIu32
                "\ntop[%zu] = %.1f\nbottom[%zu] = %.1f\n",
                i + 1, boxes->rows, i + 1, boxes->has_host ? 1 : 0, i + 1, step, i + 1, y + TITLE,
                i + 1, bottom);
        y = bottom + GAP;
    }
    return y + AXIS + (p->merged ? NOTE : 0);
}

static void write_legend(const picture *p)
{
    const char *separator = "";
    fputs("legend = '", p->script);
    for (int c = 0; c < RP_GANTT_COLOUR_COUNT; c++) {
        if (p->colour_used[c]) {
            fprintf(p->script, "%s\"%s:%s\"", separator, colours[c].colour, colours[c].name);
            separator = " ";
        }
    }
    fputs("'\n", p->script);
}

static void write_note(const picture *p)
{
    char note[200] = "";
    if (p->merged) {
        snprintf(note, sizeof note,
                 "Ops shorter than %.3g ms are merged with their neighbours and take the colour of "
                 "the kind that lasts longest.",
                 rp_ps_to_ms(p->least_ps));
    }
    write_text(p->script, "note", note);
}

static rp_status write_script(picture *p, const char *type)
{
    RP_TRY(write_data(p));
    double height = write_panels(p);
    write_legend(p);
    write_note(p);
    write_text(p->script, "root", rp_plots_root());
    write_text(p->script, "ext", type);
    fprintf(p->script, "panels = %zu\nwidth = %d\nheight = %.0f\nleft = %d\nright = %d\n", p->count,
            WIDTH, height, LEFT, RIGHT);
    fprintf(p->script, "span = %.6f\nrow_font = %.1f\nbox_font = %.1f\n", rp_ps_to_ms(p->span_ps),
            clamp(0.55 * p->row_px, 10, 12), p->label_px);
    if (fflush(p->script) != 0 || ferror(p->script)) {
        rp_log_error("the temporary file of the Gantt chart cannot be written: %s",
                     strerror(errno));
        return RP_IO;
    }
    return RP_OK;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static rp_status run_gnuplot(FILE *script, FILE *output)
{
    char drawing[PATH_MAX];
    int length = snprintf(drawing, sizeof drawing, "%s/gantt.gp", rp_plots_root());
    if (length < 0 || (size_t)length >= sizeof drawing) {
        rp_log_error("the path of plots/gantt.gp is too long");
        return RP_IO;
    }
    const char *const argv[] = {"gnuplot", "-", drawing, NULL};
    rp_process process = {
        .argv = argv, .package = "gnuplot-nox", .input = script, .output = output};
    return rp_process_run(&process);
}

/* Replaces the digits of the drawing time in a PDF by zeros, so that equal charts have equal
 * bytes. */
static rp_status copy_without_time(FILE *from, FILE *to)
{
    static const char key[] = "/CreationDate (D:";
    rp_text drawn = {0};
    char block[4096];
    size_t count = 0;
    rp_status status = RP_OK;
    rewind(from);
    while (status == RP_OK && (count = fread(block, 1, sizeof block, from)) > 0) {
        status = rp_text_append(&drawn, block, count);
    }
    char *at = drawn.bytes;
    while (status == RP_OK && at != NULL) {
        size_t left = drawn.length - (size_t)(at - drawn.bytes);
        at = memmem(at, left, key, sizeof key - 1);
        for (at = at != NULL ? at + sizeof key - 1 : NULL; at != NULL && *at != ')' && *at != '\0';
             at++) {
            *at = *at >= '0' && *at <= '9' ? '0' : *at;
        }
    }
    if (status == RP_OK) {
        fwrite(drawn.bytes, 1, drawn.length, to);
    }
    rp_text_fini(&drawn);
    return status;
}

static rp_status draw_pdf(FILE *script, FILE *output)
{
    FILE *drawn = tmpfile();
    if (drawn == NULL) {
        rp_log_error("a temporary file for the Gantt chart cannot be made: %s", strerror(errno));
        return RP_IO;
    }
    rp_status status = run_gnuplot(script, drawn);
    if (status == RP_OK && (fflush(drawn) != 0 || ferror(drawn))) {
        rp_log_error("a temporary file for the Gantt chart cannot be written: %s", strerror(errno));
        status = RP_IO;
    }
    status = status == RP_OK ? copy_without_time(drawn, output) : status;
    (void)fclose(drawn);
    return status;
}

static rp_status draw(picture *p, const char *path)
{
    rp_output output;
    RP_TRY(rp_output_open(path, &output));
    rp_status status = RP_IO;
    p->script = tmpfile();
    if (p->script == NULL) {
        rp_log_error("a temporary file for the Gantt chart cannot be made: %s", strerror(errno));
        goto discard_output;
    }
    status = write_script(p, file_type(path));
    if (status == RP_OK) {
        bool pdf = strcmp(file_type(path), "pdf") == 0;
        status = (pdf ? draw_pdf : run_gnuplot)(p->script, output.stream);
    }
    fclose(p->script);
    if (status == RP_OK) {
        return rp_output_commit(&output);
    }
discard_output:
    rp_output_discard(&output);
    return status;
}

rp_status rp_gantt_write(const rp_gantt_panel *panels, size_t count, const char *path)
{
    RP_TRY(check_type("Gantt chart", path));
    if (count < 1 || count > RP_GANTT_MAX_PANELS) {
        rp_log_error("Gantt chart: %zu schedules; valid values are 1 to %u", count,
                     RP_GANTT_MAX_PANELS);
        return RP_USAGE;
    }
    rp_gantt_boxes boxes[RP_GANTT_MAX_PANELS] = {0};
    rp_gantt_window windows[RP_GANTT_MAX_PANELS];
    picture p = {.panels = panels, .count = count, .boxes = boxes, .windows = windows};
    rp_status status = lay_out(&p);
    if (status == RP_OK) {
        status = draw(&p, path);
    }
    for (size_t i = 0; i < count; i++) {
        rp_gantt_boxes_fini(&boxes[i]);
    }
    return status;
}
