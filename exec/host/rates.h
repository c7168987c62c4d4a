/** @file rates.h  What threads of this machine do alone and together: rates of the emulation that a
 * run need not show (record.h). Everything is judged by processor time, so that other processes
 * that take some do not count. Takes some 0.3 s.
 */
#pragma once

#include "common/status.h"

#include <stdint.h>

typedef struct rpexec_host_rates {
    double cores;          /**< what all threads do together over what one does alone, in matrix
                                products: below the number of processors where they are
                                hyperthreads, or share caches, memory and power */
    uint32_t threads;      /**< processors that this process may use */
    double copy_Bps;       /**< of one thread: memcpy of what no cache has */
    double collective_Bps; /**< of one rank: half gathered, half summed in fp32 */
    double update_Bps;     /**< Adam on one thread while all threads do the same, in traffic of
                                RP_GPU_ADAM_BYTES per parameter */
} rpexec_host_rates;

/** @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_host_measure(rpexec_host_rates *rates_out);
