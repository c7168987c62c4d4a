/** @file synthetic.h  Models of equal layers for closed forms and generic properties. */
#pragma once

#include "common/schedule/schedule_type.h"
#include "sim/run/case.h"

/** Makes equal layers, without a head and without a hop unless they are set afterwards. Lives in
 * `arena`. */
void rp_test_equal_costs(rp_arena *arena, uint32_t layers, int64_t fwd_ps, int64_t bwd_ps,
                         rp_costs *costs_out);

/**
 * Runs any schedule on `costs` with the even partition.
 * @param stages_per_gpu for schedules that take several; 1 for other schedules
 * @return the status of rpsim_case_run (RP_USAGE if the rule does not allow the sizes)
 */
rp_status rp_test_run_even(const rp_schedule_type *schedule, const rp_costs *costs, uint32_t gpus,
                           uint32_t microbatches, uint32_t stages_per_gpu, rp_recompute recompute,
                           rp_arena *arena, rpsim_result *result_out);

/** 1F1B in two parts, with each weight part `rp_test_lag` input parts after its own input part; not
 * registered. */
extern const rp_schedule_type rp_test_lagging;
extern uint32_t rp_test_lag;
