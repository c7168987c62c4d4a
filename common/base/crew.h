/** @file crew.h  Independent pieces of work on all cores. */
#pragma once

#include "common/base/status.h"

#include <stdint.h>

#define RP_CREW_MAX_THREADS 256u

/** @return `wanted` threads, or, if `wanted` is 0, one thread for each core that this process may
 * use; at most `jobs` and RP_CREW_MAX_THREADS. */
uint32_t rp_crew_threads(uint32_t wanted, uint32_t jobs);

/** A piece of work; several threads call it at once. @return anything but RP_OK stops the rest.
 */
typedef rp_status (*rp_crew_job)(void *context, uint32_t job);

/**
 * Runs jobs 0 .. jobs - 1, each once, on `threads` threads, the caller's thread included.
 * @param threads 0: as many as this process has cores
 * @retval RP_OK, or the status of the first job that failed
 */
rp_status rp_crew_run(uint32_t threads, uint32_t jobs, rp_crew_job run, void *context);
