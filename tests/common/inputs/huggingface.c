/* config.json of Hugging Face: parameters and FLOP against transformers (golden/hf/make.py), and a
 * word about everything that is not used. */
#include "common/inputs/huggingface/config.h"

#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/roofline/roofline.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH 64 /* tokens, of make.py */

static void begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    rp_test_arena_begin();
}

TestSuite(huggingface, .init = begin, .fini = rp_test_arena_end, .timeout = 60);

/* ---- transformers' table ----------------------------------------------------------------------
 */

static rp_csv read_table(void)
{
    rp_text text = {0};
    rp_csv table;
    const char *path = RP_TEST_ROOT "/golden/hf/counts.csv";
    cr_assert(eq(int, rp_text_read_file(path, RP_CSV_MAX_BYTES, &text), RP_OK));
    cr_assert(
        eq(int, rp_csv_parse(path, text.bytes, text.length, ',', rp_test_arena, &table), RP_OK));
    rp_text_fini(&text);
    return table;
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

/* "583483392x3 11507286016x58": of each layer in order. */
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
    cr_assert(ge(u32, table.rows, 40));
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

Test(huggingface, layers_have_the_windows_that_transformers_gives_them)
{
    rp_csv table = read_table();
    uint32_t sliding = 0;
    for (uint32_t row = 0; row < table.rows; row++) {
        char message[4096] = "";
        const char *name = cell(&table, row, "name");
        const char *windows = cell(&table, row, "windows");
        rp_model model = load(name, message, sizeof message);
        cr_assert(eq(sz, strlen(windows), model.layers), "%s", name);
        for (uint32_t i = 0; i < model.layers; i++) {
            bool window = rp_model_window(&model, i) != 0;
            cr_expect(eq(int, window, windows[i] == 's'), "%s layer %u", name, i);
            sliding += window;
        }
    }
    cr_expect(ge(u32, sliding, 100));
}

/* No key is there that a message would be needed for, but for what the file does not say at all. */
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

/* ---- FLOP -------------------------------------------------------------------------------------
 */

static double flops_of(const rp_model *model, uint32_t layer, rp_unit unit)
{
    rp_operator operators[RP_MAX_OPERATORS];
    double flops = 0;
    for (uint32_t i = 0, n = rp_layer_operators(model, layer, 1, LENGTH, operators); i < n; i++) {
        flops += operators[i].unit == unit ? operators[i].work[RP_PASS_FORWARD].flops : 0;
    }
    return flops;
}

/* torch.utils.flop_counter counts products alone, as the roofline does; its attention is over all
 * pairs, ours over the causal half, s^2 / 2, less what windows leave out. */
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
    cr_expect(ge(u32, compared, 60));
}

/* Of a sparse layer each token meets its experts and the shared ones alone: 2 FLOP per parameter
 * that is a matrix's and active. DeepSeek-V3: 37 B of 671 B are active (arXiv 2412.19437,
 * abstract). */
Test(huggingface, active_parameters_of_mixtures)
{
    char message[4096] = "";
    rp_model model = load("deepseek-v3-defaults", message, sizeof message);
    double active_b = (double)(model.active_parameters - model.embedding_parameters) * 1e-9;
    cr_expect(ge(dbl, active_b, 36.5));
    cr_expect(le(dbl, active_b, 37.5));
    cr_expect(eq(u64, model.total_parameters / 1000000000, 671));
    /* Mixtral of Experts, arXiv 2401.04088: 47 B, of which 13 B are active. */
    rp_model mixtral = load("mixtral-8x7b", message, sizeof message);
    cr_expect(eq(u64, (mixtral.total_parameters + 500000000) / 1000000000, 47));
    cr_expect(eq(u64, (mixtral.active_parameters + 500000000) / 1000000000, 13));
}
