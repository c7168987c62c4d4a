/** @file gpus.h  NVIDIA GPUs as their driver describes them, without CUDA at build time.
 *
 * libnvidia-ml.so.1 (NVML) and libcuda.so.1 are opened when they are asked for. Where they are not
 * there, there is no GPU to describe, and no memory to pin.
 */
#pragma once

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Most GPUs that are looked at. */
#define RPEXEC_GPUS_MOST 64u

/** Facts of NVML; 0: it does not say. */
typedef struct rpexec_gpu_facts {
    char name[96];
    char bus[32]; /**< domain:bus:device.function, lower case, domain of four digits */
    double memory_bytes;
    uint32_t pcie_gen, pcie_lanes; /**< of its link, the most that both ends can do */
    double memory_gb_per_s;        /**< nominal: bus width and highest clock */
    uint32_t cores;                /**< of all multiprocessors */
    uint32_t clock_mhz;            /**< highest of the multiprocessors */
    uint32_t major, minor;         /**< compute capability */
    uint32_t nvlinks;              /**< that are up */
} rpexec_gpu_facts;

/**
 * Asks NVML.
 * @param gpus_out [RPEXEC_GPUS_MOST]
 * @param why_out why there are none; static, or of the dynamic linker until its next call
 * @return how many
 */
uint32_t rpexec_gpus_read(rpexec_gpu_facts *gpus_out, const char **why_out);

/** Rates of copies between the first GPU and pinned memory, one direction at a time, by CUDA's
 * driver; the median of five copies of 256 MiB. 0: not measured. */
typedef struct rpexec_gpu_copies {
    double up_Bps, down_Bps;
} rpexec_gpu_copies;

/** Memory that the driver has pinned. */
typedef struct rpexec_pins rpexec_pins;

/**
 * Opens the driver and a context on the first GPU.
 * @return NULL where there is no driver or no GPU
 */
rpexec_pins *rpexec_pins_open(void);

/** Pins memory for copies. @return false: the driver refuses, and it stays as it is. */
bool rpexec_pins_add(rpexec_pins *pins, void *memory, size_t bytes);

/** Lets memory go that was pinned. @param pins may be NULL */
void rpexec_pins_remove(rpexec_pins *pins, void *memory);

/** Measures copies. @return zeroes where the driver refuses */
rpexec_gpu_copies rpexec_pins_copies(rpexec_pins *pins);

/** Gives the context back. @param pins may be NULL */
void rpexec_pins_close(rpexec_pins *pins);
