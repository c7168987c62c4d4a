/* config.json of a checkpoint (companions.h). Each family has a row. */
#include "common/base/log.h"
#include "common/formats/json.h"
#include "common/inputs/huggingface/config.h"
#include "exec/checkpoint/companions.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* ---- tables ---------------------------------------------------------------------------------- */

typedef enum kind {
    FIXED,          /* `json`, whatever the model */
    COUNT,          /* uint32_t at `at` of rp_model */
    REAL,           /* double */
    FLAG,           /* bool */
    INVERSE,        /* negation of a bool */
    NUMBER_OR_NULL, /* uint32_t; 0 prints null */
} kind;

typedef struct key {
    const char *name; /* NULL ends the list */
    kind kind;
    size_t at;
    const char *json;
} key;

#define AT(member) .at = offsetof(rp_model, member)

/* Keys of every family. Tokens that begin and end a text are null, since the tokenizer determines
 * them: without the keys the defaults of transformers would name some. */
static const key common_keys[] = {{"vocab_size", COUNT, AT(vocab)},
                                  {"hidden_size", COUNT, AT(hidden)},
                                  {"num_hidden_layers", COUNT, AT(layers)},
                                  {"num_attention_heads", COUNT, AT(heads)},
                                  {"num_key_value_heads", COUNT, AT(kv_heads)},
                                  {"head_dim", COUNT, AT(head_dim)},
                                  {"max_position_embeddings", COUNT, AT(max_positions)},
                                  {"rms_norm_eps", REAL, AT(norm_eps)},
                                  {"rope_theta", REAL, AT(rope_theta)},
                                  {"tie_word_embeddings", FLAG, AT(tied_head)},
                                  {"hidden_act", FIXED, .json = "\"silu\""},
                                  {"attention_dropout", FIXED, .json = "0.0"},
                                  {"bos_token_id", FIXED, .json = "null"},
                                  {"eos_token_id", FIXED, .json = "null"},
                                  {0}};

static const key llama_keys[] = {{"intermediate_size", COUNT, AT(intermediate)},
                                 {"attention_bias", FLAG, AT(output_bias)},
                                 {"mlp_bias", FLAG, AT(mlp_bias)},
                                 {0}};

static const key qwen3_keys[] = {{"intermediate_size", COUNT, AT(intermediate)},
                                 {"attention_bias", FLAG, AT(output_bias)},
                                 {"use_sliding_window", FIXED, .json = "false"},
                                 {0}};

static const key qwen3_moe_keys[] = {{"moe_intermediate_size", COUNT, AT(intermediate)},
                                     {"num_experts", COUNT, AT(experts)},
                                     {"num_experts_per_tok", COUNT, AT(active_experts)},
                                     {"norm_topk_prob", INVERSE, AT(raw_routing)},
                                     {"decoder_sparse_step", FIXED, .json = "1"},
                                     {"mlp_only_layers", FIXED, .json = "[]"},
                                     {"attention_bias", FLAG, AT(output_bias)},
                                     {"use_sliding_window", FIXED, .json = "false"},
                                     {0}};

static const key gpt_oss_keys[] = {{"intermediate_size", COUNT, AT(intermediate)},
                                   {"num_local_experts", COUNT, AT(experts)},
                                   {"num_experts_per_tok", COUNT, AT(active_experts)},
                                   {"swiglu_alpha", REAL, AT(gate.alpha)},
                                   {"swiglu_limit", REAL, AT(gate.limit)},
                                   {"attention_bias", FLAG, AT(attention_bias)},
                                   {"sliding_window", NUMBER_OR_NULL, AT(sliding_window)},
                                   {"pad_token_id", FIXED, .json = "null"},
                                   {0}};

/* Families for a model that is given only by its sizes; huggingface/families.c lists the parts that
 * their layers have. The first family that fits is taken. */
static const struct {
    const char *type; /* model_type */
    const key *keys;
} families[] = {{"llama", llama_keys},
                {"qwen3", qwen3_keys},
                {"qwen3_moe", qwen3_moe_keys},
                {"gpt_oss", gpt_oss_keys}};

/* Names of types in config.json. */
static const char *const torch_types[] = {
    [RP_DTYPE_F32] = "float32", [RP_DTYPE_BF16] = "bfloat16", [RP_DTYPE_F16] = "float16"};

/* ---- config.json of a model that came without one -------------------------------------------- */

static bool fits(const rp_hf_family *f, const rp_model *m)
{
    bool mixture = f->mixture != RP_HF_DENSE;
    bool plain = m->kv_rank == 0 && m->shared_intermediate == 0 && !m->linear_bias &&
                 !m->layer_norm && !m->plain_mlp && !m->learned_positions &&
                 (m->sliding_window == 0 || f->windows == RP_HF_PATTERN_WINDOWS) &&
                 m->kinds == NULL;
    return plain && f->sinks == m->attention_bias && f->sinks == m->expert_bias &&
           mixture == (m->experts > 1) && !(f->normalises && m->raw_routing) &&
           f->qk_norm == m->qk_norm && f->wide_qk_norm == m->wide_qk_norm &&
           f->four_norms == m->four_norms && !m->one_norm &&
           m->qkv_bias == (f->qkv_bias || m->output_bias);
}

static const rp_hf_family *family_of(const char *type)
{
    const rp_hf_family *family = NULL;
    for (size_t i = 0; (family = rp_hf_family_at(i)) != NULL; i++) {
        if (strcmp(family->type, type) == 0) {
            break;
        }
    }
    return family;
}

static rp_status print_key(const rp_model *model, const key *k, rp_text *text)
{
    const void *value = (const char *)model + k->at;
    char number[RP_JSON_NUMBER_SIZE];
    switch (k->kind) {
    case FIXED:
        return rp_text_print(text, ",\n  \"%s\": %s", k->name, k->json);
    case NUMBER_OR_NULL:
        if (*(const uint32_t *)value == 0) {
            return rp_text_print(text, ",\n  \"%s\": null", k->name);
        }
        return rp_text_print(text, ",\n  \"%s\": %" PRIu32, k->name, *(const uint32_t *)value);
    case COUNT:
        return rp_text_print(text, ",\n  \"%s\": %" PRIu32, k->name, *(const uint32_t *)value);
    case REAL:
        rp_json_print_double(*(const double *)value, number);
        return rp_text_print(text, ",\n  \"%s\": %s", k->name, number);
    case FLAG:
    case INVERSE:
        break;
    }
    bool flag = *(const bool *)value != (k->kind == INVERSE);
    return rp_text_print(text, ",\n  \"%s\": %s", k->name, flag ? "true" : "false");
}

static rp_status print_keys(const rp_model *model, const key *keys, rp_text *text)
{
    for (; keys->name != NULL; keys++) {
        RP_TRY(print_key(model, keys, text));
    }
    return RP_OK;
}

/* Prints numbers as members of an object that has been begun. */
static rp_status print_numbers(const char *const *names, const double *numbers, size_t count,
                               rp_text *text)
{
    for (size_t i = 0; i < count; i++) {
        char number[RP_JSON_NUMBER_SIZE];
        rp_json_print_double(numbers[i], number);
        RP_TRY(rp_text_print(text, ", \"%s\": %s", names[i], number));
    }
    return RP_OK;
}

/* The style with rope_theta and rope_scaling, which all versions of transformers read. */
static rp_status print_rope(const rp_model *model, rp_text *text)
{
    static const char *const names[] = {"factor", "low_freq_factor", "high_freq_factor",
                                        "original_max_position_embeddings"};
    static const char *const yarn_names[] = {
        "factor", "beta_fast", "beta_slow", "original_max_position_embeddings", "attention_factor"};
    const rp_rope_scale *scale = &model->rope;
    const rp_rope_yarn *yarn = &model->yarn;
    if (strcmp(model->rope_scaling, "llama3") == 0) {
        const double numbers[] = {scale->factor, scale->low, scale->high, scale->original};
        RP_TRY(rp_text_print(text, ",\n  \"rope_scaling\": {\"rope_type\": \"llama3\""));
        RP_TRY(print_numbers(names, numbers, 4, text));
        return rp_text_print(text, "}");
    }
    if (strcmp(model->rope_scaling, "yarn") == 0) {
        const double numbers[] = {yarn->factor, yarn->fast, yarn->slow, yarn->original,
                                  yarn->attention};
        RP_TRY(rp_text_print(text,
                             ",\n  \"rope_scaling\": {\"rope_type\": \"yarn\", "
                             "\"truncate\": %s",
                             yarn->truncate ? "true" : "false"));
        RP_TRY(print_numbers(yarn_names, numbers, 5, text));
        return rp_text_print(text, "}");
    }
    return rp_text_print(text, ",\n  \"rope_scaling\": null");
}

rp_status rpexec_config_print(const rp_model *model, rp_dtype dtype, rp_text *text, bool *found_out)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const rp_hf_family *family = family_of(families[i].type);
        *found_out = fits(family, model);
        if (*found_out) {
            RP_TRY(rp_text_print(text,
                                 "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\","
                                 "\n  \"torch_dtype\": \"%s\"",
                                 family->class, family->type, torch_types[dtype]));
            RP_TRY(print_keys(model, common_keys, text));
            RP_TRY(print_keys(model, families[i].keys, text));
            RP_TRY(print_rope(model, text));
            return rp_text_print(text, "\n}\n");
        }
    }
    return RP_OK;
}

/* ---- config.json that is carried along ------------------------------------------------------- */

static size_t string_end(const rp_text *text, size_t at)
{
    at++;
    while (at < text->length && text->bytes[at] != '"') {
        at += text->bytes[at] == '\\' ? 2 : 1;
    }
    return at + 1 < text->length ? at + 1 : text->length;
}

static size_t skip_blanks(const rp_text *text, size_t at)
{
    while (at < text->length && strchr(" \t\r\n", text->bytes[at]) != NULL) {
        at++;
    }
    return at;
}

/* The value of a key of the outermost object; false: the key is missing, or is written with
 * escapes. */
static bool find_value(const rp_text *text, const char *name, size_t *begin_out, size_t *end_out)
{
    size_t depth = 0;
    size_t end = 0;
    for (size_t at = 0; at < text->length; at = end) {
        char c = text->bytes[at];
        end = c == '"' ? string_end(text, at) : at + 1;
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= c == '}' || c == ']' ? 1 : 0;
        size_t colon = skip_blanks(text, end);
        if (c == '"' && depth == 1 && colon < text->length && text->bytes[colon] == ':' &&
            end - at == strlen(name) + 2 && memcmp(text->bytes + at + 1, name, strlen(name)) == 0) {
            *begin_out = skip_blanks(text, colon + 1);
            bool quoted = *begin_out < text->length && text->bytes[*begin_out] == '"';
            *end_out = quoted ? string_end(text, *begin_out)
                              : *begin_out + strcspn(text->bytes + *begin_out, ",}] \t\r\n");
            return true;
        }
    }
    return false;
}

/* Replaces the bytes [begin, end) of the text. */
static rp_status replace(rp_text *text, size_t begin, size_t end, const char *before,
                         const char *value, const char *after)
{
    rp_text made = {0};
    rp_status status = rp_text_append(&made, text->bytes, begin);
    status = status == RP_OK ? rp_text_print(&made, "%s\"%s\"%s", before, value, after) : status;
    status =
        status == RP_OK ? rp_text_append(&made, text->bytes + end, text->length - end) : status;
    if (status == RP_OK) {
        rp_text_fini(text);
        *text = made;
    } else {
        rp_text_fini(&made);
    }
    return status;
}

/* Removes a key of the outermost object with its value, which may be an object, and a comma. */
static rp_status take_out(rp_text *text, const char *name)
{
    size_t begin = 0;
    size_t end = 0;
    rp_text made = {0};
    if (!find_value(text, name, &begin, &end)) {
        return RP_OK;
    }
    size_t depth = 0;
    for (end = begin; end < text->length;
         end = text->bytes[end] == '"' ? string_end(text, end) : end + 1) {
        char c = text->bytes[end];
        if (depth == 0 && (c == ',' || c == '}')) {
            break;
        }
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= c == '}' || c == ']' ? 1 : 0;
    }
    while (begin > 0 && text->bytes[begin] != ':') { /* back over blanks and the key */
        begin--;
    }
    while (begin > 0 && strchr(",{", text->bytes[begin]) == NULL) {
        begin--;
    }
    bool is_first = text->bytes[begin] == '{';
    end += is_first && end < text->length && text->bytes[end] == ',' ? 1 : 0;
    begin += is_first ? 1 : 0;
    rp_status status = rp_text_append(&made, text->bytes, begin);
    status =
        status == RP_OK ? rp_text_append(&made, text->bytes + end, text->length - end) : status;
    if (status != RP_OK) {
        rp_text_fini(&made);
        return status;
    }
    rp_text_fini(text);
    *text = made;
    return RP_OK;
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static rp_status check_carried(const char *path, const rp_text *text, const char *type)
{
    json_t *root = NULL;
    RP_TRY(rp_hf_parse(path, text, &root));
    const json_t *older = json_object_get(root, "torch_dtype");
    const json_t *newer = json_object_get(root, "dtype");
    bool right = (older != NULL || newer != NULL) && (older == NULL || is_text(older, type)) &&
                 (newer == NULL || is_text(newer, type));
    bool packed = json_object_get(root, "quantization_config") != NULL;
    json_decref(root);
    if (packed) {
        rp_log_error("%s: quantization_config: saved weights are not packed, and the key cannot be "
                     "taken out; valid are keys without escapes",
                     path);
        return RP_INPUT;
    }
    if (!right) {
        rp_log_error("%s: torch_dtype and dtype: the type of saved weights cannot be put there; "
                     "valid are texts and null, and keys without escapes",
                     path);
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rpexec_config_carry(const char *path, const rp_text *from, rp_dtype dtype, rp_text *text)
{
    static const char *const names[] = {"torch_dtype", "dtype"};
    const char *type = torch_types[dtype];
    size_t begin = 0;
    size_t end = 0;
    bool found = false;
    RP_TRY(rp_text_append(text, from->bytes, from->length));
    RP_TRY(take_out(text, "quantization_config")); /* weights are saved unpacked */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (find_value(text, names[i], &begin, &end)) {
            RP_TRY(replace(text, begin, end, "", type, ""));
            found = true;
        }
    }
    if (!found) { /* versions before 4.56 know only this name */
        begin = strcspn(text->bytes, "{") + 1;
        begin = begin < text->length ? begin : text->length;
        RP_TRY(replace(text, begin, begin, "\n  \"torch_dtype\": ", type, ","));
    }
    return check_carried(path, text, type);
}
