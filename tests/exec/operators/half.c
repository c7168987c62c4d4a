/* Operators for 16-bit storage against the fp32 operators on the same values, widened: their
 * results are the fp32 results, rounded once. Matrices have more rows than are widened at a time,
 * and rows and values that end within a piece. */
#include "exec/host/lane.h"
#include "exec/operators/random.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static rp_model config;
static rpexec_model model;
static rpexec_lane narrow_lane;
static rpexec_lane wide_lane;
static rp_dtype dtype;

static void open_lanes(rp_dtype of)
{
    rpexec_model wide;
    dtype = of;
    config = rp_test_decoder(1, false, true);
    cr_assert(eq(int, rpexec_model_create(&config, 70, of, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_model_create(&config, 70, RP_DTYPE_F32, rp_test_arena, &wide), RP_OK));
    cr_assert(eq(int, rpexec_host_lane_create(&model, 140, rp_test_arena, &narrow_lane), RP_OK));
    cr_assert(eq(int, rpexec_host_lane_create(&wide, 140, rp_test_arena, &wide_lane), RP_OK));
}

TestSuite(exec_half, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

/* The same tensor in 16 bits and widened. */
typedef struct pair {
    uint64_t count;
    uint16_t *half;
    float *wide;
} pair;

static pair random_pair(uint64_t seed, uint64_t count)
{
    pair p = {.count = count};
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count, sizeof *p.half, &p.half), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count, sizeof *p.wide, &p.wide), RP_OK));
    rpexec_random_normal(seed, 0, 1.0, count, p.wide);
    rpexec_narrow(dtype, count, p.wide, p.half);
    rpexec_widen(dtype, count, p.half, p.wide);
    return p;
}

/* The 16-bit result must equal the rounded fp32 result to the last bit. If matrix products of other
 * sizes may sum in another order (`other_sums`), it must equal the fp32 result within fp32's
 * errors. */
static void check(const char *name, const pair *p, bool other_sums)
{
    float unit = dtype == RP_DTYPE_BF16 ? 0x1p-8f : 0x1p-11f; /* at most half of the last place */
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < p->count; i++) {
        uint16_t right;
        float got;
        rpexec_narrow(dtype, 1, &p->wide[i], &right);
        rpexec_widen(dtype, 1, &p->half[i], &got);
        float allowed = 1.01f * unit * fabsf(p->wide[i]) + 1e-4f;
        bool good = other_sums ? fabsf(got - p->wide[i]) <= allowed : right == p->half[i];
        wrong += good ? 0 : 1;
    }
    cr_expect(eq(u64, wrong, 0), "%s, %s: %lu of %lu values", rp_dtype_text(dtype), name, wrong,
              p->count);
}

static void check_floats(const char *name, const float *a, const float *b, uint64_t count)
{
    cr_expect(memcmp(a, b, count * sizeof *a) == 0, "%s, %s", rp_dtype_text(dtype), name);
}

static void matrices(void)
{
    const rpexec_operators *half = rpexec_host_operators[dtype];
    const rpexec_operators *wide = rpexec_host_operators[RP_DTYPE_F32];
    static const struct {
        uint32_t in, out;
    } sizes[] = {{32, 48}, {48, 32}, {32, 1200}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t in = sizes[i].in;
        uint32_t out = sizes[i].out;
        uint64_t rows = 97;
        for (int add = 0; add < 2; add++) {
            pair x = random_pair(1, rows * in);
            pair w = random_pair(2, (uint64_t)in * out);
            pair y = random_pair(3, rows * out);
            pair base = random_pair(7, rows * out);
            half->linear(&narrow_lane, rows, in, out, x.half, w.half, add != 0 ? base.half : NULL,
                         y.half);
            wide->linear(&wide_lane, rows, in, out, x.wide, w.wide, add != 0 ? base.wide : NULL,
                         y.wide);
            check("linear", &y, out > 512);
            pair dy = random_pair(4, rows * out);
            pair dx = random_pair(5, rows * in);
            half->linear_input(&narrow_lane, rows, in, out, dy.half, w.half, add != 0, dx.half);
            wide->linear_input(&wide_lane, rows, in, out, dy.wide, w.wide, add != 0, dx.wide);
            check("linear_input", &dx, out > 512);
            pair dw = random_pair(6, (uint64_t)in * out);
            half->linear_weight(&narrow_lane, rows, in, out, dy.half, x.half, false, dw.half);
            wide->linear_weight(&wide_lane, rows, in, out, dy.wide, x.wide, false, dw.wide);
            check("linear_weight", &dw, out > 512);
        }
    }
}

static void norms(void)
{
    const rpexec_operators *half = rpexec_host_operators[dtype];
    const rpexec_operators *wide = rpexec_host_operators[RP_DTYPE_F32];
    static const uint32_t widths[] = {8, 97, 5000};
    for (size_t i = 0; i < 3; i++) {
        uint32_t width = widths[i];
        uint64_t rows = width == 8 ? 1003 : 21;
        float r[2][1003];
        bool add_one = width == 97;
        pair x = random_pair(1, rows * width);
        pair w = random_pair(2, width);
        pair y = random_pair(3, rows * width);
        pair dy = random_pair(4, rows * width);
        pair dw = random_pair(5, width);
        half->rms_norm(&narrow_lane, rows, width, 1e-6f, add_one, x.half, w.half, y.half, r[0]);
        wide->rms_norm(&wide_lane, rows, width, 1e-6f, add_one, x.wide, w.wide, y.wide, r[1]);
        check("rms_norm", &y, false);
        check_floats("r", r[0], r[1], rows);
        half->rms_norm_weight(&narrow_lane, rows, width, x.half, r[0], dy.half, false, dw.half);
        wide->rms_norm_weight(&wide_lane, rows, width, x.wide, r[0], dy.wide, false, dw.wide);
        check("rms_norm_weight", &dw, false);
        pair db = random_pair(8, width);
        half->bias_weight(&narrow_lane, rows, width, dy.half, false, db.half);
        wide->bias_weight(&wide_lane, rows, width, dy.wide, false, db.wide);
        check("bias_weight", &db, false);
        for (int add = 0; add < 2; add++) {
            half->add_bias(&narrow_lane, rows, width, w.half, add != 0 ? x.half : NULL, y.half);
            wide->add_bias(&wide_lane, rows, width, w.wide, add != 0 ? x.wide : NULL, y.wide);
            check("add_bias", &y, false);
        }
        for (int add = 0; add < 2; add++) {
            pair dx = random_pair(6, rows * width);
            pair base = random_pair(7, rows * width);
            half->rms_norm_input(&narrow_lane, rows, width, add_one, x.half, w.half, r[0], dy.half,
                                 add != 0 ? base.half : NULL, dx.half);
            wide->rms_norm_input(&wide_lane, rows, width, add_one, x.wide, w.wide, r[0], dy.wide,
                                 add != 0 ? base.wide : NULL, dx.wide);
            check("rms_norm_input", &dx, false);
        }
        half->rms_norm_input(&narrow_lane, rows, width, add_one, x.half, w.half, r[0], dy.half,
                             NULL, dy.half);
        wide->rms_norm_input(&wide_lane, rows, width, add_one, x.wide, w.wide, r[0], dy.wide, NULL,
                             dy.wide);
        check("rms_norm_input in place", &dy, false);
    }
}

static void sequences(void)
{
    const rpexec_operators *half = rpexec_host_operators[dtype];
    const rpexec_operators *wide = rpexec_host_operators[RP_DTYPE_F32];
    const rpexec_attention_sizes sizes = {
        .sequences = 2, .seq_len = 70, .heads = 4, .kv_heads = 2, .head_dim = 8, .cap = 2};
    uint64_t tokens = 140;
    float l[2][140 * 4];
    pair q = random_pair(1, tokens * 32);
    pair k = random_pair(2, tokens * 16);
    pair v = random_pair(3, tokens * 16);
    pair o = random_pair(4, tokens * 32);
    pair d_o = random_pair(5, tokens * 32);
    pair dq = random_pair(6, tokens * 32);
    pair dk = random_pair(7, tokens * 16);
    pair dv = random_pair(8, tokens * 16);
    for (int inverse = 0; inverse < 2; inverse++) {
        half->rotate(&narrow_lane, 2, 70, 4, 8, inverse == 0 ? 8 : 6, model.cosines, model.sines,
                     inverse != 0, q.half);
        wide->rotate(&wide_lane, 2, 70, 4, 8, inverse == 0 ? 8 : 6, model.cosines, model.sines,
                     inverse != 0, q.wide);
        check("rotate", &q, false);
        rpexec_widen(dtype, q.count, q.half, q.wide);
    }
    half->attention(&narrow_lane, &sizes, q.half, k.half, v.half, o.half, l[0]);
    wide->attention(&wide_lane, &sizes, q.wide, k.wide, v.wide, o.wide, l[1]);
    check("attention", &o, false);
    check_floats("logsumexp", l[0], l[1], tokens * 4);
    rpexec_widen(dtype, o.count, o.half, o.wide);
    half->attention_backward(&narrow_lane, &sizes, q.half, k.half, v.half, o.half, l[0], d_o.half,
                             dq.half, dk.half, dv.half);
    wide->attention_backward(&wide_lane, &sizes, q.wide, k.wide, v.wide, o.wide, l[1], d_o.wide,
                             dq.wide, dk.wide, dv.wide);
    check("dq", &dq, false);
    check("dk", &dk, false);
    check("dv", &dv, false);
}

static void values(void)
{
    const rpexec_operators *half = rpexec_host_operators[dtype];
    const rpexec_operators *wide = rpexec_host_operators[RP_DTYPE_F32];
    uint64_t count = 2 * 4096 + 77;
    pair a = random_pair(1, count);
    pair b = random_pair(2, count);
    pair y = random_pair(3, count);
    half->swiglu(&narrow_lane, count, a.half, b.half, y.half);
    wide->swiglu(&wide_lane, count, a.wide, b.wide, y.wide);
    check("swiglu", &y, false);
    pair ds = random_pair(4, count);
    half->swiglu_backward(&narrow_lane, count, a.half, b.half, ds.half, y.half, ds.half);
    wide->swiglu_backward(&wide_lane, count, a.wide, b.wide, ds.wide, y.wide, ds.wide);
    check("dgate", &y, false);
    check("dup in place", &ds, false);
    half->geglu(&narrow_lane, count, a.half, b.half, y.half);
    wide->geglu(&wide_lane, count, a.wide, b.wide, y.wide);
    check("geglu", &y, false);
    ds = random_pair(4, count);
    half->geglu_backward(&narrow_lane, count, a.half, b.half, ds.half, y.half, ds.half);
    wide->geglu_backward(&wide_lane, count, a.wide, b.wide, ds.wide, y.wide, ds.wide);
    check("geglu, dgate", &y, false);
    check("geglu, dup in place", &ds, false);
    half->add(&narrow_lane, count, a.half, b.half, b.half);
    wide->add(&wide_lane, count, a.wide, b.wide, b.wide);
    check("add in place", &b, false);
    half->copy(&narrow_lane, count - 1, a.half, y.half);
    rpexec_widen(dtype, count, y.half, y.wide);
    cr_expect(memcmp(a.half, y.half, (count - 1) * sizeof *a.half) == 0);
    half->zero(&narrow_lane, count - 1, y.half);
    cr_expect(eq(u16, y.half[count - 2], 0));
    float last;
    rpexec_widen(dtype, 1, &y.half[count - 1], &last);
    cr_expect(eq(flt, last, y.wide[count - 1]));
}

static void tables(void)
{
    const rpexec_operators *half = rpexec_host_operators[dtype];
    const rpexec_operators *wide = rpexec_host_operators[RP_DTYPE_F32];
    enum { TOKENS = 140, WIDTH = 32, ROWS = 11, VOCAB = 97 };
    int32_t ids[TOKENS];
    int32_t labels[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (int32_t)(rpexec_random_bits(9, 0, (uint64_t)t) % ROWS);
        labels[t] =
            t % 5 == 0 ? RPEXEC_IGNORED : (int32_t)(rpexec_random_bits(9, 1, (uint64_t)t) % VOCAB);
    }
    pair table = random_pair(1, ROWS * WIDTH);
    pair x = random_pair(2, TOKENS * WIDTH);
    half->embed_weight(&narrow_lane, TOKENS, WIDTH, ids, x.half, false, table.half);
    wide->embed_weight(&wide_lane, TOKENS, WIDTH, ids, x.wide, false, table.wide);
    check("embed_weight", &table, false); /* rounded once for all tokens of an id */
    half->embed(&narrow_lane, TOKENS, WIDTH, ids, table.half, x.half);
    for (int t = 0; t < TOKENS; t++) {
        cr_expect(memcmp(x.half + t * WIDTH, table.half + ids[t] * WIDTH, 2 * WIDTH) == 0);
    }
    pair z = random_pair(3, TOKENS * VOCAB);
    double loss[2] = {0, 0};
    half->cross_entropy(&narrow_lane, TOKENS, VOCAB, labels, 0.5f, 0.25f, z.half, &loss[0]);
    wide->cross_entropy(&wide_lane, TOKENS, VOCAB, labels, 0.5f, 0.25f, z.wide, &loss[1]);
    check("cross_entropy", &z, false);
    cr_expect(eq(dbl, loss[0], loss[1]));
}

static void adam(void)
{
    enum { COUNT = 4096 + 100 };
    const rpexec_operators *half = rpexec_host_operators[dtype];
    const rpexec_adam adam = rpexec_adam_defaults();
    pair gradients = random_pair(1, COUNT);
    pair master[2] = {random_pair(2, COUNT), random_pair(2, COUNT)};
    pair m[2] = {random_pair(3, COUNT), random_pair(3, COUNT)};
    pair v[2] = {random_pair(4, COUNT), random_pair(4, COUNT)};
    for (int k = 0; k < 2; k++) {
        for (uint64_t i = 0; i < COUNT; i++) {
            v[k].wide[i] *= v[k].wide[i];
        }
    }
    const rpexec_update update = {.master = master[0].wide,
                                  .weights = master[0].half,
                                  .gradients = gradients.half,
                                  .m = m[0].wide,
                                  .v = v[0].wide,
                                  .scale = 1,
                                  .count = COUNT};
    const rpexec_adam_slice slice = {.parameters = master[1].wide,
                                     .gradients = gradients.wide,
                                     .m = m[1].wide,
                                     .v = v[1].wide,
                                     .count = COUNT};
    const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, 3);
    half->adam(&narrow_lane, &factors, &update);
    rpexec_adam_step(&adam, 3, &slice);
    check("weights", &master[0], false); /* the rounded masters */
    check_floats("masters", master[0].wide, master[1].wide, COUNT);
    check_floats("m", m[0].wide, m[1].wide, COUNT);
    check_floats("v", v[0].wide, v[1].wide, COUNT);
}

static void all_of(rp_dtype of)
{
    open_lanes(of);
    matrices();
    norms();
    sequences();
    values();
    tables();
    adam();
}

Test(exec_half, bf16)
{
    all_of(RP_DTYPE_BF16);
}

Test(exec_half, fp16)
{
    all_of(RP_DTYPE_F16);
}
