/** @file work.h  Programs for the executor's model: common/compile with that model's sizes and
 * type, and the properties of schedules that the executor does not support. */
#pragma once

#include "common/base/reason.h"
#include "common/compile/compile.h"
#include "exec/model/model.h"

/** Time that rpexec_work_costs gives a floating-point operation: ten operations take a
 * nanosecond. */
#define RPEXEC_PS_PER_FLOP 100

/**
 * Times of one microbatch from FLOP counts (executor.md section 5) at 10 GFLOP/s: the weights that
 * a partition balances before anything has been measured. Only their ratios mean anything.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_work_costs(const rpexec_model *model, uint32_t sequences, rp_arena *arena,
                            rp_costs *costs_out);

/**
 * Finds the reason why a program is simulated only; whether sizes fit is another matter.
 * @param asynchronous with --optimizer async
 * @return the property that the executor does not support, for "NAME: ..." (static); NULL: none
 */
const char *rpexec_work_obstacle(const rp_traits *traits, bool asynchronous);

/** As rpexec_work_obstacle: the types of states, masters and frozen weights. */
const char *rpexec_types_obstacle(const rp_traits *traits);

/** rp_compile_lower. @param work its model, seq_len and dtype are not read: `model` has them */
rp_status rpexec_work_lower(const rp_resolved *work, const rpexec_model *model,
                            const rp_program *schedule, rp_program **program_out);

/**
 * rp_compile.
 * @param work as for rpexec_work_lower; its costs are not read either
 * @param costs rpexec_work_costs or measured ones
 * @retval as rp_compile; RP_USAGE also if the executor does not run it (given as the reason)
 */
rp_status rpexec_work_program(const rp_resolved *work, const rpexec_model *model,
                              const rp_costs *costs, rp_program **program_out, rp_reason *reason);
