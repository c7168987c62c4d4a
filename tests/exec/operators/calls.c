/* Calls of operators as words (exec/operators/calls.h): no argument of a call gets lost. */
#include "exec/operators/calls.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <string.h>

/* Keeps the last call. */
typedef struct keeper {
    rpexec_call_taker taker;
    uint64_t call[RPEXEC_CALL_WORDS];
} keeper;

static void keep(rpexec_call_taker *taker, const uint64_t *call)
{
    keeper *k = (keeper *)(void *)taker;
    cr_assert(le(u32, rpexec_call_length(call), RPEXEC_CALL_WORDS));
    memcpy(k->call, call, rpexec_call_length(call) * sizeof *call);
}

static keeper all = {.taker = {.take = keep}};
#define LANE ((rpexec_lane *)(void *)&all.taker)
#define NOTED rpexec_noting_operators

/* Arguments with which the last kept call has come back. */
static rpexec_attention_sizes got_sizes;
static rpexec_routing got_routing;
static rpexec_matrices got_matrices;
static rpexec_adam_factors got_factors;
static rpexec_update got_update;
static const void *got_pointers[4];
static float got_factor;

static void attention(rpexec_lane *lane, const rpexec_attention_sizes *sizes, const void *q,
                      const void *k, const void *v, void *o, float *logsumexp)
{
    (void)lane;
    (void)logsumexp;
    got_sizes = *sizes;
    memcpy(got_pointers, (const void *[]){q, k, v, o}, sizeof got_pointers);
}

static void experts_linear(rpexec_lane *lane, const rpexec_routing *routing,
                           const rpexec_matrices *matrices, const void *x, const void *weights,
                           bool add, void *y)
{
    (void)lane;
    (void)x;
    (void)weights;
    (void)y;
    cr_expect(add);
    got_routing = *routing;
    got_matrices = *matrices;
}

static void adam_step(rpexec_lane *lane, const rpexec_adam_factors *factors,
                      const rpexec_update *update)
{
    (void)lane;
    got_factors = *factors;
    got_update = *update;
}

static void scale(rpexec_lane *lane, uint64_t count, float factor, void *x)
{
    (void)lane;
    (void)x;
    cr_expect(eq(u64, count, UINT64_MAX - 1));
    got_factor = factor;
}

static const rpexec_operators table = {
    .attention = attention, .experts_linear = experts_linear, .adam = adam_step, .scale = scale};

static char memory[64];

#define AT(i) ((void *)(memory + (i)))

static const rpexec_attention_sizes sizes = {1, 2, 3, 4, 5, 6, 7, 8};
static const rpexec_routing routing = {.tokens = UINT64_MAX - 2,
                                       .experts = 8,
                                       .active = 9,
                                       .raw = true,
                                       .probabilities = AT(0),
                                       .chosen = AT(4),
                                       .rows = AT(8),
                                       .weights = AT(12),
                                       .begins = AT(16)};
static const rpexec_matrices matrices = {10, 11, UINT64_MAX - 3};
static const rpexec_adam_factors factors = {1.5f, 2.5f, 3.5f, 4.5f, 5.5f,
                                            6.5f, 7.5f, 8.5f, 9.5f, 10.5f};
static const rpexec_update update = {.master = AT(20),
                                     .weights = AT(24),
                                     .gradients = AT(28),
                                     .m = AT(32),
                                     .v = AT(36),
                                     .scale = 0.5f,
                                     .count = 12};

/* Each member is a word: if the member at an offset changes, the words change. */
#define CHANGES(type, original, member, ...)                                                       \
    do {                                                                                           \
        type changed = original;                                                                   \
        const type *argument = &original;                                                          \
        __VA_ARGS__;                                                                               \
        uint64_t before[RPEXEC_CALL_WORDS];                                                        \
        memcpy(before, all.call, sizeof before);                                                   \
        changed.member = 0;                                                                        \
        argument = &changed;                                                                       \
        __VA_ARGS__;                                                                               \
        cr_expect(memcmp(before, all.call, sizeof before) != 0, #type "." #member " is lost");     \
    } while (0)

#define SIZES_CHANGE(member)                                                                       \
    CHANGES(rpexec_attention_sizes, sizes, member,                                                 \
            NOTED.attention(LANE, argument, AT(0), AT(1), AT(2), AT(3), AT(4)))
#define ROUTING_CHANGES(member)                                                                    \
    CHANGES(rpexec_routing, routing, member,                                                       \
            NOTED.experts_linear(LANE, argument, &matrices, AT(0), AT(1), true, AT(2)))
#define MATRICES_CHANGE(member)                                                                    \
    CHANGES(rpexec_matrices, matrices, member,                                                     \
            NOTED.experts_linear(LANE, &routing, argument, AT(0), AT(1), true, AT(2)))
#define FACTORS_CHANGE(member)                                                                     \
    CHANGES(rpexec_adam_factors, factors, member, NOTED.adam(LANE, argument, &update))
#define UPDATE_CHANGES(member)                                                                     \
    CHANGES(rpexec_update, update, member, NOTED.adam(LANE, &factors, argument))

Test(exec_operator_calls, every_member_counts)
{
    SIZES_CHANGE(sequences);
    SIZES_CHANGE(seq_len);
    SIZES_CHANGE(heads);
    SIZES_CHANGE(kv_heads);
    SIZES_CHANGE(head_dim);
    SIZES_CHANGE(window);
    SIZES_CHANGE(scale);
    SIZES_CHANGE(cap);
    ROUTING_CHANGES(tokens);
    ROUTING_CHANGES(experts);
    ROUTING_CHANGES(active);
    ROUTING_CHANGES(raw);
    ROUTING_CHANGES(probabilities);
    ROUTING_CHANGES(chosen);
    ROUTING_CHANGES(rows);
    ROUTING_CHANGES(weights);
    ROUTING_CHANGES(begins);
    MATRICES_CHANGE(in);
    MATRICES_CHANGE(out);
    MATRICES_CHANGE(stride);
    FACTORS_CHANGE(beta1);
    FACTORS_CHANGE(one_minus_beta1);
    FACTORS_CHANGE(beta2);
    FACTORS_CHANGE(one_minus_beta2);
    FACTORS_CHANGE(clip);
    FACTORS_CHANGE(rate);
    FACTORS_CHANGE(unbias);
    FACTORS_CHANGE(eps);
    FACTORS_CHANGE(decay);
    FACTORS_CHANGE(shrink);
    UPDATE_CHANGES(master);
    UPDATE_CHANGES(weights);
    UPDATE_CHANGES(gradients);
    UPDATE_CHANGES(m);
    UPDATE_CHANGES(v);
    UPDATE_CHANGES(scale);
    UPDATE_CHANGES(count);
}

Test(exec_operator_calls, calls_come_back_as_they_were)
{
    NOTED.attention(LANE, &sizes, AT(0), AT(1), AT(2), AT(3), AT(4));
    cr_expect(eq(str, (char *)rpexec_call_name(all.call), (char *)"attention"));
    rpexec_call_make(&table, LANE, all.call);
    cr_expect(memcmp(&got_sizes, &sizes, sizeof sizes) == 0);
    for (int i = 0; i < 4; i++) {
        cr_expect(got_pointers[i] == AT(i));
    }
    NOTED.experts_linear(LANE, &routing, &matrices, AT(0), AT(1), true, AT(2));
    rpexec_call_make(&table, LANE, all.call);
    cr_expect(eq(u64, got_routing.tokens, routing.tokens));
    cr_expect(eq(u32, got_routing.experts, routing.experts));
    cr_expect(eq(u32, got_routing.active, routing.active));
    cr_expect(got_routing.raw && got_routing.begins == routing.begins &&
              got_routing.probabilities == routing.probabilities &&
              got_routing.chosen == routing.chosen && got_routing.rows == routing.rows &&
              got_routing.weights == routing.weights);
    cr_expect(memcmp(&got_matrices, &matrices, sizeof matrices) == 0);
    NOTED.adam(LANE, &factors, &update);
    cr_expect(not(rpexec_call_repeats(all.call)));
    rpexec_call_make(&table, LANE, all.call);
    cr_expect(memcmp(&got_factors, &factors, sizeof factors) == 0);
    cr_expect(got_update.master == update.master && got_update.weights == update.weights &&
              got_update.gradients == update.gradients && got_update.m == update.m &&
              got_update.v == update.v && got_update.scale == update.scale &&
              got_update.count == update.count);
    NOTED.scale(LANE, UINT64_MAX - 1, -0.0f, AT(0));
    cr_expect(rpexec_call_repeats(all.call));
    rpexec_call_make(&table, LANE, all.call);
    cr_expect(memcmp(&got_factor, &(float){-0.0f}, sizeof got_factor) == 0);
}

/* A check that all addresses are the GPU's must see all addresses, and nothing else. */
Test(exec_operator_calls, addresses_are_known)
{
    NOTED.experts_linear(LANE, &routing, &matrices, AT(0), AT(1), true, NULL);
    static const bool right[] = {false, false, false, false, true, true, true,  true,
                                 true,  false, false, false, true, true, false, true};
    cr_assert(eq(u32, rpexec_call_length(all.call), 1 + sizeof right / sizeof *right));
    for (uint32_t i = 0; i < sizeof right / sizeof *right; i++) {
        cr_expect(rpexec_call_has_address(all.call, 1 + i) == right[i], "word %u", 1 + i);
    }
    NOTED.cross_entropy(LANE, 1, 2, AT(0), 0, 3, AT(1), AT(2));
    cr_expect(rpexec_call_has_address(all.call, 3) && rpexec_call_has_address(all.call, 6) &&
              rpexec_call_has_address(all.call, 7));
    cr_expect(not(rpexec_call_has_address(all.call, 4) || rpexec_call_has_address(all.call, 5)));
}

static void expect_description(rp_dtype dtype, const char *shape, double flop, double bytes)
{
    rpexec_call_description what;
    rpexec_call_describe(all.call, dtype, &what);
    cr_expect(what.name == rpexec_call_name(all.call));
    cr_expect(eq(str, what.shape, (char *)shape));
    cr_expect(eq(dbl, what.flop, flop), "%s", what.name);
    cr_expect(eq(dbl, what.bytes, bytes), "%s", what.name);
}

/* FLOP and bytes counted by hand; a tensor that is added to is also read. */
Test(exec_operator_calls, what_calls_ask_for)
{
    for (int i = 0; i < 2; i++) {
        rp_dtype dtype = i == 0 ? RP_DTYPE_F32 : RP_DTYPE_BF16;
        double element = i == 0 ? 4 : 2;
        NOTED.linear(LANE, 3, 5, 7, AT(0), AT(1), i == 0 ? AT(3) : NULL, AT(2));
        expect_description(dtype, "3x5x7", 210, element * (15 + 35 + (i == 0 ? 42 : 21)));
        NOTED.rms_norm_input(LANE, 3, 5, false, AT(0), AT(1), AT(2), AT(3), i == 0 ? AT(5) : NULL,
                             AT(4));
        expect_description(dtype, "3x5", 0, element * (i == 0 ? 60 : 45));
        /* 2 sequences of 8 tokens, 6 query and 3 kv heads of 4 values, half of the square */
        NOTED.attention(LANE, &(rpexec_attention_sizes){2, 8, 6, 3, 4, 0, 0, 0}, AT(0), AT(1),
                        AT(2), AT(3), AT(4));
        expect_description(dtype, "2x8 heads 6/3x4", 4.0 * 2 * 8 * 4 * 6 * 4,
                           element * 2 * 16 * 4 * 9);
        NOTED.adam(LANE, &factors, &update); /* weights are written beside the masters */
        expect_description(dtype, "12", 0, 12 * (24 + 2 * element));
        const rpexec_routing r = {.tokens = 5, .experts = 4, .active = 2};
        NOTED.route(LANE, &r, AT(0));
        expect_description(dtype, "5 to 2 of 4", 0, 20 * (element + 4));
        NOTED.scatter(LANE, &r, 3, AT(0), true, AT(1));
        expect_description(dtype, "5 to 2 of 4 x3", 0, element * (30 + 2 * 15));
        NOTED.experts_linear_weight(LANE, &r, &(rpexec_matrices){3, 7, 21}, AT(0), AT(1), false,
                                    AT(2));
        expect_description(dtype, "5 to 2 of 4 x3x7", 420, element * (10 * 10 + 2 * 4 * 21));
    }
}
