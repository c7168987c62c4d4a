/** @file record.h  A run as it is stored. */
#pragma once

#include "common/store/store.h"
#include "sim/study/study.h"

/**
 * The row as a run of a store.
 * @param command borrowed by the run
 * @param run_out lives in the study's arena
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_row_record(const rpsim_study *study, const rpsim_row *row, const char *command,
                           rp_store_run *run_out);
