/** @file options.h  rpimport's command line as a value. */
#pragma once

#include "common/cli/options.h"
#include "sim/interchange/kineto.h"

/** Text is borrowed from argv or lives in the arena; 0 and NULL mean "not given". Exactly one of
 * `traces`, `timer` and `chakra` is given. */
typedef struct rpimport_options {
    rp_options common; /**< first, as rp_options_parse wants it */
#define OPTION(members, ...) members;
#include "sim/rpimport/options_rows.inc"
#undef OPTION
} rpimport_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @param options_out set by the callee; lists live in `arena`
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpimport_options_parse(int argc, char **argv, rp_arena *arena,
                                 rpimport_options *options_out);

/** Rows of all options, for rp_options_answer. */
extern const rp_options_program rpimport_command_line;
