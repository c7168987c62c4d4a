/** @file options.h  rpimport's command line as a value. */
#pragma once

#include "common/cli/options.h"
#include "sim/interchange/kineto.h"

/** Text is borrowed from argv or lives in the arena; 0 and NULL mean "not given". */
typedef struct rpimport_options {
    rp_options common;   /**< first, as rp_options_parse wants it */
    const char **traces; /**< of --kineto */
    uint32_t trace_count;
    const char *partition;
    uint32_t microbatch_size;
    uint32_t seq_len;
    bool statistic_given;
    rpsim_statistic statistic;
    const char *out;    /**< of a cost table; NULL for stdout */
    const char *chakra; /**< prefix of the files' names; NULL: `traces` are imported */
    const char *platform;
    bool json;
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
