/** @file options_internal.h  The command line of rpexec. */
#pragma once

#include "common/base/reason.h"
#include "common/cli/options.h"
#include "exec/run/driver.h"
#include "exec/run/work.h"

typedef enum rpexec_action {
    RPEXEC_ACTION_RUN,
    RPEXEC_ACTION_LIST,
    RPEXEC_ACTION_DESCRIBE,
} rpexec_action;

#define RPEXEC_MAX_GPUS 64u

/** Options of a run. Texts are borrowed from the arguments; 0 and NULL: not given, or not known
 * yet. */
typedef struct rpexec_options {
    rp_options common; /**< the first member, as rp_options_parse requires */
    rp_run run; /**< its `nodes` are the processes that mpirun has started, one per server, or 1 */
#define RUN(...)
#define OPTION(members, ...) members;
#include "exec/rpexec/options_rows.inc"
#undef OPTION
#undef RUN
    const char *command; /**< the whole command line, set by main */
} rpexec_options;

/** @param arena owns the texts that rp_options_parse makes @retval RP_OK, RP_USAGE (given as the
 *        reason), RP_NO_MEMORY */
rp_status rpexec_options_parse(int argc, char **argv, rp_arena *arena, rpexec_options *options_out,
                               rp_reason *reason);

/** @return the command line: rows of all options, for rp_options_answer and the settings. */
const rp_options_program *rpexec_command_line(void);
