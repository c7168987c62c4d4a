/** @file tune_row.h  --partition tuned for one row of a study. */
#pragma once

#include "sim/study/study_internal.h"
#include "sim/tune/tune.h"

/** Evaluations without --tune-budget: so many that their units (stage and microbatch, forward or
 * backward, in every iteration simulated) sum to this, within limits: seconds on one core. */
#define RPSIM_TUNE_UNITS 150000000u
#define RPSIM_TUNE_UNITS_HARDWARE 6000000u
#define RPSIM_TUNE_LEAST_BUDGET 64u
#define RPSIM_TUNE_LARGEST_BUDGET 200000u

/**
 * Replaces partition, round and start of row->config by the best that the search (tune.h) finds.
 *
 * References are what --partition would give without a value, even and auto, so that the result is
 * never worse than any of them. For separate backward stages no stage gets more layers than the
 * largest of its kind in the first and in auto, so that it needs no more memory than these; a round
 * never gets smaller than it is without --round, because that moves all weights more often, which
 * stage fidelity does not see. What the options fix (--round, --round-start) stays. The objective
 * is what the report shows: the makespan of one iteration, or the period where there
 * is one; at hardware fidelity what does not fit is worse than all that does.
 * @param row schedule, config but the partition, costs, model, platform and workload are set
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY (logged)
 */
rp_status rpsim_tune_row(const rpsim_setup *setup, const rpsim_inputs *inputs, rp_arena *arena,
                         rpsim_row *row);
