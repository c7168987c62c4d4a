/* Selective recompute of a layer against PyTorch's own (tests/golden/selective.csv, written by
 * tests/tools/record_selective.py) and against figures by hand. */
#include "common/formats/csv.h"
#include "common/inputs/load/models.h"
#include "common/inputs/sizes.h"
#include "common/inputs/stacks/stack.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(again, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

#define TOKENS 512u

static rp_csv recorded;

static double number(uint32_t row, const char *header)
{
    uint32_t column = 0;
    double value = 0;
    cr_assert(eq(int, rp_csv_column(&recorded, header, &column), RP_OK));
    cr_assert(eq(int, rp_csv_double(&recorded, row, column, 0, 1e12, &value), RP_OK));
    return value;
}

/* The recorded layer, in a model of a single layer. */
static rp_model model_of(uint32_t row)
{
    rp_model m;
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", rp_test_tool_arena(), &m), RP_OK));
    m.layers = 1;
    m.hidden = (uint32_t)number(row, "hidden");
    m.heads = (uint32_t)number(row, "heads");
    m.kv_heads = (uint32_t)number(row, "kv_heads");
    m.head_dim = (uint32_t)number(row, "head_dim");
    m.intermediate = (uint32_t)number(row, "intermediate");
    m.qk_norm = number(row, "qk_norm") != 0;
    rp_model_count(&m);
    return m;
}

/* PyTorch's products and attention that a backward has beyond those of a plain one; the bytes per
 * token that are kept. */
Test(again, as_pytorch_records_it)
{
    const char *path = RP_TEST_ROOT "/golden/selective.csv";
    uint32_t policy = 0;
    cr_assert(eq(int, rp_csv_read_file(path, rp_test_tool_arena(), &recorded), RP_OK));
    cr_assert(eq(int, rp_csv_column(&recorded, "policy", &policy), RP_OK));
    cr_assert(eq(u32, recorded.rows, 9));
    for (uint32_t i = 0; i < recorded.rows; i++) {
        const char *of = rp_csv_cell(&recorded, i, policy);
        const rp_model m = model_of(i);
        const rp_stack stack = {.selective = strcmp(of, "none") == 0 ? NULL : of};
        uint32_t again = rp_stack_again(&stack);
        double q = (double)m.heads * m.head_dim;
        double attention = number(i, "again_attention") * 2 * q * TOKENS * TOKENS;
        double flop = number(i, "again_flop_per_token") * TOKENS + attention;
        cr_expect(eq(dbl, rp_again_flop(&m, 0, 1, TOKENS, again), flop), "row %u", i);
        uint64_t tape = UINT32_MAX;
        if (again == RP_AGAIN_ATTENTION) { /* the row before has what is kept without a policy */
            double saved = number(i - 1, "kept_per_token") - number(i, "kept_per_token");
            uint64_t rebuilt = rp_again_rebuilt_bytes(&m, 0, TOKENS, RP_DTYPE_BF16, &stack, tape);
            cr_expect(eq(u64, rebuilt, (uint64_t)saved * TOKENS), "row %u", i);
        }
        if (again == RP_AGAIN_SECOND_PRODUCTS) {
            uint64_t rebuilt = rp_again_rebuilt_bytes(&m, 0, TOKENS, RP_DTYPE_BF16, &stack, tape);
            cr_expect(eq(u64, tape - rebuilt, (uint64_t)number(i, "kept_per_token") * TOKENS),
                      "row %u", i);
        }
    }
}

/* 100 TFLOP/s in products, 50 in attention, 500 GB/s in passes. */
static const rp_platform gpu = {.fp16_tflops_fp16_acc = 200,
                                .fp16_tflops_fp32_acc = 200,
                                .memory_gb_per_s = 1000,
                                .product_share = 0.5,
                                .flash2_fwd_share = 0.25};

/* A layer of h = q = 1024, k = 512, I = 3072 and heads of 128 over 1,280 tokens, by hand. Diagonal
 * blocks make attention a tenth longer. */
Test(again, share_by_hand)
{
    rp_stack s = {.attention = "flash2",
                  .memory_share = 0.5,
                  .norm_fwd_bytes = 10,
                  .rope_fwd_bytes = 20,
                  .activation_fwd_bytes = 8,
                  .residual_fwd_bytes = 6,
                  .kernel_us = 2,
                  .launches_fwd = 30,
                  .selective_launches = 10};
    rp_model m;
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", rp_test_tool_arena(), &m), RP_OK));
    m.layers = 1;
    m.hidden = 1024, m.heads = 8, m.kv_heads = 4, m.head_dim = 128, m.intermediate = 3072;
    m.qk_norm = false;
    rp_model_count(&m);
    const rp_kernel_run run = {.roof = {&gpu, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, &s},
                               .seq_len = 1280};
    double t = 1280;
    double qo_s = 2 * t * 1024 * 1024 / 100e12;
    double kv_s = 2 * t * 1024 * 512 / 100e12;
    double mlp_s = 2 * t * 1024 * 3072 / 100e12;
    double attention_s = 1.1 * 2 * t * t * 1024 / 50e12;
    double norms_s = 2 * t * 1024 * 10 / 500e9;
    double rope_s = t * (1024 + 512) * 20 / 500e9;
    double swiglu_s = t * 3072 * 8 / 500e9;
    double sum_s = t * 1024 * 6 / 500e9;
    double whole_s = 2 * qo_s + 2 * kv_s + 3 * mlp_s + attention_s + norms_s + rope_s + swiglu_s +
                     2 * sum_s + 30 * 2e-6;
    const struct {
        uint32_t again;
        double time_s;
    } cases[] = {
        {RP_AGAIN_ATTENTION, attention_s},
        {RP_AGAIN_NORMS | RP_AGAIN_ACTIVATION, norms_s + swiglu_s},
        {RP_AGAIN_SECOND_PRODUCTS,
         kv_s + qo_s + mlp_s + norms_s + rope_s + swiglu_s + sum_s}, /* k, o and up; one sum */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double share = (cases[i].time_s + 10 * 2e-6) / whole_s;
        double got = rp_again_share(&m, 0, 1, &run, cases[i].again);
        cr_expect(epsilon_eq(dbl, got, share, 1e-9), "%zu: %g, not %g", i, got, share);
    }
}

/* Megatron's list for a GPT block: a LayerNorm's output and GELU's, a float per head; for Llama the
 * fp32 copy, the normalised value and the output of each norm, and the values behind gate and up.
 */
Test(again, bytes_of_sub_blocks)
{
    uint32_t all = rp_stack_again(NULL);
    rp_model gpt;
    rp_model llama;
    cr_expect(eq(u32, all, RP_AGAIN_ATTENTION | RP_AGAIN_NORMS | RP_AGAIN_ACTIVATION));
    cr_assert(eq(int, rp_model_load("gpt:1024x16x2", rp_test_tool_arena(), &gpt), RP_OK));
    cr_assert(eq(int, rp_model_load("llama3.1-8b", rp_test_tool_arena(), &llama), RP_OK));
    uint64_t got = rp_again_rebuilt_bytes(&gpt, 0, 256, RP_DTYPE_F16, NULL, UINT32_MAX);
    cr_expect(eq(u64, got, 256 * (2 * 2 * 1024 + 2 * 4096 + 4 * 16)));
    got = rp_again_rebuilt_bytes(&llama, 0, 256, RP_DTYPE_BF16, NULL, UINT32_MAX);
    cr_expect(eq(u64, got, 256 * (2 * 8 * 4096 + 4 * 14336)));
    cr_expect(eq(u64, rp_again_rebuilt_bytes(&llama, 0, 256, RP_DTYPE_BF16, NULL, 1000), 1000));
}

/* The second of GPT's four products is run again, not the fourth, whose output nothing needs. Its
 * unfused attention has two products of another kind, none of which is kept. */
Test(again, last_product_is_not_run_again)
{
    rp_model gpt;
    cr_assert(eq(int, rp_model_load("gpt:1024x16x2", rp_test_tool_arena(), &gpt), RP_OK));
    double flop = rp_again_flop(&gpt, 0, 1, 256, RP_AGAIN_SECOND_PRODUCTS);
    cr_expect(eq(dbl, flop, 2.0 * 256 * 1024 * 1024 + 2 * 2.0 * 256 * 256 * 1024));
}

Test(again, lists_of_stacks)
{
    static const struct {
        const char *list;
        uint32_t again; /* 0: refused */
    } cases[] = {{"attention", RP_AGAIN_ATTENTION},
                 {"norms activation", RP_AGAIN_NORMS | RP_AGAIN_ACTIVATION},
                 {"second-products", RP_AGAIN_SECOND_PRODUCTS},
                 {"attention second-products", 0},
                 {"attentions", 0},
                 {"norm", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rp_stack stack;
        char text[4096];
        const char *path = rp_test_tool_expand("@DIR@/stack.yaml", strlen("@DIR@/stack.yaml"));
        FILE *from = fopen(RP_SOURCE_ROOT "/traces/stacks/nanotron.yaml", "r");
        FILE *to = fopen(path, "w");
        cr_assert(from != NULL && to != NULL);
        while (fgets(text, sizeof text, from) != NULL) {
            fputs(text, to);
        }
        fprintf(to, "selective: %s\n", cases[i].list);
        cr_assert(fclose(from) == 0 && fclose(to) == 0);
        rp_status status = rp_stack_load(path, rp_test_tool_arena(), &stack);
        cr_expect(eq(int, status, cases[i].again != 0 ? RP_OK : RP_INPUT), "%s", cases[i].list);
        cr_expect(status != RP_OK || rp_stack_again(&stack) == cases[i].again);
    }
}

/* Eager PyTorch's kernels of a Llama layer but for q, v, gate, down, attention and the last sum: 28
 * of 34, and the 12 of norms on queries and keys. A stack's own number is for all shapes. The host
 * launches them beside the backward's. */
Test(again, launches)
{
    rp_stack stack = {.selective = "second-products", .launches_bwd = 40, .host_us_per_launch = 10};
    rp_model m;
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", rp_test_tool_arena(), &m), RP_OK));
    cr_expect(eq(dbl, rp_again_launches(&stack, &m), 28 + 12));
    m.qk_norm = false;
    cr_expect(eq(dbl, rp_again_launches(&stack, &m), 28));
    stack.selective = "attention";
    cr_expect(eq(dbl, rp_again_launches(&stack, &m), 1));
    stack.selective_launches = 8;
    cr_expect(eq(dbl, rp_again_launches(&stack, &m), 8));
    const rp_stack_host host = {.stack = &stack, .host_speed = 2, .selective = true};
    cr_expect(epsilon_eq(dbl, rp_stack_host_s(&host, &m, true), 10e-6 * (40 + 8) / 2, 1e-12));
    cr_expect(epsilon_eq(dbl, rp_stack_host_s(&host, &m, false), 10e-6 * 34 / 2, 1e-12));
}
