/** @file chrome_trace.h  A timeline as a Chrome/Perfetto JSON trace (ui.perfetto.dev,
 * chrome://tracing).
 *
 * One process per GPU (pid = GPU index) and one for the host (pid 1000, or the next thousand above
 * the GPUs), one thread per queue; one X slice per op, one flow arrow per data wait, counters of
 * the live bytes of each GPU's buffers (of live buffers where their sizes are unknown), one instant
 * per iteration. Times are exact: microseconds with 6 decimals. Events are sorted by time.
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

/** Where a trace comes from: schedule, model, seed, version, … */
typedef struct rp_trace_fact {
    const char *key;
    const char *value; /**< NULL gives null */
} rp_trace_fact;

/** One of several timelines on one trace. */
typedef struct rp_trace_part {
    const rp_timeline *timeline;
    const char *name; /**< before the names of its processes ("measured GPU 0"), at most 40 bytes;
                           NULL: nothing */
} rp_trace_part;

/**
 * Writes several timelines on one trace, all beginning at 0: one after the other in the file, each
 * with processes of its own.
 * @retval as rp_trace_write
 */
rp_status rp_trace_write_parts(const rp_trace_part *parts, size_t part_count,
                               const rp_trace_fact *facts, size_t fact_count, FILE *stream);

/**
 * Writes the trace.
 * @param timeline start <= end for every op; ops of a queue one after the other
 * @param facts written as "otherData", keys distinct; may be NULL when fact_count is 0
 * @param stream borrowed; not closed; its errors stay with it: rp_output_commit names the file
 * @retval RP_OK
 * @retval RP_NO_MEMORY
 */
rp_status rp_trace_write(const rp_timeline *timeline, const rp_trace_fact *facts, size_t fact_count,
                         FILE *stream);
