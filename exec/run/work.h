/** @file work.h  Programs for the executor's model: common/compile with that model's sizes and
 * type, and what of a program the executor does not do. */
#pragma once

#include "common/base/reason.h"
#include "common/compile/compile.h"
#include "exec/model/model.h"

/** Time that rpexec_work_costs gives a floating-point operation: a nanosecond for ten of them. */
#define RPEXEC_PS_PER_FLOP 100

/**
 * Times of one microbatch from FLOP counts (executor.md section 5) at 10 GFLOP/s: what a partition
 * balances before anything has been measured. Only their ratios mean anything.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_work_costs(const rpexec_model *model, uint32_t sequences, rp_arena *arena,
                            rp_costs *costs_out);

/**
 * Why a program is simulated only; whether sizes fit is another matter.
 * @param asynchronous with --optimizer async
 * @return what it has that the executor does not do, for "NAME: ..." (static); NULL: nothing
 */
const char *rpexec_work_obstacle(const rp_traits *traits, bool asynchronous);

/** rp_compile_lower. @param work its model, seq_len and dtype are not read: they are `model`'s */
rp_status rpexec_work_lower(const rp_resolved *work, const rpexec_model *model,
                            const rp_program *schedule, rp_program **program_out);

/**
 * rp_compile.
 * @param work as in rpexec_work_lower; nor are its costs
 * @param costs rpexec_work_costs or measured ones
 * @retval as rp_compile; RP_USAGE also where the executor does not run it (logged)
 */
rp_status rpexec_work_program(const rp_resolved *work, const rpexec_model *model,
                              const rp_costs *costs, rp_program **program_out, rp_reason *reason);
