/* The table of exec/gpu/calls.h, filled with the CUDA runtime. */
#include "exec/cuda/runtime.h"

#include "common/base/log.h"
#include "exec/cuda/attention_trial.h"
#include "exec/cuda/cudnn.h"
#include "exec/cuda/green.h"
#include "exec/cuda/kernels/sums.h"
#include "exec/cuda/lane.h"
#include "exec/cuda/nccl.h"
#include "exec/gpu/driver.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* The emulator has no NVTX. */
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAS_NVTX 1
#else
#define HAS_NVTX 0
#endif

static const char *error_text(int error)
{
    return error >= RPEXEC_NCCL_ERRORS ? rpexec_cuda_nccl_text(error)
                                       : cudaGetErrorString((cudaError_t)error);
}

const char *rpexec_cuda_versions(void)
{
    static char text[192];
    int driver = 0; /* no driver */
    int runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    int used = driver == 0 ? snprintf(text, sizeof text, "no driver")
                           : snprintf(text, sizeof text, "the driver is for CUDA %d.%d",
                                      driver / 1000, driver % 1000 / 10);
    used += snprintf(text + used, sizeof text - (size_t)used, ", the runtime is CUDA %d.%d",
                     runtime / 1000, runtime % 1000 / 10);
    if (driver / 1000 < runtime / 1000) { /* a driver of the same major version is enough */
        snprintf(
            text + used, sizeof text - (size_t)used,
            ", which needs a driver for CUDA %d.0; an rpexec built with an older CUDA needs an "
            "older one",
            runtime / 1000);
    }
    return text;
}

#if HAS_NVTX
static void range_begin(const char *name)
{
    (void)nvtxRangePushA(name);
}

static void range_end(void)
{
    (void)nvtxRangePop();
}
#endif

static bool wants_ranges(void)
{
    const char *value = getenv("RPEXEC_NVTX");
    return value != NULL && *value != '\0';
}

static int device_count(int *count_out)
{
    return cudaGetDeviceCount(count_out);
}

static int device_facts(int device, uint32_t *sm_count_out, uint64_t *free_bytes_out)
{
    int sm_count = 0;
    size_t available = 0;
    size_t total = 0;
    cudaError_t error = cudaSetDevice(device);
    error = error == cudaSuccess
                ? cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device)
                : error;
    error = error == cudaSuccess ? cudaMemGetInfo(&available, &total) : error;
    *sm_count_out = (uint32_t)sm_count;
    *free_bytes_out = available;
    return error;
}

/* Makes a device reach a peer; the access may be enabled already. */
static bool reach(int device, int peer)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess || can == 0 ||
        cudaSetDevice(device) != cudaSuccess) {
        return false;
    }
    cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError(); /* otherwise the next launch reports the error */
        error = cudaSuccess;
    }
    return error == cudaSuccess;
}

static int enter(const rpexec_cuda_part *part)
{
    return part->context != NULL ? rpexec_green_enter(part->context)
                                 : (int)cudaSetDevice(part->device);
}

/* Any number of threads may use the device's own context. */
static int leave(const rpexec_cuda_part *part)
{
    return cudaSetDevice(part->device);
}

static int stream_create(const rpexec_cuda_part *part, void **stream_out)
{
    if (part->context != NULL) {
        return rpexec_green_stream(part, stream_out);
    }
    cudaStream_t stream = NULL;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    *stream_out = stream;
    return error;
}

static int stream_destroy(void *stream)
{
    return cudaStreamDestroy(stream);
}

static int stream_wait(void *stream, void *event)
{
    return cudaStreamWaitEvent(stream, event, 0);
}

static int stream_synchronize(void *stream)
{
    return cudaStreamSynchronize(stream);
}

static int event_create(void **event_out)
{
    cudaEvent_t event = NULL;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
    *event_out = event;
    return error;
}

static int event_destroy(void *event)
{
    return cudaEventDestroy(event);
}

static int event_record(void *event, void *stream)
{
    return cudaEventRecord(event, stream);
}

static int event_query(void *event)
{
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* otherwise this thread's next launch reports it */
    }
    return error;
}

static int event_synchronize(void *event)
{
    return cudaEventSynchronize(event);
}

static int event_elapsed(float *ms_out, void *from, void *to)
{
    return cudaEventElapsedTime(ms_out, from, to);
}

static int memory_take(uint64_t bytes, void **memory_out)
{
    return cudaMalloc(memory_out, bytes);
}

static int memory_give(void *memory)
{
    return cudaFree(memory);
}

static int host_take(uint64_t bytes, void **memory_out)
{
    return cudaHostAlloc(memory_out, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
}

static int host_give(void *memory)
{
    return cudaFreeHost(memory);
}

static int host_pin(void *memory, uint64_t bytes)
{
    cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (error != cudaSuccess) {
        (void)cudaGetLastError(); /* this is not a failure of the run */
    }
    return error;
}

static int host_unpin(void *memory)
{
    return cudaHostUnregister(memory);
}

/* CUDA tells by the addresses where memory lies. */
static int copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

static int fill(void *to, int byte, uint64_t bytes, void *stream)
{
    return cudaMemsetAsync(to, byte, bytes, stream);
}

/* Clears a failure that is not a failure of the run, so that the next launch does not report it. */
static int forgiven(cudaError_t error)
{
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return error;
}

static int capture_begin(void *stream)
{
    return forgiven(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

static int capture_end(void *stream, void **captured_out)
{
    cudaGraph_t captured = NULL;
    int error = forgiven(cudaStreamEndCapture(stream, &captured));
    *captured_out = captured;
    return error;
}

static int captured_destroy(void *captured)
{
    return cudaGraphDestroy(captured);
}

static int graph_make(void *captured, void **graph_out)
{
    cudaGraphExec_t graph = NULL;
    int error = forgiven(cudaGraphInstantiate(&graph, captured, 0));
    *graph_out = error == 0 ? graph : NULL;
    return error;
}

static int graph_launch(void *graph, void *stream)
{
    return cudaGraphLaunch(graph, stream);
}

static int graph_destroy(void *graph)
{
    return cudaGraphExecDestroy(graph);
}

static int add(const rpexec_cuda_part *part, rp_dtype dtype, uint64_t count, const void *values,
               bool adds, float *sum, void *stream)
{
    return rpexec_cuda_sum_add(dtype, part->sm_count, count, values, adds, sum, stream);
}

static int narrow(const rpexec_cuda_part *part, rp_dtype dtype, uint64_t count, const float *sum,
                  void *to, void *stream)
{
    return rpexec_cuda_sum_narrow(dtype, part->sm_count, count, sum, to, stream);
}

static rp_status lane_open(const rpexec_cuda_part *part, const rpexec_cuda_lane_shape *shape,
                           void *stream, rp_arena *arena, rpexec_lane **lane_out)
{
    rpexec_lane *lane = NULL;
    const rpexec_cuda_lane_config config = {
        .dtype = shape->model->dtype,
        .stream = stream,
        .sm_count = part->sm_count,
        .half_accumulation = shape->half_accumulation,
        .own_products = shape->tokens == 0, /* without tokens there are no products */
        .scratch_bytes = rpexec_cuda_scratch_bytes(shape->model->config, shape->tokens)};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *lane, &lane));
    RP_TRY(rpexec_cuda_lane_open(&config, arena, lane));
    *lane_out = lane;
    return RP_OK;
}

static void lane_close(rpexec_lane *lane)
{
    if (lane != NULL) {
        rpexec_cuda_lane_close(lane);
    }
}

static rp_status lane_status(const rpexec_lane *lane)
{
    return lane->status;
}

static void lane_forgive(rpexec_lane *lane)
{
    lane->status = RP_OK;
    (void)cudaGetLastError();
}

static bool find_cudnn(const char **name_out, const char **why_out)
{
    static char name[32];
    const rpexec_cudnn_functions *functions = NULL;
    size_t version = 0;
    bool found = rpexec_cudnn_load(&functions, &version, why_out);
    snprintf(name, sizeof name, "cudnn %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    *name_out = name;
    return found;
}

static rpexec_cuda_calls calls = {
    .operators = rpexec_cuda_operators,
    .not_ready = cudaErrorNotReady,
    .no_memory = cudaErrorMemoryAllocation,
    .text = error_text,
    .versions = rpexec_cuda_versions,
    .device_count = device_count,
    .device_facts = device_facts,
    .split = rpexec_green_split,
    .unsplit = rpexec_green_unsplit,
    .reach = reach,
    .enter = enter,
    .leave = leave,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .memory_take = memory_take,
    .memory_give = memory_give,
    .host_take = host_take,
    .host_give = host_give,
    .host_pin = host_pin,
    .host_unpin = host_unpin,
    .copy = copy,
    .fill = fill,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .capture_invalidated = cudaErrorStreamCaptureInvalidated,
    .captured_destroy = captured_destroy,
    .graph_make = graph_make,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .add = add,
    .narrow = narrow,
    .lane_open = lane_open,
    .lane_close = lane_close,
    .lane_status = lane_status,
    .lane_forgive = lane_forgive,
    .cudnn = find_cudnn,
    .attention_plan = rpexec_cuda_lane_plan_attention,
    .attention_try = rpexec_cuda_attention_try,
    .attention_own = rpexec_cuda_lane_own_attention,
};

static rp_status attach(const rpexec_devices_config *config, rpexec_devices **devices_out,
                        uint64_t *gpu_bytes_out)
{
    calls.nccl = rpexec_cuda_nccl();
#if HAS_NVTX
    calls.range_begin = wants_ranges() ? range_begin : NULL;
    calls.range_end = wants_ranges() ? range_end : NULL;
#else
    if (wants_ranges()) {
        rp_log_warning("RPEXEC_NVTX: built without nvtx3/nvToolsExt.h: there are no ranges");
    }
#endif
    return rpexec_gpu_attach(&calls, config, devices_out, gpu_bytes_out);
}

const rpexec_driver_type *rpexec_cuda_driver(void)
{
    static rpexec_driver_type type;
    type = rpexec_gpu_driver;
    type.operators = rpexec_cuda_operators;
    type.attach = attach;
    return &type;
}
