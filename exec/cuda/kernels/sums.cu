/* A value per thread: bound by memory, and small beside the copies before it. */
#include "exec/cuda/kernels/sums.h"

#include <machine.cuh>

enum { BLOCK = 256, BLOCKS_PER_SM = 8 };

template <typename T> __global__ void sum_add(uint64_t count, const T *values, bool add, float *sum)
{
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * BLOCK) {
        float x = widen(values[i]);
        sum[i] = add ? sum[i] + x : x;
    }
}

template <typename T> __global__ void sum_narrow(uint64_t count, const float *sum, T *to)
{
    for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * BLOCK) {
        narrow(sum[i], &to[i]);
    }
}

static dim3 grid_of(uint32_t sm_count, uint64_t count)
{
    uint64_t needed = (count + BLOCK - 1) / BLOCK;
    uint64_t most = (uint64_t)sm_count * BLOCKS_PER_SM;
    return dim3((unsigned int)(needed < most ? needed : most));
}

template <typename T>
static cudaError_t launch_add(uint32_t sm_count, uint64_t count, const void *values, bool add,
                              float *sum, cudaStream_t stream)
{
    return launch(sum_add<T>, grid_of(sm_count, count), BLOCK, 0, stream, count,
                  static_cast<const T *>(values), add, sum);
}

template <typename T>
static cudaError_t launch_narrow(uint32_t sm_count, uint64_t count, const float *sum, void *to,
                                 cudaStream_t stream)
{
    return launch(sum_narrow<T>, grid_of(sm_count, count), BLOCK, 0, stream, count, sum,
                  static_cast<T *>(to));
}

cudaError_t rpexec_cuda_sum_add(rp_dtype dtype, uint32_t sm_count, uint64_t count,
                                const void *values, bool add, float *sum, cudaStream_t stream)
{
    switch (dtype) {
    case RP_DTYPE_F32:
        return launch_add<float>(sm_count, count, values, add, sum, stream);
    case RP_DTYPE_F16:
        return launch_add<half16>(sm_count, count, values, add, sum, stream);
    case RP_DTYPE_BF16:
        return launch_add<bfloat16>(sm_count, count, values, add, sum, stream);
    case RP_DTYPE_COUNT:
        break;
    }
    return cudaErrorInvalidValue;
}

cudaError_t rpexec_cuda_sum_narrow(rp_dtype dtype, uint32_t sm_count, uint64_t count,
                                   const float *sum, void *to, cudaStream_t stream)
{
    switch (dtype) {
    case RP_DTYPE_F32:
        return launch_narrow<float>(sm_count, count, sum, to, stream);
    case RP_DTYPE_F16:
        return launch_narrow<half16>(sm_count, count, sum, to, stream);
    case RP_DTYPE_BF16:
        return launch_narrow<bfloat16>(sm_count, count, sum, to, stream);
    case RP_DTYPE_COUNT:
        break;
    }
    return cudaErrorInvalidValue;
}
