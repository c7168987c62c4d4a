/** @file search_internal.h  Parts of the search. */
#pragma once

#include "sim/rpadvise/search.h"

/** @return `value` or the next smaller multiple of `unit`. */
static inline uint32_t rpadvise_multiple(uint32_t value, uint32_t unit)
{
    return value / unit * unit;
}

/** @return `value` where it is smaller than `unit`, or the next smaller multiple. */
static inline uint32_t rpadvise_whole(uint32_t value, uint32_t unit)
{
    return value < unit ? value : rpadvise_multiple(value, unit);
}

static inline uint32_t rpadvise_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/** @return places of a candidate's pipeline: the GPUs of one copy, those of a layer once. */
static inline uint32_t rpadvise_places(const rpadvise_search *search,
                                       const rpadvise_candidate *candidate)
{
    uint32_t nodes = search->given->nodes;
    uint32_t gpus = nodes != 0 ? search->gpus / nodes * candidate->run.nodes : search->gpus;
    return gpus / rpadvise_alike(candidate);
}

/** @return microbatches of a step of one copy, of the candidate's size: of the batch that is given,
 * or as many as its tokens allow. */
uint32_t rpadvise_target(const rpadvise_search *search, const rpadvise_candidate *candidate);

/** @return whether another schedule of the search makes the same program of this candidate. */
bool rpadvise_is_double(const rpadvise_search *search, const rpadvise_candidate *candidate);

/** Adds families to the search's. @retval RP_OK, RP_NO_MEMORY */
rp_status rpadvise_families_add(rpadvise_search *search, const rpadvise_family *families,
                                uint32_t count);

/** Adds all families of one sequence a microbatch, without layouts. @retval RP_OK, RP_NO_MEMORY */
rp_status rpadvise_families_list(rpadvise_search *search);

/** @return a family at the candidate's size, which has not run. */
rpadvise_family rpadvise_family_of(const rpadvise_search *search,
                                   const rpadvise_candidate *candidate);

/**
 * Steps 1 and 2 for families from `begin` on.
 * @param best tokens/s of other families: what cannot reach it does not run twice
 * @param parts of what is left of the budget, one for each of the two steps
 * @param sizes true: larger microbatches, too, while they fit
 */
rp_status rpadvise_families_probe(rpadvise_search *search, uint32_t begin, double best,
                                  unsigned parts, bool sizes);

/** @return whether short runs of this optimizer mode tell something of their own: asynchronous ones
 * where they are allowed and those of the synchronous mode do not stand for both. */
bool rpadvise_wants_mode(const rpadvise_search *search, const rp_schedule_type *schedule,
                         bool late);

/** The same for layouts: copies, GPUs of a layer, servers (layouts.c), after all others. */
rp_status rpadvise_layouts_measure(rpadvise_search *search);

/** @return how the short runs are made. */
rpadvise_manner rpadvise_shortly(const rpadvise_candidate *candidate);

/** Begins a step that may use 1 / `parts` of what is left of the budget. */
void rpadvise_begin_step(rpadvise_search *search, unsigned parts);

/** @return as many of `wanted` simulations as the current step has left; fewer set cut_short. */
uint32_t rpadvise_allowed(rpadvise_search *search, uint32_t wanted);

/** Compares two indices of families (an array, the context of qsort_r) by estimate, largest first,
 * then by index. */
int rpadvise_compare_families(const void *a, const void *b, void *families);

/** Steps 1 and 2: lists the families and sets their outcomes and estimates. @retval as
 * rpadvise_search_run */
rp_status rpadvise_families_measure(rpadvise_search *search);

/** Step 5: better partitions of the best two schedules and modes (partitions.c). @retval as
 * rpadvise_search_run */
rp_status rpadvise_partitions_improve(rpadvise_search *search);
