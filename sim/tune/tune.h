/** @file tune.h  The search behind --partition tuned: partitions, RoundPipe's round size and start
 * rule, with a simulator as the objective.
 *
 * Space. Schedules with separate backward stages: forward stages of 1 .. max_forward layers;
 * backward stages of 1 .. max_backward layers, but the head's of 0 .. max_backward (its layers are
 * recomputed) or 1 .. max_fused (fused: no forward stage has them). Other schedules: any layers per
 * stage, 0 included, for each of the given numbers of stages. Times the given rounds and start
 * rules.
 *
 * Small spaces, of at most `budget` points, are enumerated: the result is exact. Larger ones are
 * searched by threshold accepting (Dueck and Scheuer 1990: a move to a neighbour is accepted unless
 * it is worse by more than a threshold that falls to 0). First one chain per rule (round and start)
 * and starting point explores: the references, and equal stages. The best RPSIM_TUNE_CHAINS of
 * them go on with the larger part of the budget and a lower threshold. Neighbours: a layer moves
 * to another stage of its direction, two neighbouring stages swap, one splits, two merge, the
 * head's stage takes or gives a layer or is fused or not, another rule.
 *
 * The budget is in evaluations of the objective and every chain has its own share and its own
 * random numbers, so that the result depends on the seed and the budget, not on threads or time.
 * The references are evaluated first, and only what is better replaces them.
 */
#pragma once

#include "common/schedule/schedule_type.h"

/** Chains that refine, and shares of an enumeration. */
#define RPSIM_TUNE_CHAINS 8u

/** Point to try, complete. */
typedef struct rpsim_tune_point {
    rp_partition partition;
    uint32_t round; /**< as rp_schedule_config.round */
    rp_round_start round_start;
} rpsim_tune_point;

/**
 * Objective that the search minimises; called by several threads at once.
 * @param config with the point's partition, round and start
 * @param ps_out any finite or infinite number; ties go to what was found first
 * @retval RP_OK, RP_NO_MEMORY, …: ends the search
 */
typedef rp_status (*rpsim_tune_objective)(const void *context, const rp_schedule_config *config,
                                          double *ps_out);

typedef struct rpsim_tune_input {
    const rp_schedule_config *config; /**< partition, round and start are the search's */
    bool separate_backward;
    const rpsim_tune_point *references; /**< at least one; the schedule's rule allows them */
    uint32_t reference_count;
    uint32_t max_forward; /**< layers per stage, at least 1; separate backward stages only */
    uint32_t max_backward;
    uint32_t max_fused;           /**< 0: nothing is fused */
    const uint32_t *stage_counts; /**< numbers of stages that the rule allows; pipelines only */
    uint32_t stage_count_count;
    const uint32_t *rounds; /**< at least one */
    uint32_t round_count;
    const rp_round_start *starts; /**< at least one */
    uint32_t start_count;
    rpsim_tune_objective objective;
    const void *context;
    uint32_t budget; /**< evaluations without those of the references */
    uint64_t seed;
    uint32_t threads; /**< 0: all cores */
} rpsim_tune_input;

typedef struct rpsim_tune_result {
    rpsim_tune_point point; /**< arrays in the caller's arena */
    double objective_ps;
    uint64_t evaluations;
    bool exact; /**< the whole space was enumerated */
} rpsim_tune_result;

/** @return the number of points of the space, UINT64_MAX where there are more. */
uint64_t rpsim_tune_space(const rpsim_tune_input *input);

/**
 * Finds the point with the least objective.
 * @param result_out never worse than any reference
 * @retval RP_OK, RP_NO_MEMORY, or what the objective returned
 */
rp_status rpsim_tune(const rpsim_tune_input *input, rp_arena *arena, rpsim_tune_result *result_out);
