/* The lanes of a GPU, or of the emulator, which has the same runtime. */
#include "exec/cuda/lane.h"
#include "exec/cuda/tests/trial.h"

#include <stdio.h>

static rpexec_lane lanes[TRIAL_PRODUCTS][RP_DTYPE_COUNT];
static cudaStream_t stream;
static trial_products products_now;
static uint32_t sm_count;
enum { SCRATCH = 64 << 20 };

int trial_device_open(void)
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
    sm_count = (uint32_t)properties.multiProcessorCount;
    return trial_use(TRIAL_OWN) ? 0 : 1;
}

bool trial_use(trial_products by)
{
    for (uint32_t i = 0; i < RP_DTYPE_COUNT; i++) {
        const rpexec_cuda_lane_config config = {.dtype = (rp_dtype)i,
                                                .stream = stream,
                                                .sm_count = sm_count,
                                                .half_accumulation = by == TRIAL_CUBLAS_HALF,
                                                .own_products = by == TRIAL_OWN,
                                                .scratch_bytes = SCRATCH};
        if (lanes[by][i].scratch == NULL &&
            rpexec_cuda_lane_open(&config, trial_lane_arena, &lanes[by][i]) != RP_OK) {
            return false;
        }
    }
    products_now = by;
    return true;
}

void trial_device_close(void)
{
    for (uint32_t i = 0; i < TRIAL_PRODUCTS * RP_DTYPE_COUNT; i++) {
        rpexec_cuda_lane_close(&lanes[i / RP_DTYPE_COUNT][i % RP_DTYPE_COUNT]);
    }
    if (stream != NULL) {
        (void)cudaStreamDestroy(stream);
    }
}

rpexec_lane *trial_device_lane(rp_dtype dtype)
{
    return &lanes[products_now][dtype];
}

const rpexec_operators *trial_device_table(rp_dtype dtype)
{
    return rpexec_cuda_operators[dtype];
}

/* Waits for the stream, since only then errors of kernels show. */
rp_status trial_device_status(rp_dtype dtype)
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
