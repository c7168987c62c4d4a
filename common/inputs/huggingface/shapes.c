/* Shapes of a model from the keys of its family. */
#include "common/formats/json_read.h"
#include "common/inputs/huggingface/config.h"

#include <stdio.h>
#include <string.h>

/* Properties in which layers differ. */
typedef struct layer {
    bool experts;
    bool window;
} layer;

typedef struct shapes {
    rp_model *model;             /* the kind with experts, if there is such a kind */
    uint32_t dense_intermediate; /* width of layers without experts, in models with both kinds */
    uint32_t window;             /* tokens; 0: no layer has a window */
    layer *layers;
} shapes;

static bool has_key(const rp_hf_config *r, const char *key)
{
    return json_object_get(r->defaults, key) != NULL;
}

/* The family's name of a key, among several; NULL: it has no such key. */
static const char *own_name(const rp_hf_config *r, const char *const *names)
{
    while (*names != NULL && !has_key(r, *names)) {
        names++;
    }
    return *names;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static rp_status read_heads(const rp_hf_config *r, rp_model *m)
{
    const rp_hf_family *f = r->family;
    RP_TRY(rp_hf_count(r, "num_attention_heads", 0, false, &m->heads));
    RP_TRY(rp_hf_count(r, "num_key_value_heads", m->heads, f->null_kv_heads, &m->kv_heads));
    if (f->latent) {
        return RP_OK;
    }
    uint32_t share = m->hidden / m->heads;
    m->head_dim = share;
    RP_TRY(f->own_head_dim ? RP_OK
                           : rp_hf_count(r, "head_dim", share, f->null_head_dim, &m->head_dim));
    if (m->head_dim == 0) {
        return rp_hf_refuse(r, "hidden_size", "", "integers from num_attention_heads on");
    }
    if (f->whole_heads && (uint64_t)m->heads * m->head_dim != m->hidden) {
        return rp_hf_refuse(r, "head_dim", "", "hidden_size / num_attention_heads");
    }
    return m->heads % m->kv_heads == 0
               ? RP_OK
               : rp_hf_refuse(r, "num_key_value_heads", "", "divisors of num_attention_heads");
}

/* Reads DeepSeek-V2's attention (arXiv 2405.04434, table of section 2.1 and appendix C). If a class
 * has null as its length of values, values are as long as a head. */
static rp_status read_latent(const rp_hf_config *r, rp_model *m)
{
    uint32_t kept = 0;
    const json_t *q_rank = json_object_get(r->values, "q_lora_rank");
    q_rank = q_rank != NULL ? q_rank : json_object_get(r->defaults, "q_lora_rank");
    bool plain = json_is_null(q_rank);
    bool share = json_is_null(json_object_get(r->defaults, "v_head_dim"));
    RP_TRY(rp_hf_count(r, "kv_lora_rank", 0, false, &m->kv_rank));
    RP_TRY(rp_hf_count(r, "q_lora_rank", 1, plain, &m->q_rank));
    RP_TRY(rp_hf_count(r, "qk_rope_head_dim", 0, false, &m->rope_dim));
    RP_TRY(rp_hf_count(r, "qk_nope_head_dim", 0, false, &kept));
    RP_TRY(rp_hf_count(r, "v_head_dim", share ? m->hidden / m->heads : 0, share, &m->value_dim));
    m->q_rank = plain ? 0 : m->q_rank;
    m->head_dim = kept + m->rope_dim;
    m->kv_heads = m->heads;
    return RP_OK;
}

static rp_status read_sizes(const rp_hf_config *r, rp_model *m)
{
    static const char *const norms[] = {"rms_norm_eps", "layer_norm_eps", "norm_epsilon",
                                        "norm_eps", NULL};
    const char *eps = own_name(r, norms);
    RP_TRY(rp_hf_count(r, "num_hidden_layers", 0, false, &m->layers));
    RP_TRY(rp_hf_count(r, "hidden_size", 0, false, &m->hidden));
    RP_TRY(read_heads(r, m));
    if (r->family->latent) {
        RP_TRY(read_latent(r, m));
    }
    RP_TRY(rp_hf_count(r, "vocab_size", 0, false, &m->vocab));
    RP_TRY(rp_hf_count(r, "max_position_embeddings", 0, false, &m->max_positions));
    m->norm_eps = json_number_value(json_object_get(r->defaults, eps));
    return rp_hf_number(r, eps, &m->norm_eps);
}

/* A bias whose key the family does not have is left in `rest`. */
static rp_status read_biases(const rp_hf_config *r, rp_model *m)
{
    static const struct {
        const char *key;
        bool qkv, output, mlp;
    } biases[] = {{"attention_bias", true, true, false}, {"attention_out_bias", false, true, false},
                  {"qkv_bias", true, false, false},      {"use_qkv_bias", true, false, false},
                  {"mlp_bias", false, false, true},      {"use_bias", true, true, true}};
    const rp_hf_family *f = r->family;
    m->qkv_bias = f->qkv_bias;
    for (size_t i = 0; i < sizeof biases / sizeof biases[0]; i++) {
        bool has = false;
        bool bare = f->bare_output && i == 0;
        RP_TRY(has_key(r, biases[i].key) ? rp_hf_flag(r, biases[i].key, &has) : RP_OK);
        if (has && biases[i].mlp && f->router_bias) {
            return rp_hf_refuse(r, biases[i].key, "a bias of the head is not described", "false");
        }
        if (!has && i == 0 && f->sinks) {
            return rp_hf_refuse(r, biases[i].key, "sinks without biases are not described", "true");
        }
        m->qkv_bias = m->qkv_bias || (has && biases[i].qkv);
        m->output_bias = m->output_bias || (has && biases[i].output && !bare);
        m->mlp_bias = m->mlp_bias || (has && biases[i].mlp);
    }
    if (f->sinks) {
        m->attention_bias = m->expert_bias = true;
        m->qkv_bias = m->output_bias = false;
    }
    return RP_OK;
}

/* Reads norms, some of which depend on a key. */
static rp_status read_norms(const rp_hf_config *r, rp_model *m)
{
    static const char *const inner[] = {"use_qk_norm", "qk_layernorm", NULL};
    const rp_hf_family *f = r->family;
    const char *key = own_name(r, inner);
    bool parallel = false;
    m->qk_norm = f->qk_norm;
    m->four_norms = f->four_norms;
    RP_TRY(key != NULL ? rp_hf_flag(r, key, &m->qk_norm) : RP_OK);
    m->wide_qk_norm = m->qk_norm && f->wide_qk_norm;
    RP_TRY(has_key(r, "use_post_norm") ? rp_hf_flag(r, "use_post_norm", &m->four_norms) : RP_OK);
    RP_TRY(has_key(r, "use_parallel_residual") ? rp_hf_flag(r, "use_parallel_residual", &parallel)
                                               : RP_OK);
    m->one_norm = f->one_norm || parallel;
    return RP_OK;
}

/* ---- experts --------------------------------------------------------------------------------- */

static rp_status count_experts(const rp_hf_config *r, rp_model *m)
{
    static const char *const names[] = {"num_experts", "num_local_experts", "n_routed_experts",
                                        "moe_num_experts", NULL};
    static const char *const active[] = {"num_experts_per_tok", "moe_k", "moe_topk", NULL};
    const char *key = own_name(r, names);
    const char *each = own_name(r, active);
    RP_TRY(rp_hf_count(r, key, 0, false, &m->experts));
    if (m->experts < 2) {
        return rp_hf_refuse(r, key, "", "integers from 2 on");
    }
    RP_TRY(rp_hf_count(r, each, 0, false, &m->active_experts));
    return m->active_experts >= 1 && m->active_experts <= m->experts
               ? RP_OK
               : rp_hf_refuse(r, each, "", "integers from 1 to num_experts");
}

/* Reads the width of the shared experts: given as such, or as a number of experts. */
static rp_status read_shared(const rp_hf_config *r, rp_model *m)
{
    static const char *const widths[] = {"shared_expert_intermediate_size",
                                         "shared_intermediate_size", NULL};
    static const char *const counts[] = {"n_shared_experts", "num_shared_experts",
                                         "moe_num_shared_experts", NULL};
    const char *width = own_name(r, widths);
    const char *key = own_name(r, counts);
    uint32_t count = r->family->shared_experts;
    m->shared_gate = r->family->shared_gate;
    if (width != NULL) {
        return rp_hf_count(r, width, 0, false, &m->shared_intermediate);
    }
    RP_TRY(key != NULL ? rp_hf_count(r, key, 0, false, &count) : RP_OK);
    m->shared_intermediate = count * m->intermediate;
    return key == NULL || count != 0 || !m->mlp_bias
               ? RP_OK
               : rp_hf_refuse(r, key, "biases of none are not described", "integers from 1 on");
}

/* The layers in a list have experts, or have none; a missing or null list changes nothing. */
static rp_status place_list(const rp_hf_config *r, const char *key, bool experts, shapes *s)
{
    const json_t *list = rp_hf_get(r, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t at = json_integer_value(json_array_get(list, i));
        if (at < s->model->layers) {
            s->layers[at].experts = experts;
        }
    }
    return RP_OK;
}

/* Puts experts into every `step`-th layer, beginning with layer step - 1. */
static void place_every(shapes *s, uint32_t step)
{
    for (uint32_t i = 0; i < s->model->layers; i++) {
        s->layers[i].experts = (i + 1) % step == 0;
    }
}

static rp_status place_late(const rp_hf_config *r, shapes *s)
{
    uint32_t first = r->family->dense_first;
    const json_t *every = rp_hf_get(r, "moe_layer_freq"); /* transformers' class has none */
    RP_TRY(has_key(r, "first_k_dense_replace")
               ? rp_hf_count(r, "first_k_dense_replace", 0, false, &first)
               : RP_OK);
    if (every != NULL && json_integer_value(every) != 1) {
        return rp_hf_refuse(r, "moe_layer_freq", "", "integers from 1 to 1");
    }
    for (uint32_t i = first; i < s->model->layers; i++) {
        s->layers[i].experts = true;
    }
    return RP_OK;
}

static rp_status place_range(const rp_hf_config *r, shapes *s)
{
    uint32_t first = 0;
    uint32_t last = 0;
    uint32_t every = 1;
    RP_TRY(rp_hf_count(r, "moe_layer_start_index", 0, false, &first));
    RP_TRY(rp_hf_count(r, "moe_layer_end_index", 0, false, &last)); /* -1: the last layer */
    RP_TRY(rp_hf_count(r, "moe_layer_interval", 0, false, &every));
    place_every(s, every);
    for (uint32_t i = 0; i < s->model->layers; i++) {
        s->layers[i].experts = s->layers[i].experts && i >= first && i <= last;
    }
    return RP_OK;
}

/* Reads a list with "sparse" or "dense" for each layer. */
static rp_status place_mlp_types(const rp_hf_config *r, const json_t *types, shapes *s)
{
    bool right = json_array_size(types) == s->model->layers;
    for (uint32_t i = 0; i < s->model->layers && right; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        s->layers[i].experts = strcmp(type, "sparse") == 0;
        right = s->layers[i].experts || strcmp(type, "dense") == 0;
    }
    return right ? RP_OK
                 : rp_hf_refuse(r, "mlp_layer_types", "",
                                "null and a list with sparse or dense for each layer");
}

static rp_status place_experts(const rp_hf_config *r, shapes *s)
{
    uint32_t step = 1;
    switch (r->family->mixture) {
    case RP_HF_DENSE:
        return RP_OK;
    case RP_HF_ALL_EXPERTS:
        place_every(s, 1);
        return RP_OK;
    case RP_HF_STEP_EXPERTS:
        RP_TRY(rp_hf_count(r, "decoder_sparse_step", 0, false, &step));
        place_every(s, step);
        return place_list(r, "mlp_only_layers", false, s);
    case RP_HF_EVERY_EXPERTS:
        RP_TRY(rp_hf_count(r, "interleave_moe_layer_step", 0, false, &step));
        if (!json_is_array(json_object_get(r->values, "moe_layers"))) {
            place_every(s, step);
        }
        return place_list(r, "moe_layers", true, s);
    case RP_HF_RANGE_EXPERTS:
        return place_range(r, s);
    case RP_HF_LATE_EXPERTS:
        break;
    }
    const json_t *types = has_key(r, "mlp_layer_types") ? rp_hf_get(r, "mlp_layer_types") : NULL;
    RP_TRY(place_late(r, s));
    return json_is_array(types) ? place_mlp_types(r, types, s) : RP_OK;
}

static rp_status read_experts(const rp_hf_config *r, shapes *s)
{
    static const char *const dense[] = {"intermediate_size_mlp", "intermediate_size", NULL};
    static const char *const own[] = {"moe_intermediate_size", "intermediate_size", NULL};
    rp_model *m = s->model;
    m->experts = m->active_experts = 1;
    if (r->family->mixture == RP_HF_DENSE) {
        return rp_hf_count(r, "intermediate_size", 0, false, &m->intermediate);
    }
    RP_TRY(count_experts(r, m));
    RP_TRY(rp_hf_count(r, own_name(r, own), 0, false, &m->intermediate));
    if (m->intermediate == 0) {
        return rp_hf_refuse(r, own_name(r, own), "", "integers from 1 on");
    }
    RP_TRY(read_shared(r, m));
    RP_TRY(place_experts(r, s));
    bool sparse = true;
    for (uint32_t i = 0; i < m->layers; i++) {
        sparse = sparse && s->layers[i].experts;
    }
    (void)rp_hf_get(r, own_name(r, dense));
    if (!sparse) {
        RP_TRY(rp_hf_count(r, own_name(r, dense), 0, false, &s->dense_intermediate));
    }
    if (r->family->mixture == RP_HF_STEP_EXPERTS) {
        bool normalised = false;
        RP_TRY(rp_hf_flag(r, "norm_topk_prob", &normalised));
        m->raw_routing = !normalised;
    }
    return RP_OK;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Reads the kind of attention of each layer. Chunks do not count as windows. */
static rp_status place_types(const rp_hf_config *r, const json_t *types, shapes *s)
{
    bool chunks = r->family->windows == RP_HF_CHUNKS;
    const char *valid = chunks ? "a list with chunked_attention or full_attention for each layer"
                               : "a list with sliding_attention or full_attention for each layer";
    if (!json_is_array(types) || json_array_size(types) != s->model->layers) {
        return rp_hf_refuse(r, "layer_types", "", valid);
    }
    for (uint32_t i = 0; i < s->model->layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        s->layers[i].window = !chunks && strcmp(type, "sliding_attention") == 0;
        bool known = s->layers[i].window || strcmp(type, "full_attention") == 0 ||
                     (chunks && strcmp(type, "chunked_attention") == 0);
        if (!known) {
            return rp_hf_refuse(r, "layer_types", "other kinds of attention are not described",
                                valid);
        }
    }
    return RP_OK;
}

/* Finds the layers that SmolLM3 does not rotate: every n-th layer, or those of a list. */
static rp_status place_unrotated(const rp_hf_config *r, shapes *s)
{
    uint32_t every = 0;
    const json_t *rotated = rp_hf_get(r, "no_rope_layers");
    RP_TRY(rp_hf_count(r, "no_rope_layer_interval", 0, false, &every));
    bool none = json_array_size(rotated) == 0 && r->family->windows == RP_HF_CHUNKS;
    if (json_is_array(rotated) && !none && json_array_size(rotated) != s->model->layers) {
        return rp_hf_refuse(r, "no_rope_layers", "", "a list with 0 or 1 for each layer");
    }
    for (uint32_t i = 0; i < s->model->layers; i++) {
        const json_t *own = json_array_get(rotated, i);
        s->layers[i].window = own != NULL ? json_integer_value(own) == 0 : (i + 1) % every == 0;
    }
    return RP_OK;
}

/* Reads the pattern of windows. It may be a text, which is not used since layer_types comes first
 * (EXAONE 4). */
static rp_status read_pattern(const rp_hf_config *r, uint32_t *every_out)
{
    static const char name[] = "sliding_window_pattern";
    const json_t *value = has_key(r, name) ? rp_hf_get(r, name) : NULL;
    bool typed = json_is_array(json_object_get(r->values, "layer_types"));
    bool none = json_is_null(json_object_get(r->values, "sliding_window"));
    *every_out = r->family->pattern;
    if (value == NULL || typed || none) {
        return RP_OK;
    }
    RP_TRY(rp_hf_count(r, name, 0, false, every_out));
    return *every_out > 0 ? RP_OK : rp_hf_refuse(r, name, "", "integers from 1 on");
}

/* Gives layers a window by layer_types; without it by the family's rule. */
static rp_status place_windows(const rp_hf_config *r, shapes *s)
{
    rp_hf_windows rule = r->family->windows;
    uint32_t limit = 0;
    uint32_t every = 1;
    RP_TRY(has_key(r, "max_window_layers") ? rp_hf_count(r, "max_window_layers", 0, false, &limit)
                                           : RP_OK);
    RP_TRY(read_pattern(r, &every));
    RP_TRY(has_key(r, "no_rope_layers") ? place_unrotated(r, s) : RP_OK);
    for (uint32_t i = 0; i < s->model->layers; i++) {
        bool *window = &s->layers[i].window;
        *window = (rule == RP_HF_UNROTATED_WINDOWS && *window) || rule == RP_HF_ALL_WINDOWS ||
                  (rule == RP_HF_LATE_WINDOWS && i >= limit) ||
                  (rule == RP_HF_FIRST_WINDOWS && i % 2 == 0 && i < limit) ||
                  (rule == RP_HF_PATTERN_WINDOWS && (i + 1) % every != 0) ||
                  (rule == RP_HF_LEADING_WINDOWS && i % every != 0);
    }
    const json_t *types = has_key(r, "layer_types") ? rp_hf_get(r, "layer_types") : NULL;
    return types == NULL || json_is_null(types) ? RP_OK : place_types(r, types, s);
}

static rp_status read_windows(const rp_hf_config *r, shapes *s)
{
    bool asked = true;
    if (r->family->windows == RP_HF_NO_WINDOWS) {
        return RP_OK;
    }
    RP_TRY(has_key(r, "use_sliding_window") ? rp_hf_flag(r, "use_sliding_window", &asked) : RP_OK);
    RP_TRY(place_windows(r, s));
    if (r->family->windows == RP_HF_UNROTATED_WINDOWS) { /* its mask depends only on the list */
        asked = asked || json_is_array(json_object_get(r->values, "layer_types"));
    }
    if (r->family->windows == RP_HF_CHUNKS) {
        const json_t *chunk = rp_hf_get(r, "attention_chunk_size");
        if (!json_is_null(chunk)) {
            rp_hf_warn(r, "attention_chunk_size",
                       "attention in chunks is simulated as full, as that of shorter sequences is");
        }
        return RP_OK;
    }
    const json_t *own = rp_hf_get(r, "sliding_window");
    if (asked && json_is_integer(own) && json_integer_value(own) == 0) {
        return rp_hf_refuse(r, "sliding_window", "a window of 0 tokens leaves nothing to attend to",
                            "whole numbers from 1, and null for none");
    }
    own = own != NULL ? own : json_object_get(r->defaults, "sliding_window");
    s->window = asked ? (uint32_t)json_integer_value(own) : 0;
    for (uint32_t i = 0; i < s->model->layers; i++) {
        s->layers[i].window = s->layers[i].window && s->window != 0;
    }
    return RP_OK;
}

/* ---- kinds of layers ------------------------------------------------------------------------- */

static bool same(const layer *a, const layer *b)
{
    return a->experts == b->experts && a->window == b->window;
}

/* @return whether a file of traces/models could describe the layers: all have experts or none has,
 * and no layer or exactly the even layers have a window. */
static bool is_uniform(const shapes *s)
{
    uint32_t windows = 0;
    uint32_t even = 0;
    for (uint32_t i = 0; i < s->model->layers; i++) {
        if (s->layers[i].experts != s->layers[0].experts) {
            return false;
        }
        windows += s->layers[i].window;
        even += s->layers[i].window && i % 2 == 0;
    }
    return windows == 0 || (even == windows && windows == (s->model->layers + 1) / 2);
}

/* The model as if all its layers were like `own`. */
static rp_model kind_like(const shapes *s, const layer *own)
{
    rp_model kind = *s->model;
    kind.sliding_window = own->window ? s->window : 0;
    if (!own->experts && kind.experts > 1) {
        kind.experts = kind.active_experts = 1;
        kind.intermediate = s->dense_intermediate;
        kind.shared_intermediate = 0;
        kind.shared_gate = false;
        kind.expert_bias = kind.router_bias = false;
    }
    return kind;
}

/* Sets kinds in the order of their first layers. The model's own fields are those of the kind that
 * most layers have. */
static rp_status set_kinds(const shapes *s, rp_arena *arena)
{
    rp_model *m = s->model;
    const layer *found[4];
    uint32_t uses[4] = {0};
    uint32_t count = 0;
    uint8_t *kind_of = NULL;
    rp_model *kinds = NULL;
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof *kind_of, &kind_of));
    RP_TRY(rp_arena_alloc(arena, 4, sizeof *kinds, &kinds));
    for (uint32_t i = 0; i < m->layers; i++) {
        uint32_t k = 0;
        while (k < count && !same(found[k], &s->layers[i])) {
            k++;
        }
        if (k == count) {
            found[count] = &s->layers[i];
            kinds[count++] = kind_like(s, &s->layers[i]);
        }
        kind_of[i] = (uint8_t)k;
        uses[k]++;
    }
    uint32_t most = 0;
    for (uint32_t k = 1; k < count; k++) {
        most = uses[k] > uses[most] ? k : most;
    }
    *m = kinds[most];
    m->sliding_window = s->window;
    m->kinds = kinds;
    m->kind_count = count;
    m->kind_of = kind_of;
    return RP_OK;
}

/* Properties that the family has without a key, and numbers that only rpexec reads. */
static void set_family(const rp_hf_family *f, rp_model *model)
{
    model->family = f->type;
    model->layer_norm = f->layer_norm;
    model->plain_mlp = f->plain_mlp;
    model->joined = f->joined;
    model->router_bias = f->router_bias;
    model->shifted_norms = model->gelu_gate = model->scaled_embedding = f->gemma;
    model->rope_scaling = "none";
    model->yarn = RP_ROPE_GPT_OSS;
    model->gate = RP_GATE_GPT_OSS;
}

/* Marks as read the keys that follow from other keys; refuses a key that transformers reads before
 * all others. */
static rp_status take_derived(const rp_hf_config *r)
{
    char key[32];
    int length = 0;
    const char *list = r->family->derived;
    while (list != NULL && sscanf(list, " %31s%n", key, &length) == 1) {
        (void)rp_hf_get(r, key);
        list += length;
    }
    (void)rp_hf_get(r, "model_type");
    const json_t *single = rp_hf_get(r, "per_layer_config");
    return single == NULL || rp_hf_is_empty(single)
               ? RP_OK
               : rp_hf_refuse(r, "per_layer_config", "shapes of single layers are not described",
                              "null and {}");
}

rp_status rp_hf_read_shapes(rp_hf_config *config, rp_arena *arena, rp_model *model)
{
    shapes s = {.model = model};
    set_family(config->family, model);
    RP_TRY(take_derived(config));
    RP_TRY(read_sizes(config, model));
    RP_TRY(read_biases(config, model));
    RP_TRY(read_norms(config, model));
    RP_TRY(rp_hf_flag(config, "tie_word_embeddings", &model->tied_head));
    RP_TRY(rp_arena_alloc(arena, model->layers, sizeof *s.layers, &s.layers));
    memset(s.layers, 0, model->layers * sizeof *s.layers);
    RP_TRY(read_experts(config, &s));
    RP_TRY(read_windows(config, &s));
    if (is_uniform(&s)) {
        rp_model kind = kind_like(&s, &s.layers[0]);
        *model = kind;
    } else {
        RP_TRY(set_kinds(&s, arena));
    }
    if (rp_model_estimate(model) > RP_MODEL_MAX_PARAMETERS) {
        return rp_hf_refuse(config, "num_hidden_layers", "the model has more than 1e15 parameters",
                            "smaller models");
    }
    rp_model_count(model);
    return RP_OK;
}
