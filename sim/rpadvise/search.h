/** @file search.h  The search for the fastest configuration.
 *
 * A **family** is a schedule with an optimizer mode, a recompute mode, a grain, a way to cut stages
 * and a microbatch size; its members differ in microbatches and calls. The search goes from many
 * short simulations to few long ones, all at hardware fidelity:
 *  1. every family at N microbatches (2 N, where a schedule wants more) and few iterations, sizes
 *     ascending: a family that does not fit there does not with larger microbatches, because no
 *     buffer shrinks with them; it is tried with a single microbatch, because pipelines hold fewer
 *     activations then;
 *     Of grains and partitions that come to the same stages, times and memory one goes on;
 *  2. those left at twice as many microbatches, but for families whose compute alone (of the
 *     fullest GPU, where weights are resident) takes longer than the best estimate: a synchronous
 *     step is affine in its microbatches, an asynchronous one convex (the longer of host and GPUs),
 *     so the line through both is exact for the former and optimistic for the latter.
 *     Asynchronous families with resident weights of one version differ from the synchronous ones
 *     by a barrier alone: they have no short runs of their own before step 3;
 *     Then the same of layouts, which have copies of a pipeline, GPUs that share a layer and fewer
 *     servers (layouts.c): first of one schedule in all of them, then of all schedules in those of
 *     which it has the best estimates. A layout is left out where its part of weights, gradients
 *     and optimizer alone does not fit, or where its work and its all-reduces alone take longer
 *     than the best estimate;
 *  3. the most promising at the batch that is asked for; what does not fit there is tried with more
 *     calls, and with fewer microbatches;
 *  4. the best of these for as many iterations as rpsim runs (two of a synchronous run, whose
 *     iterations are all equal), of an asynchronous schedule until one fits in them; then those of
 * their neighbours that are as fast in a short run;
 *  5. better partitions of the two best schedules and modes (partitions.c): from the best of what
 *     there is for so many stages, their own included, to neighbours in which a layer is elsewhere,
 *     as long as one is faster. The last one is run as in step 4.
 * Each simulation counts against the budget. Steps 1 to 3 each use at most a half of what is left
 * of it: a small budget tries few families, and still runs the best of them. The order of steps
 * and the choice in each depend on the inputs only: nothing is random.
 */
#pragma once

#include "sim/rpadvise/options.h"
#include "sim/rpadvise/trial.h"

/** A family after its short runs. */
typedef struct rpadvise_family {
    rpadvise_candidate candidate; /**< at the batch that is asked for */
    uint32_t least;               /**< microbatches of its first run: N; 2 N where those are too
                                     few; fewer where a step has less tokens, 1 where N do not
                                     fit */
    rpadvise_outcome at_n;        /**< with as many */
    rpadvise_outcome at_2n;       /**< with twice as many; has not run where it was not needed */
    rpadvise_outcome at_one;      /**< with one; has not run where N fit */
    double estimate;              /**< tokens/s of the candidate; 0: it does not fit */
    bool pruned;                  /**< its compute alone rules it out as the fastest */
} rpadvise_family;

typedef struct rpadvise_search {
    const rpadvise_options *options;
    const rp_run *given; /**< the run of the bench's work: what is decided beforehand */
    rpadvise_bench *bench;
    rp_arena *arena;
    uint32_t gpus;    /**< N */
    uint32_t seq_len; /**< tokens of a sequence */
    uint64_t until;   /**< simulations that the bench may have spent when the current step ends */
    rpadvise_family *families;
    uint32_t family_count;
    uint32_t family_room;     /**< that there is memory for */
    rpadvise_trial *screened; /**< step 3, with few iterations; by tokens/s, what fits first */
    uint32_t screened_count;
    rpadvise_trial *found; /**< step 4, as rpsim runs them; likewise */
    uint32_t found_count;
    uint32_t pruned; /**< families left out by their bound */
    bool cut_short;  /**< the budget left something out */
    bool brief;      /**< asks for any run that fits, and a fast one of the first few */
} rpadvise_search;

/** @return servers of a candidate that does not use all; 0: it does. */
static inline uint32_t rpadvise_fewer_nodes(const rpadvise_search *search,
                                            const rpadvise_candidate *candidate)
{
    return candidate->run.nodes != search->given->nodes ? candidate->run.nodes : 0;
}

/**
 * Searches.
 * @param gpus of the server, or as many as are to be used
 * @param seq_len tokens of a sequence; a step of a free batch has room for one
 * @param search_out everything lives in `arena`; found_count is 0 where nothing fits
 * @retval RP_OK, RP_IO, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpadvise_search_run(const rpadvise_options *options, uint32_t gpus, uint32_t seq_len,
                              rpadvise_bench *bench, rp_arena *arena, rpadvise_search *search_out);

/** The same with one sequence a microbatch, and the few best of the first short runs alone, where
 * one of these fits; all else that a search tries otherwise. It finds nothing where a search does
 * not, but what it finds may be slower. */
rp_status rpadvise_search_shortly(const rpadvise_options *options, uint32_t gpus, uint32_t seq_len,
                                  rpadvise_bench *bench, rp_arena *arena,
                                  rpadvise_search *search_out);

/** @return whether anything was found that fits; then `found` begins with the fastest. */
bool rpadvise_search_fits(const rpadvise_search *search);

/**
 * Runs candidates as rpsim does, adds them to `found` and keeps its order. Those that are there
 * already are not run again; what is beyond the budget is left out.
 */
rp_status rpadvise_search_add(rpadvise_search *search, const rpadvise_candidate *candidates,
                              uint32_t count);

/** @return the first of `found` that is this candidate; NULL: it was not run. */
const rpadvise_trial *rpadvise_search_find(const rpadvise_search *search,
                                           const rpadvise_candidate *candidate);
