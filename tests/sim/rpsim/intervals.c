/* --intervals: keys, kinds, off, undecided quantities; throughput never comes from the makespan. */
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(intervals, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 240);

static json_t *run(const char *line)
{
    return rp_test_rpsim_rows("", line);
}

static bool is_null(const json_t *row, const char *key)
{
    return json_is_null(json_object_get(row, key));
}

static double number(const json_t *rows, const char *key)
{
    return rp_test_json_number(json_array_get(rows, 0), key);
}

static double width(const json_t *rows)
{
    return (number(rows, "tokens_per_s_p90") - number(rows, "tokens_per_s_p10")) /
           number(rows, "tokens_per_s_p50");
}

static const json_t *input_of(const json_t *rows, const char *name)
{
    const json_t *inputs = json_object_get(json_array_get(rows, 0), "inputs");
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *input = json_array_get(inputs, i);
        if (strcmp(rp_test_json_text(input, "name"), name) == 0) {
            return input;
        }
    }
    return NULL;
}

static void expect_kind(const json_t *rows, const char *name, const char *kind)
{
    const json_t *input = input_of(rows, name);
    cr_assert(input != NULL, "%s", name);
    cr_expect(eq(str, (char *)rp_test_json_text(input, "kind"), (char *)kind), "%s", name);
    cr_expect(ge(dbl, rp_test_json_number(input, "matters_pct"), 0), "%s", name);
    cr_expect(eq(sz, json_object_size(input), 3));
}

Test(intervals, keys)
{
    json_t *rows = run("--schedule roundpipe --gpus 8 --format json");
    json_t *again = run("--schedule roundpipe --gpus 8 --format json --intervals 32");
    json_t *off = run("--schedule roundpipe --gpus 8 --format json --intervals off");
    double tokens = number(rows, "tokens_per_s");
    cr_expect(lt(dbl, number(rows, "tokens_per_s_p10"), tokens));
    cr_expect(gt(dbl, number(rows, "tokens_per_s_p90"), tokens));
    cr_expect(lt(dbl, number(rows, "tokens_per_s_p10"), number(rows, "tokens_per_s_p50")));
    cr_expect(eq(dbl, number(rows, "tokens_per_s_p90"), number(again, "tokens_per_s_p90")));
    cr_expect(eq(dbl, number(off, "tokens_per_s"), tokens), "the prediction itself is not drawn");
    static const char *const keys[] = {"tokens_per_s_p10", "tokens_per_s_p50", "tokens_per_s_p90",
                                       "inputs"};
    for (size_t i = 0; i < 4; i++) {
        cr_expect(is_null(json_array_get(off, 0), keys[i]), "%s", keys[i]);
    }
    expect_kind(rows, "layer_times", "measured");
    expect_kind(rows, "link_gb_per_s", "measured");
    expect_kind(rows, "host_optimizer_gb_per_s", "set");
    expect_kind(rows, "run", "assumed");
    cr_expect(eq(ptr, (void *)input_of(rows, "collective_gb_per_s"), NULL), "it has none");
    json_decref(rows);
    json_decref(again);
    json_decref(off);
}

/* A single draw equals the run. Another seed changes the draws, not the run. */
Test(intervals, draws_and_seeds)
{
    json_t *one = run("--schedule gpipe --format json --intervals 1");
    json_t *a = run("--schedule gpipe --format json --seed 1");
    json_t *b = run("--schedule gpipe --format json --seed 2");
    cr_expect(epsilon_eq(dbl, number(one, "tokens_per_s_p10"), number(one, "tokens_per_s"), 1e-6));
    cr_expect(epsilon_eq(dbl, number(one, "tokens_per_s_p90"), number(one, "tokens_per_s"), 1e-6));
    cr_expect(ne(dbl, number(a, "tokens_per_s_p10"), number(b, "tokens_per_s_p10")));
    cr_expect(eq(dbl, number(a, "tokens_per_s"), number(b, "tokens_per_s")));
    json_decref(one);
    json_decref(a);
    json_decref(b);
}

/* The first draw has factors of 1, and repeats the run, for every schedule. */
Test(intervals, one_draw_of_every_schedule)
{
    json_t *rows = run("--schedule all --recompute wait --format json --intervals 1 --seq-len 3000 "
                       "--gpus 4 --microbatches 8");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double tokens = rp_test_json_number(row, "tokens_per_s");
        cr_expect(epsilon_eq(dbl, rp_test_json_number(row, "tokens_per_s_p10") / tokens, 1, 1e-9),
                  "%s", rp_test_json_text(row, "schedule"));
    }
    cr_expect(gt(sz, json_array_size(rows), 20));
    json_decref(rows);
}

/* On GPUs that nobody measured, layer times are moved or computed, and the interval is at least
 * twice as wide. */
Test(intervals, gpus_nobody_measured)
{
    static const char *const platforms[] = {"rtx3090x8", "rtx5090x8", "a800x8", "h100x8", "h200x8"};
    static const char *const schedules[] = {"roundpipe", "1f1b", "zero2"};
    for (size_t s = 0; s < 3; s++) {
        char line[160];
        snprintf(line, sizeof line, "--schedule %s --format json --model llama3.1-8b",
                 schedules[s]);
        json_t *known = run(line);
        size_t step = getenv("RP_LONG") != NULL ? 1 : 5;
        for (size_t p = s % step; p < sizeof platforms / sizeof platforms[0]; p += step) {
            snprintf(line, sizeof line,
                     "--schedule %s --format json --model llama3.1-8b "
                     "--platform %s",
                     schedules[s], platforms[p]);
            json_t *rows = run(line);
            cr_expect(ge(dbl, width(rows), 2 * width(known)), "%s: %.3f against %.3f", line,
                      width(rows), width(known));
            expect_kind(rows, "layer_times", "moved");
            json_decref(rows);
        }
        json_decref(known);
    }
    /* Here the host matters most, and the RTX 4090's interval is wide itself. */
    json_t *known = run("--schedule roundpipe --format json --model qwen3-32b --iterations 1");
    json_t *rows = run("--schedule roundpipe --format json --model qwen3-32b --iterations 1 "
                       "--platform rtx3090x8");
    cr_expect(ge(dbl, width(rows), 2 * width(known)), "%.3f, %.3f", width(rows), width(known));
    expect_kind(rows, "run", "moved");
    json_decref(rows);
    json_decref(known);
    rp_test_outcome table = rp_test_rpsim_well("--schedule roundpipe --platform h100x8");
    cr_expect(strstr(table.output, "nobody has measured qwen3-1.7b on h100x8 in fp16: its layer "
                                   "times are moved") != NULL,
              "%s", table.output);
    table = rp_test_rpsim_well("--schedule roundpipe");
    cr_expect(strstr(table.output, "nobody has measured") == NULL);
    cr_expect(strstr(table.output, "(measured)") != NULL);
    cr_expect(strstr(table.output, " tokens/s     p10 - p90 ") != NULL, "%s", table.output);
}

Test(intervals, refusals_and_stage)
{
    static const char *const bad[][2] = {
        {"--schedule gpipe --fidelity stage --intervals 8", "--intervals: valid only with"},
        {"--schedule gpipe --intervals 0", "valid values are off, and counts from 1 to 10000"},
        {"--schedule gpipe --intervals on", "'on' is not valid"},
        {"--schedule gpipe --intervals 10001", "'10001' is not valid"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim(bad[i][0]);
        cr_expect(eq(int, outcome.status, 2), "%s", bad[i][0]);
        cr_expect(strstr(outcome.messages, bad[i][1]) != NULL, "%s", outcome.messages);
    }
    json_t *rows = run("--schedule gpipe --fidelity stage --format json --intervals off");
    cr_expect(eq(ptr, json_object_get(json_array_get(rows, 0), "tokens_per_s_p10"), NULL));
    json_decref(rows);
    rp_test_outcome csv = rp_test_rpsim_well("--schedule gpipe --format csv --intervals 4");
    rp_csv table = rp_test_tool_table("csv", csv.output, ',');
    cr_expect(ne(int, rp_test_tool_cell(&table, 0, "tokens_per_s_p10")[0], '\0'));
    cr_expect(ne(int, rp_test_tool_cell(&table, 0, "tokens_per_s_p90")[0], '\0'));
}

/* With moved or assumed times some neighbours of the ranking are undecided; distant pairs are
 * decided. */
Test(intervals, what_is_not_decided)
{
    bool all = getenv("RP_LONG") != NULL;
    rp_test_outcome open = rp_test_rpsim_well(
        all ? "--schedule all --platform h100x8 --intervals 8"
            : "--schedule zero2,zb-h2,zbv,zb-h1,gpipe --platform h100x8 --intervals 8");
    static const char *const openings[2][2] = {
        {"  not decided: ", "  not decided: "},
        {"  not decided, recompute wait: ", "  not decided, recompute early: "}};
    cr_expect(strstr(open.output, openings[all][0]) != NULL, "%s", open.output);
    cr_expect(strstr(open.output, openings[all][1]) != NULL, "%s", open.output);
    cr_expect(strstr(open.output, " 1 more pairs") == NULL, "%s", open.output);
    cr_expect(strstr(open.output, " of the draws; ") != NULL, "%s", open.output);
    cr_expect(strstr(open.output, " would decide it") != NULL, "%s", open.output);
    rp_test_outcome two = rp_test_rpsim_well("--schedule 1f1b,gpipe --recompute wait");
    cr_expect(strstr(two.output, "  not decided: ") != NULL, "%s", two.output);
    rp_test_outcome closed = rp_test_rpsim_well("--schedule looped-bfs,mobius --recompute early");
    cr_expect(strstr(closed.output, "not decided") == NULL, "%s", closed.output);
    rp_test_outcome off = rp_test_rpsim_well("--schedule looped-bfs,mobius --intervals off");
    cr_expect(strstr(off.output, " draws") == NULL, "%s", off.output);
}

/* Without a steady state tokens_per_s is an estimate or null: never a step's tokens over the
 * makespan, and near the rate of 16 iterations. RP_LONG: every number of iterations. */
Test(intervals, short_asynchronous_runs)
{
    static const char *const schedules[] = {"roundpipe", "pipedream"};
    for (size_t s = 0; s < 2; s++) {
        char line[160];
        snprintf(line, sizeof line, "--schedule %s --optimizer async --iterations 16 --format json",
                 schedules[s]);
        json_t *steady = run(line);
        for (int i = 1; i < 16; i += getenv("RP_LONG") != NULL || i < 2 ? 1 : 3) {
            snprintf(line, sizeof line,
                     "--schedule %s --optimizer async --iterations %d --format json --intervals 4",
                     schedules[s], i);
            json_t *rows = run(line);
            const json_t *row = json_array_get(rows, 0);
            if (is_null(row, "iteration_ms")) {
                cr_expect(eq(int, i, 1));
                cr_expect(is_null(row, "tokens_per_s"));
                cr_expect(is_null(row, "tokens_per_s_p50"));
            } else {
                double tokens = 64.0 * 2048;
                double rate = number(rows, "tokens_per_s");
                cr_expect(epsilon_eq(dbl, rate * number(rows, "iteration_ms"), 1e3 * tokens, 1));
                cr_expect(gt(dbl, rate * number(rows, "makespan_ms"), 1.2e3 * tokens));
                cr_expect(epsilon_eq(dbl, rate / number(steady, "tokens_per_s"), 1, 0.03), "%d", i);
            }
            json_decref(rows);
        }
        json_decref(steady);
    }
}
