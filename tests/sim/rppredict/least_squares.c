/* Least squares against NIST's Statistical Reference Datasets, nonlinear regression, Misra1a
 * (Misra, D., NBS, 1978): data, certified parameters, deviations. */
#include "sim/rppredict/least_squares.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct {
    double y, x;
} misra1a[] = {{10.07, 77.6},  {14.73, 114.9}, {17.94, 141.1}, {23.93, 190.8}, {29.61, 239.9},
               {35.18, 289.0}, {40.02, 332.8}, {44.82, 378.4}, {50.76, 434.8}, {55.05, 477.3},
               {61.01, 536.8}, {66.40, 593.1}, {75.47, 689.1}, {81.78, 760.0}};

#define B1 238.94212918
#define B2 5.5015643181e-4
#define B1_DEVIATION 2.7070075241
#define B2_DEVIATION 7.2668688436e-6
#define RESIDUAL_DEVIATION 0.10187876330
#define SUM_OF_SQUARES 0.12455138894

static uint32_t calls;

/* y = b1 (1 - exp(-b2 x)); the unknowns are logarithms relative to b1 = 500, b2 = 0.0001. */
static rp_status misra(void *context, const double *x, double *r)
{
    (void)context;
    calls++;
    for (size_t i = 0; i < COUNT(misra1a); i++) {
        double b1 = 500 * exp(x[0]);
        double b2 = 1e-4 * exp(x[1]);
        r[i] = b1 * (1 - exp(-b2 * misra1a[i].x)) - misra1a[i].y;
    }
    return RP_OK;
}

static const double low[] = {-5, -5};
static const double high[] = {5, 5};

static rpsim_least_squares problem(void)
{
    return (rpsim_least_squares){.rows = COUNT(misra1a),
                                 .count = 2,
                                 .low = low,
                                 .high = high,
                                 .step = 1e-6,
                                 .residuals = misra};
}

TestSuite(least_squares, .timeout = 60);

Test(least_squares, certified_values)
{
    rpsim_least_squares p = problem();
    double x[2] = {0};
    double deviation[2];
    double sum = 0;
    calls = 0;
    cr_assert(eq(int, rpsim_least_squares_run(&p, x, &sum), RP_OK));
    cr_expect(le(dbl, fabs(500 * exp(x[0]) / B1 - 1), 1e-3), "%.9g", 500 * exp(x[0]));
    cr_expect(le(dbl, fabs(1e-4 * exp(x[1]) / B2 - 1), 1e-3), "%.9g", 1e-4 * exp(x[1]));
    cr_expect(le(dbl, sum, SUM_OF_SQUARES * 1.01), "%.9g", sum);
    cr_expect(le(u32, calls, 60), "%u", calls);
    cr_assert(eq(int, rpsim_least_squares_deviation(&p, x, deviation), RP_OK));
    cr_expect(le(dbl, fabs(deviation[0] * RESIDUAL_DEVIATION * B1 / B1_DEVIATION - 1), 0.01));
    cr_expect(le(dbl, fabs(deviation[1] * RESIDUAL_DEVIATION * B2 / B2_DEVIATION - 1), 0.01));
}

/* With an unknown at its bound, the other is the best there; a fixed unknown keeps its start. */
Test(least_squares, bounds)
{
    const double near[] = {-0.5, -5};
    rpsim_least_squares p = problem();
    double x[2] = {0};
    double sum = 0;
    p.low = near;
    cr_assert(eq(int, rpsim_least_squares_run(&p, x, &sum), RP_OK));
    cr_expect(eq(dbl, x[0], -0.5));
    double best = INFINITY;
    for (double at = -5; at <= 5; at += 1e-3) { /* by trying */
        double r[COUNT(misra1a)];
        double squares = 0;
        misra(NULL, (double[]){-0.5, at}, r);
        for (size_t i = 0; i < COUNT(r); i++) {
            squares += r[i] * r[i];
        }
        best = fmin(best, squares);
    }
    cr_expect(le(dbl, sum, best * 1.01 + 1e-3), "%g, %g", sum, best);
    const double fixed[] = {0, -5};
    const double also[] = {0, 5};
    double deviation[2];
    double start[2] = {0};
    p.low = fixed;
    p.high = also;
    cr_assert(eq(int, rpsim_least_squares_run(&p, start, &sum), RP_OK));
    cr_expect(eq(dbl, start[0], 0));
    cr_assert(eq(int, rpsim_least_squares_deviation(&p, start, deviation), RP_OK));
    cr_expect(eq(dbl, deviation[0], 0));
    cr_expect(gt(dbl, deviation[1], 0));
}

static rp_status one_sum(void *context, const double *x, double *r)
{
    (void)context;
    r[0] = x[0] + x[1] - 1;
    return RP_OK;
}

/* Residuals fix only a sum: the pull divides it, and the deviation is huge. */
Test(least_squares, says_what_is_open)
{
    rpsim_least_squares p = problem();
    double x[2] = {0};
    double deviation[2];
    double sum = 1;
    p.rows = 1;
    p.pull = 1e-4;
    p.residuals = one_sum;
    cr_assert(eq(int, rpsim_least_squares_run(&p, x, &sum), RP_OK));
    cr_expect(le(dbl, fabs(x[0] - 0.5), 1e-3));
    cr_expect(le(dbl, fabs(x[1] - 0.5), 1e-3));
    cr_assert(eq(int, rpsim_least_squares_deviation(&p, x, deviation), RP_OK));
    cr_expect(gt(dbl, deviation[0], 1e3));
    p.enough = 2;
    double stays[2] = {0};
    cr_assert(eq(int, rpsim_least_squares_run(&p, stays, &sum), RP_OK));
    cr_expect(eq(dbl, stays[0], 0)); /* close enough */
}
