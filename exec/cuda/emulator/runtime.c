/* CUDA's runtime on a CPU: memory is the heap's, streams are nothing. */
#include "common/base/mem.h"
#include "exec/cuda/emulator/green.h"

#include <cuda_runtime_api.h>
#include <string.h>

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    *pointer = NULL;
    return rp_mem_resize(pointer, bytes) == RP_OK ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *pointer)
{
    rp_mem_release(&pointer);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeHost(void *pointer)
{
    return cudaFree(pointer);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

typedef struct move {
    void *to;
    const void *from; /* NULL: `value` */
    size_t bytes;
    int value;
} move;

static void do_move(void *arguments)
{
    const move *m = arguments;
    if (m->from != NULL) {
        memcpy(m->to, m->from, m->bytes);
    } else {
        memset(m->to, m->value, m->bytes);
    }
}

static cudaError_t do_or_defer(cudaStream_t stream, move m)
{
    if (stream != NULL && stream->defer != NULL) {
        return stream->defer(stream, do_move, &m, sizeof m);
    }
    do_move(&m);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    return do_or_defer(stream, (move){.to = to, .from = from, .bytes = bytes});
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return do_or_defer(stream, (move){.to = to, .value = value, .bytes = bytes});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    (void)flags;
    *stream = NULL;
    if (rp_mem_resize(stream, sizeof **stream) != RP_OK) {
        return cudaErrorMemoryAllocation;
    }
    **stream = (struct emulated_stream){.home = emulator_home()};
    ++*(*stream)->home;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return stream == NULL || stream->defer == NULL ? cudaSuccess
                                                   : cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (stream != NULL) {
        --*stream->home;
        rp_mem_release(&stream);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = emulator_devices();
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 12040;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= emulator_devices()) {
        return cudaErrorInvalidDevice;
    }
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "emulator");
    properties->totalGlobalMem = EMULATED_BYTES;
    properties->multiProcessorCount = 3; /* grids that do not divide anything evenly */
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInvalidValue            ? "invalid argument"
           : error == cudaErrorMemoryAllocation      ? "out of memory"
           : error == cudaErrorInvalidDevice         ? "invalid device ordinal"
           : error == cudaErrorInvalidResourceHandle ? "invalid resource handle"
                                                     : "no error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorInvalidValue       ? "cudaErrorInvalidValue"
           : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                                : "cudaSuccess";
}
