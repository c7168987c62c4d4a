/* rppredict --fit on runs made by the simulator: their constants are found again; those that the
 * runs do not show stay; those beyond their range are held. */
#include "sim/rppredict/fit.h"
#include "common/base/log.h"
#include "common/inputs/write/platform_write.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static rp_arena *arena;
static char messages[8192];
static rpsim_cells_inputs inputs;
static char path[] = "/tmp/rp-fit-XXXXXX";

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_log_capture_begin(messages, sizeof messages);
    int descriptor = mkstemp(path);
    cr_assert(ge(int, descriptor, 0));
    close(descriptor);
    cr_assert(eq(int, rpsim_cells_load("rtx4090x8", NULL, 0, arena, &inputs), RP_OK));
}

static void end(void)
{
    unlink(path);
    rp_log_capture_end();
    rp_test_end(arena);
}

TestSuite(fit, .init = begin, .fini = end);

static const rpsim_fit_constant *find(const rpsim_fit *fit, const char *key)
{
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        if (strcmp(fit->constants[i].key, key) == 0) {
            return &fit->constants[i];
        }
    }
    cr_assert_fail("%s is not there", key);
    return NULL;
}

static double error_of(const rpsim_fit_row *row)
{
    return fabs(row->predicted_tokens_per_s / row->measured_tokens_per_s - 1);
}

/* ---- constants that made the runs ------------------------------------------------------------ */

/* Systems whose runs are simulated in milliseconds, and depend on different constants. */
static const struct {
    const char *framework;
    uint32_t gpus;
    const char *sizes; /* global_batch to sequence_slices */
} systems[] = {{"fsdp", 8, "8,8,1,layer,1"},           {"zero2", 8, "8,8,1,layer,1"},
               {"zero-infinity", 8, "8,8,1,layer,1"},  {"megatron-tp", 8, "8,8,1,layer,8"},
               {"megatron-pp", 8, "16,8,1,stage,1"},   {"roundpipe-sync", 4, "8,4,1,layer,1"},
               {"roundpipe-sync", 8, "16,8,1,layer,1"}};

#define SYSTEMS COUNT(systems)
#define ROUNDPIPES (32u | 64u) /* the last two, as bits */

/* A constant's change from the platform file. */
typedef struct change {
    const char *key; /* NULL: none */
    double factor;
} change;

#define LINK "link" /* key of the platform's host link */

static const change changes[] = {{"layer_time_factor", 1.15},
                                 {"layer_time_factor", 1.4},
                                 {"layer_time_factor", 0.9},
                                 {"collective_gb_per_s", 0.6},
                                 {LINK, 0.7},
                                 {"host_optimizer_gb_per_s", 0.5},
                                 {"host_optimizer_gb_per_s", 1.7},
                                 {"collective_gb_per_s", 1.2}};

/* Sets of systems to fit, as bits. */
static const unsigned fitted_sets[] = {1,  2,  4,  8,  16, 32, 64, 3, 9,
                                       17, 24, 33, 36, 80, 96, 57, 61};

typedef struct truth {
    const char *platform;
    change changes[2];
    unsigned fitted;
} truth;

static const char *key_of(const change *c, const rp_platform *platform)
{
    bool measured = platform->link_effective_gb_per_s > 0;
    return strcmp(c->key, LINK) != 0 ? c->key
           : measured                ? "link_effective_gb_per_s"
                                     : "link_efficiency";
}

static void write_table(unsigned fitted, const rpsim_answer *answers)
{
    FILE *stream = fopen(path, "w");
    cr_assert(stream != NULL);
    fputs("framework,model,seq_len,gpus,global_batch,microbatches,calls,grain,sequence_slices,"
          "tokens_per_s,use\n",
          stream);
    for (size_t i = 0; i < SYSTEMS; i++) {
        fprintf(stream, "%s,qwen3-1.7b,2048,%u,%s,%.6f,%s\n", systems[i].framework, systems[i].gpus,
                systems[i].sizes, answers[i].tokens_per_s,
                (fitted & 1u << i) != 0 ? "fit" : "predict");
    }
    fclose(stream);
}

static void make_runs(const truth *t)
{
    rpsim_answer answers[SYSTEMS] = {0};
    rpsim_cells cells;
    rpsim_cells_inputs true_inputs = inputs;
    for (size_t i = 0; i < 2 && t->changes[i].key != NULL; i++) {
        const char *key = key_of(&t->changes[i], &inputs.platform);
        double value = *rp_platform_rate(&inputs.platform, key) * t->changes[i].factor;
        rpsim_fit_set(&true_inputs.platform, key, value);
    }
    write_table(t->fitted, answers);
    cr_assert(eq(int, rpsim_cells_read(path, &true_inputs, arena, &cells), RP_OK), "%s", messages);
    cr_assert(
        eq(int, rpsim_answer_all(&true_inputs.platform, cells.questions, SYSTEMS, answers), RP_OK));
    write_table(t->fitted, answers);
}

static const change *change_of(const truth *t, const char *key)
{
    for (size_t i = 0; i < 2 && t->changes[i].key != NULL; i++) {
        if (strcmp(key_of(&t->changes[i], &inputs.platform), key) == 0) {
            return &t->changes[i];
        }
    }
    return NULL;
}

/* Fits only the constant that made the runs: its value is found, whatever else might explain the
 * runs, and runs outside the fit are predicted. */
static void find_again(const char *key, double factor)
{
    rpsim_fit fit;
    const truth t = {"rtx4090x8", {{key, factor}}, ROUNDPIPES};
    make_runs(&t);
    cr_assert(eq(int, rpsim_fit_run(path, &inputs, &key, 1, arena, &fit), RP_OK), "%s", messages);
    const rpsim_fit_constant *c = find(&fit, key);
    cr_expect(lt(dbl, fabs(c->value / c->before / factor - 1), 0.02), "%s: %g", key, c->value);
    cr_expect(eq(int, c->state, RPSIM_FIT_SET), "%s", c->said);
    cr_expect(lt(dbl, c->spread_pct, 20), "%g", c->spread_pct);
    cr_assert(eq(u32, fit.row_count, SYSTEMS));
    for (uint32_t i = 0; i < fit.row_count; i++) {
        cr_expect(lt(dbl, error_of(&fit.rows[i]), 0.005), "row %u: %g", i, error_of(&fit.rows[i]));
        cr_expect(eq(int, fit.rows[i].fit, (ROUNDPIPES >> i & 1) != 0));
    }
    double before = fit.rows[SYSTEMS - 1].before_tokens_per_s;
    cr_expect(gt(dbl, fabs(before / fit.rows[SYSTEMS - 1].measured_tokens_per_s - 1),
                 0.03)); /* the fit was needed */
    cr_expect(eq(dbl, *rp_platform_rate(&fit.platform, key), c->value));
}

Test(fit, finds_the_host_rate_again)
{
    find_again("host_optimizer_gb_per_s", 0.63);
    if (getenv("RP_LONG") != NULL) {
        find_again("host_optimizer_gb_per_s", 1.37);
    }
}

/* No host can be as slow as in these runs: nothing is set, with a message. */
Test(fit, leaves_what_ends_at_its_edge)
{
    static const char *const host = "host_optimizer_gb_per_s";
    rpsim_fit fit;
    make_runs(&(truth){"rtx4090x8", {{host, 0.01}}, ROUNDPIPES});
    cr_assert(eq(int, rpsim_fit_run(path, &inputs, &host, 1, arena, &fit), RP_OK), "%s", messages);
    const rpsim_fit_constant *c = find(&fit, host);
    cr_expect(eq(int, c->state, RPSIM_FIT_AT_END));
    cr_expect(eq(dbl, c->value, c->before));
    cr_expect(eq(dbl, fit.platform.host_optimizer_gb_per_s, 95));
    cr_expect(strstr(messages, "host_optimizer_gb_per_s: the runs ask for the end of its physical "
                               "range, 15 to 1200; it stays at 95") != NULL,
              "%s", messages);
}

static bool slows(const change *c)
{
    return (strcmp(c->key, "layer_time_factor") == 0) == (c->factor > 1);
}

/* Only constants that made the runs are set, though each may include part of another change. Runs
 * of several systems show the values. No run outside the fit gets worse, unless two changes had
 * cancelled out. */
static void check_fit(const truth *t, const rpsim_fit *fit, const char *what)
{
    bool several = t->fitted == 57 || t->fitted == 61; /* a system per limit */
    bool alike = t->changes[1].key == NULL || slows(&t->changes[0]) == slows(&t->changes[1]);
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        const rpsim_fit_constant *c = &fit->constants[i];
        const change *made = change_of(t, c->key);
        bool is_set = c->state == RPSIM_FIT_SET;
        double off = made != NULL ? fabs(log(c->value / c->before / made->factor)) : 0;
        cr_expect(eq(int, is_set, c->value != c->before), "%s: %s", what, c->key);
        cr_expect(not(is_set && made == NULL), "%s: %s %g", what, c->key, c->value);
        cr_expect(not(is_set && off > 0.4), "%s: %s %g", what, c->key, c->value);
        bool limits =
            several && alike && made != NULL && slows(made) && strncmp(c->key, LINK, 4) != 0;
        cr_expect(not(limits && off > 0.05), "%s: %s %g, %s", what, c->key, c->value, c->said);
    }
    for (uint32_t i = 0; i < fit->row_count && alike; i++) {
        const rpsim_fit_row *row = &fit->rows[i];
        double before = fabs(row->before_tokens_per_s / row->measured_tokens_per_s - 1);
        cr_expect(le(dbl, error_of(row), before + 0.03), "%s: %s %g, was %g", what,
                  row->question->framework, error_of(row), before);
    }
}

static void try_truth(const truth *t)
{
    char what[160];
    rpsim_fit fit;
    snprintf(what, sizeof what, "%s, %s %g and %s %g, rows %u", t->platform, t->changes[0].key,
             t->changes[0].factor, t->changes[1].key != NULL ? t->changes[1].key : "nothing",
             t->changes[1].factor, t->fitted);
    cr_assert(eq(int, rpsim_cells_load(t->platform, NULL, 0, arena, &inputs), RP_OK));
    make_runs(t);
    cr_assert(eq(int, rpsim_fit_run(path, &inputs, NULL, 0, arena, &fit), RP_OK), "%s: %s", what,
              messages);
    check_fit(t, &fit, what);
}

/* Each constant and each pair of each platform, shown by runs of one or several systems; a plain
 * test samples them. */
Test(fit, sets_nothing_but_what_made_the_runs)
{
    static const char *const platforms[] = {"h100x8", "a100-80x8", "rtx4090x8"};
    uint32_t stride = getenv("RP_LONG") != NULL ? 1 : 1597;
    uint32_t number = 0;
    for (size_t p = 0; p < COUNT(platforms); p++) {
        for (size_t a = 0; a < COUNT(changes); a++) {
            for (size_t b = a; b < COUNT(changes); b++) {
                for (size_t s = 0; s < COUNT(fitted_sets); s++) {
                    bool same = a != b && strcmp(changes[a].key, changes[b].key) == 0;
                    if (!same && number++ % stride == 0) {
                        try_truth(&(truth){platforms[p],
                                           {changes[a], a != b ? changes[b] : (change){0}},
                                           fitted_sets[s]});
                    }
                }
            }
        }
    }
}

/* This system waits for collectives as long as it computes: either may be slow. */
Test(fit, refuses_what_two_constants_explain)
{
    rpsim_fit fit;
    cr_assert(eq(int, rpsim_cells_load("h100x8", NULL, 0, arena, &inputs), RP_OK));
    make_runs(&(truth){"h100x8", {{"collective_gb_per_s", 0.6}}, 1});
    cr_assert(eq(int, rpsim_fit_run(path, &inputs, NULL, 0, arena, &fit), RP_OK), "%s", messages);
    static const char *const either[] = {"layer_time_factor", "collective_gb_per_s"};
    for (size_t i = 0; i < COUNT(either); i++) {
        const rpsim_fit_constant *c = find(&fit, either[i]);
        cr_expect(eq(int, c->state, RPSIM_FIT_RIVALS), "%s: %s", c->key, c->said);
        cr_expect(eq(str, (char *)c->rivals, (char *)either[1 - i]));
        cr_expect(eq(dbl, c->value, c->before));
    }
    cr_expect(strstr(messages, "collective_gb_per_s: the runs to fit do not determine it; it stays "
                               "at 295: the runs are explained as well by "
                               "layer_time_factor") != NULL,
              "%s", messages);
    cr_expect(eq(int, find(&fit, "dispatch_us_per_module")->state, RPSIM_FIT_UNSEEN));
}

/* Benchmarks of pytorch/torchtitan (December 2024): Llama 3.1 8B under FSDP2 on 8 H100, eager and
 * compiled. No NVLink from 0.3 to 1 of its data sheet's rate explains such slow runs; slow passes
 * do. */
Test(fit, slow_passes_are_no_slow_nvlink)
{
    rpsim_fit fit;
    const char *runs = RP_TEST_ROOT "/golden/torchtitan_h100.csv";
    cr_assert(eq(int, rpsim_cells_load("h100x8", NULL, 0, arena, &inputs), RP_OK));
    cr_assert(eq(int, rpsim_fit_run(runs, &inputs, NULL, 0, arena, &fit), RP_OK), "%s", messages);
    const rpsim_fit_constant *layers = find(&fit, "layer_time_factor");
    const rpsim_fit_constant *nvlink = find(&fit, "collective_gb_per_s");
    cr_expect(eq(int, layers->state, RPSIM_FIT_SET), "%s", layers->said);
    cr_expect(gt(dbl, layers->value, 1.1), "%g", layers->value);
    cr_expect(eq(dbl, nvlink->value, 295), "%s", nvlink->said);
    cr_expect(eq(dbl, nvlink->low, 0.3 * 450));
    cr_expect(eq(dbl, nvlink->high, 450));
    cr_expect(eq(dbl, fit.platform.collective_gb_per_s, 295));
}

/* ---- misleading runs ------------------------------------------------------------------------- */

/* A row with the throughput that the platform's constants predict times a factor. */
typedef struct made_row {
    size_t system; /* index in systems[] */
    double factor;
    const char *use;
    const char *rest; /* columns from model to sequence_slices; NULL: those of systems[] */
} made_row;

static void write_made(const made_row *rows, uint32_t count, const rpsim_answer *answers)
{
    FILE *stream = fopen(path, "w");
    cr_assert(stream != NULL);
    fputs("framework,model,seq_len,gpus,global_batch,microbatches,calls,grain,sequence_slices,"
          "tokens_per_s,use\n",
          stream);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, "%s,", systems[rows[i].system].framework);
        if (rows[i].rest != NULL) {
            fprintf(stream, "%s", rows[i].rest);
        } else {
            fprintf(stream, "qwen3-1.7b,2k,%u,%s", systems[rows[i].system].gpus,
                    systems[rows[i].system].sizes);
        }
        fprintf(stream, ",%.6f,%s\n", answers[i].tokens_per_s * rows[i].factor, rows[i].use);
    }
    fclose(stream);
}

static rp_status fit_made(const char *platform, const made_row *rows, uint32_t count,
                          rpsim_fit *fit)
{
    rpsim_answer answers[8] = {0};
    rpsim_cells cells;
    rp_log_capture_end();
    rp_log_capture_begin(messages, sizeof messages);
    cr_assert(le(u32, count, COUNT(answers)));
    for (uint32_t i = 0; i < count; i++) {
        answers[i].tokens_per_s = 1;
    }
    cr_assert(eq(int, rpsim_cells_load(platform, NULL, 0, arena, &inputs), RP_OK));
    write_made(rows, count, answers);
    cr_assert(eq(int, rpsim_cells_read(path, &inputs, arena, &cells), RP_OK), "%s", messages);
    cr_assert(eq(int, rpsim_answer_all(&inputs.platform, cells.questions, count, answers), RP_OK));
    write_made(rows, count, answers);
    return rpsim_fit_run(path, &inputs, NULL, 0, arena, fit);
}

static bool sets_any(const rpsim_fit *fit)
{
    bool any = false;
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        any = any || fit->constants[i].value != fit->constants[i].before;
    }
    return any;
}

/* 70 billion parameters in shards on 8 GPUs of 80 GB: 16 bytes each are 140 GB per GPU (Rajbhandari
 * et al., ZeRO, 2020, section 3). Such rows change nothing, whatever their values and places. */
#define TOO_LARGE "llama3.1-70b,4k,8,64,8,1,layer,1"

Test(fit, leaves_out_what_does_not_fit)
{
    rpsim_fit with;
    rpsim_fit without;
    static const double factors[] = {0.5, 1};
    const made_row plain[] = {{0, 1 / 1.3, "fit", NULL}, {3, 1 / 1.3, "fit", NULL}};
    cr_assert(eq(int, fit_made("h100x8", plain, 2, &without), RP_OK), "%s", messages);
    for (size_t i = 0; i < COUNT(factors); i++) {
        const made_row rows[] = {
            {0, factors[i], i == 1 ? "predict" : "fit", TOO_LARGE}, plain[0], plain[1]};
        cr_assert(eq(int, fit_made("h100x8", rows, 3, &with), RP_OK), "%s", messages);
        cr_expect(strstr(messages, ":2: left out, for fsdp, llama3.1-70b on 8 GPUs "
                                   "does not fit into memory: it needs ") != NULL,
                  "%s", messages);
        cr_expect(strstr(messages, ":3: left out") == NULL, "%s", messages);
        cr_expect(with.rows[0].left_out && !with.rows[1].left_out);
        for (uint32_t k = 0; k < with.constant_count; k++) {
            cr_expect(eq(dbl, with.constants[k].value, without.constants[k].value), "%s",
                      with.constants[k].key);
        }
    }
    const made_row alone = {0, 1, "fit", TOO_LARGE};
    cr_expect(eq(int, fit_made("h100x8", &alone, 1, &with), RP_INPUT));
    cr_expect(strstr(messages, ":1: no row to fit fits into memory") != NULL, "%s", messages);
}

/* The same configuration, faster and slower by a factor. Nothing is set if a run remains further
 * off than any draw of ranges.csv's. A factor of 1.05 is normal variation. */
Test(fit, sets_nothing_on_runs_that_contradict_each_other)
{
    static const char *const platforms[] = {"h100x8", "a100-80x8"};
    static const double factors[] = {1.05, 1.3, 1.414};
    for (size_t p = 0; p < (getenv("RP_LONG") != NULL ? COUNT(platforms) : 1); p++) {
        for (size_t i = 0; i < COUNT(factors); i++) {
            rpsim_fit fit;
            const made_row rows[] = {{3, 0.7 * factors[i], "fit", NULL},
                                     {3, 0.7 / factors[i], "fit", NULL}};
            cr_assert(eq(int, fit_made(platforms[p], rows, 2, &fit), RP_OK), "%s", messages);
            bool refused = strstr(messages, "nothing is set: the best constants leave ") != NULL;
            cr_expect(eq(int, refused, i > 0), "%s %g: %s", platforms[p], factors[i], messages);
            cr_expect(eq(int, sets_any(&fit), i == 0), "%s %g", platforms[p], factors[i]);
        }
    }
}

/* Layers are slow only in one system's runs. */
Test(fit, warns_that_one_system_may_be_slow_itself)
{
    rpsim_fit fit;
    const made_row one[] = {{3, 0.7, "fit", NULL}, {0, 1, "predict", NULL}};
    const made_row two[] = {{3, 0.7, "fit", NULL}, {4, 0.7, "fit", NULL}};
    cr_assert(eq(int, fit_made("h100x8", one, 2, &fit), RP_OK), "%s", messages);
    cr_expect(eq(int, find(&fit, "layer_time_factor")->state, RPSIM_FIT_SET));
    cr_expect(strstr(messages, "layer_time_factor is set on runs of megatron-tp alone") != NULL,
              "%s", messages);
    cr_expect(strstr(messages, "the fit makes 1 of the runs to predict worse, most ") != NULL, "%s",
              messages);
    cr_expect(strstr(messages, ":3 (fsdp, qwen3-1.7b): ") != NULL, "%s", messages);
    cr_assert(eq(int, fit_made("h100x8", two, 2, &fit), RP_OK), "%s", messages);
    cr_expect(strstr(messages, " alone: ") == NULL, "%s", messages);
    cr_expect(strstr(messages, "runs to predict worse") == NULL, "%s", messages);
}

/* ---- rppredict ------------------------------------------------------------------------------- */

TestSuite(fit_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

static const char *in_folder(const char *name)
{
    char word[128];
    int length = snprintf(word, sizeof word, "@DIR@/%s", name);
    return rp_test_tool_expand(word, (size_t)length);
}

#define HEAD                                                                                       \
    "framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices,tokens_per_s,"  \
    "use\n"

static void write_file(const char *name, const char *text)
{
    FILE *stream = fopen(in_folder(name), "w");
    cr_assert(stream != NULL);
    fputs(text, stream);
    cr_assert(eq(int, fclose(stream), 0));
}

static rp_test_outcome run(const char *line)
{
    return rp_test_tool_run(RP_BINARY_ROOT "/rppredict", "rppredict", line);
}

static double tokens_of(const char *row)
{
    for (int column = 1; column < 7; column++) {
        row = strchr(row, ',');
        cr_assert(row != NULL);
        row++;
    }
    return strtod(row, NULL);
}

/* The written file predicts the table's values. */
Test(fit_cli, the_platform_predicts_as_the_fit_does)
{
    write_file("runs.csv", HEAD "roundpipe-sync,qwen3-1.7b,2048,,,,,,52000,fit\n"
                                "roundpipe,qwen3-1.7b,2048,,,,,,60000,predict\n");
    rp_test_outcome made = run("--fit @DIR@/runs.csv --platform-out @DIR@/mine.yaml "
                               "--fit-constants host_optimizer_gb_per_s --format md");
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    rp_test_outcome cells = run("--cells @DIR@/runs.csv --platform @DIR@/mine.yaml --intervals 2");
    cr_assert(eq(int, cells.status, 0), "%s", cells.messages);
    const char *row = strstr(cells.output, "roundpipe-sync,qwen3-1.7b,mine,8,2048,yes,");
    cr_assert(row != NULL, "%s", cells.output);
    double tokens = tokens_of(row);
    char expected[64];
    snprintf(expected, sizeof expected, "| fit | 52000 | %.0f |", tokens);
    cr_expect(strstr(made.output, expected) != NULL, "%s in %s", expected, made.output);
    cr_expect(lt(dbl, fabs(tokens / 52000 - 1), 0.01), "%g", tokens);
    const char *platform = rp_test_tool_read(in_folder("mine.yaml"));
    cr_expect(strstr(platform, "# set on runs\n") != NULL, "%s", platform);
    rp_test_outcome check = rp_test_tool_run(
        RPSIM_PATH, "rpsim", "--schedule roundpipe --platform @DIR@/mine.yaml --check");
    cr_expect(eq(int, check.status, 0), "%s", check.messages);
}

/* A user's table of layer times, twice as slow, replaces the platform's. */
Test(fit_cli, own_cost_tables)
{
    write_file("cells.csv", HEAD "roundpipe,qwen3-1.7b,2048,,,,,,1,fit\n");
    write_file("qwen3-1.7b@mine.yaml",
               "name: qwen3-1.7b@mine\nlayers: 28\nfwd_ms: 14.858\nbwd_ms: 31.662\n"
               "head_fwd_ms: 44.131\nhead_bwd_ms: 87.414\nhop_ms: 0\nmicrobatch_size: 4\n"
               "seq_len: 2048\n");
    double tokens[2];
    static const char *const lines[] = {
        "--cells @DIR@/cells.csv --intervals 2",
        "--cells @DIR@/cells.csv --intervals 2 --costs @DIR@/qwen3-1.7b@mine.yaml"};
    for (size_t i = 0; i < COUNT(lines); i++) {
        rp_test_outcome out = run(lines[i]);
        cr_assert(eq(int, out.status, 0), "%s", out.messages);
        tokens[i] = tokens_of(strchr(out.output, '\n') + 1);
    }
    cr_expect(gt(dbl, tokens[0] / tokens[1], 1.8), "%g and %g", tokens[0], tokens[1]);
    cr_expect(lt(dbl, tokens[0] / tokens[1], 2.1), "%g and %g", tokens[0], tokens[1]);
    write_file("qwen3-1.7b@mine.yaml",
               "name: qwen3-1.7b@mine\nlayers: 28\nfwd_ms: 0.74\nbwd_ms: 1.6\n"
               "head_fwd_ms: 2.2\nhead_bwd_ms: 4.4\nhop_ms: 0\n"
               "microbatch_size: 4\nseq_len: 2048\n");
    rp_test_outcome fast = run(lines[1]);
    cr_expect(eq(int, fast.status, 0));
    cr_expect(strstr(fast.messages, "cells.csv:2: with cost table qwen3-1.7b@mine GPUs compute "
                                    "faster than their peak") != NULL,
              "%s", fast.messages);
    write_file("cells.csv", HEAD "roundpipe,llama3.1-8b,2048,,,,,,1,fit\n");
    write_file("llama3.1-8b.yaml", "name: llama3.1-8b\nlayers: 28\nfwd_ms: 14\nbwd_ms: 31\n"
                                   "head_fwd_ms: 44\nhead_bwd_ms: 87\nhop_ms: 0\n"
                                   "microbatch_size: 4\nseq_len: 2048\n");
    rp_test_outcome out = run("--cells @DIR@/cells.csv --costs @DIR@/llama3.1-8b.yaml");
    cr_expect(eq(int, out.status, 2));
    cr_expect(strstr(out.messages, "cells.csv:2: --costs: llama3.1-8b has 28 layers") != NULL, "%s",
              out.messages);
}

/* GeForce cards sum products of bf16 in fp32, at half the rate (RTX 4090: Ada's white paper). */
Test(fit_cli, runs_have_a_type)
{
    write_file("cells.csv", "framework,model,seq_len,global_batch,microbatches,calls,grain,"
                            "sequence_slices,dtype\n"
                            "roundpipe,qwen3-1.7b,2048,512,10,4,layer,1,bf16\n"
                            "roundpipe,qwen3-1.7b,2048,512,10,4,layer,1,\n");
    rp_test_outcome out = run("--cells @DIR@/cells.csv --intervals 2");
    cr_assert(eq(int, out.status, 0), "%s", out.messages);
    const char *first = strchr(out.output, '\n') + 1;
    double share = tokens_of(first) / tokens_of(strchr(first, '\n') + 1);
    cr_expect(share > 0.5 && share < 0.8, "%g", share);
    write_file("cells.csv", "framework,model,seq_len,global_batch,microbatches,calls,grain,"
                            "sequence_slices,dtype\nroundpipe,qwen3-1.7b,2048,,,,,,fp8\n");
    out = run("--cells @DIR@/cells.csv --intervals 2");
    cr_expect(eq(int, out.status, 2));
    cr_expect(strstr(out.messages, "cells.csv:2: column dtype; valid values are") != NULL, "%s",
              out.messages);
}

Test(fit_cli, mistakes)
{
    static const struct {
        const char *rows;
        const char *options;
        const char *message;
    } cases[] = {
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,100,maybe\n", "",
         "runs.csv:2: column use; valid values are fit and predict"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,100,predict\n", "", "runs.csv:1: no row to fit"},
        {HEAD "roundpipe,qwen3-1.7b,longest,,,,,,100,fit\n", "",
         "runs.csv:2: column seq_len; valid are numbers of tokens"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,0,fit\n", "", "runs.csv:2: row 2, column 9"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,,fit\n", "", "runs.csv:2: row 2, column 9"},
        {"framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices,use\n"
         "roundpipe,qwen3-1.7b,2048,,,,,,fit\n",
         "", "tokens_per_s"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,100,fit\n", "--fit-constants gpus",
         "'gpus' is no constant that can be set; valid are layer_time_factor, "
         "host_optimizer_gb_per_s"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,100,fit\n",
         "--platform " RP_TEST_ROOT
         "/bad/data/good-platform.yaml --fit-constants optimizer_us_per_object",
         "'optimizer_us_per_object' is not in the platform file"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,100,fit\n",
         "--platform " RP_TEST_ROOT
         "/bad/data/good-platform.yaml --fit-constants zero_gradient_gb_per_s",
         "'zero_gradient_gb_per_s' is not in the platform file"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,100,fit\n", "--platform-out /nowhere/p.yaml",
         "/nowhere/p.yaml: cannot be written"},
        {HEAD "roundpipe,qwen3-1.7b,2048,,,,,,100,fit\n", "--cells x", "valid is one argument"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char line[256];
        write_file("runs.csv", cases[i].rows);
        snprintf(line, sizeof line, "--fit @DIR@/runs.csv %s", cases[i].options);
        rp_test_outcome out = run(line);
        cr_expect(eq(int, out.status, 2), "%s: %s", cases[i].message, out.messages);
        cr_expect(strstr(out.messages, cases[i].message) != NULL, "%s: %s", cases[i].message,
                  out.messages);
        cr_expect(eq(str, (char *)out.output, ""));
    }
    cr_expect(eq(int, run("paper-figures --fit-constants x").status, 2));
    cr_expect(eq(int, run("x --platform h200").status, 2));
}
