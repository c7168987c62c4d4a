/* rpsim --fidelity hardware as a user runs it. */
#include "common/log.h"
#include "common/schedule.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

TestSuite(cli_hardware, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

static json_t *run(const char *line)
{
    char full[1024];
    snprintf(full, sizeof full, "--fidelity hardware --format json %s", line);
    rp_test_outcome outcome = rp_test_rpsim_well(full);
    json_error_t error;
    json_t *rows = json_loads(outcome.output, 0, &error);
    cr_assert(ne(ptr, rows, NULL), "%s: %s", line, error.text);
    return rows;
}

static bool is_null(const json_t *row, const char *key)
{
    return json_is_null(json_object_get(row, key));
}

/* The contract of cli.md: hardware where nothing is said. */
Test(cli_hardware, is_the_default)
{
    rp_test_outcome outcome = rp_test_rpsim_well("--schedule roundpipe --gpus 8 --format json");
    json_t *bare = json_loads(outcome.output, 0, NULL);
    json_t *said = run("--schedule roundpipe --gpus 8");
    const json_t *row = json_array_get(bare, 0);
    cr_assert(eq(str, (char *)rp_test_json_text(row, "fidelity"), "hardware"));
    cr_expect(eq(dbl, rp_test_json_number(row, "iteration_ms"),
                 rp_test_json_number(json_array_get(said, 0), "iteration_ms")));
    json_decref(bare);
    json_decref(said);
}

/* What this fidelity does not model is null, never 0. */
Test(cli_hardware, every_schedule_and_its_nulls)
{
    json_t *rows = run("--schedule all --gpus 4 --microbatches 8");
    cr_assert(ge(sz, json_array_size(rows), 10));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        static const char *const nulls[] = {"comm_total_ms", "comm_exposed_ms"};
        for (size_t k = 0; k < sizeof nulls / sizeof nulls[0]; k++) {
            cr_expect(is_null(row, nulls[k]), "%s", nulls[k]);
        }
        cr_expect(le(dbl, rp_test_json_number(row, "lower_bound_ms"),
                     rp_test_json_number(row, "makespan_ms")));
        cr_expect(le(dbl, rp_test_json_number(row, "lower_bound_any_ms"),
                     rp_test_json_number(row, "lower_bound_ms")));
        cr_expect(gt(dbl, rp_test_json_number(row, "iteration_ms"), 1.0));
        cr_expect(eq(dbl, rp_test_json_number(row, "global_batch"), 32.0));
        double parts = rp_test_json_number(row, "fill_ms") + rp_test_json_number(row, "switch_ms") +
                       rp_test_json_number(row, "drain_ms") + rp_test_json_number(row, "intra_ms");
        cr_expect(epsilon_eq(dbl, parts, rp_test_json_number(row, "bubble_ms"), 1e-6));
    }
    json_decref(rows);
}

/* --config paper takes batch and calls from traces/configs/paper.csv; tokens/s = batch x length /
 * period. */
Test(cli_hardware, published_configuration)
{
    json_t *rows = run("--schedule roundpipe --model llama3.1-8b --config paper");
    const json_t *row = json_array_get(rows, 0);
    cr_expect(eq(dbl, rp_test_json_number(row, "global_batch"), 256.0));
    cr_expect(eq(dbl, rp_test_json_number(row, "accumulate"), 2.0));
    cr_expect(eq(dbl, rp_test_json_number(row, "microbatches"), 10.0));
    double tokens = 256.0 * 2048.0 / (rp_test_json_number(row, "iteration_ms") * 1e-3);
    cr_expect(epsilon_eq(dbl, tokens, rp_test_json_number(row, "tokens_per_s"), 1e-3));
    json_decref(rows);
    rows = run("--schedule roundpipe --model llama3.1-8b --config paper --optimizer sync");
    cr_expect(eq(dbl, rp_test_json_number(json_array_get(rows, 0), "accumulate"), 5.0));
    json_decref(rows);
}

/* A lowered program that is written, read and run again gives the same times. */
Test(cli_hardware, program_round_trip)
{
    for (size_t i = 0; i < rp_schedule_count; i++) {
        const char *schedule = rp_schedules[i]->name;
        char line[1024];
        const char *folder = rp_test_tool_folder();
        snprintf(line, sizeof line, "--schedule %s --gpus 8 --iterations 1 --program-out %s/%s.txt",
                 schedule, folder, schedule);
        json_t *written = run(line);
        snprintf(line, sizeof line, "--program-in %s/%s.txt", folder, schedule);
        json_t *read = run(line);
        static const char *const keys[] = {"makespan_ms", "bubble_ms", "fill_ms", "ops"};
        for (size_t k = 0; k < 4; k++) {
            cr_expect(eq(dbl, rp_test_json_number(json_array_get(read, 0), keys[k]),
                         rp_test_json_number(json_array_get(written, 0), keys[k])),
                      "%s of %s", keys[k], schedule);
        }
        json_decref(written);
        json_decref(read);
    }
}

/* Longer sequences and slower steps: monotone where it must be. */
Test(cli_hardware, monotone_in_length_and_batch)
{
    double before = 0;
    static const char *const lengths[] = {"1024", "2048", "4096", "8192", "16384"};
    for (size_t i = 0; i < 5; i++) {
        char line[256];
        snprintf(line, sizeof line, "--schedule roundpipe --partition auto --seq-len %s",
                 lengths[i]);
        json_t *rows = run(line);
        double period = rp_test_json_number(json_array_get(rows, 0), "iteration_ms");
        cr_expect(gt(dbl, period, before), "--seq-len %s", lengths[i]);
        before = period;
        json_decref(rows);
    }
}

/* A chart of several iterations shows all of them; the store keeps what is modelled. */
Test(cli_hardware, artefacts)
{
    char line[1024];
    const char *folder = rp_test_tool_folder();
    snprintf(line, sizeof line,
             "--schedule roundpipe --iterations 3 --trace-out %s/t.json --gantt-out %s/g.svg --db "
             "%s/s.db --db-ops",
             folder, folder, folder);
    json_t *rows = run(line);
    json_decref(rows);
    char path[512];
    snprintf(path, sizeof path, "%s/t.json", folder);
    json_error_t error;
    json_t *trace = json_loads(rp_test_tool_read(path), 0, &error);
    cr_assert(ne(ptr, trace, NULL), "%s", error.text);
    json_decref(trace);
    snprintf(path, sizeof path, "%s/g.svg", folder);
    cr_expect(ne(ptr, strstr(rp_test_tool_read(path), "host"), NULL)); /* the optimizer's row */
}

/* A platform that does not say what hardware fidelity needs is refused by name. */
Test(cli_hardware, platform_without_rates)
{
    char path[512];
    char line[1024];
    snprintf(path, sizeof path, "%s/bare.yaml", rp_test_tool_folder());
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fputs("name: bare\nsource: test\ngpu: none\ngpus: 8\nfp16_tflops_fp16_acc: 300\n"
          "fp16_tflops_fp32_acc: 300\nmemory_gb: 80\nmemory_gb_per_s: 2000\nlink_gb_per_s: 32\n"
          "peer_gb_per_s: 0\n",
          file);
    fclose(file);
    snprintf(
        line, sizeof line,
        "--fidelity hardware --schedule gpipe --platform %s --costs qwen3-1.7b@rtx4090 --model "
        "qwen3-1.7b",
        path);
    rp_test_outcome outcome = rp_test_rpsim(line);
    cr_expect(eq(int, outcome.status, 2));
    cr_expect(ne(ptr, strstr(outcome.messages, "bare has no link_effective_gb_per_s"), NULL));
    cr_expect(ne(ptr, strstr(outcome.messages, "valid are platform files"), NULL));
}
