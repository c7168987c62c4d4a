/** @file worse.h  The larger of two errors; NaN counts as larger than every number. */
#pragma once

#include <math.h>

/** @return `error` if it is larger or NaN, otherwise `worst`; a NaN stays */
static inline double rp_test_worse(double worst, double error)
{
    return isnan(worst) || error <= worst ? worst : error;
}
