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

/** Texts are borrowed from the arguments; 0 and NULL: not given, or not known yet. */
typedef struct rpexec_options {
    rp_options common; /**< first, as rp_options_parse wants it */
#define RUN(members, ...)
#define OPTION(members, ...) members;
#include "exec/rpexec/options_rows.inc"
#undef OPTION
#undef RUN
    struct { /**< what decides the program, model and schedule apart */
#define RUN(members, ...) members;
#define OPTION(members, ...)
#include "exec/rpexec/options_rows.inc"
#undef OPTION
#undef RUN
    } run;
    const char *command; /**< the whole line, set by main */
    uint32_t servers;    /**< processes that mpirun has started, one per server; 1: it has not */
} rpexec_options;

/** @return GPUs of a program, each of which stands for those of the layout. */
uint32_t rpexec_options_places(const rpexec_options *options);

/** @return copies and tensor groups of the pipeline; a program's of --program-in. */
rp_layout rpexec_options_layout(const rpexec_options *options);

/** @param arena owns what rp_options_parse makes @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY */
rp_status rpexec_options_parse(int argc, char **argv, rp_arena *arena, rpexec_options *options_out,
                               rp_reason *reason);

/** Rows of all options, for rp_options_answer and the settings. */
extern const rp_options_program rpexec_command_line;
