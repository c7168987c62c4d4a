/* Attention with sinks: outputs against the formula in double, gradients against central
 * differences of the formula. */
#include "exec/host/lane.h"
#include "exec/operators/random.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"
#include "tests/support/worse.h"

#include <criterion/criterion.h>
#include <math.h>

#define TOKENS 7u
#define HEADS 3u
#define HEAD_DIM 5u
#define COUNT (TOKENS * HEADS * HEAD_DIM)
#define WINDOW 4u
/* Operators and inputs are in fp32, the comparison in double: roundings of sums over a head. */
#define TOLERANCE 4e-6
#define STEP 1e-5

TestSuite(exec_sinks, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

typedef struct tensors {
    double q[COUNT], k[COUNT], v[COUNT], sinks[HEADS];
} tensors;

static void normal(uint64_t count, float *x, double *wide)
{
    static uint64_t stream;
    rpexec_random_normal(5, stream++, 1, count, x);
    for (uint64_t i = 0; i < count; i++) {
        wide[i] = (double)x[i];
    }
}

/* Fills a query's weights e^score. @return their sum with the sink's weight */
static double weigh(const tensors *t, uint32_t head, uint32_t query, double weights[TOKENS])
{
    double sum = exp(t->sinks[head]);
    for (uint32_t key = 0; key <= query; key++) {
        double score = 0;
        for (uint32_t i = 0; i < HEAD_DIM; i++) {
            score += t->q[(query * HEADS + head) * HEAD_DIM + i] *
                     t->k[(key * HEADS + head) * HEAD_DIM + i];
        }
        weights[key] = query - key < WINDOW ? exp(score / sqrt((double)HEAD_DIM)) : 0;
        sum += weights[key];
    }
    return sum;
}

/* @return the sum of c o; also fills o and the logarithms of sums, unless o is NULL */
static double attend(const tensors *t, const float *c, double *o, double *logsumexp)
{
    double result = 0;
    for (uint32_t row = 0; row < TOKENS * HEADS; row++) {
        double weights[TOKENS];
        double sum = weigh(t, row % HEADS, row / HEADS, weights);
        for (uint32_t i = 0; i < HEAD_DIM; i++) {
            double out = 0;
            for (uint32_t key = 0; key <= row / HEADS; key++) {
                out += weights[key] / sum * t->v[(key * HEADS + row % HEADS) * HEAD_DIM + i];
            }
            result += (double)c[row * HEAD_DIM + i] * out;
            if (o != NULL) {
                o[row * HEAD_DIM + i] = out;
                logsumexp[row] = log(sum);
            }
        }
    }
    return result;
}

static double differ(tensors *t, double *value, const float *c)
{
    double before = *value;
    *value = before + STEP;
    double above = attend(t, c, NULL, NULL);
    *value = before - STEP;
    double below = attend(t, c, NULL, NULL);
    *value = before;
    return (above - below) / (2 * STEP);
}

Test(exec_sinks, outputs_and_gradients_are_those_of_a_softmax_with_one_more_key)
{
    static tensors t;
    static double right[COUNT], sums[TOKENS * HEADS], unused[COUNT];
    static float q[COUNT], k[COUNT], v[COUNT], o[COUNT], d_o[COUNT], l[TOKENS * HEADS];
    static float dq[COUNT], dk[COUNT], dv[COUNT], sinks[HEADS], dsinks[HEADS];
    const rpexec_operators *op = rpexec_host_operators[RP_DTYPE_F32];
    const rpexec_attention_sizes sizes = {1, TOKENS, HEADS, HEADS, HEAD_DIM, WINDOW, 0, 0};
    rpexec_lane lane = {.scratch_count = rpexec_host_attention_scratch(HEAD_DIM)};
    double worst = 0;
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_arena, lane.scratch_count, sizeof(float), &lane.scratch),
                 RP_OK));
    normal(COUNT, q, t.q);
    normal(COUNT, k, t.k);
    normal(COUNT, v, t.v);
    normal(HEADS, sinks, t.sinks);
    normal(COUNT, d_o, unused);
    (void)attend(&t, d_o, right, sums);
    op->attention(&lane, &sizes, q, k, v, o, l);
    op->join_sinks(&lane, TOKENS, HEADS, HEAD_DIM, sinks, o, l);
    op->attention_backward(&lane, &sizes, q, k, v, o, l, d_o, dq, dk, dv);
    op->sinks_weight(&lane, TOKENS, HEADS, HEAD_DIM, sinks, o, l, d_o, false, dsinks);
    for (uint32_t i = 0; i < COUNT; i++) {
        worst = rp_test_worse(worst, fabs((double)o[i] - right[i]));
        worst = rp_test_worse(worst, fabs((double)dq[i] - differ(&t, &t.q[i], d_o)));
        worst = rp_test_worse(worst, fabs((double)dk[i] - differ(&t, &t.k[i], d_o)));
        worst = rp_test_worse(worst, fabs((double)dv[i] - differ(&t, &t.v[i], d_o)));
    }
    for (uint32_t row = 0; row < TOKENS * HEADS; row++) {
        worst = rp_test_worse(worst, fabs((double)l[row] - sums[row]));
    }
    for (uint32_t head = 0; head < HEADS; head++) {
        double once = differ(&t, &t.sinks[head], d_o);
        worst = rp_test_worse(worst, fabs((double)dsinks[head] - once));
    }
    op->sinks_weight(&lane, TOKENS, HEADS, HEAD_DIM, sinks, o, l, d_o, false, dsinks);
    for (uint32_t head = 0; head < HEADS; head++) { /* the operator adds to the gradients */
        double once = differ(&t, &t.sinks[head], d_o);
        worst = rp_test_worse(worst, fabs((double)dsinks[head] - 2 * once));
    }
    cr_expect(worst <= TOLERANCE, "%g", worst);
}
