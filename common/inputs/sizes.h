/** @file sizes.h  Bytes of a model's tensors: in transfers and in memory. */
#pragma once

#include "common/inputs/model.h"
#include "common/program/dtype.h"

/** Memory traffic of an optimizer step per parameter in bytes, by the types of states and masters
 * (sim/model.md section 2, term 4). */
typedef struct rp_step_bytes {
    double update;  /**< Adam on a GPU, in a single pass: reads the 16-bit gradient (2), reads and
                       writes masters and moments (24), writes the 16-bit weight (2) */
    double adam;    /**< Adam on the host: the master's gradient is read and cleared (8) */
    double refresh; /**< makes working weights of masters, on the host */
    double collect; /**< adds gradients to the master's gradients, on the host */
} rp_step_bytes;

/** @return the memory traffic of a step. @param states bytes of both moments of a parameter */
rp_step_bytes rp_step_bytes_of(const rp_types *types, double states);

/** Bytes of all tensors that move. Layer 0 is the embedding, layers 1 .. layers the blocks, the
 * last layer the head.
 */
typedef struct rp_sizes {
    uint32_t layers;          /**< transformer blocks */
    rp_dtype dtype;           /**< type of weights, gradients and activations */
    rp_types types;           /**< of states, masters and frozen weights */
    uint64_t *weight_bytes;   /**< [layers + 2] working weights of a layer */
    uint64_t *scale_bytes;    /**< [layers + 2] of weight_bytes the scales of quantised weights,
                                 which are no parameters: whole on each GPU of sharded systems;
                                 NULL: none */
    uint64_t *gradient_bytes; /**< [layers + 2] gradients of its trainable parameters */
    uint64_t *parameters;     /**< [layers + 2] trainable parameters, for the host's work */
    /* Parts of mixtures; 0 for other layers. */
    uint64_t *expert_weight_bytes;    /**< [layers + 2] the experts' part of weight_bytes */
    uint64_t *expert_gradient_bytes;  /**< [layers + 2] the experts' part of gradient_bytes */
    uint64_t *expert_optimizer_bytes; /**< [layers + 2] the experts' part of optimizer_bytes */
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
    uint64_t *state_bytes;       /**< [layers + 2] both moments of `parameters`; NULL: fp32 */
    uint64_t dequantised_bytes;  /**< a quantised matrix in the type that products take it, and its
                                    scales in fp32: the largest; 0: none is quantised */
    rp_step_bytes step;          /**< zeroed: that of fp32 states and masters */
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
 * As rp_sizes_of_model, with states, masters and frozen weights of other types. Quantised are the
 * linear layers of blocks whose weights are frozen; of mixtures in mxfp4 only the experts, as in
 * gpt-oss' checkpoints. With 8-bit states the embedding's stay fp32, as transformers' Trainer
 * keeps them.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_sizes_of_types(const rp_model *model, uint32_t seq_len, rp_dtype dtype,
                            const rp_types *types, rp_arena *arena, rp_sizes *sizes_out);

/**
 * @return bytes of a model in host memory under offload placement, activations apart (executor.md
 *         1.6): pinned working weights and gradient slots, pageable master weights, master
 *         gradients and Adam states; with fp32 masters and states 20 B per parameter, and a slot
 *         more if the head is tied
 * @param slots gradient slots per layer, at least 1: the number of calls of a step, if they overlap
 */
uint64_t rp_sizes_host_bytes(const rp_sizes *sizes, uint32_t slots);
