/* Keys of config.json that nothing has read: some serve other purposes, some have an effect that is
 * not simulated, and some would make another model. */
#include "common/inputs/huggingface/config.h"

#include <stdio.h>
#include <string.h>

/* Keys on which neither shapes nor values of a training run depend, at any value, and the
 * reasons. */
static const struct {
    const char *why;
    const char *keys[48];
} unneeded[] = {
    {"they are of the file",
     {"_attn_implementation", "_attn_implementation_autoset", "_commit_hash",
      "_experts_implementation", "_flash_attn_2_enabled", "_name_or_path", "attn_implementation",
      "experts_implementation", "name_or_path", "transformers.js_config", "transformers_version",
      "unsloth_fixed", "unsloth_version"}},
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
      "eod_token_id",
      "eos_token_id",
      "exponential_decay_length_penalty",
      "forced_bos_token_id",
      "forced_eos_token_id",
      "length_penalty",
      "max_length",
      "min_length",
      "model_max_length",
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
      "tokenizer_model_max_length",
      "tokenizer_padding_side",
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
    {"the run says what is computed in, whatever weights are stored in", {"dtype", "torch_dtype"}},
    {"all weights come from the checkpoint", {"embedding_initializer_range", "initializer_range"}},
    {"what is computed again has the same values", {"gradient_checkpointing"}},
    {"products are cut into summands: the same up to rounding", {"pretraining_tp"}},
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

/* Words that occur in names of keys of shapes, between underscores and without a plural's s. */
static const char *const shape_words[] = {
    "expert",   "moe",    "lora",      "rank",    "size",      "dim",     "head",      "layer",
    "num",      "n",      "width",     "hidden",  "ffn",       "mlp",     "mamba",     "ssm",
    "conv",     "kernel", "expand",    "linear",  "state",     "window",  "chunk",     "latent",
    "kv",       "q",      "qk",        "attn",    "attention", "norm",    "bias",      "block",
    "pattern",  "hybrid", "recurrent", "lru",     "rnn",       "index",   "indexer",   "topk",
    "compress", "sparse", "shared",    "group",   "stride",    "depth",   "dense",     "freq",
    "interval", "sink",   "gate",      "tie",     "tied",      "vocab",   "embedding", "channel",
    "rwkv",     "gla",    "delta",     "loop",    "repeat",    "router",  "cross",     "adapter",
    "d",        "mult",   "decoder",   "encoder", "prompt",    "segment", "task",      "rel",
    "engram",   "memory"};

static bool is_shape_word(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof shape_words / sizeof shape_words[0]; i++) {
        size_t own = strlen(shape_words[i]);
        bool plural = length == own + 1 && word[own] == 's';
        if ((length == own || plural) && strncmp(word, shape_words[i], own) == 0) {
            return true;
        }
    }
    return false;
}

static bool sounds_like_shape(const char *key)
{
    bool found = false;
    for (const char *word = key; *word != '\0' && !found;) {
        size_t length = strcspn(word, "_.-0123456789");
        found = length > 0 && is_shape_word(word, length);
        word += length + (word[length] != '\0' ? 1 : 0);
    }
    return found;
}

bool rp_hf_alters_shapes(const rp_hf_config *config, const char *key, const json_t *value)
{
    bool shape = false;
    const char *effect = NULL;
    if (rp_hf_is_known(key, &shape, &effect)) {
        return shape && !rp_hf_is_usual(config, key, value);
    }
    bool off = rp_hf_is_empty(value) || json_is_false(value) ||
               (json_is_number(value) && json_number_value(value) == 0);
    return !rp_hf_is_unneeded(key) && sounds_like_shape(key) && !off;
}

/* Refuses a key of shapes that the assumed family does not read. */
static rp_status refuse_shape(const rp_hf_config *config, const char *key)
{
    char cause[192];
    bool shape = false;
    const char *effect = NULL;
    bool known = rp_hf_is_known(key, &shape, &effect);
    (void)snprintf(cause, sizeof cause, "%s does not read it, and it %s shapes",
                   config->family->type, known ? "alters" : "sounds as if it alters");
    return rp_hf_refuse(
        config, key, cause,
        rp_log_spell("{assume} with a family that reads the key, a file of traces/models, or no "
                     "such key where it alters nothing")
            .text);
}

rp_status rp_hf_check_rest(const rp_hf_config *config)
{
    rp_status status = RP_OK;
    const char *key;
    json_t *value;
    json_object_foreach(config->rest, key, value)
    {
        bool shape = false;
        const char *effect = NULL;
        bool known = rp_hf_is_known(key, &shape, &effect);
        bool usual = rp_hf_is_usual(config, key, value);
        if (config->assumed && rp_hf_alters_shapes(config, key, value)) {
            status = refuse_shape(config, key);
        } else if (rp_hf_not_finite(value) != NULL) {
            rp_hf_warn_not_finite(config, key);
        } else if (effect != NULL && !usual) {
            rp_hf_warn(config, key, rp_log_spell(effect).text);
        } else if (known ? shape && !usual : !rp_hf_is_unneeded(key)) {
            rp_hf_warn_unknown(config, key);
        }
    }
    return status;
}

/* Functions that cost as much as SiLU, or as GELU in MLPs without a gate. */
static bool is_function(const char *text)
{
    static const char *const known[] = {"silu",     "swish",      "gelu",  "gelu_pytorch_tanh",
                                        "gelu_new", "quick_gelu", "relu2", NULL};
    bool found = false;
    for (size_t i = 0; known[i] != NULL && !found; i++) {
        found = strcmp(text, known[i]) == 0;
    }
    return found;
}

/* @return whether a function fits the family's MLPs. SiLU is always a gate's function and ReLU
 * never. Other functions may belong to either kind of MLP: they fit if they are the family's own,
 * or if the family is not assumed. */
static bool fits_mlp(const rp_hf_config *config, const char *text)
{
    bool bare = strncmp(text, "relu", 4) == 0;
    bool gate = strcmp(text, "silu") == 0 || strcmp(text, "swish") == 0;
    const char *own = json_string_value(json_object_get(config->defaults, "hidden_act"));
    bool is_own = own != NULL && strcmp(text, own) == 0;
    if (!config->family->plain_mlp) {
        bool gelu = strcmp(text, "gelu") == 0 || strcmp(text, "gelu_pytorch_tanh") == 0;
        return !bare && (!config->assumed || gate || gelu || is_own);
    }
    return bare || (!gate && (!config->assumed || is_own));
}

rp_status rp_hf_check_activation(const rp_hf_config *config)
{
    static const char *const names[] = {"hidden_act", "hidden_activation"};
    bool plain = config->family->plain_mlp;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = json_string_value(rp_hf_get(config, names[i]));
        bool fits = text == NULL || fits_mlp(config, text);
        if (!fits && config->assumed) {
            return rp_hf_refuse(config, names[i],
                                plain ? "MLPs with that function may have gates, the family's none"
                                      : "MLPs with that function have no gates, the family's do",
                                rp_log_spell("{assume} with a family of such MLPs, and a file of "
                                             "traces/models")
                                    .text);
        }
        if (!fits || (text != NULL && !is_function(text))) {
            rp_hf_warn(config, names[i],
                       plain ? "the function is not known and simulated as GELU"
                             : "the function is not known and simulated as a gate of SiLU");
        }
    }
    return RP_OK;
}
