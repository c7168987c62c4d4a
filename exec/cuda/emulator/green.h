/** @file green.h  Green contexts of the first emulated device. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
/** The device. driver_version is the CUDA version of its driver, as in cudaDriverGetVersion. */
typedef struct emulated_device {
    unsigned int sm_count;
    unsigned int together; /**< multiprocessors of a co-scheduled group */
    unsigned int alone;    /**< multiprocessors of a group without co-scheduling */
    unsigned int driver_version;
    unsigned int most; /**< most groups of more than `together` multiprocessors by the topology; 0:
                            not limited */
} emulated_device;

/** The emulated device; a test may set it while there are no green contexts. */
extern emulated_device emulator_device;

/** Notes that a stream of a green context is destroyed; NULL, the device's own context, is
 * allowed. */
void emulator_green_stream_goes(void *context);

/** @return the number of green contexts */
unsigned int emulator_green_contexts(void);
#ifdef __cplusplus
}
#endif
