#include "sim/rppredict/least_squares.h"

#include <math.h>
#include <string.h>

#define MOST RPSIM_LEAST_SQUARES_MOST
#define MOST_STEPS 40u
#define DAMPING 1e-3
#define MOST_DAMPING 1e6
#define LESS_DAMPING 0.2
#define MORE_DAMPING 5.0
#define CLOSE 1e-4 /* size of a step of x at which the search ends */
#define GAIN 1e-3  /* relative gain of the sum at which the search ends */

typedef struct search {
    const rpsim_least_squares *problem;
    double *r;        /* [rows] at x */
    double *trial;    /* [rows] */
    double *jacobian; /* [rows][count] */
    double x[MOST];
    double cost; /* the sum of squares with the pull */
    double damping;
    bool fresh; /* the derivatives were taken at x */
} search;

static double squares(const double *v, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += v[i] * v[i];
    }
    return sum;
}

static bool is_fixed(const rpsim_least_squares *p, uint32_t i)
{
    return !(p->low[i] < p->high[i]);
}

/* Takes forward differences, or backward differences if a forward step would leave the bounds. */
static rp_status differentiate(search *s)
{
    const rpsim_least_squares *p = s->problem;
    for (uint32_t i = 0; i < p->count; i++) {
        double at[MOST];
        memcpy(at, s->x, sizeof at);
        at[i] += s->x[i] + p->step <= p->high[i] ? p->step : -fmin(p->step, s->x[i] - p->low[i]);
        double step = at[i] - s->x[i];
        if (!is_fixed(p, i) && step != 0) {
            RP_TRY(p->residuals(p->context, at, s->trial));
        }
        for (uint32_t row = 0; row < p->rows; row++) {
            s->jacobian[row * p->count + i] =
                is_fixed(p, i) || step == 0 ? 0 : (s->trial[row] - s->r[row]) / step;
        }
    }
    s->fresh = true;
    return RP_OK;
}

/* Cholesky's factorization. @return false: not positive definite */
static bool factor(uint32_t count, double a[][MOST])
{
    for (uint32_t j = 0; j < count; j++) {
        for (uint32_t i = j; i < count; i++) {
            double sum = a[i][j];
            for (uint32_t k = 0; k < j; k++) {
                sum -= a[i][k] * a[j][k];
            }
            if (i == j && !(sum > 0)) {
                return false;
            }
            a[i][j] = i == j ? sqrt(sum) : sum / a[j][j];
        }
    }
    return true;
}

/* Solves the system by its factors. @param b replaced by the solution */
static void substitute(uint32_t count, double a[][MOST], double *b)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            b[i] -= a[i][k] * b[k];
        }
        b[i] /= a[i][i];
    }
    for (uint32_t i = count; i-- > 0;) {
        for (uint32_t k = i + 1; k < count; k++) {
            b[i] -= a[k][i] * b[k];
        }
        b[i] /= a[i][i];
    }
}

static double product(const search *s, uint32_t i, uint32_t j)
{
    uint32_t count = s->problem->count;
    double sum = 0;
    for (uint32_t row = 0; row < s->problem->rows; row++) {
        sum += s->jacobian[row * count + i] * s->jacobian[row * count + j];
    }
    return sum;
}

/* Finds the step that damping allows. Unknowns that the sum pushes against a bound stay there.
 * @return the gain that the derivatives predict for the step; 0: no step is left */
static double find_step(const search *s, double *step_out)
{
    const rpsim_least_squares *p = s->problem;
    double a[MOST][MOST];
    double slopes[MOST];
    bool held[MOST];
    double gain = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        double slope = p->pull * s->x[i];
        for (uint32_t row = 0; row < p->rows; row++) {
            slope += s->jacobian[row * p->count + i] * s->r[row];
        }
        held[i] = is_fixed(p, i) || (s->x[i] <= p->low[i] && slope > 0) ||
                  (s->x[i] >= p->high[i] && slope < 0);
        slopes[i] = held[i] ? 0 : slope;
        step_out[i] = -slopes[i];
    }
    for (uint32_t i = 0; i < p->count; i++) {
        for (uint32_t j = 0; j <= i; j++) {
            a[i][j] = held[i] || held[j] ? 0 : product(s, i, j);
        }
        a[i][i] = held[i] ? 1 : (a[i][i] + p->pull) * (1 + s->damping) + 1e-9;
    }
    if (!factor(p->count, a)) {
        return 0;
    }
    substitute(p->count, a, step_out);
    for (uint32_t i = 0; i < p->count; i++) {
        gain -= slopes[i] * step_out[i];
    }
    return gain;
}

static double pulled(const search *s, const double *x)
{
    return s->problem->pull * squares(x, s->problem->count);
}

/* Broyden: changes the derivatives by the least amount that explains the effect of the step. */
static void update(search *s, const double *step)
{
    const rpsim_least_squares *p = s->problem;
    double length = squares(step, p->count);
    for (uint32_t row = 0; row < p->rows; row++) {
        double *slopes = &s->jacobian[row * p->count];
        double off = s->trial[row] - s->r[row];
        for (uint32_t i = 0; i < p->count; i++) {
            off -= slopes[i] * step[i];
        }
        for (uint32_t i = 0; i < p->count; i++) {
            slopes[i] += off * step[i] / length;
        }
    }
    s->fresh = false;
}

/* @param ended_out no further step gains anything */
static rp_status take_step(search *s, bool *ended_out)
{
    const rpsim_least_squares *p = s->problem;
    double step[MOST] = {0};
    double at[MOST] = {0};
    double gain = find_step(s, step);
    double longest = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        at[i] = fmin(fmax(s->x[i] + step[i], p->low[i]), p->high[i]);
        step[i] = at[i] - s->x[i];
        longest = fmax(longest, fabs(step[i]));
    }
    bool moves = gain > GAIN && longest > CLOSE;
    double cost = INFINITY;
    if (moves) {
        RP_TRY(p->residuals(p->context, at, s->trial));
        cost = squares(s->trial, p->rows) + pulled(s, at);
    }
    if (cost < s->cost) {
        *ended_out = s->fresh && s->cost - cost < GAIN;
        update(s, step);
        memcpy(s->x, at, sizeof at);
        memcpy(s->r, s->trial, p->rows * sizeof *s->r);
        s->cost = cost;
        s->damping *= LESS_DAMPING;
        return RP_OK;
    }
    if (!s->fresh) {
        return differentiate(s);
    }
    s->damping *= MORE_DAMPING;
    *ended_out = !moves || s->damping > MOST_DAMPING;
    return RP_OK;
}

static rp_status begin(const rpsim_least_squares *problem, const double *x, rp_arena *arena,
                       search *s)
{
    *s = (search){.problem = problem, .damping = DAMPING};
    memcpy(s->x, x, problem->count * sizeof *x);
    RP_TRY(rp_arena_alloc(arena, problem->rows, sizeof *s->r, &s->r));
    RP_TRY(rp_arena_alloc(arena, problem->rows, sizeof *s->trial, &s->trial));
    RP_TRY(rp_arena_alloc(arena, (size_t)problem->rows * problem->count, sizeof *s->jacobian,
                          &s->jacobian));
    RP_TRY(problem->residuals(problem->context, x, s->r));
    s->cost = squares(s->r, problem->rows) + pulled(s, s->x);
    return RP_OK;
}

static rp_status run(const rpsim_least_squares *problem, rp_arena *arena, double *x,
                     double *sum_out)
{
    search s;
    bool ended = false;
    RP_TRY(begin(problem, x, arena, &s));
    *sum_out = squares(s.r, problem->rows);
    if (*sum_out > problem->enough) {
        RP_TRY(differentiate(&s));
    }
    for (uint32_t i = 0; i < MOST_STEPS && !ended && *sum_out > problem->enough; i++) {
        RP_TRY(take_step(&s, &ended));
        *sum_out = squares(s.r, problem->rows);
    }
    memcpy(x, s.x, problem->count * sizeof *x);
    return RP_OK;
}

rp_status rpsim_least_squares_run(const rpsim_least_squares *problem, double *x, double *sum_out)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = run(problem, arena, x, sum_out);
    rp_arena_destroy(arena);
    return status;
}

/* Computes the diagonal of the inverse of the normal equations, column by column. */
static void invert(const search *s, double *deviation_out)
{
    const rpsim_least_squares *p = s->problem;
    double a[MOST][MOST];
    for (uint32_t i = 0; i < p->count; i++) {
        for (uint32_t j = 0; j <= i; j++) {
            a[i][j] = product(s, i, j);
        }
        a[i][i] = is_fixed(p, i) ? 1 : a[i][i];
    }
    bool told = factor(p->count, a);
    for (uint32_t i = 0; i < p->count; i++) {
        double column[MOST] = {0};
        column[i] = 1;
        if (told) {
            substitute(p->count, a, column);
        }
        deviation_out[i] = is_fixed(p, i) ? 0 : told ? sqrt(column[i]) : INFINITY;
    }
}

rp_status rpsim_least_squares_deviation(const rpsim_least_squares *problem, const double *x,
                                        double *deviation_out)
{
    search s;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = begin(problem, x, arena, &s);
    if (status == RP_OK) {
        status = differentiate(&s);
    }
    if (status == RP_OK) {
        invert(&s, deviation_out);
    }
    rp_arena_destroy(arena);
    return status;
}
