/** @file options.h  rpdiff's command line as a value. */
#pragma once

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum rpdiff_action {
    RPDIFF_ACTION_COMPARE,
    RPDIFF_ACTION_HELP,
    RPDIFF_ACTION_VERSION,
} rpdiff_action;

typedef enum rpdiff_format {
    RPDIFF_FORMAT_TABLE,
    RPDIFF_FORMAT_JSON,
    RPDIFF_FORMAT_CSV, /**< with a store only */
} rpdiff_format;

/** Text is borrowed from argv; NULL means "not given". */
typedef struct rpdiff_options {
    rpdiff_action action;
    const char *predicted; /**< a timeline's file, or a store; not NULL with COMPARE */
    const char *measured;  /**< NULL: `predicted` is a store, whose runs are compared */
    rpdiff_format format;
    uint32_t worst; /**< ops to name */
    const char *trace_out;
    const char *gantt_out;
} rpdiff_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @retval RP_OK, RP_USAGE (logged)
 */
rp_status rpdiff_options_parse(int argc, char **argv, rpdiff_options *options_out);

/** Prints --help to stdout. */
void rpdiff_options_help(void);
