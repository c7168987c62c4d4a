/** @file options.h  rpadvise's command line as a value. */
#pragma once

#include "common/cli/options.h"
#include "sim/study/setup.h"

/** Text is borrowed from argv; 0 and NULL mean "not given". Members with a default here are always
 * set: model, platform, max_step_tokens, top and budget. */
typedef struct rpadvise_options {
    rp_options common; /**< first, as rp_options_parse wants it */
    rpsim_setup work;  /**< without models and schedules; its run has the user's decisions */
#define OPTION(members, ...) members;
#define OPTION_OF_WORK(...)
#include "sim/rpadvise/options_rows.inc"
#undef OPTION
#undef OPTION_OF_WORK
} rpadvise_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpadvise_options_parse(int argc, char **argv, rp_arena *arena,
                                 rpadvise_options *options_out);

/** Rows of all options, for rp_options_answer. */
extern const rp_options_program rpadvise_command_line;
