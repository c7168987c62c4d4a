/** @file candidate.h  A configuration that the search tries: a schedule and the decisions about its
 * run.
 *
 * All candidates of a search share the work and the server. These are a setup without a schedule,
 * whose run holds the user's decisions. A candidate begins with that run and decides the rest.
 */
#pragma once

#include "common/base/mem.h"
#include "sim/study/setup.h"

/** A candidate. All have decided the optimizer, a recompute mode, the grain, and the sizes of a
 * step. */
typedef struct rpadvise_candidate {
    const rp_schedule_type *schedule;
    rp_run run;
} rpadvise_candidate;

/** Manner of a run. Zeroed, the run is the run of the candidate's command, without intervals. */
typedef struct rpadvise_manner {
    uint32_t iterations; /**< number of iterations; 0: as many as a steady state needs */
    bool free_batch;     /**< ignores the given batch: the microbatches determine the batch */
    bool period_only;    /**< leaves out bounds and measures of a single step */
    bool intervals;
    bool explain;
    bool reported; /**< its speed limit and the errors of measured runs are reported */
} rpadvise_manner;

/** @return the schedule's synchronous run with a sequence per microbatch, in a single call, without
 * recompute, with stages as grain. Its number of microbatches is open. */
rpadvise_candidate rpadvise_candidate_of(const rpsim_setup *work, const rp_schedule_type *schedule);

/** @return the number of copies of the pipeline. */
static inline uint32_t rpadvise_copies(const rpadvise_candidate *candidate)
{
    return candidate->run.layout.data_parallel != 0 ? candidate->run.layout.data_parallel : 1;
}

/** @return the number of GPUs that hold the same place of a pipeline: copies times GPUs of a layer.
 */
static inline uint32_t rpadvise_alike(const rpadvise_candidate *candidate)
{
    uint32_t tensor = candidate->run.layout.tensor_parallel;
    return rpadvise_copies(candidate) * (tensor != 0 ? tensor : 1);
}

/** @return whether both are the same run of a schedule. */
bool rpadvise_candidate_equal(const rpadvise_candidate *a, const rpadvise_candidate *b);

/** @return whether both have the same schedule and optimizer mode. */
bool rpadvise_candidate_same_mode(const rpadvise_candidate *a, const rpadvise_candidate *b);

/**
 * Makes the setup of a study of the candidate. Settings that are usual for its schedule are left
 * open.
 * @param work gives all settings except the run's
 * @param setup_out borrows from work and candidate; lives in `arena`
 * @retval RP_OK, RP_USAGE (sizes out of range), RP_NO_MEMORY
 */
rp_status rpadvise_candidate_setup(const rpsim_setup *work, const rpadvise_candidate *candidate,
                                   const rpadvise_manner *manner, rp_arena *arena,
                                   rpsim_setup **setup_out, rp_reason *reason);

/**
 * Gives the command line of rpsim that runs the candidate, for a user's shell.
 * @retval RP_OK, RP_USAGE (sizes out of range; logged), RP_NO_MEMORY
 */
rp_status rpadvise_candidate_command(const rpsim_setup *work, const rpadvise_candidate *candidate,
                                     rp_arena *arena, const char **command_out);
