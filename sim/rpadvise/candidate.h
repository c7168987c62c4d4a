/** @file candidate.h  A configuration that the search tries: a schedule and what is decided about
 * its run.
 *
 * Work and server, which all candidates of a search share, are a setup without a schedule; its run
 * holds what the user has decided. A candidate begins with that run and decides the rest.
 */
#pragma once

#include "common/base/mem.h"
#include "sim/study/setup.h"

/** Decided of each: optimizer, one recompute mode, grain, sizes of a step. */
typedef struct rpadvise_candidate {
    const rp_schedule_type *schedule;
    rp_run run;
} rpadvise_candidate;

/** Manner of a run; zeroed: as the candidate's command says, without intervals. */
typedef struct rpadvise_manner {
    uint32_t iterations; /**< 0: the usual number, a steady state */
    bool free_batch;  /**< without the batch that is given: the microbatches say how large it is */
    bool period_only; /**< neither bounds nor measures of one step */
    bool intervals;
    bool explain;
} rpadvise_manner;

/** @return the schedule's synchronous run of one sequence a microbatch, in one call, without
 * recompute, a stage at a time; its number of microbatches is open. */
rpadvise_candidate rpadvise_candidate_of(const rpsim_setup *work, const rp_schedule_type *schedule);

/** @return copies of the pipeline. */
static inline uint32_t rpadvise_copies(const rpadvise_candidate *candidate)
{
    return candidate->run.data_parallel != 0 ? candidate->run.data_parallel : 1;
}

/** @return GPUs that do the same: copies of all GPUs of a layer. */
static inline uint32_t rpadvise_alike(const rpadvise_candidate *candidate)
{
    uint32_t tensor = candidate->run.tensor_parallel;
    return rpadvise_copies(candidate) * (tensor != 0 ? tensor : 1);
}

/** @return whether both are the same run of a schedule. */
bool rpadvise_candidate_equal(const rpadvise_candidate *a, const rpadvise_candidate *b);

/** @return whether both are of the same schedule and optimizer mode. */
bool rpadvise_candidate_same_mode(const rpadvise_candidate *a, const rpadvise_candidate *b);

/**
 * What a study of the candidate is asked for; what is usual for its schedule is left open.
 * @param work says all but the run
 * @param setup_out borrows from work and candidate; in `arena`
 * @retval RP_OK, RP_USAGE (sizes out of range), RP_NO_MEMORY
 */
rp_status rpadvise_candidate_setup(const rpsim_setup *work, const rpadvise_candidate *candidate,
                                   const rpadvise_manner *manner, rp_arena *arena,
                                   rpsim_setup **setup_out, rp_reason *reason);

/**
 * The command line of rpsim that runs the candidate, for a user's shell.
 * @retval RP_OK, RP_USAGE (sizes out of range; logged), RP_NO_MEMORY
 */
rp_status rpadvise_candidate_command(const rpsim_setup *work, const rpadvise_candidate *candidate,
                                     rp_arena *arena, const char **command_out);
