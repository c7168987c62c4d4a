/* Written output: JSON, Chrome traces (read by jansson), timelines as CSV. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/json.h"
#include "common/schedule/build.h"
#include "common/schedule/even.h"
#include "common/schedule/schedule_type.h"
#include "common/timeline/chrome_trace.h"
#include "common/timeline/timeline_csv.h"
#include "sim/engine/stage_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rp_program *program;
static rp_timeline *timeline;
static char messages[4096];

static void begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    cr_assert(eq(int, rp_test_make_program(&program), RP_OK));
    cr_assert(eq(int, rp_program_check(program), RP_OK));
    cr_assert(eq(int, rp_test_make_timeline(program, &timeline), RP_OK));
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
    rp_test_end(NULL);
}

TestSuite(output, .init = begin, .fini = end);

/* ---- JSON ------------------------------------------------------------------------------------ */

static rp_json one_value;
static rp_json *const json = &one_value;
static char written[4096];

static void open_value(void)
{
    rp_json_begin_document(json, fmemopen(written, sizeof written, "w"), 0);
}

static char *close_value(void)
{
    rp_json_end_document(json);
    fclose(json->stream);
    written[strcspn(written, "\n")] = '\0';
    return written;
}

/* The text that a call, which writes to `json`, gives as a document's only value. */
#define WRITTEN(call) (open_value(), (call), close_value())

Test(output, json_structure)
{
    char *text;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    rp_json_begin_document(json, stream, 1);
    rp_json_begin_object(json);
    rp_json_key(json, "a");
    rp_json_begin_array(json);
    rp_json_int(json, INT64_MIN);
    rp_json_uint(json, UINT64_MAX);
    rp_json_begin_object(json);
    rp_json_end_object(json);
    rp_json_null(json);
    rp_json_end_array(json);
    rp_json_key(json, "b\"\n");
    rp_json_bool(json, true);
    rp_json_key(json, "c");
    rp_json_begin_array(json);
    rp_json_end_array(json);
    rp_json_end_object(json);
    rp_json_end_document(json);
    fclose(stream);
    cr_expect(eq(str, text,
                 "{\n  \"a\": [-9223372036854775808,18446744073709551615,{},null],\n"
                 "  \"b\\\"\\n\": true,\n  \"c\": []\n}\n"));
    free(text);
}

Test(output, json_strings)
{
    cr_expect(eq(str, WRITTEN(rp_json_string(json, "\"\\\b\x1f\x7f/")),
                 "\"\\\"\\\\\\u0008\\u001f\\u007f/\""));
    cr_expect(eq(str, WRITTEN(rp_json_string(json, NULL)), "null"));
    cr_expect(eq(str, WRITTEN(rp_json_string_n(json, "a\0b", 3)), "\"a\\u0000b\""));
    cr_expect(eq(str, WRITTEN(rp_json_string(json, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")),
                 "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""));
}

/* Each byte of a sequence that RFC 3629 forbids becomes a U+FFFD. */
Test(output, json_invalid_utf8)
{
    static const struct {
        const char *bytes;
        int replaced;
    } cases[] = {
        {"\x80", 1},
        {"\xc0\xaf", 2},
        {"\xe0\x80\xaf", 3},
        {"\xed\xa0\x80", 3},
        {"\xf4\x90\x80\x80", 4},
        {"\xf8\x88\x80\x80", 4},
        {"\xe2\x82", 2},
        {"\xff", 1},
        {"\xf0\x8f\xbf\xbf", 4},
        {"\xc3", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[64] = "\"";
        for (int k = 0; k < cases[i].replaced; k++) {
            strcat(expected, "\xef\xbf\xbd");
        }
        strcat(expected, "\"");
        cr_expect(eq(str, WRITTEN(rp_json_string(json, cases[i].bytes)), expected));
        json_t *value = json_loads(written, JSON_DECODE_ANY, NULL);
        cr_expect(ne(ptr, value, NULL));
        json_decref(value);
    }
}

Test(output, json_doubles)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.1, "0.1"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e22, "1e+22"},
        {-0.0, "-0"},
        {5e-324, "5e-324"},
        {100000, "100000"},
        {NAN, "null"},
        {INFINITY, "null"},
        {1.0 / 3, "0.3333333333333333"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect(eq(str, WRITTEN(rp_json_double(json, cases[i].value)), (char *)cases[i].text));
    }
}

/* Random bit patterns: the printed text reads back, and no shorter decimal does. */
Test(output, json_doubles_are_shortest)
{
    uint64_t bits = UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < 20000; i++) {
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double value;
        char text[RP_JSON_NUMBER_SIZE];
        char shorter[400];
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) {
            continue;
        }
        rp_json_print_double(value, text);
        cr_assert(eq(dbl, strtod(text, NULL), value));
        int digits = 0;
        for (const char *c = text; *c != '\0' && *c != 'e'; c++) {
            digits += *c >= '0' && *c <= '9' && !(digits == 0 && *c == '0');
        }
        snprintf(shorter, sizeof shorter, "%.*g", digits > 1 ? digits - 1 : 1, value);
        cr_assert(digits <= 1 || strtod(shorter, NULL) != value, "%s is not the shortest", text);
    }
}

Test(output, json_times)
{
    cr_expect(eq(str, WRITTEN(rp_json_ms(json, INT64_C(1234056000000))), "1234.056"));
    cr_expect(eq(str, WRITTEN(rp_json_ms(json, 1)), "0.000000001"));
    cr_expect(eq(str, WRITTEN(rp_json_ms(json, 0)), "0"));
    cr_expect(eq(str, WRITTEN(rp_json_ms(json, INT64_C(100000000000))), "100"));
    cr_expect(eq(str, WRITTEN(rp_json_ms(json, -1500000000)), "-1.5"));
    cr_expect(eq(str, WRITTEN(rp_json_ms(json, INT64_MIN)), "-9223372036.854775808"));
    cr_expect(eq(str, WRITTEN(rp_json_us(json, INT64_MAX)), "9223372036854.775807"));
}

/* ---- Chrome trace ---------------------------------------------------------------------------- */

static json_t *read_trace(const rp_timeline *of)
{
    static const rp_trace_fact facts[] = {{"schedule", "by \"hand\""}, {"seed", "7"}, {"x", NULL}};
    char *text;
    size_t length;
    json_error_t error;
    FILE *stream = open_memstream(&text, &length);
    cr_assert(eq(int, rp_trace_write(of, facts, 3, stream), RP_OK));
    fclose(stream);
    json_t *trace = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    cr_assert(trace != NULL, "line %d: %s", error.line, error.text);
    free(text);
    return trace;
}

static const char *text_of(json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text != NULL ? text : "";
}

static json_int_t number_of(json_t *event, const char *key)
{
    json_t *value = json_object_get(event, key);
    bool is_whole = json_is_integer(value);
    cr_assert(is_whole, "%s is missing or no whole number", key);
    return json_integer_value(value);
}

/* Microseconds with 6 decimals, back to picoseconds. */
static int64_t ps_of(json_t *event, const char *key)
{
    json_t *value = json_object_get(event, key);
    bool is_number = json_is_number(value);
    cr_assert(is_number, "%s is missing", key);
    return llround(json_number_value(value) * 1e6);
}

static bool is_phase(json_t *event, const char *phase)
{
    return strcmp(text_of(event, "ph"), phase) == 0;
}

/* A slice per op with its times, name and place; collects them by op number. */
static void check_slices(const rp_timeline *of, json_t *events, json_t **slices)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        if (!is_phase(event, "X")) {
            continue;
        }
        json_int_t op = number_of(json_object_get(event, "args"), "op");
        cr_assert(op < of->program->op_count && slices[op] == NULL);
        slices[op] = event;
        char name[RP_OP_NAME_SIZE];
        rp_op_name(&of->program->ops[op], name);
        cr_expect(eq(str, (char *)text_of(event, "name"), name));
        cr_expect(eq(i64, ps_of(event, "ts"), of->start_ps[op]));
        cr_expect(eq(i64, ps_of(event, "dur"), of->end_ps[op] - of->start_ps[op]));
    }
    for (uint32_t op = 0; op < of->program->op_count; op++) {
        cr_assert(slices[op] != NULL, "op %u has no slice", op);
    }
}

static bool same_thread(json_t *a, json_t *b)
{
    return number_of(a, "pid") == number_of(b, "pid") && number_of(a, "tid") == number_of(b, "tid");
}

/* Per thread, in the file's order, which is sorted by time. */
static void check_no_overlap(const rp_timeline *of, json_t **slices)
{
    for (uint32_t a = 0; a < of->program->op_count; a++) {
        for (uint32_t b = a + 1; b < of->program->op_count; b++) {
            bool apart = of->end_ps[a] <= of->start_ps[b] || of->end_ps[b] <= of->start_ps[a];
            if (!apart) {
                cr_assert(not(same_thread(slices[a], slices[b])), "ops %u and %u overlap", a, b);
            }
        }
    }
}

/* Both events of each wait's flow, at 2 * wait and the next; NULL if there is none. */
static json_t **collect_flows(const rp_timeline *of, json_t *events)
{
    uint32_t waits = of->program->ops[of->program->op_count].wait_begin;
    json_t **flows = calloc(2 * (size_t)waits + 1, sizeof *flows);
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        if (is_phase(event, "s") || is_phase(event, "f")) {
            json_int_t id = number_of(event, "id");
            cr_assert(id >= 0 && id < waits, "flow %lld is of no wait", (long long)id);
            json_t **flow = &flows[2 * id + is_phase(event, "f")];
            cr_assert(flow[0] == NULL, "flow %lld has two events of a kind", (long long)id);
            *flow = event;
        }
    }
    return flows;
}

static void check_flow(const rp_timeline *of, json_t **flows, json_t **slices, uint32_t wait,
                       uint32_t op)
{
    json_t *from = flows[2 * (size_t)wait];
    json_t *to = flows[2 * (size_t)wait + 1];
    if (rp_wait_is_control(of->program->waits[wait])) {
        cr_assert(from == NULL && to == NULL, "control wait %u has a flow", wait);
        return;
    }
    uint32_t producer = rp_wait_op(of->program->waits[wait]);
    cr_assert(from != NULL && to != NULL);
    cr_expect(same_thread(from, slices[producer]) && same_thread(to, slices[op]));
    int64_t at = ps_of(from, "ts");
    cr_expect(at >= of->start_ps[producer] && at <= of->end_ps[producer]);
    cr_expect(at < of->end_ps[producer] || of->start_ps[producer] == of->end_ps[producer]);
    cr_expect(eq(i64, ps_of(to, "ts"), of->start_ps[op]));
    cr_expect(eq(str, (char *)text_of(to, "bp"), "e"));
    cr_expect(eq(str, (char *)text_of(to, "name"), (char *)text_of(from, "name")));
    cr_expect(eq(str, (char *)text_of(to, "cat"), (char *)text_of(from, "cat")));
}

static void check_trace(const rp_timeline *of)
{
    json_t *trace = read_trace(of);
    json_t *events = json_object_get(trace, "traceEvents");
    json_t **slices = calloc(of->program->op_count, sizeof *slices);
    check_slices(of, events, slices);
    check_no_overlap(of, slices);
    json_t **flows = collect_flows(of, events);
    for (uint32_t op = 0; op < of->program->op_count; op++) {
        const rp_op *ops = of->program->ops;
        for (uint32_t wait = ops[op].wait_begin; wait < ops[op + 1].wait_begin; wait++) {
            check_flow(of, flows, slices, wait, op);
        }
    }
    int64_t before = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        if (!is_phase(event, "M")) {
            cr_assert(ps_of(event, "ts") >= before, "event %zu is not in order of time", i);
            before = ps_of(event, "ts");
        }
    }
    free(flows);
    free(slices);
    json_decref(trace);
}

Test(output, trace_by_hand)
{
    check_trace(timeline);
}

/* Schedules with joined groups, several iterations and hundreds of waits. */
Test(output, trace_of_schedules)
{
    rp_arena *arena;
    rp_costs costs;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, &costs), RP_OK));
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        rp_partition partition;
        rp_program *built;
        rp_timeline *run;
        rp_metrics metrics;
        rp_stage_times times;
        cr_assert(eq(int, rp_partition_even(rp_schedules[s], &costs, 4, 0, arena, &partition, NULL),
                     RP_OK));
        rp_schedule_config config = {
            .gpus = 4,
            .microbatches = 8,
            .iterations = 2,
            .round = 4,
            .asynchronous = rp_traits_only_synchronous(&rp_schedules[s]->traits) == NULL,
            .recompute = rp_schedules[s]->default_recompute,
            .layers = costs.layers,
            .partition = &partition,
            .costs = &costs};
        cr_assert(eq(int, rp_schedule_build(rp_schedules[s], &config, &built, NULL), RP_OK));
        cr_assert(eq(int, rp_stage_times_compute(built, &costs, arena, &times, NULL), RP_OK));
        cr_assert(eq(int, rpsim_stage_run(built, &times, &run, &metrics, NULL), RP_OK));
        check_trace(run);
        rp_timeline_destroy(run);
        rp_program_destroy(built);
    }
    rp_arena_destroy(arena);
}

/* RoundPipe's transfers are all between host and GPU. */
Test(output, trace_of_transfers)
{
    rp_test_bench b;
    rp_test_tool_begin();
    rp_test_bench_make(&b, "roundpipe", 8, 2, false);
    rp_test_bench_sizes(&b, 1000, 2000);
    rp_test_bench_lower(&b);
    (void)rp_test_bench_run(&b);
    json_t *trace = read_trace(b.timeline);
    bool found[RP_OP_KIND_COUNT] = {false};
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        if (!is_phase(event, "X")) {
            continue;
        }
        uint8_t kind = b.program->ops[number_of(json_object_get(event, "args"), "op")].kind;
        const char *name = rp_op_kind_text((rp_op_kind)kind);
        if (rp_op_kind_class((rp_op_kind)kind) == RP_CLASS_TRANSFER) {
            char *expected = strncmp(name, "UPLOAD", 6) == 0 ? "H2D" : "D2H";
            cr_expect(eq(str, (char *)text_of(event, "cat"), expected), "%s", name);
            found[kind] = true;
        }
    }
    cr_expect(found[RP_OP_UPLOAD_PARAMS] && found[RP_OP_DOWNLOAD_PARAM_GRAD]);
    json_decref(trace);
    rp_test_bench_fini(&b);
    rp_test_remove(rp_test_tool_folder());
    rp_arena_destroy(rp_test_tool_arena());
}

Test(output, trace_names_and_facts)
{
    json_t *trace = read_trace(timeline);
    json_t *facts = json_object_get(trace, "otherData");
    cr_expect(eq(str, (char *)text_of(trace, "displayTimeUnit"), "ms"));
    cr_expect(eq(str, (char *)text_of(facts, "schedule"), "by \"hand\""));
    cr_expect(eq(int, json_typeof(json_object_get(facts, "x")), JSON_NULL));
    int processes = 0;
    int threads = 0;
    int iterations = 0;
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *name = text_of(json_object_get(event, "args"), "name");
        if (strcmp(text_of(event, "name"), "process_name") == 0) {
            json_int_t pid = number_of(event, "pid");
            cr_expect(eq(str, (char *)name, pid == 0 ? "GPU 0" : pid == 1 ? "GPU 1" : "host"));
            cr_expect(pid <= 1 || pid == 1000);
            processes++;
        }
        threads += strcmp(text_of(event, "name"), "thread_name") == 0;
        iterations += is_phase(event, "i") && strcmp(text_of(event, "name"), "iteration 0") == 0;
    }
    cr_expect(eq(int, processes, 3));
    cr_expect(eq(int, threads, 3));
    cr_expect(eq(int, iterations, 1));
    json_decref(trace);
}

typedef struct counter {
    json_int_t most;
    json_int_t last;
    int changes;
} counter;

static counter read_counter(json_t *trace, json_int_t pid, const char *name, const char *series)
{
    counter found = {0};
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        if (is_phase(event, "C") && number_of(event, "pid") == pid) {
            cr_expect(eq(str, (char *)text_of(event, "name"), (char *)name));
            found.last = number_of(json_object_get(event, "args"), series);
            found.most = found.last > found.most ? found.last : found.most;
            found.changes++;
        }
    }
    return found;
}

/* GPU 1 frees its first buffer as it allocates its second: never two live. */
Test(output, trace_counters)
{
    json_t *trace = read_trace(timeline);
    counter gpu0 = read_counter(trace, 0, "live bytes", "activation");
    counter gpu1 = read_counter(trace, 1, "live bytes", "activation");
    counter host = read_counter(trace, 1000, "live bytes", "weight");
    cr_expect(gpu0.most == 2000 && gpu0.last == 0 && gpu0.changes == 4);
    cr_expect(gpu1.most == 1000 && gpu1.last == 0 && gpu1.changes == 3);
    cr_expect(host.most == 500 && host.last == 0 && host.changes == 2);
    json_decref(trace);
}

Test(output, trace_counts_buffers_of_unknown_size)
{
    for (uint32_t b = 0; b < program->buffer_count; b++) {
        program->buffers[b].bytes = 0;
    }
    json_t *trace = read_trace(timeline);
    counter gpu0 = read_counter(trace, 0, "live buffers", "activation");
    cr_expect(eq(i64, gpu0.most, 2));
    cr_expect(eq(i64, gpu0.last, 0));
    json_decref(trace);
}

Test(output, trace_to_a_full_disk)
{
    rp_output full;
    cr_assert(eq(int, rp_output_open("/dev/full", &full), RP_OK));
    cr_expect(eq(int, rp_trace_write(timeline, NULL, 0, full.stream), RP_OK));
    cr_expect(eq(int, rp_output_commit(&full), RP_IO));
    cr_expect(strstr(messages, "/dev/full: cannot be written: No space") != NULL, "%s", messages);
}

/* ---- timeline CSV ---------------------------------------------------------------------------- */

static char *write_csv(const rp_timeline *of, size_t *length)
{
    char *text;
    FILE *stream = open_memstream(&text, length);
    rp_timeline_write_csv(of, stream);
    fclose(stream);
    return text;
}

Test(output, csv_round_trip)
{
    size_t length;
    size_t again_length;
    timeline->end_ps[8] = INT64_MAX;
    char *text = write_csv(timeline, &length);
    rp_timeline *read;
    cr_assert(eq(int, rp_timeline_read_csv("t.csv", text, length, program, &read), RP_OK), "%s",
              messages);
    cr_expect(eq(u64, rp_timeline_hash(read), rp_timeline_hash(timeline)));
    char *again = write_csv(read, &again_length);
    cr_expect(eq(str, again, text));
    cr_expect(strstr(text, "\n8,optimizer,host,OPTIMIZER,0,0,0,8000000,9223372036854775807\n") !=
              NULL);
    cr_expect(le(sz, length, rp_timeline_csv_most_bytes(program)));
    rp_timeline_destroy(read);
    free(text);
    free(again);
}

/* The longest valid file grows with the program, so any program's timeline can be read. */
Test(output, csv_has_room_for_every_op)
{
    const char longest[] = "2147483647,grad-download,65535,DOWNLOAD_PARAM_GRAD,65535,4294967295,"
                           "65535,9223372036854775807,9223372036854775807\r\n";
    const rp_program many = {.op_count = RP_MAX_OPS};
    cr_expect(ge(sz, rp_timeline_csv_most_bytes(&many) / RP_MAX_OPS, sizeof longest));
}

/* Replaces the first `from` in a good file by `to`; reading must fail and name the place. */
static void expect_refused(const char *from, const char *to, const char *message)
{
    size_t length;
    char *good = write_csv(timeline, &length);
    char *at = strstr(good, from);
    cr_assert(at != NULL, "'%s' is not in the file", from);
    char bad[8192];
    snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    messages[0] = '\0';
    rp_log_capture_begin(messages, sizeof messages);
    rp_timeline *read = timeline;
    cr_expect(eq(int, rp_timeline_read_csv("t.csv", bad, strlen(bad), program, &read), RP_INPUT));
    cr_expect(eq(ptr, read, NULL));
    cr_expect(strncmp(messages, "t.csv:", 6) == 0 && strstr(messages, message) != NULL,
              "'%s' for '%s' gives: %s", to, from, messages);
    free(good);
}

Test(output, csv_refuses)
{
    expect_refused("op,queue", "queue,op", "t.csv:1: row 1");
    expect_refused(",end_ps", "", "t.csv:2: row 2");
    expect_refused("\n3,compute", "\n4,compute", "t.csv:5: row 5, column op");
    expect_refused("\n3,compute", "\n3,peer",
                   "column queue: 'peer'; in the program it is 'compute'");
    expect_refused("compute,1,F", "compute,0,F", "column gpu");
    expect_refused("1,B,1,0", "1,F,1,0", "column kind");
    expect_refused("1,B,1,0", "1,B,0,0", "column stage");
    expect_refused("1,B,1,0", "1,B,1,1", "column microbatch");
    expect_refused(",0,0,1000001", ",1,0,1000001", "column iteration");
    expect_refused("8000000,8500000", "8000000,7999999", "t.csv:10: row 10");
    expect_refused("8000000,8500000", "8000000,9223372036854775808", "t.csv:10: row 10");
    expect_refused("8000000,8500000", "8e6,8500000", "t.csv:10: row 10");
    expect_refused("8000000,8500000", "-1,8500000", "t.csv:10: row 10");
    expect_refused("8000000,8500000", "8000000,", "t.csv:10: row 10");
    expect_refused("1000001,2000002", "1000000,2000002", "t.csv:3: row 3");
    expect_refused("8,optimizer,host,OPTIMIZER,0,0,0,8000000,8500000\n", "", "8 rows");
    expect_refused("8000000,8500000\n", "8000000,8500000\n9,a,b,c,d,e,f,g,h\n", "10 rows");
    expect_refused("8000000,8500000\n", "8000000,8500000,1\n", "t.csv:10");
}
