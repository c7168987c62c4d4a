/* config.json of Hugging Face, in both styles (executor.md 4.1): common/inputs/huggingface reads
 * shapes, as for rpsim; this file reads the keys that only the executor computes with. */
#include "common/base/log.h"
#include "exec/checkpoint/config_internal.h"
#include "exec/checkpoint/weights.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define FAMILIES                                                                                   \
    "llama, mistral, mixtral, phi3, gemma2, gemma3_text, qwen2, qwen3, qwen3_moe and gpt_oss"

static rp_status refuse(const rp_hf_config *r, const char *key, const char *valid)
{
    return rp_hf_refuse(r, key, "", valid);
}

/* ---- the rotary embedding -------------------------------------------------------------------- */

/* All four keys must be there: transformers, too, refuses files without them. */
static rp_status read_llama3(const rp_hf_config *r, rp_rope_scale *scale)
{
    const struct {
        const char *key;
        double least;
        const char *valid;
        double *value;
    } numbers[] = {{"factor", 1, "numbers from 1 on", &scale->factor},
                   {"low_freq_factor", DBL_MIN, "numbers above 0", &scale->low},
                   {"high_freq_factor", DBL_MIN, "numbers above 0", &scale->high},
                   {"original_max_position_embeddings", 1, "integers from 1 on", &scale->original}};
    rp_status status = RP_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const json_t *value = rp_hf_get(r, numbers[i].key);
        *numbers[i].value = json_number_value(value);
        if (!json_is_number(value) || *numbers[i].value < numbers[i].least) {
            status = refuse(r, numbers[i].key, numbers[i].valid);
        }
    }
    if (status == RP_OK && scale->high <= scale->low) {
        return rp_hf_refuse(r, "high_freq_factor", "", "numbers above low_freq_factor");
    }
    return status;
}

/* transformers' get_mscale. */
static double attention_of(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

/* A number that may be null or 0, which transformers treats as absent. */
static rp_status read_optional(const rp_hf_config *r, const char *key, double *value)
{
    const json_t *given = rp_hf_get(r, key);
    if (given == NULL || json_is_null(given) ||
        (json_is_number(given) && json_number_value(given) == 0)) {
        return RP_OK;
    }
    return rp_hf_number(r, key, value);
}

/* The original length must be there: by default it would be the model's longest sequence. */
static rp_status read_yarn(const rp_hf_config *r, rp_rope_yarn *yarn)
{
    static const char length[] = "original_max_position_embeddings";
    double scale = 0;
    double all = 0;
    const json_t *truncate = rp_hf_get(r, "truncate");
    *yarn = (rp_rope_yarn){.fast = 32, .slow = 1, .truncate = true};
    if (truncate != NULL && !json_is_boolean(truncate)) {
        return refuse(r, "truncate", "true and false");
    }
    yarn->truncate = truncate == NULL || json_is_true(truncate);
    RP_TRY(rp_hf_number(r, "factor", &yarn->factor));
    if (yarn->factor < 1) {
        return refuse(r, "factor", "numbers from 1 on");
    }
    RP_TRY(rp_hf_number(r, length, &yarn->original));
    RP_TRY(read_optional(r, "beta_fast", &yarn->fast));
    RP_TRY(read_optional(r, "beta_slow", &yarn->slow));
    RP_TRY(read_optional(r, "mscale", &scale));
    RP_TRY(read_optional(r, "mscale_all_dim", &all));
    yarn->attention = scale != 0 && all != 0
                          ? attention_of(yarn->factor, scale) / attention_of(yarn->factor, all)
                          : attention_of(yarn->factor, 1);
    const json_t *given = rp_hf_get(r, "attention_factor");
    return given == NULL || json_is_null(given)
               ? RP_OK
               : rp_hf_number(r, "attention_factor", &yarn->attention);
}

/* Factors: a number above 0 for each frequency. */
static rp_status read_factors(const rp_hf_config *r, const char *key, const rp_model *m,
                              rp_arena *arena, const double **factors_out)
{
    const json_t *list = rp_hf_get(r, key);
    size_t count = (m->rotated != 0 ? m->rotated : m->head_dim) / 2;
    double *factors = NULL;
    const char *valid = "";
    bool right = json_array_size(list) == count;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *factors, &factors));
    RP_TRY(rp_arena_print(arena, &valid,
                          "lists of %zu numbers above 0, one for every two rotated values of a "
                          "head",
                          count));
    for (size_t i = 0; right && i < count; i++) {
        factors[i] = json_number_value(json_array_get(list, i));
        right = factors[i] > 0;
    }
    *factors_out = factors;
    return right ? RP_OK : refuse(r, key, valid);
}

/* Phi-3's class has the original length outside of the object, and ignores a length inside. For
 * other families the object must hold the length, as with YaRN. */
static rp_status read_longrope(const rp_hf_config *r, rp_arena *arena, rp_model *m)
{
    static const char length[] = "original_max_position_embeddings";
    rp_rope_long *l = &m->longrope;
    double inside = l->original;
    RP_TRY(rp_hf_number(r, length, &inside));
    if (l->original != 0 && inside != l->original) {
        return rp_hf_refuse(r, length, "differs from the one outside, which is 4096 if missing",
                            "equal ones");
    }
    l->original = inside;
    if (inside <= 1) {
        return refuse(r, length, "integers from 2 on");
    }
    double factor = m->max_positions / l->original;
    RP_TRY(read_factors(r, "short_factor", m, arena, &l->short_factors));
    RP_TRY(read_factors(r, "long_factor", m, arena, &l->long_factors));
    RP_TRY(read_optional(r, "factor", &factor));
    l->attention = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(l->original));
    return read_optional(r, "attention_factor", &l->attention);
}

/* Phi-3 has a single scaling, which older files call by other names. */
static bool is_longrope(const char *type, bool phi3)
{
    return type != NULL && (strcmp(type, "longrope") == 0 ||
                            (phi3 && (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0)));
}

/* `rope_type` was called `type`, and is "default" if it is missing. */
static rp_status read_rope_type(const rp_hf_config *r, rp_arena *arena, rp_model *m)
{
    const json_t *older = rp_hf_get(r, "type");
    const json_t *newer = rp_hf_get(r, "rope_type");
    const json_t *name = newer != NULL ? newer : older;
    const char *type = name != NULL ? json_string_value(name) : "default";
    m->rope_scaling = "none";
    if (is_longrope(type, m->joined)) {
        m->rope_scaling = "longrope";
        return read_longrope(r, arena, m);
    }
    if (m->joined && (type == NULL || strcmp(type, "default") != 0)) {
        return refuse(r, newer != NULL ? "rope_type" : "type", "default and longrope");
    }
    if (type != NULL && strcmp(type, "llama3") == 0) {
        m->rope_scaling = "llama3";
        return read_llama3(r, &m->rope);
    }
    if (type != NULL && strcmp(type, "yarn") == 0) {
        m->rope_scaling = "yarn";
        return read_yarn(r, &m->yarn);
    }
    if (type != NULL && strcmp(type, "linear") == 0) {
        m->rope_scaling = "linear";
        m->rope.factor = 0; /* transformers has no default, either */
        return rp_hf_number(r, "factor", &m->rope.factor);
    }
    return type != NULL && strcmp(type, "default") == 0
               ? RP_OK
               : refuse(r, newer != NULL ? "rope_type" : "type",
                        "default, linear, llama3, longrope and yarn");
}

/* Phi-3 rotates only a part of each head: the number of values is cut to a whole number, as in
 * transformers. */
static rp_status read_rotated(const rp_hf_config *r, rp_model *m)
{
    double share = 1;
    if (!m->joined || json_object_get(r->values, "partial_rotary_factor") == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_hf_number(r, "partial_rotary_factor", &share));
    m->rotated = (uint32_t)(m->head_dim * share);
    return share <= 1 && m->rotated >= 2
               ? RP_OK
               : refuse(r, "partial_rotary_factor", "numbers up to 1 that leave two values a head");
}

static rp_status read_rope_object(const rp_hf_config *r, rp_arena *arena, rp_model *m)
{
    RP_TRY(rp_hf_number(r, "rope_theta", &m->rope_theta));
    RP_TRY(read_rotated(r, m));
    rp_status type = read_rope_type(r, arena, m);
    rp_status rest = rpexec_config_check_rest(r);
    return type != RP_OK ? type : rest;
}

/* Defaults of the families' classes: 10000 and no scaling, except for gpt-oss and Gemma 3. */
static void set_rope_defaults(const rp_hf_config *r, bool by_kind, rp_model *m)
{
    m->rope_theta = r->family->sinks ? 150000 : by_kind ? 1e6 : 10000;
    m->local_theta = by_kind ? 10000 : 0;
    m->rope_scaling = r->family->sinks ? "yarn" : "none";
    m->yarn = RP_ROPE_GPT_OSS;
    m->longrope = (rp_rope_long){.original = m->joined ? 4096 : 0};
}

typedef rp_status rope_reader(const rp_hf_config *r, rp_arena *arena, rp_model *m);

/* Reads an object inside of another; a missing or empty object sets nothing. */
static rp_status read_inside(const rp_hf_config *r, const char *name, const json_t *object,
                             rope_reader *reader, rp_arena *arena, rp_model *m)
{
    if (object == NULL || rp_hf_is_empty(object)) {
        return RP_OK;
    }
    rp_hf_config inner;
    if (!json_is_object(object)) {
        return refuse(r, name, "null and objects");
    }
    RP_TRY(rp_hf_open(r, name, object, &inner));
    rp_status status = reader(&inner, arena, m);
    rp_hf_close(&inner);
    return status;
}

/* Gemma 3's two objects, for layers without and with a window. local_theta is set already. */
static rp_status read_rope_objects(const rp_hf_config *r, rp_arena *arena, rp_model *m)
{
    rp_model local = {.rope_theta = m->local_theta, .rope_scaling = "none"};
    RP_TRY(read_inside(r, "full_attention", rp_hf_get(r, "full_attention"), read_rope_object, arena,
                       m));
    RP_TRY(read_inside(r, "sliding_attention", rp_hf_get(r, "sliding_attention"), read_rope_object,
                       arena, &local));
    if (strcmp(local.rope_scaling, "none") != 0) {
        return rp_hf_refuse(r, "sliding_attention", "layers with windows are not scaled",
                            "those with rope_type default");
    }
    m->local_theta = local.rope_theta;
    return rpexec_config_check_rest(r);
}

/* rope_theta with rope_scaling, or rope_parameters with all of it; 10000 if the file has no
 * rope_theta. */
static rp_status read_rope(const rp_hf_config *r, rp_arena *arena, rp_model *m)
{
    const json_t *newer = rp_hf_get(r, "rope_parameters");
    const json_t *older = rp_hf_get(r, "rope_scaling");
    const json_t *theta = json_object_get(r->values, "rope_theta");
    bool by_kind = strcmp(r->family->type, "gemma3_text") == 0;
    set_rope_defaults(r, by_kind, m);
    RP_TRY(read_rotated(r, m));
    RP_TRY(rp_hf_number(r, "rope_theta", &m->rope_theta));
    if (by_kind) {
        RP_TRY(rp_hf_number(r, "rope_local_base_freq", &m->local_theta));
    }
    if (m->joined) {
        RP_TRY(rp_hf_number(r, "original_max_position_embeddings", &m->longrope.original));
    }
    bool is_newer = newer != NULL && !rp_hf_is_empty(newer);
    if (is_newer && older != NULL && !rp_hf_is_empty(older)) {
        return rp_hf_refuse(r, "rope_scaling", "rope_parameters is there, too", "one of them");
    }
    double outer = m->rope_theta;
    rp_status status = is_newer
                           ? read_inside(r, "rope_parameters", newer,
                                         by_kind ? read_rope_objects : read_rope_object, arena, m)
                           : read_inside(r, "rope_scaling", older, read_rope_object, arena, m);
    if (status == RP_OK && theta != NULL && m->rope_theta != outer) {
        return rp_hf_refuse(r, "rope_theta", "differs from the one inside", "equal ones");
    }
    return status;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Keys that this file or rp_hf_read_shapes reads, and that are computed. */
static const char *const computed[] = {"model_type",          "num_hidden_layers",
                                       "hidden_size",         "num_attention_heads",
                                       "num_key_value_heads", "head_dim",
                                       "vocab_size",          "max_position_embeddings",
                                       "rms_norm_eps",        "tie_word_embeddings",
                                       "hidden_act"};
static const char *const computed_dense[] = {"intermediate_size"};
static const char *const computed_windows[] = {"sliding_window", "use_sliding_window",
                                               "max_window_layers"};
static const char *const computed_mixture[] = {
    "num_experts",         "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
    "decoder_sparse_step", "mlp_only_layers",   "norm_topk_prob"};

static const char *const computed_experts[] = {"num_local_experts", "num_experts_per_tok",
                                               "intermediate_size"};

static bool is_mixture(const rp_hf_config *r)
{
    return r->family->mixture != RP_HF_DENSE;
}

static void take(const rp_hf_config *r, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)rp_hf_get(r, keys[i]);
    }
}

#define TAKE(r, keys) take(r, keys, sizeof(keys) / sizeof *(keys))

/* Keys that the named families' classes have and the other classes ignore. */
static void take_family(const rp_hf_config *r)
{
    static const struct {
        const char *family;
        const char *key;
    } own[] = {{"llama", "attention_bias"},
               {"llama", "mlp_bias"},
               {"qwen3", "attention_bias"},
               {"qwen3", "layer_types"},
               {"qwen3_moe", "attention_bias"},
               {"qwen2", "layer_types"},
               {"gemma2", "attention_bias"},
               {"gemma2", "layer_types"},
               {"gemma3_text", "attention_bias"},
               {"gemma3_text", "layer_types"},
               {"gemma3_text", "sliding_window_pattern"},
               {"gemma3_text", "_sliding_window_pattern"},
               {"gpt_oss", "attention_bias"},
               {"gpt_oss", "layer_types"},
               {"gpt_oss", "experts_per_token"},
               {"gpt_oss", "initial_context_length"}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(own[i].family, r->family->type) == 0) {
            (void)rp_hf_get(r, own[i].key);
        }
    }
}

/* Training requires sizes for which transformers has defaults. */
static rp_status check_required(const rp_hf_config *r)
{
    static const char *const dense[] = {"num_hidden_layers",   "hidden_size",
                                        "num_attention_heads", "vocab_size",
                                        "rms_norm_eps",        "max_position_embeddings",
                                        "intermediate_size",   NULL};
    static const char *const mixture[] = {"num_hidden_layers",     "hidden_size",
                                          "num_attention_heads",   "vocab_size",
                                          "rms_norm_eps",          "max_position_embeddings",
                                          "num_local_experts",     "num_experts_per_tok",
                                          "moe_intermediate_size", NULL};
    static const char *const others[] = {"num_hidden_layers",   "hidden_size",
                                         "num_attention_heads", "vocab_size",
                                         "rms_norm_eps",        "max_position_embeddings",
                                         "num_local_experts",   "num_experts_per_tok",
                                         "intermediate_size",   NULL};
    const char *const *keys = !is_mixture(r)                             ? dense
                              : r->family->mixture == RP_HF_STEP_EXPERTS ? mixture
                                                                         : others;
    for (const char *const *key = keys; *key != NULL; key++) {
        bool experts = strcmp(*key, "num_local_experts") == 0;
        bool there = json_object_get(r->values, *key) != NULL ||
                     (experts && json_object_get(r->values, "num_experts") != NULL);
        if (!there) {
            return refuse(r, *key,
                          strcmp(*key, "rms_norm_eps") == 0 ? "numbers above 0"
                                                            : "integers from 1 on");
        }
    }
    return RP_OK;
}

/* Every layer has experts in all published models of the family. */
static rp_status check_experts(const rp_hf_config *r)
{
    const json_t *step = json_object_get(r->values, "decoder_sparse_step");
    const json_t *dense = json_object_get(r->values, "mlp_only_layers");
    if (step != NULL && json_integer_value(step) != 1) {
        return refuse(r, "decoder_sparse_step", "1");
    }
    return dense == NULL || rp_hf_is_empty(dense) ? RP_OK : refuse(r, "mlp_only_layers", "none");
}

/* Refuses a family, and names the parts of its layers that are not computed. */
static rp_status refuse_family(const rp_hf_config *r, const rp_hf_family *f, rp_arena *arena)
{
    bool sharing = f->shared_experts != 0 || strstr(f->keys, "shared") != NULL;
    const struct {
        bool has;
        const char *text;
    } features[] = {{f->latent, "latent attention (MLA)"},
                    {sharing, "shared experts"},
                    {f->wide_qk_norm, "norms of queries and keys over all heads"},
                    {f->gemma, "scaled embeddings, gates of GELU and norms of 1 + w"},
                    {f->other_values != NULL, f->other_values}};
    const char *list = "";
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if (features[i].has) {
            RP_TRY(rp_arena_print(arena, &list, "%s%s%s", list, list[0] != '\0' ? ", " : "",
                                  features[i].text));
        }
    }
    RP_TRY(rp_arena_print(arena, &list, "%s has %s, which the executor does not compute", f->type,
                          list[0] != '\0' ? list : "tensors of other names"));
    return rp_hf_refuse(r, "model_type", list, FAMILIES);
}

static bool is_computed(const rp_hf_family *f)
{
    bool found = false;
    for (size_t i = 0; !found && rpexec_model_families[i] != NULL; i++) {
        found = strcmp(rpexec_model_families[i], f->type) == 0;
    }
    return found;
}

static rp_status read_family(rp_hf_config *r, const char *assume, rp_arena *arena)
{
    const json_t *type = json_object_get(r->values, "model_type");
    RP_TRY(rp_hf_choose_family(r, type, assume, FAMILIES, is_computed, arena));
    return is_computed(r->family) ? RP_OK : refuse_family(r, r->family, arena);
}

/* Experts' weights may be packed as MXFP4. The list of modules that are not packed is ignored: the
 * tensors themselves show it. */
static rp_status read_gate(const rp_hf_config *r, rp_model *m)
{
    const json_t *packed = rp_hf_get(r, "quantization_config");
    const char *method = json_string_value(json_object_get(packed, "quant_method"));
    if (packed != NULL && !json_is_null(packed) &&
        (method == NULL || strcmp(method, "mxfp4") != 0)) {
        return refuse(r, "quantization_config", "null and those with quant_method mxfp4");
    }
    m->gate = RP_GATE_GPT_OSS;
    RP_TRY(rp_hf_number(r, "swiglu_alpha", &m->gate.alpha));
    return rp_hf_number(r, "swiglu_limit", &m->gate.limit);
}

/* A cap; null means no cap. */
static rp_status read_cap(const rp_hf_config *r, const char *key, double missing, double *cap_out)
{
    const json_t *value = rp_hf_get(r, key);
    *cap_out = value == NULL ? missing : 0;
    return value == NULL || json_is_null(value) ? RP_OK : rp_hf_number(r, key, cap_out);
}

static rp_status read_activation(const rp_hf_config *r, rp_model *m)
{
    const char *key = m->gelu_gate ? "hidden_activation" : "hidden_act";
    const char *valid = m->gelu_gate ? "gelu_pytorch_tanh" : "silu";
    const json_t *value = rp_hf_get(r, key);
    const char *activation = json_string_value(value);
    bool missing = m->gelu_gate && value == NULL;
    return missing || (activation != NULL && strcmp(activation, valid) == 0)
               ? RP_OK
               : refuse(r, key, valid);
}

/* Gemma 2 and 3: defaults are those of transformers' classes. */
static rp_status read_gemma(const rp_hf_config *r, rp_model *m)
{
    bool caps = strcmp(r->family->type, "gemma2") == 0;
    double scalar = 256;
    if (!r->family->gemma) {
        return RP_OK;
    }
    RP_TRY(rp_hf_number(r, "query_pre_attn_scalar", &scalar));
    RP_TRY(read_cap(r, "attn_logit_softcapping", caps ? 50 : 0, &m->attention_cap));
    if (!caps && m->attention_cap != 0) {
        return rp_hf_refuse(r, "attn_logit_softcapping", "transformers does not apply Gemma 3's",
                            "null");
    }
    RP_TRY(read_cap(r, "final_logit_softcapping", caps ? 30 : 0, &m->logit_cap));
    m->attention_scale = 1 / sqrt(scalar);
    return RP_OK;
}

/* True if the key's value is the token, or a list that contains it. */
static bool has_token(const rp_hf_config *r, const char *key, uint32_t token)
{
    const json_t *value = rp_hf_get(r, key);
    bool found = json_is_integer(value) && json_integer_value(value) == token;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        found |= json_is_integer(one) && json_integer_value(one) == token;
    }
    return found;
}

/* Without eos_token_id the end token is the default of transformers' class. */
static bool is_end(const rp_hf_config *r, uint32_t token)
{
    static const struct {
        const char *type;
        uint32_t eos;
    } usual[] = {{"llama", 2},    {"mistral", 2}, {"mixtral", 2},
                 {"phi3", 32000}, {"gemma2", 1},  {"gemma3_text", 1}};
    bool found = has_token(r, "eos_token_id", token);
    bool missing = rp_hf_get(r, "eos_token_id") == NULL;
    for (size_t i = 0; missing && i < sizeof usual / sizeof usual[0]; i++) {
        found |= strcmp(usual[i].type, r->family->type) == 0 && usual[i].eos == token;
    }
    return found;
}

/* The row of the embedding that is not trained. As in PyTorch, negative numbers count from the end
 * of the table. */
static rp_status read_padding(const rp_hf_config *r, rp_model *m)
{
    const json_t *value = rp_hf_get(r, "pad_token_id");
    value = value != NULL ? value : json_object_get(r->defaults, "pad_token_id");
    if (value == NULL || json_is_null(value)) {
        return RP_OK;
    }
    json_int_t rows = m->vocab;
    json_int_t token = json_integer_value(value);
    if (!json_is_integer(value) || token >= rows || token < -rows) {
        return refuse(r, "pad_token_id", "null and tokens below vocab_size");
    }
    m->has_padding = true;
    m->padding_token = (uint32_t)(token < 0 ? token + rows : token);
    m->padding_begins = has_token(r, "bos_token_id", m->padding_token);
    m->padding_ends = is_end(r, m->padding_token);
    return RP_OK;
}

/* Reads the keys that do not describe shapes. `rest` holds all keys that are not computed. */
static rp_status read_rest(rp_hf_config *r, rp_arena *arena, rp_model *m)
{
    RP_TRY(rp_hf_rewind(r));
    RP_TRY(read_activation(r, m));
    RP_TRY(read_gemma(r, m));
    TAKE(r, computed);
    if (r->family->mixture == RP_HF_STEP_EXPERTS) {
        TAKE(r, computed_mixture);
    } else if (is_mixture(r)) {
        TAKE(r, computed_experts);
    } else {
        TAKE(r, computed_dense);
    }
    if (r->family->windows != RP_HF_NO_WINDOWS) {
        TAKE(r, computed_windows);
    }
    take_family(r);
    rp_status gate = r->family->sinks ? read_gate(r, m) : RP_OK;
    rp_status padding = read_padding(r, m);
    rp_status rope = read_rope(r, arena, m);
    rp_status rest = rpexec_config_check_rest(r);
    return gate != RP_OK ? gate : padding != RP_OK ? padding : rope != RP_OK ? rope : rest;
}

static rp_status read_model(rp_hf_config *r, rp_arena *arena, void *context, rp_model *m)
{
    RP_TRY(read_family(r, context, arena));
    RP_TRY(check_required(r));
    RP_TRY(rp_hf_read_shapes(r, arena, m));
    RP_TRY(is_mixture(r) ? check_experts(r) : RP_OK);
    return read_rest(r, arena, m);
}

rp_status rpexec_config_load(const char *path, const char *assume, rp_arena *arena,
                             rp_model *model_out)
{
    return rp_hf_read(path, read_model, (void *)(uintptr_t)assume, arena, model_out);
}
