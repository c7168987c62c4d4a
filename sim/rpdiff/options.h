/** @file options.h  rpdiff's command line as a value. */
#pragma once

#include "common/cli/options.h"

typedef enum rpdiff_format {
    RPDIFF_FORMAT_TABLE,
    RPDIFF_FORMAT_JSON,
    RPDIFF_FORMAT_CSV, /**< only with a store */
} rpdiff_format;

/** Text is borrowed from argv; NULL means "not given". */
typedef struct rpdiff_options {
    rp_options common; /**< first, as rp_options_parse wants it */
#define OPTION(members, ...) members;
#include "sim/rpdiff/options_rows.inc"
#undef OPTION
    const char *predicted; /**< a timeline's file, or a store */
    const char *command;   /**< the command line */
    const char *measured;  /**< NULL: `predicted` is a store, whose runs are compared */
} rpdiff_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpdiff_options_parse(int argc, char **argv, rp_arena *arena, rpdiff_options *options_out);

/** Rows of all options, for rp_options_answer. */
extern const rp_options_program rpdiff_command_line;
