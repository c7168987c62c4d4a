/* config.json of Hugging Face, in both styles (executor.md 4.1). */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/json_read.h"
#include "exec/checkpoint/config_internal.h"
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

static const rpexec_family families[] = {
    {.type = "llama", .class = "LlamaForCausalLM", .null_kv_heads = true, .null_head_dim = true},
    {.type = "qwen3",
     .class = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_dim = 128,
     .null_kv_heads = true,
     .qk_norm = true},
    {.type = "qwen3_moe",
     .class = "Qwen3MoeForCausalLM",
     .kv_heads = 4,
     .qk_norm = true,
     .mixture = true},
};

static rp_status refuse(const rpexec_config *r, const char *key, const char *valid)
{
    return rpexec_config_refuse(r, key, "", valid);
}

/* ---- keys that are understood -----------------------------------------------------------------
 */

/* Nothing has been read yet. */
static rp_status copy_keys(rpexec_config *r)
{
    r->rest = json_copy((json_t *)(uintptr_t)r->values);
    if (r->rest == NULL) {
        rp_log_error("out of memory: %s", r->path);
        return RP_NO_MEMORY;
    }
    return RP_OK;
}

static const json_t *get(const rpexec_config *r, const char *key)
{
    (void)json_object_del(r->rest, key);
    return json_object_get(r->values, key);
}

/* `absent` and `null` stand for a key that is missing or null; where they are 0 it must not be. */
static rp_status count_or(const rpexec_config *r, const char *key, uint32_t absent, uint32_t null,
                          uint32_t *value_out)
{
    const json_t *value = get(r, key);
    uint32_t fallback = value == NULL ? absent : json_is_null(value) ? null : 0;
    if (fallback != 0) {
        *value_out = fallback;
        return RP_OK;
    }
    if (!rp_json_is_integer(value, 1, INT32_MAX)) {
        return refuse(r, key, "integers from 1 to 2147483647");
    }
    *value_out = (uint32_t)json_integer_value(value);
    return RP_OK;
}

static rp_status count_of(const rpexec_config *r, const char *key, uint32_t *value_out)
{
    return count_or(r, key, 0, 0, value_out);
}

/* A missing number is `*value_out` already where that is above 0. */
static rp_status number_of(const rpexec_config *r, const char *key, double *value_out)
{
    const json_t *value = get(r, key);
    double number = value == NULL ? *value_out : json_number_value(value);
    if (!(number > 0) || !isfinite(number)) {
        return refuse(r, key, "numbers above 0");
    }
    *value_out = number;
    return RP_OK;
}

static rp_status flag_of(const rpexec_config *r, const char *key, bool *value_out)
{
    const json_t *value = get(r, key);
    if (value != NULL && !json_is_boolean(value)) {
        return refuse(r, key, "true and false");
    }
    *value_out = json_is_true(value);
    return RP_OK;
}

/* ---- the rotary embedding ---------------------------------------------------------------------
 */

/* The numbers of Llama-3.1's scaling are part of exec/model/model.c. */
static rp_status check_llama3(const rpexec_config *r)
{
    static const struct {
        const char *key;
        double value;
    } numbers[] = {{"factor", 8},
                   {"low_freq_factor", 1},
                   {"high_freq_factor", 4},
                   {"original_max_position_embeddings", 8192}};
    rp_status status = RP_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const json_t *value = get(r, numbers[i].key);
        if (!json_is_number(value) || json_number_value(value) != numbers[i].value) {
            status = refuse(r, numbers[i].key,
                            "those of Llama-3.1: factor 8, low_freq_factor 1, "
                            "high_freq_factor 4, original length 8192");
        }
    }
    return status;
}

/* `rope_type` was called `type`, and is the default one where it is missing. */
static rp_status read_rope_type(const rpexec_config *r, rp_model *m)
{
    const json_t *older = get(r, "type");
    const json_t *newer = get(r, "rope_type");
    const json_t *name = newer != NULL ? newer : older;
    const char *type = name != NULL ? json_string_value(name) : "default";
    m->rope_scaling = "none";
    if (type != NULL && strcmp(type, "llama3") == 0) {
        m->rope_scaling = "llama3";
        return check_llama3(r);
    }
    return type != NULL && strcmp(type, "default") == 0
               ? RP_OK
               : refuse(r, newer != NULL ? "rope_type" : "type", "default and llama3");
}

static rp_status read_rope_object(const rpexec_config *r, rp_model *m)
{
    RP_TRY(number_of(r, "rope_theta", &m->rope_theta));
    rp_status type = read_rope_type(r, m);
    rp_status rest = rpexec_config_check_rest(r);
    return type != RP_OK ? type : rest;
}

/* rope_theta with rope_scaling, or rope_parameters with all of it; 10000 in all three families. */
static rp_status read_rope(const rpexec_config *r, rp_model *m)
{
    const json_t *newer = get(r, "rope_parameters");
    const json_t *older = get(r, "rope_scaling");
    const json_t *theta = json_object_get(r->values, "rope_theta");
    m->rope_theta = 10000;
    m->rope_scaling = "none";
    RP_TRY(number_of(r, "rope_theta", &m->rope_theta));
    bool is_newer = newer != NULL && !rpexec_config_is_empty(newer);
    if (is_newer && older != NULL && !rpexec_config_is_empty(older)) {
        return rpexec_config_refuse(r, "rope_scaling", "rope_parameters is there, too",
                                    "one of them");
    }
    const json_t *object = is_newer ? newer : older;
    if (object == NULL || rpexec_config_is_empty(object)) {
        return RP_OK;
    }
    const char *name = is_newer ? "rope_parameters" : "rope_scaling";
    if (!json_is_object(object)) {
        return refuse(r, name, "null and objects");
    }
    rpexec_config inner = *r;
    inner.name = name;
    inner.values = object;
    RP_TRY(copy_keys(&inner));
    double outer = m->rope_theta;
    rp_status status = read_rope_object(&inner, m);
    json_decref(inner.rest);
    if (status == RP_OK && theta != NULL && m->rope_theta != outer) {
        return rpexec_config_refuse(r, "rope_theta", "differs from the one inside", "equal ones");
    }
    return status;
}

/* ---- the model --------------------------------------------------------------------------------
 */

/* Every layer has experts in all published models of the family. `num_experts` is called
 * num_local_experts by newer versions of transformers. */
static rp_status read_experts(const rpexec_config *r, rp_model *m)
{
    const json_t *step = get(r, "decoder_sparse_step");
    const json_t *dense = get(r, "mlp_only_layers");
    bool normalised = false;
    if (step != NULL && json_integer_value(step) != 1) {
        return refuse(r, "decoder_sparse_step", "1");
    }
    if (dense != NULL && !rpexec_config_is_empty(dense)) {
        return refuse(r, "mlp_only_layers", "none");
    }
    bool newer = json_object_get(r->values, "num_experts") == NULL;
    RP_TRY(count_of(r, newer ? "num_local_experts" : "num_experts", &m->experts));
    uint32_t same = m->experts;
    RP_TRY(count_or(r, "num_local_experts", same, 0, &same));
    if (same != m->experts) {
        return rpexec_config_refuse(r, "num_local_experts", "differs from num_experts",
                                    "equal ones");
    }
    RP_TRY(count_of(r, "num_experts_per_tok", &m->active_experts));
    RP_TRY(count_of(r, "moe_intermediate_size", &m->intermediate));
    RP_TRY(flag_of(r, "norm_topk_prob", &normalised));
    m->raw_routing = !normalised;
    if (m->experts < 2) {
        return refuse(r, "num_experts", "integers from 2 on");
    }
    return m->active_experts <= m->experts
               ? RP_OK
               : refuse(r, "num_experts_per_tok", "integers from 1 to num_experts");
}

static rp_status read_family(rpexec_config *r)
{
    const char *type = json_string_value(get(r, "model_type"));
    for (size_t i = 0; type != NULL && i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].type, type) == 0) {
            r->family = &families[i];
            return RP_OK;
        }
    }
    return refuse(r, "model_type", "llama, qwen3 and qwen3_moe");
}

static rp_status read_heads(const rpexec_config *r, rp_model *m)
{
    const rpexec_family *f = r->family;
    RP_TRY(count_of(r, "num_attention_heads", &m->heads));
    RP_TRY(count_or(r, "num_key_value_heads", f->kv_heads != 0 ? f->kv_heads : m->heads,
                    f->null_kv_heads ? m->heads : 0, &m->kv_heads));
    uint32_t share = m->hidden / m->heads;
    share = share > 0 ? share : 1;
    RP_TRY(count_or(r, "head_dim", f->head_dim != 0 ? f->head_dim : share,
                    f->null_head_dim ? share : 0, &m->head_dim));
    return m->heads % m->kv_heads == 0
               ? RP_OK
               : refuse(r, "num_key_value_heads", "divisors of num_attention_heads");
}

static rp_status read_model(rpexec_config *r, rp_model *m)
{
    RP_TRY(read_family(r));
    bool mixture = r->family->mixture;
    m->qk_norm = r->family->qk_norm;
    RP_TRY(count_of(r, "num_hidden_layers", &m->layers));
    RP_TRY(count_of(r, "hidden_size", &m->hidden));
    RP_TRY(read_heads(r, m));
    RP_TRY(count_of(r, "vocab_size", &m->vocab));
    RP_TRY(count_of(r, "max_position_embeddings", &m->max_positions));
    RP_TRY(number_of(r, "rms_norm_eps", &m->norm_eps));
    RP_TRY(flag_of(r, "tie_word_embeddings", &m->tied_head));
    m->experts = m->active_experts = 1;
    RP_TRY(mixture ? read_experts(r, m) : count_of(r, "intermediate_size", &m->intermediate));
    if (m->layers > RP_MAX_LAYERS) {
        return refuse(r, "num_hidden_layers", "1 to 65536");
    }
    const char *activation = json_string_value(get(r, "hidden_act"));
    if (activation == NULL || strcmp(activation, "silu") != 0) {
        return refuse(r, "hidden_act", "silu");
    }
    m->attention_parameters =
        (uint64_t)m->hidden * (m->heads + 2 * (uint64_t)m->kv_heads) * m->head_dim +
        (uint64_t)m->heads * m->head_dim * m->hidden;
    m->mlp_parameters = (uint64_t)3 * m->hidden * m->intermediate * m->experts;
    m->mlp_parameters += mixture ? (uint64_t)m->experts * m->hidden : 0;
    rp_status rope = read_rope(r, m);
    rp_status rest = rpexec_config_check_rest(r);
    return rope != RP_OK ? rope : rest;
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

static rp_status read_text(const rp_text *text, const char *path, rp_model *m)
{
    json_error_t error;
    json_t *root = json_loadb(text->bytes, text->length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        rp_log_error("%s:%d: %s; valid is one JSON object", path, error.line, error.text);
        return RP_INPUT;
    }
    rpexec_config r = {.path = path, .text = text, .values = root};
    rp_status status =
        json_is_object(root) ? copy_keys(&r) : refuse(&r, "config", "one JSON object");
    status = status == RP_OK ? read_model(&r, m) : status;
    json_decref(r.rest);
    json_decref(root);
    return status;
}

rp_status rpexec_config_load(const char *path, rp_arena *arena, rp_model *model_out)
{
    rp_text text = {0};
    rp_model model = {.source = path};
    RP_TRY(rp_text_read_file(path, CONFIG_LIMIT_BYTES, &text));
    rp_status status = name_model(path, arena, &model.name);
    status = status == RP_OK ? read_text(&text, path, &model) : status;
    rp_text_fini(&text);
    *model_out = model;
    return status;
}
