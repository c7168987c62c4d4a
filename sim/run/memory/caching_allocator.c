#include "sim/run/memory/caching_allocator.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define ROUNDING 512u
#define SMALL_BYTES MIB /* largest request served by the small pool */
#define SMALL_PAGE (2 * MIB)
#define LARGE_PAGE (20 * MIB)
#define ADDRESSES ((uint64_t)1 << 62) /* size of a pool's address range, larger than any memory */
#define POOLS (2 * RPSIM_ALLOCATOR_STREAMS) /* a small and a large pool for each stream */

typedef enum block_state { BLOCK_LIVE, BLOCK_FREE, BLOCK_UNMAPPED } block_state;

/* A piece of a pool's addresses; blocks adjoin in the order of addresses. No two free and no two
 * unmapped blocks are neighbours; the last block is unmapped. */
struct rpsim_block {
    uint64_t address;
    uint64_t bytes;
    rpsim_block *before;
    rpsim_block *after;
    uint32_t pool;
    block_state state;
};

typedef struct pool {
    uint64_t page;
    rpsim_block *first;
    rpsim_block *last;  /* the unmapped block that extends to the end of the pool */
    uint32_t holes;     /* number of unmapped blocks before `last` */
    rpsim_block **free; /* free blocks, ascending by size, then by address */
    uint32_t count;
    uint32_t room;
} pool;

struct rpsim_allocator_state {
    rp_arena *arena;
    pool pools[POOLS];
    rpsim_block *spare; /* unused blocks, chained by `after` */
};

/* ---- blocks ---------------------------------------------------------------------------------- */

static rp_status new_block(struct rpsim_allocator_state *s, rpsim_block **block_out)
{
    if (s->spare == NULL) {
        return rp_arena_alloc(s->arena, 1, sizeof **block_out, block_out);
    }
    *block_out = s->spare;
    s->spare = s->spare->after;
    return RP_OK;
}

rp_status rpsim_allocator_init(uint64_t limit_bytes, rp_arena *arena, rpsim_allocator *allocator)
{
    *allocator = (rpsim_allocator){.limit_bytes = limit_bytes};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *allocator->state, &allocator->state));
    allocator->state->arena = arena;
    for (uint32_t i = 0; i < POOLS; i++) {
        pool *p = &allocator->state->pools[i];
        p->page = i % 2 == 0 ? SMALL_PAGE : LARGE_PAGE;
        RP_TRY(new_block(allocator->state, &p->first));
        *p->first = (rpsim_block){.bytes = ADDRESSES, .pool = i, .state = BLOCK_UNMAPPED};
        p->last = p->first;
    }
    return RP_OK;
}

static void drop_block(struct rpsim_allocator_state *s, rpsim_block *block)
{
    block->after = s->spare;
    s->spare = block;
}

/* Cuts a block; the second part has the same state and is in no list of free blocks. */
static rp_status cut(struct rpsim_allocator_state *s, rpsim_block *block, uint64_t bytes,
                     rpsim_block **rest_out)
{
    RP_TRY(new_block(s, rest_out));
    **rest_out = *block;
    (*rest_out)->address += bytes;
    (*rest_out)->bytes -= bytes;
    (*rest_out)->before = block;
    block->bytes = bytes;
    block->after = *rest_out;
    if ((*rest_out)->after != NULL) {
        (*rest_out)->after->before = *rest_out;
    } else {
        s->pools[block->pool].last = *rest_out;
    }
    return RP_OK;
}

/* Merges the block after `block` into it. */
static void join(struct rpsim_allocator_state *s, rpsim_block *block)
{
    rpsim_block *gone = block->after;
    block->bytes += gone->bytes;
    block->after = gone->after;
    if (block->after != NULL) {
        block->after->before = block;
    } else {
        s->pools[block->pool].last = block;
    }
    drop_block(s, gone);
}

/* ---- free ones ------------------------------------------------------------------------------- */

/* Finds the index of the first free block that is not below the given size and address. */
static uint32_t lower_bound(const pool *p, uint64_t bytes, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = p->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const rpsim_block *b = p->free[middle];
        bool below = b->bytes < bytes || (b->bytes == bytes && b->address < address);
        low = below ? middle + 1 : low;
        high = below ? high : middle;
    }
    return low;
}

static void remove_free(struct rpsim_allocator_state *s, const rpsim_block *block)
{
    pool *p = &s->pools[block->pool];
    uint32_t at = lower_bound(p, block->bytes, block->address);
    p->count--;
    memmove(p->free + at, p->free + at + 1, (p->count - at) * sizeof(rpsim_block *));
}

/* Marks a mapped block as free and joins it with free neighbours. */
static rp_status put_free(struct rpsim_allocator_state *s, rpsim_block *block)
{
    pool *p = &s->pools[block->pool];
    if (block->before != NULL && block->before->state == BLOCK_FREE) {
        block = block->before;
        remove_free(s, block);
        join(s, block);
    }
    if (block->after->state == BLOCK_FREE) {
        remove_free(s, block->after);
        join(s, block);
    }
    block->state = BLOCK_FREE;
    if (p->count == p->room) {
        rpsim_block **grown = NULL;
        uint32_t room = p->room == 0 ? 64 : 2 * p->room;
        RP_TRY(rp_arena_alloc_raw(s->arena, room, sizeof(rpsim_block *), &grown));
        if (p->count > 0) { /* an empty pool has no array */
            memcpy(grown, p->free, p->count * sizeof(rpsim_block *));
        }
        p->free = grown;
        p->room = room;
    }
    uint32_t at = lower_bound(p, block->bytes, block->address);
    memmove(p->free + at + 1, p->free + at, (p->count - at) * sizeof(rpsim_block *));
    p->free[at] = block;
    p->count++;
    return RP_OK;
}

/* The block's size including the unmapped addresses after it. */
static uint64_t size_when_grown(const rpsim_block *block)
{
    return block->bytes + (block->after->state == BLOCK_UNMAPPED ? block->after->bytes : 0);
}

/* Takes the best free block out of the list; NULL if no free block is large enough. */
static rpsim_block *best_free(struct rpsim_allocator_state *s, pool *p, uint64_t bytes)
{
    uint32_t at = lower_bound(p, bytes, 0);
    if (at == p->count) {
        return NULL;
    }
    while (at + 1 < p->count && size_when_grown(p->free[at + 1]) < size_when_grown(p->free[at])) {
        at++;
    }
    rpsim_block *best = p->free[at];
    remove_free(s, best);
    return best;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void count_reserved(rpsim_allocator *a, uint64_t bytes)
{
    a->reserved_bytes += bytes;
    if (a->reserved_bytes > a->peak_reserved_bytes) {
        a->peak_reserved_bytes = a->reserved_bytes;
    }
}

static void count_live(rpsim_allocator *a, uint64_t bytes)
{
    a->live_bytes += bytes;
    a->peak_live_bytes = a->live_bytes > a->peak_live_bytes ? a->live_bytes : a->peak_live_bytes;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Maps the pages for `bytes` from the begin of an unmapped block, and joins them with free
 * neighbours. Gives no block if the GPU has too few pages. */
static rp_status map(rpsim_allocator *a, rpsim_block *hole, uint64_t bytes, rpsim_block **block_out)
{
    struct rpsim_allocator_state *s = a->state;
    pool *p = &s->pools[hole->pool];
    uint64_t pages = (bytes + p->page - 1) / p->page * p->page;
    *block_out = NULL;
    if (pages > a->limit_bytes - a->reserved_bytes) {
        return RP_OK;
    }
    rpsim_block *rest = NULL;
    if (pages < hole->bytes) {
        RP_TRY(cut(s, hole, pages, &rest));
    } else {
        p->holes--;
    }
    count_reserved(a, pages);
    bool joins = hole->before != NULL && hole->before->state == BLOCK_FREE;
    *block_out = joins ? hole->before : hole;
    return put_free(s, hole);
}

/* Finds the lowest row of free and unmapped blocks that is long enough, and returns its first
 * block. The first or the second block of the row is unmapped. */
static rpsim_block *lowest_row(const pool *p, uint64_t bytes)
{
    rpsim_block *at = p->holes == 0 ? p->last : p->first;
    for (; at != NULL; at = at->after) {
        if (at->state != BLOCK_UNMAPPED) {
            continue;
        }
        bool free_before = at->before != NULL && at->before->state == BLOCK_FREE;
        rpsim_block *begin = free_before ? at->before : at;
        uint64_t sum = 0;
        for (rpsim_block *b = begin; b != NULL && b->state != BLOCK_LIVE && sum < bytes;
             b = b->after) {
            sum += b->bytes;
        }
        if (sum >= bytes) {
            return begin;
        }
    }
    return NULL; /* more than the addresses of a pool */
}

/* Maps the pages that a block of `bytes` needs. Gives no block if the GPU has too little memory. */
static rp_status grow(rpsim_allocator *a, pool *p, uint64_t bytes, rpsim_block **block_out)
{
    rpsim_block *block = lowest_row(p, bytes);
    *block_out = NULL;
    if (block != NULL && block->state == BLOCK_UNMAPPED) {
        RP_TRY(map(a, block, bytes < block->bytes ? bytes : block->bytes, &block));
    }
    while (block != NULL && block->bytes < bytes) {
        uint64_t missing = bytes - block->bytes;
        rpsim_block *hole = block->after;
        RP_TRY(map(a, hole, missing < hole->bytes ? missing : hole->bytes, &block));
    }
    if (block != NULL) {
        remove_free(a->state, block);
    }
    *block_out = block;
    return RP_OK;
}

/* Unmaps the pages that lie wholly inside a free block. */
static rp_status unmap(rpsim_allocator *a, rpsim_block *block)
{
    struct rpsim_allocator_state *s = a->state;
    pool *p = &s->pools[block->pool];
    uint64_t begin = (block->address + p->page - 1) / p->page * p->page;
    uint64_t end = (block->address + block->bytes) / p->page * p->page;
    if (end <= begin) {
        return RP_OK;
    }
    rpsim_block *hole = block;
    rpsim_block *tail = NULL;
    remove_free(s, block);
    if (begin > block->address) {
        RP_TRY(cut(s, block, begin - block->address, &hole));
    }
    hole->state = BLOCK_UNMAPPED;
    if (end < hole->address + hole->bytes) {
        RP_TRY(cut(s, hole, end - hole->address, &tail));
        RP_TRY(put_free(s, tail));
    }
    if (hole != block) {
        RP_TRY(put_free(s, block));
    }
    a->reserved_bytes -= end - begin;
    p->holes++;
    if (hole->after->state == BLOCK_UNMAPPED) {
        join(s, hole);
        p->holes--;
    }
    if (hole->before != NULL && hole->before->state == BLOCK_UNMAPPED) {
        join(s, hole->before);
        p->holes--;
    }
    return RP_OK;
}

static rp_status flush(rpsim_allocator *a)
{
    a->flushes++;
    for (uint32_t i = 0; i < POOLS; i++) {
        rpsim_block *next = NULL;
        for (rpsim_block *b = a->state->pools[i].first; b != NULL; b = next) {
            next = b->after;
            if (b->state == BLOCK_FREE) {
                while (next != NULL && next->state == BLOCK_UNMAPPED) { /* may be joined */
                    next = next->after;
                }
                RP_TRY(unmap(a, b));
            }
        }
    }
    return RP_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The most bytes of pages that a block needs: its first and its last page may extend over free
 * blocks. */
static uint64_t pages_of(uint64_t bytes)
{
    return bytes + 2 * (bytes <= SMALL_BYTES ? SMALL_PAGE : LARGE_PAGE);
}

static rp_status take_counted(rpsim_allocator *a, uint64_t size, rpsim_block **block_out)
{
    RP_TRY(new_block(a->state, block_out));
    (*block_out)->bytes = size;
    count_reserved(a, pages_of(size));
    count_live(a, size);
    return RP_OK;
}

rp_status rpsim_allocator_take(rpsim_allocator *a, uint32_t stream, uint64_t bytes,
                               rpsim_block **block_out)
{
    struct rpsim_allocator_state *s = a->state;
    uint64_t size = (bytes + ROUNDING - 1) / ROUNDING * ROUNDING;
    if (a->counts) {
        return take_counted(a, size, block_out);
    }
    pool *p = &s->pools[2 * stream + (size <= SMALL_BYTES ? 0 : 1)];
    rpsim_block *block = best_free(s, p, size);
    if (block == NULL) {
        RP_TRY(grow(a, p, size, &block));
    }
    if (block == NULL) {
        RP_TRY(flush(a));
        RP_TRY(grow(a, p, size, &block));
    }
    *block_out = block;
    if (block == NULL) {
        return RP_OK;
    }
    block->state = BLOCK_LIVE;
    if (block->bytes > size) {
        rpsim_block *rest = NULL;
        RP_TRY(cut(s, block, size, &rest));
        RP_TRY(put_free(s, rest));
    }
    count_live(a, size);
    return RP_OK;
}

rp_status rpsim_allocator_free(rpsim_allocator *a, rpsim_block *block)
{
    a->live_bytes -= block->bytes;
    if (a->counts) {
        a->reserved_bytes -= pages_of(block->bytes);
        drop_block(a->state, block);
        return RP_OK;
    }
    return put_free(a->state, block);
}
