/* The embedding, its gradient and the loss: repeated ids, labels that are ignored. */
#include "exec/cuda/tests/families.h"
#include "exec/operators/random.h"

#include <math.h>
#include <string.h>

enum { PARTS = 3 };

typedef struct sizes {
    uint64_t tokens;
    uint32_t width;
    uint32_t vocab;
    float cap;
} sizes;

/* Sizes of a part of a vocabulary of `whole` tokens, which begins at token `first`. */
typedef struct part_sizes {
    uint64_t rows;
    uint32_t vocab;
    uint32_t first;
    uint32_t whole;
    float cap;
} part_sizes;

/* ids, table, x, dx, dtable, dtable in fp32. */
static void embed(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    op->embed(lane, s->tokens, s->width, p[0], p[1], p[2]);
    op->embed_weight(lane, s->tokens, s->width, p[0], p[3], false, p[4]);
    op->embed_weight(lane, s->tokens, s->width, p[0], p[3], true, p[5]);
}

/* Adds a tensor of numbers below `bound`, a third of them 1; with `others` a quarter are
 * `other`. */
static uint32_t numbers(trial *t, uint64_t count, uint32_t bound, bool others, int32_t other)
{
    int32_t *ids;
    if (rp_arena_alloc(trial_arena, count, sizeof *ids, &ids) != RP_OK) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = rpexec_random_bits(5, bound, i);
        ids[i] = bits % 3 == 0 ? 1 % (int32_t)bound : (int32_t)(bits / 3 % bound);
        ids[i] = others && bits % 4 == 1 ? other : ids[i];
    }
    return trial_raw(t, count * sizeof *ids, ids);
}

/* Adds a tensor of two ids that share a bin of tokens: 1, and from `late` on also 17. */
static uint32_t late_numbers(trial *t, uint64_t count, uint64_t late)
{
    int32_t *ids;
    if (rp_arena_alloc(trial_arena, count, sizeof *ids, &ids) != RP_OK) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        ids[i] = i >= late && i % 2 == 0 ? 17 : 1;
    }
    return trial_raw(t, count * sizeof *ids, ids);
}

/* With `others` some ids belong to other ranks. If `late` is not 0 there are only two ids, the
 * second from that token on. */
static int test_embedding(rp_dtype dtype, sizes s, bool others, uint64_t late)
{
    trial t = trial_begin("embed", dtype);
    if (late != 0) {
        late_numbers(&t, s.tokens, late);
    } else {
        numbers(&t, s.tokens, s.vocab, others, -1);
    }
    trial_values(&t, (uint64_t)s.vocab * s.width, 1);
    trial_values(&t, s.tokens * s.width, 1); /* a copy: no bit may differ */
    trial_values(&t, s.tokens * s.width, 1);
    trial_values(&t, (uint64_t)s.vocab * s.width, 1); /* the host adds the same sums in the same
                                                         order */
    trial_normal(&t, RP_DTYPE_F32, (uint64_t)s.vocab * s.width, 1);
    return !trial_run(&t, embed, &s);
}

/* labels, logits, loss. */
static void cross_entropy(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                          void **p)
{
    const sizes *s = context;
    op->cross_entropy(lane, s->tokens, s->vocab, p[0], s->cap, 0.125f, p[1], p[2]);
}

/* Lowers every fifth row's logits by 200: e^-200 is 0 in fp32, and values beyond a row's end must
 * not pass for logits of 0. */
static void lower_rows(trial_tensor *z, uint64_t rows, uint32_t vocab)
{
    for (uint64_t i = 0; i < rows * vocab; i++) {
        void *at = rpexec_element(z->dtype, z->start, i);
        float value;
        if (i / vocab % 5 != 0) {
            continue;
        }
        if (z->dtype == RP_DTYPE_F32) {
            memcpy(&value, at, sizeof value);
            value -= 200;
            memcpy(at, &value, sizeof value);
        } else {
            rpexec_widen(z->dtype, 1, at, &value);
            value -= 200;
            rpexec_narrow(z->dtype, 1, &value, at);
        }
    }
    memcpy(z->host, z->start, z->bytes);
}

static int test_loss(rp_dtype dtype, sizes s)
{
    const double before = 2.5;
    trial t = trial_begin("cross_entropy", dtype);
    numbers(&t, s.tokens, s.vocab, true, RPEXEC_IGNORED);
    /* One of two probabilities may be nearly 1; host and GPU both round it by 2^-24 before they
     * subtract 1. */
    double loose = s.vocab == 2 ? ldexp(0.125, -23) : 0;
    uint32_t z = trial_values(&t, s.tokens * s.vocab, 3);
    lower_rows(&t.tensors[z], s.tokens, s.vocab);
    trial_allow(&t, z, 64, loose);
    /* Exponentials of host and GPU have errors of a few units: 2^-20 of the whole. */
    t.tensors[trial_raw(&t, sizeof before, &before)].relative = 1.0 / (1 << 20);
    return !trial_run(&t, cross_entropy, &s);
}

/* labels, logits, other parts' statistics with room for this part's, loss. */
static void cross_entropy_part(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                               void **p)
{
    const part_sizes *s = context;
    float *statistics = p[2];
    uint64_t stride = 2 * s->rows + 3;
    op->row_statistics(lane, s->rows, s->vocab, s->cap, p[1], statistics + stride);
    op->cross_entropy_part(lane, s->rows, s->vocab, s->first, p[0], PARTS, statistics, stride,
                           s->cap, 0.125f, p[1], p[3]);
}

/* The second of three parts; the others have logits from 2 on and sums from 1 on, and every third
 * row of the last part has much larger logits. */
static int test_loss_of_part(rp_dtype dtype, part_sizes s)
{
    const double before = 2.5;
    uint64_t stride = 2 * s.rows + 3;
    trial t = trial_begin("cross_entropy_part", dtype);
    numbers(&t, s.rows, s.whole, true, RPEXEC_IGNORED);
    uint32_t z = trial_values(&t, s.rows * s.vocab, 3);
    lower_rows(&t.tensors[z], s.rows, s.vocab);
    trial_allow(&t, z, 64, 0);
    uint32_t others = trial_normal(&t, RP_DTYPE_F32, PARTS * stride, 1);
    float *start = t.tensors[others].start;
    for (uint64_t i = 0; i < PARTS * stride; i++) {
        bool large = i >= 2 * stride && i % stride % 6 == 0; /* e^200 is infinite in fp32 */
        start[i] = (large ? 200.0f : i % stride % 2 == 0 ? 2.0f : 1.0f) + start[i] * start[i];
    }
    memcpy(t.tensors[others].host, start, t.tensors[others].bytes);
    trial_allow(&t, others, 64, 0);
    t.tensors[trial_raw(&t, sizeof before, &before)].relative = 1.0 / (1 << 20);
    return !trial_run(&t, cross_entropy_part, &s);
}

int test_tokens(rp_dtype dtype)
{
    int failed =
        test_embedding(dtype, (sizes){1, 1, 1, 0}, false, 0) +
        test_embedding(dtype, (sizes){300, 37, 11, 0}, false, 0) +
        test_embedding(dtype, (sizes){70, 64, 50, 0}, false, 0) +
        test_embedding(dtype, (sizes){300, 37, 11, 0}, true, 0) +
        test_embedding(dtype, (sizes){70, 64, 50, 0}, true, 0) +
        test_embedding(dtype, (sizes){900, 5, 3, 0}, true, 0) + /* more than 256 times the same
                                                                   id */
        test_embedding(dtype, (sizes){700, 5, 18, 0}, false, 600) +
        test_loss_of_part(dtype, (part_sizes){1, 2, 0, 3, 0}) +
        test_loss_of_part(dtype, (part_sizes){27, 601, 300, 1500, 0}) +
        test_loss_of_part(dtype, (part_sizes){9, 4096, 5, 4300, 0}) +
        test_loss(dtype, (sizes){1, 0, 2, 0}) + test_loss(dtype, (sizes){27, 0, 601, 0}) +
        test_loss(dtype, (sizes){7, 0, 4096, 0}) + test_loss(dtype, (sizes){4, 0, 9000, 0}) +
        test_loss(dtype, (sizes){11, 0, 601, 2.5f}) + test_loss(dtype, (sizes){3, 0, 4096, 5}) +
        test_loss_of_part(dtype, (part_sizes){27, 601, 300, 1500, 2.5f});
    if (trial_is_fast()) {
        failed += test_embedding(dtype, (sizes){4096, 1024, 2000, 0}, false, 0) +
                  test_loss(dtype, (sizes){16, 0, 151936, 0}) +
                  test_loss(dtype, (sizes){1100, 0, 2056, 0});
    }
    return failed;
}
