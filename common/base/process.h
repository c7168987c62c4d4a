/** @file process.h  This program's place, and running another one without a shell. */
#pragma once

#include "common/base/status.h"

#include <stddef.h>
#include <stdio.h>

/**
 * Folder of the running program, links resolved.
 * @return a path that lives as long as the process; NULL: the system does not tell (no /proc)
 */
const char *rp_process_folder(void);

/** A child process to run to its end. */
typedef struct rp_process {
    const char *const *argv; /**< NULL-terminated; argv[0] is looked up in PATH */
    const char *package;     /**< to install when it is missing, for the message */
    FILE *input;             /**< its stdin, read from the beginning; flushed before; NULL: empty */
    FILE *output;            /**< takes its stdout, through this process; what cannot be written
                                  sets its error indicator, as with any writer; NULL: dropped */
} rp_process;

/**
 * Runs the process, copies its stdout and waits for it. Programs such as gnuplot end with 0 on a
 * full disk, so they never write files themselves.
 * @retval RP_OK it exited with status 0
 * @retval RP_TOOL it is not installed, or it failed; logged with the beginning of its stderr
 * @retval RP_IO no pipe, no process or no temporary file could be made, or the input could not be
 *         flushed (logged)
 */
rp_status rp_process_run(const rp_process *process);
