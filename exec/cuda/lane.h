/** @file lane.h  A lane of the CUDA backend: a stream with the memory and handles of its operators,
 * and the operators' table.
 *
 * The caller owns the stream and sets the number of multiprocessors for its grids; the lane owns
 * the memory that it allocates when it is opened. Operators only enqueue work: they do not
 * allocate, and only `squares` synchronises. They return nothing: `status` keeps the first failure,
 * and the driver checks it after an op has been submitted. exec/cuda/README.md has the details.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "exec/model/model.h"
#include "exec/operators/operators.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

/** Cached descriptors and algorithms of a lane's matrix products (cublas.h). */
typedef struct rpexec_cublas rpexec_cublas;

/** A lane's cuDNN (cudnn.h). */
typedef struct rpexec_cudnn rpexec_cudnn;

/** Bytes of workspace for cuBLAS: the size that its documentation recommends on Hopper. */
#define RPEXEC_CUDA_WORKSPACE ((size_t)32 << 20)

struct rpexec_lane {
    rp_dtype dtype; /**< type of the tensors */
    cudaStream_t stream;
    uint32_t sm_count;      /**< multiprocessors for which grids are made; results do not depend on
                                 it */
    bool half_accumulation; /**< fp16 products add up in fp16: only to compare with such runs */
    bool own_products;      /**< matrix products by our own kernels, not by cuBLAS */
    rpexec_cublas *cublas;
    rpexec_cudnn *cudnn;    /**< computes the forward of attention for sizes with a plan; NULL: for
                                 none */
    void *workspace;        /**< RPEXEC_CUDA_WORKSPACE bytes of the GPU, or NULL */
    unsigned char *scratch; /**< memory of the GPU, aligned to 256 bytes */
    size_t scratch_bytes;
    void *pinned;     /**< pinned memory of the host for the result of `squares` */
    rp_status status; /**< RP_OK, or the first failure (logged) */
};

/** Settings of a new lane. */
typedef struct rpexec_cuda_lane_config {
    rp_dtype dtype;
    cudaStream_t stream;    /**< owned by the caller; non-blocking */
    uint32_t sm_count;      /**< of the GPU, or of a green context's group */
    bool half_accumulation; /**< fp16 only */
    bool own_products;
    size_t scratch_bytes; /**< rpexec_cuda_scratch_bytes */
} rpexec_cuda_lane_config;

/** @return bytes of scratch that suffices for all of the model's operators.
 * @param tokens tokens of the largest microbatch */
size_t rpexec_cuda_scratch_bytes(const rp_model *model, uint64_t tokens);

/**
 * Allocates the lane's memory on the current device (the caller has made it, or its green context,
 * current) and opens cuBLAS unless own_products.
 * @param arena holds the data that the host keeps
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged with the call, or the library and the places that
 * were searched)
 */
rp_status rpexec_cuda_lane_open(const rpexec_cuda_lane_config *config, rp_arena *arena,
                                rpexec_lane *lane_out);

/**
 * Makes the lane's forward of attention with these sizes use cuDNN from now on, in the lane's
 * workspace. Call it while nothing is captured, in the context in which the lane was opened.
 * @param arena holds the data that the host keeps
 * @param why_out after RP_TOOL the reason, valid until the next call; not logged
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL
 */
rp_status rpexec_cuda_lane_plan_attention(rpexec_lane *lane, rp_arena *arena,
                                          const rpexec_attention_sizes *sizes,
                                          const char **why_out);

/** Makes all of the lane's attention use our own kernels again. */
void rpexec_cuda_lane_own_attention(rpexec_lane *lane);

/** Releases the resources of rpexec_cuda_lane_open; all work of the stream must be done. A zeroed
 * lane is allowed. */
void rpexec_cuda_lane_close(rpexec_lane *lane);

/** Operators in CUDA: the table for each storage type, the lane's dtype. */
extern const rpexec_operators *const rpexec_cuda_operators[RP_DTYPE_COUNT];

/** Logs a failing call's text. @retval RP_OK, RP_NO_MEMORY, RP_TOOL */
rp_status rpexec_cuda_check(cudaError_t error, const char *call, const char *file, int line);

/** RP_TRY of a call of the CUDA runtime. */
#define RPEXEC_CUDA_TRY(call) RP_TRY(rpexec_cuda_check((call), #call, __FILE__, __LINE__))
