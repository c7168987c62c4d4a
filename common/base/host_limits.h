/** @file host_limits.h  Resources that this machine, or this process's control group, has left.
 *
 * Linux grants memory that it does not have and kills the process that touches it. Work that needs
 * a lot asks here first.
 */
#pragma once

#include "common/base/reason.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * Bytes that can be had: MemAvailable of /proc/meminfo (Linux's estimate, reclaimable caches
 * included), and at most what the limit of the process's control group (version 2), of the groups
 * above it, and of its address space leave.
 * @param root put before all paths; "" for this machine, a folder in tests
 * @return UINT64_MAX where nothing is known
 */
uint64_t rp_host_memory_available(const char *root);

/** @return bytes of this machine's memory, used or not. */
double rp_host_memory_physical(void);

/**
 * @param what it is for, for the message
 * @retval RP_OK, RP_NO_MEMORY (logged, with both numbers)
 */
rp_status rp_host_memory_require(uint64_t bytes, const char *what);

/**
 * Refuses what is known to be too large before it is begun; what takes less than 64 MB is not
 * looked at.
 * @param bytes an estimate
 * @param what would take them, for the message
 * @param valid what the user would have to lower, for the message
 * @retval RP_OK, RP_USAGE (logged, with need and limit)
 */
rp_status rp_host_memory_allow(double bytes, const char *what, const char *valid,
                               rp_reason *reason);

/**
 * @param root as above
 * @return true where the process's control group (version 2 or 1), or one above it, has a limit
 * of processor time: what a thread uses is then taken from all others
 */
bool rp_host_processors_limited(const char *root);
