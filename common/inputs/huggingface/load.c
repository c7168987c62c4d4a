/* Hugging Face models: from a path to rp_model. */
#include "common/base/log.h"
#include "common/formats/config.h"
#include "common/formats/json_read.h"
#include "common/inputs/data.h"
#include "common/inputs/huggingface/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_BYTES ((size_t)1 << 20)
#define NAME_LIMIT 64u /* half of what a cost table's name, MODEL@BACKEND, may have */
#define FILE_NAME "config.json"

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* PATH/NAME is there. */
static bool is_in(const char *path, const char *format, const char *name)
{
    char file[PATH_MAX];
    int length = snprintf(file, sizeof file, format, path, name);
    return length > 0 && (size_t)length < sizeof file && access(file, F_OK) == 0;
}

static bool is_registered(const char *name)
{
    rp_arena *arena = NULL;
    const char *path = NULL;
    bool found = false;
    if (rp_arena_create(&arena) == RP_OK) {
        (void)rp_data_find(&rp_data_models, name, arena, &path, &found);
    }
    rp_arena_destroy(arena);
    return found;
}

/* A folder without a slash is one where it has a config.json and no registered model's name. */
bool rp_hf_is_config(const char *name_or_path)
{
    if (ends_in(name_or_path, ".json")) {
        return true;
    }
    return is_folder(name_or_path) &&
           (strchr(name_or_path, '/') != NULL ||
            (is_in(name_or_path, "%s/%s", FILE_NAME) && !is_registered(name_or_path)));
}

/* ---- names ------------------------------------------------------------------------------------
 */

/* With the characters and the length that names in files of rpsim may have. */
static rp_status plain_name(const char *text, size_t length, rp_arena *arena, const char **name_out)
{
    char name[NAME_LIMIT + 1] = "checkpoint"; /* of the root folder */
    uint32_t count = 0;
    for (const char *c = text; c < text + length && count < NAME_LIMIT; c++) {
        name[count] = *c;
        name[count] = rp_config_is_name(name, count + 1) && *c != '@' ? *c : '_';
        count++;
        name[count] = '\0';
    }
    return rp_arena_copy_text(arena, name, strlen(name), name_out);
}

/* The folder's name; a file with a name of its own has that. */
static rp_status name_model(const char *path, rp_arena *arena, const char **name_out)
{
    char real[PATH_MAX];
    const char *folder = NULL;
    const char *end = strrchr(path, '/'); /* the file itself may be a link to somewhere else */
    const char *file = end != NULL ? end + 1 : path;
    size_t length = strlen(file);
    if (ends_in(file, ".json") && length > 5 && strcmp(file, FILE_NAME) != 0) {
        return plain_name(file, length - 5, arena, name_out);
    }
    RP_TRY(rp_arena_print(arena, &folder, "%.*s/", end != NULL ? (int)(end - path) : 1,
                          end != NULL ? path : "."));
    if (realpath(folder, real) == NULL) {
        rp_log_error("%s: realpath: %s", folder, strerror(errno));
        return RP_IO;
    }
    const char *last = strrchr(real, '/') + 1;
    return plain_name(last, strlen(last), arena, name_out);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static rp_status read_text(const rp_text *text, const char *path, rp_hf_reader reader,
                           void *context, rp_arena *arena, rp_model *model)
{
    json_error_t error;
    json_t *root = json_loadb(text->bytes, text->length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        rp_log_error("%s:%d: %s; valid values are one JSON object", path,
                     error.line > 0 ? error.line : 1, error.text);
        return RP_INPUT;
    }
    rp_hf_config config = {.path = path, .text = text, .values = root};
    rp_status status = json_is_object(root)
                           ? rp_hf_copy_keys(&config)
                           : rp_hf_refuse(&config, "config", "", "one JSON object");
    status = status == RP_OK ? reader(&config, arena, context, model) : status;
    json_decref(config.rest);
    json_decref(root);
    return status;
}

rp_status rp_hf_read(const char *path, rp_hf_reader reader, void *context, rp_arena *arena,
                     rp_model *model_out)
{
    rp_text text = {0};
    const char *file = path;
    if (is_folder(path)) {
        const char *slash = ends_in(path, "/") ? "" : "/";
        RP_TRY(rp_arena_print(arena, &file, "%s%s" FILE_NAME, path, slash));
    }
    rp_model model = {.source = file};
    RP_TRY(rp_text_read_file(file, LIMIT_BYTES, &text));
    rp_status status = name_model(file, arena, &model.name);
    status = status == RP_OK ? read_text(&text, file, reader, context, arena, &model) : status;
    rp_text_fini(&text);
    *model_out = model;
    return status;
}

/* ---- simulated models -------------------------------------------------------------------------
 */

/* Text models inside of files for several modes. */
static const struct {
    const char *outer;
    const char *inner;
} wrappers[] = {{"gemma3", "gemma3_text"}};

static const json_t *inner_type(const json_t *outer, const json_t *inner)
{
    const json_t *type = json_object_get(inner, "model_type");
    return type != NULL ? type : json_object_get(outer, "model_type");
}

static const rp_hf_family *family_of(const json_t *type)
{
    const char *name = json_string_value(type);
    const rp_hf_family *family = rp_hf_family_of(type);
    for (size_t i = 0; name != NULL && i < sizeof wrappers / sizeof wrappers[0]; i++) {
        if (strcmp(name, wrappers[i].outer) == 0) {
            json_t *inner = json_string(wrappers[i].inner);
            family = rp_hf_family_of(inner);
            json_decref(inner);
        }
    }
    return family;
}

static rp_status understood_keys(const rp_hf_config *config, rp_arena *arena, const char **keys_out)
{
    const char *key;
    json_t *value;
    *keys_out = "";
    json_t *llama = json_loads(rp_hf_family_at(0)->defaults, 0, NULL);
    rp_status status = RP_OK;
    json_object_foreach(config->rest, key, value)
    {
        if (status == RP_OK && json_object_get(llama, key) != NULL) {
            status = rp_arena_print(arena, keys_out, "%s%s%s", *keys_out,
                                    **keys_out != '\0' ? ", " : "", key);
        }
    }
    json_decref(llama);
    return status;
}

static rp_status refuse_family(const rp_hf_config *config, const char *type, rp_arena *arena)
{
    const char *names = NULL;
    const char *keys = NULL;
    const char *cause = NULL;
    const char *valid = NULL;
    RP_TRY(rp_hf_family_names(arena, &names));
    RP_TRY(understood_keys(config, arena, &keys));
    RP_TRY(rp_arena_print(arena, &cause, "%s%.64s%s", type[0] != '\0' ? "family '" : "no family",
                          type, type[0] != '\0' ? "' is not known" : " is said"));
    RP_TRY(rp_arena_print(arena, &valid,
                          "%s; or --assume llama, which reads it as that family (of its keys %s "
                          "are understood) and names what is not used",
                          names, keys[0] != '\0' ? keys : "none"));
    return rp_hf_refuse(config, "model_type", cause, valid);
}

/* `assume` counts where the file's own family is unknown. */
static rp_status choose_family(rp_hf_config *config, const json_t *outer, const char *assume,
                               rp_arena *arena)
{
    const json_t *type = inner_type(outer, config->values);
    const char *name = json_is_string(type) ? json_string_value(type) : "";
    config->family = family_of(type);
    if (config->family != NULL) {
        if (assume != NULL && strcmp(assume, config->family->type) != 0) {
            rp_log_warning("%s: --assume: family %s is known and read as itself", config->path,
                           config->family->type);
        }
        return RP_OK;
    }
    if (assume == NULL) {
        return refuse_family(config, name, arena);
    }
    json_t *assumed = json_string(assume);
    config->family = rp_hf_family_of(assumed);
    json_decref(assumed);
    if (config->family == NULL) {
        const char *names = NULL;
        RP_TRY(rp_hf_family_names(arena, &names));
        rp_log_error("--assume: '%.64s' is not a family that is known; valid values are %s", assume,
                     names);
        return RP_USAGE;
    }
    const char *effect = NULL;
    RP_TRY(rp_arena_print(arena, &effect,
                          "family '%.64s' is not known; it is read as %s, as --assume says", name,
                          config->family->type));
    rp_hf_warn(config, "model_type", effect);
    return RP_OK;
}

/* Gates of other functions than SiLU cost as much. */
static void check_activation(const rp_hf_config *config)
{
    static const char *const known[] = {"silu",     "swish",      "gelu", "gelu_pytorch_tanh",
                                        "gelu_new", "quick_gelu", NULL};
    static const char *const names[] = {"hidden_act", "hidden_activation"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *value = rp_hf_get(config, names[i]);
        const char *text = json_string_value(value);
        bool found = value == NULL || json_is_null(value);
        for (size_t k = 0; text != NULL && known[k] != NULL; k++) {
            found = found || strcmp(text, known[k]) == 0;
        }
        if (!found) {
            rp_hf_warn(config, names[i],
                       "the function is not known and simulated as a gate of SiLU");
        }
    }
}

/* Rotation alters no shape: a name that is not known, and numbers, are left as they are. */
static void read_rope(const rp_hf_config *config, rp_model *model)
{
    static const char *const names[][2] = {{"llama3", "llama3"},
                                           {"yarn", "yarn"},
                                           {"linear", "linear"},
                                           {"longrope", "longrope"},
                                           {"su", "longrope"}};
    const json_t *older = json_object_get(config->values, "rope_scaling");
    const json_t *newer = json_object_get(config->values, "rope_parameters");
    const json_t *rope = json_is_object(older) ? older : newer;
    const json_t *type = json_object_get(rope, "rope_type");
    const char *name = json_string_value(type != NULL ? type : json_object_get(rope, "type"));
    const json_t *theta = json_object_get(config->values, "rope_theta");
    theta = theta != NULL ? theta : json_object_get(newer, "rope_theta");
    model->rope_theta = json_is_number(theta) ? json_number_value(theta) : 10000;
    for (size_t i = 0; name != NULL && i < sizeof names / sizeof *names; i++) {
        model->rope_scaling = strcmp(name, names[i][0]) == 0 ? names[i][1] : model->rope_scaling;
    }
}

/* A key that the file has; the number of experts has two names. */
static bool says(const rp_hf_config *config, const char *key)
{
    const char *too = config->family->experts_too;
    bool named =
        too != NULL && (strcmp(key, "num_experts") == 0 || strcmp(key, "num_local_experts") == 0 ||
                        strcmp(key, "n_routed_experts") == 0);
    return json_object_get(config->values, key) != NULL ||
           (named && json_object_get(config->values, too) != NULL);
}

/* Sizes that no file leaves out: a number must not come from a class's defaults without a word. */
static rp_status warn_of_defaults(const rp_hf_config *config, rp_arena *arena)
{
    static const char *const keys[] = {"num_hidden_layers",
                                       "hidden_size",
                                       "intermediate_size",
                                       "num_attention_heads",
                                       "vocab_size",
                                       "num_key_value_heads",
                                       "head_dim",
                                       "num_experts",
                                       "num_local_experts",
                                       "n_routed_experts",
                                       "num_experts_per_tok",
                                       "moe_intermediate_size",
                                       "shared_expert_intermediate_size",
                                       "n_shared_experts",
                                       "first_k_dense_replace",
                                       "kv_lora_rank",
                                       "q_lora_rank",
                                       "qk_rope_head_dim",
                                       "qk_nope_head_dim",
                                       "v_head_dim"};
    const char *list = "";
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = json_object_get(config->defaults, keys[i]);
        if (json_is_integer(value) && !says(config, keys[i])) {
            RP_TRY(rp_arena_print(arena, &list, "%s%s%s %lld", list, list[0] != '\0' ? ", " : "",
                                  keys[i], (long long)json_integer_value(value)));
        }
    }
    if (list[0] != '\0') {
        rp_log_warning("%s: keys that are not there are the defaults of family %s: %s",
                       config->path, config->family->type, list);
    }
    return RP_OK;
}

static rp_status read_object(rp_hf_config *config, rp_arena *arena, rp_model *model)
{
    json_t *defaults = json_loads(config->family->defaults, 0, NULL);
    if (defaults == NULL) {
        rp_log_error("out of memory: %s", config->path);
        return RP_NO_MEMORY;
    }
    config->defaults = defaults;
    rp_status status = rp_hf_read_shapes(config, arena, model);
    if (status == RP_OK) {
        status = warn_of_defaults(config, arena);
        check_activation(config);
        read_rope(config, model);
        rp_hf_warn_of_rest(config);
    }
    config->defaults = NULL;
    json_decref(defaults);
    return status;
}

/* The text part of a file for several modes; a word about the rest. */
static rp_status read_inner(rp_hf_config *outer, rp_hf_config *inner, rp_arena *arena,
                            rp_model *model)
{
    const char *unused = "";
    const char *key;
    json_t *value;
    bool tied = false;
    RP_TRY(read_object(inner, arena, model));
    if (json_object_get(outer->values, "tie_word_embeddings") != NULL) { /* it comes first */
        RP_TRY(rp_hf_flag(outer, "tie_word_embeddings", &tied));
        model->tied_head = tied;
        rp_model_count(model);
    }
    json_object_foreach(outer->rest, key, value)
    {
        bool quiet = rp_hf_is_unneeded(key) || strcmp(key, inner->name) == 0 ||
                     strcmp(key, "model_type") == 0 || strcmp(key, "architectures") == 0;
        if (!quiet) {
            RP_TRY(rp_arena_print(arena, &unused, "%s%s%s", unused, unused[0] != '\0' ? ", " : "",
                                  key));
        }
    }
    const char *effect = NULL;
    RP_TRY(rp_arena_print(arena, &effect, "only the text model is simulated%s%s",
                          unused[0] != '\0' ? "; not used: " : "", unused));
    rp_hf_warn(outer, inner->name, effect);
    return RP_OK;
}

static rp_status read_model(rp_hf_config *config, rp_arena *arena, void *context, rp_model *model)
{
    const char *assume = context;
    rp_hf_config inner = *config;
    inner.values = json_object_get(config->values, "text_config");
    if (!json_is_object(inner.values)) {
        RP_TRY(choose_family(config, config->values, assume, arena));
        return read_object(config, arena, model);
    }
    inner.name = "text_config";
    RP_TRY(rp_hf_copy_keys(&inner));
    rp_status status = choose_family(&inner, config->values, assume, arena);
    status = status == RP_OK ? read_inner(config, &inner, arena, model) : status;
    json_decref(inner.rest);
    return status;
}

/* ---- models that have been measured -----------------------------------------------------------
 */

static bool same_shapes(const rp_model *a, const rp_model *b)
{
    return a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->intermediate == b->intermediate && a->experts == b->experts &&
           a->active_experts == b->active_experts && a->vocab == b->vocab &&
           a->sliding_window == b->sliding_window && a->lora_rank == b->lora_rank &&
           a->learned_positions == b->learned_positions && a->kinds == NULL &&
           a->layer_parameters == b->layer_parameters && a->total_parameters == b->total_parameters;
}

rp_status rp_hf_find_recorded(rp_arena *arena, rp_model *model)
{
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_data_list("models", arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        rp_model known;
        RP_TRY(rp_model_load(names[i], arena, &known));
        if (same_shapes(model, &known)) {
            model->recorded = known.name;
            model->fused_loss = known.fused_loss;
            model->megatron_kernels = known.megatron_kernels;
            model->loss_metrics = known.loss_metrics;
            model->host_launch_us = known.host_launch_us;
            model->step_host_ms = known.step_host_ms;
            return RP_OK;
        }
    }
    return RP_OK;
}

rp_status rp_hf_model_parse(const char *name, const char *bytes, size_t length, const char *assume,
                            rp_arena *arena, rp_model *model_out)
{
    const rp_text text = {.bytes = (char *)(uintptr_t)bytes, .length = length};
    rp_model model = {.source = name, .name = name};
    RP_TRY(read_text(&text, name, read_model, (void *)(uintptr_t)assume, arena, &model));
    *model_out = model;
    return RP_OK;
}

rp_status rp_hf_model_load(const char *path, const char *assume, rp_arena *arena,
                           rp_model *model_out)
{
    RP_TRY(rp_hf_read(path, read_model, (void *)(uintptr_t)assume, arena, model_out));
    return rp_hf_find_recorded(arena, model_out);
}
