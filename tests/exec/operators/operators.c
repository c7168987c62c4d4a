/* Every operator of the host backend against the double-precision reference (tests/reference,
 * executor.md section 3, 3). Allowed errors follow from a model: a sum of n terms in fp32 has an
 * error of k u sqrt(n) times its tensor's root mean square, u = 2^-24; NaN is always an error.
 * Inputs are exact in fp32, so that both sides compute from the same numbers. */
#define _GNU_SOURCE /* dladdr */
#include "common/base/mem.h"
#include "exec/host/lane.h"
#include "exec/operators/random.h"
#include "tests/reference/slow_operators.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"
#include "tests/support/worse.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <string.h>

/* The model's k: operators sum in other orders than the model's random walk, and a few operations
 * follow the sums. */
#define FACTOR 6.0

#define MOST_HEAD_DIM 64

static rpexec_lane lane;
static const rpexec_operators *op;

static void begin(void)
{
    rp_test_arena_begin();
    op = rpexec_host_operators[RP_DTYPE_F32];
    lane.scratch_count = rpexec_host_attention_scratch(MOST_HEAD_DIM);
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_arena, lane.scratch_count, sizeof(float), &lane.scratch),
                 RP_OK));
}

TestSuite(exec_operators, .init = begin, .fini = rp_test_arena_end, .timeout = 60);

/* GSL has a slow function of the same name. */
Test(exec_operators, products_are_openblass)
{
    Dl_info found = {0};
    cr_assert(dladdr(dlsym(RTLD_DEFAULT, "cblas_sgemm"), &found) != 0);
    cr_expect(strstr(found.dli_fname, "openblas") != NULL, "%s", found.dli_fname);
}

/* The same numbers for the operator (x) and for the reference (right). */
typedef struct tensor {
    int count;
    float *x;
    double *right;
} tensor;

static tensor make(int count, double size)
{
    static uint64_t stream;
    tensor t = {.count = count};
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, (size_t)count, sizeof(float), &t.x), RP_OK));
    cr_assert(
        eq(int, rp_arena_alloc(rp_test_arena, (size_t)count, sizeof(double), &t.right), RP_OK));
    rpexec_random_normal(1, stream++, size, (uint64_t)count, t.x);
    for (int i = 0; i < count; i++) {
        t.right[i] = (double)t.x[i];
    }
    return t;
}

/* The largest error divided by the allowed error. @param length number of terms in the sums */
static double worst_of(const tensor *t, int length)
{
    double squares = 0;
    double worst = 0;
    for (int i = 0; i < t->count; i++) {
        squares += t->right[i] * t->right[i];
    }
    double rms = sqrt(squares / t->count);
    for (int i = 0; i < t->count; i++) {
        double size = fmax(rms, fabs(t->right[i]));
        double allowed = FACTOR * ldexp(1, -24) * sqrt(length) * size;
        double error = fabs((double)t->x[i] - t->right[i]) / allowed;
        worst = rp_test_worse(worst, error);
    }
    return worst;
}

static void compare(const char *what, const tensor *t, int length)
{
    double worst = worst_of(t, length);
    cr_expect(worst <= 1, "%s: %.2f times what is allowed", what, worst);
}

Test(exec_operators, the_comparison_sees_nan_and_small_errors)
{
    tensor t = make(10, 1);
    cr_expect(worst_of(&t, 4) <= 1);
    t.x[3] += ldexpf(1, -17);
    cr_expect(worst_of(&t, 4) > 1);
    t.x[3] = NAN;
    cr_expect(isnan(worst_of(&t, 4)) != 0); /* so that <= is false */
}

/* Biases: the sums are those of a linear layer with an input of 1 everywhere. */
static void check_bias(int rows, int width)
{
    tensor base = make(rows * width, 1);
    tensor bias = make(width, 1);
    tensor y = make(rows * width, 0);
    tensor dy = make(rows * width, 1);
    tensor dbias = make(width, 1); /* the operator adds to it */
    op->bias_weight(&lane, (uint64_t)rows, (uint32_t)width, dy.x, false, dbias.x);
    for (int i = 0; i < rows * width; i++) {
        dbias.right[i % width] += dy.right[i];
    }
    compare("dbias", &dbias, rows);
    for (int add = 0; add < 3; add++) { /* added to nothing, to another tensor, in place */
        const float *to = add == 0 ? NULL : add == 1 ? base.x : y.x;
        for (int i = 0; i < rows * width; i++) {
            double before = add == 0 ? 0 : add == 1 ? base.right[i] : y.right[i];
            y.right[i] = before + bias.right[i % width];
        }
        op->add_bias(&lane, (uint64_t)rows, (uint32_t)width, bias.x, to, y.x);
        compare("bias", &y, 2);
    }
}

Test(exec_operators, biases)
{
    check_bias(17, 32);
    check_bias(5, 101); /* a width with a rest after the vectors */
    check_bias(1, 8);
}

static void check_norm(int rows, int width, bool shifted)
{
    const double eps = (double)1e-3f;
    tensor x = make(rows * width, 1);
    tensor w = make(width, 1);
    tensor y = make(rows * width, 0);
    tensor dy = make(rows * width, 1);
    tensor dx = make(rows * width, 1); /* the operator adds to it */
    tensor dw = make(width, 1);
    tensor r = make(rows, 0);
    for (int j = 0; j < width && shifted; j++) {
        w.right[j] += 1; /* the weights are stored minus 1 */
    }
    op->rms_norm(&lane, (uint64_t)rows, (uint32_t)width, 1e-3f, shifted, x.x, w.x, y.x, r.x);
    op->rms_norm_input(&lane, (uint64_t)rows, (uint32_t)width, shifted, x.x, w.x, r.x, dy.x, dx.x,
                       dx.x);
    op->rms_norm_weight(&lane, (uint64_t)rows, (uint32_t)width, x.x, r.x, dy.x, false, dw.x);
    slow_rms_norm(rows, width, eps, x.right, w.right, y.right);
    slow_rms_norm_backward(rows, width, eps, x.right, w.right, dy.right, dx.right, dw.right);
    compare("RMSNorm", &y, width);
    compare("RMSNorm, dx", &dx, width);
    compare("RMSNorm, dw", &dw, rows);
    /* Adding to another tensor gives the same bits as adding to a copy of it. */
    tensor base = make(rows * width, 1);
    tensor copied = make(rows * width, 1);
    memcpy(copied.x, base.x, (size_t)copied.count * sizeof(float));
    op->rms_norm_input(&lane, (uint64_t)rows, (uint32_t)width, shifted, x.x, w.x, r.x, dy.x,
                       copied.x, copied.x);
    op->rms_norm_input(&lane, (uint64_t)rows, (uint32_t)width, shifted, x.x, w.x, r.x, dy.x, base.x,
                       dx.x);
    cr_expect(memcmp(dx.x, copied.x, (size_t)dx.count * sizeof(float)) == 0);
    /* In place, without adding. */
    tensor unused = make(width, 0);
    tensor fresh = make(rows * width, 0);
    fresh.x = dy.x;
    slow_rms_norm_backward(rows, width, eps, x.right, w.right, dy.right, fresh.right, unused.right);
    op->rms_norm_input(&lane, (uint64_t)rows, (uint32_t)width, shifted, x.x, w.x, r.x, dy.x, NULL,
                       dy.x);
    compare("RMSNorm, dx in place of dy", &fresh, width);
}

Test(exec_operators, norms)
{
    check_norm(17, 32, false);
    check_norm(17 * 4, 8, true); /* QK-norm: a row per head */
    check_norm(5, 101, false);   /* a width with a rest after the vectors */
    check_norm(5, 101, true);
    check_norm(1, 8, false);
}

static void check_linear(int rows, int in, int out)
{
    tensor x = make(rows * in, 1);
    tensor w = make(out * in, 1);
    tensor dy = make(rows * out, 1);
    for (int add = 0; add < 2; add++) { /* adds to the residual and to dx */
        tensor y = make(rows * out, 1);
        tensor dx = make(rows * in, 1);
        tensor dw = make(out * in, 1);
        tensor product = make(rows * out, 0);
        op->linear(&lane, (uint64_t)rows, (uint32_t)in, (uint32_t)out, x.x, w.x,
                   add != 0 ? y.x : NULL, y.x);
        op->linear_input(&lane, (uint64_t)rows, (uint32_t)in, (uint32_t)out, dy.x, w.x, add != 0,
                         dx.x);
        op->linear_weight(&lane, (uint64_t)rows, (uint32_t)in, (uint32_t)out, dy.x, x.x, false,
                          dw.x);
        if (add != 0) {
            tensor base = make(rows * out, 1);
            tensor copied = make(rows * out, 1);
            tensor beside = make(rows * out, 1);
            memcpy(copied.x, base.x, (size_t)base.count * sizeof(float));
            op->linear(&lane, (uint64_t)rows, (uint32_t)in, (uint32_t)out, x.x, w.x, copied.x,
                       copied.x);
            op->linear(&lane, (uint64_t)rows, (uint32_t)in, (uint32_t)out, x.x, w.x, base.x,
                       beside.x);
            cr_expect(memcmp(beside.x, copied.x, (size_t)base.count * sizeof(float)) == 0);
        }
        slow_linear(rows, in, out, x.right, w.right, product.right);
        for (int i = 0; i < y.count; i++) {
            y.right[i] = product.right[i] + (add != 0 ? y.right[i] : 0);
        }
        for (int i = 0; i < dx.count && add == 0; i++) {
            dx.right[i] = 0;
        }
        slow_linear_backward(rows, in, out, x.right, w.right, dy.right, dx.right, dw.right);
        compare("linear", &y, in);
        compare("linear, dx", &dx, out);
        compare("linear, dw", &dw, rows);
    }
}

Test(exec_operators, linear)
{
    check_linear(17, 32, 48);
    check_linear(3, 97, 5);
    check_linear(1, 1, 1);
    check_linear(200, 70, 33);
}

Test(exec_operators, rotation)
{
    enum { SEQUENCES = 2, SEQ_LEN = 17, HEADS = 3, DIM = 8 };
    double frequencies[DIM / 2];
    tensor cosines = make(SEQ_LEN * DIM / 2, 0);
    tensor sines = make(SEQ_LEN * DIM / 2, 0);
    tensor x = make(SEQUENCES * SEQ_LEN * HEADS * DIM, 1);
    tensor turned = make(x.count, 0);
    tensor back = make(x.count, 0);
    slow_rope_frequencies(DIM, 1e4, false, frequencies);
    for (int i = 0; i < cosines.count; i++) {
        double angle = i / (DIM / 2) * frequencies[i % (DIM / 2)];
        cosines.x[i] = (float)cos(angle);
        sines.x[i] = (float)sin(angle);
    }
    slow_rotate(SEQUENCES, SEQ_LEN, HEADS, DIM, frequencies, x.right, turned.right);
    slow_rotate_backward(SEQUENCES, SEQ_LEN, HEADS, DIM, frequencies, x.right, back.right);
    op->copy(&lane, (uint64_t)x.count, x.x, turned.x);
    op->copy(&lane, (uint64_t)x.count, x.x, back.x);
    op->rotate(&lane, SEQUENCES, SEQ_LEN, HEADS, DIM, DIM, cosines.x, sines.x, false, turned.x);
    op->rotate(&lane, SEQUENCES, SEQ_LEN, HEADS, DIM, DIM, cosines.x, sines.x, true, back.x);
    compare("RoPE", &turned, 2);
    compare("RoPE, dx", &back, 2);
}

/* Only the first values of longer heads are rotated: the values after them stay. */
Test(exec_operators, rotation_of_a_part)
{
    enum { TOKENS = 5, HEADS = 2, DIM = 10, TURNED = 4 };
    double frequencies[TURNED / 2];
    tensor cosines = make(TOKENS * TURNED / 2, 0);
    tensor sines = make(TOKENS * TURNED / 2, 0);
    tensor x = make(TOKENS * HEADS * DIM, 1);
    tensor part = make(TOKENS * HEADS * TURNED, 0);
    tensor turned = make(TOKENS * HEADS * TURNED, 0);
    slow_rope_frequencies(TURNED, 1e4, false, frequencies);
    for (int i = 0; i < cosines.count; i++) {
        double angle = i / (TURNED / 2) * frequencies[i % (TURNED / 2)];
        cosines.x[i] = (float)cos(angle);
        sines.x[i] = (float)sin(angle);
    }
    for (int i = 0; i < part.count; i++) {
        part.right[i] = x.right[i / TURNED * DIM + i % TURNED];
    }
    slow_rotate(1, TOKENS, HEADS, TURNED, frequencies, part.right, turned.right);
    for (int i = 0; i < part.count; i++) {
        x.right[i / TURNED * DIM + i % TURNED] = turned.right[i];
    }
    op->rotate(&lane, 1, TOKENS, HEADS, DIM, TURNED, cosines.x, sines.x, false, x.x);
    compare("RoPE of a part", &x, 2);
}

static void check_attention(const slow_attention_sizes *s, double size)
{
    int tokens = s->sequences * s->seq_len;
    int wide = tokens * s->heads * s->head_dim;
    int narrow = tokens * s->kv_heads * s->head_dim;
    const rpexec_attention_sizes sizes = {.sequences = (uint32_t)s->sequences,
                                          .seq_len = (uint32_t)s->seq_len,
                                          .heads = (uint32_t)s->heads,
                                          .kv_heads = (uint32_t)s->kv_heads,
                                          .head_dim = (uint32_t)s->head_dim,
                                          .scale = (float)s->scale,
                                          .cap = (float)s->cap,
                                          .window = (uint32_t)s->window};
    tensor q = make(wide, size);
    tensor k = make(narrow, size);
    tensor v = make(narrow, 1);
    tensor o = make(wide, 0);
    tensor l = make(tokens * s->heads, 0);
    tensor d_o = make(wide, 1);
    tensor dq = make(wide, 0);
    tensor dk = make(narrow, 0);
    tensor dv = make(narrow, 0);
    op->attention(&lane, &sizes, q.x, k.x, v.x, o.x, l.x);
    op->attention_backward(&lane, &sizes, q.x, k.x, v.x, o.x, l.x, d_o.x, dq.x, dk.x, dv.x);
    slow_attention(s, q.right, k.right, v.right, o.right, l.right);
    slow_attention_backward(s, q.right, k.right, v.right, d_o.right, dq.right, dk.right, dv.right);
    /* A score has the rounding error of its products, and e^score has the same error relative to
     * itself. */
    int score = s->head_dim * (int)ceil(fmax(1, size * size * size * size));
    compare("attention", &o, s->seq_len + score);
    compare("attention, logsumexp", &l, s->seq_len + score);
    /* D_i has the same error for all keys of a query, which adds up in its dq. */
    compare("attention, dq", &dq, 6 * (s->seq_len + 2 * score));
    compare("attention, dk", &dk, s->heads / s->kv_heads * s->seq_len + 2 * score);
    compare("attention, dv", &dv, s->heads / s->kv_heads * s->seq_len + score);
}

Test(exec_operators, attention_of_groups)
{
    const slow_attention_sizes tiny = {2, 17, 4, 2, 8, 0, 0, 0};
    const slow_attention_sizes short_one = {1, 2, 2, 2, 4, 0, 0, 0};
    const slow_attention_sizes capped = {2, 17, 4, 2, 8, 0.5, 1.5, 0};
    check_attention(&tiny, 1);
    check_attention(&short_one, 1);
    check_attention(&capped, 1);
}

/* More keys and queries than the 64 of a block; also sharp rows. */
Test(exec_operators, attention_over_several_blocks)
{
    const slow_attention_sizes sizes = {1, 150, 3, 1, 6, 0, 0, 0};
    const slow_attention_sizes capped = {1, 150, 3, 1, 6, 0, 2, 0};
    check_attention(&sizes, 1);
    check_attention(&sizes, 2);
    check_attention(&capped, 2);
}

/* Windows end in the first, a middle and the last block of keys, and within tiles of products: 6
 * rows and 16, 8 or single columns. */
Test(exec_operators, attention_of_windows_and_odd_heads)
{
    static const int windows[] = {2, 3, 40, 128, 129, 200};
    static const int head_dims[] = {5, 8, 20, 27, MOST_HEAD_DIM};
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        const slow_attention_sizes sizes = {1, 150 + (int)w,       2,         1, head_dims[w % 5],
                                            0, w % 2 == 0 ? 0 : 2, windows[w]};
        check_attention(&sizes, 1);
    }
    for (size_t h = 0; h < sizeof head_dims / sizeof head_dims[0]; h++) {
        const slow_attention_sizes sizes = {2, 61 + (int)h, 4, 2, head_dims[h], 0, 0, 0};
        check_attention(&sizes, 1);
    }
}

/* Allowed error of an element: no sums, but e^x (2e-7), a quotient and some products. */
#define OPERATIONS 6

/* A gate's operators, and plain loops for comparison. */
typedef struct gate_case {
    const char *name;
    int scale; /* scale of the gates */
    void (*forward)(rpexec_lane *, uint64_t, const void *, const void *, void *);
    void (*backward)(rpexec_lane *, uint64_t, const void *, const void *, const void *, void *,
                     void *);
    void (*slow)(int, const double *, const double *, double *);
    void (*slow_backward)(int, const double *, const double *, const double *, double *, double *);
    int operations; /* operations in dgate */
} gate_case;

static void check_gate(const gate_case *c)
{
    tensor gate = make(1000, c->scale);
    tensor up = make(1000, 1);
    tensor s = make(1000, 0);
    tensor ds = make(1000, 1);
    tensor dgate = make(1000, 0);
    tensor dup = make(1000, 0);
    c->forward(&lane, 1000, gate.x, up.x, s.x);
    c->backward(&lane, 1000, gate.x, up.x, ds.x, dgate.x, dup.x);
    c->slow(1000, gate.right, up.right, s.right);
    c->slow_backward(1000, gate.right, up.right, ds.right, dgate.right, dup.right);
    compare(c->name, &s, OPERATIONS);
    compare(c->name, &dgate, c->operations);
    compare(c->name, &dup, OPERATIONS);
    dup.x = ds.x; /* in place */
    c->backward(&lane, 1000, gate.x, up.x, ds.x, dgate.x, ds.x);
    compare(c->name, &dgate, c->operations);
    compare(c->name, &dup, OPERATIONS);
}

Test(exec_operators, swiglu)
{
    check_gate(&(gate_case){"SwiGLU", 3, op->swiglu, op->swiglu_backward, slow_swiglu,
                            slow_swiglu_backward, OPERATIONS});
}

Test(exec_operators, geglu)
{
    check_gate(&(gate_case){"GeGLU", 2, op->geglu, op->geglu_backward, slow_geglu,
                            slow_geglu_backward, 2 * OPERATIONS});
}

Test(exec_operators, residual)
{
    tensor a = make(100, 1);
    tensor b = make(100, 1);
    for (int i = 0; i < 100; i++) {
        b.right[i] += a.right[i];
    }
    op->add(&lane, 100, a.x, b.x, b.x);
    compare("residual", &b, 1);
}

/* The forward has no arithmetic; in the backward a table's row adds up its tokens. */
Test(exec_operators, embedding)
{
    enum { TOKENS = 40, WIDTH = 6, VOCAB = 9 };
    int32_t ids[TOKENS];
    tensor table = make(VOCAB * WIDTH, 1);
    tensor x = make(TOKENS * WIDTH, 0);
    tensor dx = make(TOKENS * WIDTH, 1);
    tensor dtable = make(VOCAB * WIDTH, 1);
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (int32_t)(rpexec_random_bits(2, 0, (uint64_t)t) % VOCAB);
    }
    op->embed(&lane, TOKENS, WIDTH, ids, table.x, x.x);
    op->embed_weight(&lane, TOKENS, WIDTH, ids, dx.x, false, dtable.x);
    slow_embed(TOKENS, WIDTH, ids, table.right, x.right);
    slow_embed_backward(TOKENS, WIDTH, ids, dx.right, dtable.right);
    for (int i = 0; i < x.count; i++) {
        cr_expect(eq(dbl, (double)x.x[i], x.right[i]));
    }
    compare("embedding, dtable", &dtable, TOKENS);
}

/* Every third label is ignored. Logits are up to some tens, so that e^z by itself would lose
 * precision or overflow. */
Test(exec_operators, cross_entropy)
{
    enum { ROWS = 30, VOCAB = 97 };
    for (double size = 1; size <= 100; size *= 10) {
        int32_t labels[ROWS];
        double loss = 0.5; /* the operator adds to it */
        tensor z = make(ROWS * VOCAB, size);
        tensor dz = make(ROWS * VOCAB, 0);
        for (int t = 0; t < ROWS; t++) {
            bool ignored = t % 3 == 1;
            labels[t] = ignored ? SLOW_IGNORED : (int32_t)(17 * t % VOCAB);
        }
        double right = 0.5 + slow_cross_entropy(ROWS, VOCAB, labels, z.right);
        slow_cross_entropy_backward(ROWS, VOCAB, labels, 0.0625, z.right, dz.right);
        op->cross_entropy(&lane, ROWS, VOCAB, labels, 0, 0.0625f, z.x, &loss);
        dz.x = z.x;
        /* z - max has a rounding error of u |z|, and e^ of it has the same error relative to
         * itself. */
        compare("cross-entropy, dz", &dz, (int)fmax(VOCAB, size * size));
        double allowed = FACTOR * ldexp(1, -24) * fmax(right, ROWS * size);
        cr_expect(fabs(loss - right) <= allowed, "loss %.9g, %.9g is right", loss, right);
        for (int i = VOCAB; i < 2 * VOCAB; i++) {
            cr_expect(eq(dbl, (double)z.x[i], 0.0)); /* exactly */
        }
    }
}

/* The loss of capped logits, and the chain rule through the cap. */
Test(exec_operators, cross_entropy_of_capped_logits)
{
    enum { ROWS = 20, VOCAB = 97 };
    const double cap = 3;
    int32_t labels[ROWS];
    double loss = 0;
    tensor z = make(ROWS * VOCAB, 4);
    tensor capped = make(ROWS * VOCAB, 0);
    tensor dz = make(ROWS * VOCAB, 0);
    for (int t = 0; t < ROWS; t++) {
        labels[t] = t % 3 == 1 ? SLOW_IGNORED : (int32_t)(17 * t % VOCAB);
    }
    for (int i = 0; i < z.count; i++) {
        capped.right[i] = cap * tanh(z.right[i] / cap);
    }
    double right = slow_cross_entropy(ROWS, VOCAB, labels, capped.right);
    slow_cross_entropy_backward(ROWS, VOCAB, labels, 0.0625, capped.right, dz.right);
    for (int i = 0; i < z.count; i++) {
        double t = capped.right[i] / cap;
        dz.right[i] *= 1 - t * t;
    }
    op->cross_entropy(&lane, ROWS, VOCAB, labels, (float)cap, 0.0625f, z.x, &loss);
    dz.x = z.x;
    compare("capped cross-entropy, dz", &dz, VOCAB);
    cr_expect(fabs(loss - right) <= 1e-6 * right, "loss %.9g, %.9g is right", loss, right);
}
