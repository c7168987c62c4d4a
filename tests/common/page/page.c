/* A small timeline's page, read back: ops to the picosecond, causes and critical path by hand,
 * escaped text, and notes about unknown data. */
#include "common/page/page.h"
#include "common/timeline/timeline_rows.h"
#include "common/timeline/walk.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MOST_NUMBERS 4096
#define NONE UINT32_MAX

static rp_program *program;
static rp_timeline *timeline;
static char *text; /* of the latest page */
static size_t length;

static void begin(void)
{
    rp_test_log_begin();
    cr_assert(eq(int, rp_test_make_program(&program), RP_OK));
    cr_assert(eq(int, rp_test_make_timeline(program, &timeline), RP_OK));
}

static void end(void)
{
    free(text);
    text = NULL;
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
    rp_test_log_end();
}

TestSuite(page, .init = begin, .fini = end);

static void write_page(const rp_page *page)
{
    free(text);
    FILE *stream = open_memstream(&text, &length);
    cr_assert(eq(int, rp_page_write(page, stream), RP_OK));
    fclose(stream);
}

static void write_runs(const rp_page_run *runs, uint32_t count)
{
    const rp_page page = {.title = "title",
                          .answer = "answer",
                          .command = "command",
                          .made_by = "test",
                          .runs = runs,
                          .run_count = count};
    write_page(&page);
}

/* ---- reading it back ------------------------------------------------------------------------- */

/* Text of the script element with this id, up to its end. */
static const char *element(const char *id, size_t *length_out)
{
    char name[64];
    snprintf(name, sizeof name, "id=\"%s\">", id);
    const char *at = strstr(text, name);
    cr_assert(ne(ptr, (void *)at, NULL), "%s", id);
    at += strlen(name);
    *length_out = (size_t)(strstr(at, "</script>") - at);
    return at;
}

static json_t *read_head(void)
{
    size_t size = 0;
    const char *at = element("data", &size);
    json_error_t error;
    json_t *head = json_loadb(at, size, 0, &error);
    cr_assert(ne(ptr, head, NULL), "%s", error.text);
    return head;
}

static size_t read_base64(const char *at, size_t size, unsigned char *bytes_out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t count = 0;
    uint32_t group = 0;
    for (size_t i = 0; i < size && at[i] != '='; i++) {
        group = group << 6 | (uint32_t)(strchr(digits, at[i]) - digits);
        if (i % 4 != 0) {
            bytes_out[count++] = (unsigned char)(group >> (6 - 2 * (i % 4)));
        }
    }
    return count;
}

typedef struct numbers {
    int64_t values[MOST_NUMBERS];
    size_t count;
    size_t at;
} numbers;

static void read_numbers(const char *id, numbers *out)
{
    static unsigned char packed[65536];
    static unsigned char bytes[65536];
    uLongf size = sizeof bytes;
    size_t packed_size = 0;
    const char *at = element(id, &packed_size);
    cr_assert(lt(sz, packed_size, sizeof packed));
    packed_size = read_base64(at, packed_size, packed);
    cr_assert(eq(int, uncompress(bytes, &size, packed, packed_size), Z_OK));
    *out = (numbers){.count = 0};
    uint64_t value = 0;
    unsigned shift = 0;
    for (uLongf i = 0; i < size; i++) {
        value |= (uint64_t)(bytes[i] & 127) << shift;
        shift += 7;
        if (bytes[i] < 128) {
            cr_assert(lt(sz, out->count, (size_t)MOST_NUMBERS));
            bool negative = (value & 1) != 0;
            int64_t half = (int64_t)(value >> 1);
            out->values[out->count++] = negative ? -1 - half : half;
            value = 0;
            shift = 0;
        }
    }
}

static const int64_t *column(const json_t *head, const numbers *n, const char *name)
{
    const json_t *names = json_object_get(head, "columns");
    for (size_t i = 0; i < json_array_size(names); i++) {
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0) {
            return &n->values[i * RP_TEST_OPS];
        }
    }
    cr_assert(false, "no column %s", name);
    return NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void expect_times(const json_t *head, const numbers *n, int64_t unit_ps)
{
    const int64_t *gap = column(head, n, "gap");
    const int64_t *duration = column(head, n, "duration");
    int64_t at = 0;
    for (uint32_t op = 0; op < RP_TEST_OPS; op++) {
        bool first = op == 0 || op == 4 || op == 8;
        int64_t start = (first ? 0 : at) + gap[op];
        at = start + duration[op];
        cr_expect(eq(i64, start, timeline->start_ps[op] / unit_ps), "op %u", op);
        cr_expect(eq(i64, at, timeline->end_ps[op] / unit_ps), "op %u", op);
    }
}

/* Starts and ends of make_program.c: an op's cause is the last to end of its predecessor and its
 * waits. */
Test(page, ops_and_causes_are_read_back)
{
    static const uint32_t causes[RP_TEST_OPS] = {NONE, 0, 5, 2, 0, 4, 5, 6, 3};
    static const rp_delay reasons[RP_TEST_OPS] = {RP_DELAY_START, RP_DELAY_QUEUE, RP_DELAY_DATA,
                                                  RP_DELAY_QUEUE, RP_DELAY_DATA,  RP_DELAY_QUEUE,
                                                  RP_DELAY_QUEUE, RP_DELAY_QUEUE, RP_DELAY_CONTROL};
    const rp_page_run run = {.name = "by hand", .timeline = timeline};
    numbers n;
    write_runs(&run, 1);
    json_t *head = read_head();
    read_numbers("ops-0", &n);
    expect_times(head, &n, 1);
    const int64_t *cause = column(head, &n, "cause");
    const int64_t *reason = column(head, &n, "reason");
    const int64_t *microbatch = column(head, &n, "microbatch");
    const int64_t *kind = column(head, &n, "kind");
    for (uint32_t op = 0; op < RP_TEST_OPS; op++) {
        int64_t expected = causes[op] == NONE ? 0 : (int64_t)causes[op] - op;
        cr_expect(eq(i64, cause[op], expected), "op %u", op);
        cr_expect(eq(i64, reason[op], reasons[op]), "op %u", op);
        cr_expect(eq(i64, microbatch[op], program->ops[op].microbatch), "op %u", op);
        cr_expect(eq(i64, kind[op], program->ops[op].kind), "op %u", op);
    }
    json_decref(head);
}

/* From 0 to the makespan of 8500 ns; no op runs between 4100.003 and 4200 ns, and before 1100 ns.
 */
Test(page, critical_path_is_whole)
{
    static const uint32_t path[] = {0, 4, 5, 2, 3, 8};
    const rp_page_run run = {.name = "by hand", .timeline = timeline};
    numbers n;
    write_runs(&run, 1);
    json_t *head = read_head();
    read_numbers("ops-0", &n);
    const json_t *of_run = json_array_get(json_object_get(head, "runs"), 0);
    size_t pieces = (size_t)json_integer_value(json_object_get(of_run, "pieces"));
    n.at = json_array_size(json_object_get(head, "columns")) * RP_TEST_OPS;
    int64_t op = 0;
    int64_t sum_ps = 0;
    size_t ran = 0;
    for (size_t i = 0; i < pieces; i++) {
        op += n.values[n.at];
        sum_ps += n.values[n.at + 1];
        if (n.values[n.at + 2] == RP_WALK_STEP_RUN) {
            cr_assert(lt(sz, ran, COUNT(path)));
            cr_expect(eq(i64, op, path[ran++]));
        }
        n.at += 3;
    }
    cr_expect(eq(i64, sum_ps, 8500000));
    cr_expect(eq(sz, ran, COUNT(path)));
    json_decref(head);
}

/* Buffers of make_program.c: 1000 bytes each, on GPU 0 from op 0 to 2 and 1 to 3, on GPU 1 from op
 * 4 to 5 and 6 to 7; 500 bytes on the host during op 8. */
Test(page, memory_is_that_of_the_buffers)
{
    static const int64_t steps[][3] = {/* place, time, bytes from then on */
                                       {0, 0, 1000},      {0, 1000001, 2000}, {0, 6200007, 1000},
                                       {0, 8000000, 0},   {1, 1100000, 1000}, {1, 6000000, 0},
                                       {2, 8000000, 500}, {2, 8500000, 0}};
    const rp_page_run run = {.name = "by hand", .timeline = timeline};
    numbers n;
    write_runs(&run, 1);
    json_t *head = read_head();
    read_numbers("ops-0", &n);
    const json_t *of_run = json_array_get(json_object_get(head, "runs"), 0);
    size_t pieces = (size_t)json_integer_value(json_object_get(of_run, "pieces"));
    n.at = json_array_size(json_object_get(head, "columns")) * RP_TEST_OPS + 3 * pieces;
    size_t step = 0;
    for (int64_t place = 0; place < 3; place++) {
        int64_t time_ps = 0;
        int64_t bytes = 0;
        for (int64_t left = n.values[n.at++]; left > 0; left--) {
            time_ps += n.values[n.at++];
            bytes += n.values[n.at++];
            cr_assert(lt(sz, step, COUNT(steps)));
            cr_expect(eq(i64, place, steps[step][0]), "step %zu", step);
            cr_expect(eq(i64, time_ps, steps[step][1]), "step %zu", step);
            cr_expect(eq(i64, bytes, steps[step][2]), "step %zu", step);
            step++;
        }
    }
    cr_expect(eq(sz, step, COUNT(steps)));
    cr_expect(eq(sz, n.at, n.count));
    json_decref(head);
}

/* A run that takes other bytes than its buffers names them, and the page shows them. */
Test(page, the_figure_of_memory_is_what_the_run_takes)
{
    static const uint64_t peaks[] = {1500, 2500};
    const rp_page_run run = {.name = "by hand",
                             .timeline = timeline,
                             .memory = {.gpu_peaks = peaks, .peaks_are = "as an arena has it"}};
    write_runs(&run, 1);
    json_t *head = read_head();
    const json_t *of_run = json_array_get(json_object_get(head, "runs"), 0);
    const json_t *given = json_object_get(of_run, "gpuPeaks");
    cr_assert(eq(sz, json_array_size(given), 2));
    cr_expect(eq(i64, json_integer_value(json_array_get(given, 1)), 2500));
    cr_expect(eq(str, (char *)json_string_value(json_object_get(of_run, "peaksAre")),
                 "as an arena has it"));
    json_decref(head);
}

/* 2^53 ps are 2.5 hours. */
Test(page, long_runs_are_counted_in_nanoseconds)
{
    const rp_page_run run = {.name = "long", .timeline = timeline};
    numbers n;
    for (uint32_t op = 0; op < RP_TEST_OPS; op++) {
        timeline->start_ps[op] *= 4000000000;
        timeline->end_ps[op] *= 4000000000;
    }
    write_runs(&run, 1);
    json_t *head = read_head();
    read_numbers("ops-0", &n);
    const json_t *of_run = json_array_get(json_object_get(head, "runs"), 0);
    cr_expect(eq(i64, json_integer_value(json_object_get(of_run, "unitPs")), 1000));
    expect_times(head, &n, 1000);
    json_decref(head);
}

/* A timeline read without its program has no waits. */
Test(page, unknown_causes_are_left_out)
{
    rp_timeline_row rows[2] = {{.op = {.kind = RP_OP_FORWARD}, .end_ps = 10},
                               {.op = {.kind = RP_OP_BACKWARD}, .start_ps = 20, .end_ps = 30}};
    rp_read_timeline read;
    cr_assert(eq(int, rp_timeline_of_rows("rows", rows, COUNT(rows), &read), RP_OK));
    const rp_page_run run = {.name = "read", .timeline = read.timeline};
    write_runs(&run, 1);
    json_t *head = read_head();
    const json_t *of_run = json_array_get(json_object_get(head, "runs"), 0);
    bool knows = json_is_true(json_object_get(of_run, "knowsCauses"));
    cr_expect(eq(int, knows, 0));
    cr_expect(eq(i64, json_integer_value(json_object_get(of_run, "pieces")), 0));
    json_decref(head);
    rp_read_timeline_fini(&read);
}

/* No text of a user can begin or end an element. */
Test(page, text_is_escaped)
{
    static const char evil[] = "</script></title><script>alert(\"&amp;\")</script>";
    const char *const cells[] = {evil, NULL, "-1.5", evil};
    const char *const headings[] = {evil, "n"};
    const rp_page_table table = {.title = evil,
                                 .note = evil,
                                 .columns = 2,
                                 .rows = 2,
                                 .headings = headings,
                                 .cells = cells,
                                 .run = RP_PAGE_ALL_RUNS};
    const rp_page_run runs[] = {{.name = evil, .timeline = timeline},
                                {.name = "\xff<!--", .timeline = timeline}};
    const rp_page page = {.title = evil,
                          .answer = evil,
                          .command = evil,
                          .made_by = "right\xe2\x80\xaetfel <\xff",
                          .tables = &table,
                          .table_count = 1,
                          .runs = runs,
                          .run_count = 2};
    size_t ends = 0;
    write_page(&page);
    cr_expect(eq(ptr, (void *)strstr(text, "alert(\""), NULL));
    cr_expect(eq(ptr, (void *)strstr(text, "<!--"), NULL));
    cr_expect(eq(ptr, (void *)strstr(text, "\xe2\x80\xae"), NULL)); /* U+202E */
    cr_expect(strstr(text, "right\xef\xbf\xbdtfel &lt;\xef\xbf\xbd") != NULL);
    for (const char *at = strstr(text, "</script>"); at != NULL; at = strstr(at + 1, "</script>")) {
        ends++;
    }
    cr_expect(eq(sz, ends, (size_t)4)); /* names, two runs, the scripts */
    json_t *head = read_head();
    const json_t *of_run = json_array_get(json_object_get(head, "runs"), 0);
    cr_expect(eq(str, (char *)json_string_value(json_object_get(of_run, "name")), (char *)evil));
    json_decref(head);
}
