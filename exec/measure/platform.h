/** @file platform.h  Makes a platform of rpsim from measurements of a run, or of the machine alone.
 */
#pragma once

#include "common/inputs/write/platform_write.h"
#include "exec/host/rates.h"
#include "exec/measure/calibrate.h"
#include "exec/measure/measure.h"
#include "exec/run/link_machine.h"

/** Measurements from which a platform is made. */
typedef struct rpexec_platform_of {
    const char *backend;           /**< becomes the name of the platform and of the GPU */
    const rpexec_machine *machine; /**< gives the topology; name NULL: none was given */
    uint32_t gpus;                 /**< number of measured GPUs */
    uint32_t sharing_gpus;         /**< number of GPUs that are parts of a single device and share
                                        its link; 0: none */
    uint64_t gpu_bytes;            /**< 0: GPUs are the host's threads */
    bool bound;                    /**< each GPU's thread stays on a core */
    uint32_t optimizer_threads;
    const rpexec_rates *rates; /**< measured in a run; zeroes: there was no run */
    rp_dtype dtype;            /**< storage type of the run */
    const rpexec_host_rates *host;
    const rpexec_link_rates *links; /**< zeroes: none were measured */
    const rpexec_starts *starts;    /**< zeroes: none were measured */
    double memory_Bps;              /**< rate of a GPU's memory (rpexec_calibrate_memory); 0: not
                                         measured */
    double attention_fwd_flops;     /**< FLOP/s of attention by itself; 0: not measured */
    double attention_bwd_flops;
    const rpexec_link_fit *network; /**< NULL or zeroes: there is a single process */
    uint32_t servers;               /**< servers that the network connects */
    double share;                   /**< this process's share of the processors (load.h); 0: all */
} rpexec_platform_of;

/**
 * Makes a platform from measurements. Every key in its list `measured` was measured. For a rate
 * that neither run nor trial has measured, the rate of a single thread is taken if GPUs are threads
 * and a thread does the same work; otherwise it is assumed, with a note that says so, or left out.
 * @param platform_out notes of links are in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_platform_make(const rpexec_platform_of *of, rp_arena *arena,
                               rp_noted_platform *platform_out);
