/** @file options.h  The command line of rpsweep. */
#pragma once

#include "common/cli/options.h"

typedef enum rpsweep_action {
    RPSWEEP_ACTION_RUN,
    RPSWEEP_ACTION_COUNT, /**< --dry-run: says what would run */
    RPSWEEP_ACTION_MERGE,
    RPSWEEP_ACTION_EXPORT,
    RPSWEEP_ACTION_REFERENCE, /**< published or measured values from a CSV file */
} rpsweep_action;

/** Texts are borrowed from the arguments. */
typedef struct rpsweep_options {
    rp_options common; /**< first, as rp_options_parse wants it */
    rpsweep_action action;
    const char *experiment; /**< file, or the name of one that is shipped; RUN and COUNT */
    const char *view;       /**< EXPORT */
    const char **stores;    /**< MERGE: what is merged into db */
    uint32_t store_count;
    const char *table;  /**< REFERENCE: the CSV file */
    const char *cell;   /**< REFERENCE: "NAME=VALUE,…"; may be NULL */
    const char *db;     /**< NULL: NAME.db */
    const char *rpexec; /**< NULL: beside rpsweep, or in PATH */
    uint32_t jobs;      /**< 0: as many as there are cores */
    bool resume;
    bool retry;
    uint32_t shard; /**< counted from 0 */
    uint32_t shards;
} rpsweep_options;

/** @param arena owns the words @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY */
rp_status rpsweep_options_parse(int argc, char **argv, rp_arena *arena,
                                rpsweep_options *options_out);

/** Rows of all options, for rp_options_answer. */
extern const rp_options_program rpsweep_command_line;
