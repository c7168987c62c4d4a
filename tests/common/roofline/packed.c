/* Attention within documents, against masks that are counted pair by pair. */
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

TestSuite(packed, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

#define MOST 512u

/* A sequence whose tokens have the number of their document; 0: padding. */
typedef struct sequence {
    uint32_t tokens;
    uint32_t of[MOST];
} sequence;

static void add(sequence *s, uint32_t document, uint32_t tokens)
{
    for (uint32_t i = 0; i < tokens; i++) {
        s->of[s->tokens++] = document;
    }
}

/* Pairs that the block-diagonal causal mask leaves. A pair on the diagonal counts half, as the
 * closed form s^2 / 2 has it. */
static double count_pairs(const sequence *s, uint32_t window)
{
    double pairs = 0;
    for (uint32_t query = 0; query < s->tokens; query++) {
        for (uint32_t key = 0; key <= query; key++) {
            bool seen = s->of[query] == s->of[key] && s->of[query] != 0;
            bool near = window == 0 || query - key < window;
            bool last = window != 0 && query - key == window; /* the other half */
            pairs += !seen ? 0 : near && query != key ? 1 : near || last ? 0.5 : 0;
        }
    }
    return pairs;
}

static void expect_pairs(const sequence *s, const rp_documents *d, double sequences)
{
    static const uint32_t windows[] = {0, 1, 7, 32, 100, 400};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        double counted = count_pairs(s, windows[i]) / sequences;
        double pairs = rp_packed_pairs(d, s->tokens / sequences, windows[i]);
        cr_expect(epsilon_eq(dbl, pairs, counted, 1e-9 * counted), "window %u: %g and %g",
                  windows[i], pairs, counted);
    }
}

Test(packed, whole_documents_and_padding)
{
    const double lengths[] = {5, 30, 61, 150};
    const double numbers[] = {3, 2, 1, 1};
    rp_documents d = {.count = 4, .tokens = lengths, .number = numbers};
    sequence s = {0};
    uint32_t document = 0;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t k = 0; k < (uint32_t)numbers[i]; k++) {
            add(&s, ++document, (uint32_t)lengths[i]);
        }
    }
    expect_pairs(&s, &d, 1);
    d.padding = 64.0 / (s.tokens + 64);
    add(&s, 0, 64);
    expect_pairs(&s, &d, 1);
}

/* 250 tokens in sequences of 96: two whole sequences, then 58 tokens. */
Test(packed, long_documents_are_cut)
{
    const double length = 250;
    const double number = 1e6;
    const rp_documents d = {.count = 1, .tokens = &length, .number = &number};
    sequence s = {0};
    add(&s, 1, 96);
    add(&s, 2, 96);
    add(&s, 3, 58);
    cr_expect(epsilon_eq(dbl, rp_packed_pairs(&d, 96, 0), count_pairs(&s, 0) * 96 / 250, 1e-9));
    cr_expect(epsilon_eq(dbl, rp_packed_pairs(&d, 96, 20), count_pairs(&s, 20) * 96 / 250, 1e-9));
}

Test(packed, without_documents_a_sequence_is_one)
{
    const rp_documents padded = {.padding = 0.25};
    const double length = 4096;
    const double number = 1;
    const rp_documents one = {.count = 1, .tokens = &length, .number = &number};
    for (uint32_t window = 0; window <= 512; window += 128) {
        double pairs = rp_attention_pairs(4096, window);
        cr_expect(eq(dbl, rp_packed_pairs(NULL, 4096, window), pairs));
        cr_expect(eq(dbl, rp_packed_pairs(&padded, 4096, window), pairs));
        cr_expect(eq(dbl, rp_packed_pairs(&one, 4096, window), pairs));
    }
    cr_expect(eq(dbl, rp_attention_masked(NULL, 4096), 1 + 128.0 / 4096));
    cr_expect(eq(dbl, rp_attention_masked(&one, 4096), 1 + 128.0 / 4096));
}

/* Fused attention computes blocks of 128 x 128 pairs: n (n + 1) / 2 of them for n x 128 tokens. */
Test(packed, blocks_on_diagonals_are_computed_whole)
{
    const double lengths[] = {128, 256, 1024};
    const double numbers[] = {8, 4, 1};
    const rp_documents d = {.count = 3, .tokens = lengths, .number = numbers};
    double computed = 0;
    for (uint32_t i = 0; i < 3; i++) {
        for (double block = 1; block <= lengths[i] / 128; block++) {
            computed += numbers[i] * block * 128 * 128;
        }
    }
    double pairs = rp_packed_pairs(&d, 3072, 0) * rp_attention_masked(&d, 3072);
    cr_expect(epsilon_eq(dbl, pairs, computed, 1e-6));
}

/* FLOP of a layer are linear in the pairs, and nothing but attention changes. */
Test(packed, flop_and_times_of_a_layer)
{
    rp_platform platform;
    rp_costs whole;
    rp_costs packed;
    rp_model model;
    const rp_documents *documents = NULL;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_model_load("gpt-oss-20b", arena, &model), RP_OK));
    cr_assert(eq(int, rp_platform_load("h100x8", arena, &platform), RP_OK));
    cr_assert(eq(int, rp_documents_load("512", 0, arena, &documents, NULL), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, NULL};
    double all[2][RP_PASS_COUNT];
    double of[2][RP_PASS_COUNT];
    for (uint32_t layer = 0; layer < 2; layer++) {
        rp_layer_flop(&model, layer, 2, 8192, all[layer]);
    }
    cr_assert(eq(int, rp_roofline_costs(&model, &roof, 2, 8192, arena, &whole, NULL), RP_OK));
    model.documents = documents;
    for (uint32_t layer = 0; layer < 2; layer++) {
        rp_layer_flop(&model, layer, 2, 8192, of[layer]);
        double window = rp_model_window(&model, layer);
        double each = 2.0 * model.heads * (model.head_dim + rp_model_value_dim(&model));
        double pairs =
            2 * (rp_attention_pairs(8192, window) - 16 * rp_attention_pairs(512, window));
        double less = all[layer][RP_PASS_FORWARD] - of[layer][RP_PASS_FORWARD];
        cr_expect(epsilon_eq(dbl, less, each * pairs, 1e-9 * all[layer][RP_PASS_FORWARD]));
        less = all[layer][RP_PASS_BACKWARD_INPUT] - of[layer][RP_PASS_BACKWARD_INPUT];
        cr_expect(epsilon_eq(dbl, less, 2.5 * each * pairs, 1e-9 * all[layer][RP_PASS_FORWARD]));
        cr_expect(eq(dbl, all[layer][RP_PASS_BACKWARD_WEIGHT], of[layer][RP_PASS_BACKWARD_WEIGHT]));
    }
    cr_assert(eq(int, rp_roofline_costs(&model, &roof, 2, 8192, arena, &packed, NULL), RP_OK));
    cr_expect(packed.documents == documents);
    cr_expect(lt(i64, packed.fwd_ps[1], whole.fwd_ps[1]));
    cr_expect(eq(i64, packed.head_fwd_ps, whole.head_fwd_ps));
}

static const rp_documents *read_file(const char *text, rp_status expected)
{
    const rp_documents *documents = NULL;
    FILE *file = fopen("documents.csv", "w");
    cr_assert(file != NULL);
    fputs(text, file);
    fclose(file);
    rp_status status =
        rp_documents_load("documents.csv", 0.1, rp_test_tool_arena(), &documents, NULL);
    cr_expect(eq(int, status, expected), "%s", text);
    remove("documents.csv");
    return documents;
}

Test(packed, files)
{
    const rp_documents *d = read_file("tokens,documents\n512,3\n8000,0.5\n", RP_OK);
    cr_assert(d != NULL);
    cr_expect(eq(u32, d->count, 2));
    cr_expect(eq(dbl, d->tokens[1], 8000));
    cr_expect(eq(dbl, d->number[1], 0.5));
    cr_expect(eq(dbl, d->padding, 0.1));
    read_file("tokens,documents\n", RP_INPUT);
    read_file("tokens,documents\n512,0\n", RP_INPUT);
    read_file("tokens,documents\n0,1\n", RP_INPUT);
    read_file("tokens,documents\n512,-1\n", RP_INPUT);
    read_file("length,documents\n512,1\n", RP_INPUT);
}
