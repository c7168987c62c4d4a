/** @file list.h  --list: the names that there are, each with what it stands for. */
#pragma once

#include "common/base/mem.h"
#include "sim/rpsim/options_internal.h"

#include <stdio.h>

/**
 * Prints the schedules, or the models, platforms or cost tables of the data folder, as
 * options->list says, in options->format. Files that cannot be read are named with the cause.
 * @retval RP_OK, RP_INPUT (no such folder; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_list_write(const rpsim_options *options, rp_arena *arena, FILE *stream);
