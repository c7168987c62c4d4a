/** @file cudnn.h  The forward of attention by cuDNN, which is loaded when a run asks for it.
 *
 * The backward stays our own kernel: cuDNN's either adds up with atomics, so that two runs differ
 * in bits, or stores the seq_len x seq_len matrix. Both give logarithms of sums for each other.
 * The first lane that asks opens libcudnn.so.9 with dlopen, as cublas.h does; it stays. A lane has
 * a handle of its own, bound to its stream. Plans are made when the run starts, one per shape. The
 * list of its tensors' addresses, which a call needs as well, is kept, since addresses come again
 * in every step.
 */
#pragma once

#include "common/base/mem.h"
#include "exec/cuda/cudnn_graph.h"

#include <cuda_runtime_api.h>

/** A lane's handle, plans and lists of addresses. */
typedef struct rpexec_cudnn rpexec_cudnn;

/**
 * Opens the library, once in a process.
 * @param functions_out static
 * @param version_out e.g. 91900
 * @param why_out where it cannot be: the reason, static
 */
bool rpexec_cudnn_load(const rpexec_cudnn_functions **functions_out, size_t *version_out,
                       const char **why_out);

/**
 * A handle on the current device.
 * @param workspace of the GPU, the stream's own; plans that need more are not made
 * @param why_out after RP_TOOL the reason, there until the next call; not logged
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL
 */
rp_status rpexec_cudnn_open(rp_dtype dtype, cudaStream_t stream, void *workspace,
                            size_t workspace_bytes, rp_arena *arena, rpexec_cudnn **cudnn_out,
                            const char **why_out);

/** Gives back plans and the handle; NULL is allowed. */
void rpexec_cudnn_close(rpexec_cudnn *cudnn);

/** Makes the plan for `sizes`, unless there is one. Not while the stream is captured.
 * @param why_out as for open, there until the next call for the same handle
 * @retval RP_OK, RP_TOOL (not logged) */
rp_status rpexec_cudnn_plan_for(rpexec_cudnn *cudnn, const rpexec_attention_sizes *sizes,
                                const char **why_out);

/** @return true where there is a plan. */
bool rpexec_cudnn_has(const rpexec_cudnn *cudnn, const rpexec_attention_sizes *sizes);

/** The operator (exec/operators/operators.h), for which there must be a plan. Tensors must be
 * aligned to 16 bytes. @retval RP_OK, RP_BROKEN, RP_TOOL (logged) */
rp_status rpexec_cudnn_attention(rpexec_cudnn *cudnn, const rpexec_attention_sizes *sizes,
                                 const void *q, const void *k, const void *v, void *o,
                                 float *logsumexp);
