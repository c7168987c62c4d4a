/** @file page.h  The page of --html-out: two timelines on one axis, and their errors. */
#pragma once

#include "sim/rpdiff/diff.h"

#include <stdio.h>

/**
 * Writes the page.
 * @param names names of the two files, the predicted timeline first
 * @param command the command line
 * @param arena for memory that the page needs while it is written
 * @param stream borrowed; write errors stay in it
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpsim_diff_page_write(const rpsim_diff *diff, const char *const names[2],
                                const char *command, rp_arena *arena, FILE *stream);
