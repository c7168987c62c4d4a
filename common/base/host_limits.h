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
 * Bytes that this process can still get: the least of MemAvailable of /proc/meminfo (Linux's
 * estimate, reclaimable caches included) and the remainders of its limits: of its control group
 * (version 2), of the groups above it, and of its address space.
 * @param root put before all paths; "" for this machine, a folder in tests
 * @return UINT64_MAX if nothing is known
 */
uint64_t rp_host_memory_available(const char *root);

/** @return bytes of this machine's memory, used or not. */
double rp_host_memory_physical(void);

/**
 * @param what use of the memory, for the message
 * @retval RP_OK, RP_NO_MEMORY (logged, with both numbers)
 */
rp_status rp_host_memory_require(uint64_t bytes, const char *what);

/**
 * Refuses work that is known to be too large before it begins; work that takes less than 64 MB is
 * not checked.
 * @param bytes an estimate
 * @param what work that would take the bytes, for the message
 * @param valid valid values, for the message: the settings that the user would have to lower
 * @retval RP_OK, RP_USAGE (given as the reason, with need and limit)
 */
rp_status rp_host_memory_allow(double bytes, const char *what, const char *valid,
                               rp_reason *reason);

/**
 * @param root as rp_host_memory_available has it
 * @return true if the process's control group (version 2 or 1), or a group above it, limits
 * processor time: each thread's time is then taken from all others
 */
bool rp_host_processors_limited(const char *root);
