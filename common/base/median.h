/** @file median.h  The middle of measured numbers. */
#pragma once

#include <stdint.h>

/** Sorts `values`, ascending. @return their median; for an even count the mean of the middle two; 0
 * for no values */
double rp_median(double *values, uint32_t count);
