/* The lanes of a GPU, or of the emulator, which has the same runtime. */
#include "exec/cuda/lane.h"
#include "exec/cuda/tests/trial.h"

#include <stdio.h>

static rpexec_lane lanes[RPEXEC_DTYPE_COUNT];
static rpexec_lane with_cublas[RPEXEC_DTYPE_COUNT];
static cudaStream_t stream;
static bool use_cublas;
enum { SCRATCH = 64 << 20 };

int trial_device_open(rp_arena *arena)
{
    int count = 0;
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(error));
        return 77;
    }
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) {
        return 1;
    }
    printf("device: %s, compute capability %d.%d, %d multiprocessors\n", properties.name,
           properties.major, properties.minor, properties.multiProcessorCount);
    for (uint32_t i = 0; i < RPEXEC_DTYPE_COUNT; i++) {
        const rpexec_cuda_lane_config config = {.dtype = (rpexec_dtype)i,
                                                .stream = stream,
                                                .sm_count =
                                                    (uint32_t)properties.multiProcessorCount,
                                                .own_products = true,
                                                .scratch_bytes = SCRATCH};
        if (rpexec_cuda_lane_open(&config, arena, &lanes[i]) != RP_OK) {
            return 1;
        }
    }
    return 0;
}

bool trial_use_cublas(bool use)
{
    for (uint32_t i = 0; use && i < RPEXEC_DTYPE_COUNT; i++) {
        const rpexec_cuda_lane_config config = {.dtype = (rpexec_dtype)i,
                                                .stream = stream,
                                                .sm_count = lanes[0].sm_count,
                                                .scratch_bytes = SCRATCH};
        if (with_cublas[i].cublas == NULL &&
            rpexec_cuda_lane_open(&config, trial_arena, &with_cublas[i]) != RP_OK) {
            return false;
        }
    }
    use_cublas = use;
    return use;
}

void trial_device_close(void)
{
    for (uint32_t i = 0; i < RPEXEC_DTYPE_COUNT; i++) {
        rpexec_cuda_lane_close(&lanes[i]);
        rpexec_cuda_lane_close(&with_cublas[i]);
    }
    if (stream != NULL) {
        (void)cudaStreamDestroy(stream);
    }
}

rpexec_lane *trial_device_lane(rpexec_dtype dtype)
{
    return use_cublas ? &with_cublas[dtype] : &lanes[dtype];
}

const rpexec_operators *trial_device_table(rpexec_dtype dtype)
{
    return rpexec_cuda_operators[dtype];
}

/* Waits: what a kernel does wrong shows then only. */
rp_status trial_device_status(rpexec_dtype dtype)
{
    rpexec_lane *lane = trial_device_lane(dtype);
    rp_status status =
        rpexec_cuda_check(cudaStreamSynchronize(stream), "an operator", __FILE__, __LINE__);
    return lane->status != RP_OK ? lane->status : status;
}

bool trial_to_device(void *to, const void *from, size_t bytes)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess;
}

bool trial_from_device(void *to, const void *from, size_t bytes)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess;
}

void *trial_device_memory(size_t bytes)
{
    void *memory = NULL;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : NULL;
}

void trial_device_memory_back(void *memory)
{
    (void)cudaFree(memory);
}
