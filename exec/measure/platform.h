/** @file platform.h  What is measured as a platform of rpsim: of a run, or of the machine alone.
 */
#pragma once

#include "common/inputs/platform_write.h"
#include "exec/host/rates.h"
#include "exec/measure/calibrate.h"
#include "exec/measure/measure.h"
#include "exec/run/link_machine.h"

/** Measurements that it is made of. */
typedef struct rpexec_platform_of {
    const char *backend;           /**< its name is the platform's and the GPU's */
    const rpexec_machine *machine; /**< whose topology is kept; name NULL: none was given */
    uint32_t gpus;                 /**< that were measured */
    uint32_t sharing_gpus;         /**< that are parts of one device, and share its link; 0: none */
    uint64_t gpu_bytes;            /**< 0: GPUs are the host's threads */
    bool bound;                    /**< GPUs' threads stay on a core each */
    uint32_t optimizer_threads;
    const rpexec_rates *rates; /**< of a run; zeroes: of none */
    rp_dtype dtype;            /**< of it */
    const rpexec_host_rates *host;
    const rpexec_link_rates *links; /**< zeroes: none were measured */
    const rpexec_starts *starts;    /**< likewise */
    double memory_Bps;              /**< of a GPU (rpexec_calibrate_memory); 0: not measured */
    double attention_fwd_flops;     /**< of attention by itself; 0: not measured */
    double attention_bwd_flops;
    const rpexec_link_fit *network; /**< NULL or zeroes: there is one process */
    uint32_t servers;               /**< of the network */
    double share; /**< of the processors, where processes share them (load.h); 0: all */
} rpexec_platform_of;

/**
 * Makes a platform of measurements. Each key of its list `measured` was: rates that neither run nor
 * trial has shown are those that threads have alone, where GPUs are threads and a thread does the
 * same, and otherwise assumed, which their notes say, or left out.
 * @param platform_out notes of links are in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_platform_make(const rpexec_platform_of *of, rp_arena *arena,
                               rp_noted_platform *platform_out);
