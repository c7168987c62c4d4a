/* Keys of config.json that training does not depend on, and what is refused (executor.md 4.1). */
#include "common/base/log.h"
#include "exec/checkpoint/config_internal.h"

#include <stdio.h>
#include <string.h>

#define SHOWN_BYTES 64u /* of a key, in a message */

/* ---- messages ---------------------------------------------------------------------------------
 */

/* Where the string at `at`, which begins with a quote, ends: behind its closing one. */
static size_t string_end(const rp_text *text, size_t at)
{
    at++;
    while (at < text->length && text->bytes[at] != '"') {
        at += text->bytes[at] == '\\' ? 2 : 1;
    }
    return at + 1;
}

static bool is_key(const rp_text *text, size_t begin, size_t end, const char *key)
{
    size_t colon = end;
    while (colon < text->length && strchr(" \t\r\n", text->bytes[colon]) != NULL) {
        colon++;
    }
    return colon < text->length && text->bytes[colon] == ':' && key != NULL &&
           end - begin == strlen(key) + 2 && memcmp(text->bytes + begin + 1, key, strlen(key)) == 0;
}

/* The line of a key in a valid JSON text; 0 where it is missing or written with escapes. */
static size_t line_of(const rpexec_config *r, const char *key)
{
    size_t line = 1;
    uint32_t depth = 0;
    bool inside = false; /* of the reader's object */
    for (size_t at = 0; at < r->text->length; at++) {
        char c = r->text->bytes[at];
        line += c == '\n' ? 1 : 0;
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= c == '}' || c == ']' ? 1 : 0;
        if (c != '"') {
            continue;
        }
        size_t end = string_end(r->text, at);
        bool here = r->name == NULL ? depth == 1 : depth == 2 && inside;
        if (here && is_key(r->text, at, end, key)) {
            return line;
        }
        inside = depth == 1 ? is_key(r->text, at, end, r->name) : inside;
        at = end - 1;
    }
    return 0;
}

/* `cause` may be empty. */
rp_status rpexec_config_refuse(const rpexec_config *r, const char *key, const char *cause,
                               const char *valid)
{
    char shown[SHOWN_BYTES];
    bool inside = r->name != NULL;
    (void)snprintf(shown, sizeof shown, "%s%s%s", inside ? r->name : "", inside ? "." : "", key);
    rp_log_error_at(r->path, line_of(r, key), "%s: %s%svalid values are %s", shown, cause,
                    cause[0] != '\0' ? "; " : "", valid);
    return RP_INPUT;
}

/* ---- keys that training does not depend on ----------------------------------------------------
 */

static bool is_null(const rpexec_config *r, const json_t *value)
{
    (void)r;
    return json_is_null(value);
}

static bool is_false(const rpexec_config *r, const json_t *value)
{
    (void)r;
    return json_is_false(value) || json_is_null(value);
}

static bool is_zero(const rpexec_config *r, const json_t *value)
{
    (void)r;
    return json_is_number(value) && json_number_value(value) == 0;
}

static bool is_whole(const rpexec_config *r, const json_t *value)
{
    (void)r;
    return json_is_null(value) || (json_is_number(value) && json_number_value(value) == 1);
}

bool rpexec_config_is_empty(const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_empty(const rpexec_config *r, const json_t *value)
{
    (void)r;
    return rpexec_config_is_empty(value);
}

static bool names_class(const rpexec_config *r, const json_t *value)
{
    bool found = json_is_null(value);
    for (size_t i = 0; i < json_array_size(value) && !found; i++) {
        const char *class = json_string_value(json_array_get(value, i));
        found = class != NULL && strcmp(class, r->family->class) == 0;
    }
    return found;
}

/* Qwen3's classes forget the window where use_sliding_window does not ask for it; Llama's has no
 * such key, and hands the window to the cache. */
static bool has_no_window(const rpexec_config *r, const json_t *value)
{
    return json_is_null(value) || (strcmp(r->family->type, "llama") != 0 &&
                                   !json_is_true(json_object_get(r->values, "use_sliding_window")));
}

static bool is_without_windows(const rpexec_config *r, const json_t *value)
{
    (void)value;
    return !json_is_true(json_object_get(r->values, "use_sliding_window"));
}

static bool attends_fully(const rpexec_config *r, const json_t *value)
{
    size_t count = json_array_size(value);
    bool full =
        json_is_null(value) ||
        count == (size_t)json_integer_value(json_object_get(r->values, "num_hidden_layers"));
    for (size_t i = 0; i < count && full; i++) {
        const char *type = json_string_value(json_array_get(value, i));
        full = type != NULL && strcmp(type, "full_attention") == 0;
    }
    return full;
}

static bool has_no_router_loss(const rpexec_config *r, const json_t *value)
{
    (void)value;
    return !json_is_true(json_object_get(r->values, "output_router_logits"));
}

static bool is_mixture(const rpexec_config *r, const json_t *value)
{
    (void)value;
    return r->family->mixture;
}

/* Keys that training does not depend on, at any value, and why. */
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
    {"none of the three families reads them",
     {"chunk_size_feed_forward", "is_decoder", "is_llama_config", "max_sequence_length",
      "tf_legacy_loss", "use_bfloat16"}},
    {"--dtype says what is computed in, whatever weights are stored in", {"dtype", "torch_dtype"}},
    {"all weights come from the checkpoint", {"initializer_range"}},
    {"what is computed again has the same values", {"gradient_checkpointing"}},
    {"products are cut into summands: the same up to rounding", {"pretraining_tp"}},
};

#define WINDOWS "sliding windows are not computed"
#define BIASES "biases are not computed"
#define ENCODERS "encoders are not computed"
#define ROUTERS "the loss of routers is not computed"

/* Keys that training does not depend on where they have a `valid` value. */
static const struct rule {
    const char *key;
    bool (*holds)(const rpexec_config *r, const json_t *value);
    const char *valid;
    const char *why; /* all others are refused */
} rules[] = {
    {"add_cross_attention", is_false, "false", ENCODERS},
    {"architectures", names_class, "the model_type's class for causal language modelling",
     "other heads are not computed"},
    {"attention_bias", is_false, "false", BIASES},
    {"attention_dropout", is_zero, "0", "dropout is not computed"},
    {"auto_map", is_empty, "null", "code of its own makes the model"},
    {"cross_attention_hidden_size", is_null, "null", ENCODERS},
    {"intermediate_size", is_mixture, "none", "the model has no such layers"},
    {"is_encoder_decoder", is_false, "false", ENCODERS},
    {"layer_types", attends_fully, "\"full_attention\" for each layer", WINDOWS},
    {"max_window_layers", is_without_windows, "those without use_sliding_window", WINDOWS},
    {"mlp_bias", is_false, "false", BIASES},
    {"output_router_logits", is_false, "false", ROUTERS},
    {"pad_token_id", is_null, "null, which trains it like the others",
     "transformers does not train that row of the embedding"},
    {"partial_rotary_factor", is_whole, "1 and null", "heads are rotated as a whole"},
    {"pruned_heads", is_empty, "none", "all heads are computed"},
    {"quantization_config", is_null, "null", "quantized weights are not read"},
    {"rope_interleaved", is_false, "false", "neighbours are not rotated as pairs"},
    {"router_aux_loss_coef", has_no_router_loss, "those without output_router_logits", ROUTERS},
    {"sliding_window", has_no_window, "null, and for Qwen3 those without use_sliding_window",
     WINDOWS},
    {"tie_encoder_decoder", is_false, "false", ENCODERS},
    {"torchscript", is_false, "false", "a tied head would become a table of its own"},
    {"use_sliding_window", is_false, "false", WINDOWS},
};

static const struct rule *find_rule(const char *key)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(rules[i].key, key) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

static bool is_unneeded(const char *key)
{
    bool found = false;
    for (size_t i = 0; i < sizeof unneeded / sizeof unneeded[0]; i++) {
        for (const char *const *one = unneeded[i].keys; *one != NULL && !found; one++) {
            found = strcmp(*one, key) == 0;
        }
    }
    return found;
}

/* Every key that has not been read: all that are refused are named. */
rp_status rpexec_config_check_rest(const rpexec_config *r)
{
    rp_status status = RP_OK;
    const char *key;
    json_t *value;
    json_object_foreach(r->rest, key, value)
    {
        const struct rule *rule = find_rule(key);
        if (rule != NULL && !rule->holds(r, value)) {
            status = rpexec_config_refuse(r, key, rule->why, rule->valid);
        } else if (rule == NULL && (r->name != NULL || !is_unneeded(key))) {
            status = rpexec_config_refuse(
                r, key, "is not understood, and might alter the model",
                "the keys that exec/README.md names; delete it if it does not");
        }
    }
    return status;
}
