/** @file artefacts.h  Files that a study writes: trace, Gantt chart, program, store. */
#pragma once

#include "common/base/text.h"
#include "common/store/store.h"
#include "sim/interchange/chakra.h"
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"

typedef struct rpsim_artefacts {
    rp_output trace;
    rp_output program;
    rp_output memory;
    rp_output timeline;
    rp_output page;
    rp_output torch_csv;
    rp_output sidecar;
    rpsim_chakra_files chakra;
    rp_store *store;
} rpsim_artefacts;

/**
 * Opens every output before anything is simulated, so that an output that cannot be written is
 * reported first.
 * @param artefacts_out needs rpsim_artefacts_fini, even after a failure
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_DATABASE, RP_NO_MEMORY (logged)
 */
rp_status rpsim_artefacts_open(const rpsim_study *study, const rpsim_options *options,
                               rpsim_artefacts *artefacts_out);

/**
 * Writes and commits all files.
 * @param command the command line, for the store
 */
rp_status rpsim_artefacts_write(const rpsim_study *study, const rpsim_options *options,
                                const char *command, rpsim_artefacts *artefacts);

/** Drops files that were not committed and closes the store. Zeroed artefacts are allowed. */
void rpsim_artefacts_fini(rpsim_artefacts *artefacts);
