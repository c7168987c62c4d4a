/** @file cudnn_graph.h  Causal attention as a graph of cuDNN's operations, and a plan to run it.
 *
 * In the versions supported here cuDNN has no attention operation with a mask: it recognises
 * attention in a graph of products, sums and operations on single values, and runs it as a single
 * kernel. The graph has the pattern that NVIDIA's own frontend builds.
 */
#pragma once

#include "common/base/status.h"
#include "exec/cuda/cudnn_api.h"
#include "exec/operators/operators.h"

/** The first version that can write the logarithms of sums in the layout [token, head]. */
#define RPEXEC_CUDNN_LEAST_VERSION 91200u

/** Most objects of a graph and its plan, with room for the engines that are tried. */
#define RPEXEC_CUDNN_OBJECTS 80u

/** Tensors in memory, in the order of their unique ids, which count from 1. */
typedef enum rpexec_cudnn_tensor {
    RPEXEC_CUDNN_Q,
    RPEXEC_CUDNN_K,
    RPEXEC_CUDNN_V,
    RPEXEC_CUDNN_O,
    RPEXEC_CUDNN_LOGSUMEXP,
    RPEXEC_CUDNN_SCALE,  /**< a float of the host */
    RPEXEC_CUDNN_MASKED, /**< a float of the host: the score of a key that is not seen */
    RPEXEC_CUDNN_TENSORS,
} rpexec_cudnn_tensor;

/** Device for which plans are made: the device of a handle, or a device that is only described. */
typedef struct rpexec_cudnn_target {
    const rpexec_cudnn_functions *f;
    rpexec_cudnn_handle handle; /**< NULL: `device` describes it */
    rpexec_cudnn_object device; /**< device properties, finalised */
} rpexec_cudnn_target;

/** A plan, or the reason why there is none. */
typedef struct rpexec_cudnn_plan {
    rpexec_attention_sizes sizes;
    const rpexec_cudnn_functions *f;
    rpexec_cudnn_object objects[RPEXEC_CUDNN_OBJECTS]; /**< all objects, oldest first */
    uint32_t count;
    rpexec_cudnn_object graph;
    rpexec_cudnn_object plan; /**< finalised */
    int64_t workspace_bytes;
    uint32_t engines; /**< number of engines that heuristics have named */
    float scale;
    float masked;
    bool failed;
    char why[768]; /**< the reason, with `failed` */
} rpexec_cudnn_plan;

/**
 * Makes a plan for `sizes`, with the first engine named by heuristics that gives the same bits
 * every time, adds up in fp32 and needs at most `workspace_bytes`.
 * @param plan_out zeroed before; release with rpexec_cudnn_plan_forget in any case
 * @retval RP_OK, RP_TOOL (not logged: plan_out->why)
 */
rp_status rpexec_cudnn_plan_make(const rpexec_cudnn_target *target, rp_dtype dtype,
                                 const rpexec_attention_sizes *sizes, int64_t workspace_bytes,
                                 rpexec_cudnn_plan *plan_out);

/** Releases all objects of a plan; a zeroed plan is allowed. */
void rpexec_cudnn_plan_forget(rpexec_cudnn_plan *plan);

/** Makes the list of tensors' addresses with which a plan is run. @retval RP_OK, RP_TOOL
 * (plan->why)
 * @param pack_out release with BackendDestroyDescriptor */
rp_status rpexec_cudnn_pack_make(rpexec_cudnn_plan *plan,
                                 const void *const memory[RPEXEC_CUDNN_SCALE], void *workspace,
                                 rpexec_cudnn_object *pack_out);
