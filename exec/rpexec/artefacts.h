/** @file artefacts.h  Artefacts of a run: files, and a row in the store. */
#pragma once

#include "common/base/text.h"
#include "common/store/store.h"
#include "exec/rpexec/train.h"

/** Open files, which appear only when they are complete. Zeroes: none. */
typedef struct rpexec_artefacts {
    rp_output program;
    rp_output timeline;
    rp_output trace;
    rp_output page;
    rp_store *store;
    double opened_s; /**< begin of the run, when they were opened (CLOCK_MONOTONIC) */
} rpexec_artefacts;

/** A run that has ended. */
typedef struct rpexec_run_made {
    const rpexec_options *options;
    const rpexec_outcome *outcome;
    const rp_model *model;
    const char *platform;         /**< name; NULL: none */
    const rp_timeline *timeline;  /**< timeline of the last program; NULL: nothing was left to
                                       run */
    const rp_program *program;    /**< the timeline's program, with its layout; NULL: no timeline */
    const rp_timeline *predicted; /**< timeline of the same program, simulated; NULL without
                                       --predict */
} rpexec_run_made;

/**
 * Opens all files that the options ask for, so that a file that cannot be written is known at once.
 * @param artefacts_out to be given to rpexec_artefacts_fini, also after a failure
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_IO, RP_DATABASE (logged), RP_NO_MEMORY
 */
rp_status rpexec_artefacts_open(const rpexec_options *options, rpexec_artefacts *artefacts_out);

/**
 * Writes everything. Without a timeline it writes only the store's row, without metrics of a
 * program.
 * @retval RP_OK, RP_IO, RP_TOOL (gnuplot), RP_DATABASE, RP_BROKEN (logged), RP_NO_MEMORY
 */
rp_status rpexec_artefacts_write(const rpexec_run_made *run, rp_arena *arena,
                                 rpexec_artefacts *artefacts);

/** Closes everything. Files that were not written do not appear. */
void rpexec_artefacts_fini(rpexec_artefacts *artefacts);
