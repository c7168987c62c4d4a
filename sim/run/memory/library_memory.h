/** @file library_memory.h  GPU memory that RoundPipe's library takes: the tensors of a GPU's jobs,
 * allocated in the order of issue by PyTorch's caching allocator.
 *
 * The allocator serves requests when they are issued, not when the GPU reaches them, and memory
 * that a stream frees serves later requests of the same stream. So the order of issue decides which
 * tensors live together, and simulated times play no part. A job (executor.md 1) holds its weights
 * until the next job's weights are up; each microbatch's uploads until the next microbatch's first
 * upload; a layer's tensors as recorded (layer_tensors.h), including the forward's tape; everything
 * that goes down to the host (outputs, input gradients, and with layer grain the inputs of all
 * inner layers) until the end of the next microbatch; and gradients of weights until the end of the
 * next job's first microbatch. The head's loss is computed in chunks (RP_LOSS_CHUNK_TOKENS).
 */
#pragma once

#include "common/inputs/partition.h"
#include "sim/run/memory/caching_allocator.h"
#include "sim/run/memory/layer_tensors.h"

typedef struct rpsim_library_run {
    const rp_model *model;
    const rpsim_layer_tensors *tensors; /**< recorded layer, at a microbatch's tokens */
    uint64_t tokens;                    /**< tokens of a microbatch, all sequences */
    uint32_t microbatches;              /**< microbatches of a call */
    bool layer_grain;
    uint32_t gpus;
    /** [plan_count] Plans in sequence, each with `calls` forward-backward calls; job k of the whole
     * run is on GPU k modulo gpus. A stage of 0 layers holds only the embedding or only the
     * head. */
    const rp_partition *plans;
    const uint32_t *calls;
    uint32_t plan_count;
} rpsim_library_run;

typedef struct rpsim_library_memory {
    bool fits;
    uint64_t peak_live_bytes; /**< bytes of tensors over the whole run, even if it does not fit */
    uint64_t peak_bytes;      /**< most bytes that the allocator reserves, until memory is out */
} rpsim_library_memory;

/**
 * Issues all jobs of a GPU and measures their memory.
 * @param limit_bytes most bytes that the allocator may take
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_library_memory_of(const rpsim_library_run *run, uint32_t gpu, uint64_t limit_bytes,
                                  rpsim_library_memory *memory_out);

/** @return whether two GPUs have jobs of the same kinds in the same order, and so need the same
 * memory. */
bool rpsim_library_same(const rpsim_library_run *run, uint32_t gpu, uint32_t other);
