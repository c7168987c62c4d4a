/* Memory measured by others (tests/golden/memory_rows.csv) and estimated by DeepSpeed, against
 * rpsim. */
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(memory_rows, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

static double number(const rp_csv *rows, uint32_t row, const char *header)
{
    return strtod(rp_test_tool_cell(rows, row, header), NULL);
}

/* Writes a config.json: hidden and intermediate size, layers, heads, key-value heads, vocabulary.
 */
static const char *write_model(const char *family, const char *const shape[6])
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/config.json", rp_test_tool_folder());
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fprintf(file,
            "{\"model_type\": \"%s\", \"hidden_size\": %s, \"intermediate_size\": %s, "
            "\"num_hidden_layers\": %s, \"num_attention_heads\": %s, \"num_key_value_heads\": %s, "
            "\"vocab_size\": %s, \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, "
            "\"tie_word_embeddings\": false}",
            family, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5]);
    (void)fclose(file);
    return path;
}

static double predicted_of(const json_t *run, const char *what)
{
    const json_t *gpus = json_object_get(run, "peak_gpu_bytes");
    double sum = 0;
    double most = 0;
    for (size_t k = 0; k < json_array_size(gpus); k++) {
        double bytes = json_number_value(json_array_get(gpus, k));
        sum += bytes;
        most = bytes > most ? bytes : most;
    }
    if (strcmp(what, "allocated") == 0) {
        return most - rp_test_json_number(run, "fixed_gpu_bytes");
    }
    return strcmp(what, "gpus") == 0  ? sum
           : strcmp(what, "gpu") == 0 ? most
                                      : rp_test_json_number(run, "peak_host_bytes");
}

static const char *const shapes_of_rows[6] = {"hidden", "intermediate", "layers",
                                              "heads",  "kv_heads",     "vocab"};

Test(memory_rows, predictions_are_within_their_gates)
{
    const char *text = rp_test_tool_read(RP_TEST_ROOT "/golden/memory_rows.csv");
    while (*text == '#') {
        text = strchr(text, '\n') + 1;
    }
    rp_csv rows = rp_test_tool_table("memory_rows.csv", text, ',');
    cr_assert(gt(u32, rows.rows, 20));
    for (uint32_t row = 0; row < rows.rows; row++) {
        char line[512];
        const char *words = rp_test_tool_cell(&rows, row, "line");
        const char *shape[6];
        for (size_t k = 0; k < 6; k++) {
            shape[k] = rp_test_tool_cell(&rows, row, shapes_of_rows[k]);
        }
        (void)snprintf(line, sizeof line, "%s --model %s", words,
                       write_model(rp_test_tool_cell(&rows, row, "family"), shape));
        json_t *runs = rp_test_rpsim_rows(
            "--fidelity hardware --format json --intervals off --iterations 2", line);
        const json_t *run = json_array_get(runs, 0);
        double unit =
            strcmp(rp_test_tool_cell(&rows, row, "unit"), "GiB") == 0 ? 1073741824.0 : 1e9;
        double measured = unit * number(&rows, row, "measured");
        double bytes = predicted_of(run, rp_test_tool_cell(&rows, row, "what"));
        double error_pct = 100 * (bytes / measured - 1);
        bool above = strcmp(rp_test_tool_cell(&rows, row, "bound"), "above") == 0;
        double gate_pct = number(&rows, row, "gate_pct");
        cr_expect(le(dbl, error_pct, gate_pct), "%s", words);
        cr_expect(ge(dbl, error_pct, above ? 0 : -gate_pct), "%s", words);
        bool fits = json_is_true(json_object_get(run, "fits"));
        cr_expect(eq(int, fits, strcmp(rp_test_tool_cell(&rows, row, "fits"), "yes") == 0), "%s",
                  words);
        json_decref(runs);
    }
}

/* A GPU's peak less memory taken before any buffer (traces/platforms/b200x8.yaml). */
static double states_of(const char *model, const char *schedule, uint32_t gpus, double *parameters)
{
    char line[256];
    (void)snprintf(line, sizeof line,
                   "--model %s --schedule %s --gpus %u --microbatches %u --microbatch-size 1 "
                   "--seq-len 8 --dtype bf16 --platform b200x8 --set "
                   "platform.communicator_gb=0,platform.context_gb=0,platform.workspace_gb=0",
                   model, schedule, gpus, gpus);
    json_t *runs = rp_test_rpsim_rows(
        "--fidelity hardware --format json --intervals off --iterations 1", line);
    double bytes = predicted_of(json_array_get(runs, 0), "gpu");
    *parameters = rp_test_json_number(json_array_get(runs, 0), "parameters");
    json_decref(runs);
    return bytes;
}

/* DeepSpeed 0.17.5, estimate_zero2_model_states_mem_needs: 2 P + 18 P / N, without step()'s flat
 * copy, 2 P / N. estimate_zero3_model_states_mem_needs: 18 P / N and two copies of the largest
 * layer; it steps the whole shard, and lacks 16-bit gradients and the flat copy, 2 P / N each,
 * which sub-groups bound from 1e9 parameters on: 6e9 in place of 6 P / N. */
Test(memory_rows, states_are_deepspeeds_estimates_and_what_these_leave_out)
{
    static const char *const shapes[][6] = {
        {"4096", "11008", "32", "32", "32", "32000"}, {"5120", "13696", "40", "40", "40", "125696"},
        {"2048", "5504", "24", "16", "16", "151936"}, {"2048", "8192", "16", "32", "8", "128256"},
        {"4096", "14336", "32", "32", "8", "128256"}, {"6656", "17920", "60", "52", "52", "32000"},
        {"8192", "28672", "80", "64", "8", "128256"}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const char *model = write_model("llama", shapes[i]);
        for (uint32_t n = 1; n <= 8; n *= 2) {
            double p = 0;
            double zero2 = states_of(model, "zero2", n, &p);
            double estimate = 2 * p + 18 * p / n;
            cr_expect(epsilon_eq(dbl, zero2 / (estimate + 2 * p / n), 1, 1e-3), "%zu on %u", i, n);
            double zero3 = states_of(model, "zero3", n, &p);
            double bucket = 1e9;
            estimate = 18 * p / n + (p / n < 1e9 ? 4 * p / n : 6e9 - 2 * p / n) + bucket;
            double live = 16 * p / n + 2e9 + bucket;
            double most = live > estimate ? live : estimate;
            cr_expect(ge(dbl, zero3, 0.999 * most), "%zu on %u", i, n);
            /* if the step is small, a running large head or embedding needs more */
            cr_expect(le(dbl, zero3, 1.001 * (p / n < 1e9 ? most + 4e9 : most)), "%zu on %u", i, n);
        }
    }
}
