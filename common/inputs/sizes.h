/** @file sizes.h  Bytes of a model's tensors: in transfers and in memory. */
#pragma once

#include "common/inputs/model.h"
#include "common/program/dtype.h"

/** Bytes of all tensors that move. Layer 0 is the embedding, layers 1 .. layers the blocks, the
 * last layer the head.
 */
typedef struct rp_sizes {
    uint32_t layers;          /**< transformer blocks */
    rp_dtype dtype;           /**< type of weights, gradients and activations */
    uint64_t *weight_bytes;   /**< [layers + 2] working weights of a layer */
    uint64_t *gradient_bytes; /**< [layers + 2] gradients of its trainable parameters */
    uint64_t *parameters;     /**< [layers + 2] trainable parameters, for the host's work */
    /* Parts of mixtures; 0 for other layers. */
    uint64_t *expert_weight_bytes;   /**< [layers + 2] the experts' part of weight_bytes */
    uint64_t *expert_gradient_bytes; /**< [layers + 2] the experts' part of gradient_bytes */
    uint64_t *dispatch_bytes; /**< [layers + 2] tokens that a GPU sends to experts; per sequence */
    bool *shared_experts; /**< [layers + 2] whether the layer also has experts that every token goes
                             through */
    uint64_t boundary_bytes; /**< activation between two layers, per sequence */
    uint64_t input_bytes;    /**< token ids or labels, per sequence */
    /* For memory only; NULL or 0: not modelled. */
    uint64_t *tape_bytes;        /**< [layers + 2] kept for the backward; per sequence */
    uint64_t *rebuilt_bytes;     /**< [layers + 2] part of tape_bytes that a layer's backward makes
                                    again (selective recompute); NULL: none; per sequence */
    uint64_t *temporary_bytes;   /**< [layers + 2] most that a backward holds beyond its tape; per
                                    sequence */
    uint64_t *optimizer_bytes;   /**< [layers + 2] on the GPU, if weights are resident */
    uint64_t logits_bytes;       /**< logits of a sequence */
    uint64_t logits_chunk_bytes; /**< most bytes of logits that the loss holds at a time */
    bool unfused_loss;           /**< the loss holds the logits of a whole microbatch */
    bool fp32_gradients; /**< a GPU steps 16-bit parameters with fp32 gradients, if only during the
                            step (rp_lower_put_gradients) */
    uint64_t tape_input_bytes; /**< the layer's input, if tape_bytes contain it; per sequence */
    uint64_t embedded_bytes;   /**< output of the embedding, if a recomputed first layer keeps it;
                                  per sequence */
    uint64_t bucket_bytes;     /**< copies of a pipeline: buckets of reductions, per gradient */
    uint64_t step_bytes;       /**< a step on the GPU beside its states, per parameter */
    bool tied_head;            /**< a GPU with embedding and head holds their table once */
} rp_sizes;

/** Bytes per parameter on the host, weights and gradient slots included (executor.md 1.6). */
#define RP_HOST_PAGEABLE_BYTES 16u /**< fp32 master, master gradient, Adam's m and v */
/** Bytes per resident parameter beside weight and gradient: fp32 master, m and v. */
#define RP_RESIDENT_OPTIMIZER_BYTES 12u
/** Tokens whose logits the loss holds at a time, each as the run's type and as fp32 (sim/model.md
 * section 4). */
#define RP_LOSS_CHUNK_TOKENS 4096u

/**
 * Sizes of a model with weights, gradients and boundary tensors of type `dtype`. A tied head has no
 * parameters of its own, but its table moves to the GPU that runs the head. With LoRA all weights
 * and the adapters move up, but only the adapters have gradients and an optimizer.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_sizes_of_model(const rp_model *model, uint32_t seq_len, rp_dtype dtype,
                            rp_arena *arena, rp_sizes *sizes_out);

/**
 * @return bytes of a model in host memory under offload placement, activations apart (executor.md
 *         1.6): pinned working weights and gradient slots, pageable master weights, master
 *         gradients and Adam states; 20 B per parameter, and a slot more if the head is tied
 * @param slots gradient slots per layer, at least 1: the number of calls of a step, if they overlap
 */
uint64_t rp_sizes_host_bytes(const rp_sizes *sizes, uint32_t slots);
