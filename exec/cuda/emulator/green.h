/** @file green.h  Green contexts of the emulated device. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/** The device, and the CUDA version of its driver, as cudaDriverGetVersion has it. */
typedef struct emulated_device {
    unsigned int sm_count;
    unsigned int together; /**< multiprocessors of a group that is scheduled together */
    unsigned int alone;    /**< of a group where that is given up */
    unsigned int driver_version;
    unsigned int most; /**< groups of more than `together`, as the topology has it; 0: all */
} emulated_device;

/** What is emulated; a test may set it while there are no green contexts. */
extern emulated_device emulator_device;

/** Makes a green context (its `home`) the thread's current one; NULL: the device's own. */
void emulator_enter(unsigned int *home);

/** @return the home of the thread's current context; NULL: the device's own */
const unsigned int *emulator_home(void);

/** @return green contexts that there are */
unsigned int emulator_green_contexts(void);
#ifdef __cplusplus
}
#endif
