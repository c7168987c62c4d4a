/** @file rates.h  Rates of this machine's threads, alone and together: rates of the emulation that
 * a run need not show (record.h). Everything is measured in processor time, so that other processes
 * do not count; those outside of a virtual machine do, and so the rate of all threads together is
 * measured more than once. This takes some 0.8 s, or some 3 s if the measurements differ or are
 * low.
 */
#pragma once

#include "common/base/status.h"
#include "exec/operators/dtype.h"

#include <stdint.h>

typedef struct rpexec_host_rates {
    double cores;          /**< work of all threads together over the work of a single thread, in
                                matrix products: below the number of processors if they are
                                hyperthreads, or share caches, memory and power */
    uint32_t threads;      /**< processors that this process may use */
    double flops;          /**< FLOP/s of a single thread, in the same products */
    double copy_Bps;       /**< bytes/s of a single thread: memcpy of memory that is in no cache */
    double collective_Bps; /**< bytes/s of a single rank: half gathered, half summed in fp32 */
    double update_Bps;     /**< a GPU's Adam on a thread while all threads do the same, in traffic
                                of RP_GPU_ADAM_BYTES per parameter */
    /* Seconds per parameter, on a thread while all do the same: */
    double collect_s; /**< making a gradient fp32 */
    double step_s;    /**< the host's Adam */
    double refresh_s; /**< making a working weight of a master */
} rpexec_host_rates;

/**
 * @param dtype of gradients and working weights
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_host_measure(rp_dtype dtype, rpexec_host_rates *rates_out);

/** Most measurements of rpexec_host_settle. */
#define RPEXEC_SETTLE_MOST 7u

/**
 * Measures the speed of all threads together, which a stretch of bad luck can spoil: twice if both
 * agree and are near `all`, otherwise RPEXEC_SETTLE_MOST times, apart in time.
 * @param measure called with `context`, some 0.1 s or more
 * @param between called with `context` after the first measurement, for other measurements
 * @param all the highest possible speed
 * @return the median
 */
double rpexec_host_settle(double (*measure)(void *context), void (*between)(void *context),
                          double all, void *context);

/** @return the rate of the host's COLLECT, OPTIMIZER and REFRESH together, in the traffic that
 * programs count (common/lower/lower.h). @param threads number of threads that work on them, from 1
 * on */
double rpexec_host_Bps(const rpexec_host_rates *rates, uint32_t threads);
