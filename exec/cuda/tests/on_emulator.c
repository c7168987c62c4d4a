/* The test's device is the emulator. */
#include "exec/cuda/cublas.h"
#include "exec/cuda/emulator/emulator.h"
#include "exec/cuda/tests/trial.h"

const char *trial_device = "emulator";

void trial_reverse(bool reverse)
{
    emulator_reverse(reverse);
}

bool trial_goes_by_barriers(void)
{
    return emulator_finds_races();
}

bool trial_is_fast(void)
{
    return false;
}
