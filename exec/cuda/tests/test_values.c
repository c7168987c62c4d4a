/* Norms, rotation, operators on single values, Adam, squares. */
#include "exec/cuda/tests/families.h"

#include <math.h>
#include <stdio.h>

typedef struct sizes {
    uint64_t rows;
    uint32_t width;
    int add; /* 0: adds to nothing, 1: to the result's old values, 2: to another tensor */
    bool wide;
    bool shifted;
} sizes;

/* Tensors: x, weight, y, r. */
static void norm(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    op->rms_norm(lane, s->rows, s->width, 1e-3f, s->shifted, p[0], p[1], p[2], p[3]);
}

/* x, weight, r, dy, dx, a tensor to which dx may be added. */
static void norm_input(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    op->rms_norm_input(lane, s->rows, s->width, s->shifted, p[0], p[1], p[2], p[3],
                       s->add == 0 ? NULL : p[3 + s->add], p[4]);
}

static void norm_in_place(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                          void **p)
{
    const sizes *s = context;
    op->rms_norm_input(lane, s->rows, s->width, s->shifted, p[0], p[1], p[2], p[3], NULL, p[3]);
}

/* x, r, dy, dweight. */
static void norm_weight(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                        void **p)
{
    const sizes *s = context;
    op->rms_norm_weight(lane, s->rows, s->width, p[0], p[1], p[2], s->wide, p[3]);
}

/* dy, dbias. */
static void bias_weight(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                        void **p)
{
    const sizes *s = context;
    op->bias_weight(lane, s->rows, s->width, p[0], s->wide, p[1]);
}

/* bias, y, a tensor to which y may be added. */
static void add_bias(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    op->add_bias(lane, s->rows, s->width, p[0], s->add == 0 ? NULL : p[s->add], p[1]);
}

static int test_bias(rp_dtype dtype, uint64_t rows, uint32_t width)
{
    int failed = 0;
    sizes s = {.rows = rows, .width = width};
    for (s.add = 0; s.add < 3; s.add++) { /* adds to nothing, to y itself, to another tensor */
        trial t = trial_begin("add_bias", dtype);
        trial_values(&t, width, 1);
        trial_allow(&t, trial_values(&t, rows * width, 1), 1, 0);
        trial_values(&t, rows * width, 1);
        failed += !trial_run(&t, add_bias, &s);
    }
    for (int wide = 0; wide < 2; wide++) {
        s.wide = wide != 0;
        trial t = trial_begin("bias_weight", dtype);
        trial_values(&t, rows * width, 1);
        trial_allow(&t, trial_normal(&t, s.wide ? RP_DTYPE_F32 : dtype, width, 1), (double)rows, 0);
        failed += !trial_run(&t, bias_weight, &s);
    }
    return failed;
}

static int test_norm_weight(rp_dtype dtype, uint64_t rows, uint32_t width)
{
    int failed = 0;
    for (int wide = 0; wide < 2; wide++) {
        sizes s = {.rows = rows, .width = width, .wide = wide != 0};
        trial t = trial_begin("rms_norm_weight", dtype);
        trial_values(&t, rows * width, 1);
        trial_normal(&t, RP_DTYPE_F32, rows, 1);
        trial_values(&t, rows * width, 1);
        uint32_t sum = trial_normal(&t, s.wide ? RP_DTYPE_F32 : dtype, width, 1);
        trial_allow(&t, sum, (double)rows, 0);
        failed += !trial_run(&t, norm_weight, &s);
    }
    return failed;
}

static int test_norm(rp_dtype dtype, uint64_t rows, uint32_t width)
{
    int failed = 0;
    sizes s = {.rows = rows, .width = width, .shifted = rows % 2 == 0};
    trial t = trial_begin("rms_norm", dtype);
    trial_values(&t, rows * width, 1);
    trial_values(&t, width, 1);
    trial_allow(&t, trial_values(&t, rows * width, 1), width, 0);
    trial_allow(&t, trial_normal(&t, RP_DTYPE_F32, rows, 1), width, 0);
    failed += !trial_run(&t, norm, &s);
    for (s.add = 0; s.add < 3; s.add++) { /* adds to nothing, to dx itself, to another tensor */
        t = trial_begin("rms_norm_input", dtype);
        trial_values(&t, rows * width, 1);
        trial_values(&t, width, 1);
        trial_normal(&t, RP_DTYPE_F32, rows, 1);
        trial_values(&t, rows * width, 1);
        trial_allow(&t, trial_values(&t, rows * width, 1), width, 0);
        trial_values(&t, rows * width, 1);
        failed += !trial_run(&t, norm_input, &s);
    }
    t = trial_begin("rms_norm_input in place of dy", dtype);
    trial_values(&t, rows * width, 1);
    trial_values(&t, width, 1);
    trial_normal(&t, RP_DTYPE_F32, rows, 1);
    trial_allow(&t, trial_values(&t, rows * width, 1), width, 0);
    failed += !trial_run(&t, norm_in_place, &s);
    return failed + test_norm_weight(dtype, rows, width) + test_bias(dtype, rows, width);
}

typedef struct turn {
    uint32_t sequences, seq_len, heads, head_dim, turned;
    bool inverse;
} turn;

static void rotate(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const turn *s = context;
    op->rotate(lane, s->sequences, s->seq_len, s->heads, s->head_dim, s->turned, p[0], p[1],
               s->inverse, p[2]);
}

static int test_rotate(rp_dtype dtype, turn s)
{
    uint64_t angles = (uint64_t)s.seq_len * s.turned / 2;
    trial t = trial_begin("rotate", dtype);
    trial_normal(&t, RP_DTYPE_F32, angles, 1);
    trial_normal(&t, RP_DTYPE_F32, angles, 1);
    uint64_t count = (uint64_t)s.sequences * s.seq_len * s.heads * s.head_dim;
    trial_allow(&t, trial_values(&t, count, 1), 2, 0);
    return !trial_run(&t, rotate, &s);
}

/* gate, up, result, of `count` values each. */
static void swiglu(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    op->swiglu(lane, *(const uint64_t *)context, p[0], p[1], p[2]);
}

static void geglu(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    op->geglu(lane, *(const uint64_t *)context, p[0], p[1], p[2]);
}

static void geglu_backward(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                           void **p)
{
    op->geglu_backward(lane, *(const uint64_t *)context, p[0], p[1], p[2], p[3], p[4]);
}

static void geglu_over_ds(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                          void **p)
{
    op->geglu_backward(lane, *(const uint64_t *)context, p[0], p[1], p[2], p[3], p[2]);
}

static void swiglu_backward(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                            void **p)
{
    op->swiglu_backward(lane, *(const uint64_t *)context, p[0], p[1], p[2], p[3], p[4]);
}

static void swiglu_over_ds(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                           void **p)
{
    op->swiglu_backward(lane, *(const uint64_t *)context, p[0], p[1], p[2], p[3], p[2]);
}

static void swiglu_into_ds(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                           void **p)
{
    op->swiglu_backward(lane, *(const uint64_t *)context, p[0], p[1], p[2], p[2], p[3]);
}

static void add(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    op->add(lane, *(const uint64_t *)context, p[0], p[1], p[2]);
}

static void add_in_place(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                         void **p)
{
    op->add(lane, *(const uint64_t *)context, p[0], p[1], p[1]);
}

static void scale(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    op->scale(lane, *(const uint64_t *)context, 0.37f, p[0]);
}

static void zero_and_copy(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                          void **p)
{
    op->zero(lane, *(const uint64_t *)context, p[0]);
    op->copy(lane, *(const uint64_t *)context, p[1], p[2]);
}

/* gradients, sums. */
static void add_sums(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    op->add_sums(lane, *(const uint64_t *)context, p[1], p[0]);
}

static int test_sums(rp_dtype dtype, uint64_t count)
{
    trial t = trial_begin("add_sums", dtype);
    trial_values(&t, count, 2); /* a single addition and rounding: no bit may differ */
    trial_normal(&t, RP_DTYPE_F32, count, 2);
    return !trial_run(&t, add_sums, &count);
}

static int test_count(rp_dtype dtype, uint64_t count)
{
    static const struct {
        const char *name;
        trial_operator operator;
        uint32_t tensors;
        uint32_t written; /* bits of the numbers of written tensors */
    } list[] = {
        {"swiglu", swiglu, 3, 4},
        {"swiglu_backward", swiglu_backward, 5, 8 | 16},
        {"swiglu_backward, dup is ds", swiglu_over_ds, 4, 4 | 8},
        {"swiglu_backward, dgate is ds", swiglu_into_ds, 4, 4 | 8},
        {"geglu", geglu, 3, 4},
        {"geglu_backward", geglu_backward, 5, 8 | 16},
        {"geglu_backward, dup is ds", geglu_over_ds, 4, 4 | 8},
        {"add", add, 3, 4},
        {"add in place", add_in_place, 2, 2},
        {"scale", scale, 1, 1},
        {"zero, copy", zero_and_copy, 3, 0},
    };
    int failed = test_sums(dtype, count);
    for (uint32_t i = 0; i < sizeof list / sizeof *list; i++) {
        trial t = trial_begin(list[i].name, dtype);
        for (uint32_t j = 0; j < list[i].tensors; j++) {
            trial_values(&t, count, 2);
            if (list[i].written >> j & 1) {
                trial_allow(&t, j, 4, 0);
            }
        }
        failed += !trial_run(&t, list[i].operator, & count);
    }
    return failed;
}

typedef struct update {
    uint64_t count;
    rpexec_adam adam;
    bool weights;
    float scale; /* fp16 only: losses of other types are not scaled */
} update;

/* masters, gradients, m, v, weights. */
static void adam(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const update *s = context;
    const rpexec_update one = {.master = p[0],
                               .gradients = p[1],
                               .m = p[2],
                               .v = p[3],
                               .weights = s->weights ? p[4] : NULL,
                               .scale = s->scale,
                               .count = s->count};
    const rpexec_adam_factors factors = rpexec_adam_factors_of(&s->adam, 3);
    op->adam(lane, &factors, &one);
}

static int test_adam(rp_dtype dtype, uint64_t count, bool decoupled)
{
    update s = {.count = count,
                .adam = rpexec_adam_defaults(),
                .weights = dtype != RP_DTYPE_F32,
                .scale = dtype == RP_DTYPE_F16 ? 64 : 1};
    s.adam.weight_decay = 0.1;
    s.adam.decoupled = decoupled;
    s.adam.clip = 0.75;
    trial t = trial_begin("adam", dtype);
    trial_allow(&t, trial_normal(&t, RP_DTYPE_F32, count, 1), 4, 0);
    trial_values(&t, count, 1);
    trial_allow(&t, trial_normal(&t, RP_DTYPE_F32, count, 1), 4, 0);
    uint32_t v = trial_normal(&t, RP_DTYPE_F32, count, 1);
    trial_allow(&t, v, 4, 0);
    for (uint64_t i = 0; i < count; i++) { /* second moments, which are not negative */
        ((float *)t.tensors[v].start)[i] = fabsf(((float *)t.tensors[v].start)[i]);
        ((float *)t.tensors[v].host)[i] = fabsf(((float *)t.tensors[v].host)[i]);
    }
    trial_allow(&t, trial_values(&t, count, 1), 4, 0);
    return !trial_run(&t, adam, &s);
}

/* values. */
static void squares(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    rpexec_squares sum = {0};
    op->squares(lane, *(const uint64_t *)context, p[0], &sum);
}

/* Compares `squares` separately, since its result is not a tensor: the sum must equal the host's
 * bit for bit, and values that are not finite must be seen. */
static int test_squares(rp_dtype dtype, uint64_t count, uint64_t where, uint16_t high)
{
    trial t = trial_begin("squares", dtype);
    uint32_t x = trial_values(&t, count, 1);
    size_t bytes = rp_dtype_bytes(dtype);
    int failed = !trial_run(&t, squares, &count);
    void *device = trial_device_memory(t.tensors[x].bytes);
    const rpexec_operators *op = trial_device_table(dtype);
    for (int bad = 0; bad < 2; bad++) {
        rpexec_squares right = {0};
        rpexec_squares got = {0};
        if (bad) { /* for fp32 the upper half of a word */
            unsigned char *at = (unsigned char *)t.tensors[x].start + where * bytes + bytes - 2;
            at[0] = (unsigned char)high;
            at[1] = (unsigned char)(high >> 8);
        }
        trial_host_table(dtype)->squares(trial_host_lane(dtype), count, t.tensors[x].start, &right);
        (void)trial_to_device(device, t.tensors[x].start, t.tensors[x].bytes);
        op->squares(trial_device_lane(dtype), count, device, &got);
        double norm = rpexec_squares_root(&got);
        bool same = got.not_finite == right.not_finite && got.not_finite == (bad ? 1 : 0) &&
                    (bad || norm == rpexec_squares_root(&right)) && (bad || norm > 0);
        if (!same) {
            printf("squares, %s: wrong, value %llu of %llu\n", rp_dtype_text(dtype),
                   (unsigned long long)where, (unsigned long long)count);
            failed++;
        }
    }
    trial_device_memory_back(device);
    return failed;
}

int test_values(rp_dtype dtype)
{
    bool fast = trial_is_fast();
    uint16_t infinite = dtype == RP_DTYPE_F16 ? 0x7c00 : 0x7f80;
    int failed = test_norm(dtype, 1, 1) + test_norm(dtype, 9, 37) + test_norm(dtype, 9, 64) +
                 test_norm(dtype, 70, 128) + test_norm(dtype, 27, 1030) +
                 test_norm(dtype, 3, 2304) +
                 test_norm_weight(dtype, 1100, 37); /* 18 parts: some warps have two */
    failed += test_rotate(dtype, (turn){2, 5, 3, 64, 64, false}) +
              test_rotate(dtype, (turn){1, 1, 1, 2, 2, true}) +
              test_rotate(dtype, (turn){3, 7, 2, 36, 36, true}) +
              test_rotate(dtype, (turn){2, 5, 2, 64, 32, false}) +
              test_rotate(dtype, (turn){1, 6, 3, 10, 6, true});
    failed += test_count(dtype, 1) + test_count(dtype, 4099) + test_count(dtype, 256);
    failed += test_adam(dtype, 1001, false) + test_adam(dtype, 8, true);
    failed += test_squares(dtype, 1003, 1002, infinite) +
              test_squares(dtype, 512, 0, (uint16_t)(infinite | 0x8001u));
    if (fast) { /* sizes beyond a single wave of blocks on 132 multiprocessors */
        failed += test_norm(dtype, 1100, 1280) + test_norm(dtype, 9000, 128) +
                  test_rotate(dtype, (turn){3, 1024, 8, 128, 128, false});
        failed += test_count(dtype, 2300003) + test_adam(dtype, 1200001, true) +
                  test_squares(dtype, 1 << 22, 3456789, infinite);
    }
    return failed;
}
