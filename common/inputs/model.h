/** @file model.h  Decoder models: data in traces/models.
 *
 * The loader reads a YAML file by a schema (common/formats/config.h): unknown keys, wrong types,
 * NaN, negative or absurd numbers and sums that do not match are refused with "file:line: cause;
 * valid values are …" and RP_INPUT. `name_or_path` is a registered name (traces/models/NAME.yaml)
 * or, when it contains '/' or ends in ".yaml", a path. An unknown name lists the known ones.
 * Objects live in `arena`.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "common/program/limits.h"

#include <stdbool.h>
#include <stdint.h>

/** A decoder-only transformer as its config.json describes it. */
typedef struct rp_model {
    const char *name;
    const char *source;      /**< where the configuration comes from */
    uint32_t layers;         /**< transformer blocks, without embedding and head */
    uint32_t hidden;         /**< d */
    uint32_t heads;          /**< query heads H */
    uint32_t kv_heads;       /**< K, divides H */
    uint32_t head_dim;       /**< h, an independent field: H * h need not be d */
    uint32_t intermediate;   /**< f, per expert for MoE */
    uint32_t experts;        /**< E, 1 for dense */
    uint32_t active_experts; /**< per token, 1 for dense */
    uint32_t vocab;          /**< V */
    uint32_t max_positions;
    double rope_theta;
    double norm_eps;
    bool tied_head; /**< LM head shares the embedding table */
    bool qk_norm;
    bool attention_bias;      /**< biases on q, k, v, o and one sink logit per query head */
    bool expert_bias;         /**< biases on router and experts (gpt-oss) */
    const char *rope_scaling; /**< "none", "llama3" or "yarn"; "none" with learned positions */
    bool learned_positions;   /**< a table of max_positions rows is added to the embedding, nothing
                                   is rotated */
    bool layer_norm;          /**< LayerNorm with weight and bias; otherwise RMSNorm */
    bool plain_mlp;           /**< up, GELU, down; otherwise gated: gate, up, SwiGLU, down */
    bool linear_bias;         /**< biases on all linear layers of the blocks */
    /* Of the software that trains the family, whatever the system; 0: not known. */
    bool fused_loss; /**< its cross-entropy is one kernel each way */
    uint32_t
        loss_metrics; /**< cross-entropies of each microbatch's logits besides, to report them */
    double host_launch_us;   /**< that the host takes to launch a kernel. Known: tables that nobody
                                has   measured are computed kernel by kernel (roofline/kernels.c) */
    double step_host_ms;     /**< that the host takes in each step while GPUs that step themselves
                                  wait */
    uint32_t lora_rank;      /**< of adapters on all linear layers of the blocks; 0: none, all
                                  parameters are trained */
    uint32_t sliding_window; /**< tokens that even layers (0, 2, …) attend to; 0: all layers full */
    double lora_alpha;       /**< adapters are scaled by lora_alpha / lora_rank; 0: not scaled */
    bool raw_routing; /**< experts' weights are the softmax's own: config.json's norm_topk_prob is
                           false. Otherwise the chosen ones are divided by their sum */
    /* computed by rp_model_load, formulas of executor.md section 4.2 */
    uint64_t attention_parameters; /**< one layer: d(H+2K)h + Hhd, plus biases and sinks */
    uint64_t mlp_parameters;       /**< one layer: 3df, 2df if plain, or E * 3df + Ed (+ biases) */
    uint64_t norm_parameters;      /**< one layer: 2d (+ 2h with QK-norm); LayerNorm: 4d */
    uint64_t layer_parameters;     /**< the sum of the three */
    uint64_t embedding_parameters; /**< V * d, the table once */
    uint64_t total_parameters;     /**< layers, embedding, positions that are learned, head unless
                                        tied, final norm */
    uint64_t active_parameters;    /**< total with only the active experts counted */
    uint64_t adapter_parameters;   /**< one layer: lora_rank * (in + out) of q, k, v, o and of gate,
                                        up and down of every expert; counted in none of the above */
} rp_model;

/** @return trained parameters of one layer: its adapters where there are any, else all. */
static inline uint64_t rp_model_trainable_layer(const rp_model *model)
{
    return model->lora_rank != 0 ? model->adapter_parameters : model->layer_parameters;
}

/** @return parameters that one layer holds: weights and adapters. */
static inline uint64_t rp_model_held_layer(const rp_model *model)
{
    return model->layer_parameters + model->adapter_parameters;
}

/** @return matrices of an MLP or of one expert: gate, up and down. */
static inline uint32_t rp_model_mlp_matrices(const rp_model *model)
{
    return model->plain_mlp ? 2 : 3;
}

/** @return parameters of the final norm. */
static inline uint64_t rp_model_final_norm(const rp_model *model)
{
    return (model->layer_norm ? 2 : 1) * (uint64_t)model->hidden;
}

/** @return parameters of the learned positions of sequences of `seq_len` tokens; 0: none are. */
static inline uint64_t rp_model_positions(const rp_model *model, uint64_t seq_len)
{
    return model->learned_positions ? seq_len * model->hidden : 0;
}

/** A model with learned positions is built for the sequences that it is trained on: as many rows
 * as these have tokens. Others are not changed. */
void rp_model_set_seq_len(rp_model *model, uint32_t seq_len);

/** Sets the numbers of parameters from the shapes. */
void rp_model_count(rp_model *model);

/** Gives a model adapters of rank `rank` instead of those it has; 0: none. */
void rp_model_set_lora_rank(rp_model *model, uint32_t rank);

/**
 * Loads a model and checks its parameter counts against the published ones in the file.
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rp_model_load(const char *name_or_path, rp_arena *arena, rp_model *model_out);

/**
 * As rp_model_load, from bytes in memory (fuzzing, tests).
 * @param name origin of the bytes, for messages
 * @retval RP_OK, RP_INPUT, RP_NO_MEMORY
 */
rp_status rp_model_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_model *model_out);
