/** @file program_in.h  --program-in: running a program that rpsim or rpexec has written. */
#pragma once

#include "exec/model/model.h"
#include "exec/plan/plan.h"
#include "exec/setup/setup.h"

/**
 * Reads options->program_in and sets the options to the program's values: schedule (a schedule
 * without rules if the name is not registered), GPUs, microbatches, recompute, optimizer, and steps
 * unless they are given.
 * @param arena memory of the values that the options point to then
 * @param program_out owned by the caller
 * @retval RP_OK, RP_USAGE (options that contradict it; logged), RP_INPUT (logged), RP_IO,
 *         RP_NO_MEMORY
 */
rp_status rpexec_program_in_read(rpexec_options *options, rp_arena *arena,
                                 rp_program **program_out);

/**
 * Makes it a program of the model: a compute schedule is lowered; a program that is already lowered
 * must move the bytes that the model's tensors have.
 * @param options as rpexec_program_in_read left them
 * @param program replaced if it is lowered here
 * @retval RP_OK, RP_USAGE (cannot be lowered; logged), RP_INPUT (made for another model, sequence
 *         length or storage type; logged with the op), RP_NO_MEMORY
 */
rp_status rpexec_program_in_fit(const rpexec_options *options, const rpexec_model *model,
                                rp_arena *arena, rp_program **program);

/**
 * Checks the plan of a program that somebody may have changed by hand: every op has the tensors
 * that it works on, on its own GPU and of its own microbatch.
 * @retval RP_OK, RP_INPUT (logged with the op)
 */
rp_status rpexec_program_in_check(const rpexec_plan *plan);
