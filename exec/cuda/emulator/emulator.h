/** @file emulator.h  What a test says to the emulator. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
/** From now on blocks and threads take their turns from the last to the first, or as usual. */
void emulator_reverse(bool reverse);
#ifdef __cplusplus
}
#endif
