/* adapter_config.json of PEFT: written for adapters that are trained, read when a run continues
 * with adapters. */
#include "exec/checkpoint/adapter_config.h"

#include "common/base/log.h"
#include "common/formats/json_read.h"
#include "common/inputs/huggingface/config.h"
#include "exec/checkpoint/companions.h"
#include "exec/checkpoint/links.h"
#include "exec/checkpoint/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "adapter_config.json"

/* Limits of --lora-rank and --lora-alpha. */
#define MOST_RANK 65536
#define MOST_ALPHA 1e6

/* ---- writing --------------------------------------------------------------------------------- */

/* Modules by the last part of their names, each once: PEFT puts adapters on all modules whose names
 * end so, also on those of every expert. Matrices that join all experts are parameters of a module
 * (exec/model/layout.c). */
static json_t *target_modules(const rpexec_model *model)
{
    json_t *seen = json_object();
    json_t *names = json_array();
    for (uint32_t i = 0; i < model->block.tensor_count; i++) {
        const rpexec_tensor *t = &model->block.tensors[i];
        const char *end = strstr(t->name, ".lora_A.weight");
        char name[64] = "";
        if (end == NULL || t->part != NULL || !rpexec_tensor_trained(&model->block, t)) {
            continue;
        }
        const char *begin = end;
        while (begin > t->name && begin[-1] != '.') {
            begin--;
        }
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
        if (json_object_get(seen, name) == NULL) {
            json_object_set_new(seen, name, json_true());
            json_array_append_new(names, json_string(name));
        }
    }
    json_decref(seen);
    return names;
}

#define GATE_UP "mlp.experts.gate_up_proj"
#define DOWN "mlp.experts.down_proj"

static bool is_joined(const rpexec_model *model)
{
    return model->block.tensors[model->block_tensors[RPEXEC_GATE]].part != NULL;
}

/* Gate and up have an adapter each, which PEFT sees as a single adapter of twice the rank. Alpha
 * doubles too, so that the scale, alpha over rank, stays. */
static void add_parameters(const rpexec_model *model, double alpha, json_t *root)
{
    json_object_set_new(root, "target_parameters", json_pack("[s,s]", GATE_UP, DOWN));
    json_object_set_new(root, "rank_pattern", json_pack("{s:i}", GATE_UP, 2 * (int)model->rank));
    json_object_set_new(root, "alpha_pattern", json_pack("{s:f}", GATE_UP, 2 * alpha));
}

static int append(const char *bytes, size_t length, void *text)
{
    return rp_text_append(text, bytes, length) == RP_OK ? 0 : -1;
}

rp_status rpexec_adapter_config_print(const rpexec_model *model, const char *base, rp_text *text)
{
    double alpha = model->config->lora_alpha != 0 ? model->config->lora_alpha : model->rank;
    bool whole = alpha == floor(alpha) && alpha < 1e15;
    json_t *name = json_string(base);
    json_decref(name);
    if (base != NULL && name == NULL) {
        rp_log_error(FILE_NAME ": base_model_name_or_path: %s; valid are names in UTF-8", base);
        return RP_INPUT;
    }
    json_t *root = json_pack(
        "{s:s?,s:s,s:b,s:b,s:b,s:f,s:s,s:i,s:s,s:b,s:b,s:n,s:{},s:{}}", "base_model_name_or_path",
        base, "bias", "none", "fan_in_fan_out", 0, "inference_mode", 1, "init_lora_weights", 1,
        "lora_dropout", 0.0, "peft_type", "LORA", "r", (int)model->rank, "task_type", "CAUSAL_LM",
        "use_dora", 0, "use_rslora", 0, "modules_to_save", "rank_pattern", "alpha_pattern");
    json_object_set_new(root, "lora_alpha",
                        whole ? json_integer((json_int_t)alpha) : json_real(alpha));
    json_object_set_new(root, "target_modules", target_modules(model));
    bool on_parameters = is_joined(model) && model->linears[RPEXEC_GATE].rank != 0;
    if (on_parameters) {
        add_parameters(model, alpha, root);
    }
    bool complete = json_object_size(root) == (on_parameters ? 17 : 16) &&
                    json_dump_callback(root, append, text, JSON_INDENT(2) | JSON_SORT_KEYS) == 0;
    json_decref(root);
    if (!complete) {
        rp_log_error("out of memory: " FILE_NAME);
        return RP_NO_MEMORY;
    }
    return rp_text_append(text, "\n", 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_anything(const json_t *value)
{
    (void)value;
    return true;
}

static bool is_nothing(const json_t *value)
{
    return rp_hf_is_empty(value) || json_is_false(value);
}

static bool is_zero(const json_t *value)
{
    return json_is_number(value) && json_number_value(value) == 0;
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool is_lora(const json_t *value)
{
    return is_text(value, "LORA");
}

static bool is_causal(const json_t *value)
{
    return json_is_null(value) || is_text(value, "CAUSAL_LM");
}

static bool is_none(const json_t *value)
{
    return is_text(value, "none");
}

/* Other initialisations change the weights that the adapters are on. */
static bool leaves_base(const json_t *value)
{
    return json_is_boolean(value) || is_text(value, "gaussian");
}

/* Keys whose values may be other than null, false and empty. Keys of modules are checked below. */
static const struct {
    const char *key;
    bool (*holds)(const json_t *value);
    const char *valid;
} rules[] = {{"auto_mapping", is_anything, NULL},
             {"bias", is_none, "none"},
             {"inference_mode", is_anything, NULL},
             {"init_lora_weights", leaves_base, "true, false and gaussian"},
             {"lora_dropout", is_zero, "0: dropout is not computed"},
             {"megatron_core", is_anything, NULL},
             {"peft_type", is_lora, "LORA"},
             {"peft_version", is_anything, NULL},
             {"qalora_group_size", is_anything, NULL},
             {"revision", is_anything, NULL},
             {"runtime_config", is_anything, NULL},
             {"target_modules", is_anything, NULL},
             {"target_parameters", is_anything, NULL},
             {"task_type", is_causal, "CAUSAL_LM"}};

static rp_status check_rest(const rp_hf_config *r)
{
    rp_status status = RP_OK;
    const char *key;
    json_t *value;
    json_object_foreach(r->rest, key, value)
    {
        bool (*holds)(const json_t *) = is_nothing;
        const char *valid = "null, false and empty ones: other adapters are not computed";
        for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
            if (strcmp(rules[i].key, key) == 0) {
                holds = rules[i].holds;
                valid = rules[i].valid;
            }
        }
        if (!holds(value)) {
            status = rp_hf_refuse(r, key, "", valid);
        }
    }
    return status;
}

/* The base must be a folder: a model's name on a hub is refused, since nothing is fetched here. */
static rp_status read_base(const rp_hf_config *r, rp_arena *arena, rpexec_adapters *adapters)
{
    const char *key = "base_model_name_or_path";
    const char *valid = "folders with config.json and weights, those that the adapters are on: "
                        "put its path there";
    const char *base = json_string_value(rp_hf_get(r, key));
    const char *config = NULL;
    const char *cause = NULL;
    if (base == NULL) {
        return rp_hf_refuse(r, key, "it is not said", valid);
    }
    RP_TRY(rp_arena_copy_text(arena, base, strlen(base), &adapters->base));
    RP_TRY(rp_arena_print(arena, &config, "%s/config.json", base));
    if (access(config, R_OK) != 0) {
        RP_TRY(rp_arena_print(arena, &cause, "%s: %s", config, strerror(errno)));
        return rp_hf_refuse(r, key, cause, valid);
    }
    return RP_OK;
}

/* A pattern must be the one value that is written above, or absent. */
static rp_status check_pattern(const rp_hf_config *r, const char *key, double twice)
{
    const json_t *pattern = rp_hf_get(r, key);
    bool own = json_object_size(pattern) == 1 &&
               json_number_value(json_object_get(pattern, GATE_UP)) == twice;
    return pattern == NULL || rp_hf_is_empty(pattern) || own
               ? RP_OK
               : rp_hf_refuse(r, key, "", "none, and twice the adapters' number for " GATE_UP);
}

/* ---- modules --------------------------------------------------------------------------------- */

#define PREFIX "base_model.model.model.layers."
#define NOT_KNOWN UINT32_MAX /* modules are given by a pattern */

/* The last part of a module's name, and its bits of rp_model.lora_linears. Adapters on parameters
 * are found by the names of PEFT's wrappers. */
static const struct {
    const char *module;
    uint32_t linears;
} modules[] = {{"q_proj", 1},      {"k_proj", 2},        {"v_proj", 4},     {"o_proj", 8},
               {"qkv_proj", 7},    {"gate_proj", 16},    {"w1", 16},        {"up_proj", 32},
               {"w3", 32},         {"gate_up_proj", 48}, {"down_proj", 64}, {"w2", 64},
               {"base_layer", 48}, {"experts", 64}};
#define MODULES                                                                                    \
    "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj, or what checkpoints of "    \
    "the "                                                                                         \
    "family have for them, in every layer"

/* @param name of `length` bytes @return 0: adapters on it are not computed */
static uint32_t linears_of(const char *name, size_t length)
{
    while (length > 0 && memchr(name, '.', length) != NULL) {
        length--;
        name++;
    }
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (strlen(modules[i].module) == length && memcmp(modules[i].module, name, length) == 0) {
            return modules[i].linears;
        }
    }
    return 0;
}

/* Linear layers that target_modules names, and those of target_parameters, whose tensors join all
 * experts. */
static rp_status read_targets(const rp_hf_config *r, uint32_t *linears_out)
{
    const json_t *names = json_object_get(r->values, "target_modules");
    const json_t *parameters = json_object_get(r->values, "target_parameters");
    bool pattern = json_is_string(names) || json_array_size(parameters) != 0;
    *linears_out = pattern ? NOT_KNOWN : 0;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        uint32_t linears = name == NULL ? 0 : linears_of(name, strlen(name));
        if (linears == 0) {
            return rp_hf_refuse(r, "target_modules", name != NULL ? name : "", MODULES);
        }
        *linears_out |= linears;
    }
    return RP_OK;
}

/* A tensor's layer, and the linear layers whose adapters it holds. */
static bool place_of(const char *name, uint64_t *layer_out, uint32_t *linears_out)
{
    char number[24] = "";
    const char *module = name + strlen(PREFIX);
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) {
        return false;
    }
    size_t digits = strcspn(module, ".");
    const char *end = strstr(module, ".lora_");
    if (end == NULL || digits >= sizeof number) {
        return false;
    }
    memcpy(number, module, digits);
    *linears_out = linears_of(module, (size_t)(end - module));
    return *linears_out != 0 && rp_parse_u64(number, 0, UINT32_MAX - 1, layer_out);
}

static rp_status read_tensors(const rp_hf_config *r, const rpexec_safetensors *file,
                              rp_arena *scratch, rpexec_adapters *adapters)
{
    uint32_t *has = NULL; /* [layers] */
    uint64_t most = 0;
    const char *cause = NULL;
    for (int pass = 0; pass < 2; pass++) {
        RP_TRY(pass == 0 ? RP_OK : rp_arena_alloc(scratch, most, sizeof *has, &has));
        for (uint32_t i = 0; i < file->count; i++) {
            uint64_t layer = 0;
            uint32_t linears = 0;
            if (!place_of(file->tensors[i].name, &layer, &linears) || layer >= file->count) {
                return rp_hf_refuse(r, "target_modules", file->tensors[i].name, MODULES);
            }
            most = layer + 1 > most ? layer + 1 : most;
            if (pass == 1) {
                has[layer] |= linears;
            }
        }
    }
    for (uint64_t layer = 0; layer < most; layer++) {
        if (has[layer] != has[0]) {
            RP_TRY(rp_arena_print(scratch, &cause,
                                  "layer %" PRIu64 " has adapters on others than layer 0", layer));
            return rp_hf_refuse(r, "target_modules", cause, MODULES);
        }
    }
    adapters->layers = (uint32_t)most;
    adapters->linears = most == 0 ? 0 : has[0];
    return RP_OK;
}

/* A missing file is reported when it is loaded. */
static rp_status survey(const rp_hf_config *r, const char *path, rp_arena *arena,
                        rpexec_adapters *adapters)
{
    rpexec_safetensors file;
    rp_arena *scratch = NULL;
    uint32_t named = 0;
    size_t line = rp_hf_line(r, "target_modules");
    RP_TRY(rp_arena_print(arena, &adapters->targets, line == 0 ? "%s" : "%s:%zu", r->path, line));
    RP_TRY(read_targets(r, &named));
    if (access(path, F_OK) != 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = rpexec_safetensors_open(path, scratch, &file);
    if (status == RP_OK) {
        status = read_tensors(r, &file, scratch, adapters);
        rpexec_safetensors_close(&file);
    }
    rp_arena_destroy(scratch);
    RP_TRY(status);
    if (named != NOT_KNOWN && named != adapters->linears) {
        return rp_hf_refuse(r, "target_modules", "its tensors are on other modules", MODULES);
    }
    const uint32_t all = (1u << RP_LORA_LINEAR_COUNT) - 1;
    adapters->linears = adapters->linears == all ? 0 : adapters->linears;
    return RP_OK;
}

rp_status rpexec_adapters_check(const rpexec_adapters *adapters, const rp_model *model)
{
    if (adapters->layers == 0 || adapters->layers == model->layers) {
        return RP_OK;
    }
    rp_log_error("%s: target_modules: %" PRIu32 " layers have adapters, %s has %" PRIu32
                 "; valid values are " MODULES,
                 adapters->targets, adapters->layers, model->name, model->layers);
    return RP_INPUT;
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct reading {
    rpexec_adapters *adapters;
    const char *tensors; /* path */
} reading;

static rp_status read_object(rp_hf_config *r, rp_arena *arena, void *context, rp_model *model)
{
    const reading *reads = context;
    rpexec_adapters *adapters = reads->adapters;
    (void)model;
    const json_t *rank = rp_hf_get(r, "r");
    if (!rp_json_is_integer(rank, 1, MOST_RANK)) {
        return rp_hf_refuse(r, "r", "", "integers from 1 to 65536");
    }
    adapters->rank = (uint32_t)json_integer_value(rank);
    RP_TRY(rp_hf_number(r, "lora_alpha", &adapters->alpha));
    if (adapters->alpha > MOST_ALPHA) {
        return rp_hf_refuse(r, "lora_alpha", "", "numbers up to 1e6");
    }
    if (json_object_get(r->values, "peft_type") == NULL) {
        return rp_hf_refuse(r, "peft_type", "", "LORA");
    }
    double alpha = adapters->alpha;
    RP_TRY(check_pattern(r, "rank_pattern", 2.0 * adapters->rank));
    RP_TRY(check_pattern(r, "alpha_pattern", 2 * alpha));
    RP_TRY(read_base(r, arena, adapters));
    RP_TRY(check_rest(r));
    return survey(r, reads->tensors, arena, adapters);
}

rp_status rpexec_adapters_find(const char *folder, rp_arena *arena, rpexec_adapters *adapters_out,
                               bool *found_out)
{
    const char *path = NULL;
    reading reads = {.adapters = adapters_out};
    rp_model unused;
    *adapters_out = (rpexec_adapters){0};
    RP_TRY(rp_arena_print(arena, &reads.tensors, "%s/adapter_model.safetensors", folder));
    RP_TRY(rp_arena_print(arena, &path, "%s/" FILE_NAME, folder));
    *found_out = access(path, F_OK) == 0;
    RP_TRY(rpexec_links_check(path));
    return *found_out ? rp_hf_read(path, read_object, &reads, arena, &unused) : RP_OK;
}
