/* CUDA's runtime on a CPU: calls of the machine (machine/machine.h). */
#include "exec/cuda/emulator/green.h"
#include "exec/cuda/emulator/machine/machine.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* ---- devices --------------------------------------------------------------------------------- */

static bool is_device(int device)
{
    return device >= 0 && device < emulator_machine()->devices;
}

cudaError_t cudaSetDevice(int device)
{
    const rpexec_cuda_part part = {.device = device};
    return is_device(device) ? emulator_enter(&part) : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = emulator_machine()->devices;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute;
    *value = (int)emulator_device.sm_count;
    return is_device(device) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = *total = EMULATED_BYTES;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = emulator_machine()->peers && device != peer;
    return is_device(device) && is_device(peer) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    int device = emulator_here()->device;
    (void)flags;
    return !is_device(peer) || peer == device ? cudaErrorInvalidDevice
           : emulator_reaches(device, peer)   ? cudaErrorPeerAccessAlreadyEnabled
           : emulator_reach(device, peer)     ? cudaSuccess
                                              : cudaErrorInvalidValue;
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
    if (!is_device(device)) {
        return cudaErrorInvalidDevice;
    }
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "emulator");
    properties->totalGlobalMem = EMULATED_BYTES;
    properties->multiProcessorCount = 3; /* so that grids divide nothing evenly */
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return emulator_text((int)error);
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorInvalidValue       ? "cudaErrorInvalidValue"
           : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                                : "cudaSuccess";
}

/* ---- memory ---------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    return emulator_memory_take(bytes, pointer);
}

/* CUDA waits for the device; this waits for all devices. */
cudaError_t cudaFree(void *pointer)
{
    if (pointer == NULL) {
        return cudaSuccess;
    }
    emulator_wait_idle();
    return emulator_give(pointer);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return emulator_host_take(bytes, pointer);
}

cudaError_t cudaFreeHost(void *pointer)
{
    return cudaFree(pointer);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
    (void)flags;
    return memory != NULL ? emulator_host_pin(memory, bytes) : cudaErrorInvalidValue;
}

cudaError_t cudaHostUnregister(void *memory)
{
    return emulator_give(memory);
}

/* Copies at once: the call belongs to the default stream, for which no other stream waits. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    if (stream == NULL) {
        return cudaMemcpy(to, from, bytes, kind);
    }
    return emulator_copy(to, from, bytes, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return stream != NULL ? emulator_fill(to, value, bytes, stream)
                          : cudaErrorInvalidResourceHandle;
}

/* ---- streams and events ---------------------------------------------------------------------- */

cudaError_t emulated_launch(cudaStream_t stream, void (*run)(const void *arguments),
                            const void *arguments, size_t bytes)
{
    const emulated_work work = {.run = run, .arguments = arguments, .bytes = bytes};
    if (stream != NULL) {
        return emulator_launch(stream, &work);
    }
    run(arguments);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    (void)flags;
    return emulator_stream_create(emulator_here(), stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return stream != NULL ? emulator_stream_synchronize(stream) : cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (stream != NULL) {
        emulator_green_stream_goes(emulator_part_of(stream)->context);
        (void)emulator_stream_destroy(stream);
    }
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    return emulator_stream_wait(stream, event);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    return emulator_event_create(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return emulator_event_destroy(event);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return stream != NULL ? emulator_event_record(event, stream) : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return emulator_event_query(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return emulator_event_synchronize(event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    return emulator_event_elapsed(ms, from, to);
}

/* ---- captures and graphs --------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    return stream != NULL ? emulator_capture_begin(stream) : cudaErrorInvalidValue;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return emulator_capture_end(stream, graph);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    return emulator_graph_make(graph, exec);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return emulator_graph_launch(exec, stream);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return emulator_captured_destroy(graph);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return emulator_graph_destroy(exec);
}
