/* Shapes of a model from the keys of its family. Limits are those of files in traces/models. */
#include "common/formats/json_read.h"
#include "common/inputs/huggingface/config.h"

#include <string.h>

#define MOST_WIDTH 1048576u
#define MOST_INTERMEDIATE 4194304u
#define MOST_HEADS 65536u
#define MOST_EXPERTS 65536u
#define MOST_VOCAB 16777216u
#define MOST_POSITIONS 1073741824u

/* Properties in which layers differ. */
typedef struct layer {
    bool experts;
    bool window;
} layer;

typedef struct shapes {
    rp_model *model;             /* of layers with experts where there are any */
    uint32_t dense_intermediate; /* of layers without, where others have them */
    uint32_t window;             /* of the layers that have one; 0: none has */
    layer *layers;
} shapes;

static bool has_default(const rp_hf_config *r, const char *key)
{
    return json_object_get(r->defaults, key) != NULL;
}

/* ---- sizes ------------------------------------------------------------------------------------
 */

static rp_status read_heads(const rp_hf_config *r, rp_model *m)
{
    const rp_hf_family *f = r->family;
    RP_TRY(rp_hf_count(r, "num_attention_heads", 1, MOST_HEADS, 0, false, &m->heads));
    RP_TRY(rp_hf_count(r, "num_key_value_heads", 1, MOST_HEADS, m->heads, f->null_kv_heads,
                       &m->kv_heads));
    if (f->latent) {
        return RP_OK;
    }
    uint32_t share = m->hidden / m->heads;
    share = share > 0 ? share : 1;
    RP_TRY(rp_hf_count(r, "head_dim", 1, MOST_HEADS, share, f->null_head_dim, &m->head_dim));
    return m->heads % m->kv_heads == 0
               ? RP_OK
               : rp_hf_refuse(r, "num_key_value_heads", "", "divisors of num_attention_heads");
}

/* DeepSeek-V2 (arXiv 2405.04434, table of section 2.1 and appendix C). */
static rp_status read_latent(const rp_hf_config *r, rp_model *m)
{
    uint32_t kept = 0;
    const json_t *q_rank = json_object_get(r->values, "q_lora_rank");
    bool plain = q_rank != NULL && json_is_null(q_rank);
    (void)rp_hf_get(r, "head_dim"); /* both follow from the ones below */
    (void)rp_hf_get(r, "qk_head_dim");
    RP_TRY(rp_hf_count(r, "kv_lora_rank", 1, MOST_WIDTH, 0, false, &m->kv_rank));
    RP_TRY(rp_hf_count(r, "q_lora_rank", 1, MOST_WIDTH, 1, plain, &m->q_rank));
    RP_TRY(rp_hf_count(r, "qk_rope_head_dim", 1, MOST_HEADS / 2, 0, false, &m->rope_dim));
    RP_TRY(rp_hf_count(r, "qk_nope_head_dim", 1, MOST_HEADS / 2, 0, false, &kept));
    RP_TRY(rp_hf_count(r, "v_head_dim", 1, MOST_HEADS, 0, false, &m->value_dim));
    m->q_rank = plain ? 0 : m->q_rank;
    m->head_dim = kept + m->rope_dim;
    m->kv_heads = m->heads;
    return RP_OK;
}

static rp_status read_sizes(const rp_hf_config *r, rp_model *m)
{
    RP_TRY(rp_hf_count(r, "num_hidden_layers", 1, RP_MAX_LAYERS, 0, false, &m->layers));
    RP_TRY(rp_hf_count(r, "hidden_size", 1, MOST_WIDTH, 0, false, &m->hidden));
    RP_TRY(read_heads(r, m));
    if (r->family->latent) {
        RP_TRY(read_latent(r, m));
    }
    RP_TRY(rp_hf_count(r, "vocab_size", 1, MOST_VOCAB, 0, false, &m->vocab));
    RP_TRY(
        rp_hf_count(r, "max_position_embeddings", 1, MOST_POSITIONS, 0, false, &m->max_positions));
    m->norm_eps = json_number_value(json_object_get(r->defaults, "rms_norm_eps"));
    return rp_hf_number(r, "rms_norm_eps", &m->norm_eps);
}

/* Where a family has no such key, a file's is left in `rest`. */
static rp_status read_biases(const rp_hf_config *r, rp_model *m)
{
    static const char *const without[] = {"mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", NULL};
    static const char *const with_mlp[] = {"llama", "smollm3", "deepseek_v2", NULL};
    bool attention = true;
    bool mlp = false;
    bool biases = false;
    for (size_t i = 0; without[i] != NULL; i++) {
        attention = attention && strcmp(without[i], r->family->type) != 0;
    }
    for (size_t i = 0; with_mlp[i] != NULL; i++) {
        mlp = mlp || strcmp(with_mlp[i], r->family->type) == 0;
    }
    m->qkv_bias = r->family->qkv_bias;
    if (has_default(r, "qkv_bias")) {
        RP_TRY(rp_hf_flag(r, "qkv_bias", &m->qkv_bias));
    }
    if (attention) {
        RP_TRY(rp_hf_flag(r, "attention_bias", &biases));
    }
    if (r->family->sinks) {
        m->attention_bias = m->expert_bias = true;
        return biases ? RP_OK
                      : rp_hf_refuse(r, "attention_bias", "sinks without biases are not described",
                                     "true");
    }
    m->qkv_bias = m->qkv_bias || biases;
    m->output_bias = biases;
    return mlp ? rp_hf_flag(r, "mlp_bias", &m->mlp_bias) : RP_OK;
}

/* ---- experts ----------------------------------------------------------------------------------
 */

/* By the family's own key or by its other name, as transformers reads it (attribute_map); a name of
 * other families is a key that is not known. */
static rp_status count_experts(const rp_hf_config *r, rp_model *m)
{
    static const char *const names[] = {"num_experts", "num_local_experts", "n_routed_experts"};
    const char *key = NULL;
    const char *other = r->family->experts_too;
    for (size_t i = 0; key == NULL; i++) { /* each mixture has a default of one of them */
        key = has_default(r, names[i]) ? names[i] : NULL;
    }
    bool both = other != NULL && json_object_get(r->values, other) != NULL;
    if (both && json_object_get(r->values, key) == NULL) {
        key = other;
    }
    RP_TRY(rp_hf_count(r, key, 1, MOST_EXPERTS, 0, false, &m->experts));
    uint32_t same = m->experts;
    if (both) {
        RP_TRY(rp_hf_count(r, other, 1, MOST_EXPERTS, 0, false, &same));
    }
    if (same != m->experts) {
        char cause[64];
        (void)snprintf(cause, sizeof cause, "differs from %s", other);
        return rp_hf_refuse(r, key, cause, "equal ones");
    }
    if (m->experts < 2) {
        return rp_hf_refuse(r, key, "", "integers from 2 on");
    }
    RP_TRY(rp_hf_count(r, "num_experts_per_tok", 1, MOST_EXPERTS, 0, false, &m->active_experts));
    return m->active_experts <= m->experts
               ? RP_OK
               : rp_hf_refuse(r, "num_experts_per_tok", "", "integers from 1 to num_experts");
}

static rp_status read_shared(const rp_hf_config *r, rp_model *m)
{
    uint32_t count = 0;
    if (has_default(r, "shared_expert_intermediate_size")) {
        m->shared_gate = r->family->shared_gate;
        return rp_hf_count(r, "shared_expert_intermediate_size", 1, MOST_INTERMEDIATE, 0, false,
                           &m->shared_intermediate);
    }
    if (has_default(r, "n_shared_experts")) {
        RP_TRY(rp_hf_count(r, "n_shared_experts", 1, 64, 0, false, &count));
        m->shared_intermediate = count * m->intermediate;
    }
    return RP_OK;
}

/* Layers with experts: every decoder_sparse_step-th but those of mlp_only_layers. */
static rp_status place_qwen(const rp_hf_config *r, shapes *s)
{
    uint32_t step = 1;
    const json_t *dense = rp_hf_get(r, "mlp_only_layers");
    RP_TRY(rp_hf_count(r, "decoder_sparse_step", 1, RP_MAX_LAYERS, 0, false, &step));
    for (uint32_t i = 0; i < s->model->layers; i++) {
        s->layers[i].experts = (i + 1) % step == 0;
    }
    if (dense != NULL && !json_is_null(dense) && !json_is_array(dense)) {
        return rp_hf_refuse(r, "mlp_only_layers", "", "none and lists of layers");
    }
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *at = json_array_get(dense, i);
        if (!rp_json_is_integer(at, 0, RP_MAX_LAYERS)) {
            return rp_hf_refuse(r, "mlp_only_layers", "", "none and lists of layers");
        }
        if (json_integer_value(at) < s->model->layers) {
            s->layers[json_integer_value(at)].experts = false;
        }
    }
    return RP_OK;
}

static rp_status place_deepseek(const rp_hf_config *r, shapes *s)
{
    uint32_t first = 0;
    uint32_t every = 1;
    RP_TRY(rp_hf_count(r, "first_k_dense_replace", 0, RP_MAX_LAYERS, 0, false, &first));
    if (json_object_get(r->values, "moe_layer_freq") != NULL) { /* transformers' class has none */
        RP_TRY(rp_hf_count(r, "moe_layer_freq", 1, 1, 0, false, &every));
    }
    for (uint32_t i = first; i < s->model->layers; i++) {
        s->layers[i].experts = true;
    }
    return RP_OK;
}

static rp_status read_experts(const rp_hf_config *r, shapes *s)
{
    rp_model *m = s->model;
    m->experts = m->active_experts = 1;
    bool own_size = has_default(r, "moe_intermediate_size");
    if (r->family->mixture == RP_HF_DENSE) {
        return rp_hf_count(r, "intermediate_size", 1, MOST_INTERMEDIATE, 0, false,
                           &m->intermediate);
    }
    RP_TRY(count_experts(r, m));
    RP_TRY(rp_hf_count(r, own_size ? "moe_intermediate_size" : "intermediate_size", 1,
                       MOST_INTERMEDIATE, 0, false, &m->intermediate));
    RP_TRY(rp_hf_count(r, "intermediate_size", 1, MOST_INTERMEDIATE, 0, false,
                       &s->dense_intermediate));
    RP_TRY(read_shared(r, m));
    if (r->family->mixture == RP_HF_QWEN_EXPERTS) {
        bool normalised = false;
        RP_TRY(rp_hf_flag(r, "norm_topk_prob", &normalised));
        m->raw_routing = !normalised;
        return place_qwen(r, s);
    }
    for (uint32_t i = 0; i < m->layers; i++) {
        s->layers[i].experts = r->family->mixture == RP_HF_ALL_EXPERTS;
    }
    return r->family->mixture == RP_HF_DEEPSEEK_EXPERTS ? place_deepseek(r, s) : RP_OK;
}

/* ---- windows ----------------------------------------------------------------------------------
 */

static rp_status place_types(const rp_hf_config *r, const json_t *types, shapes *s)
{
    static const char valid[] = "a list with sliding_attention or full_attention for each layer";
    if (!json_is_array(types) || json_array_size(types) != s->model->layers) {
        return rp_hf_refuse(r, "layer_types", "", valid);
    }
    for (uint32_t i = 0; i < s->model->layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL ||
            (strcmp(type, "sliding_attention") != 0 && strcmp(type, "full_attention") != 0)) {
            return rp_hf_refuse(r, "layer_types", "other kinds of attention are not described",
                                valid);
        }
        s->layers[i].window = strcmp(type, "sliding_attention") == 0;
    }
    return RP_OK;
}

/* Layers that SmolLM3 does not rotate: every n-th, or as a list says. */
static rp_status place_unrotated(const rp_hf_config *r, shapes *s)
{
    uint32_t every = 0;
    const json_t *rotated = rp_hf_get(r, "no_rope_layers");
    RP_TRY(rp_hf_count(r, "no_rope_layer_interval", 1, RP_MAX_LAYERS, 0, false, &every));
    for (uint32_t i = 0; i < s->model->layers; i++) {
        const json_t *own = json_array_get(rotated, i);
        s->layers[i].window = own != NULL ? json_integer_value(own) == 0 : (i + 1) % every == 0;
    }
    return RP_OK;
}

static rp_status place_pattern(const rp_hf_config *r, shapes *s)
{
    uint32_t every = 2;
    if (has_default(r, "sliding_window_pattern")) {
        const char *key = json_object_get(r->values, "_sliding_window_pattern") != NULL
                              ? "_sliding_window_pattern"
                              : "sliding_window_pattern";
        RP_TRY(rp_hf_count(r, key, 1, RP_MAX_LAYERS, 0, false, &every));
    }
    for (uint32_t i = 0; i < s->model->layers; i++) {
        s->layers[i].window = (i + 1) % every != 0;
    }
    return RP_OK;
}

/* Where no key says which layers: the family's rule. */
static rp_status place_windows(const rp_hf_config *r, shapes *s)
{
    rp_hf_windows rule = r->family->windows;
    uint32_t limit = 0;
    if (has_default(r, "max_window_layers")) {
        RP_TRY(rp_hf_count(r, "max_window_layers", 0, RP_MAX_LAYERS, 0, false, &limit));
    }
    if (rule == RP_HF_UNROTATED_WINDOWS) {
        RP_TRY(place_unrotated(r, s));
    } else if (rule == RP_HF_PATTERN_WINDOWS) {
        RP_TRY(place_pattern(r, s));
    }
    for (uint32_t i = 0; i < s->model->layers; i++) {
        bool *window = &s->layers[i].window;
        *window = rule == RP_HF_QWEN_WINDOWS ? i >= limit
                  : rule == RP_HF_FIRST_WINDOWS
                      ? i % 2 == 0 && i < limit
                      : rule == RP_HF_ALL_WINDOWS || rule == RP_HF_ASKED_WINDOWS || *window;
    }
    bool typed = rule != RP_HF_ALL_WINDOWS && rule != RP_HF_ASKED_WINDOWS;
    const json_t *types = typed ? rp_hf_get(r, "layer_types") : NULL;
    return types == NULL || json_is_null(types) ? RP_OK : place_types(r, types, s);
}

static rp_status read_windows(const rp_hf_config *r, shapes *s)
{
    rp_hf_windows rule = r->family->windows;
    bool asked = true;
    uint32_t window = 0;
    if (rule == RP_HF_NO_WINDOWS) {
        return RP_OK;
    }
    if (rule != RP_HF_ALL_WINDOWS && rule != RP_HF_PATTERN_WINDOWS) {
        RP_TRY(rp_hf_flag(r, "use_sliding_window", &asked));
    }
    RP_TRY(place_windows(r, s));
    /* null and, where no window is asked for, 0 mean none. */
    const json_t *own = json_object_get(r->values, "sliding_window");
    bool none = own != NULL ? json_is_null(own) || json_integer_value(own) == 0
                            : !has_default(r, "sliding_window");
    if (none || !asked) {
        (void)rp_hf_get(r, "sliding_window");
    } else {
        RP_TRY(rp_hf_count(r, "sliding_window", 1, MOST_POSITIONS, 0, false, &window));
    }
    s->window = window;
    for (uint32_t i = 0; i < s->model->layers; i++) {
        s->layers[i].window = s->layers[i].window && window != 0;
    }
    return RP_OK;
}

/* ---- kinds of layers --------------------------------------------------------------------------
 */

static bool same(const layer *a, const layer *b)
{
    return a->experts == b->experts && a->window == b->window;
}

/* As traces/models say it: all layers have experts or none has, and none has a window or all even
 * ones have. */
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

/* The model whose layers all are like `own`. */
static rp_model kind_like(const shapes *s, const layer *own)
{
    rp_model kind = *s->model;
    kind.sliding_window = own->window ? s->window : 0;
    if (!own->experts && kind.experts > 1) {
        kind.experts = kind.active_experts = 1;
        kind.intermediate = s->dense_intermediate;
        kind.shared_intermediate = 0;
        kind.shared_gate = false;
        kind.expert_bias = false;
    }
    return kind;
}

/* Kinds in the order of their first layers; the model's own fields are those of the one that most
 * layers have. */
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

rp_status rp_hf_read_shapes(rp_hf_config *config, rp_arena *arena, rp_model *model)
{
    const rp_hf_family *f = config->family;
    shapes s = {.model = model};
    model->family = f->type;
    model->qk_norm = f->qk_norm;
    model->wide_qk_norm = f->wide_qk_norm;
    model->four_norms = f->four_norms;
    model->joined = f->joined;
    model->shifted_norms = model->gelu_gate = model->scaled_embedding = f->gemma;
    model->rope_scaling = "none";
    model->yarn = RP_ROPE_GPT_OSS;
    model->gate = RP_GATE_GPT_OSS;
    (void)rp_hf_get(config, "model_type");
    RP_TRY(read_sizes(config, model));
    RP_TRY(read_biases(config, model));
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
