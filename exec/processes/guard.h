/** @file guard.h  Ends a process that mpirun has started when its launcher is gone, or when a call
 * does not return, as in MPI when another process is stopped. State of the whole process, for use
 * by main. */
#pragma once

#include <stdint.h>

/**
 * From now on the end of the launcher, such as mpirun, sends SIGTERM to this process, unless it has
 * noted a signal already (interrupt.h). The launcher is the nearest ancestor whose environment has
 * no rank; scripts in between have a rank.
 */
void rpexec_guard_launcher(void);

/**
 * Makes the process exit with 1 after so many seconds, unless rpexec_guard_end comes first.
 * @param seconds 0: never
 * @param the expected event that has not come, for the message; borrowed until rpexec_guard_end
 */
void rpexec_guard_begin(uint32_t seconds, const char *what);
void rpexec_guard_end(void);
