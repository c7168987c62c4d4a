/** @file setup.h  The request for a run of rpexec: a run, its inputs, and the outputs asked for. */
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
#include "exec/setup/setup_rows.inc"
#undef OPTION
#undef RUN
    const char *command; /**< the whole command line, set by main */
} rpexec_options;

/** @return rows of all options and the rules on their combinations, without the texts of help. */
const rp_options_program *rpexec_setup_keys(void);

/** @return a request in which nothing is given. */
rpexec_options rpexec_setup_defaults(void);

/** Checks a request and settles everything that follows from its options. @retval RP_OK, RP_USAGE
 * (given as the reason) */
rp_status rpexec_setup_complete(rpexec_options *options, rp_reason *reason);
