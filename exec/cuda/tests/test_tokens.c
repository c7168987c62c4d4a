/* The embedding, its gradient and the loss: repeated ids, labels that are ignored. */
#include "exec/cuda/tests/families.h"
#include "exec/random.h"

typedef struct sizes {
    uint64_t tokens;
    uint32_t width;
    uint32_t vocab;
} sizes;

/* ids, table, x, dx, dtable. */
static void embed(const void *context, rpexec_lane *lane, const rpexec_operators *op, void **p)
{
    const sizes *s = context;
    op->embed(lane, s->tokens, s->width, p[0], p[1], p[2]);
    op->embed_weight(lane, s->tokens, s->width, p[0], p[3], p[4]);
}

/* Numbers below `bound`; a third of them are 1. */
static uint32_t numbers(trial *t, uint64_t count, uint32_t bound, bool ignored)
{
    int32_t *ids;
    if (rp_arena_alloc(trial_arena, count, sizeof *ids, &ids) != RP_OK) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = rpexec_random_bits(5, bound, i);
        ids[i] = bits % 3 == 0 ? 1 % (int32_t)bound : (int32_t)(bits / 3 % bound);
        ids[i] = ignored && bits % 4 == 1 ? RPEXEC_IGNORED : ids[i];
    }
    return trial_raw(t, count * sizeof *ids, ids);
}

static int test_embedding(rpexec_dtype dtype, sizes s)
{
    trial t = trial_begin("embed", dtype);
    numbers(&t, s.tokens, s.vocab, false);
    trial_values(&t, (uint64_t)s.vocab * s.width, 1);
    trial_values(&t, s.tokens * s.width, 1); /* a copy: no bit may differ */
    trial_values(&t, s.tokens * s.width, 1);
    trial_values(&t, (uint64_t)s.vocab * s.width, 1); /* the same sums in the same order */
    return !trial_run(&t, embed, &s);
}

/* labels, logits, loss. */
static void cross_entropy(const void *context, rpexec_lane *lane, const rpexec_operators *op,
                          void **p)
{
    const sizes *s = context;
    op->cross_entropy(lane, s->tokens, s->vocab, p[0], 0.125f, p[1], p[2]);
}

static int test_loss(rpexec_dtype dtype, sizes s)
{
    const double before = 2.5;
    trial t = trial_begin("cross_entropy", dtype);
    numbers(&t, s.tokens, s.vocab, true);
    trial_allow(&t, trial_values(&t, s.tokens * s.vocab, 3), 64, 0);
    /* Exponentials of both are good to a few units: 2^-20 of the whole. */
    t.tensors[trial_raw(&t, sizeof before, &before)].relative = 1.0 / (1 << 20);
    return !trial_run(&t, cross_entropy, &s);
}

int test_tokens(rpexec_dtype dtype)
{
    int failed = test_embedding(dtype, (sizes){1, 1, 1}) +
                 test_embedding(dtype, (sizes){300, 37, 11}) +
                 test_embedding(dtype, (sizes){70, 64, 50}) + test_loss(dtype, (sizes){1, 0, 2}) +
                 test_loss(dtype, (sizes){27, 0, 601}) + test_loss(dtype, (sizes){7, 0, 4096}) +
                 test_loss(dtype, (sizes){5, 0, 4104});
    if (trial_is_fast()) {
        failed += test_embedding(dtype, (sizes){4096, 1024, 32000}) +
                  test_loss(dtype, (sizes){512, 0, 151936});
    }
    return failed;
}
