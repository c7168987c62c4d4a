/** @file options.h  The command line of rpsweep. */
#pragma once

#include "common/cli/options.h"

typedef enum rpsweep_action {
    RPSWEEP_ACTION_RUN,
    RPSWEEP_ACTION_COUNT, /**< --dry-run: counts the points that would run */
    RPSWEEP_ACTION_MERGE,
    RPSWEEP_ACTION_EXPORT,
    RPSWEEP_ACTION_REFERENCE, /**< published or measured values from a CSV file */
    RPSWEEP_ACTION_REPORT,    /**< writes the page of a store */
} rpsweep_action;

/** Texts are borrowed from the arguments; 0 and NULL mean "not given". Shards are counted from 0.
 */
typedef struct rpsweep_options {
    rp_options common; /**< first, as rp_options_parse wants it */
#define OPTION(members, ...) members;
#include "experiments/options_rows.inc"
#undef OPTION
    const char *experiment; /**< RUN and COUNT: a file, or a shipped experiment's name */
    const char *view;       /**< EXPORT: name of the view */
    const char **stores;    /**< MERGE: the stores that are merged into db; REPORT: the store */
    uint32_t store_count;
    const char *table; /**< REFERENCE: the CSV file */
} rpsweep_options;

/** @param arena owns the words @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY */
rp_status rpsweep_options_parse(int argc, char **argv, rp_arena *arena,
                                rpsweep_options *options_out);

/** Rows of all options, for rp_options_answer. */
extern const rp_options_program rpsweep_command_line;
