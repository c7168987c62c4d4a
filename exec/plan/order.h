/** @file order.h  The order of ops in a program: a topological order, and vector clocks. */
#pragma once

#include "common/program/program.h"

/** Everything lives in the arena it was made in. */
typedef struct rpexec_order {
    const rp_program *program;
    uint32_t *ops;      /**< [op_count] all ops, each after all that it follows */
    uint32_t *queue_of; /**< [op] */
    /** [op][queue] how many ops of the queue have ended before the op starts, at the least. */
    uint32_t *clocks;
} rpexec_order;

/**
 * Orders a program's ops: of those that could be next the one in the lowest queue, one queue as far
 * as it goes before the next.
 * @retval RP_OK, RP_INVALID_PROGRAM (a cycle: names an op that never starts; logged), RP_NO_MEMORY
 */
rp_status rpexec_order_create(const rp_program *program, rp_arena *arena, rpexec_order *order_out);

/** @return true where `first` has ended whenever `then` starts. */
static inline bool rpexec_order_before(const rpexec_order *order, uint32_t first, uint32_t then)
{
    const rp_program *p = order->program;
    uint32_t queue = order->queue_of[first];
    return order->clocks[(size_t)then * p->queue_count + queue] > first - p->queues[queue].op_begin;
}
