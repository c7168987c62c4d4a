/* The fake's captures and graphs. A thread that captures may launch operators in that stream and
 * do nothing else; CUDA permits some more. */
#include "tests/support/fake/cuda_internal.h"

#include "common/base/mem.h"

#include <stdatomic.h>
#include <string.h>

typedef struct node {
    void (*run)(const void *arguments);
    rp_fake_operator operator;
} node;

/* Operators that have been captured; also a graph of them. */
typedef struct nodes {
    rp_fake_stream *stream;
    node *list;
    uint32_t count;
    uint32_t capacity;
    bool invalid;
    atomic_uint under_way; /* launches that have not ended */
} nodes;

static _Thread_local nodes *capturing;
static atomic_uint captures;
static atomic_uint graph_launches;
static atomic_uint in_graphs;
static atomic_uint single;
static atomic_uint kept;

void rp_fake_restart_graphs(void)
{
    atomic_store(&captures, 0);
    atomic_store(&graph_launches, 0);
    atomic_store(&in_graphs, 0);
    atomic_store(&single, 0);
    atomic_store(&kept, 0);
}

rp_fake_cuda_launches rp_fake_cuda_launched(void)
{
    return (rp_fake_cuda_launches){.captures = atomic_load(&captures),
                                   .graphs = atomic_load(&graph_launches),
                                   .in_graphs = atomic_load(&in_graphs),
                                   .operators = atomic_load(&single),
                                   .kept = atomic_load(&kept)};
}

void rp_fake_count_operator(void)
{
    atomic_fetch_add(&single, 1);
}

bool rp_fake_is_capturing(void)
{
    return capturing != NULL;
}

void rp_fake_invalidate(void)
{
    capturing->invalid = true;
}

static void destroy(nodes *n)
{
    rp_mem_release(&n->list);
    rp_mem_release(&n);
    rp_fake_count(-1);
}

int rp_fake_capture_begin(void *stream)
{
    nodes *n = NULL;
    if (rp_fake_machine()->graphs == RP_FAKE_BEGIN_FAILS || capturing != NULL ||
        rp_mem_resize(&n, sizeof *n) != RP_OK) {
        return ERROR_CAPTURE;
    }
    *n = (nodes){.stream = stream};
    rp_fake_count(1);
    capturing = n;
    return 0;
}

int rp_fake_capture_operator(rp_fake_stream *stream, void (*run)(const void *arguments),
                             const rp_fake_operator *o)
{
    nodes *n = capturing;
    if (n->stream != stream || rp_fake_machine()->graphs == RP_FAKE_OPERATOR_FAILS ||
        rp_mem_reserve(&n->list, n->count, &n->capacity, sizeof *n->list) != RP_OK) {
        n->invalid = true;
        return ERROR_CAPTURE;
    }
    n->list[n->count++] = (node){.run = run, .operator= * o };
    return 0;
}

int rp_fake_capture_end(void *stream, void **captured_out)
{
    nodes *n = capturing;
    *captured_out = NULL;
    if (n == NULL || n->stream != stream) {
        return ERROR_MISUSE;
    }
    capturing = NULL;
    if (n->invalid || rp_fake_machine()->graphs == RP_FAKE_END_FAILS) {
        destroy(n);
        return ERROR_INVALIDATED;
    }
    *captured_out = n;
    return 0;
}

int rp_fake_captured_destroy(void *captured)
{
    destroy(captured);
    return 0;
}

int rp_fake_graph_make(void *captured, void **graph_out)
{
    const nodes *from = captured;
    nodes *n = NULL;
    if (rp_fake_machine()->graphs == RP_FAKE_MAKE_FAILS || rp_mem_resize(&n, sizeof *n) != RP_OK) {
        return ERROR_INVALID;
    }
    *n = (nodes){.stream = from->stream, .count = from->count, .capacity = from->count};
    rp_fake_count(1);
    if (rp_mem_resize(&n->list, n->count * sizeof *n->list) != RP_OK) {
        destroy(n);
        return 2;
    }
    memcpy(n->list, from->list, n->count * sizeof *n->list);
    atomic_fetch_add(&captures, 1);
    atomic_fetch_add(&kept, 1);
    *graph_out = n;
    return 0;
}

static void run_nodes(const void *arguments)
{
    nodes *n = NULL;
    memcpy(&n, arguments, sizeof n);
    for (uint32_t i = 0; i < n->count; i++) {
        rp_fake_delay(n->stream);
        n->list[i].run(&n->list[i].operator);
    }
    atomic_fetch_sub(&n->under_way, 1);
}

/* CUDA would not notice that memory is gone; nor does it mind another stream. */
int rp_fake_graph_launch(void *graph, void *stream)
{
    nodes *n = graph;
    for (uint32_t i = 0; i < n->count; i++) {
        if (!rp_fake_can_perform(&n->list[i].operator)) {
            return ERROR_ADDRESS;
        }
    }
    if (n->stream != stream) {
        return ERROR_MISUSE;
    }
    atomic_fetch_add(&n->under_way, 1);
    atomic_fetch_add(&graph_launches, 1);
    atomic_fetch_add(&in_graphs, n->count);
    return rp_fake_enqueue(stream, run_nodes, &n, sizeof n);
}

/* A graph that is under way is refused and stays, which the tests find. */
int rp_fake_graph_destroy(void *graph)
{
    nodes *n = graph;
    if (atomic_load(&n->under_way) != 0) {
        return ERROR_MISUSE;
    }
    destroy(n);
    atomic_fetch_sub(&kept, 1);
    return 0;
}
