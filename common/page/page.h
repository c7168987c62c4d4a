/** @file page.h  Runs as one HTML file: the answer, tables, and a timeline to look around in.
 *
 * The file needs nothing but a browser: style, script and data are in it, and its content security
 * policy forbids everything else. README.md beside this file describes its parts.
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

/** Of a table that does not belong to one run. */
#define RP_PAGE_ALL_RUNS UINT32_MAX

/** More runs than this are refused by the programs: a browser should load the page at once. */
#define RP_PAGE_MAX_RUNS 64u

/** A table; all text is borrowed, and escaped by the writer. */
typedef struct rp_page_table {
    const char *title;
    const char *note; /**< below the title; NULL: none */
    uint32_t columns;
    uint32_t rows;
    const char *const *headings; /**< [columns] */
    const char *const *cells;    /**< [rows][columns]; NULL is an empty cell */
    uint32_t run;                /**< number of the run that it belongs to, or RP_PAGE_ALL_RUNS */
    bool folded;                 /**< closed until it is clicked */
} rp_page_table;

/** Memory beside that of a program's buffers. All 0: there is none, and no limit is known. */
typedef struct rp_page_memory {
    bool hidden;              /**< it is not modelled: there is no curve */
    uint64_t gpu_fixed_bytes; /**< taken before any buffer */
    double gpu_overhead;      /**< of the allocator, as a fraction of the buffers' bytes */
    uint64_t gpu_bytes;       /**< limit; 0: unknown */
    uint64_t host_fixed_bytes;
    uint64_t host_bytes; /**< limit; 0: unknown */
    /** [gpu_count] bytes that the run takes, which are the page's figure of its memory. Where they
     * are not those of the buffers the curve has no scale: it shows when memory is used. NULL:
     * those of the buffers. */
    const uint64_t *gpu_peaks;
    const char *peaks_are; /**< half a sentence: whose figure that is */
} rp_page_memory;

/** A run; all borrowed. */
typedef struct rp_page_run {
    const char *name;
    const rp_timeline *timeline;
    int64_t hop_ps; /**< time of a data wait at stage fidelity, otherwise 0 */
    rp_page_memory memory;
} rp_page_run;

/** A page; all borrowed. */
typedef struct rp_page {
    const char *title;
    const char *answer;  /**< a sentence or two */
    const char *command; /**< that made it */
    const char *made_by; /**< program and version */
    const rp_page_table *tables;
    uint32_t table_count;
    const rp_page_run *runs; /**< at least one, with ops */
    uint32_t run_count;      /**< up to RP_PAGE_MAX_RUNS */
    uint32_t first;          /**< number of the run that is shown first */
    bool together; /**< from the beginning the second run is on the axis of the first, too */
} rp_page;

/**
 * Writes a text into a page: what HTML has a meaning for as entities; control characters, marks
 * that turn the direction of text and what is no UTF-8 as U+FFFD.
 * @param text NULL: nothing is written
 */
void rp_page_write_text(const char *text, FILE *stream);

/**
 * Writes the page. What each op waited for and the critical path are those of
 * common/timeline/walk.h; of a timeline whose program has no waits (timeline_rows.h) they are left
 * out, and the page says that they are unknown.
 * @param stream borrowed; not closed. Write errors stay in it, for rp_output_commit
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_page_write(const rp_page *page, FILE *stream);
