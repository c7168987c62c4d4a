/** @file order.h  The order of ops in a program: a topological order, and vector clocks. */
#pragma once

#include "common/program/program.h"

/** An order; all of it lives in the arena in which it was made. */
typedef struct rpexec_order {
    const rp_program *program;
    uint32_t *ops;      /**< [op_count] all ops, each after all that it follows */
    uint32_t *queue_of; /**< [op] */
    /** [op][queue] ops of the queue that have ended before the op starts, at least. */
    uint32_t *clocks;
} rpexec_order;

/**
 * Orders a program's ops: takes from each queue as many ops as can follow, then goes on with the
 * next queue.
 * @retval RP_OK, RP_INVALID_PROGRAM (a cycle: names an op that never starts; logged), RP_NO_MEMORY
 */
rp_status rpexec_order_create(const rp_program *program, rp_arena *arena, rpexec_order *order_out);

/** @return true if `first` has always ended when `then` starts. */
static inline bool rpexec_order_before(const rpexec_order *order, uint32_t first, uint32_t then)
{
    const rp_program *p = order->program;
    uint32_t queue = order->queue_of[first];
    return order->clocks[(size_t)then * p->queue_count + queue] > first - p->queues[queue].op_begin;
}
