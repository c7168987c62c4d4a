/* Texts of runs and setups, row by row: the inverse of their parsers. */
#include "common/base/text.h"
#include "sim/study/setup.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(setup_text, .init = rp_test_log_begin, .fini = rp_test_log_end);

/* Texts of each row as written. Defaults have no text. */
static const struct {
    const char *name;
    const char *texts[4];
} run_texts[] =
    {
        {"gpus", {"8"}},
        {"nodes", {"2"}},
        {"data-parallel", {"4"}},
        {"tensor-parallel", {"2"}},
        {"sequence-parallel", {""}},
        {"expert-parallel", {"2"}},
        {"expert-tensor-parallel", {"1"}},
        {"zero", {"1", "3"}},
        {"bucket-mb", {"25"}},
        {"axes", {"tpd", "pdt"}},
        {"collectives", {"ring", "tree", "hierarchical"}},
        {"microbatches", {"16"}},
        {"microbatch-size", {"3"}},
        {"seq-len", {"4096"}},
        {"global-batch", {"1536"}},
        {"accumulate", {"2"}},
        {"iterations", {"1", "16"}},
        {"max-seqlen", {""}},
        {"config", {"paper"}},
        {"fidelity", {"stage"}},
        {"partition", {"auto", "1,2|2,1"}},
        {"stages", {"9"}},
        {"tune-budget", {"1000"}},
        {"recompute", {"none", "wait", "early,none", "wait,early"}},
        {"grain", {"stage", "layer"}},
        {"offload-activations", {""}},
        {"dtype", {"fp32", "bf16", "fp16"}},
        {"accumulation", {"fp16", "fp32"}},
        {"states", {"bf16", "8bit"}},
        {"master", {"bf16", "none"}},
        {"frozen", {"bf16", "fp8", "nf4-single", "mxfp4"}},
        {"compute", {"fp8"}},
        {"reduce-each", {"step", "microbatch"}},
        {"reduce-dtype", {"fp32", "bf16"}},
        {"round", {"all", "4"}},
        {"round-start", {"free-first", "rotate"}},
        {"optimizer", {"sync", "async"}},
        {"piece-mb", {"64"}},
},
  setup_texts[] = {
      {"schedule", {"all", "1f1b", "gpipe,roundpipe"}},
      {"model", {"tiny", "tiny,qwen3-1.7b"}},
      {"assume", {"llama"}},
      {"lora-rank", {"16"}},
      {"documents", {"512", "lengths.csv"}},
      {"padding", {"0.25"}},
      {"platform", {"h100x8"}},
      {"costs", {"tiny@rtx4090"}},
      {"stack", {"torch"}},
      {"set", {"platform.gpus=9", "costs.fwd_ms*1.05,platform.gpus=2"}},
      {"gpu-memory", {"47.5"}},
      {"host-memory", {"256"}},
      {"power-limit", {"450.5", "0"}},
      {"program-in", {"a.prog"}},
      {"torch-csv-in", {"a.csv"}},
      {"intervals", {"off", "10000"}},
      {"jitter", {"0", "0.1", "1e-05"}},
      {"replicas", {"7"}},
      {"slow-gpu", {"0*1.5"}},
      {"seed", {"18446744073709551615"}},
      {"columns", {"all", "gpus", "schedule,tokens_per_s"}},
      {"tokens", {"300000000"}},
      {"usd-per-hour", {"3.5"}},
      {"watts", {"5000"}},
      {"usd-per-kwh", {"0.25"}},
      {"explain", {""}},
      {"timings", {""}},
      {"torch-sidecar", {"a.json"}},
      {"allow-multi-rank-stages", {""}},
};
#define RUN_TEXTS (sizeof run_texts / sizeof run_texts[0])
#define SETUP_TEXTS (sizeof setup_texts / sizeof setup_texts[0])

static const char *text_of(const rp_option *row, const void *object)
{
    const char *text = NULL;
    cr_assert(eq(int, rp_option_text(row, object, rp_test_arena, &text), RP_OK), "%s", row->name);
    return text;
}

/* Starts from an object without given values. */
static void there_and_back(const rp_option *row, const char *text, void *object)
{
    cr_expect(eq(ptr, (void *)text_of(row, object), NULL), "%s is not given", row->name);
    const char *word = row->kind == RP_OPTION_FLAG ? NULL : text;
    cr_assert(eq(int, rp_option_assign(row, word, rp_test_arena, object, NULL), RP_OK), "%s: %s",
              row->name, rp_test_messages);
    const char *back = text_of(row, object);
    cr_assert(ne(ptr, (void *)back, NULL), "%s %s", row->name, text);
    cr_expect(eq(str, (char *)back, (char *)text), "%s", row->name);
}

Test(setup_text, runs)
{
    cr_assert(eq(u32, rp_run_row_count, RUN_TEXTS));
    for (uint32_t i = 0; i < RUN_TEXTS; i++) {
        const rp_option *row = &rp_run_rows[i];
        cr_assert(eq(str, (char *)row->name, (char *)run_texts[i].name));
        for (int k = 0; k < 4 && run_texts[i].texts[k] != NULL; k++) {
            const rp_run nothing = RP_RUN_INIT;
            rp_run run = RP_RUN_INIT;
            there_and_back(row, run_texts[i].texts[k], &run);
            cr_expect(eq(int, rp_run_equal(&run, &nothing), 0), "%s", row->name);
            cr_expect(eq(int, rp_run_check(&run, NULL), RP_OK), "%s", row->name);
        }
    }
}

Test(setup_text, setups)
{
    cr_assert(eq(u32, rpsim_setup_keys.row_count, SETUP_TEXTS + RUN_TEXTS));
    for (uint32_t i = 0; i < SETUP_TEXTS; i++) {
        cr_assert(eq(str, (char *)rpsim_setup_keys.rows[i].name, (char *)setup_texts[i].name));
        for (int k = 0; k < 4 && setup_texts[i].texts[k] != NULL; k++) {
            rpsim_setup setup = RPSIM_SETUP_INIT;
            there_and_back(&rpsim_setup_keys.rows[i], setup_texts[i].texts[k], &setup);
        }
    }
    for (uint32_t i = 0; i < RUN_TEXTS; i++) {
        cr_assert(eq(str, (char *)rpsim_setup_keys.rows[SETUP_TEXTS + i].name,
                     (char *)run_texts[i].name));
    }
}

/* A single copy equals no copies. */
Test(setup_text, what_is_usual_is_no_text)
{
    static const char *const usual[][2] = {
        {"data-parallel", "1"}, {"zero", "0"}, {"axes", "tdp"}, {"fidelity", "hardware"}};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        rp_run run = RP_RUN_INIT;
        const rp_option *row = rp_run_row(usual[i][0]);
        cr_assert(eq(int, rp_option_assign(row, usual[i][1], rp_test_arena, &run, NULL), RP_OK));
        cr_expect(eq(ptr, (void *)text_of(row, &run), NULL), "%s", row->name);
    }
}

/* Quoting by POSIX's shell language, 2.2.2: within single quotes no character is special. */
Test(setup_text, command_lines)
{
    static const char *words[] = {"a b", "it's", "", "$HOME", "1,2|2,1", "x=1*2", "plain-1.0/x@y"};
    static const char *quoted[] = {" --partition 'a b'",        " --partition 'it'\\''s'",
                                   " --partition ''",           " --partition '$HOME'",
                                   " --partition '1,2|2,1'",    " --partition 'x=1*2'",
                                   " --partition plain-1.0/x@y"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        rp_text line = {0};
        const rp_run run = {.partition = words[i], .layout.sequence_parallel = true};
        cr_assert(
            eq(int, rp_option_add(rp_run_row("partition"), &run, rp_test_arena, &line), RP_OK));
        cr_expect(eq(str, line.bytes, (char *)quoted[i]));
        rp_text_fini(&line);
        cr_assert(eq(int,
                     rp_option_add(rp_run_row("sequence_parallel"), &run, rp_test_arena, &line),
                     RP_OK));
        cr_expect(eq(str, line.bytes, " --sequence-parallel"));
        rp_text_fini(&line);
    }
}

Test(setup_text, numbers_out_of_range)
{
    rp_reason reason = {0};
    rp_run run = RP_RUN_INIT;
    run.gpus = RP_MAX_GPUS + 1;
    cr_expect(eq(int, rp_run_check(&run, &reason), RP_USAGE));
    cr_expect(ne(ptr, strstr(reason.text, "'4097' is not valid; valid values are integers"), NULL),
              "%s", reason.text);
}
