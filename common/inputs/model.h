/** @file model.h  Decoder models: data in traces/models.
 *
 * A model is read from a YAML file by a schema (common/formats/config.h): unknown keys, wrong
 * types, NaN, negative or absurd numbers and sums that do not match are refused with "file:line:
 * cause; valid values are …" and RP_INPUT. `name_or_path` is a registered name
 * (traces/models/NAME.yaml) or, when it contains '/' or ends in ".yaml", a path. An unknown name
 * lists the known ones. Models of Hugging Face, and GPTs by their size: load/models.h. Objects live
 * in `arena`.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/reason.h"
#include "common/base/status.h"
#include "common/formats/config.h"
#include "common/program/limits.h"
#include "common/program/traits.h"

#include <stdbool.h>
#include <stdint.h>

/** Most kinds of layers that a model has. */
#define RP_MODEL_KINDS 8u

/** Most linear layers of an attention block. */
#define RP_MODEL_ATTENTION_LINEARS 5u

/** A linear layer y = x W^T + b. */
typedef struct rp_model_linear {
    const char *name;
    uint64_t in;
    uint64_t out;
    bool bias;
} rp_model_linear;

/** Numbers of rope_scaling "llama3" (transformers' _compute_llama3_parameters): frequencies with a
 * wavelength above original / low are divided by the factor, those below original / high stay, and
 * those between are mixed from both. */
typedef struct rp_rope_scale {
    double factor;
    double low;
    double high;     /**< above low */
    double original; /**< positions that the model was made for at first */
} rp_rope_scale;

/** The numbers of Llama 3.1, which files of traces/models mean. */
#define RP_ROPE_LLAMA_3_1 ((rp_rope_scale){.factor = 8, .low = 1, .high = 4, .original = 8192})

/** Numbers of rope_scaling "yarn" (transformers' _compute_yarn_parameters): a frequency that turns
 * less than `slow` times in the original length is divided by the factor, a frequency that turns
 * more than `fast` times stays, and those between are mixed from both. */
typedef struct rp_rope_yarn {
    double factor;
    double fast;
    double slow;
    double original;
    double attention; /**< factor of cosines and sines */
    bool truncate;    /**< the dimensions that belong to `fast` and `slow` are rounded */
} rp_rope_yarn;

/** The numbers of gpt-oss, which files of traces/models mean: 1 + 0.1 ln 32 for attention. */
#define RP_ROPE_GPT_OSS                                                                            \
    ((rp_rope_yarn){                                                                               \
        .factor = 32, .fast = 32, .slow = 1, .original = 4096, .attention = 1.3465735902799727})

/** Numbers of rope_scaling "longrope" (transformers' _compute_longrope_parameters): each frequency
 * is divided by its own factor. Sequences of up to `original` tokens use short_factors, longer
 * sequences long_factors. */
typedef struct rp_rope_long {
    const double *short_factors; /**< [half the values that are rotated] */
    const double *long_factors;  /**< [half the values that are rotated] */
    double original;
    double attention; /**< factor of cosines and sines */
} rp_rope_long;

/** Experts' gates: gate sigmoid(alpha gate) up. With a limit, as in gpt-oss, gate is at most the
 * limit, up is kept between -limit and limit, and 1 is added to up. Limit 0: no limit. */
typedef struct rp_gate {
    double alpha;
    double limit;
} rp_gate;

#define RP_GATE_SWIGLU ((rp_gate){.alpha = 1})
#define RP_GATE_GPT_OSS ((rp_gate){.alpha = 1.702, .limit = 7})

/** A decoder-only transformer as its config.json describes it. If its layers differ, the shapes and
 * the parameters of a layer in this struct are those of the kind that most layers have; `kinds` has
 * all kinds, and rp_model_of_layer finds a layer's own. The first members are the keys of its file,
 * whose rows explain them. */
typedef struct rp_model {
#define KEY(member, type, ...) RP_CONFIG_MEMBER_##type member;
#define FILE_KEY(...)
#include "common/inputs/model_rows.inc"
#undef FILE_KEY
#undef KEY
    const char *recorded; /**< name of the model whose cost tables count as this model's own; NULL:
                             it has no cost tables */
    const char *family;   /**< model_type of its config.json; NULL: it has none */
    rp_rope_scale rope; /**< numbers of rope_scaling "llama3", and the factor of "linear"; only for
                           models that rpexec computes */
    rp_rope_yarn yarn;  /**< numbers of rope_scaling "yarn"; only for models that rpexec computes */
    rp_rope_long longrope;  /**< numbers of rope_scaling "longrope", from config.json only; for
                               models that rpexec computes */
    rp_gate gate;           /**< of experts with expert_bias; other models do not read it */
    bool learned_positions; /**< a table of max_positions rows is added to the embedding, nothing
                                 is rotated; rope_scaling is "none" */
    bool layer_norm;        /**< LayerNorm with weight and bias; otherwise RMSNorm */
    bool plain_mlp;         /**< up, GELU, down; otherwise gated: gate, up, SwiGLU, down */
    bool bf16;              /**< its config.json says that its weights are bfloat16 */
    uint32_t lora_linears;  /**< linear layers with adapters, as bits in the order of
                               RP_LORA_LINEARS; 0: all */
    /** of the run's sequences, which models of files do not have (load/documents.h); NULL: a
     * sequence is a document */
    const struct rp_documents *documents;
    double lora_alpha;      /**< adapters are scaled by lora_alpha / lora_rank; 0: not scaled */
    bool has_padding;       /**< the embedding's row of padding_token is not trained */
    uint32_t padding_token; /**< config.json's pad_token_id */
    bool padding_begins;    /**< it is bos_token_id as well */
    bool padding_ends;      /**< it is eos_token_id as well, or among several such tokens */
    bool raw_routing; /**< experts' weights are the softmax's own, as config.json's norm_topk_prob
                         is false. Otherwise the chosen experts' weights are divided by their sum */
    /* Read from config.json only (huggingface/config.h): */
    bool qkv_bias;      /**< biases on q, k and v; with kv_rank on those to kv_rank and q_rank */
    bool output_bias;   /**< on o */
    bool mlp_bias;      /**< on gate, up and down of a dense MLP and of shared experts */
    bool wide_qk_norm;  /**< qk_norm, over all heads together (OLMo 2) */
    bool joined;        /**< checkpoints join q, k and v in one matrix, gate and up in another, and
                           adapters on a joined matrix share one A (Phi-3) */
    bool shifted_norms; /**< norms multiply by 1 + w (Gemma, as the next two) */
    bool gelu_gate;     /**< gates are GELU's, by tanh, in SiLU's place */
    bool scaled_embedding; /**< rows of the embedding are multiplied by sqrt(d) */
    /* Values that rpexec computes with; rpsim does not depend on them. */
    uint32_t rotated;   /**< number of values of a head that are rotated, from the first; 0: all */
    double local_theta; /**< rope_theta of layers with a window, without scaling; 0: they use
                           rope_theta */
    double attention_scale; /**< factor of scores; 0: 1 / sqrt(h) */
    double attention_cap;   /**< c: scores s are c tanh(s / c); 0: none */
    double logit_cap;       /**< c of the head's logits; 0: none */
    bool four_norms; /**< four norms in a layer: before and after attention, before and after the
                        MLP (Gemma 2 and 3); otherwise two */
    bool one_norm; /**< a single norm in a layer, whose output is the input of attention and of the
                      MLP (Cohere) */
    bool router_bias; /**< the router has a trained bias, the experts have none (ERNIE 4.5) */
    uint32_t kv_rank; /**< length of the normed vector that keys and values are made of (DeepSeek's
                         MLA). kv_heads is heads then, and head_dim the length of queries and keys,
                         of which rope_dim values are rotated, in keys by a part that all heads
                         share. 0: keys and values are made of the hidden vector */
    uint32_t q_rank; /**< with kv_rank, length of the vector that queries are made of; 0: the hidden
                        vector */
    uint32_t rope_dim;
    uint32_t value_dim; /**< with kv_rank, length of a head's values, otherwise head_dim */
    uint32_t shared_intermediate; /**< width of the experts of every token, together */
    bool shared_gate;             /**< the shared experts' output is weighted by a sigmoid */
    uint32_t expert_ranks;   /**< GPUs that share experts (rp_model_cut); 0 or 1: each has all */
    uint32_t routed_ranks;   /**< GPUs of a tensor group that have experts whole, each for a part of
                                  the tokens (rp_model_cut); 0 or 1: they share each expert */
    uint32_t sequence_ranks; /**< GPUs that share the tokens outside of matrices and attention
                                  (rp_model_cut); 0 or 1: each has all */
    uint32_t kind_count;
    struct rp_model
        *kinds; /**< [kind_count] this model as if all layers were of the kind, with the kind's
                   sliding_window; NULL: all layers are alike but for sliding_window */
    const uint8_t *kind_of; /**< [layers] */
    rp_frozen frozen;  /**< type in which matrices that adapters leave frozen are stored; of the
                          model, not of a kind, as fp8_products */
    bool fp8_products; /**< linear layers of blocks multiply in fp8 */
    /* computed by rp_model_load with the formulas of executor.md section 4.2 */
    uint64_t attention_parameters; /**< of a layer: d(H+2K)h + Hhd, plus biases and sinks */
    uint64_t mlp_parameters;   /**< of a layer: 3df, 2df if plain, or E * 3df + Ed (+ biases), and
                                  shared experts */
    uint64_t norm_parameters;  /**< of a layer: 2d (+ 2h with QK-norm), more or fewer by its number
                                  of norms; LayerNorm: twice that */
    uint64_t layer_parameters; /**< of a layer: the sum of the three above */
    uint64_t embedding_parameters; /**< V * d, the table counted once */
    uint64_t total_parameters;   /**< layers, embedding, positions, final norm, head unless tied */
    uint64_t active_parameters;  /**< total with only the active experts counted */
    uint64_t adapter_parameters; /**< of a layer: the sum of lora_rank * (in + out) over the linear
                                    layers with adapters, among q, k, v, o and gate, up and down of
                                    every expert; in none of the counts above */
} rp_model;

/** The keys of a model file. */
extern const rp_config_schema rp_model_schema;

/** Linear layers that adapters may leave out, by the names that rp_model_attention_linears and
 * operators have for them. */
#define RP_LORA_LINEARS "q", "k", "v", "o", "gate", "up", "down"
#define RP_LORA_LINEAR_COUNT 7u

/** @return whether a model's adapters are on the linear layers of that name. */
bool rp_model_adapts(const rp_model *model, const char *linear);

/** @return the number of linear layers with adapters among gate, up and down. */
uint32_t rp_model_adapted_mlp(const rp_model *model);

/** @return the model in which all layers are like this layer, 0 .. layers - 1. */
static inline const rp_model *rp_model_of_layer(const rp_model *model, uint32_t layer)
{
    return model->kinds == NULL ? model : &model->kinds[model->kind_of[layer]];
}

/** @return the window of a layer's attention in tokens; 0: it attends to all tokens. */
static inline uint32_t rp_model_window(const rp_model *model, uint32_t layer)
{
    uint32_t even = layer % 2 == 0 ? model->sliding_window : 0;
    return model->kinds == NULL ? even : rp_model_of_layer(model, layer)->sliding_window;
}

/** @return the length of a head's value. */
static inline uint32_t rp_model_value_dim(const rp_model *model)
{
    return model->kv_rank != 0 ? model->value_dim : model->head_dim;
}

/** @return trained parameters of a layer: its adapters if it has any, otherwise all. */
static inline uint64_t rp_model_trainable_layer(const rp_model *model)
{
    return model->lora_rank != 0 ? model->adapter_parameters : model->layer_parameters;
}

/** @return parameters that a layer holds: weights and adapters. */
static inline uint64_t rp_model_held_layer(const rp_model *model)
{
    return model->layer_parameters + model->adapter_parameters;
}

/** @return number of matrices of an MLP or of an expert: gate, up and down, or up and down. */
static inline uint32_t rp_model_mlp_matrices(const rp_model *model)
{
    return model->plain_mlp ? 2 : 3;
}

/** @return number of a layer's norms, without those of heads and latent vectors: 1, 2 or 4. */
static inline uint32_t rp_model_layer_norms(const rp_model *model)
{
    return model->one_norm ? 1 : model->four_norms ? 4 : 2;
}

/** @return parameters of the final norm. */
static inline uint64_t rp_model_final_norm(const rp_model *model)
{
    return (model->layer_norm ? 2 : 1) * (uint64_t)model->hidden;
}

/** @return parameters of the learned positions of sequences of `seq_len` tokens; 0: the positions
 * are not learned. */
static inline uint64_t rp_model_positions(const rp_model *model, uint64_t seq_len)
{
    return model->learned_positions ? seq_len * model->hidden : 0;
}

/**
 * The linear layers of a layer's attention, in the order of their use.
 * @param linears_out [RP_MODEL_ATTENTION_LINEARS]
 * @return their number
 */
uint32_t rp_model_attention_linears(const rp_model *model, rp_model_linear *linears_out);

/** Tensors of equal size. */
typedef struct rp_model_tensor {
    uint64_t elements; /**< elements of each tensor */
    uint32_t count;
    bool adapter;
} rp_model_tensor;

/** Most entries that rp_model_layer_tensors lists. */
#define RP_MODEL_TENSORS 24u

/**
 * The parameters of a layer as PyTorch has them: a tensor per matrix, also for adapters and
 * experts, except that the experts of gpt-oss share two. Norms, biases and sinks, which are small,
 * count as a single tensor. All tensors together have rp_model_held_layer elements.
 * @param layer as rp_model_of_layer gives it
 * @param tensors_out [RP_MODEL_TENSORS]
 * @return their number
 */
uint32_t rp_model_layer_tensors(const rp_model *layer, rp_model_tensor *tensors_out);

/** @return an estimate of all parameters that cannot overflow, to check a file's sizes. */
double rp_model_estimate(const rp_model *model);

/** More parameters than this are a mistake in the file; all counts fit into 64 bits then. */
#define RP_MODEL_MAX_PARAMETERS 1e15

/** Gives a model with learned positions as many rows of positions as the trained sequences have
 * tokens. Other models stay as they are. */
void rp_model_set_seq_len(rp_model *model, uint32_t seq_len);

/** Sets the numbers of parameters from the shapes, for all kinds of layers. */
void rp_model_count(rp_model *model);

/** Embedding tables of tensor groups have a multiple of this many rows on each GPU
 * (Megatron-LM's --make-vocab-size-divisible-by). */
#define RP_VOCAB_MULTIPLE 128u

/**
 * The part of a model that a GPU of a tensor group has: heads, the MLP's width and the padded
 * vocabulary are divided; norms, router and latent vectors are whole. If there are fewer key-value
 * heads than GPUs, each GPU has a single key-value head. Copies that share experts have equally
 * many experts each.
 * @param layout a layout of a single GPU leaves the model whole
 * @param rank_out lives in `arena`
 * @retval RP_OK, RP_USAGE (widths that cannot be divided; given as the reason), RP_NO_MEMORY
 */
rp_status rp_model_cut(const rp_model *model, const rp_layout *layout, rp_arena *arena,
                       rp_model *rank_out, rp_reason *reason);

/** @return number of a layer's experts that a GPU has. */
static inline uint32_t rp_model_held_experts(const rp_model *model)
{
    return model->expert_ranks > 1 ? model->experts / model->expert_ranks : model->experts;
}

/** @return whether each GPU of a tensor group sends its own part of the tokens to experts. */
static inline bool rp_model_dispatches_parts(const rp_model *model)
{
    return model->expert_ranks > 1 && model->sequence_ranks > 1;
}

/** @return parameters of a layer's experts that a GPU has, adapters included; 0: the model is
 * dense. */
uint64_t rp_model_expert_held(const rp_model *model);

/** @return the trained parameters among rp_model_expert_held. */
uint64_t rp_model_expert_trained(const rp_model *model);

/** @return a GPU's part of `whole`, a quantity that GPUs divide if they share tokens. */
static inline uint64_t rp_model_of_sequence(const rp_model *model, uint64_t whole)
{
    return model->sequence_ranks > 1 ? whole / model->sequence_ranks : whole;
}

/** Gives a model adapters of rank `rank` on all linear layers, in place of its own adapters; 0: no
 * adapters.
 */
void rp_model_set_lora_rank(rp_model *model, uint32_t rank);

/** As rp_model_set_lora_rank, on some linear layers. @param linears as rp_model.lora_linears */
void rp_model_set_lora(rp_model *model, uint32_t rank, uint32_t linears);

/**
 * Reads a model of traces/models and checks its parameter counts against the published counts in
 * the file.
 * @retval RP_OK, RP_INPUT, RP_IO, RP_NO_MEMORY
 */
rp_status rp_model_read(const char *name_or_path, rp_arena *arena, rp_model *model_out);

/**
 * As rp_model_read, from bytes in memory (fuzzing, tests).
 * @param name origin of the bytes, for messages
 * @retval RP_OK, RP_INPUT, RP_NO_MEMORY
 */
rp_status rp_model_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_model *model_out);
