/** @file guard.h  How a process that mpirun has started ends without its help: when what has
 * launched it is gone, and in a call that does not return, as MPI's do not where a process is
 * stopped. Of a whole process, for main. */
#pragma once

#include <stdint.h>

/**
 * From now on the end of mpirun, or of whatever has launched this process, is a SIGTERM to it,
 * unless it has noted a signal (interrupt.h). That is the nearest of its parents whose environment
 * has no rank: those of scripts in between have one.
 */
void rpexec_guard_launcher(void);

/**
 * Until rpexec_guard_end: after so many seconds the process exits with 1.
 * @param seconds 0: never
 * @param what should have happened and has not, for the message; kept until then
 */
void rpexec_guard_begin(uint32_t seconds, const char *what);
void rpexec_guard_end(void);
