/** @file pool.h  Permanent threads for passes over the state of training in host memory.
 *
 * A pass over an array is cut into pieces of RPEXEC_POOL_PIECE values, the same for any number of
 * threads. On a machine with several NUMA nodes threads are bound to nodes, each node has a
 * contiguous share of every array's pieces, and its threads take the pieces one after the other.
 * The thread that first touches a page decides on which node it lies, so the first pass over an
 * array must also be the pool's. On a machine with a single node the kernel places threads.
 *
 * Threads are started by the first pass that has several pieces. The caller sleeps during a pass.
 */
#pragma once

#include "common/base/mem.h"

#include <stdint.h>

/** Values that a thread takes at a time: small enough to share fairly, large enough that taking
 * them costs nothing. */
#define RPEXEC_POOL_PIECE (UINT64_C(1) << 18)

/** Fewest pieces of a model for which several threads work: fewer are done before another thread is
 * awake. */
#define RPEXEC_POOL_LEAST_PIECES 8u

typedef struct rpexec_pool rpexec_pool;

/** @return pieces of an array of `count` values. */
static inline uint64_t rpexec_pool_pieces(uint64_t count)
{
    return (count + RPEXEC_POOL_PIECE - 1) / RPEXEC_POOL_PIECE;
}

/** @return threads of a pool on `cores` processors: all of fewer than eight, otherwise seven
 * eighths. The rest is left to the threads that submit to queues, and memory is busy with fewer
 * threads. */
uint32_t rpexec_pool_threads(uint32_t cores);

/**
 * Makes a pool that ends with the arena.
 * @param threads 0: rpexec_pool_threads of this process's processors
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_pool_create(uint32_t threads, rp_arena *arena, rpexec_pool **pool_out);

/** Values [first, first + count) of a pass. */
typedef void (*rpexec_pool_piece)(void *context, uint64_t first, uint64_t count);

/**
 * Runs a pass over `count` values; returns when all pieces are done. Several callers wait for each
 * other. A pass of a single piece, or without a pool, runs in the calling thread.
 * @param pool NULL: none
 */
void rpexec_pool_run(rpexec_pool *pool, uint64_t count, rpexec_pool_piece run, void *context);
