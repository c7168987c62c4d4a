/** @file options.h  rpplan's command line as a value. */
#pragma once

#include "common/cli/options.h"
#include "common/planner/planner.h"

/** Text is borrowed from argv; 0 and NULL mean "not given". A memory limit of "none" is
 * RP_PLAN_UNLIMITED. With an instance, which is a JSON file or "-", no other input is given. */
typedef struct rpplan_options {
    rp_options common; /**< first, as rp_options_parse wants it */
#define OPTION(members, ...) members;
#include "sim/rpplan/options_rows.inc"
#undef OPTION
} rpplan_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @param options_out set by the callee, with defaults for mode and tolerance
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpplan_options_parse(int argc, char **argv, rp_arena *arena, rpplan_options *options_out);

/** Rows of all options, for rp_options_answer. */
extern const rp_options_program rpplan_command_line;
