/* Captures and graphs. A thread that captures may only launch work in the captured stream; CUDA
 * permits some more calls. */
#include "exec/cuda/emulator/machine/machine_internal.h"

#include "common/base/mem.h"

#include <stdatomic.h>
#include <string.h>

/* Arguments lie at this alignment. */
#define ALIGNMENT 16u

typedef struct node {
    void (*run)(const void *arguments);
    bool (*can)(const void *arguments);
    uint32_t at; /* place of its arguments, in units of the alignment */
} node;

/* Captured work, and also a graph made of it. */
typedef struct nodes {
    emulated_stream *stream;
    node *list;
    uint32_t count;
    uint32_t capacity;
    unsigned char *arguments;
    uint32_t units;
    uint32_t room; /* units */
    bool invalid;
    atomic_uint under_way; /* number of launches that have not ended */
} nodes;

static _Thread_local nodes *capturing;

bool emulator_is_capturing(void)
{
    return capturing != NULL;
}

bool emulator_breaks_capture(void)
{
    if (capturing != NULL) {
        capturing->invalid = true;
    }
    return capturing != NULL;
}

static const void *arguments_of(const nodes *n, uint32_t i)
{
    return n->arguments + (size_t)n->list[i].at * ALIGNMENT;
}

static nodes *make(emulated_stream *stream)
{
    nodes *n = NULL;
    if (rp_mem_resize(&n, sizeof *n) != RP_OK) {
        return NULL;
    }
    *n = (nodes){.stream = stream};
    emulator_count(EMULATED_LEFT, 1);
    return n;
}

int emulator_captured_destroy(void *captured)
{
    nodes *n = captured;
    rp_mem_release(&n->arguments);
    rp_mem_release(&n->list);
    rp_mem_release(&n);
    emulator_count(EMULATED_LEFT, -1);
    return 0;
}

int emulator_capture_begin(void *stream)
{
    if (emulator_machine()->graphs == EMULATED_BEGIN_FAILS || capturing != NULL) {
        return cudaErrorStreamCaptureUnsupported;
    }
    capturing = make(stream);
    return capturing != NULL ? 0 : cudaErrorMemoryAllocation;
}

static bool append(nodes *n, const emulated_work *w)
{
    uint32_t units = (uint32_t)(w->bytes + ALIGNMENT - 1) / ALIGNMENT;
    for (uint32_t i = 0; i < units; i++) {
        if (rp_mem_reserve(&n->arguments, n->units + i, &n->room, ALIGNMENT) != RP_OK) {
            return false;
        }
    }
    if (rp_mem_reserve(&n->list, n->count, &n->capacity, sizeof *n->list) != RP_OK) {
        return false;
    }
    n->list[n->count++] = (node){.run = w->run, .can = w->can, .at = n->units};
    if (w->bytes > 0) {
        memcpy(n->arguments + (size_t)n->units * ALIGNMENT, w->arguments, w->bytes);
    }
    n->units += units;
    return true;
}

int emulator_capture(emulated_stream *stream, const emulated_work *work)
{
    nodes *n = capturing;
    if (n->stream != stream || emulator_machine()->graphs == EMULATED_LAUNCH_FAILS ||
        !append(n, work)) {
        n->invalid = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return 0;
}

int emulator_capture_end(void *stream, void **captured_out)
{
    nodes *n = capturing;
    *captured_out = NULL;
    if (n == NULL || n->stream != stream) {
        return cudaErrorUnknown;
    }
    capturing = NULL;
    if (n->invalid || emulator_machine()->graphs == EMULATED_END_FAILS) {
        (void)emulator_captured_destroy(n);
        return cudaErrorStreamCaptureInvalidated;
    }
    *captured_out = n;
    return 0;
}

int emulator_graph_make(void *captured, void **graph_out)
{
    const nodes *from = captured;
    *graph_out = NULL;
    if (emulator_machine()->graphs == EMULATED_MAKE_FAILS) {
        return cudaErrorInvalidValue;
    }
    nodes *n = make(from->stream);
    for (uint32_t i = 0; n != NULL && i < from->count; i++) {
        const node *k = &from->list[i];
        uint32_t end = i + 1 < from->count ? from->list[i + 1].at : from->units;
        const emulated_work w = {.run = k->run,
                                 .can = k->can,
                                 .arguments = arguments_of(from, i),
                                 .bytes = (size_t)(end - k->at) * ALIGNMENT};
        if (!append(n, &w)) {
            (void)emulator_captured_destroy(n);
            n = NULL;
        }
    }
    if (n == NULL) {
        return cudaErrorMemoryAllocation;
    }
    emulator_count(EMULATED_CAPTURES, 1);
    emulator_count(EMULATED_KEPT, 1);
    *graph_out = n;
    return 0;
}

static void run_nodes(const void *arguments)
{
    nodes *n = NULL;
    memcpy(&n, arguments, sizeof n);
    for (uint32_t i = 0; i < n->count; i++) {
        emulator_delay(n->stream);
        n->list[i].run(arguments_of(n, i));
    }
    atomic_fetch_sub(&n->under_way, 1);
}

/* Refuses graphs whose memory is gone, which CUDA would not notice. As in CUDA, the stream may be
 * another than the captured stream. */
int emulator_graph_launch(void *graph, void *stream)
{
    nodes *n = graph;
    for (uint32_t i = 0; i < n->count; i++) {
        if (n->list[i].can != NULL && !n->list[i].can(arguments_of(n, i))) {
            return cudaErrorIllegalAddress;
        }
    }
    if (n->stream != stream) {
        return cudaErrorUnknown;
    }
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    atomic_fetch_add(&n->under_way, 1);
    emulator_count(EMULATED_GRAPHS, 1);
    emulator_count(EMULATED_IN_GRAPHS, (int)n->count);
    const emulated_work work = {.run = run_nodes, .arguments = &n, .bytes = sizeof n};
    return emulator_launch(stream, &work);
}

/* Refuses a graph that is still running, and keeps it; tests notice both. */
int emulator_graph_destroy(void *graph)
{
    nodes *n = graph;
    if (atomic_load(&n->under_way) != 0) {
        return cudaErrorUnknown;
    }
    emulator_count(EMULATED_KEPT, -1);
    return emulator_captured_destroy(n);
}
