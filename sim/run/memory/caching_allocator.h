/** @file caching_allocator.h  PyTorch's caching allocator of a GPU with expandable segments,
 * modelled as far as it decides whether a run fits.
 *
 * Rules (c10/cuda/CUDACachingAllocator.cpp, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True):
 * sizes are rounded up to 512 B. Each stream has two pools: the small pool for requests of at most
 * 1 MiB, the large pool for all others. A pool is a single range of addresses that grows; memory is
 * mapped into it in pages of 2 MiB in the small pool and of 20 MiB in the large pool.
 *
 * A request takes the smallest free block of the pool that is large enough, and among equals the
 * block at the lowest address. If unmapped addresses follow a block, its size includes them, since
 * it can grow into them. A rest of 512 B or more is split off. If no block is large enough, pages
 * are mapped at the lowest address at which free and unmapped addresses together are long enough. A
 * freed block joins free neighbours; its pages stay mapped.
 *
 * If the GPU has no page left, all wholly free pages of all pools are given back to it; if that is
 * not enough, memory is out. So a live block keeps at most its own pages and a part of two more
 * from other blocks, and an allocator that only counts can give an amount that is always enough.
 */
#pragma once

#include "common/base/mem.h"

#include <stdbool.h>

/** Number of streams, each of which has its own pools. */
#define RPSIM_ALLOCATOR_STREAMS 4u

typedef struct rpsim_block rpsim_block;

typedef struct rpsim_allocator {
    uint64_t limit_bytes; /**< most bytes that all pages may take together */
    bool counts; /**< set before the first request: keeps only sums, no addresses and no limit */
    uint64_t reserved_bytes;      /**< bytes of mapped pages; if it counts, at least those needed */
    uint64_t live_bytes;          /**< bytes of live blocks, sizes rounded */
    uint64_t peak_reserved_bytes; /**< maximum of reserved_bytes so far */
    uint64_t peak_live_bytes;     /**< maximum of live_bytes so far */
    uint64_t flushes;             /**< number of times that free pages were given back */
    struct rpsim_allocator_state *state;
} rpsim_allocator;

/**
 * @param arena owns all blocks; grows with the number of blocks that live at the same time
 * @retval RP_OK, RP_NO_MEMORY (this process's, not the GPU's)
 */
rp_status rpsim_allocator_init(uint64_t limit_bytes, rp_arena *arena, rpsim_allocator *allocator);

/**
 * @param stream below RPSIM_ALLOCATOR_STREAMS
 * @param bytes at least 1
 * @param block_out NULL if the GPU's memory is out
 * @retval RP_OK, RP_NO_MEMORY (this process's)
 */
rp_status rpsim_allocator_take(rpsim_allocator *allocator, uint32_t stream, uint64_t bytes,
                               rpsim_block **block_out);

/** Frees a block; its handle is invalid afterwards. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_allocator_free(rpsim_allocator *allocator, rpsim_block *block);
