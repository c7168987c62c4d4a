/** @file record.h  Runs in the form in which a store keeps them. */
#pragma once

#include "common/store/store.h"
#include "sim/study/study.h"

/**
 * Makes a stored run from a row.
 * @param command borrowed by the run
 * @param run_out lives in the study's arena
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_row_record(const rpsim_study *study, const rpsim_row *row, const char *command,
                           rp_store_run *run_out);

/**
 * Runs a setup and gives its rows as stored runs.
 * @param setup complete (setup.h)
 * @param command borrowed by the runs, as texts of setup->session
 * @param runs_out [*count_out] in the arena
 * @retval RP_OK, RP_USAGE, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpsim_setup_record(const rpsim_setup *setup, const char *command, rp_arena *arena,
                             rp_store_run **runs_out, uint32_t *count_out);
