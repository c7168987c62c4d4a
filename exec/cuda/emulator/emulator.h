/** @file emulator.h  What a test says to the emulator. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
/** From now on blocks and threads take their turns from the last to the first, or as usual. */
void emulator_reverse(bool reverse);

/** @return true where ThreadSanitizer follows the threads: it goes by barriers, not by turns. */
bool emulator_finds_races(void);
#ifdef __cplusplus
}
#endif
