/* rpsim --fidelity hardware. */
#include "common/base/log.h"
#include "common/schedule/schedule_type.h"
#include "tests/support/ask_store.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

TestSuite(cli_hardware, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

static json_t *run(const char *line)
{
    return rp_test_rpsim_rows("--fidelity hardware --format json --intervals off", line);
}

/* cli.md: hardware is the default. */
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

/* The default is the library's piece. Each of the 28 layers (96 MiB and norms) goes up twice, the
 * table (594 MiB) three times: 56 + 3 x 3 pieces, or 56 x 4 + 3 x 19 of 32 MiB. */
Test(cli_hardware, pieces_are_the_librarys_or_smaller)
{
    static const char *const lines[] = {"", "--piece-mb 256", "--piece-mb 32"};
    double ops[3];
    double ms[3];
    char path[512];
    char line[1024];
    snprintf(path, sizeof path, "%s/pieces.db", rp_test_tool_folder());
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "--schedule roundpipe --iterations 1 --db %s %s", path,
                 lines[i]);
        json_t *rows = run(line);
        ops[i] = rp_test_json_number(json_array_get(rows, 0), "ops");
        ms[i] = rp_test_json_number(json_array_get(rows, 0), "iteration_ms");
        json_decref(rows);
    }
    cr_expect(eq(dbl, ops[1], ops[0]));
    cr_expect(eq(dbl, ms[1], ms[0]));
    cr_expect(eq(dbl, ops[2] - ops[0], 56 * 4 + 3 * 19 - (56 + 3 * 3)));
    cr_expect(eq(str,
                 rp_test_ask(path, "SELECT group_concat(coalesce(config_json ->> 'piece_mb', "
                                   "'-')) FROM runs"),
                 "-,256,32"));
}

Test(cli_hardware, every_schedule)
{
    json_t *rows = run("--schedule all --gpus 4 --microbatches 8");
    cr_assert(ge(sz, json_array_size(rows), 10));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double bubble = rp_test_json_number(row, "bubble_ms");
        cr_expect(gt(dbl, rp_test_json_number(row, "comm_total_ms"), 0));
        cr_expect(ge(dbl, rp_test_json_number(row, "comm_exposed_ms"), 0));
        cr_expect(le(dbl, rp_test_json_number(row, "comm_exposed_ms"), bubble));
        cr_expect(le(dbl, rp_test_json_number(row, "lower_bound_ms"),
                     rp_test_json_number(row, "makespan_ms")));
        cr_expect(le(dbl, rp_test_json_number(row, "lower_bound_any_ms"),
                     rp_test_json_number(row, "lower_bound_ms")));
        cr_expect(gt(dbl, rp_test_json_number(row, "iteration_ms"), 1.0));
        cr_expect(eq(dbl, rp_test_json_number(row, "global_batch"), 32.0));
        double parts = rp_test_json_number(row, "fill_ms") + rp_test_json_number(row, "switch_ms") +
                       rp_test_json_number(row, "drain_ms") + rp_test_json_number(row, "intra_ms");
        cr_expect(epsilon_eq(dbl, parts, bubble, 1e-6));
    }
    json_decref(rows);
}

/* Two GPUs without peer links, M microbatches of 4 sequences of 2048 tokens: ids up and four
 * boundaries (activation and gradient, down and up) of 2 x 2048 bytes per token, in turn on a link
 * of 20.97 GB/s. With a single microbatch GPU 0 waits for all four. */
Test(cli_hardware, communication_of_two_gpus)
{
    for (uint32_t m = 1; m <= 4; m *= 4) {
        char line[128];
        snprintf(line, sizeof line, "--schedule 1f1b --gpus 2 --microbatches %u --iterations 1", m);
        json_t *rows = run(line);
        const json_t *row = json_array_get(rows, 0);
        double boundary_ms = 4.0 * 2048 * 2048 * 2 / 20.97e6;
        double ids_ms = 4.0 * 2048 * 4 / 20.97e6;
        double total = rp_test_json_number(row, "comm_total_ms");
        cr_expect(epsilon_eq(dbl, total, m * (ids_ms + 4 * boundary_ms), 1e-6), "%u", m);
        double exposed = rp_test_json_number(row, "comm_exposed_ms");
        cr_expect(m > 1 || fabs(exposed - 4 * boundary_ms) < 1e-6, "%.9f", exposed);
        json_decref(rows);
    }
}

/* --explain attributes exactly the exposed communication to transfers, unless sums follow a GPU's
 * last op. */
Test(cli_hardware, exposed_communication_is_the_attribution)
{
    json_t *rows = run("--schedule roundpipe,zero2,fsdp --gpus 4 --iterations 1 --explain");
    static const char *const shares[] = {"wait_upload_params", "wait_upload_act", "wait_download",
                                         "wait_peer"};
    for (size_t i = 0; i < 3; i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *of = json_object_get(json_object_get(row, "explain"), "attribution_ms");
        double sum = 0;
        for (size_t k = 0; k < sizeof shares / sizeof shares[0]; k++) {
            sum += rp_test_json_number(of, shares[k]);
        }
        cr_expect(gt(dbl, sum, 0));
        double behind = rp_test_json_number(row, "comm_exposed_ms") - sum;
        bool gathers = i == 1; /* zero2 gathers all weights after the step */
        cr_expect(gt(dbl, behind, gathers ? 1 : -1e-6));
        cr_expect(le(dbl, behind, gathers ? rp_test_json_number(row, "drain_ms") : 1e-6));
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

/* A lowered program gives the same times after writing and reading. */
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

/* Only the rate is per iteration; values defined for a single iteration are null. */
Test(cli_hardware, program_of_two_iterations)
{
    char line[1024];
    const char *folder = rp_test_tool_folder();
    snprintf(line, sizeof line,
             "--schedule zbv --gpus 4 --iterations 2 --microbatches 8 --program-out %s/two.txt",
             folder);
    json_t *written = run(line);
    snprintf(line, sizeof line, "--program-in %s/two.txt --db %s/two.db", folder, folder);
    json_t *read = run(line);
    const json_t *one = json_array_get(written, 0);
    const json_t *two = json_array_get(read, 0);
    double makespan_ms = rp_test_json_number(two, "makespan_ms");
    cr_expect(gt(dbl, makespan_ms, 1.5 * rp_test_json_number(one, "makespan_ms")));
    /* The second iteration begins as the first ends, except for both ends' loss. */
    double period_ms = rp_test_json_number(two, "iteration_ms");
    double tokens = 8.0 * 4 * 2048 / (period_ms * 1e-3);
    cr_expect(epsilon_eq(dbl, period_ms, makespan_ms / 2, 0.01 * makespan_ms));
    cr_expect(epsilon_eq(dbl, rp_test_json_number(two, "tokens_per_s"), tokens, 1e-3));
    static const char *const keys[] = {"iteration_paper_ms", "lower_bound_ms", "comm_total_ms"};
    for (size_t i = 0; i < 3; i++) {
        bool null = json_is_null(json_object_get(two, keys[i]));
        cr_expect(eq(int, null, 1), "%s", keys[i]);
    }
    json_decref(written);
    json_decref(read);
    snprintf(line, sizeof line, "--program-in %s/two.txt --platform h200", folder);
    rp_test_outcome refused = rp_test_rpsim(line);
    cr_expect(eq(int, refused.status, 2));
    cr_expect(ne(ptr, strstr(refused.messages, "two.txt has 4 GPUs, and h200 has 1"), NULL));
    snprintf(line, sizeof line, "--program-in %s/two.txt --microbatch-size 3", folder);
    refused = rp_test_rpsim(line);
    cr_expect(eq(int, refused.status, 2));
    cr_expect(ne(ptr, strstr(refused.messages, "two.txt have 4 sequences; valid is 4"), NULL), "%s",
              refused.messages);
    snprintf(line, sizeof line, "--program-in %s/two.txt --fidelity hardware", folder);
    const char *table = rp_test_rpsim_well(line).output;
    cr_expect(ne(ptr, strstr(table, "all iterations of the program"), NULL));
    sqlite3 *database;
    sqlite3_stmt *statement;
    snprintf(line, sizeof line, "%s/two.db", folder);
    cr_assert(eq(int, sqlite3_open(line, &database), SQLITE_OK));
    cr_assert(eq(int,
                 sqlite3_prepare_v2(database,
                                    "SELECT count(*) FROM metrics WHERE name = 'lower_bound_ps'",
                                    -1, &statement, NULL),
                 SQLITE_OK));
    cr_assert(eq(int, sqlite3_step(statement), SQLITE_ROW));
    cr_expect(eq(int, sqlite3_column_int(statement, 0), 0));
    sqlite3_finalize(statement);
    sqlite3_close(database);
}

/* 16 microbatches of 4 sequences of 2048 tokens: tokens/s follow the iteration, never the makespan.
 * A single asynchronous iteration gives neither, a synchronous iteration is its makespan. */
Test(cli_hardware, few_iterations)
{
    static const char *const schedules[] = {"pipedream", "1f1b", "roundpipe"};
    char line[1024];
    for (uint32_t number = 0; number < 18; number++) {
        uint32_t iterations = (const uint32_t[]){1, 2, 15}[number / 6];
        const char *schedule = schedules[number / 2 % 3];
        for (int async = 0; async < 2; async++) {
            snprintf(line, sizeof line,
                     "--fidelity %s --schedule %s --optimizer %s --iterations %u --microbatches 16",
                     number % 2 == 0 ? "stage" : "hardware", schedule, async ? "async" : "sync",
                     iterations);
            json_t *rows = run(line);
            const json_t *row = json_array_get(rows, 0);
            const json_t *period = json_object_get(row, "iteration_ms");
            const json_t *tokens = json_object_get(row, "tokens_per_s");
            cr_expect(eq(int, json_is_null(period), async &&iterations == 1), "%s", line);
            cr_expect(eq(int, json_is_null(tokens), json_is_null(period)), "%s", line);
            double ms = json_is_null(period) ? 1 : json_number_value(period);
            double makespan_ms = rp_test_json_number(row, "makespan_ms");
            double work = json_is_null(period) ? 0 : 16.0 * 4 * 2048;
            double done = json_number_value(tokens) * ms * 1e-3;
            cr_expect(epsilon_eq(dbl, done, work, 1e-6 * work + 1e-9), "%s", line);
            bool alone = !async && (iterations == 1 || number % 2 == 0);
            cr_expect(eq(int, alone &&ms != makespan_ms, 0), "%s", line);
            bool stream = async && iterations > 1 && strcmp(schedule, "pipedream") == 0;
            cr_expect(eq(int, stream &&ms > 0.9 * makespan_ms, 0), "%s: %g", line, ms);
            json_decref(rows);
        }
    }
}

Test(cli_hardware, unknown_period)
{
    char line[1024];
    const char *folder = rp_test_tool_folder();
    const char *one = "--schedule gpipe,pipedream --optimizer async --gpus 4 --iterations 1";
    snprintf(line, sizeof line, "%s --db %s/one.db", one, folder);
    const char *table = rp_test_rpsim_well(line).output;
    cr_expect(ne(ptr, strstr(table, "gpipe: one asynchronous iteration has no period"), NULL));
    cr_expect(eq(ptr, strstr(table, "* gpipe"), NULL), "nobody is known to be best");
    snprintf(line, sizeof line, "%s/one.db", folder);
    cr_expect(eq(str,
                 rp_test_ask(line, "SELECT count(*) || ',' || count(tokens_per_s) || ',' || "
                                   "count(iteration_ms) FROM summary"),
                 "2,0,0"));
    table = rp_test_rpsim_well("--schedule gpipe --optimizer async --iterations 15").output;
    cr_expect(ne(ptr, strstr(table, "estimate from 15 iterations"), NULL));
    table = rp_test_rpsim_well("--schedule gpipe --optimizer async --iterations 16").output;
    cr_expect(eq(ptr, strstr(table, "estimate from"), NULL));
    snprintf(line, sizeof line, "%s --jitter 0.1", one);
    rp_test_outcome noise = rp_test_rpsim(line);
    cr_expect(eq(int, noise.status, 2));
    cr_expect(ne(ptr, strstr(noise.messages, "has no period"), NULL), "%s", noise.messages);
    /* Unknown rows have no rank; here all of --schedule all are unknown. */
    json_t *rows = run("--schedule all --optimizer async --gpus 4 --iterations 1");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        bool unknown = json_is_null(json_object_get(json_array_get(rows, i), "rank"));
        cr_expect(unknown, "row %zu", i);
    }
    json_decref(rows);
}

/* async is refused, with the reason, if it does not change a system's program. */
Test(cli_hardware, optimizer_modes_without_effect)
{
    char line[1024];
    const char *folder = rp_test_tool_folder();
    const char *all = rp_test_rpsim_well("--schedule all --optimizer async --gpus 4 --iterations 2 "
                                         "--recompute wait")
                          .output;
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        char left_out[128];
        const char *name = rp_schedules[s]->name;
        bool refused = rp_is_data_parallel(&rp_schedules[s]->traits);
        snprintf(left_out, sizeof left_out, "  %s cannot run: its ranks step together", name);
        cr_expect(eq(int, strstr(all, left_out) != NULL, refused), "%s", left_out);
        snprintf(line, sizeof line,
                 "--schedule %s --gpus 4 --microbatches 8 --iterations 2 --optimizer async "
                 "--program-out %s/async.txt",
                 name, folder);
        rp_test_outcome outcome = rp_test_rpsim(line);
        cr_expect(eq(int, outcome.status, refused ? 2 : 0), "%s", name);
        if (refused) {
            cr_expect(ne(ptr, strstr(outcome.messages, "valid is sync"), NULL));
            continue;
        }
        snprintf(line, sizeof line,
                 "--schedule %s --gpus 4 --microbatches 8 --iterations 2 --program-out %s/sync.txt",
                 name, folder);
        rp_test_rpsim_well(line);
        /* Not only the header differs, but ops or waits. */
        char path[512];
        snprintf(path, sizeof path, "%s/async.txt", folder);
        char *async = strdup(rp_test_tool_read(path));
        snprintf(path, sizeof path, "%s/sync.txt", folder);
        const char *sync = strstr(rp_test_tool_read(path), "\nlowered ");
        const char *rest = strstr(async, "\nlowered ");
        cr_assert(sync != NULL && rest != NULL);
        cr_expect(ne(int, strcmp(sync, rest), 0), "%s has one mode", name);
        free(async);
    }
}

/* Longer sequences and larger batches take longer steps. */
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

/* The chart shows all iterations; the store keeps the modelled ops. */
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

/* A platform without the keys of hardware fidelity is refused; the message names all of them. */
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
    cr_expect(
        ne(ptr,
           strstr(outcome.messages, "bare has no link_effective_gb_per_s or link_efficiency, no "
                                    "attention_fwd_tflops, no attention_bwd_tflops, no "
                                    "memory_effective_gb_per_s, no host_optimizer_gb_per_s or "
                                    "optimizer_threads, which hardware fidelity needs"),
           NULL),
        "%s", outcome.messages);
    cr_expect(ne(ptr, strstr(outcome.messages, "valid are platform files"), NULL));
}

/* Only RoundPipe's times include the host's work for adapters of experts; other rows say so. */
Test(cli_hardware, missing_host_work_is_said)
{
    static const struct {
        const char *schedule, *model;
        bool warns;
    } rows[] = {{"fsdp", "qwen3-235b-lora", true},
                {"roundpipe", "qwen3-235b-lora", false},
                {"roundpipe,mobius", "qwen3-235b-lora", true},
                {"fsdp", "qwen3-1.7b-lora", false},
                {"fsdp", "gpt-oss-20b-lora", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "--fidelity hardware --iterations 1 --gpus 8 --microbatches 8 --schedule %s "
                 "--model %s",
                 rows[i].schedule, rows[i].model);
        rp_test_outcome outcome = rp_test_rpsim(line);
        cr_expect(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
        bool warns = strstr(outcome.messages, "the host's work for the modules") != NULL;
        cr_expect(eq(int, warns, rows[i].warns), "%s: %s", line, outcome.messages);
    }
}

static char *rows_of(const char *line)
{
    json_t *rows = run(line);
    char *text = json_dumps(rows, JSON_SORT_KEYS);
    json_decref(rows);
    return text;
}

/* --lora-rank 32 equals the files of that rank. Rank 8 has neither file nor measured table. */
Test(cli_hardware, lora_rank_is_the_file_with_adapters)
{
    static const char *const models[] = {"qwen3-1.7b", "qwen3-235b"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *common = "--schedule roundpipe,1f1b --platform h100x8 --intervals off --model ";
        char line[256];
        snprintf(line, sizeof line, "%s%s --lora-rank 32", common, models[i]);
        char *given = rows_of(line);
        snprintf(line, sizeof line, "%s%s-lora", common, models[i]);
        char *file = rows_of(line);
        snprintf(line, sizeof line, "%s%s-lora --lora-rank 8", common, models[i]);
        json_t *other = run(line);
        cr_expect(eq(str, given, file));
        const char *costs = rp_test_json_text(json_array_get(other, 0), "costs");
        cr_expect(strstr(costs, "-lora-8@h100 (roofline)") != NULL, "%s", costs);
        json_decref(other);
        free(given);
        free(file);
    }
}
