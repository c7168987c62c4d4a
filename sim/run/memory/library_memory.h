/** @file library_memory.h  Memory of a GPU that RoundPipe's library takes: its jobs' tensors, in
 * the order in which the host issues them, through PyTorch's caching allocator.
 *
 * The allocator serves requests when they are issued, not when the GPU comes to them; what one
 * stream frees goes to that stream's later requests. So it is the order of issue that decides what
 * lives together, and a simulated time does not enter. Per job (executor.md 1): its weights, until
 * the next job's are up; per microbatch the uploads, which stay until the next microbatch's first
 * upload; a layer's tensors as recorded (layer_tensors.h), the forward with its tape, too; what
 * goes down to the host (outputs, with layer grain all inner layers' inputs, input gradients),
 * until the end of the next microbatch; gradients of weights, until the end of the next job's first
 * microbatch. The head's loss is computed in chunks (RP_LOSS_CHUNK_TOKENS).
 */
#pragma once

#include "common/inputs/partition.h"
#include "sim/run/memory/caching_allocator.h"
#include "sim/run/memory/layer_tensors.h"

typedef struct rpsim_library_run {
    const rp_model *model;
    const rpsim_layer_tensors *tensors; /**< of a microbatch's tokens */
    uint64_t tokens;                    /**< of a microbatch, all sequences */
    uint32_t microbatches;              /**< of one call */
    bool layer_grain;
    uint32_t gpus;
    /** [plans] One after the other, `calls` forward-backward calls each; job k of all runs on GPU
     * k modulo gpus. A stage of 0 layers holds the embedding or the head alone. */
    const rp_partition *plans;
    const uint32_t *calls;
    uint32_t plan_count;
} rpsim_library_run;

typedef struct rpsim_library_memory {
    bool fits;
    uint64_t peak_live_bytes; /**< tensors, of the whole run, whether it fits or not */
    uint64_t peak_bytes;      /**< that the allocator reserves at most, until memory is out */
} rpsim_library_memory;

/**
 * Issues all jobs of one GPU.
 * @param limit_bytes what the allocator may take
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_library_memory_of(const rpsim_library_run *run, uint32_t gpu, uint64_t limit_bytes,
                                  rpsim_library_memory *memory_out);

/** @return whether two GPUs have jobs of the same kinds in the same order, and so as much memory.
 */
bool rpsim_library_same(const rpsim_library_run *run, uint32_t gpu, uint32_t other);
