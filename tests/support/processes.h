/** @file processes.h  Processes of one run as children of a test, without MPI: they may be stopped,
 * killed, and put into networks of their own. */
#pragma once

#include "exec/processes/processes.h"

#include <sys/types.h>

#define RP_TEST_PROCESSES 4u

/** A run. */
typedef struct rp_test_processes {
    uint32_t count;
    pid_t children[RP_TEST_PROCESSES];
    struct rp_test_shared *shared;
    const char *folder; /**< of the messages */
    double began_s;
} rp_test_processes;

/** End of a process. */
typedef struct rp_test_process_end {
    int status;           /**< exit status; minus the signal that ended it */
    double seconds;       /**< from the start on */
    const char *messages; /**< what it has written to stderr; in the arena of rp_test_tool_begin */
} rp_test_process_end;

/** Work of a process, which ends with what it returns. */
typedef int (*rp_test_process_work)(const rpexec_launch *launch, void *context);

/**
 * Starts processes. Between rp_test_tool_begin and rp_test_tool_end.
 * @param held they wait in their last exchange, when they listen, for rp_test_processes_release
 */
void rp_test_processes_start(uint32_t count, rp_test_process_work work, void *context, bool held,
                             rp_test_processes *processes_out);

/** Waits until all listen. */
void rp_test_processes_await(rp_test_processes *processes);

void rp_test_processes_release(rp_test_processes *processes);

/** In a child: the others do not wait for it to exchange anything. */
void rp_test_process_leaves(void);

/** @return the TCP port that a child listens on, and its address, as the kernel has it; 0: none. */
uint16_t rp_test_process_port(const rp_test_processes *processes, uint32_t rank, uint32_t *ip_out);

/**
 * Waits for all of them. Those that run longer than `limit_s` since the start are killed, as are
 * those that are stopped when no other is left.
 * @param ends_out [count]
 */
void rp_test_processes_wait(rp_test_processes *processes, double limit_s,
                            rp_test_process_end *ends_out);

/** @return seconds of a clock that nobody sets. */
double rp_test_now_s(void);

/** @return a text that any of them has written */
bool rp_test_processes_said(const rp_test_process_end *ends, uint32_t count, const char *text);
