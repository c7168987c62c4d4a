/** @file options_internal.h  rpsim's command line (cli.md) as a value. */
#pragma once

#include "common/base/reason.h"
#include "common/torch/torch_csv.h"
#include "sim/rpsim/report/report.h"
#include "sim/study/setup.h"

typedef enum rpsim_action {
    RPSIM_ACTION_RUN,
    RPSIM_ACTION_CHECK,
    RPSIM_ACTION_LIST,
    RPSIM_ACTION_FLOWS,
    RPSIM_ACTION_PLATFORM,
} rpsim_action;

/** All text is borrowed from argv or lives in the arena; 0 and NULL mean "not given". */
typedef struct rpsim_options {
    rpsim_setup setup; /**< setup of the study; the first member, as rp_options_parse requires */
#define OPTION(members, ...) members;
#include "sim/rpsim/options_rows.inc"
#undef OPTION
} rpsim_options;

/**
 * Parses argv. Every bad option is reported with the option and its valid values.
 * @param options_out zeroed by the callee; lists live in `arena`
 * @retval RP_OK, RP_USAGE (given as the reason), RP_NO_MEMORY
 */
rp_status rpsim_options_parse(int argc, char **argv, rp_arena *arena, rpsim_options *options_out,
                              rp_reason *reason);

/**
 * Parses argv into options that have the values of rpsim_setup_keys already; their other members
 * are zero.
 * @retval as above
 */
rp_status rpsim_options_add(int argc, char **argv, rp_arena *arena, rpsim_options *options,
                            rp_reason *reason);

/** Rows of all options, for rp_options_answer and the settings. */
extern const rp_options_program rpsim_command_line;
