#include "sim/run/memory/caching_allocator.h"

#include <stdbool.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define ROUNDING 512u
#define SMALL_BYTES MIB         /* up to here from the small pool */
#define SMALL_SEGMENT (2 * MIB) /* also what large segments are rounded to */
#define MEDIUM_BYTES (10 * MIB) /* below, several blocks share a segment from the start */
#define MEDIUM_SEGMENT (20 * MIB)
#define POOLS (2 * RPSIM_ALLOCATOR_STREAMS) /* of each stream small, then large blocks */

struct rpsim_block {
    uint64_t bytes;
    uint64_t asked;
    rpsim_block *before; /* neighbours in the segment */
    rpsim_block *after;
    rpsim_block *earlier; /* free ones of the same size and pool, in the order they came */
    rpsim_block *later;
    uint32_t pool;
    bool free;
};

/* Free blocks of one size, at least one. */
typedef struct entry {
    uint64_t bytes;
    rpsim_block *first;
    rpsim_block *last;
} entry;

/* Free blocks, ascending by size. There are far fewer sizes than blocks. */
typedef struct pool {
    entry *sizes;
    uint32_t count;
    uint32_t room;
} pool;

struct rpsim_allocator_state {
    rp_arena *arena;
    pool pools[POOLS];
    rpsim_block *spare; /* chained by `after` */
};

rp_status rpsim_allocator_init(uint64_t limit_bytes, rp_arena *arena, rpsim_allocator *allocator)
{
    *allocator = (rpsim_allocator){.limit_bytes = limit_bytes};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *allocator->state, &allocator->state));
    allocator->state->arena = arena;
    return RP_OK;
}

static rp_status new_block(struct rpsim_allocator_state *s, rpsim_block **block_out)
{
    if (s->spare == NULL) {
        return rp_arena_alloc(s->arena, 1, sizeof **block_out, block_out);
    }
    *block_out = s->spare;
    s->spare = s->spare->after;
    **block_out = (rpsim_block){0};
    return RP_OK;
}

static void drop_block(struct rpsim_allocator_state *s, rpsim_block *block)
{
    block->after = s->spare;
    s->spare = block;
}

/* The first size that is not below `bytes`. */
static uint32_t lower_bound(const pool *p, uint64_t bytes)
{
    uint32_t low = 0;
    uint32_t high = p->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool before = p->sizes[middle].bytes < bytes;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

static rp_status add_size(struct rpsim_allocator_state *s, pool *p, uint32_t at, uint64_t bytes)
{
    if (p->count == p->room) {
        entry *grown = NULL;
        uint32_t room = p->room == 0 ? 64 : 2 * p->room;
        RP_TRY(rp_arena_alloc(s->arena, room, sizeof *grown, &grown));
        if (p->count > 0) { /* an empty pool has no array */
            memcpy(grown, p->sizes, p->count * sizeof *grown);
        }
        p->sizes = grown;
        p->room = room;
    }
    memmove(p->sizes + at + 1, p->sizes + at, (p->count - at) * sizeof *p->sizes);
    p->sizes[at] = (entry){.bytes = bytes};
    p->count++;
    return RP_OK;
}

static rp_status put_free(struct rpsim_allocator_state *s, rpsim_block *block)
{
    pool *p = &s->pools[block->pool];
    uint32_t at = lower_bound(p, block->bytes);
    if (at == p->count || p->sizes[at].bytes != block->bytes) {
        RP_TRY(add_size(s, p, at, block->bytes));
    }
    entry *e = &p->sizes[at];
    block->free = true;
    block->earlier = e->last;
    block->later = NULL;
    if (e->last != NULL) {
        e->last->later = block;
    } else {
        e->first = block;
    }
    e->last = block;
    return RP_OK;
}

static void remove_free(struct rpsim_allocator_state *s, const rpsim_block *block)
{
    pool *p = &s->pools[block->pool];
    if (block->earlier != NULL && block->later != NULL) {
        block->earlier->later = block->later;
        block->later->earlier = block->earlier;
        return;
    }
    uint32_t at = lower_bound(p, block->bytes);
    entry *e = &p->sizes[at];
    if (block->earlier == NULL && block->later == NULL) { /* the last one of this size */
        p->count--;
        memmove(e, e + 1, (p->count - at) * sizeof *e);
    } else if (block->earlier == NULL) {
        e->first = block->later;
        e->first->earlier = NULL;
    } else {
        e->last = block->earlier;
        e->last->later = NULL;
    }
}

static uint64_t segment_for(uint64_t bytes)
{
    if (bytes <= SMALL_BYTES) {
        return SMALL_SEGMENT;
    }
    return bytes < MEDIUM_BYTES ? MEDIUM_SEGMENT
                                : (bytes + SMALL_SEGMENT - 1) / SMALL_SEGMENT * SMALL_SEGMENT;
}

/* Gives segments without a live block back to the GPU. */
static void flush(rpsim_allocator *a)
{
    struct rpsim_allocator_state *s = a->state;
    for (uint32_t i = 0; i < POOLS; i++) {
        pool *p = &s->pools[i];
        for (uint32_t k = p->count; k-- > 0;) { /* from the end: sizes may go */
            rpsim_block *next = NULL;
            for (rpsim_block *b = p->sizes[k].first; b != NULL; b = next) {
                next = b->later;
                if (b->before == NULL && b->after == NULL) {
                    a->reserved_bytes -= b->bytes;
                    remove_free(s, b);
                    drop_block(s, b);
                }
            }
        }
    }
    a->flushes++;
}

static rp_status new_segment(rpsim_allocator *a, uint64_t bytes, uint32_t pool_index,
                             rpsim_block **block_out)
{
    uint64_t segment = segment_for(bytes);
    *block_out = NULL;
    if (segment > a->limit_bytes - a->reserved_bytes) {
        flush(a);
    }
    if (segment > a->limit_bytes - a->reserved_bytes) {
        return RP_OK;
    }
    RP_TRY(new_block(a->state, block_out));
    (*block_out)->bytes = segment;
    (*block_out)->pool = pool_index;
    a->reserved_bytes += segment;
    if (a->reserved_bytes > a->peak_reserved_bytes) {
        a->peak_reserved_bytes = a->reserved_bytes;
    }
    return RP_OK;
}

static rp_status split(struct rpsim_allocator_state *s, rpsim_block *block, uint64_t bytes,
                       bool small)
{
    uint64_t rest = block->bytes - bytes;
    if (small ? rest < ROUNDING : rest <= SMALL_BYTES) {
        return RP_OK;
    }
    rpsim_block *after = NULL;
    RP_TRY(new_block(s, &after));
    *after =
        (rpsim_block){.bytes = rest, .before = block, .after = block->after, .pool = block->pool};
    if (block->after != NULL) {
        block->after->before = after;
    }
    block->after = after;
    block->bytes = bytes;
    return put_free(s, after);
}

rp_status rpsim_allocator_take(rpsim_allocator *a, uint32_t stream, uint64_t bytes,
                               rpsim_block **block_out)
{
    struct rpsim_allocator_state *s = a->state;
    uint64_t size = (bytes + ROUNDING - 1) / ROUNDING * ROUNDING;
    bool small = size <= SMALL_BYTES;
    uint32_t index = 2 * stream + (small ? 0 : 1);
    pool *p = &s->pools[index];
    uint32_t at = lower_bound(p, size);
    rpsim_block *block = at < p->count ? p->sizes[at].first : NULL;
    if (block != NULL) {
        remove_free(s, block);
    } else {
        RP_TRY(new_segment(a, size, index, &block));
    }
    *block_out = block;
    if (block == NULL) {
        return RP_OK;
    }
    block->free = false;
    block->asked = size;
    RP_TRY(split(s, block, size, small));
    a->live_bytes += size;
    a->peak_live_bytes = a->live_bytes > a->peak_live_bytes ? a->live_bytes : a->peak_live_bytes;
    return RP_OK;
}

/* `block` takes its neighbour in. */
static void join(struct rpsim_allocator_state *s, rpsim_block *block, rpsim_block *neighbour)
{
    if (neighbour == NULL || !neighbour->free) {
        return;
    }
    remove_free(s, neighbour);
    block->bytes += neighbour->bytes;
    if (neighbour == block->before) {
        block->before = neighbour->before;
        if (block->before != NULL) {
            block->before->after = block;
        }
    } else {
        block->after = neighbour->after;
        if (block->after != NULL) {
            block->after->before = block;
        }
    }
    drop_block(s, neighbour);
}

rp_status rpsim_allocator_free(rpsim_allocator *a, rpsim_block *block)
{
    a->live_bytes -= block->asked;
    join(a->state, block, block->before);
    join(a->state, block, block->after);
    return put_free(a->state, block);
}
