/* config.json of Hugging Face, in both styles (executor.md 4.1). */
#include "common/log.h"
#include "common/text.h"
#include "exec/checkpoint/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT_BYTES ((size_t)1 << 20)
#define NAME_LIMIT 64u /* half of what a cost table's name, MODEL@BACKEND, may have */

typedef struct reader {
    const char *path;
    const json_t *root;
    rp_arena *arena;
} reader;

static rp_status refuse(const reader *r, const char *key, const char *valid)
{
    rp_log_error("%s: %s: valid values are %s", r->path, key, valid);
    return RP_INPUT;
}

/* `fallback` 0: the key must be there. */
static rp_status count_of(const reader *r, const char *key, uint32_t fallback, uint32_t *value_out)
{
    const json_t *value = json_object_get(r->root, key);
    if ((value == NULL || json_is_null(value)) && fallback != 0) {
        *value_out = fallback;
        return RP_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > INT32_MAX) {
        return refuse(r, key, "integers from 1 to 2147483647");
    }
    *value_out = (uint32_t)json_integer_value(value);
    return RP_OK;
}

static rp_status number_of(const reader *r, const json_t *object, const char *key,
                           double *value_out)
{
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number > 0) || !isfinite(number)) {
        return refuse(r, key, "numbers above 0");
    }
    *value_out = number;
    return RP_OK;
}

static rp_status flag_of(const reader *r, const char *key, bool *value_out)
{
    const json_t *value = json_object_get(r->root, key);
    if (value != NULL && !json_is_boolean(value)) {
        return refuse(r, key, "true and false");
    }
    *value_out = json_is_true(value);
    return RP_OK;
}

/* The numbers of Llama-3.1's scaling are part of exec/model/model.c. */
static rp_status check_llama3(const reader *r, const json_t *scaling)
{
    static const struct {
        const char *key;
        double value;
    } numbers[] = {{"factor", 8},
                   {"low_freq_factor", 1},
                   {"high_freq_factor", 4},
                   {"original_max_position_embeddings", 8192}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const json_t *value = json_object_get(scaling, numbers[i].key);
        if (!json_is_number(value) || json_number_value(value) != numbers[i].value) {
            return refuse(r, numbers[i].key,
                          "those of Llama-3.1: factor 8, low_freq_factor 1, "
                          "high_freq_factor 4, original length 8192");
        }
    }
    return RP_OK;
}

static rp_status read_rope(const reader *r, rp_model *m)
{
    const json_t *newer = json_object_get(r->root, "rope_parameters");
    const json_t *scaling = newer != NULL ? newer : json_object_get(r->root, "rope_scaling");
    const char *type = "default";
    RP_TRY(number_of(r, json_is_object(newer) ? newer : r->root, "rope_theta", &m->rope_theta));
    if (scaling != NULL && !json_is_null(scaling)) {
        const json_t *name = json_object_get(scaling, "rope_type");
        name = name != NULL ? name : json_object_get(scaling, "type");
        type = json_string_value(name);
        if (type == NULL) {
            return refuse(r, "rope_type", "default and llama3");
        }
    }
    if (strcmp(type, "llama3") == 0) {
        m->rope_scaling = "llama3";
        return check_llama3(r, scaling);
    }
    m->rope_scaling = "none";
    return strcmp(type, "default") == 0 ? RP_OK : refuse(r, "rope_type", "default and llama3");
}

/* Every layer has experts in all published models of the family. `num_experts` is called
 * num_local_experts by newer versions of transformers. */
static rp_status read_experts(const reader *r, rp_model *m)
{
    const json_t *step = json_object_get(r->root, "decoder_sparse_step");
    const json_t *dense = json_object_get(r->root, "mlp_only_layers");
    bool normalised = false;
    if (step != NULL && json_integer_value(step) != 1) {
        return refuse(r, "decoder_sparse_step", "1");
    }
    bool none = json_is_array(dense) && json_array_size(dense) == 0;
    if (dense != NULL && !json_is_null(dense) && !none) {
        return refuse(r, "mlp_only_layers", "none");
    }
    bool newer = json_object_get(r->root, "num_experts") == NULL;
    RP_TRY(count_of(r, newer ? "num_local_experts" : "num_experts", 0, &m->experts));
    RP_TRY(count_of(r, "num_experts_per_tok", 0, &m->active_experts));
    RP_TRY(count_of(r, "moe_intermediate_size", 0, &m->intermediate));
    RP_TRY(flag_of(r, "norm_topk_prob", &normalised));
    m->raw_routing = !normalised;
    if (m->experts < 2) {
        return refuse(r, "num_experts", "integers from 2 on");
    }
    return m->active_experts <= m->experts
               ? RP_OK
               : refuse(r, "num_experts_per_tok", "integers from 1 to num_experts");
}

static rp_status read_model(const reader *r, rp_model *m)
{
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    bool mixture = type != NULL && strcmp(type, "qwen3_moe") == 0;
    bool qwen3 = type != NULL && strcmp(type, "qwen3") == 0;
    if (!mixture && !qwen3 && (type == NULL || strcmp(type, "llama") != 0)) {
        return refuse(r, "model_type", "llama, qwen3 and qwen3_moe");
    }
    m->qk_norm = qwen3 || mixture;
    RP_TRY(count_of(r, "num_hidden_layers", 0, &m->layers));
    RP_TRY(count_of(r, "hidden_size", 0, &m->hidden));
    RP_TRY(count_of(r, "num_attention_heads", 0, &m->heads));
    RP_TRY(count_of(r, "num_key_value_heads", m->heads, &m->kv_heads));
    uint32_t share = m->hidden / m->heads; /* what a missing head_dim means */
    RP_TRY(count_of(r, "head_dim", share > 0 ? share : 1, &m->head_dim));
    RP_TRY(count_of(r, "vocab_size", 0, &m->vocab));
    RP_TRY(count_of(r, "max_position_embeddings", 0, &m->max_positions));
    RP_TRY(number_of(r, r->root, "rms_norm_eps", &m->norm_eps));
    RP_TRY(flag_of(r, "tie_word_embeddings", &m->tied_head));
    RP_TRY(flag_of(r, "attention_bias", &m->attention_bias));
    m->experts = m->active_experts = 1;
    RP_TRY(mixture ? read_experts(r, m) : count_of(r, "intermediate_size", 0, &m->intermediate));
    if (m->heads % m->kv_heads != 0) {
        return refuse(r, "num_key_value_heads", "divisors of num_attention_heads");
    }
    if (m->layers > RP_MAX_LAYERS) {
        return refuse(r, "num_hidden_layers", "1 to 65536");
    }
    const char *activation = json_string_value(json_object_get(r->root, "hidden_act"));
    if (activation == NULL || strcmp(activation, "silu") != 0) {
        return refuse(r, "hidden_act", "silu");
    }
    m->attention_parameters =
        (uint64_t)m->hidden * (m->heads + 2 * (uint64_t)m->kv_heads) * m->head_dim +
        (uint64_t)m->heads * m->head_dim * m->hidden;
    m->mlp_parameters = (uint64_t)3 * m->hidden * m->intermediate * m->experts;
    m->mlp_parameters += mixture ? (uint64_t)m->experts * m->hidden : 0;
    return read_rope(r, m);
}

/* The folder's name, with the characters and the length that names in files of rpsim may have. */
static rp_status name_model(const char *path, rp_arena *arena, const char **name_out)
{
    char real[PATH_MAX];
    char name[NAME_LIMIT + 1] = "checkpoint"; /* of the root folder */
    const char *folder = NULL;
    uint32_t length = 0;
    const char *end = strrchr(path, '/'); /* the file itself may be a link to somewhere else */
    RP_TRY(rp_arena_print(arena, &folder, "%.*s/", end != NULL ? (int)(end - path) : 1,
                          end != NULL ? path : "."));
    if (realpath(folder, real) == NULL) {
        rp_log_error("%s: realpath: %s", folder, strerror(errno));
        return RP_IO;
    }
    for (const char *c = strrchr(real, '/') + 1; *c != '\0' && length < NAME_LIMIT; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || strchr("._+-", *c) != NULL;
        name[length++] = plain ? *c : '_';
        name[length] = '\0';
    }
    return rp_arena_copy_text(arena, name, strlen(name), name_out);
}

rp_status rpexec_config_load(const char *path, rp_arena *arena, rp_model *model_out)
{
    rp_text text = {0};
    json_error_t error;
    rp_model model = {.source = path};
    RP_TRY(rp_text_read_file(path, CONFIG_LIMIT_BYTES, &text));
    rp_status named = name_model(path, arena, &model.name);
    if (named != RP_OK) {
        rp_text_fini(&text);
        return named;
    }
    json_t *root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error);
    rp_text_fini(&text);
    if (root == NULL) {
        rp_log_error("%s:%d: %s; valid is one JSON object", path, error.line,
                     rp_text_flatten(error.text));
        return RP_INPUT;
    }
    const reader r = {.path = path, .root = root, .arena = arena};
    rp_status status =
        json_is_object(root) ? read_model(&r, &model) : refuse(&r, "config", "one JSON object");
    json_decref(root);
    *model_out = model;
    return status;
}
