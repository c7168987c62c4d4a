/* Attention: a single token, tails of the tiles, groups of heads, windows, scales and caps. */
#include "exec/cuda/tests/families.h"

#include <math.h>

/* q, k, v, o, logsumexp. */
static void forward(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    op->attention(lane, context, p[0], p[1], p[2], p[3], p[4]);
}

/* q, k, v, o, logsumexp, do, dq, dk, dv. */
static void backward(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    op->attention_backward(lane, context, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]);
}

static bool half_by_tensor_cores(rp_dtype dtype, const rpexec_attention_sizes *s)
{
    return dtype != RP_DTYPE_F32 && s->cap == 0 && (s->head_dim == 64 || s->head_dim == 128);
}

int test_attention_of(rp_dtype dtype, rpexec_attention_sizes s, bool rounded, double logarithms)
{
    uint64_t tokens = (uint64_t)s.sequences * s.seq_len;
    uint64_t queries = tokens * s.heads * s.head_dim;
    uint64_t keys = tokens * s.kv_heads * s.head_dim;
    /* Tensor cores take weights rounded to 16 bits: a weighted mean of values, or a sum over the
     * queries that see a key, has an error of the type's unit times the weights' norm, which is
     * about 1, and for the first keys a few times as large, for each query head. */
    double unit = rounded ? (dtype == RP_DTYPE_F16 ? ldexp(1, -11) : ldexp(1, -8)) : 0;
    double group = sqrt((double)s.heads / s.kv_heads);
    /* Scores, and gradients of weights, are sums over the head of numbers of size 1; weights have
     * the error of the scores, and so have sums with these weights, even if their terms cancel. */
    double scores = 8 * ldexp(1, -24) * s.head_dim;
    trial t = trial_begin("attention", dtype);
    t.keep_aligned = rounded;
    trial_values(&t, queries, 1);
    trial_values(&t, keys, 1);
    trial_values(&t, keys, 1);
    trial_allow(&t, trial_values(&t, queries, 1), s.seq_len + s.head_dim, 2 * unit + scores);
    trial_allow(&t, trial_normal(&t, RP_DTYPE_F32, tokens * s.heads, 1), s.head_dim, logarithms);
    int failed = !trial_run(&t, forward, &s);
    trial b = trial_begin("attention_backward", dtype);
    b.keep_aligned = rounded;
    for (uint32_t i = 0; i < t.count; i++) { /* results of the host's forward */
        t.tensors[i].start = t.tensors[i].host;
        t.tensors[i].length = t.tensors[i].loose = 0;
        b.tensors[b.count++] = t.tensors[i];
    }
    trial_values(&b, queries, 1);
    trial_allow(&b, trial_values(&b, queries, 1), s.seq_len + s.head_dim, 4 * unit + scores);
    trial_allow(&b, trial_values(&b, keys, 1), s.seq_len + s.head_dim, group * (6 * unit + scores));
    trial_allow(&b, trial_values(&b, keys, 1), s.seq_len + s.head_dim, group * (6 * unit + scores));
    return failed + !trial_run(&b, backward, &s);
}

static int test_one(rp_dtype dtype, rpexec_attention_sizes s)
{
    return test_attention_of(dtype, s, half_by_tensor_cores(dtype, &s), 0);
}

/* sinks, o, logsumexp; backward: sinks, o, logsumexp, do, dsinks. */
static void join_sinks(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const rpexec_attention_sizes *s = context;
    op->join_sinks(lane, s->seq_len, s->heads, s->head_dim, p[0], p[1], p[2]);
}

static void sinks_weight(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                         void **p)
{
    const rpexec_attention_sizes *s = context;
    op->sinks_weight(lane, s->seq_len, s->heads, s->head_dim, p[0], p[1], p[2], p[3],
                     s->window != 0, p[4]);
}

/* `window` of the sizes: gradients are fp32 sums. */
static int test_sinks(rp_dtype dtype, rpexec_attention_sizes s)
{
    uint64_t rows = (uint64_t)s.seq_len * s.heads;
    trial t = trial_begin("join_sinks", dtype);
    trial_values(&t, s.heads, 1);
    trial_allow(&t, trial_values(&t, rows * s.head_dim, 1), 4, 0);
    trial_allow(&t, trial_normal(&t, RP_DTYPE_F32, rows, 1), 4, 0);
    int failed = !trial_run(&t, join_sinks, &s);
    t = trial_begin("sinks_weight", dtype);
    trial_values(&t, s.heads, 1);
    trial_values(&t, rows * s.head_dim, 1);
    trial_normal(&t, RP_DTYPE_F32, rows, 1);
    trial_values(&t, rows * s.head_dim, 1);
    trial_allow(&t, trial_normal(&t, s.window != 0 ? RP_DTYPE_F32 : dtype, s.heads, 1),
                (double)s.seq_len * s.head_dim, 0);
    return failed + !trial_run(&t, sinks_weight, &s);
}

int test_attention(rp_dtype dtype)
{
    int failed = 0;
    failed += test_sinks(dtype, (rpexec_attention_sizes){1, 1, 1, 1, 8, 0, 0, 0});
    failed += test_sinks(dtype, (rpexec_attention_sizes){1, 67, 6, 1, 37, 1, 0, 0});
    failed += test_sinks(dtype, (rpexec_attention_sizes){1, 200, 5, 1, 64, 0, 0, 0});
    bool tiles = trial_is_fast() || dtype != RP_DTYPE_F32; /* shapes with several tiles of 64
                                                              queries and 64 keys */
    for (uint32_t head_dim = 64; head_dim <= 128; head_dim += 64) {
        failed += test_one(dtype, (rpexec_attention_sizes){1, 1, 1, 1, head_dim, 0, 0, 0});
        failed += test_one(dtype, (rpexec_attention_sizes){2, 37, 2, 1, head_dim, 0, 0, 0});
        failed +=
            tiles ? test_one(dtype, (rpexec_attention_sizes){1, 145, 1, 1, head_dim, 79, 0, 0}) : 0;
    }
    failed += tiles ? test_one(dtype, (rpexec_attention_sizes){1, 130, 2, 1, 64, 0, 0, 0}) : 0;
    failed += tiles ? test_one(dtype, (rpexec_attention_sizes){1, 64, 1, 1, 64, 1, 0, 0}) : 0;
    failed += tiles ? test_one(dtype, (rpexec_attention_sizes){1, 66, 1, 1, 64, 2, 0, 0}) : 0;
    failed +=
        tiles ? test_one(dtype, (rpexec_attention_sizes){1, 97, 2, 1, 64, 41, 0.11f, 1.5f}) : 0;
    failed += test_one(dtype, (rpexec_attention_sizes){1, 35, 2, 1, 128, 0, 0, 2});
    failed += test_one(dtype, (rpexec_attention_sizes){1, 70, 2, 1, 64, 33, 0.07f, 0});
    failed += test_one(dtype, (rpexec_attention_sizes){2, 21, 4, 2, 8, 7, 0.25f, 0.75f});
    failed += test_one(dtype, (rpexec_attention_sizes){2, 21, 4, 2, 8, 0, 0, 0});
    failed += test_one(dtype, (rpexec_attention_sizes){1, 19, 3, 1, 37, 5, 0, 0});
    failed += test_one(dtype, (rpexec_attention_sizes){1, 5, 2, 1, 200, 0, 0, 0});
    if (trial_is_fast()) {
        failed += test_one(dtype, (rpexec_attention_sizes){2, 1024, 8, 2, 128, 0, 0, 0});
        failed += test_one(dtype, (rpexec_attention_sizes){1, 1337, 4, 1, 64, 128, 0, 0});
        failed += test_one(dtype, (rpexec_attention_sizes){3, 257, 16, 16, 128, 64, 0, 0});
    }
    return failed;
}
