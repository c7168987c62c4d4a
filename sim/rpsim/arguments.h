/** @file arguments.h  rpsim's command lines for other programs, which do not see its options. */
#pragma once

#include "common/base/reason.h"
#include "sim/study/study.h"

/**
 * The study of a command line, prepared; nothing has run yet.
 * @param study_out rpsim_study_fini, also after a failure; rows and options live in `arena`
 * @retval as rpsim_study_prepare
 */
rp_status rpsim_arguments_study(int argc, char **argv, rp_arena *arena, rpsim_study *study_out,
                                rp_reason *reason);
