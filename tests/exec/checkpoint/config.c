/* config.json of the executor's families: the values that are read, and refusals with the key and
 * its valid values. */
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "exec/checkpoint/weights.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(exec_config, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 60);

static rp_status load_assumed(const char *text, const char *assume, rp_model *model_out,
                              char *message, size_t size)
{
    char path[] = "/tmp/roundpipe-config-XXXXXX";
    int descriptor = mkstemp(path);
    cr_assert(descriptor >= 0);
    FILE *stream = fdopen(descriptor, "w");
    cr_assert(stream != NULL);
    cr_assert(fputs(text, stream) >= 0);
    cr_assert(eq(int, fclose(stream), 0));
    rp_log_capture_begin(message, size);
    rp_status status = rpexec_config_load(path, assume, rp_test_arena, model_out);
    rp_log_capture_end();
    (void)unlink(path);
    return status;
}

static rp_status load_text(const char *text, rp_model *model_out, char *message, size_t size)
{
    return load_assumed(text, NULL, model_out, message, size);
}

/* The keys of Qwen3-30B-A3B's file (Hugging Face) with small numbers; `experts` stands for the keys
 * of its experts. */
static rp_status load(const char *experts, rp_model *model_out, char *message, size_t size)
{
    char text[2048];
    (void)snprintf(text, sizeof text,
                   "{\"model_type\": \"qwen3_moe\", \"attention_bias\": false, \"head_dim\": 16,"
                   " \"hidden_act\": \"silu\", \"hidden_size\": 32, \"intermediate_size\": 96,"
                   " \"max_position_embeddings\": 64, \"num_attention_heads\": 4,"
                   " \"num_hidden_layers\": 2, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-6,"
                   " \"rope_scaling\": null, \"rope_theta\": 1e6, \"tie_word_embeddings\": false,"
                   " \"vocab_size\": 97, %s}",
                   experts);
    return load_text(text, model_out, message, size);
}

#define GOOD                                                                                       \
    "\"moe_intermediate_size\": 24, \"num_experts_per_tok\": 2, \"decoder_sparse_step\": 1,"       \
    " \"mlp_only_layers\": []"

Test(exec_config, mixtures_are_read_in_both_styles)
{
    static const char *const counts[] = {"num_experts", "num_local_experts"};
    for (int i = 0; i < 4; i++) {
        char message[1024] = "";
        char experts[512];
        rp_model m;
        (void)snprintf(experts, sizeof experts, GOOD ", \"%s\": 5%s", counts[i % 2],
                       i < 2 ? ", \"norm_topk_prob\": true" : "");
        cr_assert(eq(int, load(experts, &m, message, sizeof message), RP_OK), "%s", message);
        cr_expect(eq(u32, m.experts, 5));
        cr_expect(eq(u32, m.active_experts, 2));
        cr_expect(
            eq(u32, m.intermediate, 24)); /* not the 96 of the dense layers, since there are none */
        cr_expect(m.qk_norm);
        cr_expect(eq(int, m.raw_routing, i >= 2)); /* transformers: false if the key is missing */
        /* executor.md 4.2: E * 3df + Ed */
        cr_expect(eq(u64, m.mlp_parameters, 5 * 3 * 32 * 24 + 5 * 32));
    }
}

Test(exec_config, mixtures_that_cannot_be_run_are_refused)
{
    static const struct {
        const char *experts, *message;
    } cases[] = {
        {GOOD, "num_local_experts: valid values are integers from 1"},
        {GOOD ", \"num_experts\": 1", "num_experts: valid values are integers from 2 on"},
        {GOOD ", \"num_experts\": \"5\"", "num_experts: valid values are null and integers from 0"},
        {"\"num_experts\": 5, \"moe_intermediate_size\": 24, \"num_experts_per_tok\": 6",
         "num_experts_per_tok: valid values are integers from 1 to num_experts"},
        {"\"num_experts\": 5, \"moe_intermediate_size\": 24", "num_experts_per_tok: valid values"},
        {"\"num_experts\": 5, \"num_experts_per_tok\": 2", "moe_intermediate_size: valid values"},
        {"\"num_experts\": 5, \"moe_intermediate_size\": 24, \"num_experts_per_tok\": 2,"
         " \"decoder_sparse_step\": 2",
         "decoder_sparse_step: valid values are 1"},
        {"\"num_experts\": 5, \"moe_intermediate_size\": 24, \"num_experts_per_tok\": 2,"
         " \"mlp_only_layers\": [0]",
         "mlp_only_layers: valid values are none"},
        {"\"num_experts\": 5, \"moe_intermediate_size\": 24, \"num_experts_per_tok\": 2,"
         " \"mlp_only_layers\": 3",
         "mlp_only_layers: valid values are null and lists of integers from 0"},
        {GOOD ", \"num_experts\": 5, \"num_local_experts\": 4",
         "num_experts: differs from num_local_experts; valid values are equal ones"},
        {GOOD ", \"num_experts\": 5, \"norm_topk_prob\": 1",
         "norm_topk_prob: valid values are null and true and false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[1024] = "";
        rp_model m;
        cr_expect(eq(int, load(cases[i].experts, &m, message, sizeof message), RP_INPUT), "%s",
                  cases[i].experts);
        cr_expect(strstr(message, cases[i].message) != NULL, "%s", message);
    }
}

#define LLAMA                                                                                      \
    "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_attention_heads\": 4,\n"               \
    " \"num_hidden_layers\": 2, \"intermediate_size\": 40, \"vocab_size\": 97,\n"                  \
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\",\n"

/* Refusals name every key at fault with its line, also inside of objects. A missing key has no
 * line, and no control character of the file gets into a message. */
Test(exec_config, refusals_name_the_line_and_all_keys)
{
    static const struct {
        const char *text, *messages[3];
    } cases[] = {
        {LLAMA "\"x\": {\"auto_map\": 1},\n\"bos_token_id\": \"auto_map\",\n\"auto_map\" : "
               "{\"AutoModel\": 3},"
               "\n\n\"a\": 1}",
         {":4: x: is not understood", ":6: auto_map: code of its own", ":8: a: is not understood"}},
        {LLAMA "\"factor\": 2,\n\"rope_scaling\": {\"rope_type\": \"dynamic\",\n\"factor\": 4}}",
         {":4: factor: is not",
          ":5: rope_scaling.rope_type: valid values are default, linear, llama3, longrope and yarn",
          ":6: rope_scaling.factor: is not"}},
        {LLAMA "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": 1}}",
         {":4: rope_scaling.truncate: valid values are true and false", "", ""}},
        {LLAMA "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 0.5}}",
         {":4: rope_scaling.factor: valid values are numbers from 1 on", "", ""}},
        {LLAMA "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}",
         {"rope_scaling.original_max_position_embeddings: valid values are numbers", "", ""}},
        {LLAMA "\"quantization_config\": {\"quant_method\": \"mxfp4\"}}",
         {":4: quantization_config: quantized weights are not read but gpt-oss's", "", ""}},
        {LLAMA "\"a\\u000ab\": 0,\n\"quote\\\"\": \"\\\\\", \"torchscript\":\ntrue}",
         {": a\\x0ab: is not understood", ": quote\": is not", ":5: torchscript: a tied head"}},
        {LLAMA "\"rope_theta\": 100,\n\"rope_parameters\": {\"rope_theta\": 200}}",
         {":4: rope_theta: differs from the one inside; valid values are equal ones", "", ""}},
        {LLAMA "\"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {\"type\": \"\"}}",
         {":4: rope_scaling: rope_parameters is there, too; valid values are one of them", "", ""}},
        {LLAMA "\"rope_scaling\": \"llama3\"}",
         {":4: rope_scaling: valid values are null and objects", "", ""}},
        {"{\n\"model_type\": \"llama\"}", {": num_hidden_layers: valid values are int", "", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[2048] = "";
        rp_model m;
        cr_expect(eq(int, load_text(cases[i].text, &m, message, sizeof message), RP_INPUT));
        for (int k = 0; k < 3; k++) {
            cr_expect(strstr(message, cases[i].messages[k]) != NULL, "%s: %s", message,
                      cases[i].messages[k]);
        }
    }
}

#define PHI3(original, type, rest)                                                                 \
    "{\"model_type\": \"phi3\", \"hidden_size\": 32, \"num_attention_heads\": 4,\n"                \
    " \"num_hidden_layers\": 2, \"intermediate_size\": 40, \"vocab_size\": 97,\n"                  \
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\",\n"        \
    " \"pad_token_id\": null" original ",\n" type "\"longrope\", " rest "}}"
#define SCALED "\"rope_scaling\": {\"type\": "
#define FACTORS "\"short_factor\": [1, 1.5, 2, 4], \"long_factor\": [2, 3, 4, 8.5]"

/* Phi-3's rotation in both styles, and the numbers that transformers 5.24 takes for missing keys:
 * the ratio of the lengths, or `factor`, and `attention_factor` in the place of sqrt(1 + ln s / ln
 * P). */
Test(exec_config, longrope_is_read_in_both_styles)
{
    static const struct {
        const char *text;
        double original, attention;
    } cases[] = {
        {PHI3(", \"original_max_position_embeddings\": 16", SCALED, FACTORS), 16,
         1.224744871391589},
        {PHI3(", \"original_max_position_embeddings\": 16",
              "\"rope_parameters\": {\"rope_theta\": 10, \"rope_type\": ",
              FACTORS ", \"original_max_position_embeddings\": 16"),
         16, 1.224744871391589},
        {PHI3("", SCALED, FACTORS), 4096, 1},
        {PHI3("", SCALED, FACTORS ", \"factor\": 4096"), 4096, 1.4142135623730951},
        {PHI3("", SCALED, FACTORS ", \"factor\": 32, \"attention_factor\": 1.25"), 4096, 1.25},
        {PHI3("", SCALED, FACTORS ", \"factor\": null, \"attention_factor\": null"), 4096, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[1024] = "";
        rp_model m;
        cr_assert(eq(int, load_text(cases[i].text, &m, message, sizeof message), RP_OK), "%s",
                  message);
        cr_expect(eq(str, (char *)(uintptr_t)m.rope_scaling, "longrope"));
        cr_expect(eq(dbl, m.longrope.original, cases[i].original));
        cr_expect(fabs(m.longrope.attention - cases[i].attention) < 1e-15, "%zu: %.17g", i,
                  m.longrope.attention);
        cr_expect(eq(dbl, m.longrope.short_factors[1], 1.5));
        cr_expect(eq(dbl, m.longrope.long_factors[3], 8.5));
    }
}

Test(exec_config, factors_that_do_not_fit_are_refused)
{
#define LENGTHS "lists of 4 numbers above 0, one for every two rotated values of a head"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {PHI3("", SCALED, "\"short_factor\": [1, 1, 1], \"long_factor\": [1, 1, 1, 1]"),
         ":5: rope_scaling.short_factor: valid values are " LENGTHS},
        {PHI3("", SCALED, "\"short_factor\": [1, 1, 1, 1], \"long_factor\": [1, 1, 1, 1, 1]"),
         ":5: rope_scaling.long_factor: valid values are " LENGTHS},
        {PHI3("", SCALED, "\"short_factor\": [1, 1, 1, 1], \"long_factor\": [1, 0, 1, 1]"),
         ":5: rope_scaling.long_factor: valid values are " LENGTHS},
        {PHI3("", SCALED, "\"short_factor\": [1, -1, 1, 1], \"long_factor\": [1, 1, 1, 1]"),
         ":5: rope_scaling.short_factor: valid values are " LENGTHS},
        {PHI3("", SCALED, "\"short_factor\": [1, \"1\", 1, 1]"),
         ":5: rope_scaling.short_factor: valid values are lists of numbers"},
        {PHI3("", SCALED, "\"short_factor\": 1"),
         ":5: rope_scaling.short_factor: valid values are lists of numbers"},
        {PHI3("", SCALED, "\"short_factor\": [1, 1, 1, 1]"),
         ": rope_scaling.long_factor: valid values are " LENGTHS},
        {PHI3(", \"partial_rotary_factor\": 0.5", SCALED, FACTORS),
         ":5: rope_scaling.short_factor: valid values are lists of 2 numbers"},
        {PHI3(", \"original_max_position_embeddings\": 1", SCALED, FACTORS),
         "original_max_position_embeddings: valid values are integers from 2 on"},
        {PHI3("", SCALED, FACTORS ", \"original_max_position_embeddings\": 16"),
         ":5: rope_scaling.original_max_position_embeddings: differs from the one outside, which "
         "is 4096 if missing; valid values are equal ones"},
        {PHI3("", SCALED, FACTORS ", \"factor\": -1"), ":5: rope_scaling.factor: valid values"},
        {PHI3("", SCALED, FACTORS ", \"short_mscale\": 1.1"), ":5: rope_scaling.short_mscale: is"},
        {LLAMA "\"rope_scaling\": {\"rope_type\": \"su\"}}",
         ":4: rope_scaling.rope_type: valid values are default, linear, llama3, longrope and yarn"},
        {LLAMA "\"rope_scaling\": {\"rope_type\": \"longrope\", " FACTORS "}}",
         "rope_scaling.original_max_position_embeddings: valid values are numbers above 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[2048] = "";
        rp_model m;
        cr_expect(eq(int, load_text(cases[i].text, &m, message, sizeof message), RP_INPUT), "%zu",
                  i);
        cr_expect(strstr(message, cases[i].message) != NULL, "%zu: %s", i, message);
    }
}

/* Keys that training does not depend on may have any value, and features that are switched off may
 * be mentioned. */
Test(exec_config, what_does_not_alter_the_model_is_read)
{
    char message[1024] = "";
    rp_model m;
    const char *text =
        LLAMA "\"bos_token_id\": 1, \"torch_dtype\": \"bfloat16\", \"temperature\": 0.6,"
              " \"attention_dropout\": 0, \"pruned_heads\": {}, \"sliding_window\": null,"
              " \"max_window_layers\": 1, \"rope_scaling\": {}, \"quantization_config\": null,"
              " \"rope_parameters\": {\"partial_rotary_factor\": 1.0}}";
    cr_assert(eq(int, load_text(text, &m, message, sizeof message), RP_OK), "%s", message);
    cr_expect(eq(u32, m.kv_heads, 4));
    cr_expect(eq(u32, m.head_dim, 8));
    cr_expect(eq(dbl, m.rope_theta, 10000));
    cr_expect(eq(str, (char *)m.rope_scaling, "none"));
}

#define SIZES                                                                                      \
    ", \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_hidden_layers\": 2,"                 \
    " \"intermediate_size\": 40, \"vocab_size\": 97, \"max_position_embeddings\": 64,"             \
    " \"rms_norm_eps\": 1e-6, \"num_key_value_heads\": 2, \"pad_token_id\": null, "
#define GEMMA_FILE                                                                                 \
    "{\"model_type\": \"gemma2\", \"hidden_activation\": \"gelu_pytorch_tanh\","                   \
    " \"sliding_window\": 8, \"query_pre_attn_scalar\": 8, \"head_dim\": 8" SIZES
#define PHI3_FILE "{\"model_type\": \"phi3\", \"hidden_act\": \"silu\"" SIZES
#define MOE_FILE                                                                                   \
    "{\"model_type\": \"qwen3_moe\", \"hidden_act\": \"silu\", \"head_dim\": 16,"                  \
    " \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24" SIZES

/* Keys of published files that state the family's usual behaviour are read with that value and
 * refused with any other. Qwen2.5 has use_mrope, Gemma 2 sliding_window_size, Phi-4-mini the four
 * keys of phi3, and Qwen3-Coder the three of qwen3_moe. */
Test(exec_config, keys_that_say_what_is_usual_are_read)
{
    static const struct {
        const char *file, *key, *usual, *other;
    } cases[] = {
        {LLAMA, "use_mrope", "false", "true"},
        {LLAMA, "num_experts", "0", "4"},
        {LLAMA, "n_shared_experts", "null", "1"},
        {LLAMA, "per_layer_config", "{}", "{\"0\": {\"intermediate_size\": 8}}"},
        {LLAMA, "qk_layernorm", "false", "true"},
        {LLAMA, "neftune_noise_alpha", "null", "5"},
        {LLAMA, "sliding_window_size", "null", "8"},
        {GEMMA_FILE, "sliding_window_size", "8", "9"},
        {PHI3_FILE, "full_attn_mod", "1", "2"},
        {PHI3_FILE, "interpolate_factor", "1", "2"},
        {PHI3_FILE, "lm_head_bias", "false", "true"},
        {PHI3_FILE, "mlp_bias", "false", "true"},
        {MOE_FILE, "qkv_bias", "false", "true"},
        {MOE_FILE, "use_qk_norm", "true", "false"},
        {MOE_FILE, "shared_expert_intermediate_size", "0", "24"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[2048] = "";
        char text[2048];
        rp_model m;
        (void)snprintf(text, sizeof text, "%s\"%s\": %s}", cases[i].file, cases[i].key,
                       cases[i].usual);
        cr_expect(eq(int, load_text(text, &m, message, sizeof message), RP_OK), "%s: %s", text,
                  message);
        (void)snprintf(text, sizeof text, "%s\"%s\": %s}", cases[i].file, cases[i].key,
                       cases[i].other);
        cr_expect(eq(int, load_text(text, &m, message, sizeof message), RP_INPUT), "%s", text);
        cr_expect(strstr(message, cases[i].key) != NULL, "%s: %s", cases[i].key, message);
    }
}

#define LLAMA_REST                                                                                 \
    ", \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_hidden_layers\": 2,"                 \
    " \"intermediate_size\": 40, \"vocab_size\": 97, \"max_position_embeddings\": 64,"             \
    " \"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\""

/* The refusal of a family that is not computed names all of its missing features. An unknown family
 * may be assumed to be another, but its own keys are refused even so. */
Test(exec_config, other_families_are_refused_or_assumed)
{
    static const struct {
        const char *text, *assume, *message;
        rp_status status;
    } cases[] = {
        {"{\"model_type\": \"deepseek_v2\"}", NULL,
         "model_type: deepseek_v2 has latent attention (MLA), shared experts, scaled weights of "
         "experts, which the executor does not compute; valid values are llama, mistral, mixtral, "
         "phi3, gemma2, gemma3_text, qwen2, qwen3, qwen3_moe and gpt_oss",
         RP_INPUT},
        {"{\"model_type\": \"phi3\"" LLAMA_REST ", \"pad_token_id\": null,"
         " \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         NULL, "rope_scaling.type: valid values are default and longrope", RP_INPUT},
        {"{\"model_type\": \"gpt_oss\"" LLAMA_REST ", \"num_local_experts\": 4,"
         " \"num_key_value_heads\": 2, \"num_experts_per_tok\": 2,\n\"quantization_config\": "
         "{\"quant_method\": \"awq\"}}",
         NULL, ":2: quantization_config: valid values are null and those with quant_method mxfp4",
         RP_INPUT},
        {"{\"model_type\": \"gpt_oss\"" LLAMA_REST ", \"num_local_experts\": 4,"
         " \"num_key_value_heads\": 2, \"num_experts_per_tok\": 2, \"swiglu_limit\": 0}",
         NULL, ":1: swiglu_limit: valid values are numbers above 0", RP_INPUT},
        {"{\"model_type\": \"nobody\"" LLAMA_REST "}", NULL,
         "model_type: family 'nobody' is not known; valid values are --assume llama, which reads "
         "all "
         "its keys that say shapes, and the families llama, mistral, mixtral, phi3, gemma2, "
         "gemma3_text, qwen2, qwen3, qwen3_moe and gpt_oss",
         RP_INPUT},
        {"{\"model_type\": \"nobody\"" LLAMA_REST "}", "llama",
         "it is read as llama, as --assume says", RP_OK},
        {"{\"model_type\": \"nobody\"" LLAMA_REST ", \"odd\": 1}", "llama",
         "odd: is not understood, and might alter the model", RP_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[2048] = "";
        rp_model m;
        rp_status status =
            load_assumed(cases[i].text, cases[i].assume, &m, message, sizeof message);
        cr_expect(eq(int, status, cases[i].status), "%s: %s", cases[i].text, message);
        cr_expect(strstr(message, cases[i].message) != NULL, "%s", message);
    }
}

/* Texts may begin or end with the padding token. In files without eos_token_id the token is the
 * default of transformers' class (LlamaConfig: 2). */
Test(exec_config, padding_may_begin_and_end_texts)
{
    static const struct {
        const char *keys;
        bool known, begins, ends;
    } cases[] = {
        {"\"pad_token_id\": null, \"eos_token_id\": 2", false, false, false},
        {"\"eos_token_id\": 2, \"bos_token_id\": 2", false, false, false},
        {"\"pad_token_id\": 0, \"eos_token_id\": 2, \"bos_token_id\": 1", true, false, false},
        {"\"pad_token_id\": 2, \"eos_token_id\": 2, \"bos_token_id\": 1", true, false, true},
        {"\"pad_token_id\": 1, \"eos_token_id\": 2, \"bos_token_id\": 1", true, true, false},
        {"\"pad_token_id\": 2, \"eos_token_id\": 2, \"bos_token_id\": 2", true, true, true},
        {"\"pad_token_id\": 5, \"eos_token_id\": [2, 5]", true, false, true},
        {"\"pad_token_id\": 5, \"eos_token_id\": [2, 6]", true, false, false},
        {"\"pad_token_id\": 2", true, false, true},
        {"\"pad_token_id\": 1", true, false, false},
        {"\"pad_token_id\": 2, \"eos_token_id\": null", true, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        char message[1024] = "";
        rp_model m;
        (void)snprintf(text, sizeof text, "{\"model_type\": \"llama\"" LLAMA_REST ", %s}",
                       cases[i].keys);
        cr_assert(eq(int, load_text(text, &m, message, sizeof message), RP_OK), "%s", message);
        cr_expect(eq(int, m.has_padding, cases[i].known), "%s", cases[i].keys);
        cr_expect(eq(int, m.padding_begins, cases[i].begins), "%s", cases[i].keys);
        cr_expect(eq(int, m.padding_ends, cases[i].ends), "%s", cases[i].keys);
    }
}

/* A model that rpsim can read is refused for its missing features even if it does not come from the
 * executor's own reader. */
Test(exec_config, models_of_rpsim_are_refused_for_what_is_not_computed)
{
    static const struct {
        const char *name, *message;
    } cases[] = {{"deepseek-v3-small", "latent attention or shared experts"},
                 {"gemma3-1b", "numbers that its reader has not read"},
                 {"olmo2-7b", "norms at other places"},
                 {"qwen3-moe-dense-layers", "layers of several kinds"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[256];
        char message[4096] = "";
        rp_model m;
        rpexec_model model;
        (void)snprintf(path, sizeof path, RP_TEST_ROOT "/golden/hf/%s.json", cases[i].name);
        rp_log_capture_begin(message, sizeof message);
        cr_assert(eq(int, rp_model_load(path, rp_test_arena, &m), RP_OK));
        rp_status status = rpexec_model_create(&m, 16, RP_DTYPE_F32, rp_test_arena, &model);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_INPUT), "%s", cases[i].name);
        cr_expect(strstr(message, cases[i].message) != NULL, "%s: %s", cases[i].name, message);
    }
}
