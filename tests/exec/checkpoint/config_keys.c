/* Keys of config.json, each with a value that alters a model (tests/tools/config_keys.py found them
 * with transformers on PyTorch): refused by name, or trained to the same loss and gradients. */
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "exec/checkpoint/weights.h"
#include "exec/host/lane.h"
#include "exec/run/single.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define SEQUENCES 2u
#define LENGTH 48u
#define TOKENS (SEQUENCES * LENGTH)
#define TOLERANCE 1e-5 /* executor.md section 3, 1 */
#define LEAST 1e-4     /* least relative change of the loss or the gradients' norm by a row */

TestSuite(exec_config_keys, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

/* The same function as value_of in config_keys.py. */
static uint32_t value_of(const char *name, uint32_t index)
{
    uint32_t x = 2166136261u;
    for (; *name != '\0'; name++) {
        x = (x ^ (unsigned char)*name) * 16777619u;
    }
    x += index * 2654435769u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* The name that a tensor, or the tensor of which it is a part, has in checkpoints. Tensors of
 * experts have names of their own, as in fill of config_keys.py. */
static const char *whole_name(const rpexec_writable *tensor, const rpexec_joined **part_out)
{
    const char *name = tensor->name;
    if (tensor->parts != NULL && strstr(name, "experts") == NULL) {
        const rpexec_tensor *own = tensor->parts->tensor;
        int before = (int)(strlen(name) - strlen(own->name));
        *part_out = own->part;
        cr_assert(eq(
            int,
            rp_arena_print(rp_test_arena, &name, "%.*s%s", before, tensor->name, own->part->name),
            RP_OK));
    }
    return name;
}

static void fill_weights(rpexec_state *state)
{
    rpexec_writable *tensors = NULL;
    uint32_t count = 0;
    cr_assert(eq(int,
                 rpexec_weights_list(state, state->master, "", rp_test_arena, &tensors, &count),
                 RP_OK));
    for (uint32_t i = 0; i < count; i++) {
        const rpexec_joined *part = NULL; /* numbers its values like those of the whole tensor */
        const char *name = whole_name(&tensors[i], &part);
        uint64_t columns = tensors[i].shape[tensors[i].rank - 1];
        float *to = (float *)(uintptr_t)tensors[i].values;
        size_t length = strlen(name);
        bool norm = length > 11 && strcmp(name + length - 11, "norm.weight") == 0;
        for (uint32_t k = 0; k < rpexec_writable_elements(&tensors[i]); k++) {
            uint64_t at = part == NULL ? k
                                       : part->first + k / columns * part->row_stride +
                                             k % columns * part->column_stride;
            uint32_t value = value_of(name, (uint32_t)at);
            to[k] = (float)((value >> 8) / 16777216.0 + (norm ? 0.5 : -0.5));
        }
    }
    for (uint32_t layer = 0; layer < state->model->layer_count; layer++) {
        rpexec_state_refresh(state, layer);
    }
}

typedef struct result {
    double loss, gradient_norm;
} result;

static double norm_of(const rpexec_state *state)
{
    rpexec_writable *tensors = NULL;
    uint32_t count = 0;
    double squares = 0;
    cr_assert(eq(int,
                 rpexec_weights_list(state, state->gradients, "", rp_test_arena, &tensors, &count),
                 RP_OK));
    for (uint32_t i = 0; i < count; i++) {
        const float *values = tensors[i].values;
        for (uint64_t k = 0; k < rpexec_writable_elements(&tensors[i]); k++) {
            squares += (double)values[k] * (double)values[k];
        }
    }
    return sqrt(squares);
}

static result train(const rp_model *config)
{
    rpexec_model model;
    rpexec_state state;
    rpexec_lane lane;
    result got = {0};
    int32_t ids[TOKENS];
    int32_t labels[TOKENS];
    rpexec_batch batch = {.ids = ids, .labels = labels};
    for (uint32_t t = 0; t < TOKENS; t++) {
        uint32_t label = value_of("labels", t);
        ids[t] = (int32_t)(value_of("ids", t) % config->vocab);
        labels[t] = label % 5 == 0 ? RPEXEC_IGNORED : (int32_t)(label / 5 % config->vocab);
        batch.valid_tokens += label % 5 == 0 ? 0 : 1;
    }
    rp_arena *arena = rp_test_arena;
    cr_assert(eq(int, rpexec_model_create(config, LENGTH, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&model, arena, &state), RP_OK));
    cr_assert(eq(int, rpexec_host_lane_create(&model, TOKENS, arena, &lane), RP_OK));
    fill_weights(&state);
    const uint32_t sequences = SEQUENCES;
    rpexec_single single = {.model = &model,
                            .state = &state,
                            .adam = rpexec_adam_defaults(),
                            .microbatches = 1,
                            .sequences = &sequences,
                            .iterations = 1,
                            .batches = &batch,
                            .operators = rpexec_host_operators[RP_DTYPE_F32],
                            .lane = &lane,
                            .losses = &got.loss};
    cr_assert(eq(int, rpexec_single_run(&single), RP_OK));
    got.gradient_norm = norm_of(&state);
    return got;
}

/* @param path a key, or OBJECT.KEY @param value "absent" removes the key */
static void set_key(json_t *config, const char *path, json_t *value)
{
    const char *dot = strchr(path, '.');
    char outer[64];
    if (dot != NULL) {
        (void)snprintf(outer, sizeof outer, "%.*s", (int)(dot - path), path);
        config = json_object_get(config, outer);
        path = dot + 1;
    }
    const char *text = json_string_value(value);
    if (text != NULL && strcmp(text, "absent") == 0) {
        (void)json_object_del(config, path);
    } else {
        cr_assert(eq(int, json_object_set(config, path, value), 0));
    }
}

static rp_status load(const json_t *config, rp_model *model_out, char *message, size_t size)
{
    char path[] = "/tmp/roundpipe-config-XXXXXX";
    int descriptor = mkstemp(path);
    cr_assert(descriptor >= 0);
    cr_assert(eq(int, json_dumpfd(config, descriptor, JSON_INDENT(2)), 0));
    cr_assert(eq(int, close(descriptor), 0));
    rp_log_capture_begin(message, size);
    rp_status status = rpexec_config_load(path, NULL, rp_test_arena, model_out);
    rp_log_capture_end();
    (void)unlink(path);
    return status;
}

static double number(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    bool found = json_is_number(value);
    cr_assert(found, "%s", key);
    return json_number_value(value);
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a / b - 1) <= tolerance;
}

static void expect(const char *key, result got, double loss, double norm)
{
    cr_expect(near(got.loss, loss, TOLERANCE), "%s: loss %.9g, %.9g is right", key, got.loss, loss);
    cr_expect(near(got.gradient_norm, norm, TOLERANCE), "%s: gradients' norm %.9g, %.9g is right",
              key, got.gradient_norm, norm);
}

/* Loads both configurations of a row. @return true if the other value is refused */
static bool check(const json_t *row, json_t *config)
{
    const char *key = json_string_value(json_object_get(row, "key"));
    const char *name;
    json_t *value;
    char message[4096] = "";
    char named[80];
    char inside[80]; /* name of a key inside the object */
    rp_model model;
    json_object_foreach(json_object_get(row, "with"), name, value)
    {
        set_key(config, name, value);
    }
    double loss = number(row, "loss");
    double norm = number(row, "gradient_norm");
    double base_loss = number(row, "base_loss");
    double base_norm = number(row, "base_gradient_norm");
    bool same = near(loss, base_loss, LEAST) && near(norm, base_norm, LEAST);
    cr_expect(eq(int, same, false), "%s", key);
    if (load(config, &model, message, sizeof message) == RP_OK) {
        expect(key, train(&model), base_loss, base_norm);
    }
    set_key(config, key, json_object_get(row, "value"));
    rp_status status = load(config, &model, message, sizeof message);
    if (status == RP_OK) {
        expect(key, train(&model), loss, norm);
        return false;
    }
    cr_expect(eq(int, rp_status_exit(status), 2), "%s", key);
    (void)snprintf(named, sizeof named, ": %s: ", key);
    (void)snprintf(inside, sizeof inside, ": %s.", key);
    cr_expect(strstr(message, named) != NULL || strstr(message, inside) != NULL, "%s: %s", key,
              message);
    return true;
}

Test(exec_config_keys, what_alters_a_model_is_refused_or_trained_as_transformers_does)
{
    json_error_t error;
    json_t *root = json_load_file(RP_TEST_ROOT "/golden/config_keys.json", 0, &error);
    cr_assert(root != NULL, "%d: %s", error.line, error.text);
    const json_t *models = json_object_get(root, "models");
    json_t *keys = json_object();
    size_t index;
    json_t *row;
    size_t refused = 0;
    json_array_foreach(json_object_get(root, "rows"), index, row)
    {
        const char *model = json_string_value(json_object_get(row, "model"));
        json_t *config = json_deep_copy(json_object_get(models, model));
        refused += check(row, config) ? 1 : 0;
        json_object_set(keys, json_string_value(json_object_get(row, "key")), row);
        json_decref(config);
    }
    cr_expect(json_object_size(keys) >= 40, "%zu keys", json_object_size(keys));
    cr_expect(refused >= 15 && index - refused >= 20, "%zu of %zu are refused", refused, index);
    json_decref(keys);
    json_decref(root);
}

static void compare(const char *file, const rp_model *a, const rp_model *b)
{
    cr_expect(eq(u32, a->layers, b->layers), "%s", file);
    cr_expect(eq(u32, a->hidden, b->hidden), "%s", file);
    cr_expect(eq(u32, a->heads, b->heads), "%s", file);
    cr_expect(eq(u32, a->kv_heads, b->kv_heads), "%s", file);
    cr_expect(eq(u32, a->head_dim, b->head_dim), "%s", file);
    cr_expect(eq(u32, a->intermediate, b->intermediate), "%s", file);
    cr_expect(eq(u32, a->experts, b->experts), "%s", file);
    cr_expect(eq(u32, a->active_experts, b->active_experts), "%s", file);
    cr_expect(eq(u32, a->vocab, b->vocab), "%s", file);
    cr_expect(eq(u32, a->max_positions, b->max_positions), "%s", file);
    cr_expect(eq(dbl, a->rope_theta, b->rope_theta), "%s", file);
    cr_expect(eq(dbl, a->norm_eps, b->norm_eps), "%s", file);
    cr_expect(eq(int, a->tied_head, b->tied_head), "%s", file);
    cr_expect(eq(int, a->qk_norm, b->qk_norm), "%s", file);
    cr_expect(eq(int, a->raw_routing, b->raw_routing), "%s", file);
    cr_expect(eq(str, (char *)a->rope_scaling, (char *)b->rope_scaling), "%s", file);
}

/* Sets of keys in files of Hugging Face, as versions of transformers from 4.28 to 5 write them. The
 * result is the model of traces/, or a refusal for the key that cannot be computed. */
Test(exec_config_keys, files_of_hugging_face_are_read)
{
    json_error_t error;
    json_t *root = json_load_file(RP_TEST_ROOT "/golden/hub_configs.json", 0, &error);
    cr_assert(root != NULL, "%d: %s", error.line, error.text);
    size_t index;
    json_t *row;
    json_array_foreach(root, index, row)
    {
        const char *file = json_string_value(json_object_get(row, "file"));
        const char *trace = json_string_value(json_object_get(row, "trace"));
        const char *refused = json_string_value(json_object_get(row, "refused"));
        char message[4096] = "";
        rp_model model;
        rp_model known;
        rp_status status = load(json_object_get(row, "config"), &model, message, sizeof message);
        cr_expect(eq(int, status, refused != NULL ? RP_INPUT : RP_OK), "%s: %s", file, message);
        if (refused != NULL) {
            const char *end = strchr(message, '\n');
            cr_expect(strstr(message, refused) != NULL && end != NULL && end[1] == '\0', "%s",
                      message);
        }
        if (trace != NULL) {
            cr_assert(eq(int, rp_model_load(trace, rp_test_arena, &known), RP_OK));
            compare(file, &model, &known);
        }
    }
    json_decref(root);
}
