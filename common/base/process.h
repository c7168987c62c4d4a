/** @file process.h  This program's folder, and running other programs without a shell. */
#pragma once

#include "common/base/status.h"

#include <stddef.h>
#include <stdio.h>

/**
 * Folder of the running program, links resolved.
 * @return a path that is valid as long as the process; NULL: the system does not tell (no /proc)
 */
const char *rp_process_folder(void);

/** A child process to run to its end. */
typedef struct rp_process {
    const char *const *argv; /**< NULL-terminated; argv[0] is looked up in PATH */
    const char *package;     /**< package to install if the program is missing, for the message */
    FILE *input;  /**< file for its stdin, flushed first and read from the beginning; NULL: empty */
    FILE *output; /**< stream that this process copies its stdout to; a failed write sets the
                     stream's error indicator; NULL: stdout is dropped */
} rp_process;

/**
 * Runs the process, copies its stdout and waits for it. Programs such as gnuplot end with 0 on a
 * full disk, so they never write files themselves.
 * @retval RP_OK the process exited with status 0
 * @retval RP_TOOL the program is not installed, or it failed; logged with the beginning of its
 * stderr
 * @retval RP_IO no pipe, no process or no temporary file could be made, or the input could not be
 *         flushed (logged)
 */
rp_status rp_process_run(const rp_process *process);
