/** @file tune.h  The search behind --partition tuned: partitions, RoundPipe's round size and start
 * rule, with a simulator as the objective.
 *
 * Space. Schedules with separate backward stages: forward stages of 1 .. max_forward layers;
 * backward stages of 1 .. max_backward layers, except the head's, which has 0 .. max_backward
 * layers (recomputed) or 1 .. max_fused layers (fused: no forward stage has them). Other schedules:
 * any number of layers per stage, including 0, for each of the given numbers of stages. Each
 * partition is combined with each of the given rounds and start rules.
 *
 * A space of at most `budget` points is enumerated: the result is exact. A larger space is searched
 * by threshold accepting (Dueck and Scheuer 1990: a move to a neighbour is accepted unless it is
 * worse by more than a threshold that falls to 0). First a chain explores for each rule (round and
 * start) and each starting point: the references, and equal stages. The best RPSIM_TUNE_CHAINS of
 * these chains go on with the larger part of the budget and a lower threshold. A move to a
 * neighbour does one of the following: moves a layer to another stage of its direction, swaps two
 * neighbouring stages, splits a stage, merges two stages, gives a layer to the head's stage or
 * takes a layer from it, fuses or separates the head's stage, or changes the rule.
 *
 * The budget is in evaluations of the objective and every chain has its own share and its own
 * random numbers, so that the result depends on the seed and the budget, not on threads or time.
 * The references are evaluated first, and only a better point replaces them.
 */
#pragma once

#include "common/schedule/schedule_type.h"

/** Number of refining chains, and of shares of an enumeration. */
#define RPSIM_TUNE_CHAINS 8u

/** A complete point of the search. */
typedef struct rpsim_tune_point {
    rp_partition partition;
    uint32_t round; /**< as in rp_schedule_config.round */
    rp_round_start round_start;
} rpsim_tune_point;

/**
 * Objective that the search minimises; called by several threads at once.
 * @param config a run with the point's partition, round and start
 * @param ps_out any finite or infinite number; of equal points the first found wins
 * @retval RP_OK, RP_NO_MEMORY, …: ends the search
 */
typedef rp_status (*rpsim_tune_objective)(const void *context, const rp_schedule_config *config,
                                          double *ps_out);

typedef struct rpsim_tune_input {
    const rp_schedule_config *config; /**< the search replaces partition, round and start */
    bool separate_backward;
    const rpsim_tune_point *references; /**< at least one point; the schedule's rule allows them */
    uint32_t reference_count;
    uint32_t max_forward; /**< layers per stage, at least 1; only for separate backward stages */
    uint32_t max_backward;
    uint32_t max_fused;           /**< layers of a fused head's stage; 0: it is never fused */
    const uint32_t *stage_counts; /**< numbers of stages that the rule allows; only for pipelines */
    uint32_t stage_count_count;
    const uint32_t *rounds; /**< at least 1 round */
    uint32_t round_count;
    const rp_round_start *starts; /**< at least 1 start rule */
    uint32_t start_count;
    rpsim_tune_objective objective;
    const void *context;
    uint32_t budget; /**< number of evaluations, the references' not counted */
    uint64_t seed;
    uint32_t threads; /**< 0: all cores */
} rpsim_tune_input;

typedef struct rpsim_tune_result {
    rpsim_tune_point point; /**< its arrays live in the caller's arena */
    double objective_ps;
    uint64_t evaluations;
    bool exact; /**< the whole space was enumerated */
} rpsim_tune_result;

/** @return the number of points of the space, or UINT64_MAX if there are more. */
uint64_t rpsim_tune_space(const rpsim_tune_input *input);

/**
 * Finds the point with the least objective.
 * @param result_out never worse than any reference
 * @retval RP_OK, RP_NO_MEMORY, or the objective's status
 */
rp_status rpsim_tune(const rpsim_tune_input *input, rp_arena *arena, rpsim_tune_result *result_out);
