/** @file search.h  The search for the fastest configuration.
 *
 * A **family** is a schedule with an optimizer mode, a recompute mode, a grain, a way to cut stages
 * and a microbatch size; its members differ in microbatches and calls. The search goes from many
 * short simulations to few long simulations, all at hardware fidelity:
 *  1. It runs every family for few iterations at N microbatches (2 N if the schedule needs so
 *     many), with sizes ascending. A family that does not fit there does not fit with larger
 *     microbatches, because no buffer shrinks with them. It is tried with a single microbatch,
 *     because pipelines hold fewer activations then. If several grains and partitions come to the
 *     same stages, times and memory, only the first goes on.
 *  2. It runs the families that are left at twice as many microbatches, except families whose
 *     compute alone (that of the fullest GPU, if weights are resident) takes longer than the best
 *     estimate. A synchronous step is affine in its microbatches, an asynchronous step convex (the
 *     longer of host and GPUs), so the line through both points is exact for the former and
 *     optimistic for the latter. Asynchronous families with a single version of resident weights
 *     differ from the synchronous families only by a barrier: they have no short runs of their own
 *     before step 3.
 *     Then it does the same for layouts, which have copies of a pipeline, GPUs that share a layer
 *     and fewer servers (layouts.c): first a single schedule in all layouts, then all schedules in
 *     the layouts in which that schedule has the best estimates. A layout is left out if its part
 *     of weights, gradients and optimizer alone does not fit, or if its work and its all-reduces
 *     alone take longer than the best estimate.
 *  3. It runs the most promising families at the batch that is asked for. A run that does not fit
 *     is tried with more calls, and with fewer microbatches.
 *  4. It runs the best of these for as many iterations as rpsim runs (only two for a synchronous
 *     run, whose iterations are all equal); of an asynchronous schedule it runs further candidates
 *     until one fits in them. Then it runs those of their neighbours that are as fast in a short
 *     run.
 *  5. It improves the partitions of the two best schedules and modes (partitions.c): from the best
 *     known partition with as many stages, their own included, it moves to neighbours in which a
 *     layer is elsewhere, as long as a neighbour is faster. The last partition is run as in step 4.
 * Each simulation counts against the budget. Steps 1 to 3 each use at most a half of the rest of
 * the budget: with a small budget the search tries few families, and still runs the best of them.
 * The order of steps and the choice in each depend only on the inputs: nothing is random.
 */
#pragma once

#include "sim/rpadvise/options.h"
#include "sim/rpadvise/trial.h"

/** A family after its short runs. */
typedef struct rpadvise_family {
    rpadvise_candidate candidate; /**< the candidate at the batch that is asked for */
    uint32_t least; /**< microbatches of its first run: N; 2 N if N are too few; fewer if a step has
                       fewer tokens; 1 if N do not fit */
    rpadvise_outcome at_n;   /**< outcome with `least` microbatches */
    rpadvise_outcome at_2n;  /**< outcome with twice as many; has not run if it was not needed */
    rpadvise_outcome at_one; /**< outcome with a single microbatch; has not run if N fit */
    double estimate;         /**< tokens/s of the candidate; 0: it does not fit */
    bool pruned;             /**< its compute alone rules it out as the fastest */
} rpadvise_family;

typedef struct rpadvise_search {
    const rpadvise_options *options;
    const rp_run *given; /**< the run of the bench's work, with the user's decisions */
    rpadvise_bench *bench;
    rp_arena *arena;
    uint32_t gpus;    /**< N */
    uint32_t seq_len; /**< tokens of a sequence */
    uint64_t until;   /**< number of simulations that the bench may have spent at the end of the
                         current step */
    rpadvise_family *families;
    uint32_t family_count;
    uint32_t family_room;     /**< number of families that there is memory for */
    rpadvise_trial *screened; /**< step 3, with few iterations; runs that fit first, by tokens/s */
    uint32_t screened_count;
    rpadvise_trial *found; /**< step 4, as rpsim runs them; in the same order */
    uint32_t found_count;
    uint32_t pruned; /**< number of families left out by their bound */
    bool cut_short;  /**< the budget has left runs out */
    bool brief;      /**< asks for any run that fits, the fastest of the first few */
} rpadvise_search;

/** @return the number of servers of a candidate that does not use all; 0: it uses all. */
static inline uint32_t rpadvise_fewer_nodes(const rpadvise_search *search,
                                            const rpadvise_candidate *candidate)
{
    return candidate->run.nodes != search->given->nodes ? candidate->run.nodes : 0;
}

/** @return number of configurations that the search looked at. */
static inline uint32_t rpadvise_search_size(const rpadvise_search *search)
{
    return search->family_count + search->screened_count + search->found_count;
}

/**
 * Searches.
 * @param gpus number of GPUs to use
 * @param seq_len tokens of a sequence; a step of a free batch has room for at least a single
 * sequence
 * @param search_out all its parts live in `arena`; found_count is 0 if nothing fits
 * @retval RP_OK, RP_IO, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpadvise_search_run(const rpadvise_options *options, uint32_t gpus, uint32_t seq_len,
                              rpadvise_bench *bench, rp_arena *arena, rpadvise_search *search_out);

/** Searches briefly: with a single sequence per microbatch, and only the few best of the first
 * short runs, if any of these fits. If none fits, it tries all that a full search tries. It finds a
 * run whenever a full search does, but a slower run perhaps. */
rp_status rpadvise_search_shortly(const rpadvise_options *options, uint32_t gpus, uint32_t seq_len,
                                  rpadvise_bench *bench, rp_arena *arena,
                                  rpadvise_search *search_out);

/** @return whether any run fits; if so, `found` begins with the fastest. */
bool rpadvise_search_fits(const rpadvise_search *search);

/**
 * Runs candidates as rpsim does, adds them to `found` and keeps its order. Candidates that are in
 * `found` already are not run again; candidates beyond the budget are left out.
 */
rp_status rpadvise_search_add(rpadvise_search *search, const rpadvise_candidate *candidates,
                              uint32_t count);

/** @return the first of `found` that is this candidate; NULL: it was not run. */
const rpadvise_trial *rpadvise_search_find(const rpadvise_search *search,
                                           const rpadvise_candidate *candidate);
