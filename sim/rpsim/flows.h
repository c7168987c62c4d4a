/** @file flows.h  rpsim --flows: given flows on given links, when does each end? (cli.md) */
#pragma once

#include "common/base/mem.h"

#include <stdio.h>

/** Longest time that a scenario may take, in seconds. */
#define RPSIM_MAX_FLOWS_S 1e6

/**
 * Solves the scenarios of a JSON file by max-min fair sharing (network.h) and prints when each flow
 * ends. A scenario is an object:
 *
 *     {"name": "two flows",                                optional
 *      "link_capacity_Bps": {"up": 25e9, "down": 25e9},    bytes per second
 *      "flows": [{"id": 0, "route": ["up", "down"], "bytes": 1e9, "start_s": 0.25}, …]}
 *
 * "id" (an integer) defaults to the flow's place, "start_s" to 0. Other keys are documentation,
 * but "end_exact_s" of a flow is compared with the result. The file holds one scenario, or an
 * object with an array "scenarios".
 *
 * Output: {"flows":[{"id":…,"end_s":…},…]}, with "name" and "max_abs_diff_s" where the scenario has
 * a name and a flow has "end_exact_s"; for a file of scenarios {"scenarios":[…]} of these. Times
 * are seconds with as many digits as it takes to read back the same double (at most 17). Flows end
 * at whole femtoseconds, at coarser ticks (down to picoseconds) where a scenario takes longer than
 * about an hour.
 *
 * @param path a file, or "-" for stdin
 * @param arena for the results, until they are printed
 * @param stream receives the output, nothing on failure
 * @retval RP_OK, RP_INPUT (cannot be read, no JSON, or breaks a rule; logged with file and line,
 *         or with scenario and flow), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_flows_run(const char *path, rp_arena *arena, FILE *stream);

/**
 * The same for the bytes of such a file.
 * @param name of the file, for messages
 * @param bytes need not end with a zero byte
 */
rp_status rpsim_flows_solve(const char *name, const char *bytes, size_t length, rp_arena *arena,
                            FILE *stream);
