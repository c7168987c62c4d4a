/* The test's device is a GPU. */
#include "exec/cuda/tests/trial.h"

const char *trial_device = "gpu";

void trial_reverse(bool reverse)
{
    (void)reverse; /* a GPU has no choice of the order */
}

bool trial_goes_by_barriers(void)
{
    return false;
}

bool trial_is_fast(void)
{
    return true;
}
