/* rppredict --fit: constants with which the simulator itself has made runs are found again; those
 * that runs do not show stay; those that leave their range are held. Release only: checks.examples
 * and checks.hostile have fits for sanitizers. */
#include "sim/rppredict/fit.h"
#include "common/base/log.h"
#include "common/inputs/platform_write.h"
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

static const struct {
    const char *framework;
    const char *model;
    uint32_t gpus;
    const char *use;
} runs[] = {{"roundpipe-sync", "llama3.1-8b", 8, "fit"},
            {"roundpipe-sync", "llama3.1-8b", 4, "fit"},
            {"roundpipe-sync", "llama3.1-8b", 6, "predict"},
            {"roundpipe", "qwen3-1.7b", 4, "predict"}};

/* Writes the runs as the simulator does them with a constant other than the platform's. */
static void write_runs(const char *key, double value)
{
    rpsim_question questions[COUNT(runs)];
    rpsim_answer answers[COUNT(runs)];
    rpsim_cells_inputs truth = inputs;
    rpsim_cells cells;
    static const char header[] = "framework,model,seq_len,gpus,global_batch,microbatches,calls,"
                                 "grain,sequence_slices,tokens_per_s,use\n";
    FILE *stream = fopen(path, "w");
    cr_assert(stream != NULL);
    fputs(header, stream);
    for (size_t i = 0; i < COUNT(runs); i++) {
        fprintf(stream, "%s,%s,2048,%u,,,,,,1,%s\n", runs[i].framework, runs[i].model, runs[i].gpus,
                runs[i].use);
    }
    fclose(stream);
    rpsim_fit_set(&truth.platform, key, value);
    cr_assert(eq(int, rpsim_cells_read(path, &truth, arena, &cells), RP_OK), "%s", messages);
    for (size_t i = 0; i < COUNT(runs); i++) {
        questions[i] = cells.questions[i];
    }
    cr_assert(eq(int, rpsim_answer_all(&truth.platform, questions, COUNT(runs), answers), RP_OK));
    stream = fopen(path, "w");
    cr_assert(stream != NULL);
    fputs(header, stream);
    for (size_t i = 0; i < COUNT(runs); i++) {
        fprintf(stream, "%s,%s,2048,%u,,,,,,%.6f,%s\n", runs[i].framework, runs[i].model,
                runs[i].gpus, answers[i].tokens_per_s, runs[i].use);
    }
    fclose(stream);
}

static const rpsim_fit_constant *find(const rpsim_fit *fit, const char *key)
{
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        if (strcmp(fit->constants[i].key, key) == 0) {
            return &fit->constants[i];
        }
    }
    cr_fatal("%s is not there", key);
    return NULL;
}

static double error_of(const rpsim_fit_row *row)
{
    return fabs(row->predicted_tokens_per_s / row->measured_tokens_per_s - 1);
}

/* A constant that the runs were made with is found again, and with it the runs that it was not
 * looked for on are predicted. Constants that these runs do not show are not moved. */
static void find_again(const char *key, double value)
{
    rpsim_fit fit;
    write_runs(key, value);
    cr_assert(eq(int, rpsim_fit_run(path, &inputs, &key, 1, arena, &fit), RP_OK), "%s", messages);
    const rpsim_fit_constant *c = find(&fit, key);
    cr_expect(lt(dbl, fabs(c->value / value - 1), 0.02), "%s: %g, not %g", key, c->value, value);
    cr_expect(not(c->undetermined));
    cr_expect(not(c->at_end));
    cr_expect(lt(dbl, c->spread_pct, 20), "%g", c->spread_pct);
    cr_assert(eq(u32, fit.row_count, COUNT(runs)));
    for (uint32_t i = 0; i < fit.row_count; i++) {
        cr_expect(lt(dbl, error_of(&fit.rows[i]), 0.005), "row %u: %g", i, error_of(&fit.rows[i]));
        cr_expect(eq(int, fit.rows[i].fit, strcmp(runs[i].use, "fit") == 0));
    }
    cr_expect(gt(dbl, fabs(fit.rows[0].before_tokens_per_s / fit.rows[0].measured_tokens_per_s - 1),
                 0.03)); /* it was needed */
    cr_expect(eq(dbl, *rp_platform_rate(&fit.platform, key), c->value));
}

Test(fit, finds_the_host_rate_again)
{
    find_again("host_optimizer_gb_per_s", 60);
}

Test(fit, finds_a_faster_host_again)
{
    if (getenv("RP_LONG") == NULL) {
        cr_skip_test("RP_LONG=1 runs it");
    }
    find_again("host_optimizer_gb_per_s", 130);
}

/* All usual constants at once: collectives and gradients of DeepSpeed are in none of these runs. */
Test(fit, says_what_runs_do_not_show)
{
    rpsim_fit fit;
    write_runs("host_optimizer_gb_per_s", 60);
    cr_assert(eq(int, rpsim_fit_run(path, &inputs, NULL, 0, arena, &fit), RP_OK), "%s", messages);
    const rpsim_fit_constant *host = find(&fit, "host_optimizer_gb_per_s");
    cr_expect(lt(dbl, fabs(host->value / 60 - 1), 0.03), "%g", host->value);
    static const char *const unseen[] = {"collective_gb_per_s", "zero_gradient_gb_per_s",
                                         "dispatch_us_per_module"};
    for (size_t i = 0; i < COUNT(unseen); i++) {
        const rpsim_fit_constant *c = find(&fit, unseen[i]);
        cr_expect(c->undetermined, "%s", unseen[i]);
        cr_expect(eq(dbl, c->value, c->before), "%s", unseen[i]);
        char message[128];
        snprintf(message, sizeof message, "%s: the runs to fit do not determine it; it stays",
                 unseen[i]);
        cr_expect(strstr(messages, message) != NULL, "%s", messages);
    }
}

/* No host is as slow as the one that made these runs: it is said. */
Test(fit, holds_what_leaves_its_range)
{
    static const char *const host = "host_optimizer_gb_per_s";
    rpsim_fit fit;
    write_runs(host, 1);
    cr_assert(eq(int, rpsim_fit_run(path, &inputs, &host, 1, arena, &fit), RP_OK), "%s", messages);
    const rpsim_fit_constant *c = find(&fit, host);
    cr_expect(c->at_end);
    cr_expect(eq(dbl, c->value, 5));
    cr_expect(lt(dbl, c->asked, 5));
    cr_expect(strstr(messages, "host_optimizer_gb_per_s: the runs ask for ") != NULL, "%s",
              messages);
    cr_expect(strstr(messages, "outside of its physical range, 5 to 1200; it is held at 5") != NULL,
              "%s", messages);
}

/* ---- rppredict ---- */

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

/* The column tokens_per_s, the seventh. */
static double tokens_of(const char *row)
{
    for (int column = 1; column < 7; column++) {
        row = strchr(row, ',');
        cr_assert(row != NULL);
        row++;
    }
    return strtod(row, NULL);
}

/* The file that is written predicts what the table says. */
Test(fit_cli, the_platform_predicts_as_the_fit_does)
{
    write_file("runs.csv", HEAD "roundpipe-sync,qwen3-1.7b,2048,,,,,,52000,fit\n"
                                "roundpipe,qwen3-1.7b,2048,,,,,,60000,predict\n");
    rp_test_outcome made = run("--fit @DIR@/runs.csv --platform-out @DIR@/mine.yaml "
                               "--fit-constants host_optimizer_gb_per_s --format md");
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    rp_test_outcome cells = run("--cells @DIR@/runs.csv --platform @DIR@/mine.yaml");
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

/* One's own table of layer times takes the place of the platform's: twice as slow. */
Test(fit_cli, own_cost_tables)
{
    write_file("cells.csv", HEAD "roundpipe,qwen3-1.7b,2048,,,,,,1,fit\n");
    write_file("qwen3-1.7b@mine.yaml",
               "name: qwen3-1.7b@mine\nlayers: 28\nfwd_ms: 14.858\nbwd_ms: 31.662\n"
               "head_fwd_ms: 44.131\nhead_bwd_ms: 87.414\nhop_ms: 0\nmicrobatch_size: 4\n"
               "seq_len: 2048\n");
    double tokens[2];
    static const char *const lines[] = {
        "--cells @DIR@/cells.csv", "--cells @DIR@/cells.csv --costs @DIR@/qwen3-1.7b@mine.yaml"};
    for (size_t i = 0; i < COUNT(lines); i++) {
        rp_test_outcome out = run(lines[i]);
        cr_assert(eq(int, out.status, 0), "%s", out.messages);
        tokens[i] = tokens_of(strchr(out.output, '\n') + 1);
    }
    cr_expect(gt(dbl, tokens[0] / tokens[1], 1.8), "%g and %g", tokens[0], tokens[1]);
    cr_expect(lt(dbl, tokens[0] / tokens[1], 2.1), "%g and %g", tokens[0], tokens[1]);
    write_file("cells.csv", HEAD "roundpipe,llama3.1-8b,2048,,,,,,1,fit\n");
    write_file("llama3.1-8b.yaml", "name: llama3.1-8b\nlayers: 28\nfwd_ms: 14\nbwd_ms: 31\n"
                                   "head_fwd_ms: 44\nhead_bwd_ms: 87\nhop_ms: 0\n"
                                   "microbatch_size: 4\nseq_len: 2048\n");
    rp_test_outcome out = run("--cells @DIR@/cells.csv --costs @DIR@/llama3.1-8b.yaml");
    cr_expect(eq(int, out.status, 2));
    cr_expect(strstr(out.messages, "cells.csv:2: --costs: llama3.1-8b has 28 layers") != NULL, "%s",
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
         "'gpus' is no constant that can be set; valid are host_optimizer_gb_per_s"},
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
