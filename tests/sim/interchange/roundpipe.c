/* rpimport on the RoundPipe library's output and annotations: times planned by
 * tests/golden/roundpipe's make.py, ranges by name, mistakes. */
#include "sim/interchange/roundpipe.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "sim/interchange/gunzip.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GOLDEN RP_TEST_ROOT "/golden/roundpipe/"

static rp_arena *arena;
static char messages[4096];
static rpsim_ranges ranges;

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

TestSuite(roundpipe, .init = begin, .fini = end);

Test(roundpipe, names_of_ranges)
{
    static const struct {
        const char *name;
        uint32_t last; /* UINT32_MAX: no range */
        uint32_t first;
        uint8_t type;
        bool recompute;
    } cases[] = {
        {"QwenL[3]B[0]Fwd", 3, 3, RP_TORCH_FORWARD, false},
        {"L[0]B[17]Re", 0, 0, RP_TORCH_FORWARD, true},
        {"L[x]L[12]B[1]Bwd", 12, 12, RP_TORCH_BACKWARD, false},
        {"mL[2, 5]B[1]Bwd", 5, 2, RP_TORCH_BACKWARD, false},
        {"mL[2, 2]B[1]Bwd", 2, 2, RP_TORCH_BACKWARD, false},
        {"mL[2, 5]B[1]Fwd", UINT32_MAX, 0, 0, false},
        {"mL[5, 2]B[1]Bwd", UINT32_MAX, 0, 0, false},
        {"mL[2]B[1]Opt", UINT32_MAX, 0, 0, false},
        {"mL[2]B[1]Fwd2", UINT32_MAX, 0, 0, false},
        {"mL[]B[1]Fwd", UINT32_MAX, 0, 0, false},
        {"mL[99999999999]B[1]Fwd", UINT32_MAX, 0, 0, false},
        {"mL[2]B[]Fwd", UINT32_MAX, 0, 0, false},
        {"PP:2F0", UINT32_MAX, 0, 0, false},
        {"", UINT32_MAX, 0, 0, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rpsim_range range = {0};
        cr_expect(eq(u32, rpsim_roundpipe_range(cases[i].name, &range), cases[i].last), "%s",
                  cases[i].name);
        cr_expect(eq(u32, range.stage, cases[i].first), "%s", cases[i].name);
        cr_expect(eq(u32, range.type, cases[i].type), "%s", cases[i].name);
        cr_expect(eq(int, range.recompute, cases[i].recompute), "%s", cases[i].name);
    }
}

/* A group's backward takes 12 ms, its layers' recomputes 1 and 3 ms. For the second group only the
 * sum is known: halves. */
Test(roundpipe, groups_are_shared_by_recompute)
{
    const char *text = "[{\"ph\":\"X\",\"name\":\"L[0]B[0]Re\",\"dur\":1000},"
                       "{\"ph\":\"X\",\"name\":\"L[1]B[0]Fwd\",\"dur\":9000},"
                       "{\"ph\":\"X\",\"name\":\"L[1]B[0]Re\",\"dur\":3000},"
                       "{\"ph\":\"X\",\"name\":\"L[0, 1]B[0]Bwd\",\"dur\":12000},"
                       "{\"ph\":\"X\",\"name\":\"L[2, 3]B[0]Bwd\",\"dur\":10000}]";
    static const int64_t shares_ps[] = {3000000000, 9000000000, 5000000000, 5000000000};
    cr_assert(eq(int, rpsim_kineto_read("t.json", text, strlen(text), &ranges), RP_OK), "%s",
              messages);
    cr_expect(ranges.roundpipe);
    cr_expect(eq(u32, ranges.stage_count, 4));
    cr_assert(eq(int, rpsim_roundpipe_share(&ranges, arena), RP_OK));
    uint32_t found = 0;
    for (uint32_t i = 0; i < ranges.count; i++) {
        const rpsim_range *r = &ranges.ranges[i];
        if (r->type == RP_TORCH_BACKWARD) {
            cr_expect(eq(i64, r->ps, shares_ps[r->stage]));
            found++;
        }
    }
    cr_expect(eq(u32, found, 4));
    cr_expect(eq(u32, ranges.count, 7));
}

#define LINE(layer, action, ms)                                                                    \
    "Layer " layer " " action "  new record: " ms " ms  new estimate: 1.000 ms\n"

Test(roundpipe, bad_timer_lines)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"", "t.log: no line of the timer"},
        {"step 3\nloss 4.5\n", "t.log: no line of the timer"},
        {LINE("1", "fwd", "1"), "t.log:1: a layer out of order"},
        {LINE("0", "fwd", "1") "\n" LINE("2", "fwd", "1"), "t.log:3: a layer out of order"},
        {LINE("0", "fwd", "1") LINE("1", "fwd", "1") LINE("0", "re", "1") LINE("0", "bwd", "1"),
         "t.log:4: an update before this line has other layers than the first"},
        {LINE("0", "fwd", "1") LINE("0", "re", "1") LINE("1", "re", "1"),
         "t.log:3: a layer out of order"},
        {LINE("0", "opt", "1"), "t.log:1: a record of neither fwd, re nor bwd"},
        {LINE("x", "fwd", "1"), "t.log:1: a record without a layer"},
        {LINE("99999999999", "fwd", "1"), "t.log:1: a record without a layer"},
        {LINE("0", "fwd", "-1"), "t.log:1: a record without a time"},
        {LINE("0", "fwd", "nan"), "t.log:1: a record without a time"},
        {LINE("0", "fwd", ""), "t.log:1: a record without a time"},
        {LINE("0", "fwd", "1e99"), "t.log:1: a record without a time"},
        {"Layer 0 fwd  new record: 1.000 ms  new est\n", "t.log:1: a record without a time"},
        {"a  new record: 1.000 ms\n", "t.log:1: a record without a layer"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_log_capture_end();
        rp_log_capture_begin(messages, sizeof messages);
        rpsim_ranges_fini(&ranges);
        rp_status status =
            rpsim_roundpipe_timer("t.log", cases[i].text, strlen(cases[i].text), &ranges);
        cr_expect(eq(int, status, RP_INPUT), "%s", cases[i].text);
        cr_expect(strstr(messages, cases[i].message) != NULL, "%s: %s", cases[i].message, messages);
        cr_expect(strstr(messages, "valid are lines as RoundPipe's timer prints them") != NULL);
    }
}

/* ---- rpimport -------------------------------------------------------------------------------- */

TestSuite(roundpipe_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

static rp_test_outcome run(const char *line)
{
    return rp_test_tool_run(RPIMPORT_PATH, "rpimport", line);
}

static void expect_line(const char *text, const char *line)
{
    cr_expect(strstr(text, line) != NULL, "%s in %s", line, text);
}

/* Updates take 1.01, 1.02 and 1.03 of the planned times. The median counts, rounded to a
 * microsecond by the library; the embedding's time counts in the first block. */
Test(roundpipe_cli, timer_lines_become_a_table)
{
    rp_test_outcome made = run("--timer " GOLDEN "timer.log --microbatch-size 4 --seq-len 2048 "
                               "--out @DIR@/qwen@mine.yaml");
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    cr_expect(eq(str, (char *)made.messages, ""));
    const char *table = rp_test_tool_read(
        rp_test_tool_expand("@DIR@/qwen@mine.yaml", strlen("@DIR@/qwen@mine.yaml")));
    expect_line(table, "\nname: qwen@mine\n");
    expect_line(table, "\nlayers: 4\nfwd_ms: [2.295, 2.04, 2.55, 2.04]\n"
                       "bwd_ms: [4.682, 4.162, 5.1, 4.08]\n");
    expect_line(table, "\nhead_fwd_ms: 6.12\nhead_bwd_ms: 12.24\n");
    json_t *runs = rp_test_rpsim_json("--costs @DIR@/qwen@mine.yaml --schedule 1f1b --gpus 1 "
                                      "--microbatches 1 --recompute none");
    double ms = rp_test_json_number(json_array_get(runs, 0), "makespan_ms");
    cr_expect(epsilon_eq(dbl, ms,
                         2.295 + 2.04 + 2.55 + 2.04 + 4.682 + 4.162 + 5.1 + 4.08 + 6.12 + 12.24,
                         1e-9),
              "%f", ms);
    json_decref(runs);
}

/* The trace has unrounded times, and more ranges on the CPU, which do not count. Gzipped traces
 * give the same bytes. */
Test(roundpipe_cli, ranges_become_a_table)
{
    rp_test_outcome made =
        run("--kineto " GOLDEN "trace.json.gz --microbatch-size 4 --seq-len 2048");
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    cr_expect(eq(str, (char *)made.messages, ""));
    expect_line(made.output, "\nlayers: 4\nfwd_ms: [2.295, 2.04, 2.55, 2.04]\n"
                             "bwd_ms: [4.6818, 4.1616, 5.1, 4.08]\n");
    expect_line(made.output, "\nhead_fwd_ms: 6.12\nhead_bwd_ms: 12.24\n");
    rp_test_outcome all = run("--kineto " GOLDEN "trace.json.gz --microbatch-size 4 --seq-len 2048 "
                              "--ends none --statistic min");
    expect_line(all.output, "\nlayers: 6\nfwd_ms: [0.2525, 2.02, 2.02, 2.525, 2.02, 6.06]\n");
    expect_line(all.output, "\nhead_fwd_ms: 0\n");

    rp_text packed = {0};
    rp_text plain = {0};
    cr_assert(eq(int, rp_text_read_file(GOLDEN "trace.json.gz", SIZE_MAX, &packed), RP_OK));
    cr_assert(eq(int, rpsim_gunzip("t", packed.bytes, packed.length, &plain), RP_OK));
    const char *path = rp_test_tool_expand("@DIR@/t.json", strlen("@DIR@/t.json"));
    FILE *stream = fopen(path, "w");
    cr_assert(stream != NULL);
    cr_assert(eq(sz, fwrite(plain.bytes, 1, plain.length, stream), plain.length));
    cr_assert(eq(int, fclose(stream), 0));
    rp_text_fini(&packed);
    rp_text_fini(&plain);
    rp_test_outcome same = run("--kineto @DIR@/t.json --microbatch-size 4 --seq-len 2048");
    cr_expect(eq(str, (char *)same.output, (char *)made.output));
}

Test(roundpipe_cli, mistakes)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"--timer " GOLDEN "timer.log", "valid with --microbatch-size B and --seq-len S"},
        {"--timer " GOLDEN "timer.log --kineto a.json --microbatch-size 1 --seq-len 8",
         "valid is one of --kineto F[,F…], --timer F and --chakra PREFIX"},
        {"--timer " GOLDEN "timer.log --partition 3,3 --microbatch-size 1 --seq-len 8",
         "--partition: RoundPipe's ranges are of layers; valid without it"},
        {"--timer " GOLDEN "README.md --microbatch-size 1 --seq-len 8",
         "README.md: no line of the timer"},
        {"--kineto " GOLDEN "trace.json.gz," RP_TEST_ROOT
         "/golden/kineto/zb1p-p2v1m4.0.json --microbatch-size 1 --seq-len 8",
         "ranges of PyTorch's pipelines (PP:2F0) and of RoundPipe (L[2]B[0]Fwd); valid are traces "
         "with one of the two"},
        {"--chakra x --ends none", "makes no cost table"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_test_outcome result = run(cases[i].line);
        cr_expect(eq(int, result.status, 2), "%s", cases[i].line);
        cr_expect(strstr(result.messages, cases[i].message) != NULL, "%s: %s", cases[i].line,
                  result.messages);
    }
}

Test(roundpipe_cli, damaged_gzip)
{
    rp_text packed = {0};
    cr_assert(eq(int, rp_text_read_file(GOLDEN "trace.json.gz", SIZE_MAX, &packed), RP_OK));
    const struct {
        size_t length;
        size_t flip; /* a byte's index; 0: none */
        const char *message;
    } cases[] = {{packed.length - 9, 0, "the compressed file ends in its middle"},
                 {3, 0, "the compressed file ends in its middle"},
                 {packed.length, packed.length / 2, "the compressed file is damaged"},
                 {packed.length, packed.length - 6, "the compressed file is damaged"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_text plain = {0};
        char log[512];
        packed.bytes[cases[i].flip] ^= cases[i].flip != 0 ? 0x55 : 0;
        rp_log_capture_begin(log, sizeof log);
        rp_status status = rpsim_gunzip("t.gz", packed.bytes, cases[i].length, &plain);
        rp_log_capture_end();
        packed.bytes[cases[i].flip] ^= cases[i].flip != 0 ? 0x55 : 0;
        cr_expect(eq(int, status, RP_INPUT), "case %zu", i);
        cr_expect(strstr(log, cases[i].message) != NULL, "case %zu: %s", i, log);
        rp_text_fini(&plain);
    }
    rp_text_fini(&packed);
}
