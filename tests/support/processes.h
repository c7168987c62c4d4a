/** @file processes.h  Processes of a run as children of a test, without MPI: they may be stopped,
 * killed, and put into networks of their own. */
#pragma once

#include "exec/processes/processes.h"

#include <sys/types.h>

#define RP_TEST_PROCESSES 4u

/** A run of several processes. */
typedef struct rp_test_processes {
    uint32_t count;
    pid_t children[RP_TEST_PROCESSES];
    struct rp_test_shared *shared;
    const char *folder; /**< folder of the files with their messages */
    double began_s;
} rp_test_processes;

/** End of a process. */
typedef struct rp_test_process_end {
    int status;           /**< exit status, or minus the signal that ended the process */
    double seconds;       /**< from the start to the end */
    const char *messages; /**< text on stderr; in the arena of rp_test_tool_begin */
} rp_test_process_end;

/** Work of a process. @return the exit status of the process */
typedef int (*rp_test_process_work)(const rpexec_launch *launch, void *context);

/**
 * Starts processes. To be called between rp_test_tool_begin and rp_test_tool_end.
 * @param held in their last exchange, when they listen, they wait for rp_test_processes_release
 */
void rp_test_processes_start(uint32_t count, rp_test_process_work work, void *context, bool held,
                             rp_test_processes *processes_out);

/** Waits until all processes listen. */
void rp_test_processes_await(rp_test_processes *processes);

void rp_test_processes_release(rp_test_processes *processes);

/** To be called in a child: the other processes no longer wait for its part of an exchange. */
void rp_test_process_leaves(void);

/** @return the TCP port on which a child listens, according to the kernel; 0: none @param ip_out
 * its address */
uint16_t rp_test_process_port(const rp_test_processes *processes, uint32_t rank, uint32_t *ip_out);

/**
 * Waits for all processes. A process that runs for longer than `limit_s` since the start is killed,
 * as are stopped processes when no other process is left.
 * @param ends_out [count]
 */
void rp_test_processes_wait(rp_test_processes *processes, double limit_s,
                            rp_test_process_end *ends_out);

/** @return seconds of a clock that is never set */
double rp_test_now_s(void);

/** @return true if any of the processes has written `text` */
bool rp_test_processes_said(const rp_test_process_end *ends, uint32_t count, const char *text);
