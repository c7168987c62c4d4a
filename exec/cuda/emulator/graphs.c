/* CUDA's captures and graphs on a CPU: what has been noted is done when it is launched. */
#include "common/base/mem.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <string.h>

/* A launch with the bytes of its arguments. */
typedef struct node {
    void (*run)(void *arguments);
    void *arguments;
    size_t bytes;
} node;

struct emulated_graph {
    node *nodes;
    uint32_t count;
    uint32_t capacity;
    bool invalid;
};

static cudaError_t make(cudaGraph_t *graph)
{
    *graph = NULL;
    if (rp_mem_resize(graph, sizeof **graph) != RP_OK) {
        return cudaErrorMemoryAllocation;
    }
    **graph = (struct emulated_graph){0};
    return cudaSuccess;
}

static cudaError_t append(cudaGraph_t graph, void (*run)(void *arguments), const void *arguments,
                          size_t bytes)
{
    node n = {.run = run, .bytes = bytes};
    if (rp_mem_reserve(&graph->nodes, graph->count, &graph->capacity, sizeof n) != RP_OK ||
        rp_mem_resize(&n.arguments, bytes) != RP_OK) {
        graph->invalid = true;
        return cudaErrorMemoryAllocation;
    }
    memcpy(n.arguments, arguments, bytes);
    graph->nodes[graph->count++] = n;
    return cudaSuccess;
}

static cudaError_t defer(cudaStream_t stream, void (*run)(void *arguments), const void *arguments,
                         size_t bytes)
{
    return append(stream->captured, run, arguments, bytes);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    for (uint32_t i = 0; i < graph->count; i++) {
        rp_mem_release(&graph->nodes[i].arguments);
    }
    rp_mem_release(&graph->nodes);
    rp_mem_release(&graph);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (stream == NULL || stream->defer != NULL) {
        return cudaErrorInvalidValue;
    }
    cudaError_t error = make(&stream->captured);
    stream->defer = error == cudaSuccess ? defer : NULL;
    return error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = NULL;
    if (stream == NULL || stream->defer == NULL) {
        return cudaErrorInvalidValue;
    }
    stream->defer = NULL;
    if (stream->captured->invalid) {
        (void)cudaGraphDestroy(stream->captured);
        return cudaErrorStreamCaptureInvalidated;
    }
    *graph = stream->captured;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    cudaError_t error = make(exec);
    (void)flags;
    for (uint32_t i = 0; error == cudaSuccess && i < graph->count; i++) {
        const node *n = &graph->nodes[i];
        error = append(*exec, n->run, n->arguments, n->bytes);
    }
    return error;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (stream == NULL || stream->defer != NULL) {
        return cudaErrorInvalidValue;
    }
    for (uint32_t i = 0; i < exec->count; i++) {
        exec->nodes[i].run(exec->nodes[i].arguments);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy(exec);
}
