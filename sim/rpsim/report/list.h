/** @file list.h  --list: the registered names, each with its main facts. */
#pragma once

#include "common/base/mem.h"
#include "sim/rpsim/report/report.h"

#include <stdio.h>

/**
 * Prints the schedules, or the models, platforms, GPUs or cost tables of the data folder. Files
 * that cannot be read are listed with the cause.
 * @param kind "schedules", "models", "platforms", "gpus", "stacks" or "costs"
 * @retval RP_OK, RP_INPUT (no such folder; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_list_write(const char *kind, rpsim_format format, rp_arena *arena, FILE *stream);
