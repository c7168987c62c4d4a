/* Gradients of many microbatches in bf16 and fp16 against double precision: they are added up in
 * fp32 and rounded once, so that their error does not grow with the number of microbatches. */
#include "tests/reference/slow_decoder.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_LEN 17u
#define MICROBATCHES 64u

TestSuite(exec_sums, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

/* Weights that the type can hold, and the right gradients for them. */
typedef struct expected {
    slow_decoder decoder;
    slow_parameter *parameters;
    int count;
    double *weights;
    double *gradients;
} expected;

static void prepare(void *context, rp_arena *in, rp_test_run *run)
{
    expected *e = context;
    (void)in;
    for (uint32_t layer = 0; layer < run->model.layer_count; layer++) {
        uint64_t first = run->state.offsets[layer];
        uint64_t values = run->state.offsets[layer + 1] - first;
        rpexec_widen(run->model.dtype, values, rpexec_state_working(&run->state, layer),
                     run->state.master + first);
    }
    for (int i = 0; i < e->count; i++) {
        const slow_parameter *p = &e->parameters[i];
        const float *from = run->state.master + rp_test_offset_of(run, p->name);
        for (int k = 0; k < p->rows * p->columns; k++) {
            e->weights[p->offset + (size_t)k] = (double)from[k];
        }
    }
    const slow_batch batch = {(int)MICROBATCHES, (int)SEQ_LEN, run->batches[0].ids,
                              run->batches[0].labels};
    (void)slow_decoder_loss(&e->decoder, &batch, e->weights, e->gradients);
}

static expected expected_of(const rp_model *m)
{
    size_t elements = 0;
    expected e = {.decoder = {.layers = (int)m->layers,
                              .hidden = (int)m->hidden,
                              .heads = (int)m->heads,
                              .kv_heads = (int)m->kv_heads,
                              .head_dim = (int)m->head_dim,
                              .intermediate = (int)m->intermediate,
                              .vocab = (int)m->vocab,
                              .theta = m->rope_theta,
                              .eps = m->norm_eps,
                              .tied = m->tied_head,
                              .qk_norm = m->qk_norm}};
    e.parameters = slow_decoder_parameters(&e.decoder, &e.count, &elements);
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, elements, sizeof(double), &e.weights), RP_OK));
    cr_assert(
        eq(int, rp_arena_alloc(rp_test_arena, elements, sizeof(double), &e.gradients), RP_OK));
    return e;
}

/* The root mean square of a tensor's error, relative to the root mean square of the tensor. */
static double error_of(const rp_test_run *run, const expected *e, const slow_parameter *p)
{
    const float *got = run->state.gradients + rp_test_offset_of(run, p->name);
    double errors = 0;
    double squares = 0;
    for (int k = 0; k < p->rows * p->columns; k++) {
        double right = e->gradients[p->offset + (size_t)k];
        errors += ((double)got[k] - right) * ((double)got[k] - right);
        squares += right * right;
    }
    return sqrt(errors / squares);
}

/*
 * Roundings on the way to a term of the gradient, in a model of two blocks. Each is at most u of a
 * value, evenly distributed: u / sqrt(3) as a root mean square, and independent of the others, so
 * that sums of many terms have the error of a single term. The gradient's own rounding comes on
 * top. If instead the growing sum were rounded sixty-four times, that would be sqrt(32) such
 * roundings, of values that lie anywhere between two powers of two (0.41 u): 2.3 u beside all else.
 */
static const struct {
    const char *name;
    double roundings;
} paths[] = {
    /* 4 residuals, norm, logits, and the logits' gradient */
    {"lm_head.weight", 7},
    /* 5: dlogits, dn, dx of the head, du and dx of block 1; and u, n, gate, up, s */
    {"model.layers.0.mlp.down_proj.weight", 10},
    /* the first 5, ds, dup; u, n, gate */
    {"model.layers.0.mlp.up_proj.weight", 10},
    /* the first 5, du, do, dq, its rotation and norm; n and q, k before and after the norm, v, o */
    {"model.layers.0.self_attn.q_proj.weight", 17},
};

static void expect_one_rounding(const char *schedule, uint32_t gpus, rp_dtype dtype)
{
    const double u = dtype == RP_DTYPE_F16 ? ldexp(1, -11) : ldexp(1, -8);
    const rp_model config = rp_test_decoder(2, false, true);
    const rp_schedule_type *type = rp_schedule_find(schedule);
    const rp_resolved work = {.schedule = type,
                              .gpus = gpus,
                              .decided.accumulate = 1,
                              .decided.microbatches = MICROBATCHES,
                              .decided.microbatch_size = 1,
                              .decided.iterations = 1,
                              .decided.round = RP_ROUND_ALL,
                              .recompute = type->default_recompute,
                              .decided.piece_bytes = 20000};
    expected e = expected_of(&config);
    const rp_test_twist twist = {.dtype = dtype, .prepare = prepare, .context = &e};
    rp_test_run run;
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        int i = 0;
        while (i < e.count && strcmp(e.parameters[i].name, paths[k].name) != 0) {
            i++;
        }
        cr_assert(i < e.count, "%s", paths[k].name);
        double allowed = sqrt((paths[k].roundings + 1) / 3) * u;
        double error = error_of(&run, &e, &e.parameters[i]);
        cr_expect(error <= allowed, "%s, %s, %s: %.2f u, allowed are %.2f", schedule,
                  rp_dtype_text(dtype), paths[k].name, error / u, allowed / u);
    }
    free(e.parameters);
}

Test(exec_sums, of_many_microbatches_are_rounded_once)
{
    expect_one_rounding("roundpipe", 1, RP_DTYPE_BF16);
    expect_one_rounding("1f1b", 2, RP_DTYPE_F16);
}
