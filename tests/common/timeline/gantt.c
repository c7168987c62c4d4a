#define _GNU_SOURCE /* memmem */
/* Gantt charts: files of the three types, their contents, and every failure. */
#include "common/timeline/gantt.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/timeline/gantt_boxes.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rp_program *program;
static rp_timeline *timeline;
static rp_metrics metrics;
static const char *folder;
static char messages[8192];

static void begin(void)
{
    setenv("RP_PLOTS", RP_SOURCE_ROOT "/plots", 1);
    folder = rp_test_make_folder();
    cr_assert(eq(int, rp_test_make_program(&program), RP_OK));
    cr_assert(eq(int, rp_test_make_timeline(program, &timeline), RP_OK));
    metrics = (rp_metrics){.makespan_ps = 8500000, .bubble_ps = 1700000};
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
    rp_test_remove(folder);
    rp_test_end(NULL);
}

TestSuite(gantt, .init = begin, .fini = end);

static void need_gnuplot(void)
{
    if (system("command -v gnuplot > /dev/null") != 0) {
        rp_test_remove(folder); /* a skipped test does not get to its end */
        cr_skip("gnuplot is not installed");
    }
}

static rp_status draw(const char *path, size_t count)
{
    rp_gantt_panel panels[40];
    for (size_t i = 0; i < count; i++) {
        panels[i] =
            (rp_gantt_panel){timeline, &metrics, i == 0 ? "1f1b" : "it's_{^2}", "a_model", 0, 0};
    }
    return rp_gantt_write(panels, count, path);
}

static rp_text draw_and_read(const char *name, size_t count)
{
    const char *path = rp_test_path(folder, name);
    rp_text file = {0};
    cr_assert(eq(int, draw(path, count), RP_OK), "%s", messages);
    cr_assert(eq(int, rp_text_read_file(path, (size_t)1 << 26, &file), RP_OK));
    return file;
}

static int count_text(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        count++;
    }
    return count;
}

Test(gantt, svg_says_what_is_shown)
{
    need_gnuplot();
    rp_text svg = draw_and_read("chart.svg", 2);
    cr_expect(strncmp(svg.bytes, "<?xml", 5) == 0);
    static const char *const parts[] = {
        "1f1b",          "it?s_{^2}",         "a_model",       "2 GPUs",    "2 microbatches",
        "bubble 10.0 %", "makespan 0.009 ms", "time (ms)",     "GPU 1",     "host",
        "forward",       "backward",          "LM head alone", "optimizer", "idle",
        "</svg>",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        cr_expect(strstr(svg.bytes, parts[i]) != NULL, "'%s' is not in the chart", parts[i]);
    }
    cr_expect(eq(int, count_text(svg.bytes, ">GPU 0<"), 2));
    cr_expect(eq(int, count_text(svg.bytes, "recompute"), 0), "a kind that does not occur");
    cr_expect(eq(int, count_text(svg.bytes, "merged"), 0));
    rp_text_fini(&svg);
}

Test(gantt, png_has_its_size)
{
    need_gnuplot();
    rp_text png = draw_and_read("chart.png", 1);
    const unsigned char *bytes = (const unsigned char *)png.bytes;
    cr_assert(png.length > 5000 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0);
    cr_expect(eq(int, bytes[18] << 8 | bytes[19], 2400));
    rp_text_fini(&png);
}

Test(gantt, pdf_is_complete)
{
    need_gnuplot();
    rp_text pdf = draw_and_read("chart.pdf", 1);
    cr_assert(pdf.length > 2000 && memcmp(pdf.bytes, "%PDF-", 5) == 0);
    cr_expect(strncmp(pdf.bytes + pdf.length - 6, "%%EOF", 5) == 0);
    const char *date = memmem(pdf.bytes, pdf.length, "/CreationDate (D:", 17);
    cr_expect(date != NULL && strncmp(date + 17, "00000000000000", 14) == 0,
              "the time of drawing is in the file");
    rp_text_fini(&pdf);
}

static void expect_failure(rp_status status, rp_status expected, const char *message)
{
    cr_expect(eq(int, status, expected));
    cr_expect(strstr(messages, message) != NULL, "no '%s' in: %s", message, messages);
}

Test(gantt, other_endings_are_refused)
{
    static const char *const names[] = {"chart.jpg", "chart", "chart.svg.gz", "svg", "-", ".PNG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        messages[0] = '\0';
        rp_log_capture_begin(messages, sizeof messages);
        expect_failure(rp_gantt_check_path("--gantt-out", names[i]), RP_USAGE,
                       ".svg, .png or .pdf");
        cr_expect(strstr(messages, "--gantt-out") != NULL);
        expect_failure(draw(names[i], 1), RP_USAGE, names[i]);
    }
}

Test(gantt, folder_that_does_not_exist)
{
    const char *path = rp_test_path(folder, "none/chart.svg");
    expect_failure(rp_gantt_check_path("--gantt-out", path), RP_INPUT, path);
    expect_failure(draw(path, 1), RP_INPUT, path);
}

Test(gantt, checking_a_path_leaves_nothing)
{
    cr_expect(eq(int, rp_gantt_check_path("x", rp_test_path(folder, "chart.pdf")), RP_OK));
    cr_expect(eq(sz, rp_test_remove(folder), 0));
}

Test(gantt, too_many_panels)
{
    const char *path = rp_test_path(folder, "chart.svg");
    expect_failure(draw(path, RP_GANTT_MAX_PANELS + 1), RP_USAGE, "valid values are 1 to 32");
    expect_failure(draw(path, 0), RP_USAGE, "0 schedules");
}

Test(gantt, missing_gnuplot)
{
    setenv("PATH", folder, 1);
    expect_failure(draw(rp_test_path(folder, "chart.svg"), 1), RP_TOOL, "package gnuplot-nox");
    cr_expect(eq(sz, rp_test_remove(folder), 0));
}

/* A made-up gnuplot writes half a picture and fails; the earlier picture stays. */
Test(gantt, failing_gnuplot)
{
    const char *fake = rp_test_path(folder, "gnuplot");
    const char *path = rp_test_path(folder, "chart.svg");
    FILE *script = fopen(fake, "w");
    fprintf(script, "#!/bin/sh\necho half\necho out of ink >&2\nexit 3\n");
    fclose(script);
    chmod(fake, 0755);
    FILE *before = fopen(path, "w");
    fprintf(before, "before");
    fclose(before);
    setenv("PATH", folder, 1);
    expect_failure(draw(path, 1), RP_TOOL, "gnuplot failed (exit status 3): out of ink");
    rp_text after = {0};
    cr_assert(eq(int, rp_text_read_file(path, 100, &after), RP_OK));
    cr_expect(eq(str, after.bytes, "before"));
    rp_text_fini(&after);
    cr_expect(eq(sz, rp_test_remove(folder), 2));
}

Test(gantt, broken_script_is_reported)
{
    need_gnuplot();
    setenv("RP_PLOTS", folder, 1);
    expect_failure(draw(rp_test_path(folder, "chart.svg"), 1), RP_TOOL, "gnuplot failed");
    cr_expect(eq(sz, rp_test_remove(folder), 0));
}

/* ---- boxes ----------------------------------------------------------------------------------- */

static const rp_gantt_window all = {.last = UINT32_MAX};

/* Only an iteration's own ops are drawn, from its first start. */
Test(gantt, boxes_of_one_iteration)
{
    rp_gantt_boxes boxes[2] = {0};
    rp_gantt_window first = rp_gantt_window_of(timeline, 0, 0);
    rp_gantt_window none = rp_gantt_window_of(timeline, 7, 9);
    cr_expect(eq(i64, first.begin_ps, timeline->start_ps[0]));
    cr_assert(eq(int, rp_gantt_boxes_collect(timeline, &first, 0, &boxes[0]), RP_OK));
    cr_assert(eq(int, rp_gantt_boxes_collect(timeline, &none, 0, &boxes[1]), RP_OK));
    cr_expect(eq(sz, boxes[0].count, RP_TEST_OPS - 1));
    cr_expect(eq(sz, boxes[1].count, 0));
    rp_gantt_boxes_fini(&boxes[0]);
    rp_gantt_window late = {.last = UINT32_MAX, .begin_ps = 1000};
    cr_assert(eq(int, rp_gantt_boxes_collect(timeline, &late, 0, &boxes[0]), RP_OK));
    cr_expect(eq(i64, boxes[0].boxes[0].begin_ps, timeline->start_ps[0] - 1000));
    rp_gantt_boxes_fini(&boxes[0]);
    rp_gantt_boxes_fini(&boxes[1]);
}

Test(gantt, boxes_of_all_ops_that_take_time)
{
    rp_gantt_boxes boxes = {0};
    cr_assert(eq(int, rp_gantt_boxes_collect(timeline, &all, 0, &boxes), RP_OK));
    cr_expect(eq(sz, boxes.count, RP_TEST_OPS - 1));
    cr_expect(boxes.rows == 3 && boxes.has_host && !boxes.has_merged);
    cr_expect(eq(int, boxes.boxes[0].colour, RP_GANTT_FORWARD));
    cr_expect(eq(int, boxes.boxes[2].colour, RP_GANTT_BACKWARD));
    cr_expect(eq(int, boxes.boxes[4].colour, RP_GANTT_HEAD), "its stage has no layers");
    cr_expect(eq(int, boxes.boxes[7].colour, RP_GANTT_HOST));
    cr_expect(eq(u32, boxes.boxes[3].microbatch, 1));
    rp_gantt_boxes_fini(&boxes);
}

/* Ops of 1, 1, 2 and 2 us on GPU 0: at 2.1 us the forwards become a box, the rest does not fit
 * together. */
Test(gantt, short_ops_are_merged)
{
    rp_gantt_boxes boxes = {0};
    cr_assert(eq(int, rp_gantt_boxes_collect(timeline, &all, 2100000, &boxes), RP_OK));
    cr_expect(boxes.has_merged);
    cr_expect(eq(i64, boxes.boxes[0].begin_ps, 0));
    cr_expect(eq(i64, boxes.boxes[0].end_ps, 2000002));
    cr_expect(eq(u32, boxes.boxes[0].microbatch, RP_GANTT_NO_LABEL));
    cr_expect(eq(i64, boxes.boxes[1].begin_ps, 4200000));
    cr_expect(eq(u32, boxes.boxes[1].microbatch, 0));
    rp_gantt_boxes_fini(&boxes);
}

/* 400,000 ops of a picosecond: few boxes, a note, and a modest file. */
Test(gantt, many_ops)
{
    need_gnuplot();
    enum { OPS = 400000 };
    rp_queue queue = {0, OPS, 0, RP_QUEUE_COMPUTE};
    program->gpu_count = 1;
    program->queue_count = 1;
    program->queues = &queue;
    program->op_count = OPS;
    cr_assert(eq(int, rp_arena_alloc(program->arena, OPS, sizeof(rp_op), &program->ops), RP_OK));
    rp_timeline_destroy(timeline);
    cr_assert(eq(int, rp_timeline_create(program, &timeline), RP_OK));
    for (uint32_t op = 0; op < OPS; op++) {
        program->ops[op].kind = op % 3 == 0 ? RP_OP_FORWARD : RP_OP_BACKWARD;
        timeline->start_ps[op] = op;
        timeline->end_ps[op] = op + 1;
    }
    metrics.makespan_ps = OPS;
    rp_text svg = draw_and_read("chart.svg", 1);
    cr_expect(strstr(svg.bytes, "are merged with their neighbours") != NULL);
    cr_expect(svg.length < 2000000, "%zu bytes", svg.length);
    cr_expect(eq(int, count_text(svg.bytes, ">forward<"), 0), "most of each box is backward");
    rp_text_fini(&svg);
}

Test(gantt, plots_root)
{
    setenv("RP_PLOTS", "/somewhere", 1);
    cr_expect(eq(str, (char *)rp_plots_root(), "/somewhere"));
    unsetenv("RP_PLOTS");
    cr_expect(eq(int, access(rp_test_path(rp_plots_root(), "gantt.gp"), R_OK), 0));
}
