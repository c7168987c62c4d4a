/* Files beside a checkpoint's weights: a config.json made from sizes is read back as the same
 * model, and a file that is carried along keeps its bytes. tests/checks/test_checkpoints.py reads
 * the files with transformers and PEFT. */
#include "exec/checkpoint/companions.h"
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(exec_companions, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 60);

static const char *path_in(const char *folder, const char *name)
{
    const char *path = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &path, "%s/%s", folder, name), RP_OK));
    return path;
}

static void put(const char *folder, const char *name, const char *bytes, size_t length)
{
    FILE *stream = fopen(path_in(folder, name), "w");
    cr_assert(stream != NULL);
    cr_assert(eq(sz, fwrite(bytes, 1, length, stream), length));
    cr_assert(eq(int, fclose(stream), 0));
}

static const rpexec_companion *find(const rpexec_companions *c, const char *name)
{
    const rpexec_companion *found = NULL;
    for (uint32_t i = 0; i < c->step.count; i++) {
        found = strcmp(c->step.files[i].name, name) == 0 ? &c->step.files[i] : found;
    }
    return found;
}

/* ---- config.json of a model's sizes ---------------------------------------------------------- */

static void check_read_back(const rp_model *m)
{
    char folder[] = "/tmp/roundpipe-companions-XXXXXX";
    rp_text text = {0};
    bool found = false;
    rp_model read = {0};
    cr_assert(mkdtemp(folder) != NULL);
    cr_assert(eq(int, rpexec_config_print(m, RP_DTYPE_BF16, &text, &found), RP_OK));
    cr_assert(found, "%s has no family", m->name);
    put(folder, "config.json", text.bytes, text.length);
    cr_assert(eq(int, rpexec_config_load(folder, NULL, rp_test_arena, &read), RP_OK), "%s: %s",
              m->name, rp_test_messages);
    (void)unlink(path_in(folder, "config.json"));
    (void)rmdir(folder);
    cr_expect(strstr(text.bytes, "\"torch_dtype\": \"bfloat16\"") != NULL);
    rp_text_fini(&text);
    const struct {
        const char *name;
        uint64_t got, expected;
    } numbers[] = {{"layers", read.layers, m->layers},
                   {"hidden", read.hidden, m->hidden},
                   {"heads", read.heads, m->heads},
                   {"kv_heads", read.kv_heads, m->kv_heads},
                   {"head_dim", read.head_dim, m->head_dim},
                   {"intermediate", read.intermediate, m->intermediate},
                   {"experts", read.experts, m->experts},
                   {"active_experts", read.active_experts, m->active_experts},
                   {"vocab", read.vocab, m->vocab},
                   {"max_positions", read.max_positions, m->max_positions},
                   {"tied_head", read.tied_head, m->tied_head},
                   {"qk_norm", read.qk_norm, m->qk_norm},
                   {"raw_routing", read.raw_routing, m->raw_routing},
                   {"layer_parameters", read.layer_parameters, m->layer_parameters},
                   {"total_parameters", read.total_parameters, m->total_parameters}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        cr_expect(eq(u64, numbers[i].got, numbers[i].expected), "%s: %s", m->name, numbers[i].name);
    }
    bool same = read.rope.factor == m->rope.factor && read.rope.low == m->rope.low &&
                read.rope.high == m->rope.high && read.rope.original == m->rope.original;
    cr_expect(same || strcmp(m->rope_scaling, "llama3") != 0, "%s", m->name);
    same = read.yarn.factor == m->yarn.factor && read.yarn.fast == m->yarn.fast &&
           read.yarn.slow == m->yarn.slow && read.yarn.original == m->yarn.original &&
           read.yarn.attention == m->yarn.attention && read.yarn.truncate == m->yarn.truncate;
    cr_expect(same || strcmp(m->rope_scaling, "yarn") != 0, "%s", m->name);
    same = read.gate.alpha == m->gate.alpha && read.gate.limit == m->gate.limit;
    cr_expect(same || !m->expert_bias, "%s", m->name);
    cr_expect(eq(u32, rp_model_window(&read, 0), rp_model_window(m, 0)), "%s", m->name);
    cr_expect(eq(u32, rp_model_window(&read, 1), rp_model_window(m, 1)), "%s", m->name);
    cr_expect(read.rope_theta == m->rope_theta && read.norm_eps == m->norm_eps, "%s", m->name);
    cr_expect(eq(str, (char *)(uintptr_t)read.rope_scaling, (char *)(uintptr_t)m->rope_scaling));
}

Test(exec_companions, registered_models_are_read_back)
{
    static const char *const names[] = {
        "tiny",      "tiny-moe",   "small",       "qwen3-0.6b",       "qwen3-1.7b", "qwen3-8b",
        "qwen3-32b", "qwen3-235b", "llama3.1-8b", "llama3.1-8b-lora", "gpt-oss-20b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rp_model model;
        cr_assert(eq(int, rp_model_load(names[i], rp_test_arena, &model), RP_OK));
        check_read_back(&model);
    }
}

Test(exec_companions, sizes_of_each_family_are_read_back)
{
    for (uint32_t i = 0; i < 8; i++) {
        rp_model model = rp_test_decoder(3, (i & 1) != 0, (i & 2) != 0);
        model.rope_scaling = (i & 4) != 0 ? "llama3" : "none";
        model.rope = (rp_rope_scale){.factor = 32.5, .low = 0.75, .high = 5, .original = 4097};
        model.rope_theta = 1234567.25;
        model.norm_eps = 3e-7;
        check_read_back(&model);
        if (model.qk_norm) {
            model.experts = 5;
            model.active_experts = 3;
            model.raw_routing = (i & 4) != 0;
            rp_model_count(&model);
            check_read_back(&model);
        }
    }
}

Test(exec_companions, layers_of_no_family_have_no_configuration)
{
    rp_model config = rp_test_decoder(2, false, true);
    rpexec_model model;
    rpexec_companions companions;
    const rpexec_origin origin = {0};
    cr_assert(eq(int, rpexec_model_create(&config, 8, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
    config.wide_qk_norm = true;
    cr_assert(
        eq(int, rpexec_companions_gather(&origin, &model, rp_test_arena, &companions), RP_OK));
    cr_expect(eq(u32, companions.step.count, 0));
    cr_expect(strstr(rp_test_messages, "are without config.json") != NULL, "%s", rp_test_messages);
}

/* ---- config.json that is carried along ------------------------------------------------------- */

static void check_carried(const char *before, const char *after)
{
    const rp_text from = {.bytes = (char *)(uintptr_t)before, .length = strlen(before)};
    rp_text text = {0};
    cr_assert(eq(int, rpexec_config_carry("config.json", &from, RP_DTYPE_BF16, &text), RP_OK), "%s",
              before);
    cr_expect(eq(str, text.bytes, (char *)(uintptr_t)after));
    rp_text_fini(&text);
}

Test(exec_companions, only_the_type_of_a_configuration_changes)
{
    check_carried("{\"a\": 1e-06, \"dtype\" :\n \"float32\",\"b\":2}\n",
                  "{\"a\": 1e-06, \"dtype\" :\n \"bfloat16\",\"b\":2}\n");
    check_carried("{\"b\": \"torch_dtype\", \"torch_dtype\": null}",
                  "{\"b\": \"torch_dtype\", \"torch_dtype\": \"bfloat16\"}");
    check_carried("{\"dtype\":\"a\\\"b\",\"torch_dtype\":\"x\"}",
                  "{\"dtype\":\"bfloat16\",\"torch_dtype\":\"bfloat16\"}");
    check_carried(" {\n  \"c\": {\"dtype\": \"float32\"}\n}",
                  " {\n  \"torch_dtype\": \"bfloat16\",\n  \"c\": {\"dtype\": \"float32\"}\n}");
}

/* Saved weights are not packed, so the key quantization_config goes, wherever it stands at the top
 * level. */
Test(exec_companions, words_on_packed_weights_are_left_out)
{
    check_carried("{\"quantization_config\": {\"a\": [\"}\", 1], \"b\": {}}, \"dtype\": \"x\"}",
                  "{ \"dtype\": \"bfloat16\"}");
    check_carried("{\"dtype\": \"x\",\n \"quantization_config\": {\"a\": \"}\"}\n}",
                  "{\"dtype\": \"bfloat16\"}");
    check_carried("{\"dtype\": \"x\", \"quantization_config\" : null, \"a\": {}}",
                  "{\"dtype\": \"bfloat16\", \"a\": {}}");
    check_carried("{\"dtype\": \"x\", \"a\": {\"quantization_config\": 1}}",
                  "{\"dtype\": \"bfloat16\", \"a\": {\"quantization_config\": 1}}");
}

Test(exec_companions, configurations_without_a_place_for_the_type_are_refused)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "[1]",
                                        "{\"dtype\": {\"a\": 1}}",
                                        "{\"quantization_\\u0063onfig\": 1, \"dtype\": \"x\"}",
                                        "{\"d\\u0074ype\": \"float32\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const rp_text from = {.bytes = (char *)(uintptr_t)texts[i], .length = strlen(texts[i])};
        rp_text text = {0};
        cr_expect(eq(int, rpexec_config_carry("config.json", &from, RP_DTYPE_F16, &text), RP_INPUT),
                  "%s", texts[i]);
        rp_text_fini(&text);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

#define QWEN3 RP_TEST_ROOT "/golden/decoders/qwen3"

static void copy_config(const char *folder)
{
    rp_text text = {0};
    cr_assert(eq(int, rp_text_read_file(QWEN3 "/config.json", 1 << 20, &text), RP_OK));
    put(folder, "config.json", text.bytes, text.length);
    rp_text_fini(&text);
}

static rp_status gather(const char *folder, const char *adapters, uint32_t rank,
                        rpexec_companions *companions)
{
    rp_model config;
    rpexec_model model;
    cr_assert(eq(int, rpexec_config_load(folder, NULL, rp_test_arena, &config), RP_OK));
    rp_model_set_lora_rank(&config, rank);
    cr_assert(eq(int, rpexec_model_create(&config, 8, RP_DTYPE_F16, rp_test_arena, &model), RP_OK));
    const rpexec_origin origin = {
        .config = path_in(folder, "config.json"), .weights = folder, .adapters = adapters};
    return rpexec_companions_gather(&origin, &model, rp_test_arena, companions);
}

Test(exec_companions, files_beside_a_configuration_are_carried_along)
{
    static const char bytes[] = "\0a tokenizer\r\n\xff";
    char from[] = "/tmp/roundpipe-companions-XXXXXX";
    char to[] = "/tmp/roundpipe-companions-XXXXXX";
    rpexec_companions c;
    cr_assert(mkdtemp(from) != NULL && mkdtemp(to) != NULL);
    copy_config(from);
    put(from, "tokenizer.model", bytes, sizeof bytes);
    put(from, "chat_template.jinja", "", 0);
    put(from, "README.md", "of the model", 12);
    cr_assert(eq(int, gather(from, NULL, 0, &c), RP_OK));
    cr_expect(eq(u32, c.step.count, 3));
    cr_assert(find(&c, "config.json") != NULL && find(&c, "chat_template.jinja") != NULL);
    cr_expect(strstr(find(&c, "config.json")->bytes, "\"dtype\": \"float16\"") != NULL);
    put(from, "tokenizer.model", "changed", 7); /* after the run has begun */
    cr_assert(eq(int, rpexec_companions_write(&c.step, to), RP_OK));
    rp_text text = {0};
    cr_assert(eq(int, rp_text_read_file(path_in(to, "tokenizer.model"), 100, &text), RP_OK));
    cr_assert(eq(sz, text.length, sizeof bytes));
    cr_expect(eq(int, memcmp(text.bytes, bytes, sizeof bytes), 0));
    rp_text_fini(&text);
    /* Files of the adapters' own folder take the place of the base's files. */
    cr_assert(eq(int, gather(from, to, 2, &c), RP_OK));
    cr_expect(eq(u32, c.step.count, 3));
    cr_expect(eq(sz, find(&c, "tokenizer.model")->length, sizeof bytes));
    cr_expect(find(&c, "config.json") == NULL && find(&c, "chat_template.jinja") != NULL);
    /* A file that never ends (a FIFO) is refused at once; nothing waits for it. */
    (void)unlink(path_in(from, "tokenizer.model"));
    cr_assert(eq(int, mkfifo(path_in(from, "tokenizer.model"), 0600), 0));
    cr_expect(eq(int, gather(from, NULL, 0, &c), RP_INPUT));
    cr_expect(strstr(rp_test_messages, "tokenizer.model: cannot be read: not a regular file") !=
              NULL);
    /* A link whose file is missing, as in a cache that was not downloaded to its end, is refused.
     */
    (void)unlink(path_in(from, "tokenizer.model"));
    cr_assert(eq(int, symlink("nothing", path_in(from, "tokenizer.model")), 0));
    rp_test_log_again();
    cr_expect(eq(int, gather(from, NULL, 0, &c), RP_INPUT));
    cr_expect(strstr(rp_test_messages, "tokenizer.model: cannot be read: No such file") != NULL);
    static const char *const names[] = {"config.json", "tokenizer.model", "chat_template.jinja",
                                        "README.md"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)unlink(path_in(from, names[i]));
        (void)unlink(path_in(to, names[i]));
    }
    cr_expect(eq(int, rmdir(from), 0));
    cr_expect(eq(int, rmdir(to), 0));
}

Test(exec_companions, adapters_say_what_they_are_on)
{
    rpexec_companions c;
    cr_assert(eq(int, gather(QWEN3, NULL, 6, &c), RP_OK));
    cr_assert(eq(u32, c.step.count, 1)); /* as in PEFT: the other files are in the base's folder */
    cr_expect(eq(u32, c.base.count, 0));
    cr_assert(eq(str, (char *)(uintptr_t)c.step.files[0].name, "adapter_config.json"));
    json_t *root = json_loads(c.step.files[0].bytes, 0, NULL);
    const json_t *modules = json_object_get(root, "target_modules");
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    static const char *const names[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                        "gate_proj", "up_proj", "down_proj"};
    cr_assert(eq(sz, json_array_size(modules), 7));
    for (size_t i = 0; i < 7; i++) {
        cr_expect(eq(str, (char *)(uintptr_t)json_string_value(json_array_get(modules, i)),
                     (char *)(uintptr_t)names[i]));
    }
    cr_expect(eq(int, (int)json_integer_value(json_object_get(root, "r")), 6));
    cr_expect(eq(int, (int)json_integer_value(json_object_get(root, "lora_alpha")), 6));
    cr_assert(base != NULL);
    cr_expect(base[0] == '/' && strstr(base, "/golden/decoders/qwen3") != NULL, "%s", base);
    json_decref(root);
}

Test(exec_companions, adapters_on_random_weights_have_a_base)
{
    rp_model config = rp_test_decoder(2, false, true);
    rpexec_model model;
    rpexec_companions c;
    const rpexec_origin origin = {.save = RP_TEST_ROOT "/bad/../golden"};
    rp_model_set_lora_rank(&config, 3);
    cr_assert(eq(int, rpexec_model_create(&config, 8, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_companions_gather(&origin, &model, rp_test_arena, &c), RP_OK));
    cr_assert(eq(u32, c.base.count, 1));
    cr_expect(eq(str, (char *)(uintptr_t)c.base.files[0].name, "config.json"));
    cr_assert(eq(u32, c.step.count, 1));
    cr_expect(strstr(c.step.files[0].bytes, "/data/golden/base\"") != NULL, "%s",
              c.step.files[0].bytes);
}
