/** @file gpus.h  NVIDIA GPUs as their driver describes them, without CUDA at build time.
 *
 * libnvidia-ml.so.1 (NVML) is opened by each call. A machine without that library has no GPU to
 * describe.
 */
#pragma once

#include <stdint.h>

/** Most GPUs that are looked at. */
#define RP_GPUS_MOST 64u

/** Facts as NVML reports them; 0: NVML does not report it. */
typedef struct rp_gpu_facts {
    char name[96];
    char bus[32]; /**< domain:bus:device.function, lower case, domain of four digits */
    double memory_bytes;
    uint32_t pcie_gen, pcie_lanes; /**< of the GPU's link, the most that both its ends can do */
    double memory_gb_per_s;        /**< nominal: bus width and highest clock */
    uint32_t cores;                /**< cores of all multiprocessors together */
    uint32_t clock_mhz;            /**< highest clock of the multiprocessors */
    uint32_t major, minor;         /**< compute capability */
    uint32_t nvlinks;              /**< number of NVLinks that are up */
} rp_gpu_facts;

/**
 * Asks NVML.
 * @param gpus_out [RP_GPUS_MOST]
 * @param why_out reason why there are no GPUs; static, or the dynamic linker's until its next call
 * @return number of GPUs
 */
uint32_t rp_gpus_read(rp_gpu_facts *gpus_out, const char **why_out);
