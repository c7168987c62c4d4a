#include "sim/run/memory/snapshot.h"

#include "common/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- pickle ---------------------------------------------------------------------------------- */

/* Opcodes of protocol 2 (Lib/pickletools.py). */
enum {
    PICKLE_MARK = '(',
    PICKLE_STOP = '.',
    PICKLE_INT = 'J',
    PICKLE_TEXT = 'X',
    PICKLE_LIST = ']',
    PICKLE_APPENDS = 'e',
    PICKLE_DICT = '}',
    PICKLE_SETITEMS = 'u',
    PICKLE_PROTOCOL = 0x80,
    PICKLE_LONG = 0x8a,
};

static void put_little(FILE *f, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        (void)fputc((int)(value >> (8 * i) & 0xff), f);
    }
}

/* Addresses and bytes do not fit into 31 bits, but into 63. */
static void put_number(FILE *f, uint64_t value)
{
    bool small = value <= INT32_MAX;
    (void)fputc(small ? PICKLE_INT : PICKLE_LONG, f);
    if (!small) {
        (void)fputc(8, f);
    }
    put_little(f, value, small ? 4 : 8);
}

static void put_text(FILE *f, const char *text)
{
    size_t length = strlen(text);
    (void)fputc(PICKLE_TEXT, f);
    put_little(f, length, 4);
    (void)fwrite(text, 1, length, f);
}

static void put_item(FILE *f, const char *key, uint64_t value)
{
    put_text(f, key);
    put_number(f, value);
}

static void put_text_item(FILE *f, const char *key, const char *value)
{
    put_text(f, key);
    put_text(f, value);
}

static void begin(FILE *f, int opcode)
{
    (void)fputc(opcode, f);
    (void)fputc(PICKLE_MARK, f);
}

static void begin_list(FILE *f, const char *key)
{
    put_text(f, key);
    begin(f, PICKLE_LIST);
}

/* ---- addresses ------------------------------------------------------------------------------- */

#define FIRST_ADDRESS UINT64_C(0x7f0000000000)
#define ALIGNMENT 512u

/* A range of addresses of a GPU. */
typedef struct segment {
    uint64_t address;
    uint64_t bytes; /* of its buffers */
    uint32_t next;  /* free segment of the same size; NONE: no other */
} segment;

/* A buffer is allocated or freed. */
typedef struct event {
    int64_t time_ps;
    uint32_t buffer;
    bool freed;
} event;

#define NONE UINT32_MAX

typedef struct writer {
    const rp_timeline *timeline;
    const rp_program *program;
    FILE *f;
    uint64_t *sizes;     /* [size_count] distinct sizes of buffers, ascending */
    uint32_t *free_list; /* [size_count] first free segment of a size on the current GPU */
    uint32_t size_count;
    segment *segments;
    uint32_t segment_count;
    uint32_t *segment_of; /* [buffer] */
    event *events;
} writer;

static int compare_sizes(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* In the order of memory.c: at the same instant memory is freed before it is allocated. */
static int compare_events(const void *left, const void *right)
{
    const event *a = left;
    const event *b = right;
    if (a->time_ps != b->time_ps) {
        return a->time_ps < b->time_ps ? -1 : 1;
    }
    return a->freed != b->freed ? (a->freed ? -1 : 1)
                                : (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

static uint32_t size_index(const writer *w, uint64_t bytes)
{
    const uint64_t *found =
        bsearch(&bytes, w->sizes, w->size_count, sizeof *w->sizes, compare_sizes);
    return (uint32_t)(found - w->sizes);
}

static void find_sizes(writer *w)
{
    const rp_program *p = w->program;
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        w->sizes[b] = p->buffers[b].bytes;
    }
    qsort(w->sizes, p->buffer_count, sizeof *w->sizes, compare_sizes);
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        if (w->size_count == 0 || w->sizes[w->size_count - 1] != w->sizes[b]) {
            w->sizes[w->size_count++] = w->sizes[b];
        }
    }
}

/* Lists the events of a GPU in the order of time. */
static uint32_t list_events(writer *w, uint32_t gpu)
{
    const rp_program *p = w->program;
    uint32_t count = 0;
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        int64_t begin_ps = w->timeline->start_ps[p->buffers[b].alloc_op];
        int64_t end_ps = w->timeline->end_ps[p->buffers[b].free_op];
        if (p->buffers[b].place == gpu && end_ps > begin_ps) {
            w->events[count++] = (event){begin_ps, b, false};
            w->events[count++] = (event){end_ps, b, true};
        }
    }
    qsort(w->events, count, sizeof *w->events, compare_events);
    return count;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void put_frames(const writer *w, uint32_t buffer)
{
    const rp_buffer *of = &w->program->buffers[buffer];
    const rp_op *op = &w->program->ops[of->alloc_op];
    const char *kind = rp_buffer_kind_text((rp_buffer_kind)of->kind);
    char name[96];
    snprintf(name, sizeof name, "%s of stage %u, microbatch %u, iteration %u", kind, op->stage,
             op->microbatch, op->iteration);
    begin_list(w->f, "frames");
    begin(w->f, PICKLE_DICT);
    put_text_item(w->f, "filename", kind);
    put_item(w->f, "line", op->stage);
    put_text_item(w->f, "name", name);
    (void)fputc(PICKLE_SETITEMS, w->f);
    (void)fputc(PICKLE_APPENDS, w->f);
}

static void put_event(const writer *w, const char *action, const event *e)
{
    const segment *at = &w->segments[w->segment_of[e->buffer]];
    begin(w->f, PICKLE_DICT);
    put_text_item(w->f, "action", action);
    put_item(w->f, "addr", at->address);
    put_item(w->f, "size", at->bytes);
    put_item(w->f, "stream", 0);
    put_item(w->f, "time_us", (uint64_t)(e->time_ps / 1000000));
    put_frames(w, e->buffer);
    (void)fputc(PICKLE_SETITEMS, w->f);
}

static void take(writer *w, const event *e, uint64_t *next_address)
{
    uint64_t bytes = w->program->buffers[e->buffer].bytes;
    uint32_t *first = &w->free_list[size_index(w, bytes)];
    uint32_t taken = *first;
    if (taken == NONE) {
        taken = w->segment_count++;
        w->segments[taken] = (segment){.address = *next_address, .bytes = bytes};
        *next_address += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    } else {
        *first = w->segments[taken].next;
    }
    w->segment_of[e->buffer] = taken;
}

static void give(writer *w, const event *e)
{
    uint32_t freed = w->segment_of[e->buffer];
    uint32_t *first = &w->free_list[size_index(w, w->segments[freed].bytes)];
    w->segments[freed].next = *first;
    *first = freed;
}

/* Writes the events of a GPU. @param next_address of the GPU, the first that has had no segment */
static void put_device(writer *w, uint32_t gpu)
{
    uint32_t count = list_events(w, gpu);
    uint64_t next_address = FIRST_ADDRESS;
    for (uint32_t i = 0; i < w->size_count; i++) {
        w->free_list[i] = NONE;
    }
    begin(w->f, PICKLE_LIST);
    for (uint32_t i = 0; i < count; i++) {
        const event *e = &w->events[i];
        if (e->freed) {
            put_event(w, "free_requested", e);
            put_event(w, "free_completed", e);
            give(w, e);
        } else {
            take(w, e, &next_address);
            put_event(w, "alloc", e);
        }
    }
    (void)fputc(PICKLE_APPENDS, w->f);
}

/* ---- segments -------------------------------------------------------------------------------- */

static void put_segment(const writer *w, const segment *s, uint32_t gpu)
{
    uint64_t whole = (s->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    begin(w->f, PICKLE_DICT);
    put_item(w->f, "device", gpu);
    put_item(w->f, "address", s->address);
    put_item(w->f, "total_size", whole);
    put_item(w->f, "allocated_size", 0);
    put_item(w->f, "active_size", 0);
    put_item(w->f, "requested_size", 0);
    put_item(w->f, "stream", 0);
    put_text_item(w->f, "segment_type", "large");
    begin_list(w->f, "segment_pool_id");
    put_number(w->f, 0);
    put_number(w->f, 0);
    (void)fputc(PICKLE_APPENDS, w->f);
    begin_list(w->f, "frames");
    (void)fputc(PICKLE_APPENDS, w->f);
    begin_list(w->f, "blocks"); /* at the run's end all buffers have been freed */
    begin(w->f, PICKLE_DICT);
    put_item(w->f, "address", s->address);
    put_item(w->f, "size", whole);
    put_item(w->f, "requested_size", s->bytes);
    put_text_item(w->f, "state", "inactive");
    begin_list(w->f, "frames");
    (void)fputc(PICKLE_APPENDS, w->f);
    (void)fputc(PICKLE_SETITEMS, w->f);
    (void)fputc(PICKLE_APPENDS, w->f);
    (void)fputc(PICKLE_SETITEMS, w->f);
}

static void put_snapshot(writer *w, uint32_t *ends)
{
    uint32_t gpus = w->program->gpu_count;
    (void)fputc(PICKLE_PROTOCOL, w->f);
    (void)fputc(2, w->f);
    begin(w->f, PICKLE_DICT);
    begin_list(w->f, "device_traces");
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        put_device(w, gpu);
        ends[gpu] = w->segment_count;
    }
    (void)fputc(PICKLE_APPENDS, w->f);
    begin_list(w->f, "segments");
    for (uint32_t gpu = 0, i = 0; gpu < gpus; gpu++) {
        for (; i < ends[gpu]; i++) {
            put_segment(w, &w->segments[i], gpu);
        }
    }
    (void)fputc(PICKLE_APPENDS, w->f);
    (void)fputc(PICKLE_SETITEMS, w->f);
    (void)fputc(PICKLE_STOP, w->f);
}

static rp_status prepare(writer *w, rp_arena *arena, uint32_t **ends)
{
    size_t buffers = (size_t)w->program->buffer_count + 1;
    RP_TRY(rp_arena_alloc(arena, buffers, sizeof *w->sizes, &w->sizes));
    RP_TRY(rp_arena_alloc(arena, buffers, sizeof *w->free_list, &w->free_list));
    RP_TRY(rp_arena_alloc(arena, buffers, sizeof *w->segments, &w->segments));
    RP_TRY(rp_arena_alloc(arena, buffers, sizeof *w->segment_of, &w->segment_of));
    RP_TRY(rp_arena_alloc(arena, 2 * buffers, sizeof *w->events, &w->events));
    return rp_arena_alloc(arena, w->program->gpu_count, sizeof **ends, ends);
}

rp_status rpsim_snapshot_write(const rp_timeline *timeline, FILE *stream)
{
    writer w = {.timeline = timeline, .program = timeline->program, .f = stream};
    rp_arena *arena = NULL;
    uint32_t *ends = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = prepare(&w, arena, &ends);
    if (status == RP_OK) {
        find_sizes(&w);
        put_snapshot(&w, ends);
    }
    rp_arena_destroy(arena);
    return status;
}
