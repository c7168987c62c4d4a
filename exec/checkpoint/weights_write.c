/* Weights of a checkpoint: a single file, or shards with an index (weights.h). */
#include "common/base/text.h"
#include "common/formats/json.h"
#include "exec/checkpoint/weights.h"

#include <stdio.h>
#include <string.h>

#define FILE_NAME "model.safetensors"
#define SHARD_NAME "model-%05u-of-%05u.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define ADAPTERS_NAME "adapter_model.safetensors"

bool rpexec_weights_is_file(const char *name)
{
    unsigned shard = 0;
    unsigned shards = 0;
    char same[64];
    if (sscanf(name, "model-%5u-of-%5u", &shard, &shards) == 2) {
        (void)snprintf(same, sizeof same, SHARD_NAME, shard, shards);
        return strcmp(name, same) == 0;
    }
    return strcmp(name, FILE_NAME) == 0 || strcmp(name, INDEX_NAME) == 0 ||
           strcmp(name, ADAPTERS_NAME) == 0;
}

typedef struct weights {
    const char *folder;
    rp_dtype dtype;
    uint32_t count;
    rpexec_writable *tensors; /* in fp32, or already in `dtype` */
    uint32_t *shard_of;       /* [count] */
    uint32_t shards;
    uint64_t bytes;
} weights;

/* huggingface_hub's split_state_dict_into_shards_factory: a tensor larger than the limit becomes
 * its own shard, while the shard before it stays open. Shards are numbered when they are full. */
static rp_status cut(weights *w, uint64_t limit, rp_arena *arena)
{
    uint64_t held = 0;
    uint32_t first = 0; /* first tensor of the open shard, which gets its number at its end */
    const uint32_t open = UINT32_MAX;
    RP_TRY(rp_arena_alloc(arena, w->count, sizeof *w->shard_of, &w->shard_of));
    for (uint32_t i = 0; i <= w->count; i++) {
        bool end = i == w->count;
        uint64_t bytes =
            end ? 0 : rpexec_writable_elements(&w->tensors[i]) * rp_dtype_bytes(w->dtype);
        w->bytes += bytes;
        if (!end && bytes > limit) {
            w->shard_of[i] = w->shards++;
            continue;
        }
        if (held > 0 && (end || bytes > limit - held)) {
            for (; first < i; first++) {
                w->shard_of[first] = w->shard_of[first] == open ? w->shards : w->shard_of[first];
            }
            w->shards++;
            held = 0;
        }
        held += bytes;
        if (!end) {
            w->shard_of[i] = open;
        }
    }
    return RP_OK;
}

/* Rounds tensors to the storage type shard by shard: rounding all at once would need memory for a
 * second model. */
static rp_status write_shard(const weights *w, uint32_t shard, const char *name, rp_arena *arena)
{
    const char *path = NULL;
    const rpexec_metadata format = {"format", "pt"};
    rpexec_writable *tensors = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_print(arena, &path, "%s/%s", w->folder, name));
    RP_TRY(rp_arena_alloc(arena, w->count, sizeof *tensors, &tensors));
    for (uint32_t i = 0; i < w->count; i++) {
        if (w->shard_of[i] != shard) {
            continue;
        }
        rpexec_writable *t = &tensors[count++];
        *t = w->tensors[i];
        if (t->part_count > 0) {
            void *together = NULL;
            RP_TRY(rp_arena_alloc(arena, rpexec_writable_elements(t), rp_dtype_bytes(t->dtype),
                                  &together));
            rpexec_weights_put_together(t, together);
            t->values = together;
        }
        if (t->dtype != w->dtype) {
            uint64_t elements = rpexec_writable_elements(t);
            void *rounded = NULL;
            RP_TRY(rp_arena_alloc_raw(arena, elements, rp_dtype_bytes(w->dtype), &rounded));
            rpexec_narrow(w->dtype, elements, t->values, rounded);
            t->values = rounded;
            t->dtype = w->dtype;
        }
    }
    return rpexec_safetensors_write(path, tensors, count, &format, 1);
}

static rp_status write_one(const weights *w, uint32_t shard, const char *name)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = write_shard(w, shard, name, arena);
    rp_arena_destroy(arena);
    return status;
}

static rp_status write_index(const weights *w, const char *const *names, rp_arena *arena)
{
    const char *path = NULL;
    rp_output output;
    rp_json json;
    RP_TRY(rp_arena_print(arena, &path, "%s/" INDEX_NAME, w->folder));
    RP_TRY(rp_output_open(path, &output));
    rp_json_begin_document(&json, output.stream, 2);
    rp_json_begin_object(&json);
    rp_json_key(&json, "metadata");
    rp_json_begin_object(&json);
    rp_json_member_uint(&json, "total_size", w->bytes);
    rp_json_end_object(&json);
    rp_json_key(&json, "weight_map");
    rp_json_begin_object(&json);
    for (uint32_t i = 0; i < w->count; i++) {
        rp_json_member_string(&json, w->tensors[i].name, names[w->shard_of[i]]);
    }
    rp_json_end_object(&json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    return rp_output_commit(&output);
}

static rp_status write_all(weights *w, const rpexec_state *s, const float *values, uint64_t limit,
                           rp_arena *arena)
{
    const char **names = NULL;
    bool adapters = s->model->rank != 0 && values != NULL;
    RP_TRY(rpexec_weights_joined(s, values, "", arena, &w->tensors, &w->count));
    RP_TRY(cut(w, adapters ? UINT64_MAX : limit, arena));
    if (w->shards <= 1) {
        return write_one(w, 0, adapters ? ADAPTERS_NAME : FILE_NAME);
    }
    RP_TRY(rp_arena_alloc(arena, w->shards, sizeof *names, &names));
    for (uint32_t i = 0; i < w->shards; i++) {
        RP_TRY(rp_arena_print(arena, &names[i], SHARD_NAME, i + 1, w->shards));
        RP_TRY(write_one(w, i, names[i]));
    }
    return write_index(w, names, arena);
}

static rp_status write_weights(const rpexec_state *state, const float *values, const char *folder,
                               uint64_t shard_bytes)
{
    rp_arena *arena = NULL;
    weights w = {.folder = folder, .dtype = state->model->dtype};
    RP_TRY(rp_arena_create(&arena));
    rp_status status = write_all(&w, state, values, shard_bytes, arena);
    rp_arena_destroy(arena);
    return status;
}

rp_status rpexec_weights_write(const rpexec_state *state, const char *folder, uint64_t shard_bytes)
{
    return write_weights(state, state->master, folder, shard_bytes);
}

rp_status rpexec_frozen_write(const rpexec_state *state, const char *folder, uint64_t shard_bytes)
{
    return write_weights(state, NULL, folder, shard_bytes);
}
