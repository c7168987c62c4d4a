/* CUDA's runtime on a CPU, as far as the driver for GPUs needs it. A thread that has
 * entered a green context (green.c beside this) is alone in it. */
#include "exec/cuda/emulator/green.h"

#include "common/base/mem.h"

#include <cuda_runtime_api.h>
#include <time.h>

cudaError_t cudaSetDevice(int device)
{
    return emulator_use_device(device) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute;
    (void)device;
    *value = (int)emulator_device.sm_count;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = *total = EMULATED_BYTES;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    (void)device;
    (void)peer;
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    (void)peer;
    (void)flags;
    return cudaErrorInvalidValue;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    return event->ms > 0 && cudaStreamSynchronize(stream) == cudaSuccess
               ? cudaSuccess
               : cudaErrorInvalidValue; /* never recorded */
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    *event = NULL;
    if (rp_mem_resize(event, sizeof **event) != RP_OK) {
        return cudaErrorMemoryAllocation;
    }
    **event = (struct emulated_event){.home = emulator_home()};
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
    if (cudaStreamSynchronize(stream) != cudaSuccess) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (event->home != (stream != NULL ? stream->home : emulator_device_home())) {
        return cudaErrorInvalidResourceHandle;
    }
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
