/* adapter_config.json: files of PEFT and of rpexec are read, and all other files are refused with
 * the key at fault. */
#include "exec/checkpoint/adapter_config.h"
#include "exec/checkpoint/companions.h"
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define QWEN3 RP_TEST_ROOT "/golden/decoders/qwen3"

TestSuite(exec_adapter_config, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 60);

/* @param tensors names of tensors, NULL after the last; NULL: there is no file of tensors */
static rp_status find_with(const char *text, const char *const *tensors, rpexec_adapters *adapters,
                           bool *found)
{
    char folder[] = "/tmp/roundpipe-adapters-XXXXXX";
    const char *path = NULL;
    const char *values = NULL;
    cr_assert(mkdtemp(folder) != NULL);
    cr_assert(
        eq(int, rp_arena_print(rp_test_arena, &path, "%s/adapter_config.json", folder), RP_OK));
    cr_assert(eq(int,
                 rp_arena_print(rp_test_arena, &values, "%s/adapter_model.safetensors", folder),
                 RP_OK));
    if (tensors != NULL) {
        static const float zero = 0;
        rpexec_writable all[64];
        uint32_t count = 0;
        for (; tensors[count] != NULL; count++) {
            all[count] =
                (rpexec_writable){.name = tensors[count], .rank = 1, .shape = {1}, .values = &zero};
        }
        cr_assert(eq(int, rpexec_safetensors_write(values, all, count, NULL, 0), RP_OK));
    }
    FILE *stream = fopen(path, "w");
    cr_assert(stream != NULL);
    cr_assert(fputs(text, stream) >= 0);
    cr_assert(eq(int, fclose(stream), 0));
    rp_test_log_again();
    rp_status status = rpexec_adapters_find(folder, rp_test_arena, adapters, found);
    (void)unlink(path);
    (void)unlink(values);
    (void)rmdir(folder);
    return status;
}

static rp_status find(const char *text, rpexec_adapters *adapters, bool *found)
{
    return find_with(text, NULL, adapters, found);
}

/* A file of PEFT 0.21, as save_pretrained writes it for LoraConfig(r=3, lora_alpha=4). */
#define PEFT                                                                                       \
    "\"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null,\n"          \
    "\"auto_mapping\": null, \"corda_config\": null, \"ensure_weight_tying\": false,\n"            \
    "\"eva_config\": null, \"exclude_modules\": null, \"fan_in_fan_out\": false,\n"                \
    "\"inference_mode\": true, \"init_lora_weights\": true, \"layer_replication\": null,\n"        \
    "\"layers_pattern\": null, \"layers_to_transform\": null, \"loftq_config\": {},\n"             \
    "\"lora_bias\": false, \"megatron_config\": null, \"megatron_core\": \"megatron.core\",\n"     \
    "\"modules_to_save\": null, \"peft_version\": \"0.21.2\", \"qalora_group_size\": 16,\n"        \
    "\"rank_pattern\": {}, \"revision\": null, \"target_modules\": [\"q_proj\", \"down_proj\"],\n" \
    "\"target_parameters\": null, \"task_type\": \"CAUSAL_LM\", \"use_bdlora\": null,\n"           \
    "\"trainable_token_indices\": null, \"use_dora\": false, \"use_qalora\": false,\n"             \
    "\"use_rslora\": false"
#define OWN                                                                                        \
    "\"base_model_name_or_path\": \"" QWEN3 "\", \"bias\": \"none\", \"lora_alpha\": 4,\n"         \
    "\"lora_dropout\": 0.0, \"peft_type\": \"LORA\", \"r\": 3"

Test(exec_adapter_config, files_of_peft_are_read)
{
    rpexec_adapters adapters;
    bool found = false;
    cr_assert(eq(int, find("{" OWN ",\n" PEFT "}", &adapters, &found), RP_OK), "%s",
              rp_test_messages);
    cr_expect(found);
    cr_expect(eq(u32, adapters.rank, 3));
    cr_expect(eq(dbl, adapters.alpha, 4));
    cr_expect(eq(str, (char *)(uintptr_t)adapters.base, QWEN3));
    cr_assert(eq(int, rpexec_adapters_find(QWEN3, rp_test_arena, &adapters, &found), RP_OK));
    cr_expect(not(found));
}

Test(exec_adapter_config, what_rpexec_prints_is_read)
{
    rp_model config = rp_test_decoder(2, false, true);
    rpexec_model model;
    rp_text text = {0};
    rpexec_adapters adapters;
    bool found = false;
    rp_model_set_lora_rank(&config, 5);
    config.lora_alpha = 7.25;
    cr_assert(eq(int, rpexec_model_create(&config, 8, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_adapter_config_print(&model, QWEN3, &text), RP_OK));
    cr_assert(eq(int, find(text.bytes, &adapters, &found), RP_OK), "%s", rp_test_messages);
    rp_text_fini(&text);
    cr_expect(eq(u32, adapters.rank, 5));
    cr_expect(eq(dbl, adapters.alpha, 7.25));
}

/* The adapters of experts are on parameters, as PEFT 0.21 names them; gate and up share an adapter
 * of twice the rank and of the same scale. */
Test(exec_adapter_config, adapters_of_joined_experts_are_on_parameters)
{
    rp_model config;
    rpexec_model model;
    rp_text text = {0};
    rpexec_adapters adapters;
    bool found = false;
    cr_assert(eq(
        int,
        rpexec_config_load(RP_TEST_ROOT "/golden/families/gpt-oss", NULL, rp_test_arena, &config),
        RP_OK));
    rp_model_set_lora_rank(&config, 5);
    config.lora_alpha = 7.25;
    cr_assert(eq(int, rpexec_model_create(&config, 8, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_adapter_config_print(&model, QWEN3, &text), RP_OK));
    json_t *root = json_loads(text.bytes, 0, NULL);
    json_t *right = json_pack("[{s:i},{s:f},[s,s],[s,s,s,s]]", "mlp.experts.gate_up_proj", 10,
                              "mlp.experts.gate_up_proj", 14.5, "mlp.experts.gate_up_proj",
                              "mlp.experts.down_proj", "q_proj", "k_proj", "v_proj", "o_proj");
    static const char *const keys[] = {"rank_pattern", "alpha_pattern", "target_parameters",
                                       "target_modules"};
    for (size_t i = 0; i < 4; i++) {
        cr_expect(json_equal(json_object_get(root, keys[i]), json_array_get(right, i)), "%s",
                  text.bytes);
    }
    json_decref(right);
    json_decref(root);
    cr_assert(eq(int, find(text.bytes, &adapters, &found), RP_OK), "%s", rp_test_messages);
    rp_text_fini(&text);
    cr_expect(eq(u32, adapters.rank, 5));
    cr_expect(eq(dbl, adapters.alpha, 7.25));
}

Test(exec_adapter_config, other_adapters_are_refused_by_key_and_line)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"{" OWN ",\n\"use_dora\": true}",
         "adapter_config.json:3: use_dora: valid values are null"},
        {"{" OWN ",\n\"use_rslora\": true}", ":3: use_rslora: "},
        {"{" OWN ",\n\"rank_pattern\": {\"q_proj\": 4}}", ":3: rank_pattern: "},
        {"{" OWN ",\n\"rank_pattern\": {\"mlp.experts.gate_up_proj\": 3}}",
         ":3: rank_pattern: valid values are none, and twice the adapters' number"},
        {"{" OWN ",\n\"alpha_pattern\": {\"mlp.experts.gate_up_proj\": 8, \"q_proj\": 1}}",
         ":3: alpha_pattern: "},
        {"{" OWN ",\n\"modules_to_save\": [\"lm_head\"]}", ":3: modules_to_save: "},
        {"{" OWN ",\n\"init_lora_weights\": \"pissa\"}",
         ":3: init_lora_weights: valid values are true, false and gaussian"},
        {"{" OWN ",\n\"task_type\": \"SEQ_CLS\"}", ":3: task_type: valid values are CAUSAL_LM"},
        {"{" OWN ",\n\"of_tomorrow\": 1}", ":3: of_tomorrow: "},
        {"{\"r\": 0}", ":1: r: valid values are integers from 1 to 65536"},
        {"{\"r\": 2}", "lora_alpha: valid values are numbers above 0"},
        {"{\"r\": 2, \"lora_alpha\": 2e6}", ":1: lora_alpha: valid values are numbers up to 1e6"},
        {"{\"r\": 2, \"lora_alpha\": 2}", "peft_type: valid values are LORA"},
        {"{\"r\": 2, \"lora_alpha\": 2, \"peft_type\": \"LORA\"}",
         "base_model_name_or_path: it is not said; valid values are folders with config.json"},
        {"{\"r\": 2, \"lora_alpha\": 2, \"peft_type\": \"LORA\",\n"
         "\"base_model_name_or_path\": \"Qwen/Qwen3-0.6B\"}",
         ":2: base_model_name_or_path: Qwen/Qwen3-0.6B/config.json: No such file or directory; "
         "valid values are folders with config.json and weights, those that the adapters are on: "
         "put its path there"},
        {"{\"r\": 2, \"lora_alpha\": 2, \"peft_type\": \"IA3\",\n"
         "\"base_model_name_or_path\": \"" QWEN3 "\"}",
         ":1: peft_type: valid values are LORA"},
        {"{\"r\": 2", "valid values are one JSON object"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpexec_adapters adapters;
        bool found;
        cr_expect(eq(int, find(cases[i].text, &adapters, &found), RP_INPUT), "%s", cases[i].text);
        cr_expect(strstr(rp_test_messages, cases[i].message) != NULL, "%s:\n%s", cases[i].text,
                  rp_test_messages);
    }
}

/* ---- modules --------------------------------------------------------------------------------- */

#define OF(layer, module)                                                                          \
    "base_model.model.model.layers." #layer "." module ".lora_A.weight",                           \
        "base_model.model.model.layers." #layer "." module ".lora_B.weight"
#define Q "self_attn.q_proj"
#define V "self_attn.v_proj"
#define TARGETS(list) "{" OWN ",\n\"target_modules\": " list "}"

/* The numbers are masks of modules, bit by bit in the order q, k, v, o, gate, up, down. The modules
 * named by entries and patterns of target_modules follow LoraConfig of PEFT 0.21,
 * check_target_module_exists. */
Test(exec_adapter_config, tensors_say_which_modules_have_adapters)
{
    static const struct {
        const char *text;
        const char *tensors[32];
        uint32_t linears, layers;
    } cases[] = {
        {TARGETS("[\"v_proj\", \"q_proj\"]"), {OF(0, Q), OF(0, V), OF(1, Q), OF(1, V)}, 5, 2},
        {TARGETS("[\"self_attn.q_proj\"]"), {OF(0, Q), OF(1, Q), OF(2, Q)}, 1, 3},
        {TARGETS("\".*self_attn.(q|v)_proj\""), {OF(0, Q), OF(0, V)}, 5, 1},
        {TARGETS("\"all-linear\""),
         {OF(0, Q), OF(0, "self_attn.k_proj"), OF(0, V), OF(0, "self_attn.o_proj"),
          OF(0, "mlp.gate_proj"), OF(0, "mlp.up_proj"), OF(0, "mlp.down_proj")},
         0,
         1},
        {TARGETS("[\"qkv_proj\"]"), {OF(0, "self_attn.qkv_proj")}, 7, 1},
        {TARGETS("[\"gate_up_proj\", \"down_proj\"]"),
         {OF(0, "mlp.gate_up_proj"), OF(0, "mlp.down_proj")},
         112,
         1},
        {TARGETS("[\"w2\", \"w1\"]"),
         {OF(0, "block_sparse_moe.experts.0.w1"), OF(0, "block_sparse_moe.experts.0.w2"),
          OF(0, "block_sparse_moe.experts.1.w1"), OF(0, "block_sparse_moe.experts.1.w2")},
         80,
         1},
        {"{" OWN ", \"target_modules\": [\"o_proj\"],\n\"target_parameters\":"
         " [\"mlp.experts.gate_up_proj\", \"mlp.experts.down_proj\"]}",
         {OF(0, "self_attn.o_proj"), OF(0, "mlp.experts"), OF(0, "mlp.experts.base_layer")},
         120,
         1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpexec_adapters adapters;
        bool found;
        cr_assert(eq(int, find_with(cases[i].text, cases[i].tensors, &adapters, &found), RP_OK),
                  "%s", rp_test_messages);
        cr_expect(eq(u32, adapters.linears, cases[i].linears), "%s", cases[i].text);
        cr_expect(eq(u32, adapters.layers, cases[i].layers), "%s", cases[i].text);
        rp_model model = {.name = "m", .layers = cases[i].layers};
        cr_expect(eq(int, rpexec_adapters_check(&adapters, &model), RP_OK));
        model.layers++;
        cr_expect(eq(int, rpexec_adapters_check(&adapters, &model), RP_INPUT));
        cr_expect(strstr(rp_test_messages, "layers have adapters, m has") != NULL, "%s",
                  rp_test_messages);
    }
}

Test(exec_adapter_config, other_modules_are_refused_by_line)
{
    static const struct {
        const char *text;
        const char *tensors[16];
        const char *cause;
    } cases[] = {
        {TARGETS("[\"q_proj\", \"embed_tokens\"]"), {NULL}, "embed_tokens"},
        {TARGETS("[\"lm_head\"]"), {NULL}, "lm_head"},
        {TARGETS("[\"gate\"]"), {NULL}, "gate"}, /* a router */
        {TARGETS("[1]"), {NULL}, ""},
        {TARGETS("[\"q_proj\"]"), {OF(0, Q), OF(0, V)}, "its tensors are on other modules"},
        {TARGETS("[\"q_proj\", \"v_proj\"]"), {OF(0, Q)}, "its tensors are on other modules"},
        {TARGETS("[\"q_proj\", \"v_proj\"]"),
         {OF(0, Q), OF(0, V), OF(1, Q)},
         "layer 1 has adapters on others than layer 0"},
        {TARGETS("\".*layers.[13].self_attn.q_proj\""),
         {OF(1, Q), OF(3, Q)},
         "layer 1 has adapters on others than layer 0"},
        {TARGETS("\".*\""), {OF(0, Q), "base_model.model.lm_head.lora_A.weight"}, "lm_head"},
        {TARGETS("\".*\""), {OF(0, Q), OF(0, "mlp.router")}, "mlp.router"},
        {TARGETS("\".*\""), {OF(0, Q), OF(99999, Q)}, "layers.99999."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpexec_adapters adapters;
        bool found;
        rp_status status = find_with(cases[i].text, cases[i].tensors, &adapters, &found);
        cr_expect(eq(int, status, RP_INPUT), "%s", cases[i].text);
        cr_expect(strstr(rp_test_messages, "adapter_config.json:3: target_modules: ") != NULL &&
                      strstr(rp_test_messages, cases[i].cause) != NULL &&
                      strstr(rp_test_messages, "valid values are q_proj, k_proj, v_proj, ") != NULL,
                  "%s:\n%s", cases[i].text, rp_test_messages);
    }
}

/* A saved file names the modules that have adapters, for every set of modules. */
Test(exec_adapter_config, saved_adapters_name_their_modules)
{
    static const char *const names[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                        "gate_proj", "up_proj", "down_proj"};
    for (uint32_t linears = 1; linears < 128; linears++) {
        rp_model config = rp_test_decoder(2, false, true);
        rpexec_model model;
        rp_text text = {0};
        rp_model_set_lora(&config, 3, linears);
        cr_assert(
            eq(int, rpexec_model_create(&config, 8, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
        cr_assert(eq(int, rpexec_adapter_config_print(&model, QWEN3, &text), RP_OK));
        json_t *root = json_loads(text.bytes, 0, NULL);
        const json_t *got = json_object_get(root, "target_modules");
        json_t *right = json_array();
        for (uint32_t i = 0; i < 7; i++) {
            if ((linears >> i & 1) != 0) {
                json_array_append_new(right, json_string(names[i]));
            }
        }
        cr_expect(json_equal(got, right), "%u: %s", linears, text.bytes);
        json_decref(right);
        json_decref(root);
        rp_text_fini(&text);
    }
}
