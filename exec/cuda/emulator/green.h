/** @file green.h  Green contexts of the first emulated device. */
#pragma once

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

/** One of a green context's streams is destroyed; NULL, the device's own, is allowed. */
void emulator_green_stream_goes(void *context);

/** @return green contexts that there are */
unsigned int emulator_green_contexts(void);
#ifdef __cplusplus
}
#endif
