/* The operators of a mixture of experts: routing against results by hand, gradients against central
 * differences of formulas in double, and matrices expert by expert. */
#include "exec/host/lane.h"
#include "exec/operators/random.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"
#include "tests/support/worse.h"

#include <criterion/criterion.h>
#include <math.h>

#define TOKENS 23u
#define EXPERTS 7u
#define ACTIVE 3u
#define ROWS (TOKENS * ACTIVE)
#define WIDTH 11u
/* Operators and inputs are in fp32, the comparison in double: a few roundings. */
#define TOLERANCE 2e-6
/* Step of central differences of formulas in double; their error is of third order. */
#define STEP 1e-5

static rpexec_lane lane;
static const rpexec_operators *op;

static void *allocate(size_t count, size_t size)
{
    void *to = NULL;
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count, size, &to), RP_OK));
    return to;
}

static void begin(void)
{
    rp_test_arena_begin();
    op = rpexec_host_operators[RP_DTYPE_F32];
    lane.scratch_count = 4096;
    lane.scratch = allocate(lane.scratch_count, sizeof(float));
}

TestSuite(exec_experts, .init = begin, .fini = rp_test_arena_end, .timeout = 60);

static float *normal(uint64_t count)
{
    static uint64_t stream;
    float *x = allocate(count, sizeof(float));
    rpexec_random_normal(2, stream++, 1, count, x);
    return x;
}

static rpexec_routing routing_of(uint32_t tokens, uint32_t experts, uint32_t active, bool raw)
{
    return (rpexec_routing){.tokens = tokens,
                            .experts = experts,
                            .active = active,
                            .raw = raw,
                            .probabilities = allocate((size_t)tokens * experts, sizeof(float)),
                            .chosen = allocate((size_t)tokens * active, sizeof(uint32_t)),
                            .rows = allocate((size_t)tokens * active, sizeof(uint32_t)),
                            .weights = allocate((size_t)tokens * active, sizeof(float)),
                            .begins = allocate((size_t)experts + 1, sizeof(uint32_t))};
}

/* Every row belongs to a pair of token and expert, experts ascending, and tokens ascending within
 * an expert. */
static void check_rows(const rpexec_routing *r)
{
    uint32_t row = 0;
    for (uint32_t e = 0; e < r->experts; e++) {
        cr_expect(eq(u32, r->begins[e], row));
        for (uint64_t i = 0; i < r->tokens * r->active; i++) {
            if (r->chosen[i] == e) {
                cr_expect(eq(u32, r->rows[i], row));
                row++;
            }
        }
    }
    cr_expect(eq(u32, r->begins[r->experts], row));
    cr_expect(eq(u64, row, r->tokens * r->active));
}

Test(exec_experts, equal_probabilities_go_to_the_lowest_numbers)
{
    const float logits[3 * 4] = {1, 1, 1, 1, 0, 2, 2, 5, -1, 3, -1, 3};
    const uint32_t expected[3 * 3] = {0, 1, 2, 3, 1, 2, 1, 3, 0};
    rpexec_routing r = routing_of(3, 4, 3, false);
    op->route(&lane, &r, logits);
    for (uint32_t i = 0; i < 9; i++) {
        cr_expect(eq(u32, r.chosen[i], expected[i]), "%u", i);
    }
    check_rows(&r);
    for (uint32_t i = 0; i < 3; i++) {
        cr_expect(eq(flt, r.weights[r.rows[i]], 1.0f / 3));
    }
}

Test(exec_experts, weights_are_shares_of_the_softmax)
{
    const float *logits = normal(TOKENS * EXPERTS);
    for (uint32_t active = 1; active <= EXPERTS; active++) {
        for (int raw = 0; raw < 2; raw++) {
            rpexec_routing r = routing_of(TOKENS, EXPERTS, active, raw != 0);
            op->route(&lane, &r, logits);
            check_rows(&r);
            for (uint32_t t = 0; t < TOKENS; t++) {
                const float *z = logits + (size_t)t * EXPERTS;
                const uint32_t *chosen = r.chosen + (size_t)t * active;
                double all = 0;
                double sum = 0;
                for (uint32_t e = 0; e < EXPERTS; e++) {
                    all += exp((double)z[e]);
                }
                for (uint32_t j = 0; j < active; j++) {
                    sum += exp((double)z[chosen[j]]);
                    cr_expect(j == 0 || z[chosen[j - 1]] >= z[chosen[j]]);
                }
                for (uint32_t j = 0; j < active; j++) {
                    double right = exp((double)z[chosen[j]]) / (raw != 0 ? all : sum);
                    double got = (double)r.weights[r.rows[t * active + j]];
                    cr_expect(fabs(got - right) <= TOLERANCE * right, "%.9f %.9f", got, right);
                }
            }
        }
    }
}

/* All tokens go to two of five experts, and the other experts have no rows. NaN does not break
 * indices. */
Test(exec_experts, experts_may_have_no_rows)
{
    const float logits[2 * 5] = {0, 9, 0, 8, 0, 1, 7, NAN, 8, 0};
    const uint32_t begins[6] = {0, 0, 1, 1, 2, 2};
    rpexec_routing r = routing_of(1, 5, 2, false);
    op->route(&lane, &r, logits);
    for (uint32_t e = 0; e <= 5; e++) {
        cr_expect(eq(u32, r.begins[e], begins[e]), "%u", e);
    }
    rpexec_routing broken = routing_of(2, 5, 4, false);
    op->route(&lane, &broken, logits);
    check_rows(&broken);
}

/* Sum of c_i w_i with the experts chosen in `r`, in double. */
static double weighted(const rpexec_routing *r, const double *z, const float *c)
{
    double result = 0;
    for (uint32_t t = 0; t < r->tokens; t++) {
        double all = 0;
        double sum = 0;
        for (uint32_t e = 0; e < r->experts; e++) {
            all += exp(z[t * r->experts + e]);
        }
        for (uint32_t i = t * r->active; i < (t + 1) * r->active; i++) {
            sum += exp(z[t * r->experts + r->chosen[i]]);
        }
        for (uint32_t i = t * r->active; i < (t + 1) * r->active; i++) {
            double p = exp(z[t * r->experts + r->chosen[i]]);
            result += (double)c[r->rows[i]] * p / (r->raw ? all : sum);
        }
    }
    return result;
}

Test(exec_experts, the_gradient_of_routing_is_that_of_central_differences)
{
    const float *logits = normal(TOKENS * EXPERTS);
    const float *c = normal(ROWS);
    float *dlogits = allocate(TOKENS * EXPERTS, sizeof(float));
    double *z = allocate(TOKENS * EXPERTS, sizeof(double));
    for (int raw = 0; raw < 2; raw++) {
        rpexec_routing r = routing_of(TOKENS, EXPERTS, ACTIVE, raw != 0);
        double worst = 0;
        op->route(&lane, &r, logits);
        op->route_backward(&lane, &r, c, dlogits);
        for (uint32_t i = 0; i < TOKENS * EXPERTS; i++) {
            z[i] = (double)logits[i];
        }
        for (uint32_t i = 0; i < TOKENS * EXPERTS; i++) {
            z[i] += STEP;
            double above = weighted(&r, z, c);
            z[i] -= 2 * STEP;
            double below = weighted(&r, z, c);
            z[i] += STEP;
            worst = rp_test_worse(worst, fabs((above - below) / (2 * STEP) - (double)dlogits[i]));
        }
        cr_expect(worst <= TOLERANCE, "raw %d: %g", raw, worst);
    }
}

/* GptOssExperts of transformers if there is a limit, SwiGLU otherwise. */
static double swiglu(double alpha, double limit, double weight, double gate, double up)
{
    if (limit != 0) {
        gate = fmin(gate, limit);
        up = fmax(fmin(up, limit), -limit) + 1;
    }
    return weight * gate / (1 + exp(-alpha * gate)) * up;
}

static void check_swiglu(double alpha, double limit)
{
    rpexec_routing r = routing_of(TOKENS, EXPERTS, ACTIVE, false);
    const float *gate = normal(ROWS * WIDTH);
    const float *up = normal(ROWS * WIDTH);
    const float *ds = normal(ROWS * WIDTH);
    float *s = allocate(ROWS * WIDTH, sizeof(float));
    float *dgate = allocate(ROWS * WIDTH, sizeof(float));
    float *dup = allocate(ROWS * WIDTH, sizeof(float));
    float *dweights = allocate(ROWS, sizeof(float));
    double worst = 0;
    op->route(&lane, &r, normal(TOKENS * EXPERTS));
    op->experts_swiglu(&lane, &r, WIDTH, (float)alpha, (float)limit, gate, up, s);
    op->experts_swiglu_backward(&lane, &r, WIDTH, (float)alpha, (float)limit, gate, up, ds, dgate,
                                dup, dweights);
    for (uint32_t row = 0; row < ROWS; row++) {
        double w = (double)r.weights[row];
        double dw = 0;
        for (uint32_t i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
            double g = (double)gate[i];
            double u = (double)up[i];
            double d = (double)ds[i];
            double to_gate = swiglu(alpha, limit, w, g + STEP, u);
            double to_up = swiglu(alpha, limit, w, g, u + STEP);
            to_gate = (to_gate - swiglu(alpha, limit, w, g - STEP, u)) / (2 * STEP);
            to_up = (to_up - swiglu(alpha, limit, w, g, u - STEP)) / (2 * STEP);
            worst = rp_test_worse(worst, fabs((double)s[i] - swiglu(alpha, limit, w, g, u)));
            worst = rp_test_worse(worst, fabs((double)dgate[i] - d * to_gate));
            worst = rp_test_worse(worst, fabs((double)dup[i] - d * to_up));
            dw += d * swiglu(alpha, limit, 1, g, u);
        }
        worst = rp_test_worse(worst, fabs((double)dweights[row] - dw));
    }
    cr_expect(worst <= TOLERANCE, "alpha %g, limit %g: %g", alpha, limit, worst);
}

Test(exec_experts, the_gradients_of_swiglu_are_those_of_central_differences)
{
    check_swiglu(1, 0);
    check_swiglu(1.702, 0.75); /* the limit cuts a quarter or more of normal numbers */
}

/* y = weight times bias of the row's expert; its sums with dy by hand. Experts 1 and 4 have no
 * rows. */
Test(exec_experts, each_row_has_its_experts_bias)
{
    enum { E = 5, N = 9 };
    uint32_t begins[E + 1] = {0, 4, 4, 7, 9, 9};
    const float *weights = normal(N);
    const float *bias = normal(E * WIDTH);
    const float *dy = normal(N * WIDTH);
    float *y = allocate(N * WIDTH, sizeof(float));
    float *dbias = normal(E * WIDTH);
    float *dweights = normal(N);
    const rpexec_routing r = {.tokens = N,
                              .active = 1,
                              .experts = E,
                              .begins = begins,
                              .weights = (float *)(uintptr_t)weights};
    for (int weighted = 0; weighted < 2; weighted++) {
        double worst = 0;
        double right[E * WIDTH];
        double products[N];
        for (uint32_t i = 0; i < E * WIDTH; i++) {
            right[i] = (double)dbias[i];
        }
        for (uint32_t i = 0; i < N; i++) {
            products[i] = (double)dweights[i];
        }
        op->experts_bias(&lane, &r, WIDTH, bias, weighted != 0, y);
        op->experts_bias_input(&lane, &r, WIDTH, dy, bias, dweights);
        op->experts_bias_weight(&lane, &r, WIDTH, dy, weighted != 0, false, dbias);
        for (uint32_t e = 0; e < E; e++) {
            for (uint32_t k = begins[e] * WIDTH; k < begins[e + 1] * WIDTH; k++) {
                uint32_t at = e * WIDTH + k % WIDTH;
                double weight = weighted != 0 ? (double)weights[k / WIDTH] : 1;
                worst = rp_test_worse(worst, fabs((double)y[k] - weight * (double)bias[at]));
                products[k / WIDTH] += (double)dy[k] * (double)bias[at];
                right[at] += weight * (double)dy[k];
            }
        }
        for (uint32_t i = 0; i < E * WIDTH; i++) {
            worst = rp_test_worse(worst, fabs((double)dbias[i] - right[i]));
        }
        for (uint32_t i = 0; i < N; i++) {
            worst = rp_test_worse(worst, fabs((double)dweights[i] - products[i]));
        }
        cr_expect(worst <= TOLERANCE, "weighted %d: %g", weighted, worst);
    }
}

/* Gathering and adding up are each other's transposes: <gather x, y> = <x, scatter y>. */
Test(exec_experts, scatter_is_the_transpose_of_gather)
{
    rpexec_routing r = routing_of(TOKENS, EXPERTS, ACTIVE, false);
    const float *x = normal(TOKENS * WIDTH);
    const float *y = normal(ROWS * WIDTH);
    float *gathered = allocate(ROWS * WIDTH, sizeof(float));
    float *added = allocate(TOKENS * WIDTH, sizeof(float));
    double left = 0;
    double right = 0;
    op->route(&lane, &r, normal(TOKENS * EXPERTS));
    op->gather(&lane, &r, WIDTH, x, gathered);
    op->scatter(&lane, &r, WIDTH, y, false, added);
    for (uint32_t i = 0; i < ROWS * WIDTH; i++) {
        left += (double)gathered[i] * (double)y[i];
    }
    for (uint32_t i = 0; i < TOKENS * WIDTH; i++) {
        right += (double)x[i] * (double)added[i];
    }
    cr_expect(fabs(left - right) <= 1e-4, "%.9f %.9f", left, right);
    op->scatter(&lane, &r, WIDTH, y, true, added); /* twice the same sum */
    op->scatter(&lane, &r, WIDTH, y, false, gathered);
    for (uint32_t i = 0; i < TOKENS * WIDTH; i++) {
        cr_expect(eq(flt, added[i], 2 * gathered[i]));
    }
}

/* Row by row with the matrix of the row's expert. Experts 1 and 4 have no rows. */
Test(exec_experts, each_row_has_its_experts_matrix)
{
    enum { IN = 5, OUT = 6, STRIDE = 48, E = 5, N = 9 };
    uint32_t begins[E + 1] = {0, 4, 4, 7, 9, 9};
    const rpexec_routing r = {.tokens = N, .active = 1, .experts = E, .begins = begins};
    const rpexec_matrices m = {.in = IN, .out = OUT, .stride = STRIDE};
    const float *x = normal(N * IN);
    const float *w = normal(E * STRIDE);
    const float *dy = normal(N * OUT);
    float *y = allocate(N * OUT, sizeof(float));
    float *dx = allocate(N * IN, sizeof(float));
    float *dw = allocate(E * STRIDE, sizeof(float));
    double *right = allocate(E * STRIDE, sizeof(double));
    double worst = 0;
    op->experts_linear(&lane, &r, &m, x, w, false, y);
    op->experts_linear_input(&lane, &r, &m, dy, w, false, dx);
    op->experts_linear_weight(&lane, &r, &m, dy, x, false, dw);
    for (uint32_t e = 0; e < E; e++) {
        for (uint32_t row = begins[e]; row < begins[e + 1]; row++) {
            double to_x[IN] = {0};
            for (uint32_t o = 0; o < OUT; o++) {
                double sum = 0;
                for (uint32_t i = 0; i < IN; i++) {
                    uint32_t at = e * STRIDE + o * IN + i;
                    sum += (double)x[row * IN + i] * (double)w[at];
                    to_x[i] += (double)dy[row * OUT + o] * (double)w[at];
                    right[at] += (double)dy[row * OUT + o] * (double)x[row * IN + i];
                }
                worst = rp_test_worse(worst, fabs((double)y[row * OUT + o] - sum));
            }
            for (uint32_t i = 0; i < IN; i++) {
                worst = rp_test_worse(worst, fabs((double)dx[row * IN + i] - to_x[i]));
            }
        }
    }
    for (uint32_t i = 0; i < E * STRIDE; i++) {
        worst = rp_test_worse(worst, fabs((double)dw[i] - right[i]));
    }
    cr_expect(worst <= TOLERANCE, "%g", worst);
}
