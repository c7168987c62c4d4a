/** @file options.h  rpplan's command line as a value. */
#pragma once

#include "common/planner/planner.h"

typedef enum rpplan_action {
    RPPLAN_ACTION_PLAN,
    RPPLAN_ACTION_HELP,
    RPPLAN_ACTION_VERSION,
} rpplan_action;

/** Text is borrowed from argv; 0 and NULL mean "not given". */
typedef struct rpplan_options {
    rpplan_action action;
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
 * @retval RP_OK, RP_USAGE (logged)
 */
rp_status rpplan_options_parse(int argc, char **argv, rpplan_options *options_out);

/** Prints --help to stdout. */
void rpplan_options_help(void);
