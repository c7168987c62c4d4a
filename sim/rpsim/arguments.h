/** @file arguments.h  rpsim's command lines for other programs, which do not see its options. */
#pragma once

#include "common/base/reason.h"
#include "common/store/store.h"
#include "sim/study/session.h"
#include "sim/study/study.h"

/** Checks a command line, the program's name first. @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rpsim_arguments_check(int argc, char **argv, rp_arena *arena, rp_reason *reason);

/**
 * Runs a command line and gives its rows as runs of a store; files that it names are not written.
 * @param session NULL: none
 * @param command borrowed by the runs, as texts of the session
 * @param runs_out [*count_out] in the arena
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_arguments_run(rpsim_session *session, int argc, char **argv, const char *command,
                              rp_arena *arena, rp_store_run **runs_out, uint32_t *count_out);

/**
 * The study of a command line, prepared; nothing has run yet.
 * @param study_out rpsim_study_fini, also after a failure; rows and options live in `arena`
 * @retval as rpsim_study_prepare
 */
rp_status rpsim_arguments_study(int argc, char **argv, rp_arena *arena, rpsim_study *study_out,
                                rp_reason *reason);
