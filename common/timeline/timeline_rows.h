/** @file timeline_rows.h  Timelines read from tables that say of each op what it was: CSV files
 * (timeline_csv.h) and the store's ops. The program behind them is made up: its queues and ops are
 * the table's, waits, layers and buffers are unknown. It can be drawn and measured, not run.
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

/** A timeline with the program it owns. */
typedef struct rp_read_timeline {
    rp_program *program;
    rp_timeline *timeline;
} rp_read_timeline;

/**
 * Makes a timeline of rows.
 * @param name where they come from, for messages
 * @param rows in the order of op numbers, queue after queue
 * @param out rp_read_timeline_fini, also after a failure
 * @retval RP_OK, RP_INPUT (no rows, or ops of a queue overlap; logged), RP_NO_MEMORY
 */
rp_status rp_timeline_of_rows(const char *name, const rp_timeline_row *rows, uint32_t count,
                              rp_read_timeline *out);

/**
 * Reads a CSV file of timeline_csv.h on its own.
 * @retval RP_OK, RP_INPUT (logged with line and column), RP_IO, RP_NO_MEMORY
 */
rp_status rp_timeline_read_file(const char *path, rp_read_timeline *out);

/** Fills a row's queue kind and op kind from their names; false: there is no such kind. */
bool rp_timeline_row_kinds(const char *queue, const char *kind, rp_timeline_row *row);

/** Zeroes are allowed. */
void rp_read_timeline_fini(rp_read_timeline *read);
