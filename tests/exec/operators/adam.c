/* Adam against its formula in double precision (executor.md 1.8), for any number of threads. */
#include "exec/operators/random.h"
#include "exec/state/pass.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Several slices, together larger than the pieces that threads share; sizes that no register width
 * divides, and an empty slice. */
enum { SLICES = 4, FLOATS = 2621459, STEPS = 3 };
static const uint64_t SIZES[SLICES] = {2097153, 0, 17, 524289};

typedef struct arrays {
    float p[FLOATS], g[FLOATS], m[FLOATS], v[FLOATS];
} arrays;

static arrays shared, single;

static float random_float(uint64_t seed, uint64_t i)
{
    return (float)((double)(rpexec_random_bits(seed, i, 0) >> 11) * 0x1p-53 - 0.5);
}

static void fill(arrays *a)
{
    for (uint64_t i = 0; i < FLOATS; i++) {
        a->p[i] = random_float(1, i);
        a->g[i] = random_float(2, i);
    }
    memset(a->m, 0, sizeof a->m);
    memset(a->v, 0, sizeof a->v);
}

static void cut(arrays *a, rpexec_adam_slice slices[SLICES])
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < SLICES; i++) {
        slices[i] = (rpexec_adam_slice){.parameters = a->p + at,
                                        .gradients = a->g + at,
                                        .m = a->m + at,
                                        .v = a->v + at,
                                        .count = SIZES[i]};
        at += SIZES[i];
    }
    cr_assert(eq(u64, at, FLOATS));
}

static void steps(arrays *a, const rpexec_adam *adam, uint32_t threads)
{
    rpexec_adam_slice slices[SLICES];
    rpexec_pool *pool = NULL;
    cut(a, slices);
    cr_assert(eq(int, rpexec_pool_create(threads, rp_test_arena, &pool), RP_OK));
    for (uint64_t t = 1; t <= STEPS; t++) {
        const rpexec_adam_factors factors = rpexec_adam_factors_of(adam, t);
        for (uint32_t i = 0; i < SLICES; i++) {
            rpexec_pass_adam(pool, &factors, &slices[i]);
        }
    }
}

TestSuite(exec_adam, .init = rp_test_arena_begin, .fini = rp_test_arena_end);

Test(exec_adam, same_bits_for_any_number_of_threads)
{
    const rpexec_adam adam = rpexec_adam_defaults();
    fill(&single);
    rpexec_adam_slice whole = {.parameters = single.p,
                               .gradients = single.g,
                               .m = single.m,
                               .v = single.v,
                               .count = FLOATS};
    for (uint64_t t = 1; t <= STEPS; t++) {
        rpexec_adam_step(&adam, t, &whole);
    }
    static const uint32_t THREADS[] = {1, 2, 5, 0};
    for (size_t i = 0; i < sizeof THREADS / sizeof THREADS[0]; i++) {
        fill(&shared);
        steps(&shared, &adam, THREADS[i]);
        cr_expect(memcmp(&shared, &single, sizeof shared) == 0, "%u threads", THREADS[i]);
    }
}

/* Computes the formula element by element in double: g += decay p, or p *= 1 - lr decay. */
static void expect_formula(const rpexec_adam *adam)
{
    fill(&shared);
    fill(&single);
    steps(&shared, adam, 2);
    for (uint64_t i = 0; i < FLOATS; i += 997) {
        double p = single.p[i];
        double m = 0;
        double v = 0;
        for (int t = 1; t <= STEPS; t++) {
            double clipped = (adam->clip > 0 ? adam->clip : 1) * single.g[i];
            double g = clipped + (adam->decoupled ? 0 : adam->weight_decay * p);
            p *= adam->decoupled ? 1 - adam->lr * adam->weight_decay : 1;
            m = adam->beta1 * m + (1 - adam->beta1) * g;
            v = adam->beta2 * v + (1 - adam->beta2) * g * g;
            p -= adam->lr / (1 - pow(adam->beta1, t)) * m /
                 (sqrt(v / (1 - pow(adam->beta2, t))) + adam->eps);
        }
        /* Allowed are a few roundings of fp32 per step; an update is at most lr. */
        cr_assert(fabs(shared.p[i] - p) <= 4 * 0x1p-24 * STEPS * (fabs(p) + adam->lr),
                  "%lu: %.9g, not %.9g", (unsigned long)i, (double)shared.p[i], p);
        cr_assert(fabs(shared.m[i] - m) <= 1e-6 * fabs(m) + 1e-9, "m of %lu", (unsigned long)i);
        cr_assert(fabs(shared.v[i] - v) <= 1e-6 * v + 1e-12, "v of %lu", (unsigned long)i);
    }
}

Test(exec_adam, formula)
{
    rpexec_adam adam = rpexec_adam_defaults();
    expect_formula(&adam);
    adam.weight_decay = 0.1;
    expect_formula(&adam);
    adam.decoupled = true;
    expect_formula(&adam);
    adam.clip = 0.375;
    expect_formula(&adam);
}

/* Values computed by hand from transformers' get_linear_ and get_cosine_schedule_with_warmup: 10
 * steps, 3 of them warm-up. */
Test(exec_adam, rates)
{
    static const uint64_t at[] = {1, 2, 4, 8, 11, 12};
    static const double linear[] = {0, 1.0 / 3, 1, 3.0 / 7, 0, 0};
    static const double cosine[] = {0, 1.0 / 3, 1, 0.38873953302184283, 0, 0};
    rpexec_adam adam = {.lr = 2, .warmup = 3, .steps = 10};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        adam.course = RPEXEC_RATE_LINEAR;
        cr_expect(ieee_ulp_eq(dbl, rpexec_adam_rate(&adam, at[i]), 2 * linear[i], 4));
        adam.course = RPEXEC_RATE_COSINE;
        cr_expect(epsilon_eq(dbl, rpexec_adam_rate(&adam, at[i]), 2 * cosine[i], 1e-15));
        adam.course = RPEXEC_RATE_CONSTANT;
        cr_expect(ieee_ulp_eq(dbl, rpexec_adam_rate(&adam, at[i]), i < 2 ? 2 * linear[i] : 2, 4));
    }
}

/* torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), at most 1. */
Test(exec_adam, clipping)
{
    const rpexec_adam adam = {.clip_norm = 0.5};
    cr_expect(ieee_ulp_eq(dbl, rpexec_adam_clip(&adam, 2), 0.5 / 2.000001, 4));
    cr_expect(eq(dbl, rpexec_adam_clip(&adam, 0.25), 1));
    cr_expect(eq(dbl, rpexec_adam_clip(&(rpexec_adam){0}, 9), 1));
    cr_expect(isnan(rpexec_adam_clip(&adam, NAN)));
}
