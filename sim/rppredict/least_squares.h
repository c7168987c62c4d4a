/** @file least_squares.h  Nonlinear least squares of a few unknowns within bounds.
 *
 * Levenberg's and Marquardt's steps (Marquardt, SIAM Journal 11, 1963), cut to the bounds. The
 * derivatives are differences, which Broyden's rule keeps up to date (Mathematics of Computation
 * 19, 1965) as long as steps succeed: a residual may be a simulation.
 */
#pragma once

#include "common/base/mem.h"

#include <stdbool.h>
#include <stdint.h>

/** Most unknowns. */
#define RPSIM_LEAST_SQUARES_MOST 16u

/** @param residuals_out [rows] at x. @retval RP_OK, or what ends the search */
typedef rp_status (*rpsim_residuals)(void *context, const double *x, double *residuals_out);

typedef struct rpsim_least_squares {
    uint32_t rows;
    uint32_t count;    /**< of unknowns, 1 to RPSIM_LEAST_SQUARES_MOST */
    const double *low; /**< [count] bounds; equal ones fix an unknown */
    const double *high;
    double step; /**< of differences */
    double pull; /**< weight of each unknown's square: what the residuals leave open stays near 0 */
    double enough; /**< a sum of squares at which the search may end */
    rpsim_residuals residuals;
    void *context;
} rpsim_least_squares;

/**
 * Searches from x on.
 * @param x [count], a start within the bounds; then the least sum of squares that was found
 * @param sum_out of the squares of the residuals at x, without the pull
 * @retval RP_OK, RP_NO_MEMORY, what a residual returned
 */
rp_status rpsim_least_squares_run(const rpsim_least_squares *problem, double *x, double *sum_out);

/**
 * Standard deviations of unknowns at x whose residuals have the deviation 1, the bounds aside.
 * @param deviation_out [count]; 0 of those that are fixed, INFINITY where the residuals do not tell
 * @retval RP_OK, RP_NO_MEMORY, what a residual returned
 */
rp_status rpsim_least_squares_deviation(const rpsim_least_squares *problem, const double *x,
                                        double *deviation_out);
