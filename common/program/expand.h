/** @file expand.h  Programs in which every GPU of a layout stands for itself. */
#pragma once

#include "common/program/program.h"

/**
 * Makes the program of all GPUs of a layout (schedules.md 16), or of one of several servers that
 * share its copies equally: all of them have the same one. GPU (p D + d) T + t is rank t of the
 * tensor group of copy d at place p, and has the ops of GPU p. The M microbatches of a copy become
 * those of the step: op m of that GPU becomes (d M + m) T + t. So each op is there once, and the
 * program obeys all rules. The T numbers from (d M + m) T on are one microbatch, on which a tensor
 * group works together: the first has its sequences, the others have 0. Ops of the host are there
 * once and wait for all GPUs; others wait inside of their own copy and rank. Collectives of groups
 * are one op per member.
 * @param folded lowered, with a layout of one kind of GPU or more; accepted by rp_program_check
 * @param servers divides the copies; D is those of a server then
 * @param arena holds the program, which has no buffers and no layout in its traits
 * @retval RP_OK, RP_USAGE (more ops, GPUs or microbatches than programs have; logged), RP_NO_MEMORY
 */
rp_status rp_program_expand(const rp_program *folded, uint32_t servers, rp_arena *arena,
                            rp_program **program_out);
