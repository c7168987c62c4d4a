#include "exec/checkpoint/weights.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "exec/checkpoint/joined.h"
#include "exec/checkpoint/links.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define INDEX_LIMIT_BYTES ((size_t)64 << 20)

/* Text that PEFT puts before the names of a model's modules. */
#define ADAPTER_PREFIX "base_model.model."

/* ---- names ----------------------------------------------------------------------------------- */

static rp_status name_of(const rpexec_model *model, uint32_t layer, const rpexec_tensor *tensor,
                         const char *prefix, rp_arena *arena, const char **name_out)
{
    bool block = layer != 0 && layer + 1 != model->layer_count;
    bool adapter =
        model->rank != 0 && rpexec_tensor_trained(rpexec_model_layer(model, layer), tensor);
    return block ? rp_arena_print(arena, name_out, "%s%smodel.layers.%" PRIu32 ".%s", prefix,
                                  adapter ? ADAPTER_PREFIX : "", layer - 1, tensor->name)
                 : rp_arena_print(arena, name_out, "%s%s", prefix, tensor->name);
}

static bool is_tied_table(const rpexec_model *model, uint32_t layer, uint32_t tensor)
{
    return layer + 1 == model->layer_count && tensor == RPEXEC_HEAD_TABLE &&
           model->config->tied_head;
}

rp_status rpexec_weights_list(const rpexec_state *state, const float *values, const char *prefix,
                              rp_arena *arena, rpexec_writable **tensors_out, uint32_t *count_out)
{
    const rpexec_model *model = state->model;
    uint32_t most = 3 + model->config->layers * model->block.tensor_count;
    rpexec_writable *tensors = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_alloc(arena, most, sizeof *tensors, &tensors));
    for (uint32_t i = 0; i < model->layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(model, i);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            const rpexec_tensor *t = &layer->tensors[k];
            if (is_tied_table(model, i, k) || rpexec_tensor_trained(layer, t) != (values != NULL)) {
                continue;
            }
            bool vector = t->vector;
            rpexec_writable *w = &tensors[count++];
            *w = (rpexec_writable){.rank = vector ? 1 : 2,
                                   .shape = {vector ? t->columns : t->rows, t->columns}};
            if (values != NULL) {
                w->values = values + state->trained[i] + t->offset - layer->frozen;
            } else {
                w->dtype = model->dtype;
                w->values =
                    rpexec_element_const(w->dtype, rpexec_state_working(state, i), t->offset);
            }
            RP_TRY(name_of(model, i, t, prefix, arena, &w->name));
            if (t->part != NULL) {
                rpexec_weight_part *part = NULL;
                RP_TRY(rp_arena_alloc(arena, 1, sizeof *part, &part));
                *part = (rpexec_weight_part){.tensor = t, .values = w->values};
                w->parts = part;
            }
        }
    }
    *tensors_out = tensors;
    *count_out = count;
    return RP_OK;
}

/* A master that is finite may be too large for the storage type. */
static bool is_finite(const rpexec_state *s, uint32_t layer, const rpexec_tensor *t)
{
    const rpexec_layer *l = rpexec_model_layer(s->model, layer);
    const rp_dtype dtype = s->model->dtype;
    uint64_t count = t->rows * t->columns;
    bool trained = rpexec_tensor_trained(l, t);
    const float *master = trained ? s->master + s->trained[layer] + t->offset - l->frozen : NULL;
    const void *working = rpexec_element_const(dtype, rpexec_state_working(s, layer), t->offset);
    return rpexec_all_finite(dtype, count, working) &&
           (!trained || rpexec_all_finite(RP_DTYPE_F32, count, master));
}

rp_status rpexec_weights_not_finite(const rpexec_state *state, rp_arena *arena,
                                    const char **name_out, uint32_t *count_out)
{
    *name_out = NULL;
    *count_out = 0;
    for (uint32_t i = 0; i < state->model->layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(state->model, i);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            if (is_tied_table(state->model, i, k) || is_finite(state, i, &layer->tensors[k])) {
                continue;
            }
            if ((*count_out)++ == 0) {
                RP_TRY(name_of(state->model, i, &layer->tensors[k], "", arena, name_out));
            }
        }
    }
    return RP_OK;
}

/* ---- files of a folder ----------------------------------------------------------------------- */

typedef struct folder {
    const char *path;
    rp_arena *arena;
    rpexec_held held; /* the last joined tensor that was read */
    uint32_t count;
    rpexec_safetensors *files;
    bool **used;    /* [count][tensors of the file] */
    json_t *index;  /* the index file; NULL: there is a single file and no index */
    json_t *map;    /* member of `index`: from tensors' names to files' names */
    json_t *shards; /* from files' names to their numbers */
} folder;

static void close_folder(folder *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        rpexec_safetensors_close(&f->files[i]);
    }
    json_decref(f->shards);
    json_decref(f->index);
}

/* Shards lie in the folder itself: a name that leads elsewhere is an attack. */
static bool is_bare(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static rp_status open_shard(folder *f, const char *index, const char *name)
{
    if (json_object_get(f->shards, name) != NULL) {
        return RP_OK;
    }
    if (!is_bare(name)) {
        rp_log_error("%s: shard \"%s\"; valid are names of files in the same folder", index, name);
        return RP_INPUT;
    }
    const char *path = NULL;
    RP_TRY(rp_arena_print(f->arena, &path, "%s/%s", f->path, name));
    RP_TRY(rpexec_safetensors_open(path, f->arena, &f->files[f->count]));
    uint32_t number = f->count++;
    if (json_object_set_new(f->shards, name, json_integer(number)) != 0) {
        rp_log_error("out of memory: %s", index);
        return RP_NO_MEMORY;
    }
    return RP_OK;
}

static const rpexec_stored *find(const folder *f, const char *name, uint32_t *file_out)
{
    const char *shard = json_string_value(json_object_get(f->map, name));
    *file_out = 0;
    if (f->map != NULL && shard == NULL) {
        return NULL;
    }
    if (f->map != NULL) {
        *file_out = (uint32_t)json_integer_value(json_object_get(f->shards, shard));
    }
    return rpexec_safetensors_find(&f->files[*file_out], name);
}

/* A tensor must be in the shard that the index names, and in no other. */
static rp_status check_map(const folder *f, const char *index)
{
    for (uint32_t i = 0; i < f->count; i++) {
        const rpexec_safetensors *file = &f->files[i];
        for (uint32_t k = 0; k < file->count; k++) {
            const char *shard = json_string_value(json_object_get(f->map, file->tensors[k].name));
            if (shard == NULL || strcmp(shard, strrchr(file->path, '/') + 1) != 0) {
                rp_log_error("%s: tensor \"%s\" of %s is %s in weight_map", index,
                             file->tensors[k].name, file->path,
                             shard == NULL ? "missing" : "in another shard");
                return RP_INPUT;
            }
        }
    }
    const char *name;
    json_t *shard;
    json_object_foreach(f->map, name, shard)
    {
        uint32_t file;
        if (find(f, name, &file) == NULL) {
            rp_log_error("%s: tensor \"%s\" is not in %s", index, name, json_string_value(shard));
            return RP_INPUT;
        }
    }
    return RP_OK;
}

static rp_status open_map(folder *f, const char *index)
{
    if (!json_is_object(f->map) || json_object_size(f->map) == 0) {
        rp_log_error("%s: weight_map must be an object of tensor and file names", index);
        return RP_INPUT;
    }
    RP_TRY(rp_arena_alloc(f->arena, json_object_size(f->map), sizeof *f->files, &f->files));
    const char *name;
    json_t *shard;
    json_object_foreach(f->map, name, shard)
    {
        if (!json_is_string(shard)) {
            rp_log_error("%s: weight_map: \"%s\" must be a file name", index, name);
            return RP_INPUT;
        }
        RP_TRY(open_shard(f, index, json_string_value(shard)));
    }
    return check_map(f, index);
}

static rp_status open_index(folder *f, const char *index)
{
    rp_text text = {0};
    json_error_t error;
    RP_TRY(rpexec_links_check(index));
    RP_TRY(rp_text_read_file(index, INDEX_LIMIT_BYTES, &text));
    f->index = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error);
    rp_text_fini(&text);
    if (f->index == NULL) {
        rp_log_error("%s:%d: %s", index, error.line, error.text);
        return RP_INPUT;
    }
    f->map = json_object_get(f->index, "weight_map");
    f->shards = json_object();
    return open_map(f, index);
}

/* Refuses weights that exist only in a form that is not read. */
static rp_status refuse_form(const folder *f, const char *single)
{
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "adapter_model.bin"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(f->arena, &path, "%s/%s", f->path, others[i]));
        if (access(path, F_OK) == 0) {
            rp_log_error("%s: there is %s, which is not read; valid are safetensors, which "
                         "save_pretrained of transformers and PEFT writes",
                         single, others[i]);
            return RP_INPUT;
        }
    }
    return RP_OK; /* opening the file reports that it is missing */
}

/* As transformers 5 chooses (_get_resolved_checkpoint_files): the single file comes first. */
static rp_status open_folder(folder *f, bool adapters)
{
    const char *index = NULL;
    const char *single = NULL;
    RP_TRY(rp_arena_print(f->arena, &index, "%s/model.safetensors.index.json", f->path));
    RP_TRY(rp_arena_print(f->arena, &single, "%s/%s", f->path,
                          adapters ? "adapter_model.safetensors" : "model.safetensors"));
    bool whole = access(single, F_OK) == 0;
    bool indexed = !adapters && access(index, F_OK) == 0;
    if (indexed && !whole) {
        return open_index(f, index);
    }
    if (indexed) {
        rp_log_warning("%s: its weights are taken, as transformers does; %s is there, too, and "
                       "what it lists is not read",
                       single, index);
    }
    RP_TRY(whole ? RP_OK : refuse_form(f, single));
    RP_TRY(rp_arena_alloc(f->arena, 1, sizeof *f->files, &f->files));
    RP_TRY(rpexec_safetensors_open(single, f->arena, &f->files[0]));
    f->count = 1;
    return RP_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

static rp_status check_shape(const char *path, const rpexec_stored *stored,
                             const rpexec_tensor *tensor)
{
    bool vector = tensor->vector;
    if (vector ? stored->rank == 1 && stored->shape[0] == tensor->columns
               : stored->rank == 2 && stored->shape[0] == tensor->rows &&
                     stored->shape[1] == tensor->columns) {
        return RP_OK;
    }
    char valid[64];
    if (vector) {
        (void)snprintf(valid, sizeof valid, "[%" PRIu64 "]", tensor->columns);
    } else {
        (void)snprintf(valid, sizeof valid, "[%" PRIu64 ", %" PRIu64 "]", tensor->rows,
                       tensor->columns);
    }
    rp_log_error("%s: tensor \"%s\" has another shape; valid for this model is %s", path,
                 stored->name, valid);
    return RP_INPUT;
}

/* @return the tensor, marked as used; NULL: no tensor has that name */
static const rpexec_stored *take(folder *f, const char *name, const rpexec_safetensors **file_out)
{
    uint32_t file = 0;
    const rpexec_stored *stored = find(f, name, &file);
    if (stored != NULL) {
        f->used[file][stored - f->files[file].tensors] = true;
        *file_out = &f->files[file];
    }
    return stored;
}

static rp_status refuse_missing(const folder *f, const char *name)
{
    rp_log_error("%s: tensor \"%s\" is missing", f->path, name);
    return RP_INPUT;
}

static rp_status load_tensor(folder *f, const char *name, const rpexec_tensor *tensor, float *to)
{
    const rpexec_safetensors *file = NULL;
    const rpexec_stored *stored = take(f, name, &file);
    if (stored == NULL) {
        return refuse_missing(f, name);
    }
    RP_TRY(check_shape(file->path, stored, tensor));
    return rpexec_safetensors_read(file, stored, to);
}

/* Reads a joined tensor, from its values or from its packed form. */
static rp_status hold(folder *f, const char *name, const rpexec_layer *layer,
                      const rpexec_joined *part)
{
    const char *blocks_name = NULL;
    const char *scales_name = NULL;
    rpexec_packed packed = {0};
    const rpexec_safetensors *file = NULL;
    const rpexec_stored *stored = take(f, name, &file);
    if (stored != NULL) {
        RP_TRY(rpexec_held_read(&f->held, file, stored, name, part));
        return rpexec_held_check(&f->held, layer, part, file->path);
    }
    RP_TRY(rp_arena_print(f->arena, &blocks_name, "%s_blocks", name));
    RP_TRY(rp_arena_print(f->arena, &scales_name, "%s_scales", name));
    packed.blocks = take(f, blocks_name, &packed.blocks_file);
    packed.scales = take(f, scales_name, &packed.scales_file);
    if (packed.blocks == NULL || packed.scales == NULL) {
        return refuse_missing(f, packed.blocks == NULL ? name : scales_name);
    }
    return rpexec_held_unpack(&f->held, &packed, name, part);
}

static rp_status load_part(folder *f, const char *own, const rpexec_layer *layer,
                           const rpexec_tensor *tensor, float *to)
{
    const char *name = NULL;
    RP_TRY(rpexec_weights_joined_name(own, tensor, f->arena, &name));
    if (f->held.name == NULL || strcmp(f->held.name, name) != 0) {
        f->held.name = NULL;
        RP_TRY(hold(f, name, layer, tensor->part));
    }
    rpexec_held_take(&f->held, tensor, to);
    return RP_OK;
}

/* The name under which a tied table is stored: tools that drop one of two equal tensors keep
 * either. */
static const char *stored_table(const folder *f, const rpexec_model *model)
{
    uint32_t file = 0;
    const char *name = model->embedding.tensors[0].name;
    const char *tied = model->head.tensors[RPEXEC_HEAD_TABLE].name;
    bool head =
        model->config->tied_head && find(f, name, &file) == NULL && find(f, tied, &file) != NULL;
    return head ? tied : name;
}

/* A tied table may be stored twice; then both must be equal. */
static rp_status check_tied(folder *f, const rpexec_model *model)
{
    uint32_t file = 0;
    float *tables[2] = {NULL, NULL};
    const rpexec_tensor *tensor = &model->embedding.tensors[0];
    const char *name = model->head.tensors[RPEXEC_HEAD_TABLE].name;
    uint64_t count = tensor->rows * tensor->columns;
    if (find(f, name, &file) == NULL || stored_table(f, model) == name) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(f->arena, count, sizeof(float), &tables[0]));
    RP_TRY(rp_arena_alloc(f->arena, count, sizeof(float), &tables[1]));
    RP_TRY(load_tensor(f, tensor->name, tensor, tables[0]));
    RP_TRY(load_tensor(f, name, tensor, tables[1]));
    if (memcmp(tables[0], tables[1], count * sizeof(float)) != 0) {
        rp_log_error(
            "%s: tensor \"%s\" differs from the embedding's table, to which the model ties "
            "it; valid are equal tables, or one of them",
            f->path, name);
        return RP_INPUT;
    }
    return RP_OK;
}

/* Trained weights go into their masters, frozen ones by way of `buffer`. */
static rp_status load_one(folder *f, rpexec_state *state, uint32_t layer, uint32_t tensor,
                          float *buffer)
{
    const rpexec_layer *l = rpexec_model_layer(state->model, layer);
    const rpexec_tensor *t = &l->tensors[tensor];
    bool trained = rpexec_tensor_trained(l, t);
    const char *name = NULL;
    if (is_tied_table(state->model, layer, tensor)) {
        return check_tied(f, state->model);
    }
    RP_TRY(name_of(state->model, layer, t, "", f->arena, &name));
    name = layer == 0 ? stored_table(f, state->model) : name;
    float *to = trained ? state->master + state->trained[layer] + t->offset - l->frozen : buffer;
    RP_TRY(t->part != NULL ? load_part(f, name, l, t, to) : load_tensor(f, name, t, to));
    if (!trained) {
        rpexec_state_freeze(state, layer, t, buffer);
    }
    return RP_OK;
}

/* Tensors that the configuration determines, and that some versions of transformers saved
 * nevertheless: all tensors of rotary embeddings (inv_freq, cos_cached, …), and Gemma's factor
 * sqrt(d). */
static bool is_computed(const char *name)
{
    const char *last = strrchr(name, '.');
    const char *module = strstr(name, "rotary_emb");
    return (module != NULL && (module == name || module[-1] == '.')) ||
           (last != NULL && strcmp(last, ".embed_scale") == 0);
}

/* Loads all weights of a model, or with LoRA either the frozen weights or the adapters. */
static rp_status load_all(folder *f, rpexec_state *state, bool adapters)
{
    const rpexec_model *model = state->model;
    uint64_t most = 0;
    float *buffer = NULL;
    for (uint32_t i = 0; model->rank != 0 && i < model->layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(model, i);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            uint64_t values = layer->tensors[k].rows * layer->tensors[k].columns;
            most = values > most ? values : most;
        }
    }
    RP_TRY(rp_arena_alloc(f->arena, most, sizeof *buffer, &buffer));
    RP_TRY(rpexec_held_make(&f->held, model, f->arena));
    for (uint32_t i = 0; i < model->layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(model, i);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            if (model->rank == 0 || rpexec_tensor_trained(layer, &layer->tensors[k]) == adapters) {
                RP_TRY(load_one(f, state, i, k, buffer));
            }
        }
    }
    for (uint32_t i = 0; i < f->count; i++) {
        for (uint32_t k = 0; k < f->files[i].count; k++) {
            if (!f->used[i][k] && !is_computed(f->files[i].tensors[k].name)) {
                rp_log_error("%s: tensor \"%s\" is none of %s", f->files[i].path,
                             f->files[i].tensors[k].name, model->config->name);
                return RP_INPUT;
            }
        }
    }
    return RP_OK;
}

static rp_status load(const char *path, rpexec_state *state, bool adapters)
{
    folder f = {.path = path};
    RP_TRY(rp_arena_create(&f.arena));
    rp_status status = open_folder(&f, adapters);
    status = status == RP_OK ? rp_arena_alloc(f.arena, f.count, sizeof *f.used, &f.used) : status;
    for (uint32_t i = 0; status == RP_OK && i < f.count; i++) {
        status = rp_arena_alloc(f.arena, f.files[i].count, sizeof(bool), &f.used[i]);
    }
    status = status == RP_OK ? load_all(&f, state, adapters) : status;
    close_folder(&f);
    rp_arena_destroy(f.arena);
    for (uint32_t i = 0; status == RP_OK && i < state->model->layer_count; i++) {
        rpexec_state_refresh(state, i);
    }
    return status;
}

rp_status rpexec_weights_load(const char *path, rpexec_state *state)
{
    return load(path, state, false);
}

rp_status rpexec_adapters_load(const char *path, rpexec_state *state)
{
    return load(path, state, true);
}
