/** @file page.h  Writes runs as a single HTML file: the answer, tables, and an interactive
 * timeline.
 *
 * The file needs only a browser: style, script and data are in it, and its content security policy
 * forbids everything else. README.md beside this file describes its parts.
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

/** Run number of a table that belongs to all runs. */
#define RP_PAGE_ALL_RUNS UINT32_MAX

/** Most runs of a page: programs refuse more, so that a browser loads the page at once. */
#define RP_PAGE_MAX_RUNS 64u

/** A table; all text is borrowed, and escaped by the writer. */
typedef struct rp_page_table {
    const char *title;
    const char *note; /**< below the title; NULL: none */
    uint32_t columns;
    uint32_t rows;
    const char *const *headings; /**< [columns] */
    const char *const *cells;    /**< [rows][columns]; NULL is an empty cell */
    uint32_t run;                /**< number of the table's run, or RP_PAGE_ALL_RUNS */
    bool folded;                 /**< closed until it is clicked */
} rp_page_table;

/** Memory in addition to a program's buffers. All 0: no such memory, and no known limit. */
typedef struct rp_page_memory {
    bool hidden;              /**< memory is not modelled: there is no curve */
    uint64_t gpu_fixed_bytes; /**< bytes in use before any buffer */
    double gpu_overhead;      /**< overhead of the allocator, as a fraction of the buffers' bytes */
    uint64_t gpu_bytes;       /**< limit; 0: unknown */
    uint64_t host_fixed_bytes;
    uint64_t host_bytes; /**< limit; 0: unknown */
    /** [gpu_count] peak bytes of the run, which the page gives as its memory. If they come from
     * another source than the buffers, the curve has no scale: it only shows when memory is used.
     * NULL: the peaks of the buffers. */
    const uint64_t *gpu_peaks;
    const char *peaks_are; /**< phrase that names the source of gpu_peaks */
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
    const char *command; /**< command line that made the page */
    const char *made_by; /**< program and version */
    const rp_page_table *tables;
    uint32_t table_count;
    const rp_page_run *runs; /**< at least one, with ops */
    uint32_t run_count;      /**< up to RP_PAGE_MAX_RUNS */
    uint32_t first;          /**< number of the run that is shown first */
    bool together;           /**< at first the second run is shown on the axis of the first, too */
} rp_page;

/**
 * Writes a text into a page: characters with a meaning in HTML as entities; control characters,
 * marks that turn the direction of text and invalid UTF-8 as U+FFFD.
 * @param text NULL: nothing is written
 */
void rp_page_write_text(const char *text, FILE *stream);

/**
 * Writes the page. The cause of each op's wait and the critical path come from
 * common/timeline/walk.h. If a timeline's program has no waits (timeline_rows.h) they are left out,
 * and the page says that they are unknown.
 * @param stream borrowed, not closed. Write errors stay in it, for rp_output_commit
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_page_write(const rp_page *page, FILE *stream);
