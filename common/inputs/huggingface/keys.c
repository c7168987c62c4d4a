/* Keys of config.json: types and ranges of all keys that a family reads, the values of other keys
 * that alter no shape, and values whose effect is not simulated. */
#include "common/formats/json_read.h"
#include "common/inputs/huggingface/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- usual values ---------------------------------------------------------------------------- */

/* No value of the key changes the simulation. */
static bool is_any(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    (void)value;
    return true;
}

/* Off, in any form. */
static bool is_off(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return rp_hf_is_empty(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0);
}

static bool is_one(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return json_is_null(value) || (json_is_number(value) && json_number_value(value) == 1);
}

static bool is_gated(const rp_hf_config *r, const json_t *value)
{
    return json_is_null(value) ||
           json_is_true(value) == !(r->family != NULL && r->family->plain_mlp);
}

/* A single expert is no mixture. */
static bool is_dense(const rp_hf_config *r, const json_t *value)
{
    return is_off(r, value) || is_one(r, value);
}

/* Every text of a list is `text`. */
static bool all_are(const json_t *value, const char *text)
{
    bool all = json_is_null(value) || json_is_array(value);
    for (size_t i = 0; i < json_array_size(value) && all; i++) {
        const char *own = json_string_value(json_array_get(value, i));
        all = own != NULL && strcmp(own, text) == 0;
    }
    return all;
}

static bool are_dense(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return all_are(value, "dense");
}

static bool are_full(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    return all_are(value, "full_attention");
}

static bool is_not_asked_for(const rp_hf_config *r, const json_t *value)
{
    return is_off(r, value) || json_is_false(json_object_get(r->values, "use_sliding_window"));
}

/* The key is a second name of sliding_window, which no class reads. */
static bool is_window(const rp_hf_config *r, const json_t *value)
{
    const json_t *window = json_object_get(r->values, "sliding_window");
    return json_is_null(value) ||
           json_equal((json_t *)(uintptr_t)value, (json_t *)(uintptr_t)window);
}

static bool is_family_norm(const rp_hf_config *r, const json_t *value)
{
    bool has = r->family != NULL && r->family->qk_norm;
    return json_is_null(value) || json_is_true(value) == has;
}

/* For families in which no key gives the number of layers without experts: the family's own
 * number. */
static bool is_family_dense(const rp_hf_config *r, const json_t *value)
{
    uint32_t first = r->family != NULL ? r->family->dense_first : 0;
    return json_is_null(value) || json_integer_value(value) == first;
}

/* One of the class names is that of a head that predicts tokens. */
static bool is_decoder(const rp_hf_config *r, const json_t *value)
{
    (void)r;
    bool found = rp_hf_is_empty(value);
    for (size_t i = 0; i < json_array_size(value) && !found; i++) {
        const char *class = json_string_value(json_array_get(value, i));
        found = class != NULL && (strstr(class, "ForCausalLM") != NULL ||
                                  strstr(class, "ForConditionalGeneration") != NULL);
    }
    return found;
}

/* ---- types ----------------------------------------------------------------------------------- */

typedef enum value_kind {
    ANY,
    COUNT,    /* an integer in the range */
    COUNTS,   /* a list of integers in the range */
    POSITIVE, /* a number above 0 */
    NUMBER,   /* any */
    NUMBERS,  /* a list of numbers */
    FLAG,
    TEXT,
    TEXTS,
    OBJECT,
} value_kind;

/* Uses of a key. */
typedef enum role {
    SHAPE, /* shapes, numbers of layers or of pairs in attention depend on it */
    VALUE, /* only values depend on it */
} role;

typedef struct key_row {
    const char *name;
    role role;
    value_kind kind;
    bool null;        /* may be null */
    value_kind other; /* a second type; ANY: none */
    int64_t least, most;
    bool (*usual)(const rp_hf_config *config, const json_t *value); /* NULL: is_off for shapes */
    const char *effect; /* effect of other values, which is not simulated */
} key_row;

#define MOST_WIDTH 1048576
#define MOST_INTERMEDIATE 4194304
#define MOST_HEADS 65536
#define MOST_EXPERTS 65536
#define MOST_VOCAB 16777216
#define MOST_POSITIONS 1073741824
#define WHOLE(from, to) .kind = COUNT, .least = (from), .most = (to)
#define LAYERS(from) WHOLE(from, RP_MAX_LAYERS)
#define LAYER_LIST .kind = COUNTS, .null = true, .least = 0, .most = RP_MAX_LAYERS
#define SWITCH .kind = FLAG
#define NULL_TOO .null = true
#define NO_DROPOUT                                                                                 \
    .role = VALUE, .kind = NUMBER, NULL_TOO, .usual = is_off, .effect = "dropout is not simulated"
#define NO_WINDOWS "the family has no windows: all attention is simulated as full"
#define NO_CROSS "cross-attention is not simulated"
#define NO_ENCODER "only a decoder is simulated"
#define NO_MTP "layers of multi-token prediction are not counted or simulated, as in transformers"

static const key_row keys[] = {
    {"model_type", VALUE, .kind = TEXT},
    {"dtype", VALUE, .kind = TEXT, NULL_TOO, .usual = is_any},
    {"torch_dtype", VALUE, .kind = TEXT, NULL_TOO, .usual = is_any},
    {"text_config", VALUE, .kind = OBJECT, NULL_TOO},
    /* sizes */
    {"vocab_size", WHOLE(1, MOST_VOCAB)},
    {"hidden_size", WHOLE(1, MOST_WIDTH)},
    {"intermediate_size", WHOLE(1, MOST_INTERMEDIATE)},
    {"intermediate_size_mlp", WHOLE(1, MOST_INTERMEDIATE)},
    {"num_hidden_layers", LAYERS(1)},
    {"num_layers", LAYERS(1)},
    {"num_attention_heads", WHOLE(1, MOST_HEADS)},
    {"num_key_value_heads", WHOLE(1, MOST_HEADS), NULL_TOO},
    {"head_dim", WHOLE(1, MOST_HEADS), NULL_TOO},
    {"multi_query", SWITCH, NULL_TOO},
    {"new_decoder_architecture", SWITCH, NULL_TOO},
    {"use_cla", SWITCH, NULL_TOO},
    {"cla_share_factor", WHOLE(0, RP_MAX_LAYERS), NULL_TOO, .usual = is_one},
    {"use_gated_mlp", SWITCH, NULL_TOO, .usual = is_gated},
    {"max_position_embeddings", VALUE, WHOLE(1, MOST_POSITIONS)},
    {"per_layer_config", .kind = OBJECT, NULL_TOO,
     .effect = "layers with other shapes of their own"},
    /* latent attention */
    {"q_lora_rank", WHOLE(1, MOST_WIDTH), NULL_TOO},
    {"kv_lora_rank", WHOLE(1, MOST_WIDTH), NULL_TOO},
    {"qk_rope_head_dim", WHOLE(1, MOST_HEADS / 2), NULL_TOO},
    {"qk_nope_head_dim", WHOLE(1, MOST_HEADS / 2), NULL_TOO},
    {"qk_head_dim", WHOLE(1, MOST_HEADS), NULL_TOO},
    {"v_head_dim", WHOLE(1, MOST_HEADS), NULL_TOO},
    /* experts */
    {"num_experts", WHOLE(0, MOST_EXPERTS), NULL_TOO, .usual = is_dense},
    {"num_local_experts", WHOLE(0, MOST_EXPERTS), NULL_TOO, .usual = is_dense},
    {"n_routed_experts", WHOLE(0, MOST_EXPERTS), NULL_TOO, .usual = is_dense},
    {"moe_num_experts", WHOLE(0, MOST_EXPERTS), NULL_TOO, .usual = is_dense},
    {"num_experts_per_tok", WHOLE(0, MOST_EXPERTS), NULL_TOO},
    {"moe_k", WHOLE(0, MOST_EXPERTS), NULL_TOO},
    {"moe_topk", WHOLE(0, MOST_EXPERTS), NULL_TOO, .other = COUNTS},
    {"experts_per_token", VALUE, WHOLE(0, MOST_EXPERTS), NULL_TOO},
    {"moe_intermediate_size", WHOLE(0, MOST_INTERMEDIATE), NULL_TOO},
    {"shared_expert_intermediate_size", WHOLE(0, MOST_INTERMEDIATE), NULL_TOO},
    {"shared_intermediate_size", WHOLE(0, MOST_INTERMEDIATE), NULL_TOO},
    {"n_shared_experts", WHOLE(0, 64), NULL_TOO},
    {"num_shared_experts", WHOLE(0, 64), NULL_TOO},
    {"moe_num_shared_experts", WHOLE(0, 64), NULL_TOO},
    {"first_k_dense_replace", LAYERS(0), NULL_TOO, .usual = is_family_dense},
    {"moe_layer_freq", LAYERS(0), NULL_TOO, .other = COUNTS, .usual = is_one},
    {"decoder_sparse_step", LAYERS(1), NULL_TOO, .usual = is_one},
    {"interleave_moe_layer_step", LAYERS(1), NULL_TOO, .usual = is_one},
    {"mlp_only_layers", LAYER_LIST},
    {"moe_layers", LAYER_LIST},
    {"mlp_layer_types", .kind = TEXTS, NULL_TOO, .usual = are_dense},
    {"moe_layer_start_index", LAYERS(0), NULL_TOO},
    {"moe_layer_end_index", LAYERS(-1), NULL_TOO},
    {"moe_layer_interval", LAYERS(1), NULL_TOO, .usual = is_one},
    {"num_nextn_predict_layers", VALUE, LAYERS(0), NULL_TOO, .usual = is_off, .effect = NO_MTP},
    {"num_mtp_layers", VALUE, LAYERS(0), NULL_TOO, .usual = is_off, .effect = NO_MTP},
    {"num_mtp_modules", VALUE, LAYERS(0), NULL_TOO, .usual = is_off, .effect = NO_MTP},
    {"mtp_transformer_layers", VALUE, LAYERS(0), NULL_TOO},
    {"mtp_layer_types", VALUE, .kind = TEXTS, NULL_TOO},
    {"mtp_mlp_layer_types", VALUE, .kind = TEXTS, NULL_TOO},
    {"use_mtp", VALUE, SWITCH, NULL_TOO},
    /* biases and norms */
    {"attention_bias", SWITCH},
    {"attention_out_bias", SWITCH},
    {"mlp_bias", SWITCH},
    {"bias", SWITCH},
    {"qkv_bias", SWITCH},
    {"use_qkv_bias", SWITCH},
    {"use_bias", SWITCH, NULL_TOO},
    {"lm_head_bias", SWITCH},
    {"tie_word_embeddings", SWITCH},
    {"use_qk_norm", SWITCH, NULL_TOO, .usual = is_family_norm},
    {"qk_layernorm", SWITCH},
    {"use_parallel_residual", SWITCH},
    {"use_post_norm", SWITCH},
    {"rms_norm_eps", VALUE, .kind = POSITIVE},
    {"layer_norm_eps", VALUE, .kind = POSITIVE},
    {"layer_norm_epsilon", VALUE, .kind = POSITIVE},
    {"norm_epsilon", VALUE, .kind = POSITIVE},
    {"norm_eps", VALUE, .kind = POSITIVE},
    {"qk_norm_type", VALUE, .kind = TEXT, NULL_TOO},
    /* windows */
    {"sliding_window", WHOLE(0, MOST_POSITIONS), NULL_TOO, .usual = is_not_asked_for,
     .effect = NO_WINDOWS},
    {"use_sliding_window", SWITCH, NULL_TOO, .effect = NO_WINDOWS},
    {"sliding_window_size", WHOLE(0, MOST_POSITIONS), NULL_TOO, .usual = is_window},
    {"max_window_layers", VALUE, LAYERS(0), NULL_TOO},
    {"sliding_window_pattern", VALUE, LAYERS(0), NULL_TOO, .other = TEXT},
    {"_sliding_window_pattern", VALUE, LAYERS(0), NULL_TOO},
    {"layer_types", .kind = TEXTS, NULL_TOO, .usual = are_full},
    {"no_rope_layers", VALUE, LAYER_LIST},
    {"no_rope_layer_interval", VALUE, LAYERS(1), NULL_TOO},
    {"attention_chunk_size", WHOLE(1, MOST_POSITIONS), NULL_TOO,
     .effect = "attention in chunks is simulated as full"},
    {"full_attn_mod", WHOLE(1, RP_MAX_LAYERS), NULL_TOO, .usual = is_one},
    /* values */
    {"hidden_act", VALUE, .kind = TEXT},
    {"hidden_activation", VALUE, .kind = TEXT, NULL_TOO},
    {"activation_function", VALUE, .kind = TEXT},
    {"attn_logit_softcapping", VALUE, .kind = POSITIVE, NULL_TOO},
    {"final_logit_softcapping", VALUE, .kind = POSITIVE, NULL_TOO},
    {"query_pre_attn_scalar", VALUE, WHOLE(1, MOST_WIDTH)},
    {"attention_multiplier", VALUE, .kind = NUMBER, NULL_TOO},
    {"embedding_multiplier", VALUE, .kind = NUMBER, NULL_TOO},
    {"residual_multiplier", VALUE, .kind = NUMBER, NULL_TOO},
    {"logits_scaling", VALUE, .kind = NUMBER, NULL_TOO},
    {"logit_scale", VALUE, .kind = NUMBER, NULL_TOO},
    {"scale_emb", VALUE, .kind = NUMBER, NULL_TOO},
    {"scale_depth", VALUE, .kind = NUMBER, NULL_TOO},
    {"dim_model_base", VALUE, WHOLE(1, MOST_WIDTH), NULL_TOO},
    {"attn_temperature_tuning", VALUE, SWITCH, NULL_TOO, .other = COUNT, .most = 1 << 20},
    {"attn_scale", VALUE, .kind = NUMBER, NULL_TOO},
    {"floor_scale", VALUE, WHOLE(1, MOST_POSITIONS), NULL_TOO},
    {"clip_qkv", VALUE, .kind = POSITIVE, NULL_TOO, .usual = is_off},
    {"pad_token_id", VALUE, WHOLE(-MOST_VOCAB, MOST_VOCAB), NULL_TOO},
    {"ep_size", VALUE, WHOLE(1, MOST_EXPERTS), NULL_TOO}, /* experts are not spread */
    {"n_group", VALUE, WHOLE(0, MOST_EXPERTS), NULL_TOO},
    {"topk_group", VALUE, WHOLE(0, MOST_EXPERTS), NULL_TOO},
    {"topk_method", VALUE, .kind = TEXT, NULL_TOO},
    {"scoring_func", VALUE, .kind = TEXT, NULL_TOO},
    {"norm_topk_prob", VALUE, SWITCH, NULL_TOO},
    {"routed_scaling_factor", VALUE, .kind = NUMBER, NULL_TOO},
    {"router_scaling_factor", VALUE, .kind = NUMBER, NULL_TOO},
    {"router_aux_loss_coef", VALUE, .kind = NUMBER, NULL_TOO},
    {"router_jitter_noise", VALUE, .kind = NUMBER, NULL_TOO},
    {"input_jitter_noise", VALUE, .kind = NUMBER, NULL_TOO},
    {"output_router_logits", VALUE, SWITCH, NULL_TOO},
    {"aux_loss_alpha", VALUE, .kind = NUMBER, NULL_TOO},
    {"seq_aux", VALUE, SWITCH, NULL_TOO},
    {"moe_norm_min", VALUE, .kind = NUMBER, NULL_TOO},
    {"use_routing_bias", VALUE, SWITCH, NULL_TOO},
    {"enable_moe_fp32_combine", VALUE, SWITCH, NULL_TOO},
    {"swiglu_alpha", VALUE, .kind = NUMBER, NULL_TOO},
    {"swiglu_limit", VALUE, .kind = NUMBER, NULL_TOO},
    {"neftune_noise_alpha", VALUE, .kind = NUMBER, NULL_TOO, .usual = is_off},
    /* rotation */
    {"rope_theta", VALUE, .kind = POSITIVE},
    {"rope_local_base_freq", VALUE, .kind = POSITIVE},
    {"rope_scaling", VALUE, .kind = OBJECT, NULL_TOO},
    {"rope_parameters", VALUE, .kind = OBJECT, NULL_TOO},
    {"partial_rotary_factor", VALUE, .kind = POSITIVE, NULL_TOO},
    {"rotary_dim", VALUE, WHOLE(0, MOST_HEADS), NULL_TOO},
    {"rope_interleave", VALUE, SWITCH, NULL_TOO},
    {"rope_interleaved", VALUE, SWITCH, NULL_TOO},
    {"use_mrope", VALUE, SWITCH, NULL_TOO, .usual = is_off},
    {"interpolate_factor", VALUE, .kind = NUMBER, NULL_TOO, .usual = is_one},
    {"original_max_position_embeddings", VALUE, WHOLE(1, MOST_POSITIONS), NULL_TOO},
    {"initial_context_length", VALUE, WHOLE(1, MOST_POSITIONS), NULL_TOO},
    /* properties that are not simulated */
    {"add_cross_attention", VALUE, SWITCH, NULL_TOO, .usual = is_off, .effect = NO_CROSS},
    {"architectures", VALUE, .kind = TEXTS, NULL_TOO, .usual = is_decoder,
     .effect = "it is simulated with a head for language modelling"},
    {"attention_dropout", NO_DROPOUT},
    {"embd_pdrop", NO_DROPOUT},
    {"embedding_dropout", NO_DROPOUT},
    {"hidden_dropout", NO_DROPOUT},
    {"resid_pdrop", NO_DROPOUT},
    {"residual_dropout", NO_DROPOUT},
    {"auto_map", VALUE, .kind = OBJECT, NULL_TOO, .usual = is_off,
     .effect = "code of its own makes the model, which may differ from the family"},
    {"cross_attention_hidden_size", VALUE, WHOLE(0, MOST_WIDTH), NULL_TOO, .usual = is_off,
     .effect = NO_CROSS},
    {"is_encoder_decoder", VALUE, SWITCH, NULL_TOO, .usual = is_off, .effect = NO_ENCODER},
    {"pruned_heads", VALUE, .kind = OBJECT, NULL_TOO, .usual = is_off,
     .effect = "all heads are simulated"},
    {"quantization_config", VALUE, .kind = OBJECT, NULL_TOO, .usual = is_off,
     .effect = "weights are simulated in the type that {dtype} says"},
    {"tie_encoder_decoder", VALUE, SWITCH, NULL_TOO, .usual = is_off, .effect = NO_ENCODER},
    {"torchscript", VALUE, SWITCH, NULL_TOO, .usual = is_off,
     .effect = "it is simulated without TorchScript, which unties the head"},
    {"use_bidirectional_attention", VALUE, SWITCH, NULL_TOO, .other = TEXT, .usual = is_off,
     .effect = "attention is simulated as causal"},
};

/* Keys of rope_scaling and rope_parameters, and of the objects for kinds of layers inside of
 * these. */
static const key_row rope_keys[] = {
    {"full_attention", VALUE, .kind = OBJECT},
    {"sliding_attention", VALUE, .kind = OBJECT},
    {"rope_type", VALUE, .kind = TEXT},
    {"type", VALUE, .kind = TEXT},
    {"rope_theta", VALUE, .kind = POSITIVE},
    {"factor", VALUE, .kind = POSITIVE, NULL_TOO},
    {"attention_factor", VALUE, .kind = NUMBER, NULL_TOO},
    {"beta_fast", VALUE, .kind = NUMBER, NULL_TOO},
    {"beta_slow", VALUE, .kind = NUMBER, NULL_TOO},
    {"low_freq_factor", VALUE, .kind = POSITIVE},
    {"high_freq_factor", VALUE, .kind = POSITIVE},
    {"original_max_position_embeddings", VALUE, .kind = POSITIVE},
    {"mscale", VALUE, .kind = NUMBER, NULL_TOO},
    {"mscale_all_dim", VALUE, .kind = NUMBER, NULL_TOO},
    {"truncate", VALUE, SWITCH},
    {"short_factor", VALUE, .kind = NUMBERS},
    {"long_factor", VALUE, .kind = NUMBERS},
    {"partial_rotary_factor", VALUE, .kind = NUMBER, NULL_TOO},
    {"mrope_section", VALUE, .kind = COUNTS, .most = MOST_HEADS},
    {"mrope_interleaved", VALUE, SWITCH},
};

static const key_row *find_in(const key_row *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

#define FIND(rows, name) find_in(rows, sizeof(rows) / sizeof *(rows), name)

static bool is_number(const json_t *value)
{
    return json_is_number(value) || (json_is_string(value) && rp_hf_not_finite(value) != NULL);
}

static bool is_of(const key_row *k, value_kind kind, const json_t *value)
{
    bool right = true;
    switch (kind) {
    case ANY:
        return false;
    case COUNT:
        return rp_json_is_integer(value, k->least, k->most);
    case POSITIVE:
        return is_number(value) && (!json_is_number(value) || json_number_value(value) > 0);
    case NUMBER:
        return is_number(value);
    case FLAG:
        return json_is_boolean(value);
    case TEXT:
        return json_is_string(value) && rp_hf_not_finite(value) == NULL;
    case OBJECT:
        return json_is_object(value);
    case COUNTS:
    case NUMBERS:
    case TEXTS:
        break;
    }
    value_kind one = kind == COUNTS ? COUNT : kind == NUMBERS ? NUMBER : TEXT;
    for (size_t i = 0; i < json_array_size(value) && right; i++) {
        right = is_of(k, one, json_array_get(value, i));
    }
    return right && json_is_array(value);
}

static const char *name_of(const key_row *k, value_kind kind, char range[static 64])
{
    static const char *const names[] = {[ANY] = "anything",
                                        [POSITIVE] = "numbers above 0",
                                        [NUMBER] = "numbers",
                                        [FLAG] = "true and false",
                                        [TEXT] = "texts",
                                        [OBJECT] = "objects",
                                        [NUMBERS] = "lists of numbers",
                                        [TEXTS] = "lists of texts"};
    if (kind == COUNT || kind == COUNTS) {
        (void)snprintf(range, 64, "%sintegers from %" PRId64 " to %" PRId64,
                       kind == COUNTS ? "lists of " : "", k->least, k->most);
        return range;
    }
    return names[kind];
}

static rp_status check_type(const rp_hf_config *config, const key_row *k, const json_t *value)
{
    char valid[192];
    char range[2][64];
    if ((k->null && json_is_null(value)) || is_of(k, k->kind, value) || is_of(k, k->other, value)) {
        return RP_OK;
    }
    const char *cause = rp_hf_not_finite(value);
    (void)snprintf(valid, sizeof valid, "%s%s%s%s", k->null ? "null and " : "",
                   name_of(k, k->kind, range[0]), k->other != ANY ? " and " : "",
                   k->other != ANY ? name_of(k, k->other, range[1]) : "");
    return rp_hf_refuse(config, k->name, cause != NULL ? cause : "", valid);
}

static rp_status check_rope(const rp_hf_config *config, const char *name, const json_t *object)
{
    const char *key;
    json_t *value;
    rp_status status = RP_OK;
    rp_hf_config inner = *config;
    inner.name = name;
    inner.values = (json_t *)(uintptr_t)object;
    json_object_foreach(inner.values, key, value)
    {
        const key_row *row = FIND(rope_keys, key);
        bool right = row == NULL || check_type(&inner, row, value) == RP_OK;
        right = right && (!json_is_object(value) || check_rope(config, key, value) == RP_OK);
        status = right ? status : RP_INPUT;
    }
    return status;
}

rp_status rp_hf_check_types(const rp_hf_config *config)
{
    const char *key;
    json_t *value;
    rp_status status = RP_OK;
    json_object_foreach(config->values, key, value)
    {
        const key_row *row = FIND(keys, key);
        bool right = row == NULL || check_type(config, row, value) == RP_OK;
        bool rope = strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0;
        bool inside = !rope || !json_is_object(value) || check_rope(config, key, value) == RP_OK;
        status = right && inside ? status : RP_INPUT;
    }
    return status;
}

void rp_hf_range(const char *key, int64_t *least_out, int64_t *most_out)
{
    const key_row *row = FIND(keys, key);
    *least_out = row->least;
    *most_out = row->most;
}

bool rp_hf_is_known(const char *key, bool *shape_out, const char **effect_out)
{
    const key_row *row = FIND(keys, key);
    *shape_out = row != NULL && row->role == SHAPE;
    *effect_out = row != NULL ? row->effect : NULL;
    return row != NULL;
}

bool rp_hf_is_usual(const rp_hf_config *config, const char *key, const json_t *value)
{
    const key_row *row = FIND(keys, key);
    if (row == NULL) {
        return false;
    }
    return row->usual != NULL ? row->usual(config, value)
                              : row->role == SHAPE && is_off(config, value);
}
