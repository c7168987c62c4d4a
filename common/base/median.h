/** @file median.h  The middle of measured numbers. */
#pragma once

#include <stdint.h>

/** Sorts `values`, ascending. @return their median, of an even number the mean of the two in the
 * middle; 0 of none */
double rp_median(double *values, uint32_t count);
