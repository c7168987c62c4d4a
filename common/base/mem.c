#include "common/base/mem.h"

#include "common/base/log.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

/* Under AddressSanitizer every allocation is its own heap block: an overrun is then found, which a
   bump allocator would hide. */
#if defined(__SANITIZE_ADDRESS__)
#define EVERY_BLOCK_ALONE true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EVERY_BLOCK_ALONE true
#endif
#endif
#ifndef EVERY_BLOCK_ALONE
#define EVERY_BLOCK_ALONE false
#endif

#define BUMP_BLOCK_BYTES ((size_t)64 << 10)
/* Larger blocks would waste the tail of a bump block. */
#define BUMP_LIMIT_BYTES ((size_t)16 << 10)
#define MAP_LIMIT_BYTES ((size_t)1 << 20)
#define MAX_BYTES ((size_t)1 << 40) /* a larger size is a defect of the caller */
#define LARGE_ALIGNMENT ((size_t)64)

typedef struct block {
    void *bytes;
    size_t size;
    bool mapped;
} block;

typedef struct closer {
    void (*close)(void *context);
    void *context;
    struct closer *before;
} closer;

struct rp_arena {
    block *blocks; /* kept apart from the blocks: a header in front of each would hide overruns */
    uint32_t block_count;
    uint32_t block_capacity;
    char *bump; /* next free byte of the current bump block */
    size_t bump_left;
    closer *closers; /* the last closer; closers lie in the arena */
};

/* Header of every block of rp_mem_resize: the bytes that its release gives back. */
typedef union heap_header {
    size_t size;
    max_align_t alignment;
} heap_header;

static atomic_size_t live_bytes;
static atomic_size_t peak_bytes;

static void count_taken(size_t size)
{
    size_t live = atomic_fetch_add(&live_bytes, size) + size;
    size_t peak = atomic_load(&peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live)) {
    }
}

static void count_given_back(size_t size)
{
    atomic_fetch_sub(&live_bytes, size);
}

size_t rp_mem_live_bytes(void)
{
    return atomic_load(&live_bytes);
}

size_t rp_mem_peak_bytes(void)
{
    return atomic_load(&peak_bytes);
}

void rp_mem_keep_freed(void)
{
#if defined(__GLIBC__)
    /* This file maps larger blocks itself. */
    (void)mallopt(M_MMAP_THRESHOLD, (int)(2 * MAP_LIMIT_BYTES));
    (void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
    /* Step of growth; heaps of threads would grow page by page. */
    (void)mallopt(M_TOP_PAD, 1 << 20);
#endif
}

static rp_status refuse(size_t count, size_t size)
{
    rp_log_error("out of memory: cannot allocate %zu objects of %zu bytes", count, size);
    return RP_NO_MEMORY;
}

rp_status rp_arena_create(rp_arena **arena_out)
{
    *arena_out = calloc(1, sizeof **arena_out);
    if (!*arena_out) {
        return refuse(1, sizeof **arena_out);
    }
    count_taken(sizeof **arena_out);
    return RP_OK;
}

/* Mapped blocks that arenas have given back, for the next arena: a page that has been touched
   before is far cheaper than a page that the kernel must find and clear. Bounded, so that a large
   run does not hold its memory for ever. */
#define MAX_SPARE_BLOCKS 32
#define MAX_SPARE_BYTES ((size_t)256 << 20)

static struct {
    atomic_flag lock;
    size_t bytes;
    size_t count;
    struct {
        void *bytes;
        size_t size;
    } blocks[MAX_SPARE_BLOCKS];
} spare = {.lock = ATOMIC_FLAG_INIT};

static void lock_spare(void)
{
    while (atomic_flag_test_and_set_explicit(&spare.lock, memory_order_acquire)) {
    }
}

static void unlock_spare(void)
{
    atomic_flag_clear_explicit(&spare.lock, memory_order_release);
}

static bool keep_spare(void *bytes, size_t size)
{
    lock_spare();
    bool keep = spare.count < MAX_SPARE_BLOCKS && spare.bytes + size <= MAX_SPARE_BYTES;
    if (keep) {
        spare.blocks[spare.count].bytes = bytes;
        spare.blocks[spare.count++].size = size;
        spare.bytes += size;
    }
    unlock_spare();
    return keep;
}

/* The smallest spare block that holds `size` bytes and is not more than twice as large. */
static void *take_spare(size_t size, size_t *size_out)
{
    lock_spare();
    size_t best = MAX_SPARE_BLOCKS;
    for (size_t i = 0; i < spare.count; i++) {
        size_t has = spare.blocks[i].size;
        if (has >= size && has / 2 <= size &&
            (best == MAX_SPARE_BLOCKS || has < spare.blocks[best].size)) {
            best = i;
        }
    }
    void *bytes = NULL;
    if (best != MAX_SPARE_BLOCKS) {
        bytes = spare.blocks[best].bytes;
        *size_out = spare.blocks[best].size;
        spare.bytes -= *size_out;
        spare.blocks[best] = spare.blocks[--spare.count];
    }
    unlock_spare();
    return bytes;
}

static void free_block(const block *old)
{
    count_given_back(old->size);
    if (!old->mapped) {
        free(old->bytes);
    } else if (!keep_spare(old->bytes, old->size)) {
        munmap(old->bytes, old->size);
    }
}

void rp_arena_destroy(rp_arena *arena)
{
    if (!arena) {
        return;
    }
    for (const closer *c = arena->closers; c != NULL; c = c->before) {
        c->close(c->context);
    }
    while (arena->block_count > 0) {
        free_block(&arena->blocks[--arena->block_count]);
    }
    rp_mem_release(&arena->blocks);
    count_given_back(sizeof *arena);
    free(arena);
}

/* `*size_in_out` becomes the size of the mapped block. */
static void *map_bytes(size_t *size_in_out, bool zeroed)
{
    size_t size = *size_in_out;
    void *recycled = take_spare(size, size_in_out);
    if (recycled != NULL) {
        return zeroed ? memset(recycled, 0, size) : recycled;
    }
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        return NULL;
    }
    /* A hint: fewer page faults if the kernel heeds it. */
    (void)madvise(bytes, size, MADV_HUGEPAGE);
    return bytes;
}

/* Fills undefined content in builds that look for mistakes, so that its use shows. */
#define UNDEFINED_BYTE 0xa5

static void *heap_bytes(size_t size, bool zeroed)
{
    if (EVERY_BLOCK_ALONE) {
        void *bytes = calloc(1, size);
        return bytes != NULL && !zeroed ? memset(bytes, UNDEFINED_BYTE, size) : bytes;
    }
    void *bytes = NULL;
    if (posix_memalign(&bytes, LARGE_ALIGNMENT, size) != 0) {
        return NULL;
    }
    return zeroed ? memset(bytes, 0, size) : bytes;
}

/* Adds a block to the arena's list, which has room for it; NULL if the system has no memory. */
static void *add_block(rp_arena *arena, size_t size, bool zeroed)
{
    block new = {.size = size, .mapped = size >= MAP_LIMIT_BYTES && !EVERY_BLOCK_ALONE};
    new.bytes = new.mapped ? map_bytes(&new.size, zeroed) : heap_bytes(size, zeroed);
    if (!new.bytes) {
        return NULL;
    }
    arena->blocks[arena->block_count++] = new;
    count_taken(new.size);
    return new.bytes;
}

static void *bump_bytes(rp_arena *arena, size_t size)
{
    size_t rounded = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (rounded > arena->bump_left) {
        char *bytes = add_block(arena, BUMP_BLOCK_BYTES, false);
        if (!bytes) {
            return NULL;
        }
        arena->bump = bytes;
        arena->bump_left = BUMP_BLOCK_BYTES;
    }
    void *pointer = arena->bump;
    arena->bump += rounded;
    arena->bump_left -= rounded;
    /* Only this part: the rest of the bump block may stay unused. */
    return memset(pointer, 0, rounded);
}

static rp_status allocate(rp_arena *arena, size_t count, size_t size, bool zeroed,
                          void *pointer_out)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total) || total > MAX_BYTES) {
        return refuse(count, size);
    }
    total = total > 0 ? total : 1;
    RP_TRY(
        rp_mem_reserve(&arena->blocks, arena->block_count, &arena->block_capacity, sizeof(block)));
    bool alone = EVERY_BLOCK_ALONE || total > BUMP_LIMIT_BYTES;
    void *pointer = alone ? add_block(arena, total, zeroed) : bump_bytes(arena, total);
    if (!pointer) {
        return refuse(count, size);
    }
    memcpy(pointer_out, &pointer, sizeof pointer); /* pointer_out is a T ** of any T */
    return RP_OK;
}

rp_status rp_arena_alloc(rp_arena *arena, size_t count, size_t size, void *pointer_out)
{
    return allocate(arena, count, size, true, pointer_out);
}

rp_status rp_arena_alloc_raw(rp_arena *arena, size_t count, size_t size, void *pointer_out)
{
    return allocate(arena, count, size, false, pointer_out);
}

rp_status rp_arena_at_end(rp_arena *arena, void (*close)(void *context), void *context)
{
    closer *c = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *c, &c));
    *c = (closer){.close = close, .context = context, .before = arena->closers};
    arena->closers = c;
    return RP_OK;
}

rp_status rp_arena_copy_text(rp_arena *arena, const char *text, size_t length,
                             const char **text_out)
{
    char *copy;
    RP_TRY(rp_arena_alloc(arena, length + 1, 1, &copy));
    if (length > 0) {
        memcpy(copy, text, length);
    }
    *text_out = copy;
    return RP_OK;
}

rp_status rp_arena_print(rp_arena *arena, const char **text_out, const char *format, ...)
{
    char small[256]; /* most texts fit, so they are formatted only once */
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(small, sizeof small, format, arguments);
    va_end(arguments);
    if (length < 0) {
        rp_log_error("a text is too long to be formatted");
        return RP_NO_MEMORY;
    }
    if ((size_t)length < sizeof small) {
        return rp_arena_copy_text(arena, small, (size_t)length, text_out);
    }
    char *text;
    RP_TRY(rp_arena_alloc(arena, (size_t)length + 1, 1, &text));
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    *text_out = text;
    return RP_OK;
}

rp_status rp_mem_resize(void *block_pointer, size_t size)
{
    void *old_bytes;
    memcpy(&old_bytes, block_pointer, sizeof old_bytes);
    if (size > MAX_BYTES) {
        return refuse(1, size);
    }
    heap_header *old = old_bytes ? (heap_header *)old_bytes - 1 : NULL;
    size_t old_total = old ? sizeof *old + old->size : 0;
    heap_header *new = realloc(old, sizeof *new + size);
    if (!new) {
        return refuse(1, size);
    }
    new->size = size;
    count_taken(sizeof *new + size);
    count_given_back(old_total);
    void *new_bytes = new + 1;
    memcpy(block_pointer, &new_bytes, sizeof new_bytes);
    return RP_OK;
}

rp_status rp_mem_reserve(void *list, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity) {
        return RP_OK;
    }
    if (*capacity > UINT32_MAX / 2) {
        rp_log_error("out of memory: a list of more than %u elements", *capacity);
        return RP_NO_MEMORY;
    }
    uint32_t wanted = *capacity == 0 ? 64 : *capacity * 2;
    RP_TRY(rp_mem_resize(list, wanted * size));
    *capacity = wanted;
    return RP_OK;
}

void rp_mem_release(void *block_pointer)
{
    void *bytes;
    memcpy(&bytes, block_pointer, sizeof bytes);
    if (!bytes) {
        return;
    }
    heap_header *header = (heap_header *)bytes - 1;
    count_given_back(sizeof *header + header->size);
    free(header);
    bytes = NULL;
    memcpy(block_pointer, &bytes, sizeof bytes);
}

void *rp_mem_map(int descriptor, size_t bytes)
{
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    return mapping == MAP_FAILED ? NULL : mapping;
}

void rp_mem_unmap(void *mapping, size_t bytes)
{
    if (mapping != NULL) {
        (void)munmap(mapping, bytes);
    }
}
