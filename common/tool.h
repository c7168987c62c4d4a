/** @file tool.h  What every program's main does. */
#pragma once

#include "common/mem.h"

/**
 * Runs a program: messages get its name, closed readers and full quotas are errors instead of
 * deaths, and what could not be written to standard output is one, too.
 * @param run what it does; its memory may come from `arena`
 * @return the exit status of what `run` gives (status.h)
 */
int rp_tool_main(const char *name, int argc, char **argv,
                 rp_status (*run)(int argc, char **argv, rp_arena *arena));
