/* NVIDIA GPUs through the CUDA runtime. Plain C: nvcc compiles .cu files only. */
#include "common/base/log.h"
#include "exec/cuda/runtime.h"
#include "exec/gpu/driver.h"
#include "exec/run/backend.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

/** Logs the failing call's text. */
static rp_status cuda_check(cudaError_t error, const char *call)
{
    if (error == cudaSuccess) {
        return RP_OK;
    }
    rp_log_error("%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
    return RP_TOOL;
}

#define CUDA_TRY(call) RP_TRY(cuda_check((call), #call))

static rp_status report_device(const rpexec_probe *probe, int index)
{
    struct cudaDeviceProp properties;
    CUDA_TRY(cudaGetDeviceProperties(&properties, index));
    char detail[64];
    snprintf(detail, sizeof(detail), "compute capability %d.%d", properties.major,
             properties.minor);
    rpexec_device device = {
        .index = (uint32_t)index,
        .name = properties.name,
        .detail = detail,
        .units = (uint32_t)properties.multiProcessorCount,
        .unit_name = "multiprocessors",
        .memory_bytes = properties.totalGlobalMem,
    };
    probe->device(probe->context, &device);
    return RP_OK;
}

/** Without a driver, or with a driver older than the runtime, the first call fails: then there are
 * no devices. */
static rp_status cuda_probe(const rpexec_probe *probe)
{
    int count = 0;
    rpexec_gpu_set_connections(false);
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        char reason[512];
        snprintf(reason, sizeof(reason), "cudaGetDeviceCount: %s (%s); %s",
                 error == cudaSuccess ? "0 devices" : cudaGetErrorString(error),
                 cudaGetErrorName(error), rpexec_cuda_versions());
        probe->absent(probe->context, reason);
        return RP_OK;
    }
    for (int i = 0; i < count; i++) {
        RP_TRY(report_device(probe, i));
    }
    return RP_OK;
}

const rpexec_backend_type rpexec_backend_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs",
    .source = "CUDA runtime API",
    .probe = cuda_probe,
    .driver = rpexec_cuda_driver,
};
