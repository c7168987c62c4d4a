/** @file gpus.h  NVIDIA GPUs as their driver describes them, without CUDA at build time.
 *
 * libnvidia-ml.so.1 (NVML) is opened when it is asked for. Where it is not there, there is no GPU
 * to describe.
 */
#pragma once

#include <stdint.h>

/** Most GPUs that are looked at. */
#define RP_GPUS_MOST 64u

/** Facts of NVML; 0: it does not say. */
typedef struct rp_gpu_facts {
    char name[96];
    char bus[32]; /**< domain:bus:device.function, lower case, domain of four digits */
    double memory_bytes;
    uint32_t pcie_gen, pcie_lanes; /**< of its link, the most that both ends can do */
    double memory_gb_per_s;        /**< nominal: bus width and highest clock */
    uint32_t cores;                /**< of all multiprocessors */
    uint32_t clock_mhz;            /**< highest of the multiprocessors */
    uint32_t major, minor;         /**< compute capability */
    uint32_t nvlinks;              /**< that are up */
} rp_gpu_facts;

/**
 * Asks NVML.
 * @param gpus_out [RP_GPUS_MOST]
 * @param why_out why there are none; static, or of the dynamic linker until its next call
 * @return how many
 */
uint32_t rp_gpus_read(rp_gpu_facts *gpus_out, const char **why_out);
