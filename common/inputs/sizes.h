/** @file sizes.h  Bytes of a model's tensors: what moves and what lies in memory. */
#pragma once

#include "common/inputs/model.h"
#include "common/program/dtype.h"

/** Bytes of everything that moves. Layer 0 is the embedding, 1 .. layers the blocks, last the head.
 */
typedef struct rp_sizes {
    uint32_t layers;          /**< transformer blocks */
    rp_dtype dtype;           /**< of weights, gradients and activations */
    uint64_t *weight_bytes;   /**< [layers + 2] working weights of a layer */
    uint64_t *gradient_bytes; /**< [layers + 2] gradients of its trainable parameters */
    uint64_t *parameters;     /**< [layers + 2] trainable parameters, for the host's work */
    /* Of mixtures; 0 of other layers. */
    uint64_t *expert_weight_bytes;   /**< [layers + 2] of weight_bytes, those of the experts */
    uint64_t *expert_gradient_bytes; /**< [layers + 2] of gradient_bytes, likewise */
    uint64_t *dispatch_bytes;        /**< [layers + 2] tokens of a GPU on their way to experts; per
                                          sequence */
    bool *shared_experts;    /**< [layers + 2] some that every token goes through are beside them */
    uint64_t boundary_bytes; /**< activation between two layers, per sequence */
    uint64_t input_bytes;    /**< token ids or labels, per sequence */
    /* Memory only; NULL or 0: not modelled. */
    uint64_t *tape_bytes;      /**< [layers + 2] kept for the backward; per sequence */
    uint64_t *temporary_bytes; /**< [layers + 2] most of a backward beyond its tape; per sequence */
    uint64_t *optimizer_bytes; /**< [layers + 2] on the GPU where weights are resident */
    uint64_t logits_bytes;     /**< of one sequence */
    uint64_t logits_chunk_bytes; /**< most that the loss holds at a time */
    bool unfused_loss;           /**< the loss holds the logits of a whole microbatch */
    bool fp32_gradients;         /**< 16-bit parameters that a GPU steps have them, if only for the
                                      step (rp_lower_put_gradients) */
    bool tied_head;              /**< a GPU with embedding and head holds their table once */
} rp_sizes;

/** Bytes per parameter on the host, weights and gradient slots included (executor.md 1.6). */
#define RP_HOST_PAGEABLE_BYTES 16u /**< fp32 master, master gradient, Adam's m and v */
/** Bytes per resident parameter beside weight and gradient: fp32 master, m and v. */
#define RP_RESIDENT_OPTIMIZER_BYTES 12u
/** Tokens of which the loss holds logits at a time, each as the run's type and as fp32
 * (sim/model.md section 4). */
#define RP_LOSS_CHUNK_TOKENS 4096u

/**
 * Sizes of a model whose weights, gradients and boundary tensors have a type. A tied head has no
 * parameters of its own but its table is moved where the head runs. With LoRA all weights and the
 * adapters move up, but only the adapters have gradients and an optimizer.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_sizes_of_model(const rp_model *model, uint32_t seq_len, rp_dtype dtype,
                            rp_arena *arena, rp_sizes *sizes_out);

/**
 * @return bytes of a model in host memory under offload placement, activations apart (executor.md
 *         1.6): pinned working weights and gradient slots, pageable master weights, master
 *         gradients and Adam states; 20 B per parameter, and a slot more where the head is tied
 * @param slots gradient slots per layer, at least 1: the calls of a step where they overlap
 */
uint64_t rp_sizes_host_bytes(const rp_sizes *sizes, uint32_t slots);
