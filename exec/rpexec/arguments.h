/** @file arguments.h  rpexec's command lines for other programs, which do not see its options. */
#pragma once

#include "common/base/mem.h"
#include "common/base/reason.h"

/** Checks a command line, the program's name first. @retval RP_OK, RP_USAGE (given as the reason),
 * RP_NO_MEMORY
 */
rp_status rpexec_arguments_check(int argc, char **argv, rp_arena *arena, rp_reason *reason);
