/** @file expand.h  Programs in which every GPU of a layout has its own queues. */
#pragma once

#include "common/program/program.h"

/**
 * Makes the program of all GPUs of a layout (schedules.md 16). If several servers share its copies
 * equally, it makes the program of a single server, which is the same for all. GPU (p D + d) T + t
 * is rank t of the tensor group of copy d at place p, and has the ops of GPU p. The M microbatches
 * of a copy become microbatches of the step: microbatch m of that GPU becomes (d M + m) T + t. So
 * each op occurs once, and the program obeys all rules. The T numbers from (d M + m) T on are a
 * single microbatch, on which a tensor group works together: the first number has its sequences,
 * the others have 0. Ops of the host occur once and wait for all GPUs; other ops wait inside of
 * their own copy and rank. Collectives of groups have an op per member.
 * @param folded lowered, with a layout of at least one kind of GPU; accepted by rp_program_check
 * @param servers a divisor of the number of copies; D counts a server's copies then
 * @param arena holds the program, which has no buffers and no layout in its traits
 * @retval RP_OK, RP_USAGE (more ops, GPUs or microbatches than programs have; logged), RP_NO_MEMORY
 */
rp_status rp_program_expand(const rp_program *folded, uint32_t servers, rp_arena *arena,
                            rp_program **program_out);
