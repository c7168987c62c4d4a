/** @file roundpipe.h  What a user of the RoundPipe library already has: lines of its ModelTimer,
 * and its ranges in a profiler's trace (formats.md 2.3).
 *
 * The library numbers the layers that it was given. Its ready-made wrappers give it the embedding
 * first, then the blocks, then norm, head and loss together.
 */
#pragma once

#include "sim/interchange/kineto.h"

/**
 * Reads a range's name: anything, then `L[i]B[j]Fwd`, `L[i]B[j]Re`, `L[i]B[j]Bwd` or, of a group's
 * backward, `L[first, last]B[j]Bwd`.
 * @param range_out set but for its time; of a group pair_stage is the last layer
 * @return the last layer that it names, UINT32_MAX where the name is no such range
 */
uint32_t rpsim_roundpipe_range(const char *name, rpsim_range *range_out);

/**
 * Shares the backwards of groups among their layers, in proportion to the medians of the layers'
 * recomputes, of their forwards where there are none: as the library's timer does.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_roundpipe_share(rpsim_ranges *ranges, rp_arena *arena);

/**
 * Reads the lines that ModelTimer.VERBOSE prints (timer.py of RoundPipe 0.1.1), `Layer 3 re  new
 * record: 1.234 ms  new estimate: 1.300 ms`; a log's other lines are left out. Each update of an
 * action prints all layers in order. The first one of each action does not count, as in the
 * library, unless it is the only one.
 * @param name of the file, for messages; must outlive `ranges`
 * @param ranges zeroed; rpsim_ranges_fini
 * @retval RP_OK, RP_INPUT (no such line, or one that is malformed or out of order: "name:line:
 *         cause"), RP_NO_MEMORY
 */
rp_status rpsim_roundpipe_timer(const char *name, const char *text, size_t length,
                                rpsim_ranges *ranges);

/**
 * Makes the first layer part of the one behind it, which it runs with, and the last the head.
 * @retval RP_OK, RP_INPUT (fewer than three layers; logged)
 */
rp_status rpsim_roundpipe_ends(const rpsim_ranges *ranges, rp_costs *costs);
