/* Layer costs against closed forms: additions by a loss in chunks, and parts that do not shrink
 * with the tokens. */
#include "sim/engine/layer_costs.h"
#include "common/inputs/load/models.h"
#include "common/inputs/sizes.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

TestSuite(layer_costs, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

#define MEMORY_BPS 1e12

/* Times of the first layer and the head for `sequences` of 2048 tokens, by op kind. */
static void times(const char *name, const rpsim_gpu_rates *rates, uint32_t sequences, bool head,
                  int64_t *ps_out)
{
    rp_model model;
    rp_costs table;
    const char *costs_name = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &costs_name, "%s@rtx4090", name), RP_OK));
    cr_assert(eq(int, rp_model_load(name, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rp_costs_load(costs_name, rp_test_arena, &table), RP_OK));
    rp_stage stage = {.layer_end = 1,
                      .roles = RP_STAGE_FORWARD_LAYERS | (head ? RP_STAGE_HEAD : 0)};
    rp_program program = {.stage_count = 1,
                          .stages = &stage,
                          .layer_count = model.layers,
                          .microbatch_count = 1,
                          .sequences = &sequences,
                          .iteration_count = 1};
    rpsim_compute_costs costs;
    cr_assert(eq(int,
                 rpsim_compute_costs_create(&program, &table, &model, rates, 2048, rp_test_arena,
                                            &costs, NULL),
                 RP_OK));
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        ps_out[kind] = costs.ps[kind];
    }
}

static const rpsim_gpu_rates plain = {
    .attention_fwd_flops = 145e12, .attention_bwd_flops = 130e12, .memory_bytes_per_s = MEMORY_BPS};

/* Bytes that chunks add to a head's backward, chunk by chunk. */
static double chunked_bytes(double tokens, double hidden, double trained)
{
    double bytes = 0;
    double all = tokens * hidden * 2; /* of the gradient of the head's input */
    uint32_t chunks = (uint32_t)ceil(tokens / RP_LOSS_CHUNK_TOKENS);
    for (uint32_t k = 0; k < chunks; k++) {
        bytes += all * (chunks - 1) / chunks;         /* zeros in place of other chunks */
        bytes += 2 * all;                             /* all in a tensor: read, written */
        bytes += k > 0 ? 3 * (all + trained * 2) : 0; /* sums of two tensors */
    }
    return bytes + 2 * (all + trained * 2); /* times the gradient of the loss */
}

Test(layer_costs, chunks_of_the_loss)
{
    static const struct {
        const char *model;
        double hidden, vocab, trained;
    } rows[] = {{"qwen3-1.7b", 2048, 151936, 1}, {"qwen3-235b-lora", 4096, 151936, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t sequences = 1; sequences <= 13; sequences++) {
            int64_t whole[RP_OP_KIND_COUNT];
            int64_t chunked[RP_OP_KIND_COUNT];
            rpsim_gpu_rates rates = plain;
            times(rows[i].model, &rates, sequences, true, whole);
            rates.loss_chunk_tokens = RP_LOSS_CHUNK_TOKENS;
            times(rows[i].model, &rates, sequences, true, chunked);
            double trained = rows[i].trained * rows[i].hidden * rows[i].vocab;
            double bytes = chunked_bytes(2048.0 * sequences, rows[i].hidden, trained);
            int64_t expected = (int64_t)(1e12 * bytes / MEMORY_BPS);
            int64_t more = chunked[RP_OP_BACKWARD] - whole[RP_OP_BACKWARD];
            cr_expect(le(i64, llabs(more - expected), 2), "%s x %u: %ld %ld", rows[i].model,
                      sequences, (long)more, (long)expected);
            cr_expect(eq(i64, chunked[RP_OP_FORWARD], whole[RP_OP_FORWARD]));
            cr_expect(eq(i64, chunked[RP_OP_RECOMPUTE], whole[RP_OP_RECOMPUTE]));
        }
    }
}

/* Launches of experts stay for any number of tokens; those of dense layers are hidden. The table
 * has 4 sequences: in proportion, fewer take longer by the launches' share, more take less. */
Test(layer_costs, launches_do_not_shrink)
{
    static const struct {
        const char *model;
        double launches;
    } rows[] = {{"qwen3-235b-lora", 40 + 128 * 25}, {"gpt-oss-20b", 40 + 4 * 13}, {"qwen3-32b", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t sequences = 1; sequences <= 16; sequences *= 2) {
            int64_t without[RP_OP_KIND_COUNT];
            int64_t with[RP_OP_KIND_COUNT];
            rpsim_gpu_rates rates = plain;
            times(rows[i].model, &rates, sequences, false, without);
            rates.launch_s = 2.5e-6;
            times(rows[i].model, &rates, sequences, false, with);
            double more_s = rows[i].launches * 2.5e-6 * (1 - sequences / 4.0);
            cr_expect(
                le(i64,
                   llabs(with[RP_OP_FORWARD] - without[RP_OP_FORWARD] - (int64_t)(1e12 * more_s)),
                   2),
                "%s x %u", rows[i].model, sequences);
            cr_expect(
                le(i64,
                   llabs(with[RP_OP_BACKWARD] - without[RP_OP_BACKWARD] - (int64_t)(2e12 * more_s)),
                   2),
                "%s x %u", rows[i].model, sequences);
        }
    }
}

/* A platform's factor scales every time of a pass. */
Test(layer_costs, factor_of_all_times)
{
    rpsim_gpu_rates slow = plain;
    slow.time_factor = 1.5;
    slow.loss_chunk_tokens = RP_LOSS_CHUNK_TOKENS;
    rpsim_gpu_rates fast = slow;
    fast.time_factor = 0;
    for (int head = 0; head < 2; head++) {
        int64_t here[RP_OP_KIND_COUNT];
        int64_t there[RP_OP_KIND_COUNT];
        times("llama3.1-8b", &fast, 3, head == 1, here);
        times("llama3.1-8b", &slow, 3, head == 1, there);
        for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
            cr_expect(le(dbl, fabs((double)there[kind] - 1.5 * (double)here[kind]), 2), "%u", kind);
        }
        cr_expect(gt(i64, here[RP_OP_BACKWARD], 0));
    }
}
