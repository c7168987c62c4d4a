/** @file page.h  The page of --html-out: a run, and its prediction beside it. */
#pragma once

#include "exec/rpexec/artefacts.h"

#include <stdio.h>

/**
 * Writes the page of a run that has left a timeline.
 * @param run `predicted` may be NULL
 * @param arena memory of the page while it is written
 * @param stream borrowed; write errors stay in it
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpexec_page_write(const rpexec_run_made *run, rp_arena *arena, FILE *stream);
