/* Keys of config.json that training does not depend on, and values that are refused (executor.md
 * 4.1). */
#include "exec/checkpoint/config_internal.h"

#include <string.h>

/* ---- values on which training does not depend ------------------------------------------------ */

static bool is_null(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return json_is_null(value);
}

static bool is_false(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return json_is_false(value) || json_is_null(value);
}

static bool is_zero(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return json_is_number(value) && json_number_value(value) == 0;
}

static bool is_whole(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return json_is_null(value) || (json_is_number(value) && json_number_value(value) == 1);
}

static bool is_empty(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return rp_hf_is_empty(value);
}

static bool names_class(const rp_hf_config *r, const json_t *value)
{
    bool found = json_is_null(value);
    for (size_t i = 0; i < json_array_size(value) && !found; i++) {
        const char *class = json_string_value(json_array_get(value, i));
        found = class != NULL && strcmp(class, r->family->class) == 0;
    }
    return found;
}

/* Published folders of Phi-3 carry the model's own code from the time before transformers had its
 * class. Now that class loads them. */
static bool maps_own_class(const rp_hf_config *r, const json_t *value)
{
    const json_t *classes = json_object_get(r->values, "architectures");
    return rp_hf_is_empty(value) ||
           (json_is_object(value) && json_array_size(classes) > 0 && names_class(r, classes));
}

/* Qwen3's classes ignore the window unless use_sliding_window is true. Llama's class has no such
 * key, and gives the window to the cache. */
static bool has_no_window(const rp_hf_config *r, const json_t *value)
{
    return json_is_null(value) || (strcmp(r->family->type, "llama") != 0 &&
                                   !json_is_true(json_object_get(r->values, "use_sliding_window")));
}

static bool is_without_windows(const rp_hf_config *r, const json_t *value)
{
    (void)value;
    return !json_is_true(json_object_get(r->values, "use_sliding_window"));
}

static bool attends_fully(const rp_hf_config *r, const json_t *value)
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

static bool has_no_router_loss(const rp_hf_config *r, const json_t *value)
{
    (void)value;
    return !json_is_true(json_object_get(r->values, "output_router_logits"));
}

static bool is_mixture(const rp_hf_config *r, const json_t *value)
{
    (void)value;
    return r->family->mixture != RP_HF_DENSE;
}

#define WINDOWS "sliding windows are not computed"
#define BIASES "biases are not computed"
#define ENCODERS "encoders are not computed"
#define ROUTERS "the loss of routers is not computed"

/* Keys that training does not depend on as long as they have a `valid` value. */
static const struct rule {
    const char *key;
    bool (*holds)(const rp_hf_config *r, const json_t *value);
    const char *valid;
    const char *why; /* cause, when another value is refused */
} rules[] = {
    {"add_cross_attention", is_false, "false", ENCODERS},
    {"architectures", names_class, "the model_type's class for causal language modelling",
     "other heads are not computed"},
    {"attention_bias", is_false, "false", BIASES},
    {"attention_dropout", is_zero, "0", "dropout is not computed"},
    {"auto_map", maps_own_class, "null, and those beside architectures of transformers' own",
     "code of its own makes the model"},
    {"cross_attention_hidden_size", is_null, "null", ENCODERS},
    {"embd_pdrop", is_zero, "0", "dropout is not computed"},
    {"intermediate_size", is_mixture, "none", "the model has no such layers"},
    {"is_encoder_decoder", is_false, "false", ENCODERS},
    {"layer_types", attends_fully, "\"full_attention\" for each layer", WINDOWS},
    {"max_window_layers", is_without_windows, "those without use_sliding_window", WINDOWS},
    {"mlp_bias", is_false, "false", BIASES},
    {"output_router_logits", is_false, "false", ROUTERS},
    {"partial_rotary_factor", is_whole, "1 and null", "heads are rotated as a whole"},
    {"pruned_heads", is_empty, "none", "all heads are computed"},
    {"quantization_config", is_null, "null", "quantized weights are not read but gpt-oss's"},
    {"resid_pdrop", is_zero, "0", "dropout is not computed"},
    {"router_jitter_noise", is_zero, "0", "noise of routers is not computed"},
    {"rope_interleaved", is_false, "false", "neighbours are not rotated as pairs"},
    {"router_aux_loss_coef", has_no_router_loss, "those without output_router_logits", ROUTERS},
    {"sliding_window", has_no_window, "null, and for Qwen3 those without use_sliding_window",
     WINDOWS},
    {"tie_encoder_decoder", is_false, "false", ENCODERS},
    {"torchscript", is_false, "false", "a tied head would become a table of its own"},
    {"use_bidirectional_attention", is_false, "false", "attention is computed as causal"},
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

/* Checks every key that has not been read, and names all that are refused. */
rp_status rpexec_config_check_rest(const rp_hf_config *r)
{
    rp_status status = RP_OK;
    const char *key;
    json_t *value;
    json_object_foreach(r->rest, key, value)
    {
        const struct rule *rule = find_rule(key);
        bool needed = r->name != NULL || !(rp_hf_is_unneeded(key) || rp_hf_is_usual(r, key, value));
        if (rule != NULL && !rule->holds(r, value)) {
            status = rp_hf_refuse(r, key, rule->why, rule->valid);
        } else if (rule == NULL && !needed && rp_hf_not_finite(value) != NULL) {
            rp_hf_warn_not_finite(r, key);
        } else if (rule == NULL && needed) {
            status = rp_hf_refuse(r, key, "is not understood, and might alter the model",
                                  "the keys that exec/README.md names; delete it if it does not");
        }
    }
    return status;
}
