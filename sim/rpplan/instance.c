#include "sim/rpplan/instance.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/json_read.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)64 << 20)

/* An object that is being read into an input. */
typedef struct reader {
    const char *name; /* for messages */
    json_t *object;
    rp_arena *arena;
} reader;

#define KEYS                                                                                       \
    "mode, fwd_time, bwd_time, fwd_bytes, bwd_bytes, memory_limit, min_stages, threshold_num, "    \
    "threshold_den"

static rp_status refuse_unknown(const char *name, json_t *object, const char *keys)
{
    const char *key = rp_json_unknown_key(object, keys);
    if (key == NULL) {
        return RP_OK;
    }
    rp_log_error_at(name, 0, "unknown key '%.100s'; valid values are %s", key, keys);
    return RP_INPUT;
}

static rp_status check_keys(const reader *r)
{
    if (!json_is_object(r->object)) {
        rp_log_error_at(r->name, 0, "not an object; valid is an object with the keys " KEYS);
        return RP_INPUT;
    }
    return refuse_unknown(r->name, r->object, KEYS);
}

static rp_status require(const reader *r, const char *key, json_t **value_out)
{
    *value_out = json_object_get(r->object, key);
    if (*value_out == NULL) {
        rp_log_error_at(r->name, 0, "'%s' is missing; valid is an object with the keys " KEYS, key);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status take_integer(const reader *r, const char *key, int64_t low, int64_t high,
                              int64_t *integer_out)
{
    json_t *value = NULL;
    RP_TRY(require(r, key, &value));
    if (!rp_json_is_integer(value, low, high)) {
        rp_log_error_at(r->name, 0,
                        "'%s' is not valid; valid values are integers from %" PRId64 " to %" PRId64,
                        key, low, high);
        return RP_INPUT;
    }
    *integer_out = json_integer_value(value);
    return RP_OK;
}

static rp_status take_u32(const reader *r, const char *key, uint32_t *number_out)
{
    int64_t number = 0;
    RP_TRY(take_integer(r, key, 1, UINT32_MAX, &number));
    *number_out = (uint32_t)number;
    return RP_OK;
}

static rp_status take_limit(const reader *r, uint64_t *limit_out)
{
    json_t *value = NULL;
    RP_TRY(require(r, "memory_limit", &value));
    if (json_is_null(value)) {
        *limit_out = RP_PLAN_UNLIMITED;
        return RP_OK;
    }
    if (!rp_json_is_integer(value, 0, INT64_MAX)) {
        rp_log_error_at(r->name, 0,
                        "'memory_limit' is not valid; valid values are null (none) and integers "
                        "from 0 to %" PRId64,
                        INT64_MAX);
        return RP_INPUT;
    }
    *limit_out = (uint64_t)json_integer_value(value);
    return RP_OK;
}

static rp_status take_mode(const reader *r, rp_plan_mode *mode_out)
{
    json_t *value = NULL;
    RP_TRY(require(r, "mode", &value));
    if (!json_is_string(value) || !rp_plan_mode_parse(json_string_value(value), mode_out)) {
        rp_log_error_at(r->name, 0,
                        "'mode' is not valid; valid values are \"infer\", \"train\", \"fused\"");
        return RP_INPUT;
    }
    return RP_OK;
}

/* Reads a list. The first list (*count == 0) sets the number of layers; all others must have as
 * many. */
static rp_status take_list(const reader *r, const char *key, uint32_t *count, int64_t **list_out)
{
    json_t *list = NULL;
    RP_TRY(require(r, key, &list));
    size_t items = json_is_array(list) ? json_array_size(list) : 0;
    if (items < 1 || items > RP_PLAN_MAX_LAYERS || (*count != 0 && items != *count)) {
        rp_log_error_at(r->name, 0,
                        "'%s' is not a list of %s; valid values are lists of integers, one per "
                        "layer, 1 to %u layers",
                        key, *count != 0 ? "as many layers as fwd_time" : "layers",
                        RP_PLAN_MAX_LAYERS);
        return RP_INPUT;
    }
    RP_TRY(rp_arena_alloc(r->arena, items, sizeof **list_out, list_out));
    for (size_t i = 0; i < items; i++) {
        const json_t *item = json_array_get(list, i);
        if (!rp_json_is_integer(item, 0, INT64_MAX)) {
            rp_log_error_at(r->name, 0,
                            "'%s' of layer %zu is not valid; valid values are integers from 0 to "
                            "%" PRId64,
                            key, i, INT64_MAX);
            return RP_INPUT;
        }
        (*list_out)[i] = json_integer_value(item);
    }
    *count = (uint32_t)items;
    return RP_OK;
}

static rp_status take_bytes(const reader *r, const char *key, uint32_t *count, uint64_t **list_out)
{
    int64_t *list = NULL;
    RP_TRY(take_list(r, key, count, &list));
    *list_out = (uint64_t *)list; /* no item is negative, and both types may alias */
    return RP_OK;
}

static rp_status take_lists(const reader *r, rp_plan_input *input)
{
    int64_t *fwd_time = NULL;
    int64_t *bwd_time = NULL;
    uint64_t *fwd_bytes = NULL;
    uint64_t *bwd_bytes = NULL;
    RP_TRY(take_list(r, "fwd_time", &input->layers, &fwd_time));
    RP_TRY(take_bytes(r, "fwd_bytes", &input->layers, &fwd_bytes));
    if (input->mode != RP_PLAN_INFER) {
        RP_TRY(take_list(r, "bwd_time", &input->layers, &bwd_time));
        RP_TRY(take_bytes(r, "bwd_bytes", &input->layers, &bwd_bytes));
    }
    input->fwd_time = fwd_time;
    input->bwd_time = bwd_time;
    input->fwd_bytes = fwd_bytes;
    input->bwd_bytes = bwd_bytes;
    return RP_OK;
}

static rp_status take_input(const reader *r, rp_plan_input *input)
{
    *input = (rp_plan_input){.name = r->name};
    RP_TRY(check_keys(r));
    RP_TRY(take_mode(r, &input->mode));
    RP_TRY(take_lists(r, input));
    RP_TRY(take_limit(r, &input->memory_limit));
    RP_TRY(take_u32(r, "min_stages", &input->min_stages));
    RP_TRY(take_u32(r, "threshold_num", &input->tolerance_num));
    return take_u32(r, "threshold_den", &input->tolerance_den);
}

/* Reads the input of an example, or the object itself. */
static rp_status take_example(reader *r, json_t *object, rp_plan_input *input)
{
    json_t *inside = json_object_get(object, "input"); /* NULL if it is no object */
    r->object = inside != NULL ? inside : object;
    if (inside != NULL) {
        RP_TRY(refuse_unknown(r->name, object, "name, note, input, expected"));
    }
    return take_input(r, input);
}

static rp_status take_examples(const char *name, json_t *list, rp_arena *arena,
                               rpplan_instances *instances)
{
    size_t count = json_array_size(list); /* below 2^32, as the file's size is */
    instances->is_list = true;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *instances->inputs, &instances->inputs));
    for (size_t i = 0; i < count; i++) {
        json_t *example = json_array_get(list, i);
        const char *own = json_string_value(json_object_get(example, "name"));
        reader r = {.arena = arena};
        RP_TRY(rp_arena_print(arena, &r.name, "%s: example %zu%s%.100s%s", name, i,
                              own != NULL ? " (" : "", own != NULL ? own : "",
                              own != NULL ? ")" : ""));
        RP_TRY(take_example(&r, example, &instances->inputs[i]));
    }
    instances->count = (uint32_t)count;
    return RP_OK;
}

static rp_status take_root(const char *name, json_t *root, rp_arena *arena,
                           rpplan_instances *instances)
{
    json_t *examples = json_object_get(root, "examples");
    if (json_is_array(root) || json_is_array(examples)) {
        RP_TRY(refuse_unknown(name, root, "format, units, examples"));
        return take_examples(name, json_is_array(root) ? root : examples, arena, instances);
    }
    reader r = {.arena = arena};
    RP_TRY(rp_arena_copy_text(arena, name, strlen(name), &r.name));
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *instances->inputs, &instances->inputs));
    instances->count = 1;
    return take_example(&r, root, instances->inputs);
}

rp_status rpplan_instances_parse(const char *name, const char *bytes, size_t length,
                                 rp_arena *arena, rpplan_instances *instances_out)
{
    *instances_out = (rpplan_instances){0};
    json_t *root = NULL;
    RP_TRY(
        rp_json_parse(name, bytes, length, "valid is JSON: an object with the keys " KEYS, &root));
    rp_status status = take_root(name, root, arena, instances_out);
    json_decref(root);
    return status;
}

rp_status rpplan_instances_load(const char *path, rp_arena *arena, rpplan_instances *instances_out)
{
    rp_text text = {0};
    rp_status status = rp_text_read_file(path, MAX_FILE_BYTES, &text);
    if (status == RP_OK) {
        const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
        status = rpplan_instances_parse(name, text.bytes, text.length, arena, instances_out);
    }
    rp_text_fini(&text);
    return status;
}
