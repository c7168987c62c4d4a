/** @file timeline_rows.h  Timelines read from tables that describe each op: CSV files
 * (timeline_csv.h) and the store's ops. Their program is reconstructed: its queues and ops are the
 * table's; waits, layers and buffers are unknown. Such a timeline can be drawn and measured, but
 * its program cannot be run.
 */
#pragma once

#include "common/timeline/timeline.h"

/** An op as a row of a table. */
typedef struct rp_timeline_row {
    rp_op op;         /**< without waits */
    uint16_t queue;   /**< rp_queue_kind */
    uint16_t gpu;     /**< 0 for host queues */
    int64_t start_ps; /**< not negative */
    int64_t end_ps;   /**< not before start_ps */
} rp_timeline_row;

/** A timeline and its program, which it owns. */
typedef struct rp_read_timeline {
    rp_program *program;
    rp_timeline *timeline;
} rp_read_timeline;

/**
 * Makes a timeline of rows.
 * @param name origin of the rows, for messages
 * @param rows in the order of op numbers, queue after queue
 * @param out released by rp_read_timeline_fini, also after a failure
 * @retval RP_OK, RP_INPUT (no rows, or ops of a queue overlap; logged), RP_NO_MEMORY
 */
rp_status rp_timeline_of_rows(const char *name, const rp_timeline_row *rows, uint32_t count,
                              rp_read_timeline *out);

/**
 * Reads a CSV file of timeline_csv.h without its program.
 * @retval RP_OK, RP_INPUT (logged with line and column), RP_IO, RP_NO_MEMORY
 */
rp_status rp_timeline_read_file(const char *path, rp_read_timeline *out);

/** Fills a row's queue kind and op kind from their names; false: unknown kind. */
bool rp_timeline_row_kinds(const char *queue, const char *kind, rp_timeline_row *row);

/** Zeroes are allowed. */
void rp_read_timeline_fini(rp_read_timeline *read);
