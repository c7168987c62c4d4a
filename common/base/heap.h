/** @file heap.h  A binary heap: entries in order of key, entries of equal key in order of sequence.
 * The caller allocates.
 *
 * Inline, because the simulator spends a good part of its time here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct rp_heap_entry {
    uint64_t key;
    uint64_t sequence;
    uint64_t tag;  /**< the caller's */
    double amount; /**< the caller's */
} rp_heap_entry;

typedef struct rp_heap {
    rp_heap_entry *entries; /**< the least entry first */
    uint64_t count;
    uint64_t capacity; /**< entries that the caller has allocated */
} rp_heap;

static inline bool rp_heap_is_before(const rp_heap_entry *a, const rp_heap_entry *b)
{
    return a->key != b->key ? a->key < b->key : a->sequence < b->sequence;
}

/** Puts an entry into a heap that has room for it. */
static inline void rp_heap_push(rp_heap *heap, rp_heap_entry entry)
{
    uint64_t at = heap->count++;
    while (at > 0 && rp_heap_is_before(&entry, &heap->entries[(at - 1) / 2])) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entries[at] = entry;
}

/** Takes the least entry out of a heap that is not empty. */
static inline rp_heap_entry rp_heap_pop(rp_heap *heap)
{
    rp_heap_entry first = heap->entries[0];
    rp_heap_entry last = heap->entries[--heap->count];
    uint64_t at = 0;
    for (uint64_t child = 1; child < heap->count; child = 2 * at + 1) {
        if (child + 1 < heap->count &&
            rp_heap_is_before(&heap->entries[child + 1], &heap->entries[child])) {
            child++;
        }
        if (!rp_heap_is_before(&heap->entries[child], &last)) {
            break;
        }
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = last;
    return first;
}
