/** @file flows.h  rpsim --flows: the ends of given flows on given links (cli.md). */
#pragma once

#include "common/base/mem.h"

#include <stdio.h>

/** Longest duration of a scenario, in seconds. */
#define RPSIM_MAX_FLOWS_S 1e6

/**
 * Solves the scenarios of a JSON file by max-min fair sharing (network.h) and prints the end of
 * each flow. A scenario is an object:
 *
 *     {"name": "two flows",                                optional
 *      "link_capacity_Bps": {"up": 25e9, "down": 25e9},    bytes per second
 *      "flows": [{"id": 0, "route": ["up", "down"], "bytes": 1e9, "start_s": 0.25}, …]}
 *
 * "id" (an integer) defaults to the flow's place, "start_s" to 0. "end_exact_s" of a flow is
 * compared with the result; other keys are documentation. The file holds a scenario, or an object
 * with an array "scenarios".
 *
 * Output: {"flows":[{"id":…,"end_s":…},…]}, with "name" if the scenario has a name, and
 * "max_abs_diff_s" if a flow has "end_exact_s". For a file of scenarios it is {"scenarios":[…]}
 * with such an object for each. Times are seconds with as many digits as are needed to read back
 * the same double (at most 17). Flows end at whole femtoseconds, or at coarser ticks (at most a
 * picosecond) if a scenario takes longer than about an hour.
 *
 * @param path a file, or "-" for stdin
 * @param arena for memory of the results until they are printed
 * @param stream receives the output; nothing after a failure
 * @retval RP_OK, RP_INPUT (cannot be read, no JSON, or breaks a rule; logged with file and line,
 *         or with scenario and flow), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_flows_run(const char *path, rp_arena *arena, FILE *stream);

/**
 * Solves the scenarios in the bytes of such a file.
 * @param name name of the file, for messages
 * @param bytes need not end with a zero byte
 */
rp_status rpsim_flows_solve(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            FILE *stream);
