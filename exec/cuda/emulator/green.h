/** @file green.h  The emulated devices, and green contexts of the first one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/** The device, and the CUDA version of its driver, as in cudaDriverGetVersion. */
typedef struct emulated_device {
    unsigned int sm_count;
    unsigned int together; /**< multiprocessors of a group that is scheduled together */
    unsigned int alone;    /**< of a group where that is given up */
    unsigned int driver_version;
    unsigned int most; /**< groups of more than `together`, by the topology; 0: all */
} emulated_device;

/** The emulated device; a test may set it while there are no green contexts. */
extern emulated_device emulator_device;

/** @return devices that there are, 1 to 8: EMULATED_DEVICES of the environment, 1 without. All are
 * equal, and none reaches another's memory. */
int emulator_devices(void);

/** Makes a device's own context the thread's current one. @return true where it exists */
bool emulator_use_device(int device);

/** @return the home of the thread's current context */
unsigned int *emulator_home(void);

/** @return the same of its device's own context, also in a green one */
unsigned int *emulator_device_home(void);

/** @return green contexts that there are */
unsigned int emulator_green_contexts(void);
#ifdef __cplusplus
}
#endif
