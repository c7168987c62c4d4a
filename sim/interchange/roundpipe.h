/** @file roundpipe.h  Times that a user of the RoundPipe library already has: the lines of its
 * ModelTimer, and its ranges in a profiler's trace (formats.md 2.3).
 *
 * The library numbers the layers in the order in which it gets them. Its ready-made wrappers give
 * it the embedding first, then the blocks, then norm, head and loss as a single layer. */
#pragma once

#include "sim/interchange/kineto.h"

/**
 * Reads a range's name: anything, then `L[i]B[j]Fwd`, `L[i]B[j]Re`, `L[i]B[j]Bwd` or, for a group's
 * backward, `L[first, last]B[j]Bwd`.
 * @param range_out all set except the time; for a group pair_stage is the last layer
 * @return the last layer named; UINT32_MAX if the name is no such range
 */
uint32_t rpsim_roundpipe_range(const char *name, rpsim_range *range_out);

/**
 * Shares the backwards of groups among their layers, in proportion to the medians of the layers'
 * recomputes, or of their forwards if there are no recomputes, as the library's timer does.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_roundpipe_share(rpsim_ranges *ranges, rp_arena *arena);

/**
 * Reads the lines that ModelTimer.VERBOSE prints (timer.py of RoundPipe 0.1.1), `Layer 3 re new
 * record: 1.234 ms new estimate: 1.300 ms`; a log's other lines are skipped. Each update of an
 * action prints all layers in order. As in the library, the first update of an action does not
 * count, unless it is the only update.
 * @param name name of the file, for messages; must outlive `ranges`
 * @param ranges zeroed; freed by rpsim_ranges_fini
 * @retval RP_OK, RP_INPUT (no such line, or a malformed or misplaced line: "name:line: cause"),
 *         RP_NO_MEMORY
 */
rp_status rpsim_roundpipe_timer(const char *name, const char *text, size_t length,
                                rpsim_ranges *ranges);

/**
 * Merges the first layer into the second, with which it runs, and makes the last layer the head.
 * @retval RP_OK, RP_INPUT (fewer than three layers; logged)
 */
rp_status rpsim_roundpipe_ends(const rpsim_ranges *ranges, rp_costs *costs);
