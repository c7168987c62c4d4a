/** @file page.h  Reports for people: a stream whose long lines are wrapped. */
#pragma once

#include "common/base/mem.h"

#include <stdint.h>
#include <stdio.h>

/** A page while it is being written. */
typedef struct rp_page {
    FILE *stream;     /**< stream of the page's text */
    uint32_t columns; /**< width of the reader's terminal, else RP_TABLE_COLUMNS */
    struct rp_page_wrap *wrap;
} rp_page;

/**
 * Begins a page on `out`. A line that is wider than the page continues below, 2 columns right of
 * its beginning, or below its second column if it begins with a label and two or more blanks. Lines
 * that fit are written unchanged.
 * @param out borrowed; the page goes there as it grows
 * @param arena owns the page's memory, except its stream
 * @param page_out ended by rp_page_close
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_page_open(FILE *out, rp_arena *arena, rp_page *page_out);

/** As rp_page_open; in addition, tables of Markdown, whose lines begin with |, become tables of the
 * page's width. */
rp_status rp_page_open_markdown(FILE *out, rp_arena *arena, rp_page *page_out);

/** Writes the rest and ends the page; `out` stays open and has the errors of writing. */
void rp_page_close(rp_page *page);
