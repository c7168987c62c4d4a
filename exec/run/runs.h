/** @file runs.h  Finds the schedules that the executor runs, and the reason why it does not run the
 * others. */
#pragma once

#include "common/schedule/schedule_type.h"

/**
 * Builds, lowers and plans a small program of the schedule: nothing is run.
 * @param reason_out in `arena`: the reason why it is simulated only; NULL: it runs
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_runs(const rp_schedule_type *schedule, bool asynchronous, rp_arena *arena,
                      const char **reason_out);
