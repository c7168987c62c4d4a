/** @file command.h  Carries out a command line of rpadvise. */
#pragma once

#include "sim/rpadvise/options.h"

#include <stdio.h>

/**
 * Searches, writes the answer, and exports its first row if that is asked for.
 * @param options have been read, and ask for a search
 * @param progress shows progress on stderr
 * @param stream receives the answer
 * @param found_out whether anything fits; if not, that is logged and the answer has the nearest run
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged), RP_IO, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpadvise_command_act(const rpadvise_options *options, bool progress, rp_arena *arena,
                               FILE *stream, bool *found_out);
