/** @file options.h  The command line of rpexec. */
#pragma once

#include "exec/setup/setup.h"

/** @return the rows and rules of rpexec_setup_keys, with the texts of help and man page. */
const rp_options_program *rpexec_command_line(void);

/** @param arena owns the texts that rp_options_parse makes @retval RP_OK, RP_USAGE (given as the
 *        reason), RP_NO_MEMORY */
rp_status rpexec_options_parse(int argc, char **argv, rp_arena *arena, rpexec_options *options_out,
                               rp_reason *reason);
