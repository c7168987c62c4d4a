/** @file run_plan.h  RoundPipe's plan for a run: by the layer times of its own microbatches.
 *
 * The library plans with the times that it has measured in the run itself (planner.md 1), so the
 * plan depends on the sequence length: attention grows with the length, the head does not.
 */
#pragma once

#include "common/base/reason.h"
#include "sim/run/hardware_case.h"

/**
 * Moves a cost table to the microbatches of a run, layer by layer (layer_costs.h).
 * @param sequences sequences of a microbatch, seq_len tokens each; at least 1
 * @param costs_out the table at that microbatch_size and seq_len; equals `table` but for rounding
 * if these are the table's own; borrows the table's texts, its arrays live in `arena`
 * @retval RP_OK, RP_INPUT (as rpsim_hardware_inputs), RP_NO_MEMORY
 */
rp_status rpsim_run_costs(const rp_costs *table, const rp_model *model, const rp_platform *platform,
                          uint32_t sequences, uint32_t seq_len, rp_arena *arena,
                          rp_costs *costs_out, rp_reason *reason);

/**
 * Makes a plan by a table's own times (planner.md), at least one stage per GPU.
 * @param model NULL: sizes are unknown and count as 0
 * @param memory_limit as rp_plan_input's
 * @param raised_out may be NULL; the limit if it had to be raised for the largest layer, otherwise
 * 0
 * @retval RP_OK, RP_INPUT (as rp_plan_make), RP_NO_MEMORY
 */
rp_status rpsim_table_plan(const rp_costs *costs, const rp_model *model, uint64_t memory_limit,
                           uint32_t gpus, rp_arena *arena, rp_partition *partition_out,
                           uint64_t *raised_out, rp_reason *reason);

/**
 * Plans a run at hardware fidelity: planner.md with the times of its largest microbatch and
 * rp_plan_default_limit of the platform.
 * @param partition_out its arrays live in `arena`
 * @param raised_out as rpsim_table_plan's
 * @retval RP_OK, RP_INPUT (as rpsim_run_costs), RP_NO_MEMORY
 */
rp_status rpsim_run_plan(const rp_resolved *run, const rp_platform *platform, rp_arena *arena,
                         rp_partition *partition_out, uint64_t *raised_out, rp_reason *reason);

/**
 * Plans a run's first iterations, before the library has measured anything: the bytes of a layer
 * stand for its time, and a backward takes three times as long (planner.md 1).
 * @param partition_out its arrays live in `arena`
 * @retval RP_OK, RP_INPUT (as rp_plan_make), RP_NO_MEMORY
 */
rp_status rpsim_first_plan(const rp_costs *table, const rp_model *model, uint64_t memory_limit,
                           uint32_t gpus, rp_arena *arena, rp_partition *partition_out,
                           rp_reason *reason);
