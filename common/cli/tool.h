/** @file tool.h  Steps of every program's main. */
#pragma once

#include "common/base/mem.h"

/**
 * Begins a program: its name stands before messages; closed standard streams are opened on
 * /dev/null so that no output gets their descriptors; a closed reader or a full quota is an error
 * instead of a fatal signal; signals that end the program remove its temporary files (interrupt.h).
 */
void rp_tool_begin(const char *name);

/**
 * Runs a program after rp_tool_begin; a failure to write to standard output is an error, too.
 * @param run the program's work; its memory may come from `arena`
 * @return the exit status for the status of `run` (status.h); 128 + the signal for RP_INTERRUPTED
 */
int rp_tool_main(const char *name, int argc, char **argv,
                 rp_status (*run)(int argc, char **argv, rp_arena *arena));
