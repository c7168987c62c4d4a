/** @file tune_internal.h  Inside of the search (tune.h): points whose arrays have room for moves.
 * Not for other modules. */
#pragma once

#include "sim/tune/tune.h"

typedef struct rpsim_tune_candidate {
    rp_partition partition; /**< arrays of the space's capacity */
    uint32_t round;         /**< index into the input's rounds */
    uint32_t start;         /**< index into the input's starts */
} rpsim_tune_candidate;

typedef struct rpsim_tune_random {
    uint64_t state;
} rpsim_tune_random;

/** @return the most stages in one direction that a candidate can have. */
uint32_t rpsim_tune_capacity(const rpsim_tune_input *input);

/** @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_tune_candidate_init(const rpsim_tune_input *input, rp_arena *arena,
                                    rpsim_tune_candidate *candidate_out);

/** Copies counts, layers, round and start. Both candidates have the same capacity. */
void rpsim_tune_candidate_copy(const rpsim_tune_candidate *from, rpsim_tune_candidate *to);

/** @return true if the head's backward stage runs the forward of its layers, too. */
bool rpsim_tune_fused(const rpsim_tune_input *input, const rp_partition *partition);

/** @return true if the space holds this partition. */
bool rpsim_tune_holds(const rpsim_tune_input *input, const rp_partition *partition);

/** Visits a point; `index` counts from 0 in the order of the walk. A status other than RP_OK ends
 * the walk. */
typedef rp_status (*rpsim_tune_visit)(void *context, const rpsim_tune_candidate *candidate,
                                      uint64_t index);

/** Visits every point of the space, always in the same order. @retval RP_OK, or the visitor's
 * status */
rp_status rpsim_tune_walk(const rpsim_tune_input *input, rpsim_tune_candidate *scratch,
                          rpsim_tune_visit visit, void *context);

/** @return the random numbers of chain `number` of a search with this seed. */
rpsim_tune_random rpsim_tune_random_make(uint64_t seed, uint64_t number);

/** @return a uniformly distributed number in 0 .. count - 1; count is at least 1. */
uint32_t rpsim_tune_draw(rpsim_tune_random *random, uint32_t count);

/** Fills `stages` stages with `layers` layers as equally as possible, with larger stages first. */
void rpsim_tune_spread(uint32_t layers, uint32_t stages, uint32_t *layers_out);

/**
 * Changes `candidate` a little, at random.
 * @return true if it is another point of the space; if false, its content is undefined
 */
bool rpsim_tune_move(const rpsim_tune_input *input, rpsim_tune_random *random,
                     rpsim_tune_candidate *candidate);
