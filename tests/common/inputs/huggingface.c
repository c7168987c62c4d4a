/* config.json of Hugging Face: parameters and FLOP against transformers (golden/hf/make.py), and
 * messages about all that is not used. */
#include "common/inputs/huggingface/config.h"

#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/sizes.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH 64 /* tokens, of make.py */

static void begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    rp_test_arena_begin();
}

TestSuite(huggingface, .init = begin, .fini = rp_test_arena_end, .timeout = 60);

/* ---- transformers' table --------------------------------------------------------------------- */

static rp_csv read_csv(const char *path)
{
    rp_csv table;
    cr_assert(eq(int, rp_csv_read_file(path, rp_test_arena, &table), RP_OK));
    return table;
}

static rp_csv read_table(void)
{
    return read_csv(RP_TEST_ROOT "/golden/hf/counts.csv");
}

static const char *cell(const rp_csv *table, uint32_t row, const char *header)
{
    uint32_t column;
    cr_assert(eq(int, rp_csv_column(table, header, &column), RP_OK));
    return rp_csv_cell(table, row, column);
}

static rp_model load(const char *name, char *message, size_t size)
{
    rp_model model;
    char path[256];
    (void)snprintf(path, sizeof path, RP_TEST_ROOT "/golden/hf/%s.json", name);
    rp_log_capture_begin(message, size);
    rp_status status = rp_model_load(path, rp_test_arena, &model);
    rp_log_capture_end();
    cr_assert(eq(int, status, RP_OK), "%s: %s", name, message);
    return model;
}

static rp_status parse(const char *text, const char *assume, rp_model *model_out, char *message,
                       size_t size)
{
    rp_log_capture_begin(message, size);
    rp_status status = rp_hf_model_parse("f", text, strlen(text), assume, rp_test_arena, model_out);
    rp_log_capture_end();
    return status;
}

/* "583483392x3 11507286016x58": layers in order. */
static void check_layers(const char *name, const rp_model *model, const char *text)
{
    uint32_t layer = 0;
    for (char *at = (char *)(uintptr_t)text; *at != '\0';) {
        uint64_t count = strtoull(at, &at, 10);
        cr_assert(eq(chr, *at, 'x'));
        for (uint64_t times = strtoull(at + 1, &at, 10); times > 0; times--, layer++) {
            cr_expect(eq(u64, rp_model_of_layer(model, layer)->layer_parameters, count),
                      "%s layer %u", name, layer);
        }
    }
    cr_expect(eq(u32, layer, model->layers), "%s", name);
}

Test(huggingface, parameters_of_models_and_layers_are_those_of_transformers)
{
    rp_csv table = read_table();
    uint32_t families = 0;
    cr_assert(ge(u32, table.rows, 50));
    for (uint32_t row = 0; row < table.rows; row++) {
        char message[4096] = "";
        const char *name = cell(&table, row, "name");
        rp_model model = load(name, message, sizeof message);
        uint64_t total = strtoull(cell(&table, row, "parameters"), NULL, 10);
        cr_expect(eq(u64, model.total_parameters, total), "%s", name);
        cr_expect(eq(str, (char *)(uintptr_t)model.name, (char *)(uintptr_t)name));
        check_layers(name, &model, cell(&table, row, "layers"));
        const char *before = row > 0 ? cell(&table, row - 1, "family") : "";
        families += strcmp(before, cell(&table, row, "family")) != 0;
    }
    cr_expect(ge(u32, families, 15));
}

/* A layer's tensors have all its parameters; tensors besides matrices, listed as one tensor, are
 * small. */
Test(huggingface, tensors_of_a_layer_are_its_parameters)
{
    rp_csv table = read_table();
    for (uint32_t at = 0; at < 2 * table.rows; at++) {
        char message[4096] = "";
        const char *name = cell(&table, at / 2, "name");
        rp_model model = load(name, message, sizeof message);
        rp_model_set_lora_rank(&model, at % 2 * 8);
        for (uint32_t i = 0; i < model.layers; i++) {
            const rp_model *layer = rp_model_of_layer(&model, i);
            rp_model_tensor tensors[RP_MODEL_TENSORS];
            uint64_t held = 0;
            uint64_t adapters = 0;
            uint32_t count = rp_model_layer_tensors(layer, tensors);
            cr_assert(le(u32, count, RP_MODEL_TENSORS), "%s", name);
            for (uint32_t k = 0; k < count; k++) {
                held += tensors[k].elements * tensors[k].count;
                adapters += tensors[k].adapter ? tensors[k].elements * tensors[k].count : 0;
            }
            cr_expect(eq(u64, held, rp_model_held_layer(layer)), "%s layer %u", name, i);
            cr_expect(eq(u64, adapters, layer->adapter_parameters), "%s layer %u", name, i);
            cr_expect(le(u64, tensors[count - 1].elements, layer->layer_parameters / 20), "%s",
                      name);
        }
    }
}

static void check_windows(const char *name, const rp_model *model, const char *windows)
{
    cr_assert(eq(sz, strlen(windows), model->layers), "%s", name);
    for (uint32_t i = 0; i < model->layers; i++) {
        bool window = rp_model_window(model, i) != 0;
        cr_expect(eq(int, window, windows[i] == 's'), "%s layer %u", name, i);
    }
}

static double flops_of(const rp_model *model, uint32_t layer, rp_unit unit)
{
    rp_operator operators[RP_MAX_OPERATORS];
    double flops = 0;
    for (uint32_t i = 0, n = rp_layer_operators(model, layer, 1, LENGTH, operators); i < n; i++) {
        flops += operators[i].unit == unit ? operators[i].work[RP_PASS_FORWARD].flops : 0;
    }
    return flops;
}

/* FLOP of the first layer, if the table has them: see the test of FLOP below. */
static bool check_flops(const rp_csv *table, uint32_t row, const rp_model *model)
{
    const char *linear = cell(table, row, "linear");
    double pairs = rp_attention_pairs(LENGTH, rp_model_window(model, 0));
    double ours = flops_of(model, 0, RP_UNIT_ATTENTION) * LENGTH * LENGTH / pairs;
    if (linear[0] == '\0') {
        return false;
    }
    cr_expect(eq(dbl, flops_of(model, 0, RP_UNIT_GEMM), strtod(linear, NULL)), "%s",
              cell(table, row, "config"));
    cr_expect(eq(dbl, ours, strtod(cell(table, row, "attention"), NULL)), "%s",
              cell(table, row, "config"));
    return true;
}

/* Adapters too leave room in callers' arrays. */
static void check_operators(const char *text, rp_model *model)
{
    rp_operator operators[2 * RP_MAX_OPERATORS];
    uint32_t most = 0;
    rp_model_set_lora_rank(model, model->plain_mlp ? 0 : 4);
    for (uint32_t i = 0; i < model->layers; i++) {
        uint32_t count = rp_layer_operators(model, i, 1, LENGTH, operators);
        most = count > most ? count : most;
    }
    cr_expect(le(u32, most, RP_MAX_OPERATORS), "%s", text);
}

/* Random, odd shapes of every family, with every flag, list and null of its class
 * (golden/hf/variants.py); some files are for several modes. */
Test(huggingface, small_files_of_every_family_are_what_transformers_makes_of_them)
{
    rp_csv table = read_csv(RP_TEST_ROOT "/golden/hf/variants.csv");
    uint32_t found = 0;
    uint32_t compared = 0;
    for (uint32_t row = 0; row < table.rows; row++) {
        char message[4096] = "";
        rp_model model;
        const char *text = cell(&table, row, "config");
        const char *family = cell(&table, row, "family");
        rp_status status = parse(text, NULL, &model, message, sizeof message);
        cr_expect(eq(int, status, RP_OK), "%s: %s", text, message);
        if (status != RP_OK) {
            continue;
        }
        uint64_t total = strtoull(cell(&table, row, "parameters"), NULL, 10);
        cr_expect(eq(u64, model.total_parameters, total), "%s", text);
        cr_expect(strstr(message, "is not known") == NULL, "%s: %s", text, message);
        check_layers(text, &model, cell(&table, row, "layers"));
        check_windows(text, &model, cell(&table, row, "windows"));
        compared += check_flops(&table, row, &model);
        check_operators(text, &model);
        found += row == 0 || strcmp(family, cell(&table, row - 1, "family")) != 0;
    }
    for (size_t i = 0; rp_hf_family_at(i) != NULL; i++) {
        bool there = false;
        for (uint32_t row = 0; row < table.rows && !there; row++) {
            there = strcmp(cell(&table, row, "family"), rp_hf_family_at(i)->type) == 0;
        }
        cr_expect(there, "%s has no row", rp_hf_family_at(i)->type);
    }
    cr_expect(ge(u32, found, 70));
    cr_expect(ge(u32, compared, 100));
}

Test(huggingface, layers_have_the_windows_that_transformers_gives_them)
{
    rp_csv table = read_table();
    uint32_t sliding = 0;
    for (uint32_t row = 0; row < table.rows; row++) {
        char message[4096] = "";
        const char *name = cell(&table, row, "name");
        const char *windows = cell(&table, row, "windows");
        rp_model model = load(name, message, sizeof message);
        check_windows(name, &model, windows);
        for (uint32_t i = 0; i < model.layers; i++) {
            sliding += windows[i] == 's';
        }
    }
    cr_expect(ge(u32, sliding, 100));
}

/* No key needs a message, except for values that the file lacks. */
Test(huggingface, files_of_transformers_are_read_without_a_word)
{
    rp_csv table = read_table();
    for (uint32_t row = 0; row < table.rows; row++) {
        char message[4096] = "";
        (void)load(cell(&table, row, "name"), message, sizeof message);
        for (const char *line = message; *line != '\0'; line += strcspn(line, "\n") + 1) {
            bool expected = strstr(line, "are the defaults of family") != NULL ||
                            strstr(line, "only the text model") != NULL ||
                            strstr(line, "num_nextn_predict_layers: layers of multi") != NULL;
            cr_expect(expected, "%s", line);
        }
    }
}

/* Keys of Hugging Face's files, as transformers from 4.28 to 5 write them. */
Test(huggingface, files_of_the_hub_are_read_without_a_word)
{
    json_error_t error;
    json_t *root = json_load_file(RP_TEST_ROOT "/golden/hub_configs.json", 0, &error);
    cr_assert(root != NULL, "%d: %s", error.line, error.text);
    size_t index;
    json_t *row;
    json_array_foreach(root, index, row)
    {
        char message[4096] = "";
        const char *trace = json_string_value(json_object_get(row, "trace"));
        char *text = json_dumps(json_object_get(row, "config"), JSON_INDENT(1));
        rp_model model;
        rp_model known;
        cr_assert(text != NULL);
        rp_status status = parse(text, NULL, &model, message, sizeof message);
        free(text);
        cr_assert(eq(int, status, RP_OK), "%s", message);
        cr_expect(message[0] == '\0', "%s", message);
        if (trace != NULL) {
            cr_assert(eq(int, rp_model_load(trace, rp_test_arena, &known), RP_OK));
            cr_expect(eq(u64, model.total_parameters, known.total_parameters), "%s", trace);
        }
    }
    cr_expect(ge(sz, index, 10));
    json_decref(root);
}

/* ---- FLOP ------------------------------------------------------------------------------------ */

/* Like the roofline torch.utils.flop_counter counts only products. Its attention is over all pairs,
 * ours over the causal half, s^2 / 2, without pairs outside of windows. */
Test(huggingface, flops_of_layers_are_those_that_pytorch_counts)
{
    rp_csv table = read_table();
    uint32_t compared = 0;
    for (uint32_t row = 0; row < table.rows; row++) {
        char message[4096] = "";
        const char *ends[][2] = {{"linear_first", "attention_first"},
                                 {"linear_last", "attention_last"}};
        rp_model model = load(cell(&table, row, "name"), message, sizeof message);
        for (uint32_t end = 0; end < 2 && cell(&table, row, "linear_first")[0] != '\0'; end++) {
            uint32_t layer = end == 0 ? 0 : model.layers - 1;
            double linear = strtod(cell(&table, row, ends[end][0]), NULL);
            double attention = strtod(cell(&table, row, ends[end][1]), NULL);
            double pairs = rp_attention_pairs(LENGTH, rp_model_window(&model, layer));
            double ours = flops_of(&model, layer, RP_UNIT_ATTENTION) * LENGTH * LENGTH / pairs;
            cr_expect(eq(dbl, flops_of(&model, layer, RP_UNIT_GEMM), linear), "%s",
                      cell(&table, row, "name"));
            cr_expect(eq(dbl, ours, attention), "%s", cell(&table, row, "name"));
            compared++;
        }
    }
    cr_expect(ge(u32, compared, 80));
}

/* In a sparse layer each token meets only its experts and shared experts: 2 FLOP per active matrix
 * parameter. DeepSeek-V3: 37 B of 671 B are active (arXiv 2412.19437, abstract). */
Test(huggingface, active_parameters_of_mixtures)
{
    char message[4096] = "";
    rp_model model = load("deepseek-v3-defaults", message, sizeof message);
    double active_b = (double)(model.active_parameters - model.embedding_parameters) * 1e-9;
    cr_expect(ge(dbl, active_b, 36.5));
    cr_expect(le(dbl, active_b, 37.5));
    cr_expect(eq(u64, model.total_parameters / 1000000000, 671));
    /* Mixtral of Experts, arXiv 2401.04088: 47 B, 13 B active. */
    rp_model mixtral = load("mixtral-8x7b", message, sizeof message);
    cr_expect(eq(u64, (mixtral.total_parameters + 500000000) / 1000000000, 47));
    cr_expect(eq(u64, (mixtral.active_parameters + 500000000) / 1000000000, 13));
}

/* ---- unused keys ----------------------------------------------------------------------------- */

#define LLAMA                                                                                      \
    "\"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 6,\n"                 \
    "\"intermediate_size\": 160, \"vocab_size\": 1000,\n"

/* Each message is listed; an empty list means no message. */
Test(huggingface, all_that_is_not_used_is_named)
{
    static const struct {
        const char *text, *assume, *messages[3];
    } cases[] = {
        {"{\"model_type\": \"llama\",\n" LLAMA "\"torch_dtype\": \"bfloat16\", \"rope_theta\": 5e5,"
         "\"architectures\": [\"LlamaForCausalLM\"], \"pad_token_id\": 0}",
         NULL,
         {NULL}},
        {"{\"model_type\": \"llama\",\n" LLAMA "\"gated_residual\": false,\n\"sliding_window\": 8}",
         NULL,
         {"f:4: key 'gated_residual' is not known and was not used",
          "f:5: sliding_window: the family has no windows", NULL}},
        {"{\"model_type\": \"llama\",\n" LLAMA "\"hidden_act\": \"xielu\",\n"
         "\"quantization_config\": {\"quant_method\": \"fp8\"}, \"attention_dropout\": 0.1}",
         NULL,
         {"f:4: hidden_act: the function is not known and simulated as a gate of SiLU",
          "f:5: quantization_config: weights are simulated in the type that --dtype says",
          "f:5: attention_dropout: dropout is not simulated"}},
        {"{\"model_type\": \"deepseek_v3\",\n" LLAMA "\"num_nextn_predict_layers\": 1}",
         NULL,
         {"f:4: num_nextn_predict_layers: layers of multi-token prediction are not counted",
          "f: keys that are not there are the defaults of family deepseek_v3: num_key_value_heads",
          NULL}},
        {"{\"model_type\": \"mllama\", \"vision_config\": {},\n\"text_config\": {\"model_type\": "
         "\"llama\",\n" LLAMA "\"odd\": 1}}",
         NULL,
         {"f:5: key 'text_config.odd' is not known and was not used",
          "f:2: text_config: only the text model is simulated; not used: vision_config", NULL}},
        {"{\"model_type\":\n\"nobody\",\n" LLAMA "\"odd\": 1}",
         "llama",
         {"f:1: model_type: family 'nobody' is not known; it is read as llama, as --assume says",
          "f:5: key 'odd' is not known and was not used", NULL}},
        {"{\"model_type\": \"qwen3\",\n" LLAMA "\"num_key_value_heads\": 4, \"head_dim\": 16}",
         "llama",
         {"f: --assume: family qwen3 is known and read as itself", NULL}},
        {"{\"model_type\": \"mistral\"}",
         NULL,
         {"f: keys that are not there are the defaults of family mistral: num_hidden_layers 32, "
          "hidden_size 4096, intermediate_size 14336, num_attention_heads 32, vocab_size 32000, "
          "num_key_value_heads 8",
          NULL}},
        /* transformers ignores other families' keys for the number of experts */
        {"{\"model_type\": \"qwen3_moe\",\n" LLAMA "\"num_key_value_heads\": 2, \"head_dim\": 16,\n"
         "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48, \"n_routed_experts\": 4}",
         NULL,
         {"f:5: key 'n_routed_experts' is not known and was not used",
          "f: keys that are not there are the defaults of family qwen3_moe: num_experts 128",
          NULL}},
        {"{\"model_type\": \"qwen3_moe\",\n" LLAMA "\"num_key_value_heads\": 2, \"head_dim\": 16,\n"
         "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48, \"num_local_experts\": 4}",
         NULL,
         {NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[4096] = "";
        rp_model model;
        rp_status status = parse(cases[i].text, cases[i].assume, &model, message, sizeof message);
        cr_assert(eq(int, status, RP_OK), "%s: %s", cases[i].text, message);
        size_t said = 0;
        for (const char *c = message; *c != '\0'; c++) {
            said += *c == '\n';
        }
        size_t wanted = 0;
        for (; wanted < 3 && cases[i].messages[wanted] != NULL; wanted++) {
            cr_expect(strstr(message, cases[i].messages[wanted]) != NULL, "%s: %s", message,
                      cases[i].messages[wanted]);
        }
        cr_expect(eq(sz, said, wanted), "%s", message);
    }
}

Test(huggingface, what_cannot_be_read_is_refused)
{
    static const struct {
        const char *text, *assume, *message;
        rp_status status;
    } cases[] = {
        {"{\"model_type\": \"nobody\",\n" LLAMA "\"odd\": 1}", NULL,
         "f:1: model_type: family 'nobody' is not known; valid values are --assume llama, which "
         "reads all its keys that say shapes, and the families llama, mistral, mixtral, ",
         RP_INPUT},
        {"{" LLAMA "\"odd\": 1}", NULL, "f: model_type: no family is said; valid", RP_INPUT},
        {"{\"model_type\": \"x\"}", "y",
         "--assume: 'y' is not a family that is known; valid values", RP_USAGE},
        {"{\"model_type\": \"llama\",\n\"hidden_size\": \"4096\"}", NULL,
         "f:2: hidden_size: valid values are integers from 1 to", RP_INPUT},
        {"{\"model_type\": \"llama\",\n\"num_key_value_heads\": 5}", NULL,
         "f:2: num_key_value_heads: valid values are divisors of num_attention_heads", RP_INPUT},
        {"{\"model_type\": \"gemma2\",\n\"layer_types\": [\"chunked_attention\"]}", NULL,
         "f:2: layer_types: valid values are a list with sliding_attention or full_att", RP_INPUT},
        {"{\"model_type\": \"gemma2\",\n\"num_hidden_layers\": 1, \"layer_types\": [\"chunked\"]}",
         NULL, "f:2: layer_types: other kinds of attention are not described", RP_INPUT},
        {"{\"model_type\": \"gpt_oss\",\n\"attention_bias\": false}", NULL,
         "f:2: attention_bias: sinks without biases are not described", RP_INPUT},
        {"{\"model_type\": \"deepseek_v2\"}", NULL, "f: num_experts_per_tok: valid values are",
         RP_INPUT},
        {"{\"model_type\": \"deepseek_v3\",\n\"moe_layer_freq\": 2}", NULL,
         "f:2: moe_layer_freq: valid values are integers from 1 to 1", RP_INPUT},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 60000, \"hidden_size\": 1000000}",
         NULL, "num_hidden_layers: the model has more than 1e15 parameters", RP_INPUT},
        {"{\"model_type\": \"llama\",\n\"a\": 1, \"a\": 2}", NULL, "f:2: duplicate object key",
         RP_INPUT},
        {"[]", NULL, "f: config: valid values are one JSON object", RP_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[4096] = "";
        rp_model model;
        rp_status status = parse(cases[i].text, cases[i].assume, &model, message, sizeof message);
        cr_expect(eq(int, status, cases[i].status), "%s", cases[i].text);
        cr_expect(strstr(message, cases[i].message) != NULL, "%s: %s", message, cases[i].message);
    }
}

/* ---- beside files of traces/ ----------------------------------------------------------------- */

/* A shape of traces/models gives a file its recorded times; other shapes do not, whatever the
 * file's name. */
Test(huggingface, recorded_times_belong_to_equal_shapes)
{
    static const char *const names[] = {"qwen3-1.7b", "llama3.1-8b", "gpt-oss-20b", "qwen3-32b",
                                        "qwen3-235b"};
    rp_platform platform;
    cr_assert(eq(int, rp_platform_load("rtx4090x8", rp_test_arena, &platform), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char message[4096] = "";
        rp_model known;
        rp_costs costs[2];
        rp_model model = load(names[i], message, sizeof message);
        cr_assert(eq(int, rp_model_load(names[i], rp_test_arena, &known), RP_OK));
        cr_expect(eq(u64, model.total_parameters, known.total_parameters), "%s", names[i]);
        cr_expect(eq(u64, model.active_parameters, known.active_parameters), "%s", names[i]);
        cr_expect(model.kinds == NULL && model.sliding_window == known.sliding_window);
        cr_assert(eq(str, (char *)(uintptr_t)model.recorded, (char *)(uintptr_t)names[i]));
        model.name = "another";
        cr_assert(
            eq(int, rp_find_costs(&model, &roof, 4, 2048, rp_test_arena, &costs[0], NULL), RP_OK));
        cr_assert(
            eq(int, rp_find_costs(&known, &roof, 4, 2048, rp_test_arena, &costs[1], NULL), RP_OK));
        cr_expect(eq(int, costs[0].kind, RP_MEASURED), "%s", names[i]);
        cr_expect(eq(i64, costs[0].fwd_ps[1], costs[1].fwd_ps[1]), "%s", names[i]);
    }
}

Test(huggingface, a_name_alone_has_no_recorded_times)
{
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    char path[] = "/tmp/roundpipe-hf-XXXXXX";
    char file[256];
    char folder[256];
    cr_assert(mkdtemp(path) != NULL);
    (void)snprintf(folder, sizeof folder, "%s/qwen3-1.7b", path);
    cr_assert(eq(int, mkdir(folder, 0700), 0));
    (void)snprintf(file, sizeof file, "%s/qwen3-1.7b/config.json", path);
    FILE *stream = fopen(file, "w");
    cr_assert(stream != NULL);
    (void)fputs("{\"model_type\": \"llama\",\n" LLAMA "\"rms_norm_eps\": 1e-6}", stream);
    cr_assert(eq(int, fclose(stream), 0));
    cr_assert(eq(int, rp_model_load(folder, rp_test_arena, &model), RP_OK)); /* by its folder */
    cr_expect(eq(str, (char *)(uintptr_t)model.name, "qwen3-1.7b"));
    cr_expect(model.recorded == NULL);
    cr_assert(eq(int, chdir(path), 0)); /* a registered model takes precedence while it exists */
    cr_expect(eq(int, rp_hf_is_config("qwen3-1.7b"), false));
    unsetenv("RP_TRACES");
    setenv("RP_DATA", "/", 1);
    cr_expect(rp_hf_is_config("qwen3-1.7b"));
    unsetenv("RP_DATA");
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    cr_expect(eq(int, rp_hf_is_config("none"), false));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", rp_test_arena, &platform), RP_OK));
    const rp_roof roof = {&platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
    cr_assert(eq(int, rp_find_costs(&model, &roof, 1, 128, rp_test_arena, &costs, NULL), RP_OK));
    cr_expect(eq(int, costs.kind, RP_ASSUMED));
    (void)unlink(file);
    (void)rmdir(folder);
    (void)rmdir(path);
}

Test(huggingface, sizes_are_of_each_layer)
{
    char message[4096] = "";
    rp_sizes sizes;
    rp_model model = load("deepseek-v3-defaults", message, sizeof message);
    uint64_t total = 0;
    cr_assert(
        eq(int, rp_sizes_of_model(&model, 4096, RP_DTYPE_BF16, rp_test_arena, &sizes), RP_OK));
    for (uint32_t i = 0; i < model.layers + 2; i++) {
        total += sizes.weight_bytes[i];
    }
    cr_expect(eq(u64, sizes.weight_bytes[3], 2 * 583483392u)); /* the last dense layer */
    cr_expect(eq(u64, sizes.weight_bytes[4], 2 * UINT64_C(11507286016)));
    cr_expect(eq(u64, total, 2 * model.total_parameters));
    cr_expect(ne(u64, sizes.tape_bytes[3], sizes.tape_bytes[4]));
    rp_model_set_lora_rank(&model, 16);
    /* q_a, q_b, kv_a, kv_b, o and three matrices of a dense MLP, 16 (in + out) each. */
    uint64_t attention =
        (7168 + 1536) + (1536 + 128 * 192) + (7168 + 576) + (512 + 128 * 256) + (128 * 128 + 7168);
    cr_expect(eq(u64, rp_model_of_layer(&model, 0)->adapter_parameters,
                 16 * (attention + 3 * (7168 + 18432))));
}

/* GPT-2 medium has 354,823,168 parameters (Radford et al., 2019: 355 M; transformers' GPT2Config
 * with n_embd 1024, n_layer 24) with 50257 rows and 1024 positions; here with 47 more rows and 1024
 * more positions. */
Test(huggingface, gpts_by_their_size)
{
    static const char *const bad[] = {"gpt:",          "gpt:1024x16",     "gpt:1024x15x24",
                                      "gpt:1024x16x0", "gpt:1024x16x24x", "gpt:-1x1x1",
                                      "gpt:6x2x1"};
    rp_model model;
    cr_assert(eq(int, rp_model_load("gpt:1024x16x24", rp_test_arena, &model), RP_OK));
    cr_expect(eq(u64, model.total_parameters, 354823168 + (47 + 1024) * 1024));
    cr_expect(eq(u32, model.vocab, 50304));
    cr_expect(eq(u32, model.intermediate, 4096));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char message[512] = "";
        rp_log_capture_begin(message, sizeof message);
        cr_expect(eq(int, rp_model_load(bad[i], rp_test_arena, &model), RP_INPUT), "%s", bad[i]);
        rp_log_capture_end();
        cr_expect(strstr(message, "valid are gpt:HIDDENxHEADSxLAYERS") != NULL, "%s", message);
    }
}
