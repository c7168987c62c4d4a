/** @file page.h  Reports for people: a stream whose long lines are wrapped. */
#pragma once

#include "common/base/mem.h"

#include <stdint.h>
#include <stdio.h>

/** A page that is being written. */
typedef struct rp_page {
    FILE *stream;     /**< what is written here goes to the page */
    uint32_t columns; /**< width: that of where the page is read, else RP_TABLE_COLUMNS */
    struct rp_page_wrap *wrap;
} rp_page;

/**
 * Begins a page on `out`. Lines that are wider than the page go on below, 2 columns right of where
 * they begin; below the second column where a label and two or more blanks begin them. Lines that
 * fit are written as they are.
 * @param out borrowed; the page goes there as it grows
 * @param arena owns what the page needs, but for its stream
 * @param page_out rp_page_close ends it
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_page_open(FILE *out, rp_arena *arena, rp_page *page_out);

/** As rp_page_open; lines that begin with | are tables of Markdown, and become tables of the page's
 * width. */
rp_status rp_page_open_markdown(FILE *out, rp_arena *arena, rp_page *page_out);

/** Writes what is left and ends the page; `out` stays open and has the errors of writing. */
void rp_page_close(rp_page *page);
