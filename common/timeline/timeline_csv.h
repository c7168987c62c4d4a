/** @file timeline_csv.h  A timeline as CSV, with a row for each op in the order of op numbers.
 *
 * Columns: op, queue (its kind), gpu (its index, or "host"), kind, stage, microbatch, iteration,
 * start_ps, end_ps. All columns but the times repeat the program, so that the file can be read on
 * its own and a timeline of another program is recognised.
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

/** @return bytes of the longest file that a timeline of `program` can have; longer files need not
 * be read. */
size_t rp_timeline_csv_most_bytes(const rp_program *program);

/** Writes the timeline. Errors of the stream stay with it: rp_output_commit (common/base/text.h)
 * reports them with the file's name. */
void rp_timeline_write_csv(const rp_timeline *timeline, FILE *stream);

/**
 * Reads a file of rp_timeline_write_csv; writing it again gives the same bytes.
 * @param name file name for messages
 * @param text `length` bytes, read by csv.h
 * @param program the program that the timeline belongs to; must outlive it
 * @param timeline_out owned by the caller
 * @retval RP_OK
 * @retval RP_INPUT logged as "name:line: row R, column C: …": other columns, rows missing, twice or
 *         of another program, not a number, an end before its start, an overlap with the op before
 *         it in its queue
 * @retval RP_NO_MEMORY
 */
rp_status rp_timeline_read_csv(const char *name, const char *text, size_t length,
                               const rp_program *program, rp_timeline **timeline_out);
