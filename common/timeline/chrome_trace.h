/** @file chrome_trace.h  A timeline as a Chrome/Perfetto JSON trace (ui.perfetto.dev,
 * chrome://tracing).
 *
 * Each GPU is a process (pid = GPU index), and so is the host (pid 1000, or the next thousand above
 * the GPUs); each queue is a thread. Each op gives an X slice, each data wait a flow arrow, each
 * iteration an instant event; counters show the live bytes of each GPU's buffers (the number of
 * live buffers if sizes are unknown). Times are exact: microseconds with 6 decimals. Events are
 * sorted by time.
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

/** A fact about the origin of a trace: schedule, model, seed, version, … */
typedef struct rp_trace_fact {
    const char *key;
    const char *value; /**< NULL gives null */
} rp_trace_fact;

/** A timeline of a trace that has several. */
typedef struct rp_trace_part {
    const rp_timeline *timeline;
    const char *name; /**< prefix of the names of its processes ("measured GPU 0"), at most 40
                         bytes; NULL: none */
} rp_trace_part;

/**
 * Writes several timelines to a trace, all beginning at 0: in sequence in the file, each with its
 * own processes.
 * @retval as rp_trace_write
 */
rp_status rp_trace_write_parts(const rp_trace_part *parts, size_t part_count,
                               const rp_trace_fact *facts, size_t fact_count, FILE *stream);

/**
 * Writes the trace.
 * @param timeline start <= end for every op; ops of a queue do not overlap
 * @param facts written as "otherData", keys distinct; may be NULL when fact_count is 0
 * @param stream borrowed; not closed; its errors stay with it: rp_output_commit names the file
 * @retval RP_OK
 * @retval RP_NO_MEMORY
 */
rp_status rp_trace_write(const rp_timeline *timeline, const rp_trace_fact *facts, size_t fact_count,
                         FILE *stream);
