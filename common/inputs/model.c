#include "common/inputs/model.h"

#include "common/base/log.h"
#include "common/formats/config_rows.h"
#include "common/inputs/data.h"
#include "common/inputs/published.h"

#include <inttypes.h>
#include <string.h>

/* A model file as it is written; rp_model is made of it. */
typedef struct model_file {
    rp_model model;
#define KEY(...)
#define FILE_KEY(member, type, ...) RP_CONFIG_MEMBER_##type member;
#include "common/inputs/model_rows.inc"
#undef FILE_KEY
#undef KEY
} model_file;

/* Fields of the schema. */
enum {
#define KEY(member, ...) KEY_##member,
#define FILE_KEY(member, ...) KEY_##member,
#include "common/inputs/model_rows.inc"
#undef FILE_KEY
#undef KEY
};

static const rp_config_field fields[] = {
#define KEY(member, ...) RP_CONFIG_FIELD(model_file, model.member, #member, __VA_ARGS__),
#define FILE_KEY(member, ...) RP_CONFIG_FIELD(model_file, member, #member, __VA_ARGS__),
#include "common/inputs/model_rows.inc"
#undef FILE_KEY
#undef KEY
};

const rp_config_schema rp_model_schema = {.what = "a model", RP_CONFIG_FIELDS(fields)};

/* Combinations of keys. */

static bool is_word(const char *text, const char *word)
{
    return text != NULL && strcmp(text, word) == 0;
}

/* Sets the kinds of positions, norm and MLP. rope_theta and rope_scaling are required with rotary
 * positions and refused with learned positions. */
static rp_status set_family(const char *name, const size_t *lines, model_file *file)
{
    rp_model *m = &file->model;
    m->learned_positions = is_word(file->positions, "learned");
    m->layer_norm = is_word(file->norm, "layernorm");
    m->plain_mlp = is_word(file->mlp, "gelu");
    const uint32_t rotary[] = {KEY_rope_theta, KEY_rope_scaling};
    for (size_t i = 0; i < sizeof rotary / sizeof *rotary; i++) {
        bool given = lines[rotary[i]] != 0;
        if (given == m->learned_positions) {
            rp_log_error_at(
                name, given ? lines[rotary[i]] : 1,
                "%s key '%s' %s 'positions: %s'; valid values are rope_theta and rope_scaling "
                "with rotary positions, the usual ones, and neither with learned ones",
                given ? "the" : "there is no", fields[rotary[i]].key, given ? "beside" : "with",
                given ? "learned" : "rotary");
            return RP_INPUT;
        }
    }
    m->rope_scaling = m->learned_positions ? "none" : m->rope_scaling;
    m->rope = RP_ROPE_LLAMA_3_1;
    m->yarn = RP_ROPE_GPT_OSS;
    m->gate = RP_GATE_GPT_OSS;
    if (m->plain_mlp && m->experts > 1) {
        rp_log_error_at(name, lines[KEY_mlp],
                        "'mlp: gelu' with experts; valid values are swiglu where 'experts' is more "
                        "than 1");
        return RP_INPUT;
    }
    bool other = m->attention_bias || m->expert_bias || m->experts > 1;
    if (m->linear_bias && other) {
        rp_log_error_at(name, lines[KEY_linear_bias],
                        "'linear_bias' is true beside 'attention_bias', 'expert_bias' or experts; "
                        "valid values are true in a dense model without these, and false");
        return RP_INPUT;
    }
    if (m->lora_rank != 0 && (m->plain_mlp || m->linear_bias || m->layer_norm)) {
        rp_log_error_at(name, lines[KEY_lora_rank],
                        "'lora_rank' with a plain MLP, biases or LayerNorm, whose adapters nobody "
                        "has described; valid values are 0");
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status check_heads(const char *name, const size_t *lines, const rp_model *model)
{
    if (model->heads % model->kv_heads != 0) {
        rp_log_error_at(name, lines[KEY_kv_heads],
                        "'kv_heads' is %" PRIu32 ", which does not divide the %" PRIu32 " heads; "
                        "valid values are divisors of %" PRIu32,
                        model->kv_heads, model->heads, model->heads);
        return RP_INPUT;
    }
    if (model->head_dim % 2 != 0) {
        rp_log_error_at(name, lines[KEY_head_dim],
                        "'head_dim' is %" PRIu32 ", but rotary embeddings turn pairs; valid values "
                        "are even numbers",
                        model->head_dim);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status check_experts(const char *name, const size_t *lines, const rp_model *model)
{
    if (model->active_experts > model->experts) {
        rp_log_error_at(name, lines[KEY_active_experts],
                        "'active_experts' is %" PRIu32 ", more than there are experts; valid "
                        "values are whole numbers from 1 to %" PRIu32,
                        model->active_experts, model->experts);
        return RP_INPUT;
    }
    if (model->expert_bias && model->experts == 1) {
        rp_log_error_at(name, lines[KEY_expert_bias],
                        "'expert_bias' is true in a dense model; valid values are false where "
                        "'experts' is 1");
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status count_parameters(const char *name, const size_t *lines, rp_model *model)
{
    double estimate = rp_model_estimate(model);
    if (estimate > RP_MODEL_MAX_PARAMETERS) {
        rp_log_error_at(name, lines[KEY_layers],
                        "%" PRIu32 " layers of these sizes have %.3g parameters; valid values are "
                        "models of at most %.0g",
                        model->layers, estimate, RP_MODEL_MAX_PARAMETERS);
        return RP_INPUT;
    }
    rp_model_count(model);
    return RP_OK;
}

static rp_status check_published(const char *name, size_t line, const char *key, const char *text,
                                 uint64_t count)
{
    char expected[64];
    bool valid;
    if (!text || rp_published_matches(text, count, expected, sizeof expected, &valid)) {
        return RP_OK;
    }
    if (!valid) {
        rp_log_error_at(name, line,
                        "'%s' is '%s', not a count; valid values are texts like 1.7B or "
                        "1,720,574,976",
                        key, text);
        return RP_INPUT;
    }
    rp_log_error_at(name, line,
                    "'%s' is %s, but the keys of this file add up to %" PRIu64 "; valid values are "
                    "that number or its rounding, as %s",
                    key, text, count, expected);
    return RP_INPUT;
}

static rp_status check_all_published(const char *name, const size_t *lines, const model_file *file)
{
    const rp_model *model = &file->model;
    uint64_t tables = model->embedding_parameters * (model->tied_head ? 1 : 2);
    const struct {
        int field;
        const char *text;
        uint64_t count;
    } rows[] = {
        {KEY_published_parameters, file->published_parameters, model->total_parameters},
        {KEY_published_without_embedding, file->published_without_embedding,
         model->total_parameters - tables},
        {KEY_published_active, file->published_active, model->active_parameters},
        {KEY_published_active_without_input_table, file->published_active_without_input_table,
         model->active_parameters - model->embedding_parameters},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        RP_TRY(check_published(name, lines[rows[i].field], fields[rows[i].field].key, rows[i].text,
                               rows[i].count));
    }
    return RP_OK;
}

rp_status rp_model_parse(const char *name, const char *bytes, size_t length, rp_arena *arena,
                         rp_model *model_out)
{
    size_t lines[RP_CONFIG_MAX_FIELDS];
    model_file file = {0};
    RP_TRY(rp_config_parse(name, bytes, length, &rp_model_schema, arena, &file, lines));
    RP_TRY(check_heads(name, lines, &file.model));
    RP_TRY(check_experts(name, lines, &file.model));
    RP_TRY(set_family(name, lines, &file));
    RP_TRY(count_parameters(name, lines, &file.model));
    RP_TRY(check_all_published(name, lines, &file));
    file.model.recorded = file.model.name;
    *model_out = file.model;
    return RP_OK;
}

rp_status rp_model_read(const char *name_or_path, rp_arena *arena, rp_model *model_out)
{
    const char *path;
    rp_text text = {0};
    rp_status status = rp_data_read(&rp_data_models, name_or_path, arena, &path, &text);
    if (status == RP_OK) {
        status = rp_model_parse(path, text.bytes, text.length, arena, model_out);
    }
    rp_text_fini(&text);
    RP_TRY(status);
    return rp_data_check_name(name_or_path, path, model_out->name);
}
