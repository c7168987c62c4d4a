/* Values of wrong types in config.json, for every key of every family: both readers refuse them, or
 * read the same value as transformers (recorded by golden/hf/value_types.py). RP_LONG tries all of
 * them. */
#include "common/base/log.h"
#include "common/inputs/huggingface/config.h"
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE 11 /* a sample tries every 11th pair of a key and a value */

TestSuite(exec_config_types, .init = rp_test_arena_begin, .fini = rp_test_arena_end,
          .timeout = 300);

static json_t *load_golden(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    cr_assert(root != NULL, "%s:%d: %s", path, error.line, error.text);
    return root;
}

static bool is_sampled(size_t pair)
{
    const char *all = getenv("RP_LONG");
    return (all != NULL && strcmp(all, "1") == 0) || pair % SAMPLE == 0;
}

/* The text has the form "PARAMETERS WINDOWS". */
static const char *describe(const rp_model *model)
{
    const char *text = "";
    char windows[64] = "";
    for (uint32_t i = 0; i < model->layers && i < sizeof windows - 1; i++) {
        windows[i] = rp_model_window(model, i) != 0 ? 's' : 'f';
    }
    cr_assert(eq(int,
                 rp_arena_print(rp_test_arena, &text, "%llu %s",
                                (unsigned long long)model->total_parameters, windows),
                 RP_OK));
    return text;
}

/* @return a base with a single key set, and without the key of which it is another name */
static char *with_key(const json_t *base, const char *key, const json_t *own, const json_t *value)
{
    json_t *file = json_copy((json_t *)(uintptr_t)base);
    if (json_is_string(own)) {
        (void)json_object_del(file, json_string_value(own));
    }
    cr_assert(eq(int, json_object_set(file, key, (json_t *)(uintptr_t)value), 0));
    char *text = json_dumps(file, 0);
    json_decref(file);
    cr_assert(text != NULL);
    return text;
}

static const char *read_rpsim(const char *text, char *message, size_t size)
{
    rp_model model;
    rp_log_capture_begin(message, size);
    rp_status status = rp_hf_model_parse("f", text, strlen(text), NULL, rp_test_arena, &model);
    rp_log_capture_end();
    return status == RP_OK ? describe(&model) : NULL;
}

static const char *read_rpexec(const char *text)
{
    rp_model model;
    char message[4096] = "";
    char path[] = "/tmp/roundpipe-types-XXXXXX";
    int descriptor = mkstemp(path);
    cr_assert(descriptor >= 0);
    cr_assert(eq(i64, write(descriptor, text, strlen(text)), (int64_t)strlen(text)));
    (void)close(descriptor);
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpexec_config_load(path, NULL, rp_test_arena, &model);
    rp_log_capture_end();
    (void)unlink(path);
    return status == RP_OK ? describe(&model) : NULL;
}

/* @return a value's type; a list also has the type of its first element */
static int type_of(const json_t *value)
{
    int type = json_is_boolean(value) ? JSON_TRUE : (int)json_typeof(value);
    return json_array_size(value) > 0 ? 16 * (1 + type_of(json_array_get(value, 0))) : type;
}

/* True if transformers refuses a value and reads no other value of the same type. Whole numbers are
 * left out, since transformers may refuse them because of other keys, or may read 1 as 1.0; null is
 * left out, since older versions read it as the default that the class has today. */
static bool must_be_refused(const json_t *outcomes, const json_t *values, size_t at,
                            const json_t *base)
{
    const json_t *own = json_array_get(outcomes, at);
    const json_t *value = json_array_get(values, at);
    bool refused = json_is_integer(own) && json_integer_value(own) == 0;
    bool same = base != NULL && type_of(base) == type_of(value);
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *outcome = json_array_get(outcomes, i);
        bool read = json_is_string(outcome) || json_integer_value(outcome) != 0;
        same = same || (read && type_of(json_array_get(values, i)) == type_of(value));
    }
    return refused && !same && !json_is_integer(value) && !json_is_null(value);
}

/* Keys that classes of earlier versions read as null: as many as heads, a share of the hidden size,
 * and none. */
static bool has_null(const char *key)
{
    static const char *const keys[] = {"num_key_value_heads", "head_dim", "sliding_window",
                                       "use_sliding_window",  "use_bias", "use_qk_norm"};
    bool found = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        found = found || strcmp(keys[i], key) == 0;
    }
    return found;
}

typedef struct sweep {
    uint32_t tried;
    uint32_t read;     /* pairs that both read */
    uint32_t readable; /* pairs that transformers reads */
} sweep;

/* An outcome is 0, refused; 1, read as without the key; or a text, read as another model. A value
 * that transformers refuses may still be read if a message names the key as unused. */
static void check_pair(const char *text, const char *usual, const json_t *outcome,
                       const json_t *value, bool must, const char *key, sweep *s)
{
    char message[4096] = "";
    const char *ours = read_rpsim(text, message, sizeof message);
    bool refused = json_is_integer(outcome) && json_integer_value(outcome) == 0;
    const char *theirs = json_is_string(outcome) ? json_string_value(outcome) : usual;
    s->tried++;
    if (must) {
        cr_expect(ours == NULL || strstr(message, key) != NULL, "%s: %s", text, ours);
    } else if (refused) {
        bool same = ours == NULL || strcmp(ours, usual) == 0;
        cr_expect(same || !json_is_null(value) || has_null(key), "%s: %s", text, ours);
    } else {
        cr_expect(ours == NULL || strcmp(ours, theirs) == 0, "%s: %s", text, ours);
        s->readable++;
        s->read += ours != NULL;
    }
}

Test(exec_config_types, rpsim_reads_what_transformers_reads_or_refuses_it)
{
    json_t *golden = load_golden(RP_TEST_ROOT "/golden/hf/value_types.json");
    const json_t *values = json_object_get(golden, "values");
    json_t *rows = json_object_get(golden, "rows");
    size_t index;
    size_t pair = 0;
    json_t *row;
    sweep s = {0};
    const char *usual = NULL;
    const char *before = "";
    json_array_foreach(rows, index, row)
    {
        const char *family = json_string_value(json_array_get(row, 0));
        const char *key = json_string_value(json_array_get(row, 1));
        const json_t *base = json_object_get(json_object_get(golden, "bases"), family);
        if (strcmp(family, before) != 0) {
            char message[4096] = "";
            char *text = json_dumps(base, 0);
            usual = read_rpsim(text, message, sizeof message);
            cr_assert(usual != NULL, "%s: %s", text, message);
            free(text);
            before = family;
        }
        for (size_t i = 0; i < json_array_size(values); i++, pair++) {
            if (is_sampled(pair)) {
                char *text = with_key(base, key, json_array_get(row, 2), json_array_get(values, i));
                const json_t *outcomes = json_array_get(row, 3);
                const json_t *value = json_array_get(values, i);
                bool must = must_be_refused(outcomes, values, i, json_object_get(base, key));
                check_pair(text, usual, json_array_get(outcomes, i), value, must, key, &s);
                free(text);
            }
        }
    }
    cr_expect(ge(u32, s.tried, 800));
    cr_expect(ge(u32, 3 * s.read, 2 * s.readable), "%u of %u", s.read, s.readable);
    json_decref(golden);
}

/* The executor's reader has files of its own (golden/config_keys.json), in which every key is set.
 * It refuses wrong types that transformers refuses, and reads the other values as rpsim reads them.
 */
Test(exec_config_types, rpexec_reads_what_rpsim_reads_or_refuses_it)
{
    json_t *golden = load_golden(RP_TEST_ROOT "/golden/hf/value_types.json");
    json_t *files = load_golden(RP_TEST_ROOT "/golden/config_keys.json");
    const json_t *values = json_object_get(golden, "values");
    json_t *rows = json_object_get(golden, "rows");
    size_t index;
    size_t pair = 0;
    json_t *row;
    uint32_t read = 0;
    json_array_foreach(rows, index, row)
    {
        const char *family = json_string_value(json_array_get(row, 0));
        const char *key = json_string_value(json_array_get(row, 1));
        const json_t *base = json_object_get(json_object_get(files, "models"), family);
        for (size_t i = 0; base != NULL && i < json_array_size(values); i++, pair++) {
            if (!is_sampled(pair)) {
                continue;
            }
            char message[4096] = "";
            const json_t *value = json_array_get(values, i);
            bool must =
                must_be_refused(json_array_get(row, 3), values, i, json_object_get(base, key));
            char *text = with_key(base, key, json_array_get(row, 2), value);
            const char *ours = read_rpexec(text);
            const char *others = read_rpsim(text, message, sizeof message);
            cr_expect(ours == NULL || others != NULL, "%s: %s", text, message);
            cr_expect(ours == NULL || others == NULL || strcmp(ours, others) == 0, "%s", text);
            cr_expect(ours == NULL || !must, "%s", text);
            read += ours != NULL;
            free(text);
        }
    }
    cr_expect(ge(u32, read, 10));
    json_decref(files);
    json_decref(golden);
}

/* Keys inside of rope_scaling and rope_parameters with the types of RopeParameters in transformers
 * 5.24 (modeling_rope_utils.py), n for a number, t for a text, l for a list, b for a flag. */
Test(exec_config_types, both_refuse_wrong_types_of_rotation)
{
    static const struct {
        const char *key;
        char type;
    } keys[] = {{"rope_theta", 'n'},       {"rope_type", 't'},
                {"factor", 'n'},           {"original_max_position_embeddings", 'n'},
                {"attention_factor", 'n'}, {"beta_fast", 'n'},
                {"beta_slow", 'n'},        {"short_factor", 'l'},
                {"long_factor", 'l'},      {"low_freq_factor", 'n'},
                {"high_freq_factor", 'n'}, {"partial_rotary_factor", 'n'},
                {"truncate", 'b'}};
    static const struct {
        const char *json;
        char type; /* 0: any type */
    } values[] = {{"\"4\"", 't'}, {"\"\"", 't'},  {"[]", 'l'}, {"[4]", 'l'},
                  {"[[]]", 0},    {"[\"x\"]", 0}, {"{}", 0},   {"{\"a\": 1}", 0},
                  {"true", 'b'},  {"1.5", 'n'},   {"4", 'n'},  {"1e300", 'n'}};
    static const char *const objects[] = {"rope_scaling", "rope_parameters"};
    json_t *files = load_golden(RP_TEST_ROOT "/golden/config_keys.json");
    json_t *models = json_object_get(files, "models");
    const char *family;
    json_t *base;
    json_object_foreach(models, family, base)
    {
        for (size_t i = 0; i < 2 * 13 * 12; i++) {
            const char *key = keys[i / 12 % 13].key;
            char rope[128];
            char message[4096] = "";
            (void)snprintf(rope, sizeof rope, "{\"%s\": %s}", key, values[i % 12].json);
            json_t *value = json_loads(rope, 0, NULL);
            json_t *other = json_string("rope_parameters");
            char *text = with_key(base, objects[i / 156], i < 156 ? other : NULL, value);
            if (values[i % 12].type != keys[i / 12 % 13].type) {
                cr_expect(read_rpsim(text, message, sizeof message) == NULL, "%s", text);
                cr_expect(strstr(message, key) != NULL, "%s", message);
                cr_expect(read_rpexec(text) == NULL, "%s", text);
            }
            free(text);
            json_decref(other);
            json_decref(value);
        }
    }
    json_decref(files);
}
