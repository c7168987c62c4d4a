/** @file page.h  The page of --html-out. */
#pragma once

#include "sim/study/study.h"

#include <stdio.h>

/**
 * Writes the page of a study that has run and kept its timelines, with at most RP_PAGE_MAX_RUNS
 * rows.
 * @param command the command line
 * @param stream borrowed; write errors stay in it
 * @retval RP_OK, RP_NO_MEMORY, RP_INPUT (as rpsim_explain), RP_BROKEN
 */
rp_status rpsim_page_write(const rpsim_study *study, const char *command, FILE *stream);
