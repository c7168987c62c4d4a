/* Types and accumulations: all platforms, models and types; executed FLOP against published
 * formulas; requests and refusals. */
#include "common/base/log.h"
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "sim/study/columns.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(types, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 540);

/* ---- every platform, model and type ---------------------------------------------------------- */

#define WORDS 40
#define ROUNDING 1e-9

typedef struct answer {
    double tokens_per_s;
    double share; /* of the peak rate */
    rp_arithmetic arithmetic;
    bool computed; /* not measured on any GPU */
} answer;

/* rpsim's answer to a command line, in this process. */
static answer ask(const char *line)
{
    char text[512];
    char *words[WORDS] = {"rpsim"};
    int count = 1;
    rp_arena *arena = NULL;
    rpsim_study study;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        cr_assert(count < WORDS, "%s", line);
        words[count++] = word;
    }
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    char messages[2048]; /* takes those about adapters on experts */
    rp_log_capture_begin(messages, sizeof messages);
    cr_assert(eq(int, rp_test_study_of(count, words, arena, &study), RP_OK), "%s", line);
    cr_assert(eq(int, rpsim_study_run(&study, NULL), RP_OK), "%s", line);
    rp_log_capture_end();
    const rpsim_row *row = &study.rows[0];
    const answer found = {rpsim_row_tokens_per_s(row), rpsim_row_peak_share(row),
                          row->run.costs->arithmetic, row->run.costs->kind == RP_ASSUMED};
    cr_expect(le(dbl, row->result.busy_share, 1 + ROUNDING), "%s: passes at %g of the peak", line,
              row->result.busy_share);
    cr_expect(le(dbl, found.share, row->result.busy_share * (1 + ROUNDING)), "%s", line);
    rpsim_study_fini(&study);
    rp_arena_destroy(arena);
    return found;
}

/* Never faster, and slower by at most the ratio of the peaks. */
static void expect_between(const char *line, double speed, double of, double least)
{
    cr_expect(le(dbl, speed, of * (1 + ROUNDING)), "%s: %g, %g", line, speed, of);
    cr_expect(ge(dbl, speed, of * least * (1 - ROUNDING)), "%s: %g, %g", line, speed, of);
}

/* @param bound whether products limit the run */
static void check_types(const char *base, const rp_platform *p, bool bound)
{
    static const struct {
        const char *options;
        rp_arithmetic arithmetic;
    } types[] = {{"--dtype fp16 --accumulation fp16", {RP_DTYPE_F16, RP_ACCUMULATION_F16}},
                 {"--dtype fp16 --accumulation fp32", {RP_DTYPE_F16, RP_ACCUMULATION_F32}},
                 {"--dtype bf16", {RP_DTYPE_BF16, RP_ACCUMULATION_F32}},
                 {"--dtype fp32", {RP_DTYPE_F32, RP_ACCUMULATION_F32}}};
    enum { HALF, MIXED, BRAIN, SINGLE, COUNT };
    answer of[COUNT];
    char line[512];
    for (int i = 0; i < COUNT; i++) {
        snprintf(line, sizeof line, "%s %s", base, types[i].options);
        of[i] = ask(line);
        cr_expect(rp_arithmetic_equal(of[i].arithmetic, types[i].arithmetic), "%s", line);
        cr_expect(of[i].share > 0 && of[i].share <= 1, "%s: %g of the peak", line, of[i].share);
    }
    double peaks = p->fp16_tflops_fp32_acc / p->fp16_tflops_fp16_acc;
    double single = p->fp32_tflops / p->fp16_tflops_fp32_acc;
    expect_between(base, of[MIXED].tokens_per_s, of[HALF].tokens_per_s, peaks);
    expect_between(base, of[BRAIN].tokens_per_s, of[MIXED].tokens_per_s, 1);
    expect_between(base, of[SINGLE].tokens_per_s, of[BRAIN].tokens_per_s, fmin(single, 0.5));
    if (bound) {
        cr_expect(peaks == 1 || of[BRAIN].tokens_per_s < 0.99 * of[HALF].tokens_per_s, "%s", base);
        cr_expect(lt(dbl, of[SINGLE].tokens_per_s, 0.9 * of[BRAIN].tokens_per_s), "%s", base);
    }
    answer plain = ask(base);
    const answer *expected = &of[plain.computed ? MIXED : HALF];
    cr_expect(rp_arithmetic_equal(plain.arithmetic, expected->arithmetic), "%s", base);
    cr_expect(eq(dbl, plain.tokens_per_s, expected->tokens_per_s), "%s", base);
}

/* bf16 is not free, LoRA does not beat the peak, fp32 is fp32: full training and adapters, with
 * measured, moved and computed times. A sample; all with RP_LONG. */
Test(types, every_platform_model_and_type)
{
    const char **models = NULL;
    const char **platforms = NULL;
    uint32_t model_count = 0;
    uint32_t platform_count = 0;
    rp_arena *arena = rp_test_tool_arena();
    bool all = getenv("RP_LONG") != NULL;
    cr_assert(eq(int, rp_data_list("models", arena, &models, &model_count), RP_OK));
    cr_assert(eq(int, rp_data_list("platforms", arena, &platforms, &platform_count), RP_OK));
    for (uint32_t k = 0; k < platform_count * model_count; k++) {
        rp_model model;
        rp_platform p;
        char line[512];
        const char *name = models[k % model_count];
        uint32_t place = k / model_count;
        if (!all && (k % model_count + 3 * place) % 17 != 0) {
            continue;
        }
        cr_assert(eq(int, rp_model_load(name, arena, &model), RP_OK));
        cr_assert(eq(int, rp_platform_load(platforms[place], arena, &p), RP_OK));
        bool one = k % 2 != 0; /* small layers wait for the host or for memory */
        bool bound = one && model.hidden >= 1024;
        bool adapts = model.lora_rank == 0 && !model.plain_mlp;
        snprintf(line, sizeof line,
                 "--schedule %s --model %s --platform %s --gpus %u --microbatches 8 "
                 "--microbatch-size 2 --seq-len 2048 --iterations 2 --intervals off",
                 one ? "1f1b" : "roundpipe", name, platforms[place], p.gpus < 4 ? p.gpus : 4);
        check_types(line, &p, bound);
        snprintf(line + strlen(line), sizeof line - strlen(line), " --lora-rank 16");
        if (adapts) {
            check_types(line, &p, bound);
        }
    }
}

/* ---- executed FLOP --------------------------------------------------------------------------- */

static const json_t *first(const json_t *rows)
{
    return json_array_get(rows, 0);
}

/* FLOP per token, from the run's own figures. */
static double flop_per_token(const json_t *row)
{
    return 1e12 * rp_test_json_number(row, "tflops_per_gpu") * rp_test_json_number(row, "gpus") /
           rp_test_json_number(row, "tokens_per_s");
}

/* Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
 * Megatron-LM" (2021), equation 3, with every layer recomputed:
 * F = 96 B s l h^2 (1 + s / 6 h + V / 16 l h). A step's parts may be on any GPUs. */
Test(types, executed_flop_of_a_gpt)
{
    static const char *const layouts[] = {
        "--schedule megatron-pp --gpus 4", "--schedule gpipe --gpus 4 --data-parallel 2",
        "--schedule megatron-pp --gpus 8 --tensor-parallel 2 --data-parallel 2",
        "--schedule fsdp --gpus 8"};
    double h = 2048, s = 1024, l = 24, vocab = 50304;
    double published = 96 * l * h * h * (1 + s / (6 * h) + vocab / (16 * l * h));
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        json_t *rows = rp_test_rpsim_rows(
            "--model gpt:2048x16x24 --platform a100-80x8 --seq-len 1024 --microbatch-size 2 "
            "--microbatches 8 --recompute wait --iterations 2 --intervals off --format json",
            layouts[i]);
        double tensor = rp_test_json_number(first(rows), "tensor_parallel");
        double padded = ceil(50257 / (128 * tensor)) * 128 * tensor; /* as Megatron pads it */
        double flop = published + 6 * h * (padded - vocab);
        cr_expect(lt(dbl, fabs(flop_per_token(first(rows)) / flop - 1), 1e-6), "%s: %g, %g",
                  layouts[i], flop_per_token(first(rows)), flop);
        double share = rp_test_json_number(first(rows), "peak_share_pct");
        double tflops = rp_test_json_number(first(rows), "tflops_per_gpu");
        cr_expect(lt(dbl, fabs(share - 100 * tflops / 312), 1e-9)); /* data sheet */
        json_decref(rows);
    }
}

/* Hu et al., "LoRA" (2021), section 4: gradients of frozen matrices are not computed. Sizes from
 * qwen3-1.7b's config.json. Causal attention takes half of 4 s H h per token, and 2.5 times that
 * backward. */
Test(types, executed_flop_of_adapters)
{
    double d = 2048, q = 2048, kv = 1024, f = 6144, layers = 28, vocab = 151936, rank = 8;
    double weights = layers * (d * (q + 2 * kv) + q * d + 3 * d * f);
    double adapters = layers * rank * (d + q + 2 * (d + kv) + q + d + 3 * (d + f));
    double attention = layers * 2 * 2048 * q;
    const struct {
        const char *options;
        double flop;
    } cases[] = {
        {"--recompute none", 6 * weights + 3.5 * attention + 6 * d * vocab},
        {"--recompute wait", 8 * weights + 4.5 * attention + 6 * d * vocab},
        {"--recompute none --lora-rank 8",
         4 * weights + 6 * adapters + 3.5 * attention + 4 * d * vocab},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *rows = rp_test_rpsim_rows(
            "--schedule 1f1b --gpus 4 --microbatch-size 1 --iterations 2 --intervals off --format "
            "json",
            cases[i].options);
        cr_expect(lt(dbl, fabs(flop_per_token(first(rows)) / cases[i].flop - 1), 1e-6), "%s: %g %g",
                  cases[i].options, flop_per_token(first(rows)), cases[i].flop);
        json_decref(rows);
    }
}

/* ---- types on the command line --------------------------------------------------------------- */

static void write_costs(const char *name, const char *more)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", rp_test_tool_folder(), name);
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fprintf(file,
            "name: mine@rtx4090\nlayers: 28\nfwd_ms: 12\nbwd_ms: 26\nhead_fwd_ms: 44\nhead_bwd_ms: "
            "88\nhop_ms: 1\nmicrobatch_size: 4\nseq_len: 2048\n%s",
            more);
    cr_assert(eq(int, fclose(file), 0));
}

static void expect_type(const char *line, const char *dtype, const char *accumulation)
{
    json_t *rows = rp_test_rpsim_rows(
        "--schedule 1f1b --iterations 2 --intervals off --format json --model qwen3-1.7b", line);
    cr_expect(eq(str, (char *)(uintptr_t)rp_test_json_text(first(rows), "dtype"),
                 (char *)(uintptr_t)dtype),
              "%s", line);
    cr_expect(eq(str, (char *)(uintptr_t)rp_test_json_text(first(rows), "accumulation"),
                 (char *)(uintptr_t)accumulation),
              "%s", line);
    json_decref(rows);
}

/* A given table sets the run's type. A table without a type serves any type, with a warning unless
 * it is the former default. */
Test(types, tables_that_are_given)
{
    write_costs("brain.yaml", "dtype: bf16\n");
    write_costs("silent.yaml", "");
    expect_type("--costs @DIR@/brain.yaml", "bf16", "fp32");
    expect_type("--costs @DIR@/brain.yaml --dtype fp16", "fp16", "fp32");
    expect_type("--costs @DIR@/brain.yaml --dtype fp16 --accumulation fp16", "fp16", "fp16");
    expect_type("--costs @DIR@/silent.yaml", "fp16", "fp16");
    expect_type("--costs @DIR@/silent.yaml --dtype bf16", "bf16", "fp32");
    rp_test_outcome outcome = rp_test_rpsim("--schedule 1f1b --model qwen3-1.7b --costs "
                                            "@DIR@/silent.yaml --dtype bf16 --intervals off");
    cr_expect(ne(ptr, strstr(outcome.messages, "does not say what it was measured in"), NULL), "%s",
              outcome.messages);
    outcome = rp_test_rpsim("--schedule 1f1b --model qwen3-1.7b --costs @DIR@/silent.yaml "
                            "--intervals off");
    cr_expect(eq(str, (char *)(uintptr_t)outcome.messages, ""));
}

/* A table of times beyond any GPU's peak is used, with a doubt. */
Test(types, a_table_above_the_peak)
{
    rp_test_outcome outcome = rp_test_rpsim(
        "--schedule gpipe,1f1b --set costs.fwd_ms*0.1 --set costs.bwd_ms*0.1 --intervals off");
    cr_expect(eq(int, outcome.status, 0), "%s", outcome.messages);
    const char *said = strstr(outcome.messages, "of their peak of 330.3 TFLOP/s (fp16 with fp16");
    cr_assert(ne(ptr, (void *)(uintptr_t)said, NULL), "%s", outcome.messages);
    cr_expect(eq(ptr, strstr(said, "warning"), NULL), "%s", outcome.messages); /* not twice */
}

Test(types, answers_say_it)
{
    rp_test_outcome outcome = rp_test_rpsim_well("--schedule 1f1b --intervals off");
    cr_expect(ne(ptr, strstr(outcome.output, "fp16 accumulated in fp16"), NULL), "%s",
              outcome.output);
    outcome = rp_test_rpsim_well("--schedule 1f1b --model qwen3-8b --intervals off");
    cr_expect(ne(ptr, strstr(outcome.output, "fp16 accumulated in fp32"), NULL), "%s",
              outcome.output);
    outcome = rp_test_rpsim_well("--schedule 1f1b --dtype bf16 --columns schedule,peak_share_pct");
    cr_expect(ne(ptr, strstr(outcome.output, "peak %"), NULL), "%s", outcome.output);
}
