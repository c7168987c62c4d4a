/** @file load.h  Other processes' share of the processors while something is measured.
 *
 * The share is the time in which the processors that this process may use were busy or stolen by a
 * hypervisor (/proc/stat, in ticks), less the time that this process used itself (getrusage).
 * Beyond RPEXEC_BUSY_PCT a record is marked as measured beside other processes. The limit is twice
 * the most that an idle machine shows in a second, which a record takes at least; another process
 * on every processor takes about 50 %.
 */
#pragma once

#include "exec/processes/processes.h"

#define RPEXEC_BUSY_PCT 10.0

/** Times when a measurement began. */
typedef struct rpexec_load {
    double busy_s; /**< seconds of the processors since the machine was started; negative: not
                        known */
    double own_s;  /**< seconds of this process */
    double wall_s;
    unsigned processors;
} rpexec_load;

/** @return the times now. */
rpexec_load rpexec_load_begin(void);

/**
 * @return this process's share of the processors that it may use, when processes of the run share
 * them; 1 if each process has its own processors, as mpirun gives them to few processes
 * @param processes NULL: there is a single process
 */
double rpexec_load_share(const rpexec_processes *processes);

/**
 * Gets the time since `begin` of the other processes of the run that share this process's
 * processors: it does not count as other processes' load. All processes call it.
 * @param processes NULL: there is a single process
 * @param tag tag for rpexec_processes_gather
 * @retval RP_OK, RP_BROKEN (a process is gone), RP_NO_MEMORY
 */
rp_status rpexec_load_siblings(const rpexec_load *begin, rpexec_processes *processes, uint64_t tag,
                               double *seconds_out);

/** @return percent of the processors that processes outside the run have used since `begin`; 0 if
 * it is not known or the time is too short to tell. */
double rpexec_load_others_pct(const rpexec_load *begin, double siblings_s);
