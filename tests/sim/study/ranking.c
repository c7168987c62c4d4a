/* --schedule all: order, ranks, reasons of those that cannot run, exit status, and flips. */
#include "sim/study/ranking.h"
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(ranking, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 240);

static json_t *run(const char *line)
{
    return rp_test_rpsim_rows("", line);
}

static bool is_null(const json_t *row, const char *key)
{
    return json_is_null(json_object_get(row, key));
}

static bool same_text(const json_t *a, const json_t *b, const char *key)
{
    return strcmp(rp_test_json_text(a, key), rp_test_json_text(b, key)) == 0;
}

/* Fails unless `below` may follow `above`: ranks count faster rows only. */
static void check_neighbours(const json_t *above, const json_t *below, uint32_t place)
{
    double faster = rp_test_json_number(above, "tokens_per_s");
    double slower = rp_test_json_number(below, "tokens_per_s");
    bool ranked = !is_null(below, "rank");
    if (ranked) {
        cr_expect(not(is_null(above, "rank")), "what fits stands before what does not");
        double rank = rp_test_json_number(below, "rank");
        bool equal = faster == slower;
        cr_expect(eq(dbl, rank, equal ? rp_test_json_number(above, "rank") : place));
    }
    if (ranked == !is_null(above, "rank")) {
        cr_expect(ge(dbl, faster, slower));
    }
}

static void check_order(const json_t *rows, const char *const *modes, size_t mode_count)
{
    size_t mode = 0;
    uint32_t place = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *above = i > 0 ? json_array_get(rows, i - 1) : NULL;
        if (above == NULL || !same_text(above, row, "model")) {
            mode = 0;
            place = 0;
        } else if (!same_text(above, row, "recompute")) {
            mode++;
            place = 0;
        }
        cr_assert(lt(sz, mode, mode_count), "each mode once per model");
        cr_expect(eq(str, (char *)rp_test_json_text(row, "recompute"), (char *)modes[mode]));
        const json_t *fits = json_object_get(row, "fits");
        cr_expect(eq(int, is_null(row, "rank"), json_is_false(fits)));
        if (place++ > 0) {
            check_neighbours(above, row, place);
        } else if (!is_null(row, "rank")) {
            cr_expect(eq(dbl, rp_test_json_number(row, "rank"), 1.0));
        }
    }
}

Test(ranking, rows_are_in_order)
{
    static const char *const both[] = {"wait", "early"};
    static const char *const given[] = {"early", "none"};
    json_t *rows = run("--schedule all --gpus 4 --fidelity stage --model qwen3-1.7b,gpt-oss-20b "
                       "--format json");
    check_order(rows, both, 2);
    cr_expect(gt(sz, json_array_size(rows), 40));
    json_decref(rows);
    rows = run("--schedule all --gpus 4 --fidelity stage --recompute early,none --format json");
    check_order(rows, given, 2);
    json_decref(rows);
    rows = run("--schedule all --model llama3.1-8b --iterations 1 --format json --intervals off");
    check_order(rows, both, 2);
    uint32_t without = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        without += is_null(json_array_get(rows, i), "rank");
    }
    cr_expect(gt(u32, without, 10), "much does not fit 24 GB");
    cr_expect(lt(u32, without, (uint32_t)json_array_size(rows)));
    json_decref(rows);
    rows = run("--schedule gpipe,1f1b --gpus 4 --fidelity stage --format json");
    cr_expect(is_null(json_array_get(rows, 0), "rank"), "nobody asked for all");
    json_decref(rows);
}

/* Reasons stand below the table; a schedule's own rule also gives a warning. */
Test(ranking, reasons)
{
    rp_test_outcome all = rp_test_rpsim_well("--schedule all --gpus 8 --microbatches 17 "
                                             "--fidelity stage");
    static const char *const reasons[] = {
        "  interleaved-1f1b cannot run: --microbatches",
        "  zero2 cannot run: stage fidelity knows no collectives",
        "  megatron-pp cannot run: it differs from 1f1b only in what it moves",
        "  pipedream cannot run: flushed after every step it is 1f1b",
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        cr_expect(strstr(all.output, reasons[i]) != NULL, "%s", reasons[i]);
    }
    cr_expect(strstr(all.messages, "interleaved-1f1b left out") != NULL);
    cr_expect(strstr(all.messages, "zero2") == NULL, "no warning about what cannot be helped");
    rp_test_outcome small = rp_test_rpsim_well("--schedule all --model llama3.1-8b "
                                               "--iterations 1 --recompute wait --intervals off");
    cr_expect(strstr(small.output, "  zb-h1, recompute wait needs ") != NULL);
}

static void write_platform(const char *name, const char *without)
{
    FILE *to = fopen(name, "w");
    const char *text = rp_test_tool_read(RP_SOURCE_ROOT "/traces/platforms/rtx4090x8.yaml");
    cr_assert(to != NULL);
    while (*text != '\0') {
        size_t length = strcspn(text, "\n") + 1;
        if (strncmp(text, without, strlen(without)) != 0) {
            fwrite(text, 1, length, to);
        }
        text += length;
    }
    fclose(to);
}

/* Without measured collectives some systems cannot run on a server; the others do. */
Test(ranking, one_that_fails_does_not_stop_the_others)
{
    const char *path = rp_test_path(rp_test_tool_folder(), "rtx4090x8.yaml");
    char line[512];
    write_platform(path, "collective_gb_per_s");
    snprintf(line, sizeof line,
             "--schedule all --iterations 1 --recompute wait --intervals off --platform %s", path);
    rp_test_outcome all = rp_test_rpsim_well(line);
    cr_expect(strstr(all.output, "  zero2 cannot run: ") != NULL, "%s", all.output);
    cr_expect(strstr(all.output, "collective") != NULL);
    cr_expect(strstr(all.output, "roundpipe ") != NULL);
    cr_expect(strstr(all.messages, "warning: zero2 left out: ") != NULL, "%s", all.messages);
    snprintf(line, sizeof line, "--schedule zero2 --iterations 1 --platform %s", path);
    cr_expect(eq(int, rp_test_rpsim(line).status, 2));
}

Test(ranking, nothing_allowed_is_bad_usage)
{
    rp_test_outcome none = rp_test_rpsim("--schedule all --gpus 4 --partition 28 --fidelity stage");
    cr_expect(eq(int, none.status, 2));
    cr_expect(eq(str, (char *)none.output, ""));
    cr_expect(strstr(none.messages, "no schedule allows these sizes") != NULL, "%s", none.messages);
}

/* The schedule that a flip calls best leads a run with the flip's options; JSON and CSV have no
 * flips. */
Test(ranking, flips_agree_with_runs)
{
    static const struct {
        const char *flip;
        const char *options;
    } flips[] = {
        {"\n  recompute none ", "--recompute none"},
        {"\n  recompute early ", "--recompute early"},
        {"\n  optimizer async ", "--recompute wait --optimizer async"},
        {"\n  partition even ", "--recompute wait --partition even"},
        {"\n  partition auto ", "--recompute wait --partition auto"},
    };
    rp_test_outcome all = rp_test_rpsim_well("--schedule all --fidelity stage");
    for (size_t i = 0; i < sizeof flips / sizeof flips[0]; i++) {
        char line[256];
        char expected[128];
        snprintf(line, sizeof line, "--schedule all --fidelity stage --format json %s",
                 flips[i].options);
        json_t *rows = run(line);
        snprintf(expected, sizeof expected, "%s is ",
                 rp_test_json_text(json_array_get(rows, 0), "schedule"));
        const char *at = strstr(all.output, flips[i].flip);
        cr_assert(at != NULL, "%s", flips[i].flip);
        const char *name = at + strlen(flips[i].flip);
        name += strspn(name, " ");
        cr_expect(strncmp(name, expected, strlen(expected)) == 0, "%s: %.60s", expected, name);
        json_decref(rows);
    }
    cr_expect(strstr(all.output, "\n  hops for twice the time ") != NULL);
    cr_expect(strstr(all.output, "\n  receive placement ") != NULL);
    const char *gap = strstr(all.output, "\n\n   1 "); /* row 1 is right below */
    const char *early = gap != NULL ? strstr(gap, " early ") : NULL;
    cr_expect(early != NULL && early < strchr(gap + 2, '\n'),
              "no line between the recompute modes: %s", all.output);
    cr_expect(eq(str, (char *)all.messages, ""), "flips say nothing of what is left out");
    rp_test_outcome csv = rp_test_rpsim_well("--schedule all --fidelity stage --format csv");
    cr_expect(strstr(csv.output, "flips") == NULL);
    rp_csv table = rp_test_tool_table("csv", csv.output, ',');
    cr_expect(eq(str, (char *)rp_test_tool_cell(&table, 0, "rank"), "1"));
    /* Named schedules are compared, not ranked. */
    rp_test_outcome two = rp_test_rpsim_well("--schedule gpipe,1f1b --fidelity stage");
    cr_expect(strstr(two.output, "flips") == NULL);
}

#define SERVER "--schedule all --model llama3.1-8b --platform rtx4090x8 --gpus 4 --iterations 2 "
#define SETTING SERVER "--recompute wait --intervals off --global-batch 32 "

/* The name of the best fitting row, and its rate. */
static const char *best_row(const json_t *rows, double *tokens_out)
{
    cr_assert(not(is_null(json_array_get(rows, 0), "rank")), "something fits");
    *tokens_out = rp_test_json_number(json_array_get(rows, 0), "tokens_per_s");
    return rp_test_json_text(json_array_get(rows, 0), "schedule");
}

static bool fits_in(const json_t *rows, const char *schedule)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(rp_test_json_text(row, "schedule"), schedule) == 0) {
            return !is_null(row, "rank");
        }
    }
    return false;
}

/* True if a line lists `name` after `heading`, before the next ';' or the end. */
static bool lists(const char *line, const char *heading, const char *name)
{
    const char *at = strstr(line, heading);
    if (at == NULL || at >= line + strcspn(line, "\n")) {
        return false;
    }
    at += strlen(heading);
    const char *end = at + strcspn(at, ";\n");
    while (at < end) {
        size_t length = strcspn(at, ",.;\n");
        if (length == strlen(name) && strncmp(at, name, length) == 0) {
            return true;
        }
        at += length;
        at += strspn(at, ",. ");
    }
    return false;
}

/* A flip's line gives the result of a run with its options: the best, its lead, and those that fit
 * only then. @param moves whether fits change */
static void check_setting(const rp_test_outcome *all, const json_t *base, const char *what,
                          const char *options, bool moves)
{
    char text[512];
    double was = 0;
    double is = 0;
    best_row(base, &was);
    snprintf(text, sizeof text, SERVER "--recompute wait --global-batch 32 --format json %s",
             options);
    json_t *rows = run(text);
    const char *best = best_row(rows, &is);
    const char *line = strstr(all->output, what);
    cr_assert(line != NULL, "%s in %s", what, all->output);
    line++;
    snprintf(text, sizeof text, "%s is ", best);
    const char *at = strstr(line, text);
    cr_expect(at != NULL && at < line + strcspn(line, "\n"), "%s: %s", what, text);
    snprintf(text, sizeof text, "(%+.2f %% tokens/s)", 100 * (is / was - 1));
    at = strstr(line, text);
    cr_expect(at != NULL && at < line + strcspn(line, "\n"), "%s: %s", what, text);
    uint32_t moved = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *name = rp_test_json_text(json_array_get(rows, i), "schedule");
        bool now = fits_in(rows, name) && !fits_in(base, name);
        bool gone = !fits_in(rows, name) && fits_in(base, name);
        cr_expect(eq(int, lists(line, "now fits: ", name), now), "%s: %s", what, name);
        cr_expect(eq(int, lists(line, "fit any more: ", name), gone), "%s: %s", what, name);
        moved += now || gone;
    }
    cr_expect(eq(int, moved > 0, moves), "%s: choose another case", what);
    json_decref(rows);
}

/* Every step has the requested 32 sequences. */
Test(ranking, flips_of_settings_agree_with_runs)
{
    rp_test_outcome all = rp_test_rpsim_well(SETTING);
    json_t *base = run(SETTING "--format json");
    check_setting(&all, base, "\n  optimizer async ", "--intervals off --optimizer async", false);
    check_setting(&all, base, "\n  microbatch size 1 ",
                  "--intervals off --microbatches 32 --microbatch-size 1", true);
    check_setting(&all, base, "\n  microbatch size 8 ",
                  "--intervals off --microbatches 4 --microbatch-size 8", true);
    json_decref(base);
}

Test(ranking, settings_held_fixed_are_said)
{
    rp_test_outcome all = rp_test_rpsim_well(SETTING "--seq-len 1024 --lora-rank 8");
    cr_expect(strstr(all.output, ": held fixed for all schedules: optimizer sync, 4 "
                                 "sequences of 1024 tokens per microbatch, 1 x 8 microbatches per "
                                 "step, grain as usual, partition as published or even\n") != NULL,
              "%s", all.output);
    cr_expect(strstr(all.output, ": rpadvise --model llama3.1-8b --platform rtx4090x8 --gpus 4 "
                                 "--seq-len 1024 --global-batch 32 --lora-rank 8\n") != NULL);
    rp_test_outcome stage = rp_test_rpsim_well("--schedule all --fidelity stage --optimizer async");
    cr_expect(strstr(stage.output, "held fixed for all schedules: optimizer async, ") != NULL);
    cr_expect(strstr(stage.output, "\n  optimizer sync ") != NULL);
    cr_expect(strstr(stage.output, "\n  microbatch size ") == NULL,
              "the table's size is the only one");
    cr_expect(strstr(stage.output, "rpadvise") == NULL, "it knows hardware fidelity only");
}

/* Left out: more microbatches than the run's on many GPUs, which take long, and a single
 * asynchronous iteration, which has no period. */
Test(ranking, flips_that_are_left_out)
{
    rp_test_outcome all =
        rp_test_rpsim_well("--schedule all --partition 4,4,4,4,4,4,4,0 --microbatches 72 "
                           "--microbatch-size 2 --iterations 1 --recompute wait --intervals off");
    cr_expect(strstr(all.output, "\n  microbatch size 1         not run: ") != NULL, "%s",
              all.output);
    cr_expect(strstr(all.output, "\n  microbatch size 4 ") != NULL);
    cr_expect(strstr(all.output, "\n  optimizer async") == NULL);
}

/* By hand: a leads b by 10 % then trails by 20 %; b ties with c, then not; d does not fit. */
Test(ranking, reversals)
{
    rpsim_standing base[] = {{"a", 110}, {"b", 100}, {"c", 100}, {"d", 0}, {"e", 99}};
    rpsim_standing after[] = {{"a", 100}, {"b", 120}, {"c", 90}, {"d", 500}, {"e", 101}};
    rpsim_comparison comparison = {.count = 5, .standings = base};
    rpsim_flip flip = {.what = "by hand", .standings = after};
    rpsim_reversal found[10];
    uint32_t pairs = 0;
    uint32_t count = rpsim_flip_reversals(&comparison, &flip, found, &pairs);
    cr_expect(eq(u32, pairs, 6));
    cr_assert(eq(u32, count, 3)); /* a and b; c and e; a and e */
    cr_expect(eq(u32, found[0].ahead, 0));
    cr_expect(eq(u32, found[0].behind, 1));
    cr_expect(epsilon_eq(dbl, found[0].lead, 0.1, 1e-12));
    cr_expect(epsilon_eq(dbl, found[0].loss, 0.2, 1e-12));
    /* By the lesser of lead and loss: c 1.01 % ahead of e; a 11.1 %, but then 1 % behind. */
    cr_expect(eq(u32, found[1].ahead, 2));
    cr_expect(eq(u32, found[2].ahead, 0));
    cr_expect(epsilon_eq(dbl, found[2].loss, 0.01, 1e-12));
}
