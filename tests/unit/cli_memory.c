/* Memory and --max-seqlen as a user sees them, and the published longest sequences with their gate
 * (experiments/prediction.md says what it rests on). */
#include "common/log.h"
#include "common/text.h"
#include "sim/prediction_seqlen.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

TestSuite(cli_memory, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

static json_t *run_with(const char *options, const char *line)
{
    rp_test_outcome outcome = rp_test_rpsim_after(options, line);
    json_error_t error;
    cr_assert(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, &error);
    cr_assert(ne(ptr, rows, NULL), "%s", error.text);
    return rows;
}

static json_t *run(const char *line)
{
    return run_with("--fidelity hardware --format json", line);
}

/* Known for all systems at hardware fidelity, null at stage fidelity. */
Test(cli_memory, keys)
{
    json_t *rows =
        run("--schedule roundpipe,1f1b,fsdp --gpus 4 --iterations 1 --microbatch-size 2");
    for (size_t i = 0; i < 3; i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *peaks = json_object_get(row, "peak_gpu_bytes");
        cr_expect(eq(int, json_is_true(json_object_get(row, "fits")) ? 1 : 0, 1));
        cr_expect(eq(int, json_is_null(json_object_get(row, "oom_reason")) ? 1 : 0, 1));
        cr_assert(eq(sz, json_array_size(peaks), 4));
        for (size_t k = 0; k < 4; k++) {
            double peak = (double)json_integer_value(json_array_get(peaks, k));
            cr_expect(gt(dbl, peak, 0.75e9)); /* the context alone */
            cr_expect(lt(dbl, peak, 25.32e9));
        }
        double host = rp_test_json_number(row, "peak_host_bytes");
        cr_expect(i == 2 ? host == 0 : host > 0); /* FSDP has nothing there */
        cr_expect(eq(ptr, json_object_get(row, "max_seqlen"), NULL));
    }
    json_decref(rows);
    rows = run_with("--fidelity stage --format json", "--schedule roundpipe");
    const json_t *stage = json_array_get(rows, 0);
    static const char *const nulls[] = {"fits", "peak_gpu_bytes", "peak_host_bytes"};
    for (size_t k = 0; k < 3; k++) {
        const json_t *value = json_object_get(stage, nulls[k]);
        cr_expect(eq(int, json_is_null(value) ? 1 : 0, 1), "%s", nulls[k]);
    }
    json_decref(rows);
}

/* 16 B per parameter: 20.9 billion do not fit eight 24 GB cards. */
Test(cli_memory, what_does_not_fit_says_so)
{
    json_t *rows = run("--schedule 1f1b --model gpt-oss-20b");
    const json_t *row = json_array_get(rows, 0);
    const char *reason = rp_test_json_text(row, "oom_reason");
    cr_expect(eq(int, json_is_false(json_object_get(row, "fits")) ? 1 : 0, 1));
    cr_assert(ne(ptr, (void *)reason, NULL));
    cr_expect(ne(ptr, strstr(reason, "optimizer"), NULL), "%s", reason);
    cr_expect(ne(ptr, strstr(reason, "more than the usable 25319803776"), NULL), "%s", reason);
    json_decref(rows);
    rp_test_outcome table =
        rp_test_rpsim("--fidelity hardware --schedule 1f1b --model gpt-oss-20b");
    cr_expect(ne(ptr, strstr(table.output, "1f1b does not fit: GPU "), NULL));
    cr_expect(ne(ptr, strstr(table.output, "peak GB"), NULL));
}

/* A list is one cell of CSV. */
Test(cli_memory, csv)
{
    rp_test_outcome csv =
        rp_test_rpsim("--fidelity hardware --schedule 1f1b --gpus 4 --format csv");
    rp_csv table = rp_test_tool_table("csv", csv.output, ',');
    const char *peaks = rp_test_tool_cell(&table, 0, "peak_gpu_bytes");
    cr_expect(ne(ptr, strchr(peaks, ','), NULL), "%s", peaks);
    cr_expect(eq(str, (char *)rp_test_tool_cell(&table, 0, "fits"), "true"));
}

Test(cli_memory, max_seqlen)
{
    json_t *rows = run("--schedule roundpipe --config paper --max-seqlen");
    const json_t *row = json_array_get(rows, 0);
    double found = rp_test_json_number(row, "max_seqlen");
    cr_expect(gt(dbl, found, 1024));
    cr_expect(eq(dbl, rp_test_json_number(row, "seq_len"), found));
    cr_expect(eq(dbl, rp_test_json_number(row, "global_batch"), 10));
    cr_expect(eq(str, (char *)rp_test_json_text(row, "grain"), "layer"));
    cr_expect(eq(int, json_is_true(json_object_get(row, "fits")) ? 1 : 0, 1));
    json_decref(rows);
}

static json_t *run_at(double seq_len)
{
    char line[256];
    snprintf(line, sizeof line,
             "--schedule mobius,1f1b --gpus 4 --iterations 1 --grain layer --seq-len %.0f",
             seq_len);
    return run(line);
}

/* The length that the search finds at layer grain is that of the runs: it fits, one step more does
 * not. Not of roundpipe, whose search replays the library. */
Test(cli_memory, max_seqlen_agrees_with_runs)
{
    json_t *rows = run("--schedule mobius,1f1b --gpus 4 --iterations 1 --grain layer --max-seqlen");
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        double found = rp_test_json_number(row, "max_seqlen");
        json_t *fits = run_at(found);
        json_t *more = run_at(found + 1024);
        const json_t *same = json_array_get(fits, i);
        cr_expect(eq(str, (char *)rp_test_json_text(same, "grain"), "layer"));
        cr_expect(json_equal(json_object_get(same, "peak_gpu_bytes"),
                             json_object_get(row, "peak_gpu_bytes")));
        cr_expect(eq(int, json_is_true(json_object_get(same, "fits")) ? 1 : 0, 1));
        const json_t *longer = json_array_get(more, i);
        cr_expect(eq(int, json_is_false(json_object_get(longer, "fits")) ? 1 : 0, 1));
        json_decref(fits);
        json_decref(more);
    }
    json_decref(rows);
}

/* -1 where the store has no such metric. */
static double stored(const char *path, const char *metric)
{
    sqlite3 *database;
    sqlite3_stmt *statement;
    double value = -1;
    cr_assert(eq(int, sqlite3_open(path, &database), SQLITE_OK));
    cr_assert(eq(int,
                 sqlite3_prepare_v2(database, "SELECT value FROM metrics WHERE name = ?", -1,
                                    &statement, NULL),
                 SQLITE_OK));
    sqlite3_bind_text(statement, 1, metric, -1, SQLITE_STATIC);
    if (sqlite3_step(statement) == SQLITE_ROW) {
        value = sqlite3_column_double(statement, 0);
    }
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return value;
}

/* The store has what the row says; at stage fidelity, where nothing is known, it has nothing. */
Test(cli_memory, stored)
{
    static const char *const lines[] = {"--schedule 1f1b", "--schedule 1f1b --max-seqlen"};
    char options[512];
    char path[256];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%zu.db", rp_test_tool_folder(), i);
        snprintf(options, sizeof options, "--fidelity hardware --format json --db %s", path);
        json_t *rows = run_with(options, lines[i]);
        const json_t *row = json_array_get(rows, 0);
        const json_t *peaks = json_object_get(row, "peak_gpu_bytes");
        double peak = 0;
        for (size_t k = 0; k < json_array_size(peaks); k++) {
            double bytes = (double)json_integer_value(json_array_get(peaks, k));
            peak = bytes > peak ? bytes : peak;
        }
        bool fits = json_is_true(json_object_get(row, "fits"));
        cr_expect(eq(dbl, stored(path, "peak_gpu_bytes"), peak));
        cr_expect(
            eq(dbl, stored(path, "peak_host_bytes"), rp_test_json_number(row, "peak_host_bytes")));
        cr_expect(eq(dbl, stored(path, "fits"), fits ? 1 : 0));
        double longest = i == 1 ? rp_test_json_number(row, "max_seqlen") : -1;
        cr_expect(eq(dbl, stored(path, "max_seqlen"), longest));
        json_decref(rows);
    }
    snprintf(path, sizeof path, "%s/stage.db", rp_test_tool_folder());
    snprintf(options, sizeof options, "--fidelity stage --format json --db %s", path);
    json_decref(run_with(options, "--schedule 1f1b"));
    cr_expect(gt(dbl, stored(path, "makespan_ps"), 0));
    cr_expect(eq(dbl, stored(path, "peak_gpu_bytes"), -1));
    cr_expect(eq(dbl, stored(path, "fits"), -1));
}

Test(cli_memory, bad_combinations_are_refused)
{
    static const struct {
        const char *line;
        const char *says;
    } cases[] = {
        {"--schedule 1f1b --max-seqlen --fidelity stage", "--max-seqlen: valid only with"},
        {"--schedule 1f1b --fidelity hardware --max-seqlen --seq-len 1024", "without --seq-len"},
        {"--schedule 1f1b --grain layer --recompute none", "--grain: 1f1b recomputes nothing here"},
        {"--schedule zb-h1 --grain layer", "valid are --recompute wait and early"},
        {"--schedule roundpipe --fidelity stage --grain stage", "--grain: valid only with"},
        {"--schedule roundpipe --fidelity hardware --grain row", "valid values are stage|layer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim(cases[i].line);
        cr_expect(eq(int, outcome.status, 2), "%s", cases[i].line);
        cr_expect(ne(ptr, strstr(outcome.messages, cases[i].says), NULL), "%s: %s", cases[i].line,
                  outcome.messages);
    }
}

/* Two minutes under sanitizers, for figures that do not depend on them; the other tests here take
 * the same paths on shorter searches. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW_HERE true
#else
#define SLOW_HERE false
#endif

/* As prediction.accuracy_gates: what has been reached can only get better. */
Test(cli_memory, published_lengths, .timeout = 300, .disabled = SLOW_HERE)
{
    rp_arena *arena = NULL;
    rp_text text = {0};
    rp_csv gates;
    rpsim_seqlens seqlens;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    const char *path = RP_TEST_ROOT "/golden/seqlen_gates.csv";
    cr_assert(eq(int, rp_text_read_file(path, 65536, &text), RP_OK));
    cr_assert(eq(int, rp_csv_parse(path, text.bytes, text.length, ',', arena, &gates), RP_OK));
    cr_assert(eq(int,
                 rpsim_predict_seqlens(RP_SOURCE_ROOT "/paper-figures/published", arena, &seqlens),
                 RP_OK));
    uint32_t covered = 0;
    for (uint32_t row = 0; row < gates.rows; row++) {
        const char *group = rp_csv_cell(&gates, row, 0);
        double most = strtod(rp_csv_cell(&gates, row, 2), NULL);
        uint32_t cells = 0;
        double mape = rpsim_seqlens_mape(&seqlens, group, &cells);
        cr_expect(eq(u32, cells, (uint32_t)strtoul(rp_csv_cell(&gates, row, 1), NULL, 10)));
        cr_expect(le(dbl, mape, most), "%s: %.3f %%", group, mape);
        cr_expect(ge(dbl, mape, most - 0.25), "%s is better than its gate (%.3f %%): tighten it",
                  group, mape);
        bool system = strcmp(group, "all") != 0 && strcmp(group, "lengths") != 0;
        covered += system ? cells : 0;
    }
    cr_expect(eq(u32, covered, seqlens.count));
    rp_text_fini(&text);
    rp_arena_destroy(arena);
}
