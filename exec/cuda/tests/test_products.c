/* The three products of a linear layer. */
#include "exec/cuda/tests/families.h"

#include <math.h>

typedef struct sizes {
    uint64_t rows;
    uint32_t in;
    uint32_t out;
    int add; /* 0: adds to nothing, 1: to the result's old values (linear_weight: in fp32), 2: to
                another tensor */
} sizes;

/* x [rows, in], weight [out, in], y [rows, out], a tensor to which y may be added. */
static void linear(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    op->linear(lane, s->rows, s->in, s->out, p[0], p[1], s->add == 0 ? NULL : p[1 + s->add], p[2]);
}

static void linear_input(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                         void **p)
{
    const sizes *s = context;
    op->linear_input(lane, s->rows, s->in, s->out, p[2], p[1], s->add != 0, p[0]);
}

static void linear_weight(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                          void **p)
{
    const sizes *s = context;
    op->linear_weight(lane, s->rows, s->in, s->out, p[2], p[0], s->add, p[1]);
}

static int test_one(rp_dtype dtype, const char *name, trial_operator operator, sizes s,
                    uint32_t written, double length, trial_products by)
{
    trial t = trial_begin(name, dtype);
    t.keep_aligned = by != TRIAL_OWN;
    trial_values(&t, s.rows * s.in, 1);
    bool wide = written == 1 && s.add;
    trial_normal(&t, wide ? RP_DTYPE_F32 : dtype, (uint64_t)s.out * s.in, 1);
    trial_values(&t, s.rows * s.out, 1);
    trial_values(&t, s.add == 2 ? s.rows * s.out : 0, 1);
    /* Sums in fp16 grow to about sqrt(length) and are rounded at most length times. */
    bool in_half = by == TRIAL_CUBLAS_HALF && dtype == RP_DTYPE_F16 && !wide;
    trial_allow(&t, written, length, in_half ? ldexp(1, -11) * length : 0);
    return !trial_run(&t, operator, & s);
}

static int test_sizes(rp_dtype dtype, uint64_t rows, uint32_t in, uint32_t out, trial_products by)
{
    int failed = 0;
    for (int add = 0; add < 3; add++) {
        sizes s = {rows, in, out, add};
        failed += test_one(dtype, "linear", linear, s, 2, in, by);
        if (add < 2) {
            failed += test_one(dtype, "linear_input", linear_input, s, 0, out, by);
            failed += test_one(dtype, "linear_weight", linear_weight, s, 1, (double)rows, by);
        }
    }
    return failed;
}

int test_products(rp_dtype dtype)
{
    int failed = 0;
    for (trial_products by = TRIAL_OWN; by < TRIAL_PRODUCTS; by++) {
        if (!trial_use(by)) {
            return failed + 1;
        }
        failed += test_sizes(dtype, 1, 1, 1, by) + test_sizes(dtype, 5, 37, 19, by) +
                  test_sizes(dtype, 131, 40, 136, by) + test_sizes(dtype, 17, 104, 24, by);
        if (trial_is_fast()) {
            failed +=
                test_sizes(dtype, 257, 1024, 1536, by) + test_sizes(dtype, 2048, 1024, 3072, by);
        }
    }
    (void)trial_use(TRIAL_OWN);
    return failed;
}
