#include "exec/gpu/graphs.h"

#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"
#include "exec/operators/calls.h"

#include <string.h>

/* Limits of a queue. A captured operator is a node or a few, which take memory of the GPU. */
#define MOST_RUNS 2048u
#define MOST_WORDS (UINT64_C(1) << 21)
#define MOST_CAPTURED 32768u

/* Words of a run; a longer run is split in two. */
#define RUN_WORDS 16384u

/* Twice as many slots as runs, so that there is always a free slot. */
#define SLOTS (2 * MOST_RUNS)

/* A sequence of operators that has been seen. */
typedef struct run {
    uint64_t hash;
    uint64_t *words; /* NULL: a free slot */
    uint32_t length;
    uint32_t calls;
    uint32_t program; /* number of the last program that used it */
    void *graph;      /* NULL: it was used once, or no more graphs may be made */
} run;

struct rpexec_gpu_graphs {
    rpexec_call_taker taker; /* the first member: operators get it as their lane */
    const rpexec_cuda_calls *calls;
    rpexec_driver *driver;
    const rpexec_gpu *gpu;
    rpexec_lane *lane;
    const rpexec_operators *operators;
    void *stream;
    uint64_t noted[RUN_WORDS];
    uint32_t noted_length;
    uint32_t noted_calls;
    run slots[SLOTS];
    uint32_t run_count;
    uint64_t word_count;
    uint32_t captured; /* operators in existing graphs */
    uint32_t program;
    bool full;
    rpexec_graph_counts counts;
};

/* ---- runs that are known --------------------------------------------------------------------- */

static uint64_t hash_of(const uint64_t *words, uint32_t length)
{
    uint64_t hash = length;
    for (uint32_t i = 0; i < length; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* The slot of the noted run, or the free slot for it. */
static run *slot_of(rpexec_gpu_graphs *g, uint64_t hash)
{
    size_t bytes = g->noted_length * sizeof *g->noted;
    for (uint64_t i = hash;; i++) {
        run *r = &g->slots[i % SLOTS];
        if (r->words == NULL || (r->hash == hash && r->length == g->noted_length &&
                                 memcmp(r->words, g->noted, bytes) == 0)) {
            return r;
        }
    }
}

/* Remembers a run; if there is no room for it, it stays unknown. */
static void remember(rpexec_gpu_graphs *g, run *r, uint64_t hash)
{
    uint64_t *words = NULL;
    if (g->run_count == MOST_RUNS || g->word_count + g->noted_length > MOST_WORDS ||
        rp_mem_resize(&words, g->noted_length * sizeof *words) != RP_OK) {
        g->full = true;
        return;
    }
    memcpy(words, g->noted, g->noted_length * sizeof *words);
    *r = (run){.hash = hash,
               .words = words,
               .length = g->noted_length,
               .calls = g->noted_calls,
               .program = g->program};
    g->run_count++;
    g->word_count += r->length;
}

static void forget(rpexec_gpu_graphs *g, run *r)
{
    if (r->graph != NULL) {
        (void)g->calls->graph_destroy(r->graph);
        g->captured -= r->calls;
    }
    rp_mem_release(&r->words);
    g->word_count -= r->length;
    g->run_count--;
    *r = (run){0};
}

/* Keeps only runs of the last program. All slots are filled anew, since a search ends at a free
 * slot. */
static void make_room(rpexec_gpu_graphs *g)
{
    static const run none;
    uint32_t kept = 0;
    run *list = NULL;
    if (rp_mem_resize(&list, SLOTS * sizeof *list) != RP_OK) {
        rpexec_gpu_graphs_clear(g);
        return;
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        run *r = &g->slots[i];
        if (r->words != NULL && r->program != g->program) {
            forget(g, r);
        } else if (r->words != NULL) {
            list[kept++] = *r;
            *r = none;
        }
    }
    for (uint32_t i = 0; i < kept; i++) {
        uint64_t at = list[i].hash;
        while (g->slots[at % SLOTS].words != NULL) {
            at++;
        }
        g->slots[at % SLOTS] = list[i];
    }
    rp_mem_release(&list);
    g->full = false;
}

/* ---- launching ------------------------------------------------------------------------------- */

static void make_calls(rpexec_gpu_graphs *g)
{
    for (uint32_t at = 0; at < g->noted_length; at += rpexec_call_length(g->noted + at)) {
        rpexec_call_make(g->operators, g->lane, g->noted + at);
    }
}

static bool failed(const rpexec_gpu_graphs *g, int error, const char *call)
{
    if (error != 0 && !atomic_exchange(&g->driver->devices->graphs_failed, true)) {
        rp_log_warning("{graphs}: %s: %s; operators are launched one by one from here on", call,
                       g->calls->text(error));
    }
    return error != 0;
}

/* If a capture fails, none of its operators has been done: they are launched singly. */
static void capture(rpexec_gpu_graphs *g, run *r)
{
    const rpexec_cuda_calls *c = g->calls;
    void *captured = NULL;
    if (c->lane_status(g->lane) != RP_OK ||
        failed(g, c->capture_begin(g->stream), "cudaStreamBeginCapture")) {
        return;
    }
    make_calls(g);
    int error = c->capture_end(g->stream, &captured);
    if (c->lane_status(g->lane) != RP_OK) {
        c->lane_forgive(g->lane);
        error = error != 0 ? error : c->capture_invalidated;
    }
    if (!failed(g, error, "cudaStreamEndCapture") &&
        !failed(g, c->graph_make(captured, &r->graph), "cudaGraphInstantiate")) {
        g->captured += r->calls;
        g->counts.captures++;
    }
    if (captured != NULL) {
        c->captured_destroy(captured);
    }
}

static bool off(const rpexec_gpu_graphs *g)
{
    return atomic_load(&g->driver->devices->graphs_failed);
}

/* The graph of the noted run, which may get it now; NULL: it has none. */
static void *graph_of(rpexec_gpu_graphs *g)
{
    uint64_t hash = hash_of(g->noted, g->noted_length);
    run *r = slot_of(g, hash);
    if (r->words == NULL) {
        remember(g, r, hash);
        return NULL;
    }
    r->program = g->program;
    if (r->graph == NULL && g->captured + r->calls <= MOST_CAPTURED) {
        capture(g, r);
    } else if (r->graph == NULL) {
        g->full = true;
    }
    return r->graph;
}

void rpexec_gpu_graphs_flush(rpexec_gpu_graphs *g)
{
    if (g == NULL || g->noted_length == 0) {
        return;
    }
    void *graph = g->noted_calls > 1 && !off(g) ? graph_of(g) : NULL;
    if (graph != NULL) {
        (void)rpexec_gpu_tried(g->driver, g->calls->graph_launch(graph, g->stream),
                               "cudaGraphLaunch");
        g->counts.launches++;
        g->counts.replaced += g->noted_calls;
    } else {
        make_calls(g);
        g->counts.single += g->noted_calls;
    }
    g->noted_length = g->noted_calls = 0;
}

/* ---- noting ---------------------------------------------------------------------------------- */

static bool lies_in(uint64_t address, const unsigned char *memory, uint64_t bytes)
{
    return address - (uint64_t)(uintptr_t)memory < bytes; /* wraps around below it */
}

/* True if all memory that a call works on keeps its place in the GPU from step to step. */
static bool repeats(const rpexec_gpu_graphs *g, const uint64_t *call)
{
    bool does = rpexec_call_repeats(call);
    for (uint32_t i = 1; i < rpexec_call_length(call); i++) {
        does &= !rpexec_call_has_address(call, i) || call[i] == 0 ||
                lies_in(call[i], g->gpu->arena, g->gpu->arena_bytes) ||
                lies_in(call[i], g->gpu->rotary, g->gpu->rotary_bytes);
    }
    return does;
}

static void take_call(rpexec_call_taker *taker, const uint64_t *call)
{
    rpexec_gpu_graphs *g = (rpexec_gpu_graphs *)(void *)taker;
    uint32_t length = rpexec_call_length(call);
    if (off(g) || !repeats(g, call)) {
        rpexec_gpu_graphs_flush(g);
        rpexec_call_make(g->operators, g->lane, call);
        g->counts.single++;
        return;
    }
    if (g->noted_length + length > RUN_WORDS) {
        rpexec_gpu_graphs_flush(g);
    }
    memcpy(g->noted + g->noted_length, call, length * sizeof *call);
    g->noted_length += length;
    g->noted_calls++;
}

static void ask_squares(rpexec_call_taker *taker, uint64_t count, const void *x,
                        rpexec_squares *sum)
{
    rpexec_gpu_graphs *g = (rpexec_gpu_graphs *)(void *)taker;
    rpexec_gpu_graphs_flush(g);
    g->operators->squares(g->lane, count, x, sum);
}

/* ---- opening and closing --------------------------------------------------------------------- */

rp_status rpexec_gpu_graphs_open(const rpexec_cuda_calls *calls, rp_arena *arena,
                                 rpexec_gpu_graphs **graphs_out)
{
    rpexec_gpu_graphs *g = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *g, &g));
    g->taker = (rpexec_call_taker){.take = take_call, .squares = ask_squares};
    g->calls = calls;
    *graphs_out = g;
    return RP_OK;
}

void rpexec_gpu_graphs_clear(rpexec_gpu_graphs *g)
{
    for (uint32_t i = 0; g != NULL && i < SLOTS; i++) {
        if (g->slots[i].words != NULL) {
            forget(g, &g->slots[i]);
        }
    }
}

void rpexec_gpu_graphs_begin(rpexec_gpu_graphs *g, rpexec_driver *driver,
                             const struct rpexec_gpu *gpu, rpexec_lane *lane, void *stream)
{
    g->driver = driver;
    g->gpu = gpu;
    g->lane = lane;
    g->operators = g->calls->operators[driver->config.plan->model->dtype];
    g->stream = stream;
    g->noted_length = g->noted_calls = 0; /* a failed program may have left notes */
    if (g->full) {
        make_room(g);
    }
    g->program++;
}

rpexec_lane *rpexec_gpu_graphs_lane(rpexec_gpu_graphs *g)
{
    return (rpexec_lane *)(void *)&g->taker;
}

void rpexec_gpu_graphs_count(const rpexec_gpu_graphs *g, rpexec_graph_counts *counts)
{
    if (g != NULL) {
        counts->captures += g->counts.captures;
        counts->launches += g->counts.launches;
        counts->replaced += g->counts.replaced;
        counts->single += g->counts.single;
    }
}
