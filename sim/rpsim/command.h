/** @file command.h  Effect of a command line of rpsim. */
#pragma once

#include "common/base/mem.h"
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"

#include <stdio.h>

/**
 * Does what a command line asks for: a run, a list, help and so on.
 * @param argv the program's name first
 * @param stream receives what rpsim prints on standard output; nothing after a failure, except of
 * outputs named "-", which are stdout
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged), and what the run gives (status.h)
 */
rp_status rpsim_command_run(int argc, char **argv, rp_arena *arena, FILE *stream);

/**
 * Does what options ask for that have been read.
 * @param command of the options, for stores
 * @param stream as above
 */
rp_status rpsim_command_act(const rpsim_options *options, const char *command, rp_arena *arena,
                            FILE *stream);

/**
 * Runs a study that is prepared and writes its files; it prints nothing.
 * @param command of the study's options, for stores
 * @retval as rpsim_study_run and rpsim_artefacts_write
 */
rp_status rpsim_command_simulate(rpsim_study *study, const rpsim_options *options,
                                 const char *command);
