/** @file rates.h  What threads of this machine do alone and together: rates of the emulation that a
 * run need not show (record.h). Everything is judged by processor time, so that other processes
 * that take some do not count; those outside of a virtual machine do, and so what all do together
 * is measured more than once. Takes some 0.8 s, where it differs or is little some 3 s.
 */
#pragma once

#include "common/base/status.h"
#include "exec/operators/dtype.h"

#include <stdint.h>

typedef struct rpexec_host_rates {
    double cores;          /**< work of all threads together over that of one alone, in matrix
                                products: below the number of processors where they are
                                hyperthreads, or share caches, memory and power */
    uint32_t threads;      /**< processors that this process may use */
    double flops;          /**< FLOP/s of one thread alone, in the same products */
    double copy_Bps;       /**< of one thread: memcpy of what no cache has */
    double collective_Bps; /**< of one rank: half gathered, half summed in fp32 */
    double update_Bps;     /**< a GPU's Adam on one thread while all threads do the same, in traffic
                                of RP_GPU_ADAM_BYTES per parameter */
    /* Per parameter, one thread while all do the same: */
    double collect_s; /**< a gradient becomes fp32 */
    double step_s;    /**< Adam of the host */
    double refresh_s; /**< a master becomes a working weight */
} rpexec_host_rates;

/**
 * @param dtype of gradients and working weights
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_host_measure(rp_dtype dtype, rpexec_host_rates *rates_out);

/** Most measurements of rpexec_host_settle. */
#define RPEXEC_SETTLE_MOST 7u

/**
 * Speed of all threads together, which a stretch of bad luck can spoil: two measurements where
 * they agree and are near to `all`, otherwise RPEXEC_SETTLE_MOST of them, apart in time.
 * @param measure called with `context`, some 0.1 s or more
 * @param between called with `context` after the first: what else there is to measure
 * @param all the most that there can be
 * @return the median
 */
double rpexec_host_settle(double (*measure)(void *context), void (*between)(void *context),
                          double all, void *context);

/** @return the rate of the host's COLLECT, OPTIMIZER and REFRESH together, in the traffic that
 * programs say (common/lower/lower.h). @param threads that work on them, from 1 on */
double rpexec_host_Bps(const rpexec_host_rates *rates, uint32_t threads);
