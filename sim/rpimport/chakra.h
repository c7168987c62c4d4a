/** @file chakra.h  rpimport --chakra: reads and runs a job's execution traces. */
#pragma once

#include "sim/rpimport/options.h"

/**
 * Runs the traces of options->chakra and prints the times of each rank.
 * @param stream receives output only if all succeeds
 * @retval RP_OK, RP_INPUT (files or platform; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpimport_chakra(const rpimport_options *options, rp_arena *arena, FILE *stream);
