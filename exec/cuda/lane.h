/** @file lane.h  A lane of the CUDA backend: one stream with what its operators need, and the
 * table.
 *
 * The caller owns the stream and chooses how many multiprocessors it may count on; the lane owns
 * the memory that it allocates when it is opened. Operators only enqueue: none allocates, none
 * synchronises, but `squares`. What goes wrong is kept in `status` (the operators return nothing):
 * the driver looks at it after an op has been submitted. exec/cuda/README.md says the rest.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "exec/model/model.h"
#include "exec/operators/operators.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

/** Cached descriptors and algorithms of one lane's matrix products (cublas.h). */
typedef struct rpexec_cublas rpexec_cublas;

/** A lane's cuDNN (cudnn.h). */
typedef struct rpexec_cudnn rpexec_cudnn;

/** Bytes of workspace for cuBLAS: what its documentation asks for on Hopper. */
#define RPEXEC_CUDA_WORKSPACE ((size_t)32 << 20)

struct rpexec_lane {
    rp_dtype dtype; /**< of the tensors */
    cudaStream_t stream;
    uint32_t sm_count;      /**< multiprocessors that grids are made for; no result depends on it */
    bool half_accumulation; /**< fp16 products add up in fp16: only to compare with such runs */
    bool own_products;      /**< matrix products by our own kernels, not by cuBLAS */
    rpexec_cublas *cublas;
    rpexec_cudnn *cudnn;    /**< does the forward of attention where it has a plan; NULL: nowhere */
    void *workspace;        /**< RPEXEC_CUDA_WORKSPACE bytes of the GPU, or none */
    unsigned char *scratch; /**< the GPU's, aligned to 256 bytes */
    size_t scratch_bytes;
    void *pinned;     /**< the host's, pinned: where the result of `squares` arrives */
    rp_status status; /**< RP_OK, or the first failure (logged) */
};

/** Settings that a lane is made with. */
typedef struct rpexec_cuda_lane_config {
    rp_dtype dtype;
    cudaStream_t stream;    /**< stays the caller's; non-blocking */
    uint32_t sm_count;      /**< of the GPU, or of the group that a green context has */
    bool half_accumulation; /**< fp16 only */
    bool own_products;
    size_t scratch_bytes; /**< rpexec_cuda_scratch_bytes */
} rpexec_cuda_lane_config;

/** @return bytes of scratch that the model's operators need at most.
 * @param tokens of the largest microbatch */
size_t rpexec_cuda_scratch_bytes(const rp_model *model, uint64_t tokens);

/**
 * Allocates the lane's memory on the current device (the caller has set it, or its green context)
 * and opens cuBLAS unless own_products.
 * @param arena what the host remembers lies there
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged: which call, which library and where it was looked
 * for)
 */
rp_status rpexec_cuda_lane_open(const rpexec_cuda_lane_config *config, rp_arena *arena,
                                rpexec_lane *lane_out);

/**
 * From now on the lane's forward of attention with these sizes is cuDNN's, in the lane's workspace.
 * While nothing is captured, in the context that the lane has been opened in.
 * @param arena what the host remembers lies there
 * @param why_out after RP_TOOL the reason, there until the next call; not logged
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL
 */
rp_status rpexec_cuda_lane_plan_attention(rpexec_lane *lane, rp_arena *arena,
                                          const rpexec_attention_sizes *sizes,
                                          const char **why_out);

/** All of the lane's attention is our own again. */
void rpexec_cuda_lane_own_attention(rpexec_lane *lane);

/** Gives back what open has allocated; all of the stream's work must be done. A lane of zeros is
 * allowed. */
void rpexec_cuda_lane_close(rpexec_lane *lane);

/** Operators in CUDA, one table per storage type; a lane's dtype says which. */
extern const rpexec_operators *const rpexec_cuda_operators[RP_DTYPE_COUNT];

/** Logs a failing call's text. @retval RP_OK, RP_NO_MEMORY, RP_TOOL */
rp_status rpexec_cuda_check(cudaError_t error, const char *call, const char *file, int line);

/** RP_TRY of a call of the CUDA runtime. */
#define RPEXEC_CUDA_TRY(call) RP_TRY(rpexec_cuda_check((call), #call, __FILE__, __LINE__))
