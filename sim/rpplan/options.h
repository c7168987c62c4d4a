/** @file options.h  rpplan's command line as a value. */
#pragma once

#include "common/cli/options.h"
#include "common/planner/planner.h"

/** Text is borrowed from argv; 0 and NULL mean "not given". */
typedef struct rpplan_options {
    rp_options common;    /**< first, as rp_options_parse wants it */
    const char *instance; /**< a JSON file, "-" for stdin; then nothing of the rest is given */
    const char *model;
    const char *platform;
    const char *costs;
    uint32_t gpus;
    rp_plan_mode mode;
    uint32_t tolerance_num;
    uint32_t tolerance_den;
    bool limit_given;
    uint64_t memory_limit; /**< bytes, or RP_PLAN_UNLIMITED */
    bool json;
} rpplan_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @param options_out set by the callee, with defaults for mode and tolerance
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpplan_options_parse(int argc, char **argv, rp_arena *arena, rpplan_options *options_out);

/** Rows of all options, for rp_options_answer. */
extern const rp_options_program rpplan_command_line;
