/** @file caching_allocator.h  PyTorch's caching allocator of one GPU with expandable segments, as
 * far as it decides what fits.
 *
 * Rules (c10/cuda/CUDACachingAllocator.cpp, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True):
 * sizes are rounded up to 512 B. Each stream has two pools, one for requests of at most 1 MiB and
 * one for all others. A pool is one range of addresses that grows; memory is mapped into it in
 * pages, of 2 MiB in the pool of small requests and of 20 MiB in the other one.
 *
 * The smallest free block of the pool that is large enough is taken, of equals the one at the
 * lowest address. A block that ends where nothing is mapped counts with what it can grow by. A
 * rest of 512 B or more is split off. Where no block is large enough, pages are mapped: at the
 * lowest address where free and unmapped addresses together are long enough. A freed block joins
 * free neighbours; its pages stay mapped.
 *
 * Where the GPU has no page left, all pages of all pools that are free as a whole are given back to
 * it, and if that is not enough, memory is out. A live block thus keeps at most its own pages and a
 * part of two more from others: an allocator that only counts knows what is enough in any case.
 */
#pragma once

#include "common/base/mem.h"

#include <stdbool.h>

/** Streams whose pools are apart. */
#define RPSIM_ALLOCATOR_STREAMS 4u

typedef struct rpsim_block rpsim_block;

typedef struct rpsim_allocator {
    uint64_t limit_bytes; /**< that pages may have together */
    bool counts;          /**< set before the first request: no addresses and no limit, only sums */
    uint64_t reserved_bytes;      /**< of mapped pages; where it counts, no fewer than needed */
    uint64_t live_bytes;          /**< of live blocks, rounded sizes */
    uint64_t peak_reserved_bytes; /**< the most that there has been */
    uint64_t peak_live_bytes;     /**< likewise */
    uint64_t flushes;             /**< times that free pages were given back */
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
