/** @file tune_row.h  --partition tuned for a row of a study. */
#pragma once

#include "sim/study/study_internal.h"
#include "sim/tune/tune.h"

/** Without --tune-budget the number of evaluations is chosen, within limits, so that their units
 * sum to this, which takes seconds on a core. A unit is a forward or backward of a stage and a
 * microbatch in an iteration simulated. */
#define RPSIM_TUNE_UNITS 150000000u
#define RPSIM_TUNE_UNITS_HARDWARE 6000000u
#define RPSIM_TUNE_LEAST_BUDGET 64u
#define RPSIM_TUNE_LARGEST_BUDGET 200000u

/**
 * Replaces partition, round and start of row->run by the best result of the search (tune.h).
 *
 * The search starts from three reference partitions: that of a run without --partition, even and
 * auto, so that the result is never worse than any of them. With separate backward stages no stage
 * gets more layers than the largest of its kind in the first reference and in auto, so that the
 * result needs no more memory than these. A round never gets smaller than it is without --round,
 * because that would move all weights more often, which stage fidelity does not see. Settings that
 * the options fix (--round, --round-start) stay. The objective is the time that the report shows:
 * the period if it exists, otherwise the makespan of an iteration; at hardware fidelity every run
 * that does not fit is worse than every run that fits.
 * @param row its schedule, costs, model, platform and run are set, except for the partition
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY (logged)
 */
rp_status rpsim_tune_row(const rpsim_setup *setup, const rpsim_inputs *inputs, rp_arena *arena,
                         rpsim_row *row);
