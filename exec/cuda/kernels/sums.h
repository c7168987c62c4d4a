/** @file sums.h  The sums of collectives, in fp32, rounded once. */
#pragma once

#include "exec/operators/dtype.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** sum (+)= values, as fp32. @param sm_count multiprocessors for the grid */
cudaError_t rpexec_cuda_sum_add(rp_dtype dtype, uint32_t sm_count, uint64_t count,
                                const void *values, bool add, float *sum, cudaStream_t stream);

/** to = sum, rounded to nearest even. */
cudaError_t rpexec_cuda_sum_narrow(rp_dtype dtype, uint32_t sm_count, uint64_t count,
                                   const float *sum, void *to, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
