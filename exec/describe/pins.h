/** @file pins.h  Pinned memory and copies of the first GPU, without CUDA at build time.
 *
 * libcuda.so.1 is opened by rpexec_pins_open. Without it no memory is pinned.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** Rates of copies between the first GPU and pinned memory, one direction at a time, by CUDA's
 * driver; the median of five copies of 256 MiB. 0: not measured. */
typedef struct rpexec_gpu_copies {
    double up_Bps, down_Bps;
} rpexec_gpu_copies;

/** Memory that the driver has pinned. */
typedef struct rpexec_pins rpexec_pins;

/**
 * Opens the driver and a context on the first GPU.
 * @return NULL if there is no driver or no GPU
 */
rpexec_pins *rpexec_pins_open(void);

/** Pins memory for copies. @return false: the driver refuses, and the memory stays as it is. */
bool rpexec_pins_add(rpexec_pins *pins, void *memory, size_t bytes);

/** Unpins memory. @param pins may be NULL */
void rpexec_pins_remove(rpexec_pins *pins, void *memory);

/** Measures copies. @return zeroes if the driver refuses */
rpexec_gpu_copies rpexec_pins_copies(rpexec_pins *pins);

/** Releases the context and closes the driver. @param pins may be NULL */
void rpexec_pins_close(rpexec_pins *pins);
