/** @file cudnn.h  The forward of attention by cuDNN, which is loaded when a run asks for it.
 *
 * The backward stays our own kernel: cuDNN's backward either adds up with atomics, so that two runs
 * differ in bits, or stores the seq_len x seq_len matrix. Our backward can use the logarithms of
 * sums from cuDNN's forward, as from our own. The first lane that asks opens libcudnn.so.9 with
 * dlopen, as cublas.h does; it stays loaded. Each lane has its own handle, bound to its stream.
 * Plans are made when the run starts, a plan per shape. The list of tensors' addresses that a call
 * needs as well is kept, since the same addresses come again in every step.
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
 * @param why_out the reason if the library cannot be opened; static
 */
bool rpexec_cudnn_load(const rpexec_cudnn_functions **functions_out, size_t *version_out,
                       const char **why_out);

/**
 * Opens a handle on the current device.
 * @param workspace memory of the GPU for this stream only; plans that need more are not made
 * @param why_out after RP_TOOL the reason, valid until the next call; not logged
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL
 */
rp_status rpexec_cudnn_open(rp_dtype dtype, cudaStream_t stream, void *workspace,
                            size_t workspace_bytes, rp_arena *arena, rpexec_cudnn **cudnn_out,
                            const char **why_out);

/** Releases plans and the handle; NULL is allowed. */
void rpexec_cudnn_close(rpexec_cudnn *cudnn);

/** Makes the plan for `sizes`, unless there is one. Must not be called while the stream is
 * captured.
 * @param why_out as for open, valid until the next call for the same handle
 * @retval RP_OK, RP_TOOL (not logged) */
rp_status rpexec_cudnn_plan_for(rpexec_cudnn *cudnn, const rpexec_attention_sizes *sizes,
                                const char **why_out);

/** @return whether there is a plan. */
bool rpexec_cudnn_has(const rpexec_cudnn *cudnn, const rpexec_attention_sizes *sizes);

/** The operator `attention` (exec/operators/operators.h); there must be a plan for `sizes`. Tensors
 * must be aligned to 16 bytes. @retval RP_OK, RP_BROKEN, RP_TOOL (logged) */
rp_status rpexec_cudnn_attention(rpexec_cudnn *cudnn, const rpexec_attention_sizes *sizes,
                                 const void *q, const void *k, const void *v, void *o,
                                 float *logsumexp);
