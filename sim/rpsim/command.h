/** @file command.h  Effect of a command line of rpsim, for the program and for the library. */
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
 * Reads a command line as with --format json, for a program that is not rpsim: options that give
 * text, and outputs on stdout, are refused.
 * @param argv options alone, without the program's name
 * @param options_out borrows from argv and lives in `arena`
 * @param command_out the command line as one text, for stores
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpsim_command_parse_json(int argc, char **argv, rp_arena *arena,
                                   rpsim_options *options_out, const char **command_out);

/** Parses so, and does what the options ask for. @param stream as of rpsim_command_run */
rp_status rpsim_command_run_json(int argc, char **argv, rp_arena *arena, FILE *stream);

/**
 * Runs a study that is prepared and writes its files; it prints nothing.
 * @param command of the study's options, for stores
 * @retval as rpsim_study_run and rpsim_artefacts_write
 */
rp_status rpsim_command_simulate(rpsim_study *study, const rpsim_options *options,
                                 const char *command);
