/* rpimport --kineto: ranges of PyTorch's traces (tests/golden/kineto), made-up traces of GPUs,
 * mistakes. */
#include "sim/interchange/kineto.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GOLDEN RP_TEST_ROOT "/golden/kineto/"

static rp_arena *arena;
static char messages[4096];
static rpsim_ranges ranges;
static rpsim_range_summary *summaries;
static uint32_t summary_count;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rpsim_ranges_fini(&ranges);
    rp_test_end(arena);
}

static void again(void)
{
    rp_log_capture_end();
    rp_log_capture_begin(messages, sizeof messages);
    rpsim_ranges_fini(&ranges);
}

TestSuite(kineto, .init = begin, .fini = end);

static void read_golden(const char *name, int rank)
{
    const char *path = NULL;
    rp_text text = {0};
    cr_assert(eq(int, rp_arena_print(arena, &path, GOLDEN "%s.%d.json", name, rank), RP_OK));
    cr_assert(eq(int, rp_text_read_file(path, SIZE_MAX, &text), RP_OK));
    cr_assert(eq(int, rpsim_kineto_read(path, text.bytes, text.length, &ranges), RP_OK), "%s",
              messages);
    rp_text_fini(&text);
}

static const rpsim_range_summary *find(uint32_t stage, const char *type, const char *pair)
{
    for (uint32_t i = 0; i < summary_count; i++) {
        const rpsim_range_summary *s = &summaries[i];
        bool same_pair =
            *pair == '\0' ? !s->pair : s->pair && s->pair_stage == strtoul(pair, NULL, 10);
        if (s->stage == stage && same_pair &&
            strcmp(rp_torch_type_text((rp_torch_type)s->type), type) == 0) {
            return s;
        }
    }
    return NULL;
}

/* Counts, medians, minima, means and deviations equal Python's. */
Test(kineto, traces_of_pytorch)
{
    static const char *const names[] = {"zb1p-p2v1m4", "dualpipev-p2v2m4"};
    rp_text text = {0};
    rp_csv table;
    cr_assert(eq(int, rp_text_read_file(GOLDEN "expected.csv", SIZE_MAX, &text), RP_OK));
    cr_assert(
        eq(int, rp_csv_parse("expected.csv", text.bytes, text.length, ',', arena, &table), RP_OK));
    rp_text_fini(&text);
    for (size_t n = 0; n < COUNT(names); n++) {
        uint32_t compared = 0;
        again();
        read_golden(names[n], 0);
        read_golden(names[n], 1);
        cr_expect(not(ranges.on_gpu));
        cr_expect(eq(u32, ranges.unknown, 0));
        cr_assert(
            eq(int, rpsim_ranges_summarise(&ranges, arena, &summaries, &summary_count), RP_OK));
        for (uint32_t row = 0; row < table.rows; row++) {
            if (strcmp(rp_test_tool_cell(&table, row, "trace"), names[n]) != 0) {
                continue;
            }
            const rpsim_range_summary *s =
                find((uint32_t)strtoul(rp_test_tool_cell(&table, row, "stage"), NULL, 10),
                     rp_test_tool_cell(&table, row, "type"),
                     rp_test_tool_cell(&table, row, "pair_stage"));
            cr_assert(s != NULL, "row %u", row);
            cr_expect(
                eq(u32, s->count, strtoul(rp_test_tool_cell(&table, row, "count"), NULL, 10)));
            const struct {
                const char *header;
                double ps;
            } values[] = {{"median_us", (double)s->median_ps},
                          {"min_us", (double)s->min_ps},
                          {"mean_us", s->mean_ps},
                          {"stddev_us", s->stddev_ps}};
            for (size_t v = 0; v < COUNT(values); v++) {
                double us = strtod(rp_test_tool_cell(&table, row, values[v].header), NULL);
                cr_expect(lt(dbl, fabs(values[v].ps - us * 1e6), 1.0), "row %u %s: %f", row,
                          values[v].header, values[v].ps);
            }
            compared++;
        }
        cr_expect(eq(u32, summary_count, compared));
        cr_expect(ge(u32, compared, 6));
    }
}

/* ---- made-up traces -------------------------------------------------------------------------- */

static rp_status read_text(const char *text)
{
    return rpsim_kineto_read("t.json", text, strlen(text), &ranges);
}

#define RANGE(category, name, us, call)                                                            \
    "{\"ph\":\"X\",\"cat\":\"" category "\",\"name\":\"" name "\",\"pid\":0,\"tid\":7,\"ts\":1,"   \
    "\"dur\":" us ",\"args\":{\"External id\":" call ",\"addr\":18446744073709551615}}"
#define GPU(name, us, call) RANGE("gpu_user_annotation", name, us, call)
#define CPU(name, us, call) RANGE("user_annotation", name, us, call)
#define TRACE(events) "{\"schemaVersion\":1,\"traceEvents\":[" events "]}"

/* Only ranges of the GPU count, here with work on two streams in one case; the CPU's, other events,
 * ranges and phases do not. */
Test(kineto, ranges_of_the_gpu)
{
    const char *text = TRACE(CPU("PP:0F0", "5", "1") "," GPU("PP:0F0", "100.5", "1") "," GPU(
        "PP:0F0", "40",
        "1") "," GPU("PP:0F1", "104.25",
                     "2") "," GPU("PP:0B0", "300",
                                  "3") "," GPU("PP:0SEND_F0", "7",
                                               "4") "," GPU("PP:0NEW3", "7",
                                                            "5") "," GPU("forward", "1",
                                                                         "6") ",{\"ph\":\"M\","
                                                                              "\"name\":\"PP:0F3\"}"
                                                                              ",{\"ph\":\"B\","
                                                                              "\"name\":\"PP:0F3\"}"
                                                                              ",3,null");
    cr_assert(eq(int, read_text(text), RP_OK), "%s", messages);
    cr_expect(ranges.on_gpu);
    cr_expect(eq(u32, ranges.unknown, 1));
    cr_assert(eq(int, rpsim_ranges_summarise(&ranges, arena, &summaries, &summary_count), RP_OK));
    cr_assert(eq(u32, summary_count, 2));
    const rpsim_range_summary *f = find(0, "F", "");
    cr_expect(eq(u32, f->count, 2));
    cr_expect(eq(i64, f->median_ps, 102375000));
    cr_expect(eq(i64, f->min_ps, 100500000));
    cr_expect(eq(i64, find(0, "B", "")->median_ps, 300000000));
}

static rp_status table_of(const char *text, const char *layers, rp_costs *costs)
{
    rp_partition partition;
    again();
    RP_TRY(read_text(text));
    RP_TRY(rpsim_ranges_summarise(&ranges, arena, &summaries, &summary_count));
    if (layers != NULL) {
        RP_TRY(rp_partition_parse(NULL, layers, arena, &partition, NULL));
    }
    return rpsim_kineto_costs(&ranges, summaries, summary_count, RPSIM_STATISTIC_MEDIAN,
                              layers != NULL ? &partition : NULL, arena, costs);
}

#define STAGE(s, f, b) GPU("PP:" s "F0", f, "-1") "," GPU("PP:" s "B0", b, "-1")
#define SPLIT(s, f, i, w)                                                                          \
    GPU("PP:" s "F0", f, "1") "," GPU("PP:" s "I0", i, "2") "," GPU("PP:" s "W0", w, "3")

Test(kineto, stages_are_layers_without_a_partition)
{
    rp_costs costs;
    cr_assert(
        eq(int,
           table_of(TRACE(STAGE("0", "10", "20") "," SPLIT("1", "12", "14", "11")), NULL, &costs),
           RP_OK),
        "%s", messages);
    cr_assert(eq(u32, costs.layers, 2));
    cr_expect(eq(i64, costs.fwd_ps[0], 10000000));
    cr_expect(eq(i64, costs.bwd_ps[0], 20000000));
    cr_expect(eq(i64, costs.bwd_input_ps[0], 10000000)); /* not measured: half */
    cr_expect(eq(i64, costs.fwd_ps[1], 12000000));
    cr_expect(eq(i64, costs.bwd_ps[1], 25000000));
    cr_expect(eq(i64, costs.bwd_input_ps[1], 14000000));
    cr_expect(eq(i64, costs.head_fwd_ps, 0));
    cr_expect(eq(i64, costs.head_bwd_ps, 0));
}

/* Stages 0 and 1 take 5 us a layer forward, 10 backward. The last stage has 2 layers and takes 17
 * and 27: the head takes 7 of both. */
Test(kineto, the_head_is_what_the_last_stage_takes_longer)
{
    rp_costs costs;
    const char *text =
        TRACE(STAGE("0", "20", "40") "," STAGE("1", "10", "20") "," SPLIT("2", "17", "16", "11"));
    cr_assert(eq(int, table_of(text, "4,2,2", &costs), RP_OK), "%s", messages);
    cr_assert(eq(u32, costs.layers, 8));
    cr_expect(eq(i64, costs.head_fwd_ps, 7000000));
    cr_expect(eq(i64, costs.head_bwd_ps, 7000000));
    for (uint32_t layer = 0; layer < 8; layer++) {
        cr_expect(eq(i64, costs.fwd_ps[layer], 5000000));
        cr_expect(eq(i64, costs.bwd_ps[layer], 10000000));
    }
    cr_expect(eq(i64, costs.bwd_input_ps[7], 4500000)); /* (16 - 7) / 2 */
    cr_assert(eq(int, table_of(text, "4,2,0", &costs), RP_OK), "%s", messages);
    cr_expect(eq(u32, costs.layers, 6));
    cr_expect(eq(i64, costs.head_fwd_ps, 17000000));
    cr_expect(eq(i64, costs.head_bwd_ps, 27000000));
    /* The picosecond of remainder goes to the first layer; the sum stays as measured. */
    cr_assert(eq(int, table_of(TRACE(STAGE("0", "0.000007", "0.000009")), "3", &costs), RP_OK));
    cr_expect(eq(i64, costs.fwd_ps[0], 3));
    cr_expect(eq(i64, costs.fwd_ps[0] + costs.fwd_ps[1] + costs.fwd_ps[2], 7));
}

/* The pair takes 24 in place of 10 + 20: a saving of 6 of the shorter's 10. */
Test(kineto, pairs_give_the_saving)
{
    rp_costs costs;
    const char *text = TRACE(STAGE("0", "10", "20") "," STAGE("1", "10", "20") "," GPU(
        "PP:(0F1;1B0)OVERLAP_F_B", "24", "9"));
    cr_assert(eq(int, table_of(text, NULL, &costs), RP_OK), "%s", messages);
    cr_expect(epsilon_eq(dbl, costs.overlap_saving, 0.6, 1e-12));
}

Test(kineto, bad_traces)
{
    static const struct {
        const char *text;
        const char *layers;
        const char *message;
    } cases[] = {
        {"", NULL, "t.json:1: column 1: "},
        {"{\"traceEvents\": [\n{\"ph\":\n}]}", NULL, "t.json:3: column 1: "},
        {"{\"traceEvents\": [NaN]}", NULL, "t.json:1: column 20: "},
        {"\x1f\x8b\x08", NULL, "t.json:1: the compressed file ends in its middle; valid are"},
        {"{}", NULL, "t.json:1: no list of events; valid is an object with \"traceEvents\""},
        {"{\"traceEvents\": {}}", NULL, "t.json:1: no list of events"},
        {"7", NULL, "t.json:1: "},
        {"[]", NULL, "t.json: none of its 0 events is a range such as PP:2F0; valid are traces"},
        {TRACE(GPU("PP:0SEND_F0", "1", "1")), NULL, "none of its 1 events is a range"},
        {"[" GPU("PP:0F0", "1", "1") ",{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":"
                                     "\"PP:0F1\"}]",
         NULL, "t.json: event 1 (PP:0F1): 'dur' is missing; valid values are numbers from 0"},
        {"[{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":\"PP:0F0\",\"dur\":1,"
         "\"dru\":2}]",
         NULL, "t.json: event 0 (PP:0F0): unknown key 'dru'; valid values are name, cat, ph"},
        {"[{\"ph\":\"X\",\"name\":\"PP:0F0\",\"dur\":1,\n\"dur\":2}]", NULL,
         "t.json:2: column 5: duplicate object key"},
        {"{\"traceEvents\": [],\n \"traceEvents\": []}", NULL, "t.json:2: column 14: duplicate"},
        {"[" GPU("PP:0F0", "\"1\"", "1") "]", NULL, "event 0 (PP:0F0): 'dur' is no number"},
        {"[" GPU("PP:0F0", "-1", "1") "]", NULL, "event 0 (PP:0F0): 'dur' is out of range"},
        {"[" GPU("PP:0F0", "3.7e9", "1") "]", NULL, "event 0 (PP:0F0): 'dur' is out of range"},
        {TRACE(STAGE("0", "1", "1") "," GPU("PP:0RECV_B0", "1", "1")), NULL, "stage 1 has no F"},
        {TRACE(STAGE("1", "1", "1")), NULL, "t.json: stage 0 has no F by itself"},
        {TRACE(GPU("PP:0F0", "1", "1")), NULL, "stage 0 has no B, or I and W, by itself"},
        {TRACE(GPU("PP:0F0", "1", "1") "," GPU("PP:0I0", "1", "1")), NULL, "no B, or I and W,"},
        {TRACE(GPU("PP:(0F0;1B0)OVERLAP_F_B", "1", "1")), NULL, "stage 0 has no F by itself"},
        {TRACE(STAGE("0", "1", "1")), "1,1", "--partition: 2 stages, and the traces have 1"},
        {TRACE(STAGE("0", "1", "1") "," STAGE("1", "1", "1")), "0,2",
         "stage 0 takes time and --partition gives it no layers"},
        {TRACE(STAGE("0", "1", "1")), "0", "--partition: no layers at all"},
        {TRACE(SPLIT("0", "1", "3e9", "3e9")), NULL, "stage 0 and those before it take too long"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_costs costs;
        rp_status status = table_of(cases[i].text, cases[i].layers, &costs);
        cr_expect(eq(int, status, RP_INPUT), "%s", cases[i].text);
        cr_expect(strstr(messages, cases[i].message) != NULL, "%s: %s", cases[i].message, messages);
        cr_expect(strstr(messages, "valid ") != NULL, "%s", messages);
        const char *newline = strchr(messages, '\n');
        cr_expect(newline != NULL && newline[1] == '\0', "%s", messages);
    }
    again();
    cr_assert(eq(int, read_text(TRACE(STAGE("0", "1", "1"))), RP_OK));
    cr_expect(eq(int, read_text(TRACE(CPU("PP:1F0", "1", "1"))), RP_INPUT));
    cr_expect(strstr(messages, "measured on the CPU, those of t.json are not; valid are traces of "
                               "one run") != NULL,
              "%s", messages);
}

/* ---- rpimport -------------------------------------------------------------------------------- */

TestSuite(kineto_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

static rp_test_outcome run(const char *line)
{
    return rp_test_tool_run(RPIMPORT_PATH, "rpimport", line);
}

/* With a layer per stage the stages take the medians: on a GPU with a microbatch, their sum. */
Test(kineto_cli, makes_a_table_that_runs)
{
    const char *line = NULL;
    cr_assert(eq(int,
                 rp_arena_print(rp_test_tool_arena(), &line,
                                "--kineto " GOLDEN "zb1p-p2v1m4.0.json," GOLDEN
                                "zb1p-p2v1m4.1.json --microbatch-size 64 --seq-len 1 --out "
                                "%s/mine.yaml",
                                rp_test_tool_folder()),
                 RP_OK));
    rp_test_outcome made = run(line);
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    cr_expect(strstr(made.messages, "warning: the traces have ranges of the CPU only") != NULL);
    json_t *runs = rp_test_rpsim_json("--costs @DIR@/mine.yaml --schedule 1f1b --gpus 1 "
                                      "--microbatches 1 --recompute none");
    /* 0F + 0I + 0W + 1F + 1I + 1W of expected.csv, in us */
    double sum_us = 352.075 + 7768.4575 + 611.037 + 2912.416 + 619.2345 + 351.0095;
    double ms = rp_test_json_number(json_array_get(runs, 0), "makespan_ms");
    cr_expect(epsilon_eq(dbl, ms, sum_us / 1e3, 1e-9), "%f", ms);
    json_decref(runs);
}

Test(kineto_cli, bad_command_lines)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"", "one thing to import; valid is one of --kineto F[,F…], --timer F and --chakra PREFIX"},
        {"--kineto", "--kineto: the value is missing"},
        {"--kineto a,,b", "--kineto: 'a,,b' is not valid"},
        {"--kineto a.json", "valid with --microbatch-size B and --seq-len S"},
        {"--kineto a.json --microbatch-size 4", "valid with --microbatch-size B and --seq-len S"},
        {"--kineto a.json --microbatch-size 0 --seq-len 1", "--microbatch-size: '0' is not valid"},
        {"--kineto /nowhere/a.json --microbatch-size 4 --seq-len 1", "/nowhere/a.json"},
        {"--kineto " GOLDEN "zb1p-p2v1m4.0.json --microbatch-size 4 --seq-len 1",
         "/golden/kineto/zb1p-p2v1m4.0.json: stage 1 has no F by itself"},
        {"--kineto " GOLDEN "zb1p-p2v1m4.0.json --microbatch-size 4 --seq-len 1 --out /nowhere/c",
         "/nowhere/c: cannot be written"},
        {"--kineto " GOLDEN "zb1p-p2v1m4.0.json --microbatch-size 4 --seq-len 1 --partition 3,x",
         "--partition: "},
        {"--kineto a.json --microbatch-size 4 --seq-len 1 --statistic mean",
         "--statistic: 'mean' is not valid; valid values are median|min"},
        {"--kinetto a.json", "did you mean --kineto"},
        {"a.json", "'a.json': valid are options only"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_test_outcome result = run(cases[i].line);
        cr_expect(eq(int, result.status, 2), "%s", cases[i].line);
        cr_expect(eq(str, (char *)result.output, ""), "%s", cases[i].line);
        cr_expect(strstr(result.messages, cases[i].message) != NULL, "%s: %s", cases[i].line,
                  result.messages);
    }
    cr_expect(strncmp(run("--version").output, "rpimport ", 9) == 0);
    cr_expect(strstr(run("--help").output, "--kineto F[,F…]") != NULL);
}
