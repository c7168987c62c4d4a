/** @file load.h  Other processes' share of the processors while something is measured.
 *
 * Of the processors that this process may use, the time that they were busy or stolen by a
 * hypervisor (/proc/stat, in ticks) less what this process used itself (getrusage). Beyond
 * RPEXEC_BUSY_PCT a record is marked and a measured time said to be beside others: half of that is
 * what an idle machine shows at most in the second that a record takes at least, and a process on
 * every processor takes about 50 %.
 */
#pragma once

#include "exec/processes/processes.h"

#define RPEXEC_BUSY_PCT 10.0

/** A beginning. */
typedef struct rpexec_load {
    double busy_s; /**< of the processors, since the machine was started; negative: not known */
    double own_s;  /**< of this process */
    double wall_s;
    unsigned processors;
} rpexec_load;

/** @return now. */
rpexec_load rpexec_load_begin(void);

/**
 * @return of the processors that this process may use, its part where processes of the run share
 * them: 1 where each has its own, as mpirun gives them to few
 * @param processes NULL: there is one process
 */
double rpexec_load_share(const rpexec_processes *processes);

/**
 * Gets the time since `begin` of the run's processes that share this one's processors: they are no
 * others. All processes call it.
 * @param processes NULL: there is one process
 * @param tag as of rpexec_processes_gather
 * @retval RP_OK, RP_BROKEN (a process is gone), RP_NO_MEMORY
 */
rp_status rpexec_load_siblings(const rpexec_load *begin, rpexec_processes *processes, uint64_t tag,
                               double *seconds_out);

/** @return percent of the processors that others than these have used since; 0 where nothing is
 * known or the time is too short to tell. */
double rpexec_load_others_pct(const rpexec_load *begin, double siblings_s);
