/* Keys of config.json that alter no shape, and values whose effect is not simulated. */
#include "common/base/log.h"
#include "common/inputs/huggingface/config.h"

#include <string.h>

/* Neither shapes nor values of a training run depend on them, at any value, and why. */
static const struct {
    const char *why;
    const char *keys[40];
} unneeded[] = {
    {"they are of the file",
     {"_attn_implementation_autoset", "_commit_hash", "_name_or_path", "name_or_path",
      "transformers.js_config", "transformers_version", "unsloth_fixed", "unsloth_version"}},
    {"they are for tokenizers and generation",
     {"bad_words_ids",
      "begin_suppress_tokens",
      "bos_token_id",
      "cache_implementation",
      "decoder_start_token_id",
      "diversity_penalty",
      "do_sample",
      "early_stopping",
      "encoder_no_repeat_ngram_size",
      "eos_token_id",
      "exponential_decay_length_penalty",
      "forced_bos_token_id",
      "forced_eos_token_id",
      "length_penalty",
      "max_length",
      "min_length",
      "no_repeat_ngram_size",
      "num_beam_groups",
      "num_beams",
      "num_return_sequences",
      "output_scores",
      "prefix",
      "remove_invalid_values",
      "repetition_penalty",
      "return_dict_in_generate",
      "sep_token_id",
      "suppress_tokens",
      "task_specific_params",
      "temperature",
      "tokenizer_class",
      "top_k",
      "top_p",
      "typical_p",
      "use_cache"}},
    {"they are for heads that classify",
     {"finetuning_task", "id2label", "label2id", "num_labels", "problem_type"}},
    {"they say what is returned beside the loss",
     {"output_attentions", "output_hidden_states", "return_dict"}},
    {"no family reads them",
     {"chunk_size_feed_forward", "is_decoder", "is_llama_config", "max_sequence_length",
      "tf_legacy_loss", "use_bfloat16"}},
    {"--dtype says what is computed in, whatever weights are stored in", {"dtype", "torch_dtype"}},
    {"all weights come from the checkpoint", {"initializer_range"}},
    {"what is computed again has the same values", {"gradient_checkpointing"}},
    {"products are cut into summands: the same up to rounding", {"pretraining_tp"}},
};

/* Values depend on them, shapes do not. */
static const char *const shapeless[] = {
    "_sliding_window_pattern", /* where layer_types say which */
    "attn_logit_softcapping",
    "aux_loss_alpha",
    "ep_size", /* of a family's own code: experts are not spread */
    "experts_per_token",
    "final_logit_softcapping",
    "hidden_act",
    "hidden_activation",
    "initial_context_length",
    "max_window_layers", /* of Qwen3-MoE's files, whose class has none */
    "n_group",
    "no_rope_layer_interval",
    "no_rope_layers",
    "norm_topk_prob",
    "original_max_position_embeddings",
    "output_router_logits",
    "pad_token_id",
    "partial_rotary_factor",
    "query_pre_attn_scalar",
    "rope_interleave",
    "rope_interleaved",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "seq_aux",
    "swiglu_alpha",
    "swiglu_limit",
    "topk_group",
    "topk_method",
};

static bool is_null(const json_t *value)
{
    return json_is_null(value);
}

static bool is_off(const json_t *value)
{
    return !json_is_true(value);
}

static bool is_zero(const json_t *value)
{
    return json_is_null(value) || (json_is_number(value) && json_number_value(value) == 0);
}

/* Of one of the heads that predict tokens. */
static bool is_decoder(const json_t *value)
{
    bool found = rp_hf_is_empty(value);
    for (size_t i = 0; i < json_array_size(value) && !found; i++) {
        const char *class = json_string_value(json_array_get(value, i));
        found = class != NULL && (strstr(class, "ForCausalLM") != NULL ||
                                  strstr(class, "ForConditionalGeneration") != NULL);
    }
    return found;
}

/* Harmless where `holds`; otherwise there is an effect that is not simulated. */
static const struct effect {
    const char *key;
    bool (*holds)(const json_t *value);
    const char *effect;
} effects[] = {
    {"add_cross_attention", is_off, "cross-attention is not simulated"},
    {"architectures", is_decoder, "it is simulated with a head for language modelling"},
    {"attention_dropout", is_zero, "dropout is not simulated"},
    {"auto_map", rp_hf_is_empty,
     "code of its own makes the model, which may differ from the family"},
    {"cross_attention_hidden_size", is_null, "cross-attention is not simulated"},
    {"embd_pdrop", is_zero, "dropout is not simulated"},
    {"is_encoder_decoder", is_off, "only a decoder is simulated"},
    {"num_nextn_predict_layers", is_zero,
     "layers of multi-token prediction are not counted or simulated, as in transformers"},
    {"pruned_heads", rp_hf_is_empty, "all heads are simulated"},
    {"quantization_config", is_null, "weights are simulated in the type that --dtype says"},
    {"resid_pdrop", is_zero, "dropout is not simulated"},
    {"tie_encoder_decoder", is_off, "only a decoder is simulated"},
    {"torchscript", is_off, "it is simulated without TorchScript, which unties the head"},
    {"use_bidirectional_attention", is_off, "attention is simulated as causal"},
    /* Of families that have windows these have been used already. */
    {"sliding_window", is_zero, "the family has no windows: all attention is simulated as full"},
    {"use_sliding_window", is_off, "the family has no windows: all attention is simulated as full"},
};

bool rp_hf_is_unneeded(const char *key)
{
    bool found = false;
    for (size_t i = 0; i < sizeof unneeded / sizeof unneeded[0]; i++) {
        for (const char *const *one = unneeded[i].keys; *one != NULL && !found; one++) {
            found = strcmp(*one, key) == 0;
        }
    }
    return found;
}

static bool is_shapeless(const char *key)
{
    for (size_t i = 0; i < sizeof shapeless / sizeof shapeless[0]; i++) {
        if (strcmp(shapeless[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static const struct effect *find_effect(const char *key)
{
    for (size_t i = 0; i < sizeof effects / sizeof effects[0]; i++) {
        if (strcmp(effects[i].key, key) == 0) {
            return &effects[i];
        }
    }
    return NULL;
}

void rp_hf_warn_of_rest(const rp_hf_config *config)
{
    const char *key;
    json_t *value;
    json_object_foreach(config->rest, key, value)
    {
        const struct effect *effect = find_effect(key);
        if (effect != NULL && !effect->holds(value)) {
            rp_hf_warn(config, key, effect->effect);
        } else if (effect == NULL && !rp_hf_is_unneeded(key) && !is_shapeless(key)) {
            rp_hf_warn_unknown(config, key);
        }
    }
}
