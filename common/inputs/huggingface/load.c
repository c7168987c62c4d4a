/* Hugging Face models: from a path to rp_model. */
#include "common/base/log.h"
#include "common/formats/config.h"
#include "common/inputs/data.h"
#include "common/inputs/huggingface/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_LIMIT 64u /* bytes; half the limit of a cost table's name, MODEL@BACKEND */
#define FILE_NAME "config.json"
#define MOST_NAMES 32u /* most keys that a message names */

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

/* A folder without a slash in its path counts only if it has a config.json, and not if a registered
 * model has its name. */
bool rp_hf_is_config(const char *name_or_path)
{
    if (ends_in(name_or_path, ".json")) {
        return true;
    }
    return is_folder(name_or_path) &&
           (strchr(name_or_path, '/') != NULL ||
            (is_in(name_or_path, "%s/%s", FILE_NAME) && !is_registered(name_or_path)));
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Writes a name with only the characters, and at most the length, that names in files of rpsim may
 * have. */
static rp_status plain_name(const char *text, size_t length, rp_arena *arena, const char **name_out)
{
    char name[NAME_LIMIT + 1] = "checkpoint"; /* the name if the folder is the root */
    uint32_t count = 0;
    for (const char *c = text; c < text + length && count < NAME_LIMIT; c++) {
        name[count] = *c;
        name[count] = rp_config_is_name(name, count + 1) && *c != '@' ? *c : '_';
        count++;
        name[count] = '\0';
    }
    return rp_arena_copy_text(arena, name, strlen(name), name_out);
}

/* The last folder of a path from the root. In Hugging Face's cache, with paths
 * models--ORG--NAME/snapshots/REVISION, it is NAME. The path is cut by the search. */
static const char *last_folder(char *real)
{
    char *last = strrchr(real, '/');
    *last = '\0';
    char *above = strrchr(real, '/');
    if (above == NULL || strcmp(above, "/snapshots") != 0) {
        return last + 1;
    }
    *above = '\0';
    const char *model = strrchr(real, '/');
    const char *name = NULL;
    for (const char *c = model; c != NULL; c = strstr(c + 1, "--")) {
        name = c[0] == '-' ? c + 2 : NULL;
    }
    bool cached = name != NULL && strncmp(model, "/models--", 9) == 0 && *name != '\0';
    return cached ? name : last + 1;
}

/* Names a model by its folder, or by its file if that is not called config.json. */
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
    const char *last = last_folder(real);
    return plain_name(last, strlen(last), arena, name_out);
}

/* ---- reading --------------------------------------------------------------------------------- */

static rp_status read_text(const rp_text *text, const char *path, rp_hf_reader reader,
                           void *context, rp_arena *arena, rp_model *model)
{
    json_t *root = NULL;
    rp_hf_cursor cursor = {0};
    rp_hf_config file = {.path = path, .text = text, .cursor = &cursor};
    rp_hf_config config = file;
    RP_TRY(rp_hf_parse(path, text, &root));
    rp_status status = json_is_object(root) ? rp_hf_open(&file, NULL, root, &config)
                                            : rp_hf_refuse(&file, "config", "", "one JSON object");
    status = status == RP_OK ? reader(&config, arena, context, model) : status;
    rp_hf_close(&config);
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
    RP_TRY(rp_text_read_file(file, RP_HF_MAX_BYTES, &text));
    rp_status status = name_model(file, arena, &model.name);
    status = status == RP_OK ? read_text(&text, file, reader, context, arena, &model) : status;
    rp_text_fini(&text);
    *model_out = model;
    return status;
}

/* ---- simulated models ------------------------------------------------------------------------ */

/* Rotation alters no shape: an unknown name is ignored, and so are the numbers. */
static rp_status read_rope(const rp_hf_config *config, rp_model *model)
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
    if (theta != NULL && !json_is_number(theta)) {
        return rp_hf_refuse(config, "rope_theta", rp_hf_not_finite(theta), "numbers above 0");
    }
    model->rope_theta = theta != NULL ? json_number_value(theta) : 10000;
    for (size_t i = 0; name != NULL && i < sizeof names / sizeof *names; i++) {
        model->rope_scaling = strcmp(name, names[i][0]) == 0 ? names[i][1] : model->rope_scaling;
    }
    return RP_OK;
}

/* Warns of numbers that come from the class's defaults, as they may not be the model's. */
static rp_status warn_of_defaults(const rp_hf_config *config, rp_arena *arena)
{
    uint32_t missing = 0;
    const char *list = "";
    RP_TRY(rp_hf_missing(config, arena, &missing, &list));
    if (missing != 0) {
        rp_log_warning("%s: keys that are not there are the defaults of family %s: %s",
                       config->path, config->family->type, list);
    }
    return RP_OK;
}

/* Reads an object whose family has been chosen. */
static rp_status read_object(rp_hf_config *config, rp_arena *arena, rp_model *model)
{
    RP_TRY(rp_hf_read_shapes(config, arena, model));
    RP_TRY(warn_of_defaults(config, arena));
    RP_TRY(rp_hf_check_activation(config));
    RP_TRY(read_rope(config, model));
    return rp_hf_check_rest(config);
}

/* Reads the text part of a file for several modes, and warns that the rest is not used. */
static rp_status read_inner(rp_hf_config *outer, rp_hf_config *inner, rp_arena *arena,
                            rp_model *model)
{
    const char *unused = "";
    const char *key;
    json_t *value;
    uint32_t count = 0;
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
        if (!quiet && count <= MOST_NAMES) {
            RP_TRY(rp_arena_print(arena, &unused, "%s%s%s", unused, count != 0 ? ", " : "",
                                  count == MOST_NAMES ? "…" : key));
        }
        count += !quiet;
    }
    const char *effect = NULL;
    RP_TRY(rp_arena_print(arena, &effect, "only the text model is simulated%s%s",
                          unused[0] != '\0' ? "; not used: " : "", unused));
    rp_hf_warn(outer, inner->name, effect);
    return RP_OK;
}

/* @return whether the file, or its text part, says bfloat16. */
static bool is_bf16(const json_t *outer, const json_t *inner)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *type = json_object_get(inner, keys[i]);
        type = type != NULL ? type : json_object_get(outer, keys[i]);
        found = found || (json_is_string(type) && strcmp(json_string_value(type), "bfloat16") == 0);
    }
    return found;
}

static rp_status read_model(rp_hf_config *config, rp_arena *arena, void *context, rp_model *model)
{
    const char *assume = context;
    const char *names = NULL;
    const json_t *type = json_object_get(config->values, "model_type");
    const json_t *text = json_object_get(config->values, "text_config");
    rp_hf_config inner;
    model->bf16 = is_bf16(config->values, text);
    RP_TRY(rp_hf_family_names(arena, &names));
    if (!json_is_object(text)) {
        RP_TRY(rp_hf_choose_family(config, type, assume, names, NULL, arena));
        return read_object(config, arena, model);
    }
    const json_t *own = json_object_get(text, "model_type");
    RP_TRY(rp_hf_check_types(config));
    RP_TRY(rp_hf_open(config, "text_config", text, &inner));
    rp_status status =
        rp_hf_choose_family(&inner, own != NULL ? own : type, assume, names, NULL, arena);
    status = status == RP_OK ? read_inner(config, &inner, arena, model) : status;
    rp_hf_close(&inner);
    return status;
}

/* ---- models that have been measured ---------------------------------------------------------- */

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
        RP_TRY(rp_model_read(names[i], arena, &known));
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
