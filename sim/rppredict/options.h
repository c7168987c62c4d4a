/** @file options.h  rppredict's command line as a value. */
#pragma once

#include "common/cli/options.h"

/** Server of the published runs. */
#define RPPREDICT_PLATFORM "rtx4090x8"

/** Text is borrowed from argv; NULL means "not given". */
typedef struct rppredict_options {
    rp_options common; /**< first, as rp_options_parse wants it */
    const char *cells;
    const char *fit;
    const char *platform;
    const char **costs;
    uint32_t costs_count;
    const char **constants;
    uint32_t constant_count;
    const char *platform_out;
    uint32_t draws;
    bool markdown;
} rppredict_options;

/** @return whether a table of runs is given in place of the folder of published runs. */
static inline bool rppredict_has_table(const rppredict_options *o)
{
    return o->cells != NULL || o->fit != NULL;
}

/** Rows of all options, for rp_options_parse. */
extern const rp_options_program rppredict_command_line;
