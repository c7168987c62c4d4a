/** @file emulator.h  Settings of the emulator for tests. */
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
/** Makes blocks and threads take turns from the last to the first from now on, or as usual. */
void emulator_reverse(bool reverse);

/** @return true if ThreadSanitizer follows the threads: it finds races by barriers, not by the
 *         order of turns. */
bool emulator_finds_races(void);
#ifdef __cplusplus
}
#endif
