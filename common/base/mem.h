/** @file mem.h  The only place that allocates: arenas per run, and counted heap blocks.
 *
 * Lint: no other file calls malloc, calloc, realloc, free, mmap. Tests end with
 * rp_mem_live_bytes() == 0.
 */
#pragma once

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rp_arena rp_arena;

/**
 * From now on freed memory is kept for later allocations instead of going back to the kernel, up to
 * 512 MB per heap: for thousands of short runs, which would otherwise spend most of their time on
 * page faults. Does nothing unless the C library is glibc.
 */
void rp_mem_keep_freed(void);

/** @return bytes handed out by this module and not yet given back, in this process. */
size_t rp_mem_live_bytes(void);

/** @return the most that rp_mem_live_bytes has been since the process began. */
size_t rp_mem_peak_bytes(void);

/**
 * Creates an empty arena.
 * @param arena_out receives the arena, owned by the caller; NULL on failure.
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rp_arena_create(rp_arena **arena_out);

/** Calls the functions of rp_arena_at_end, then frees the arena and all that was allocated from it.
 * NULL is allowed. */
void rp_arena_destroy(rp_arena *arena);

/**
 * Has rp_arena_destroy call `close` with `context` while the arena's memory is still valid: for
 * resources other than memory that an arena's user holds, such as threads. The function given last
 * is called first.
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rp_arena_at_end(rp_arena *arena, void (*close)(void *context), void *context);

/**
 * Zeroed memory for `count` objects of `size` bytes, aligned to 64 bytes for large blocks and to
 * max_align_t for small ones; lives until the arena is destroyed. count == 0 gives a valid pointer.
 * Large blocks come straight from the kernel, which zeroes them lazily: untouched pages cost
 * nothing.
 * @retval RP_OK, RP_NO_MEMORY (logged; also when count * size overflows)
 */
rp_status rp_arena_alloc(rp_arena *arena, size_t count, size_t size, void *pointer_out);

/**
 * As rp_arena_alloc, but the content of a large block is undefined: for arrays that are written
 * from end to end anyway. @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rp_arena_alloc_raw(rp_arena *arena, size_t count, size_t size, void *pointer_out);

/** Copies `length` bytes of `text` and a NUL into the arena. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_arena_copy_text(rp_arena *arena, const char *text, size_t length,
                             const char **text_out);

/**
 * printf into the arena. @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_arena_print(rp_arena *arena, const char **text_out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Grows (or creates, when *block is NULL) a counted heap block to `size` bytes, content kept.
 * @param block pointer to a pointer; changed only on success.
 * @retval RP_OK, RP_NO_MEMORY (logged)
 */
rp_status rp_mem_resize(void *block, size_t size);

/**
 * Makes room for another element in a block of rp_mem_resize, which doubles when it is full.
 * @param list as for rp_mem_resize, of `*capacity` elements of `size` bytes
 * @param count elements in use
 * @retval RP_OK, RP_NO_MEMORY (logged; also beyond 2^31 elements)
 */
rp_status rp_mem_reserve(void *list, uint32_t count, uint32_t *capacity, size_t size);

/** Gives back a block of rp_mem_resize. `block` is the address of the pointer, which becomes NULL.
 */
void rp_mem_release(void *block);

/**
 * Maps the first `bytes` bytes of an open file, to be read. It must not become shorter meanwhile.
 * @return NULL if that fails (errno gives the reason)
 */
void *rp_mem_map(int descriptor, size_t bytes);

/** Gives back a mapping of rp_mem_map; NULL is allowed. */
void rp_mem_unmap(void *mapping, size_t bytes);
