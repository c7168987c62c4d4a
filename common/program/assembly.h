/** @file assembly.h  Puts a program together queue by queue when ops are not known in advance.
 *
 * Ops are appended to queues and get handles; waits are added between handles in any order;
 * finishing numbers the ops, sorts the waits and drops those that queue order covers. Used by the
 * lowering, whose transfers wait for ops of queues that come later.
 */
#pragma once

#include "common/base/reason.h"
#include "common/program/program.h"

typedef struct rp_assembly rp_assembly;

/** Names an op of an assembly until it is finished. */
typedef uint64_t rp_handle;
#define RP_NO_HANDLE UINT64_MAX

/**
 * @param arena holds all scratch memory of the assembly and must outlive it
 * @param queues kinds and GPUs of the queues, in the order of the program; op_begin and op_end are
 *        ignored
 * @param reason receives refusals of ops, as long as the assembly lives; NULL: they are logged
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_assembly_create(rp_arena *arena, const rp_queue *queues, uint32_t queue_count,
                             rp_assembly **assembly_out, rp_reason *reason);

/**
 * Appends an op to a queue. op->wait_begin is ignored.
 * @param bytes bytes that the op moves or works on; 0 for compute ops other than UPDATE
 * @retval RP_OK, RP_NO_MEMORY, RP_USAGE (more than RP_MAX_OPS ops)
 */
rp_status rp_assembly_add(rp_assembly *assembly, uint32_t queue, const rp_op *op, uint64_t bytes,
                          rp_handle *handle_out);

/**
 * Makes `op` wait for `target`; RP_NO_HANDLE as target adds nothing. Repetitions are harmless: a
 * data wait beats a control wait.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_assembly_wait(rp_assembly *assembly, rp_handle op, rp_handle target, bool control);

/** @return the last op of a queue, RP_NO_HANDLE when it is empty. */
rp_handle rp_assembly_last(const rp_assembly *assembly, uint32_t queue);

/**
 * Writes queues, ops, waits and op_bytes into `program`, whose arena they live in.
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (a wait for a later op of the same queue; logged)
 */
rp_status rp_assembly_finish(const rp_assembly *assembly, rp_program *program);

/** @return the op number of a handle, once the assembly is finished. */
uint32_t rp_assembly_number(const rp_assembly *assembly, rp_handle handle);
