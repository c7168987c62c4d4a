/** @file worse.h  The larger of two errors, where NaN is larger than everything. */
#pragma once

#include <math.h>

/** @return `error` where it is larger or NaN, otherwise `worst`; a NaN stays. */
static inline double rp_test_worse(double worst, double error)
{
    return isnan(worst) || error <= worst ? worst : error;
}
