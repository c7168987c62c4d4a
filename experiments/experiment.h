/** @file experiment.h  An experiment file: runs of rpsim or rpexec that belong together.
 *
 * A YAML mapping:
 *
 *     name: ranking              # letters, digits and . _ + - @; identifies its points in a store
 *     question: Which is fastest?             # optional
 *     program: rpsim             # or rpexec (rpsim)
 *     options:                   # options of every point: long options without "--"
 *       gpus: 8
 *       fidelity: stage
 *     cross:                     # every combination; the last option varies fastest
 *       model: [qwen3-1.7b, llama3.1-8b]
 *       microbatches: {from: 8, to: 64, times: 2}       # or step: 8
 *     list:                      # each entry with every combination; overrides them
 *       - {schedule: roundpipe, round: [8, all]}        # a list in an entry: each of them
 *       - {schedule: 1f1b}
 *     exclude:                   # leaves out points that have all of an entry's values
 *       - {schedule: roundpipe, microbatches: <8}       # one value, a list of them, or < <= > >=
 *     only:                      # if given: points that match no entry are left out
 *       - {microbatches: >=gpus} # a comparison is with a number or with another option's
 *     repeats: 3                 # of each point, with --seed of `seed`, seed + 1, …
 *     seed: 1
 *
 * A number that rpsim --set changes is an option, too: `costs.hop_ms: [1, 2]` gives
 * --set costs.hop_ms=1 and =2, `"costs.fwd_ms*": [0.9, 1]` factors; `platform.` and `stack.` alike.
 *
 * A value is text or a number as the option takes it; `true` gives an option that takes no value,
 * `false` and null take an option back.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** Largest number of points of an experiment, including the points that conditions leave out. */
#define RPSWEEP_MAX_POINTS UINT64_C(100000000)

/** An option of a point. */
typedef struct rpsweep_setting {
    const char *option;
    const char *value; /**< NULL: the option is not given; "": given without a value */
    uint32_t line;     /**< line of the file */
} rpsweep_setting;

/** Settings that belong together. */
typedef struct rpsweep_choice {
    rpsweep_setting *settings;
    uint32_t count;
} rpsweep_choice;

/** Alternatives; a point has one of them. */
typedef struct rpsweep_dimension {
    rpsweep_choice *choices;
    uint32_t count;
} rpsweep_dimension;

typedef enum rpsweep_relation {
    RPSWEEP_EQUAL,
    RPSWEEP_LESS,
    RPSWEEP_AT_MOST,
    RPSWEEP_MORE,
    RPSWEEP_AT_LEAST,
} rpsweep_relation;

/** Condition on an option: its value is among `values`, or has the relation to the first of them.
 */
typedef struct rpsweep_condition {
    const char *option;
    rpsweep_relation relation;
    const char **values; /**< a NULL among them: the option is not given. In a comparison: a number
                            or an option's name */
    uint32_t value_count;
    uint32_t line;
} rpsweep_condition;

/** Conditions that must all hold. */
typedef struct rpsweep_rule {
    rpsweep_condition *conditions;
    uint32_t count;
} rpsweep_rule;

/** All members live in the arena that the file was read into. */
typedef struct rpsweep_experiment {
    const char *file; /**< the file's name, for messages */
    const char *text; /**< the file's content */
    const char *name;
    const char *question; /**< NULL: none */
    bool executed;        /**< rpexec runs the points */
    rpsweep_choice base;
    rpsweep_dimension *dimensions; /**< the first varies slowest */
    uint32_t dimension_count;
    rpsweep_rule *exclude;
    uint32_t exclude_count;
    rpsweep_rule *only;
    uint32_t only_count;
    uint32_t repeats;
    bool seed_given;
    uint64_t seed;
    uint64_t combinations; /**< their number, with repeats, before any is left out */
} rpsweep_experiment;

/**
 * Reads and checks an experiment file.
 * @param bytes need not end in NUL; not kept
 * @retval RP_OK, RP_INPUT (logged with file and line), RP_NO_MEMORY
 */
rp_status rpsweep_experiment_parse(const char *name, const char *bytes, size_t length,
                                   rp_arena *arena, rpsweep_experiment *experiment_out);

/** A point: the options of one run, sorted by name. */
typedef struct rpsweep_point {
    uint64_t number; /**< its number among the combinations */
    rpsweep_setting *settings;
    uint32_t count;
} rpsweep_point;

/**
 * Builds a combination.
 * @param point_out its settings live in `arena`
 * @param included_out false: a condition leaves the point out
 * @retval RP_OK, RP_INPUT (a comparison with text that is no number; logged), RP_NO_MEMORY
 */
rp_status rpsweep_experiment_point(const rpsweep_experiment *experiment, uint64_t number,
                                   rp_arena *arena, rpsweep_point *point_out, bool *included_out);

/**
 * Writes the point's command line, "rpsim --gpus 8 --schedule 1f1b", with values quoted for a shell
 * if they need it. The command line identifies the point in a store.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsweep_point_command(const rpsweep_experiment *experiment, const rpsweep_point *point,
                                rp_arena *arena, const char **command_out);

/**
 * Turns a setting into an option of the program: a number that rpsim --set changes becomes a value
 * of --set.
 * @param option_out its value lives in `arena` or belongs to the setting
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsweep_setting_option(const rpsweep_setting *setting, rp_arena *arena,
                                 rpsweep_setting *option_out);

/**
 * Turns a point of rpexec into an argument vector that begins with the program's name and ends with
 * NULL.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsweep_point_arguments(const rpsweep_point *point, rp_arena *arena, int *argc_out,
                                  char ***argv_out);
