/** @file tool.h  Steps of every program's main. */
#pragma once

#include "common/base/mem.h"

/**
 * Begins a program: its name stands before messages, standard streams that are closed are opened on
 * /dev/null so that no output gets their descriptors, closed readers and full quotas are errors
 * instead of deaths, and signals that end it remove temporary files (interrupt.h).
 */
void rp_tool_begin(const char *name);

/**
 * Runs a program after rp_tool_begin; what could not be written to standard output is an error,
 * too.
 * @param run what it does; its memory may come from `arena`
 * @return the exit status of what `run` gives (status.h); 128 + the signal for RP_INTERRUPTED
 */
int rp_tool_main(const char *name, int argc, char **argv,
                 rp_status (*run)(int argc, char **argv, rp_arena *arena));
