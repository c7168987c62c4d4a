/** @file caching_allocator.h  PyTorch's caching allocator of one GPU, as far as it decides what
 * fits.
 *
 * Rules (c10/cuda/CUDACachingAllocator.cpp, default settings): sizes are rounded up to 512 B.
 * Requests of at most 1 MiB come from segments of 2 MiB, those below 10 MiB from segments of 20
 * MiB, all others from segments of their own, rounded up to 2 MiB. A freed block goes back to the
 * pool of its stream and joins free neighbours; the smallest free block of the same pool that is
 * large enough is taken next (of equals the one that came first) and split where more than 512 B
 * (small) or 1 MiB (large) would be left. Where the GPU has no room for a segment, all segments
 * without a live block are given back to it, and if that is not enough, memory is out.
 */
#pragma once

#include "common/base/mem.h"

/** Streams whose pools are apart. */
#define RPSIM_ALLOCATOR_STREAMS 4u

typedef struct rpsim_block rpsim_block;

typedef struct rpsim_allocator {
    uint64_t limit_bytes;         /**< that segments may have together */
    uint64_t reserved_bytes;      /**< of segments */
    uint64_t live_bytes;          /**< of live blocks, rounded sizes */
    uint64_t peak_reserved_bytes; /**< the most that there has been */
    uint64_t peak_live_bytes;     /**< likewise */
    uint64_t flushes;             /**< times that unused segments were given back */
    struct rpsim_allocator_state *state;
} rpsim_allocator;

/**
 * @param arena owns everything; grows with the number of blocks that live at the same time
 * @retval RP_OK, RP_NO_MEMORY (this process's, not the GPU's)
 */
rp_status rpsim_allocator_init(uint64_t limit_bytes, rp_arena *arena, rpsim_allocator *allocator);

/**
 * @param stream below RPSIM_ALLOCATOR_STREAMS
 * @param bytes at least 1
 * @param block_out NULL where the GPU's memory is out
 * @retval RP_OK, RP_NO_MEMORY (this process's)
 */
rp_status rpsim_allocator_take(rpsim_allocator *allocator, uint32_t stream, uint64_t bytes,
                               rpsim_block **block_out);

/** Frees a block; its handle is invalid afterwards. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_allocator_free(rpsim_allocator *allocator, rpsim_block *block);
