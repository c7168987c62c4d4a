/** @file search_internal.h  Functions that the files of the search share. */
#pragma once

#include "sim/rpadvise/search.h"

/** @return the largest multiple of `unit` that is at most `value`. */
static inline uint32_t rpadvise_multiple(uint32_t value, uint32_t unit)
{
    return value / unit * unit;
}

/** @return `value` if it is smaller than `unit`, otherwise the largest multiple of `unit` that is
 * at most `value`. */
static inline uint32_t rpadvise_whole(uint32_t value, uint32_t unit)
{
    return value < unit ? value : rpadvise_multiple(value, unit);
}

static inline uint32_t rpadvise_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/** @return the places of a candidate's pipeline: the GPUs of a copy, counting all GPUs of a layer
 * as one. */
static inline uint32_t rpadvise_places(const rpadvise_search *search,
                                       const rpadvise_candidate *candidate)
{
    uint32_t nodes = search->given->nodes;
    uint32_t gpus = nodes != 0 ? search->gpus / nodes * candidate->run.nodes : search->gpus;
    return gpus / rpadvise_alike(candidate);
}

/** @return the ZeRO stage of a candidate's copies: 1, which costs nothing, where an optimizer steps
 * before the next step begins. */
static inline uint32_t rpadvise_zero(const rpadvise_candidate *candidate)
{
    return rpadvise_copies(candidate) > 1 && !candidate->run.asynchronous ? 1 : 0;
}

/** @return the number of microbatches of the candidate's size in a step of a copy: from the given
 * batch, or as many as the tokens of a step allow. */
uint32_t rpadvise_target(const rpadvise_search *search, const rpadvise_candidate *candidate);

/** @return whether another schedule of the search makes the same program of this candidate. */
bool rpadvise_is_double(const rpadvise_search *search, const rpadvise_candidate *candidate);

/** Adds families to the search's. @retval RP_OK, RP_NO_MEMORY */
rp_status rpadvise_families_add(rpadvise_search *search, const rpadvise_family *families,
                                uint32_t count);

/** Adds all families with a single sequence per microbatch, without layouts. @retval RP_OK,
 * RP_NO_MEMORY */
rp_status rpadvise_families_list(rpadvise_search *search);

/** @return a family of the candidate's size, which has not run. */
rpadvise_family rpadvise_family_of(const rpadvise_search *search,
                                   const rpadvise_candidate *candidate);

/**
 * Does steps 1 and 2 for families from `begin` on.
 * @param best tokens/s of other families: families that cannot reach it do not run at 2 N
 * @param parts each of the two steps may use 1 / `parts` of the rest of the budget
 * @param sizes true: tries larger microbatches, too, as long as they fit
 */
rp_status rpadvise_families_probe(rpadvise_search *search, uint32_t begin, double best,
                                  unsigned parts, bool sizes);

/** @return whether this optimizer mode needs short runs of its own. Asynchronous runs do if they
 * are allowed and the synchronous runs do not stand for both modes. */
bool rpadvise_wants_mode(const rpadvise_search *search, const rp_schedule_type *schedule,
                         bool late);

/** Does steps 1 and 2 for layouts: copies, GPUs of a layer, servers (layouts.c). It follows all
 * other families. */
rp_status rpadvise_layouts_measure(rpadvise_search *search);

/** @return the manner of the candidate's short runs. */
rpadvise_manner rpadvise_shortly(const rpadvise_candidate *candidate);

/** Begins a step that may use 1 / `parts` of the rest of the budget. */
void rpadvise_begin_step(rpadvise_search *search, unsigned parts);

/** @return the number of simulations, at most `wanted`, that the current step may still use; a
 * smaller number sets cut_short. */
uint32_t rpadvise_allowed(rpadvise_search *search, uint32_t wanted);

/** Compares two indices of families (an array, the context of qsort_r) by estimate, largest first,
 * then by index. */
int rpadvise_compare_families(const void *a, const void *b, void *families);

/** Does steps 1 and 2: lists the families and sets their outcomes and estimates. @retval as
 * rpadvise_search_run */
rp_status rpadvise_families_measure(rpadvise_search *search);

/** Does step 5: improves the partitions of the best two schedules and modes (partitions.c). @retval
 * as rpadvise_search_run */
rp_status rpadvise_partitions_improve(rpadvise_search *search);
