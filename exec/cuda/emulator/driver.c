/* CUDA's runtime and green contexts on a CPU, as far as the driver for GPUs needs them. The
 * emulator runs one kernel at a time: whoever has entered a part has it to himself. */
#include "exec/cuda/green.h"

#include "common/mem.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <time.h>

static pthread_mutex_t emulator = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool has_it;

cudaError_t cudaSetDevice(int device)
{
    if (has_it) {
        has_it = false;
        pthread_mutex_unlock(&emulator);
    }
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

int rpexec_green_enter(void *context)
{
    if (!has_it) {
        pthread_mutex_lock(&emulator);
        has_it = true;
    }
    return context != NULL ? 0 : (int)cudaErrorInvalidValue;
}

bool rpexec_green_split(int device, uint32_t count, rpexec_cuda_part *parts_out,
                        const char **why_out)
{
    (void)why_out;
    for (uint32_t i = 0; i < count; i++) {
        parts_out[i] = (rpexec_cuda_part){
            .device = device, .sm_count = 3, .context = &emulator, .green = &emulator};
    }
    return true;
}

void rpexec_green_unsplit(uint32_t count, rpexec_cuda_part *parts)
{
    (void)count;
    (void)parts;
}

int rpexec_green_stream(const rpexec_cuda_part *part, void **stream_out)
{
    /* Any address: the driver takes NULL for none. */
    *stream_out = part->context;
    return 0;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute;
    (void)device;
    *value = 3;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = *total = (size_t)16 << 30;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    (void)peer;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)stream;
    (void)flags;
    return event->ms > 0 ? cudaSuccess : cudaErrorInvalidValue; /* never recorded */
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    *event = NULL;
    if (rp_mem_resize(event, sizeof **event) != RP_OK) {
        return cudaErrorMemoryAllocation;
    }
    (*event)->ms = 0;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    rp_mem_release(&event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct timespec t;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &t);
    event->ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return event->ms > 0 ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return event->ms > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(to->ms - from->ms);
    return from->ms > 0 && to->ms > 0 ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
    (void)bytes;
    (void)flags;
    return memory != NULL ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostUnregister(void *memory)
{
    (void)memory;
    return cudaSuccess;
}
