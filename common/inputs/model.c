#include "common/inputs/model.h"

#include "common/base/log.h"
#include "common/formats/config.h"
#include "common/inputs/data.h"
#include "common/inputs/published.h"

#include <inttypes.h>

/* More parameters than this are a mistake in the file; all counts then fit into 64 bits. */
#define MAX_PARAMETERS 1e15

typedef struct model_file {
    rp_model model;
    const char *published_parameters;
    const char *published_without_embedding;
    const char *published_active;
    const char *published_active_without_input_table;
} model_file;

#define COUNT(member, least, most)                                                                 \
    {                                                                                              \
        .key = #member, .type = RP_CONFIG_U32, .low = least, .high = most,                         \
        .offset = offsetof(model_file, model.member)                                               \
    }
#define OPTIONAL_COUNT(member, most)                                                               \
    {                                                                                              \
        .key = #member, .type = RP_CONFIG_U32, .optional = true, .low = 0, .high = most,           \
        .offset = offsetof(model_file, model.member)                                               \
    }
#define FLAG(member)                                                                               \
    {                                                                                              \
        .key = #member, .type = RP_CONFIG_BOOL, .offset = offsetof(model_file, model.member)       \
    }
#define PUBLISHED(member, is_optional)                                                             \
    {                                                                                              \
        .key = #member, .type = RP_CONFIG_TEXT, .optional = is_optional, .high = 30,               \
        .offset = offsetof(model_file, member)                                                     \
    }

static const char *const rope_scalings[] = {"none", "llama3", "yarn", NULL};

enum {
    FIELD_LAYERS = 2,
    FIELD_KV_HEADS = 5,
    FIELD_HEAD_DIM,
    FIELD_EXPERTS = 8,
    FIELD_ACTIVE_EXPERTS,
    FIELD_EXPERT_BIAS = 17,
    FIELD_PUBLISHED = 19,
    FIELD_WITHOUT_EMBEDDING,
    FIELD_ACTIVE,
    FIELD_ACTIVE_WITHOUT_TABLE,
};

static const rp_config_field fields[] = {
    {.key = "name", .type = RP_CONFIG_NAME, .high = 64, .offset = offsetof(model_file, model.name)},
    {.key = "source",
     .type = RP_CONFIG_TEXT,
     .high = 1000,
     .offset = offsetof(model_file, model.source)},
    [FIELD_LAYERS] = COUNT(layers, 1, RP_MAX_LAYERS),
    COUNT(hidden, 1, 1048576),
    COUNT(heads, 1, 65536),
    [FIELD_KV_HEADS] = COUNT(kv_heads, 1, 65536),
    [FIELD_HEAD_DIM] = COUNT(head_dim, 2, 65536),
    COUNT(intermediate, 1, 4194304),
    [FIELD_EXPERTS] = COUNT(experts, 1, 65536),
    [FIELD_ACTIVE_EXPERTS] = COUNT(active_experts, 1, 65536),
    COUNT(vocab, 1, 16777216),
    COUNT(max_positions, 1, 1073741824),
    {.key = "rope_theta",
     .type = RP_CONFIG_DOUBLE,
     .low = 1,
     .high = 1e12,
     .offset = offsetof(model_file, model.rope_theta)},
    {.key = "norm_eps",
     .type = RP_CONFIG_DOUBLE,
     .low = 1e-12,
     .high = 0.1,
     .offset = offsetof(model_file, model.norm_eps)},
    FLAG(tied_head),
    FLAG(qk_norm),
    FLAG(attention_bias),
    [FIELD_EXPERT_BIAS] = FLAG(expert_bias),
    {.key = "rope_scaling",
     .type = RP_CONFIG_TEXT,
     .high = 16,
     .choices = rope_scalings,
     .offset = offsetof(model_file, model.rope_scaling)},
    [FIELD_PUBLISHED] = PUBLISHED(published_parameters, false),
    [FIELD_WITHOUT_EMBEDDING] = PUBLISHED(published_without_embedding, true),
    [FIELD_ACTIVE] = PUBLISHED(published_active, true),
    [FIELD_ACTIVE_WITHOUT_TABLE] = PUBLISHED(published_active_without_input_table, true),
    OPTIONAL_COUNT(lora_rank, 65536),
    OPTIONAL_COUNT(sliding_window, 1073741824),
};

static const rp_config_schema schema = {
    .what = "a model", .fields = fields, .field_count = sizeof fields / sizeof *fields};

/* Combinations of keys. */

static rp_status check_heads(const char *name, const size_t *lines, const rp_model *model)
{
    if (model->heads % model->kv_heads != 0) {
        rp_log_error_at(name, lines[FIELD_KV_HEADS],
                        "'kv_heads' is %" PRIu32 ", which does not divide the %" PRIu32 " heads; "
                        "valid values are divisors of %" PRIu32,
                        model->kv_heads, model->heads, model->heads);
        return RP_INPUT;
    }
    if (model->head_dim % 2 != 0) {
        rp_log_error_at(name, lines[FIELD_HEAD_DIM],
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
        rp_log_error_at(name, lines[FIELD_ACTIVE_EXPERTS],
                        "'active_experts' is %" PRIu32 ", more than there are experts; valid "
                        "values are whole numbers from 1 to %" PRIu32,
                        model->active_experts, model->experts);
        return RP_INPUT;
    }
    if (model->expert_bias && model->experts == 1) {
        rp_log_error_at(name, lines[FIELD_EXPERT_BIAS],
                        "'expert_bias' is true in a dense model; valid values are false where "
                        "'experts' is 1");
        return RP_INPUT;
    }
    return RP_OK;
}

/* Counts, executor.md section 4.2. In double first: an absurd file must not overflow. */

static uint64_t count_attention(const rp_model *model)
{
    uint64_t d = model->hidden;
    uint64_t q = (uint64_t)model->heads * model->head_dim;
    uint64_t kv = (uint64_t)model->kv_heads * model->head_dim;
    uint64_t biases_and_sinks = q + 2 * kv + d + model->heads;
    return d * (q + 2 * kv) + q * d + (model->attention_bias ? biases_and_sinks : 0);
}

/* The router belongs to MoE models only; its bias comes with the experts' own. */
static uint64_t count_mlp(const rp_model *model, uint64_t experts)
{
    uint64_t d = model->hidden;
    uint64_t f = model->intermediate;
    uint64_t total = experts * 3 * d * f;
    if (model->experts > 1) {
        total += model->experts * d;
    }
    if (model->expert_bias) {
        total += model->experts + experts * (2 * f + d);
    }
    return total;
}

/* Low-rank pairs [rank, in] and [out, rank] on q, k, v, o and on every expert's gate, up and down.
 * The router is frozen. */
static uint64_t count_adapters(const rp_model *model)
{
    uint64_t d = model->hidden;
    uint64_t q = (uint64_t)model->heads * model->head_dim;
    uint64_t kv = (uint64_t)model->kv_heads * model->head_dim;
    uint64_t attention = 2 * (d + q) + 2 * (d + kv);
    uint64_t experts = 3 * (d + model->intermediate) * model->experts;
    return model->lora_rank * (attention + experts);
}

void rp_model_set_lora_rank(rp_model *model, uint32_t rank)
{
    model->lora_rank = rank;
    model->adapter_parameters = count_adapters(model);
}

static uint64_t count_head(const rp_model *model)
{
    return model->tied_head ? 0 : model->embedding_parameters;
}

static double estimate(const rp_model *model)
{
    double d = model->hidden;
    double attention = 2 * d * ((double)model->heads + model->kv_heads) * model->head_dim;
    double mlp = (3 * d * model->intermediate + d) * model->experts;
    double widths = 4 * (d + (double)model->heads * model->head_dim) +
                    3 * (d + model->intermediate) * model->experts;
    return model->layers * (attention + mlp + model->lora_rank * widths) + 2 * d * model->vocab;
}

static rp_status count_parameters(const char *name, const size_t *lines, rp_model *model)
{
    if (estimate(model) > MAX_PARAMETERS) {
        rp_log_error_at(name, lines[FIELD_LAYERS],
                        "%" PRIu32 " layers of these sizes have %.3g parameters; valid values are "
                        "models of at most %.0g",
                        model->layers, estimate(model), MAX_PARAMETERS);
        return RP_INPUT;
    }
    rp_model_count(model);
    return RP_OK;
}

void rp_model_count(rp_model *model)
{
    uint64_t d = model->hidden;
    model->attention_parameters = count_attention(model);
    model->mlp_parameters = count_mlp(model, model->experts);
    model->norm_parameters = 2 * d + (model->qk_norm ? 2 * (uint64_t)model->head_dim : 0);
    model->layer_parameters =
        model->attention_parameters + model->mlp_parameters + model->norm_parameters;
    model->adapter_parameters = count_adapters(model);
    model->embedding_parameters = model->vocab * d;
    model->total_parameters = model->layers * model->layer_parameters +
                              model->embedding_parameters + count_head(model) + d;
    uint64_t idle = model->mlp_parameters - count_mlp(model, model->active_experts);
    model->active_parameters = model->total_parameters - model->layers * idle;
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
    uint64_t tables = model->embedding_parameters + count_head(model);
    const struct {
        int field;
        const char *text;
        uint64_t count;
    } rows[] = {
        {FIELD_PUBLISHED, file->published_parameters, model->total_parameters},
        {FIELD_WITHOUT_EMBEDDING, file->published_without_embedding,
         model->total_parameters - tables},
        {FIELD_ACTIVE, file->published_active, model->active_parameters},
        {FIELD_ACTIVE_WITHOUT_TABLE, file->published_active_without_input_table,
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
    RP_TRY(rp_config_parse(name, bytes, length, &schema, arena, &file, lines));
    RP_TRY(check_heads(name, lines, &file.model));
    RP_TRY(check_experts(name, lines, &file.model));
    RP_TRY(count_parameters(name, lines, &file.model));
    RP_TRY(check_all_published(name, lines, &file));
    *model_out = file.model;
    return RP_OK;
}

rp_status rp_model_load(const char *name_or_path, rp_arena *arena, rp_model *model_out)
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
