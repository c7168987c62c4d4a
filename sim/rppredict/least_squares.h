/** @file least_squares.h  Nonlinear least squares of a few unknowns within bounds.
 *
 * Levenberg's and Marquardt's steps (Marquardt, SIAM Journal 11, 1963), cut to the bounds. The
 * derivatives are differences. As long as steps succeed, Broyden's rule keeps them up to date
 * (Mathematics of Computation 19, 1965), because a residual may take a whole simulation.
 */
#pragma once

#include "common/base/mem.h"

#include <stdbool.h>
#include <stdint.h>

/** Largest number of unknowns. */
#define RPSIM_LEAST_SQUARES_MOST 16u

/** Computes residuals. @param residuals_out [rows] at x. @retval RP_OK; any other status ends the
 * search */
typedef rp_status (*rpsim_residuals)(void *context, const double *x, double *residuals_out);

typedef struct rpsim_least_squares {
    uint32_t rows;
    uint32_t count;    /**< number of unknowns, 1 to RPSIM_LEAST_SQUARES_MOST */
    const double *low; /**< [count] bounds; equal bounds fix an unknown */
    const double *high;
    double step;   /**< step of the differences */
    double pull;   /**< weight of each unknown's square: unknowns that the residuals leave open stay
                      near 0 */
    double enough; /**< sum of squares at which the search may end */
    rpsim_residuals residuals;
    void *context;
} rpsim_least_squares;

/**
 * Minimises the sum of squares.
 * @param x [count] a start within the bounds; receives the best point that was found
 * @param sum_out sum of the squares of the residuals at x, without the pull
 * @retval RP_OK, RP_NO_MEMORY, the status of a residual
 */
rp_status rpsim_least_squares_run(const rpsim_least_squares *problem, double *x, double *sum_out);

/**
 * Gives the standard deviations of the unknowns at x if the residuals have the deviation 1. Bounds
 * are ignored.
 * @param deviation_out [count]; 0 for fixed unknowns, INFINITY if the residuals do not determine
 * the unknown
 * @retval RP_OK, RP_NO_MEMORY, the status of a residual
 */
rp_status rpsim_least_squares_deviation(const rpsim_least_squares *problem, const double *x,
                                        double *deviation_out);
