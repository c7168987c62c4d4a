/* Unknown families: permitted assumptions, proposals in messages; JSON as Python writes it. */
#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/inputs/huggingface/config.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    rp_test_arena_begin();
}

TestSuite(huggingface_assume, .init = begin, .fini = rp_test_arena_end, .timeout = 60);

static rp_status parse(const char *text, const char *assume, rp_model *model_out, char *message,
                       size_t size)
{
    rp_log_capture_begin(message, size);
    rp_status status = rp_hf_model_parse("f", text, strlen(text), assume, rp_test_arena, model_out);
    rp_log_capture_end();
    return status;
}

#define SHAPES                                                                                     \
    "\"hidden_size\": 64, \"intermediate_size\": 160, \"num_hidden_layers\": 4,\n"                 \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16,\n"                  \
    "\"vocab_size\": 1000, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-6"

/* ---- files of other families ----------------------------------------------------------------- */

/* Files with all keys, as saved by transformers (golden/hf/variants.py). */
typedef struct saved {
    const char *family;
    const char *text; /* with an unknown model_type */
    uint64_t parameters;
    rp_model model; /* as its own family */
} saved;

static saved *read_saved(uint32_t *count_out)
{
    static saved files[128];
    rp_csv table;
    const char *path = RP_TEST_ROOT "/golden/hf/variants.csv";
    cr_assert(eq(int, rp_csv_read_file(path, rp_test_arena, &table), RP_OK));
    *count_out = 0;
    for (uint32_t row = 0; row < table.rows; row++) {
        const char *text = rp_csv_cell(&table, row, 1);
        const char *type = strstr(text, "\"model_type\": ");
        char message[4096] = "";
        if (strstr(text, "text_config") != NULL || strstr(text, "id2label") == NULL) {
            continue;
        }
        saved *one = &files[(*count_out)++];
        cr_assert(le(u32, *count_out, 128));
        one->family = rp_csv_cell(&table, row, 0);
        one->parameters = strtoull(rp_csv_cell(&table, row, 2), NULL, 10);
        cr_assert(eq(int, parse(text, NULL, &one->model, message, sizeof message), RP_OK));
        cr_assert(eq(int,
                     rp_arena_print(rp_test_arena, &one->text, "%.*s\"model_type\": \"nobody\"%s",
                                    (int)(type - text), text,
                                    strchr(type + strlen("\"model_type\": \""), '"') + 1),
                     RP_OK));
    }
    return files;
}

/* Norms, biases and gates may get lost; layers, experts, latent vectors and shared experts may not.
 */
static void check_assumed(const saved *file, const rp_model *model, const char *assume)
{
    double ratio = (double)model->total_parameters / (double)file->parameters;
    bool latent = file->model.kv_rank != 0;
    cr_expect(eq(u32, model->experts, file->model.experts), "%s as %s", file->family, assume);
    cr_expect(eq(u32, model->layers, file->model.layers), "%s as %s", file->family, assume);
    cr_expect(eq(int, model->kv_rank != 0, latent), "%s as %s", file->family, assume);
    double most = rp_hf_family_of(assume)->shared_experts != 0 ? 1.2 : 1.07; /* no key gives them */
    cr_expect(ratio > 0.93 && ratio < most, "%s as %s: %f", file->family, assume, ratio);
}

/* Every file, read as each family: refused with a message about a key, or nearly right. */
Test(huggingface_assume, no_family_is_read_as_another_that_has_not_its_layers)
{
    uint32_t count = 0;
    uint32_t read = 0;
    uint32_t refused = 0;
    const saved *files = read_saved(&count);
    cr_assert(ge(u32, count, 55));
    for (uint32_t i = 0; i < count; i++) {
        const rp_hf_family *family = NULL;
        for (size_t k = 0; (family = rp_hf_family_at(k)) != NULL; k++) {
            char message[8192] = "";
            rp_model model;
            rp_status status = parse(files[i].text, family->type, &model, message, sizeof message);
            if (status == RP_OK) {
                check_assumed(&files[i], &model, family->type);
                read++;
            } else {
                cr_expect(eq(int, status, RP_INPUT), "%s", message);
                cr_expect(strstr(message, "valid values are") != NULL, "%s", message);
                refused++;
            }
        }
    }
    cr_expect(ge(u32, read, 2 * count)); /* its own family, and others */
    cr_expect(ge(u32, refused, 10 * count));
}

/* The proposed family can be assumed, and has the file's layers. */
Test(huggingface_assume, what_is_proposed_can_be_assumed)
{
    static const char before[] = "valid values are --assume ";
    uint32_t count = 0;
    const saved *files = read_saved(&count);
    for (uint32_t i = 0; i < count; i++) {
        char message[8192] = "";
        char family[64] = "";
        rp_model model;
        cr_expect(eq(int, parse(files[i].text, NULL, &model, message, sizeof message), RP_INPUT));
        const char *hint = strstr(message, before);
        cr_assert(hint != NULL, "%s: %s", files[i].family, message);
        cr_assert(eq(int, sscanf(hint + strlen(before), "%63[a-z0-9_]", family), 1));
        cr_expect(eq(int, parse(files[i].text, family, &model, message, sizeof message), RP_OK),
                  "%s as %s: %s", files[i].family, family, message);
        check_assumed(&files[i], &model, family);
    }
}

/* ---- keys of other families ------------------------------------------------------------------ */

/* No assumed family may ignore whole numbers and flags that change the number of parameters in some
 * class of transformers (golden/hf/shape_keys.py). */
Test(huggingface_assume, a_key_that_says_shapes_is_read_or_refused)
{
    rp_csv table;
    rp_model plain;
    uint32_t refused = 0;
    char message[8192] = "";
    const char *path = RP_TEST_ROOT "/golden/hf/shape_keys.csv";
    cr_assert(eq(int, rp_csv_read_file(path, rp_test_arena, &table), RP_OK));
    cr_assert(ge(u32, table.rows, 100));
    cr_assert(eq(
        int,
        parse("{\"model_type\": \"nobody\", " SHAPES "}", "llama", &plain, message, sizeof message),
        RP_OK));
    for (uint32_t row = 0; row < table.rows; row++) {
        const char *key = rp_csv_cell(&table, row, 0);
        const char *value = rp_csv_cell(&table, row, 2);
        const char *text = NULL;
        char quoted[96];
        rp_model model;
        (void)snprintf(quoted, sizeof quoted, "\"%s\"", key);
        bool usual = strcmp(value, "false") == 0 || strcmp(value, "0") == 0;
        if (strstr(SHAPES "\"attention_bias\" \"mlp_bias\" \"tie_word_embeddings\"", quoted) !=
                NULL ||
            usual) {
            continue; /* Llama's own, and off */
        }
        cr_assert(
            eq(int,
               rp_arena_print(rp_test_arena, &text,
                              "{\"model_type\": \"nobody\", " SHAPES ",\n%s: %s}", quoted, value),
               RP_OK));
        rp_status status = parse(text, "llama", &model, message, sizeof message);
        cr_expect(eq(int, status, RP_INPUT), "%s of %s", key, rp_csv_cell(&table, row, 1));
        cr_expect(strstr(message, key) != NULL, "%s", message);
        refused += status == RP_INPUT;
    }
    cr_expect(ge(u32, refused, 80));
}

Test(huggingface_assume, what_sounds_like_a_shape_is_refused)
{
    static const struct {
        const char *key, *message; /* NULL: read */
    } cases[] = {
        {"\"num_experts\": 8", "f:4: num_experts: llama does not read it, and it alters shapes"},
        {"\"num_local_experts\": 8", "num_local_experts: llama does not read it"},
        {"\"n_routed_experts\": 8", "n_routed_experts: llama does not read it"},
        {"\"q_lora_rank\": 8", "q_lora_rank: llama does not read it"},
        {"\"kv_lora_rank\": 8", "kv_lora_rank: llama does not read it"},
        {"\"layer_types\": [\"linear_attention\"]", "layer_types: llama does not read it"},
        {"\"layer_types\": [\"full_attention\"]", NULL},
        {"\"sliding_window\": 128", "sliding_window: llama does not read it"},
        {"\"sliding_window\": 128, \"use_sliding_window\": false", NULL},
        {"\"attention_chunk_size\": 128", "attention_chunk_size: llama does not read it"},
        {"\"first_k_dense_replace\": 1", "first_k_dense_replace: llama does not read it"},
        {"\"moe_layer_freq\": [0, 1]", "moe_layer_freq: llama does not read it"},
        {"\"n_shared_experts\": 1", "n_shared_experts: llama does not read it"},
        {"\"mamba_d_state\": 16", "mamba_d_state: llama does not read it, and it sounds as if it"},
        {"\"ssm_cfg\": {\"layer\": 1}", "ssm_cfg: llama does not read it, and it sounds as if"},
        {"\"block_configs\": [{}]", "block_configs: llama does not read it"},
        {"\"hybrid_override_pattern\": \"M*\"", "hybrid_override_pattern: llama does not"},
        {"\"global_head_dim\": 32", "global_head_dim: llama does not read it"},
        {"\"per_layer_config\": {\"1\": {\"intermediate_size\": 8}}",
         "per_layer_config: shapes of single layers are not described"},
        {"\"hidden_act\": \"relu2\"", "hidden_act: MLPs with that function have no gates"},
        {"\"multi_query\": true", "multi_query: llama does not read it"},
        {"\"multi_query\": false", NULL},
        {"\"use_gated_mlp\": false", "use_gated_mlp: llama does not read it"},
        {"\"use_gated_mlp\": true", NULL},
        {"\"use_cla\": true", "use_cla: llama does not read it"},
        {"\"hidden_act\": \"gelu_new\"", "hidden_act: MLPs with that function have no gates"},
        {"\"hidden_act\": \"xielu\"", "hidden_act: MLPs with that function have no gates"},
        {"\"hidden_act\": \"gelu_pytorch_tanh\"", NULL},
        {"\"torch_dtype\": [\"bfloat16\"]", "torch_dtype"},
        {"\"dtype\": true", "dtype"},
        {"\"rope_parameters\": {\"full_attention\": []}", "full_attention"},
        {"\"partial_rotary_factor\": -1", "partial_rotary_factor"},
        {"\"sliding_window\": 0", NULL}, /* llama has no windows */
        {"\"num_experts\": 0", NULL},
        {"\"num_experts\": null", NULL},
        {"\"mamba_d_state\": null", NULL},
        {"\"hybrid_override_pattern\": []", NULL},
        {"\"odd\": 1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[8192] = "";
        const char *text = NULL;
        rp_model model;
        cr_assert(eq(int,
                     rp_arena_print(rp_test_arena, &text,
                                    "{\"model_type\": \"nobody\", " SHAPES ",\n%s}", cases[i].key),
                     RP_OK));
        rp_status status = parse(text, "llama", &model, message, sizeof message);
        bool refused = cases[i].message != NULL;
        cr_expect(eq(int, status, refused ? RP_INPUT : RP_OK), "%s: %s", cases[i].key, message);
        bool named = !refused || strstr(message, cases[i].message) != NULL;
        cr_expect(named, "%s: %s", cases[i].key, message);
    }
}

/* In transformers null is no window; under a window of 0 tokens its mask leaves nothing. */
Test(huggingface_assume, a_window_has_tokens)
{
    static const char *const families[] = {"mistral", "gemma2", "cohere2", "phi3"};
    static const char *const values[] = {"0", "1", "null"};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            char message[8192] = "";
            const char *text = NULL;
            rp_model model;
            cr_assert(
                eq(int,
                   rp_arena_print(rp_test_arena, &text,
                                  "{\"model_type\": \"%s\", " SHAPES ",\n\"sliding_window\": %s}",
                                  families[i], values[k]),
                   RP_OK));
            rp_status status = parse(text, NULL, &model, message, sizeof message);
            cr_expect(eq(int, status, k == 0 ? RP_INPUT : RP_OK), "%s %s: %s", families[i],
                      values[k], message);
            cr_expect(k != 0 || strstr(message, "sliding_window: a window of 0 tokens") != NULL,
                      "%s: %s", families[i], message);
        }
    }
}

/* ---- JSON as Python writes it ---------------------------------------------------------------- */

/* json.dumps writes and json.loads reads these three (Python's documentation of json). */
Test(huggingface_assume, numbers_that_are_not_finite_are_named)
{
    static const struct {
        const char *keys, *message;
        rp_status status;
    } cases[] = {
        {"\"time_step_limit\": [0.0,\nInfinity]", "f:4: key 'time_step_limit' holds Infinity",
         RP_OK},
        {"\"a\": {\"b\": [1, {\"c\": NaN}]}", "f:4: key 'a' holds NaN, which JSON has not", RP_OK},
        {"\"temperature\": -Infinity", "key 'temperature' holds -Infinity", RP_OK},
        {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": Infinity}",
         "f:4: key 'rope_scaling' holds Infinity", RP_OK},
        {"\"router_aux_loss_coef\": NaN", "key 'router_aux_loss_coef' holds NaN", RP_OK},
        {"\"odd\": \"Infinity\"", "f:4: key 'odd' is not known", RP_OK},
        {"\"NaN\": 1, \"a\\\"\": \"-Infinity, NaN\"", "key 'NaN' is not known", RP_OK},
        {"\"rope_theta\": Infinity", "f:4: rope_theta: Infinity; valid values are numbers above 0",
         RP_INPUT},
        {"\"sliding_window\": NaN", "f:4: sliding_window: NaN; valid values are null and integers",
         RP_INPUT},
        {"\"tie_word_embeddings\": NaN", "tie_word_embeddings: NaN; valid values are true",
         RP_INPUT},
        {"\"hidden_act\": Infinity", "hidden_act: Infinity; valid values are texts", RP_INPUT},
        {"\"layer_types\": [NaN]", "layer_types: NaN; valid values are", RP_INPUT},
        {"\"rope_parameters\": NaN", "rope_parameters: NaN; valid values are null and obj",
         RP_INPUT},
        {"\"a\": Infinit", "f:4: ", RP_INPUT},
        {"\"a\": +Infinity", "f:4: ", RP_INPUT},
        {"\"a\": nan", "f:4: ", RP_INPUT},
        {"\"a\": Infinity5", "f:4: ", RP_INPUT},
        {"\"a\": 1e999", "f:4: ", RP_INPUT},
        {"\"a\": \"Infinity", "f:4: ", RP_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[8192] = "";
        const char *text = NULL;
        rp_model model;
        cr_assert(eq(int,
                     rp_arena_print(rp_test_arena, &text,
                                    "{\"model_type\": \"llama\", " SHAPES ",\n%s}", cases[i].keys),
                     RP_OK));
        rp_status status = parse(text, NULL, &model, message, sizeof message);
        cr_expect(eq(int, status, cases[i].status), "%s: %s", cases[i].keys, message);
        cr_expect(strstr(message, cases[i].message) != NULL, "%s: %s", cases[i].keys, message);
    }
}

/* Numbers of a family's own keys are used: the message names values that are not finite. */
Test(huggingface_assume, numbers_that_are_used_must_be_finite)
{
    static const char *const keys[] = {"hidden_size", "rms_norm_eps", "vocab_size", "head_dim"};
    static const char *const numbers[] = {"Infinity", "-Infinity", "NaN"};
    for (size_t i = 0; i < 4 * 3; i++) {
        char message[8192] = "";
        char text[256];
        rp_model model;
        (void)snprintf(text, sizeof text, "{\"model_type\": \"llama\",\n\"%s\": %s}", keys[i / 3],
                       numbers[i % 3]);
        cr_expect(eq(int, parse(text, NULL, &model, message, sizeof message), RP_INPUT));
        cr_expect(strstr(message, keys[i / 3]) != NULL && strstr(message, numbers[i % 3]) != NULL,
                  "%s: %s", text, message);
    }
}

/* Lists of layers without quantisation take millions of bytes; each unknown key has its line. */
Test(huggingface_assume, files_have_up_to_8_mib)
{
    static const struct {
        size_t bytes;
        rp_status status;
    } cases[] = {{3u << 20, RP_OK}, {8u << 20, RP_OK}, {(8u << 20) + 1, RP_INPUT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[] = "/tmp/roundpipe-long-XXXXXX.json";
        static char message[1 << 22];
        rp_model model;
        int descriptor = mkstemps(path, 5);
        cr_assert(descriptor >= 0);
        FILE *stream = fdopen(descriptor, "w");
        cr_assert(stream != NULL);
        size_t length = (size_t)fprintf(stream, "{\"model_type\": \"llama\", " SHAPES);
        for (uint32_t k = 0; k < 20000; k++) {
            length += (size_t)fprintf(stream, ",\n\"key_%u\": 1", k);
        }
        length += (size_t)fprintf(stream, ",\n\"quantization_config\": {\"ignore\": [\"");
        for (; length < cases[i].bytes - 4; length++) {
            (void)fputc('x', stream);
        }
        (void)fputs("\"]}}", stream);
        cr_assert(eq(int, fclose(stream), 0));
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_hf_model_load(path, NULL, rp_test_arena, &model);
        rp_log_capture_end();
        (void)unlink(path);
        cr_expect(eq(int, status, cases[i].status), "%.200s", message);
        cr_expect(status == RP_OK ? strstr(message, ":20003: key 'key_19999' is not") != NULL
                                  : strstr(message, "at most 8388608 bytes") != NULL,
                  "%.200s", message);
    }
}
