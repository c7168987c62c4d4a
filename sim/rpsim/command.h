/** @file command.h  Carries out a command line of rpsim. */
#pragma once

#include "common/base/mem.h"
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"

#include <stdio.h>

/**
 * Carries out a command line: a run, a list, help and so on.
 * @param argv the program's name first
 * @param stream receives rpsim's standard output. After a failure it has received nothing, except
 * from outputs named "-", which go to stdout
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged), and the status of the run (status.h)
 */
rp_status rpsim_command_run(int argc, char **argv, rp_arena *arena, FILE *stream);

/**
 * Carries out options that have been read.
 * @param command the options as a command line, for stores
 * @param stream as above
 */
rp_status rpsim_command_act(const rpsim_options *options, const char *command, rp_arena *arena,
                            FILE *stream);

/**
 * Runs a prepared study and writes its files; it prints nothing.
 * @param command the study's options as a command line, for stores
 * @retval as rpsim_study_run and rpsim_artefacts_write
 */
rp_status rpsim_command_simulate(rpsim_study *study, const rpsim_options *options,
                                 const char *command);
