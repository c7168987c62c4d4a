/* rpsim's JSON, CSV and key=value: every key and value. */
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PUBLISHED RP_SOURCE_ROOT "/paper-figures/published/pipeline_bubbles.csv"

TestSuite(cli_output, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

typedef enum value_type {
    TEXT,
    WHOLE,
    NUMBER,
    NUMBER_OR_NULL,
    ROUND,   /* a number, "all", or null for a schedule without rounds */
    NOTHING, /* null at stage fidelity */
} value_type;

/* The keys of the contract, in their order. */
static const struct {
    const char *key;
    value_type type;
} json_keys[] = {
    {"schedule", TEXT},
    {"model", TEXT},
    {"platform", TEXT},
    {"gpus", WHOLE},
    {"microbatches", WHOLE},
    {"microbatch_size", WHOLE},
    {"seq_len", WHOLE},
    {"fidelity", TEXT},
    {"partition", TEXT},
    {"recompute", TEXT},
    {"optimizer", TEXT},
    {"round", ROUND},
    {"grain", NOTHING},
    {"iterations", WHOLE},
    {"ops", WHOLE},
    {"makespan_ms", NUMBER},
    {"bubble_ms", NUMBER},
    {"bubble_pct", NUMBER},
    {"fill_ms", NUMBER},
    {"switch_ms", NUMBER},
    {"drain_ms", NUMBER},
    {"intra_ms", NUMBER},
    {"comm_total_ms", NUMBER},
    {"comm_exposed_ms", NUMBER},
    {"lower_bound_ms", NUMBER},
    {"iteration_ms", NUMBER_OR_NULL},
    {"iteration_paper_ms", NUMBER},
    {"tokens_per_s", NUMBER},
    {"fits", NOTHING},
    {"oom_reason", NOTHING},
    {"peak_gpu_bytes", NOTHING},
    {"peak_host_bytes", NOTHING},
    {"host_memory_bytes", NOTHING},
    {"seed", WHOLE},
};

static bool has_type(const json_t *value, value_type type)
{
    switch (type) {
    case TEXT:
        return json_is_string(value) && json_string_length(value) > 0;
    case WHOLE:
        return json_is_integer(value) && json_integer_value(value) >= 0;
    case NUMBER:
        return json_is_number(value) && json_number_value(value) >= 0;
    case NUMBER_OR_NULL:
        return json_is_null(value) || has_type(value, NUMBER);
    case ROUND:
        return json_is_null(value) || json_is_integer(value) || json_is_string(value);
    case NOTHING:
        return json_is_null(value);
    }
    return false;
}

static void check_json_row(const json_t *row)
{
    for (size_t k = 0; k < COUNT(json_keys); k++) {
        const json_t *value = json_object_get(row, json_keys[k].key);
        cr_expect(has_type(value, json_keys[k].type), "%s of %s", json_keys[k].key,
                  rp_test_json_text(row, "schedule"));
    }
    double parts = rp_test_json_number(row, "fill_ms") + rp_test_json_number(row, "switch_ms") +
                   rp_test_json_number(row, "drain_ms") + rp_test_json_number(row, "intra_ms");
    cr_expect(fabs(parts - rp_test_json_number(row, "bubble_ms")) < 1e-6);
    double gpu_ms = rp_test_json_number(row, "makespan_ms") * rp_test_json_number(row, "gpus");
    cr_expect(fabs(100 * rp_test_json_number(row, "bubble_ms") / gpu_ms -
                   rp_test_json_number(row, "bubble_pct")) < 1e-9);
    cr_expect(rp_test_json_number(row, "lower_bound_ms") <=
              rp_test_json_number(row, "makespan_ms"));
}

Test(cli_output, json_has_every_key_for_every_schedule)
{
    json_t *rows =
        rp_test_rpsim_json("--schedule all --gpus 4 --microbatches 8 --recompute none,wait,early");
    cr_assert(ge(sz, json_array_size(rows), 15)); /* at least five schedules in three modes */
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = rp_test_json_text(row, "schedule");
        bool rounds = strncmp(name, "roundpipe", strlen("roundpipe")) == 0;
        check_json_row(row);
        cr_expect(rounds == json_is_integer(json_object_get(row, "round")));
    }
    json_decref(rows);
}

Test(cli_output, default_run_is_the_documented_one)
{
    json_t *rows = rp_test_rpsim_json("--schedule roundpipe --gpus 8");
    const json_t *row = json_array_get(rows, 0);
    cr_assert(eq(sz, json_array_size(rows), 1));
    cr_expect(eq(str, (char *)rp_test_json_text(row, "model"), "qwen3-1.7b"));
    cr_expect(eq(str, (char *)rp_test_json_text(row, "platform"), "rtx4090x8"));
    cr_expect(eq(str, (char *)rp_test_json_text(row, "recompute"), "early"));
    cr_expect(eq(dbl, rp_test_json_number(row, "microbatches"), 16));
    cr_expect(eq(dbl, rp_test_json_number(row, "round"), 8));
    json_decref(rows);
}

/* 3.6 million tokens take 1000 / (tokens/s) hours; without --tokens there is neither key. */
Test(cli_output, hours_and_cost_of_tokens)
{
    json_t *rows = rp_test_rpsim_json("--schedule roundpipe,1f1b --tokens 3.6M --usd-per-hour 2.5 "
                                      "--watts 3000 --usd-per-kwh 0.5");
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        double hours = 1000 / rp_test_json_number(row, "tokens_per_s");
        cr_expect(lt(dbl, fabs(rp_test_json_number(row, "hours") / hours - 1), 1e-12));
        cr_expect(lt(dbl, fabs(rp_test_json_number(row, "kwh") / hours / 3 - 1), 1e-12));
        cr_expect(lt(dbl, fabs(rp_test_json_number(row, "usd") / hours / 4 - 1), 1e-12));
    }
    json_decref(rows);
    rows = rp_test_rpsim_json("--schedule roundpipe --tokens 1B");
    cr_expect(ne(ptr, json_object_get(json_array_get(rows, 0), "hours"), NULL));
    cr_expect(eq(ptr, json_object_get(json_array_get(rows, 0), "usd"), NULL));
    json_decref(rows);
}

/* Scripts compare outputs byte for byte, so values that vary between runs must be asked for. */
Test(cli_output, only_timings_differ_from_run_to_run)
{
    static const char *const formats[] = {"--format json", "--format csv"};
    for (size_t i = 0; i < COUNT(formats); i++) {
        const char *line = "--fidelity stage --schedule roundpipe,1f1b";
        rp_test_outcome once = rp_test_rpsim_after(formats[i], line);
        rp_test_outcome again = rp_test_rpsim_after(formats[i], line);
        rp_test_outcome timed = rp_test_rpsim_after(formats[i], "--timings --schedule 1f1b");
        cr_expect(eq(str, (char *)once.output, (char *)again.output), "%s", formats[i]);
        cr_expect(eq(ptr, strstr(once.output, "sim_wall_s"), NULL), "%s", formats[i]);
        cr_expect(ne(ptr, strstr(timed.output, "sim_wall_s"), NULL), "%s", formats[i]);
    }
    json_t *rows = rp_test_rpsim_json("--schedule roundpipe --timings");
    cr_expect(gt(dbl, rp_test_json_number(json_array_get(rows, 0), "sim_wall_s"), 0));
    json_decref(rows);
}

static void check_csv_cell(const char *key, const char *cell_text, const json_t *value)
{
    if (json_is_null(value)) {
        cr_expect(eq(str, (char *)cell_text, ""), "%s", key);
    } else if (json_is_string(value)) {
        cr_expect(eq(str, (char *)cell_text, (char *)json_string_value(value)), "%s", key);
    } else {
        cr_expect(eq(dbl, strtod(cell_text, NULL), json_number_value(value)), "%s", key);
    }
}

Test(cli_output, csv_equals_json)
{
    const char *line = "--schedule all --gpus 4 --model qwen3-1.7b,gpt-oss-20b --optimizer async";
    json_t *rows = rp_test_rpsim_json(line);
    rp_test_outcome result = rp_test_rpsim_after("--format csv --fidelity stage", line);
    rp_csv table = rp_test_tool_table("stdout", result.output, ',');
    cr_assert(eq(sz, table.rows, json_array_size(rows)));
    for (uint32_t i = 0; i < table.rows; i++) {
        const json_t *row = json_array_get(rows, i);
        cr_assert(eq(sz, table.columns, json_object_size(row)));
        for (uint32_t k = 0; k < table.columns; k++) {
            const json_t *value = json_object_get(row, table.header[k]);
            cr_assert(value != NULL, "%s", table.header[k]);
            check_csv_cell(table.header[k], rp_csv_cell(&table, i, k), value);
        }
    }
    json_decref(rows);
}

/* ---- key=value ------------------------------------------------------------------------------- */

/* formats.md 4, in order, with the published table's column or "". */
static const struct {
    const char *key;
    const char *column;
} kv_keys[] = {
    {"scheduler", "schedule"},
    {"events", "ops"},
    {"makespan", "makespan_ms"},
    {"bubble_time", "bubble_ms"},
    {"bubble_ratio", "bubble_pct"},
    {"fill_bubble_time", "fill_ms"},
    {"fill_bubble_ratio", "fill_pct"},
    {"switch_bubble_time", "switch_ms"},
    {"switch_bubble_ratio", "switch_pct"},
    {"drain_bubble_time", "drain_ms"},
    {"drain_bubble_ratio", "drain_pct"},
    {"intra_bubble_time", "intra_ms"},
    {"intra_bubble_ratio", "intra_pct"},
    {"comm_time_per_hop", ""},
    {"comm_total_time", "comm_total_ms"},
    {"comm_exposed_time", "comm_exposed_ms"},
    {"comm_exposed_ratio", "comm_exposed_pct"},
    {"output", ""},
};

/* "key=value", four decimals, '%' for ratios. Both sides round binary fractions: if the fifth
 * decimal is a five, the fourth may differ by 1. */
static void check_kv_line(const char *line, const char *key, const char *published)
{
    size_t length = strlen(key);
    cr_assert(strncmp(line, key, length) == 0 && line[length] == '=', "%s is not %s", line, key);
    char *end = NULL;
    const char *value = line + length + 1;
    double number = strtod(value, &end);
    const char *dot = strchr(value, '.');
    if (published == NULL || dot == NULL) {
        cr_expect(published == NULL || strcmp(value, published) == 0, "%s: %s", line, published);
        return;
    }
    cr_expect(eq(str, end, strstr(key, "_ratio") != NULL ? "%" : ""), "%s", line);
    cr_expect(eq(sz, (size_t)(end - dot), 5), "%s has four decimals", line);
    cr_expect(fabs(number - strtod(published, NULL)) < 0.00011, "%s: %s", line, published);
}

static void check_kv_record(const char *output, const rp_csv *table, uint32_t row)
{
    char *rest = NULL;
    cr_assert(eq(int, rp_arena_alloc(rp_test_tool_arena(), strlen(output) + 1, 1, &rest), RP_OK));
    memcpy(rest, output, strlen(output) + 1);
    for (size_t k = 0; k < COUNT(kv_keys); k++) {
        char *newline = strchr(rest, '\n');
        cr_assert(ne(ptr, newline, NULL));
        *newline = '\0';
        const char *column = kv_keys[k].column;
        check_kv_line(rest, kv_keys[k].key,
                      *column != '\0' ? rp_test_tool_cell(table, row, column) : NULL);
        rest = newline + 1;
    }
    cr_expect(eq(str, rest, ""), "one record");
}

Test(cli_output, kv_equals_the_published_log)
{
    rp_csv table = rp_test_tool_table(PUBLISHED, rp_test_tool_read(PUBLISHED), ',');
    cr_assert(eq(u32, table.rows, 25));
    for (uint32_t row = 0; row < table.rows; row++) {
        const char *line = NULL;
        rp_status status = rp_arena_print(rp_test_tool_arena(), &line,
                                          "--schedule %s --model %s --gpus 8 --microbatches 16 "
                                          "--partition paper --fidelity stage --format kv",
                                          rp_test_tool_cell(&table, row, "schedule"),
                                          rp_test_tool_cell(&table, row, "model"));
        cr_assert(eq(int, status, RP_OK));
        check_kv_record(rp_test_rpsim_well(line).output, &table, row);
    }
}

/* The legend explains shown columns only: few at 80 columns, all on a wide terminal. */
Test(cli_output, legend_is_of_the_columns_that_are_shown)
{
    static const struct {
        const char *columns;
        const char *line;
        bool tokens, bubble, bound;
    } cases[] = {{"80", "--schedule gpipe", true, false, false},
                 {"1000", "--schedule gpipe", true, true, true},
                 {"80", "--schedule gpipe --columns all", true, true, true},
                 {"80", "--schedule gpipe --columns bubble_pct", false, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setenv("COLUMNS", cases[i].columns, 1);
        rp_test_outcome outcome = rp_test_rpsim_well(cases[i].line);
        bool tokens = strstr(outcome.output, "\ntokens/s: ") != NULL;
        bool bubble = strstr(outcome.output, "makespan, bubble and its parts") != NULL;
        bool bound = strstr(outcome.output, "bound: ") != NULL;
        cr_expect(tokens == cases[i].tokens && bubble == cases[i].bubble && bound == cases[i].bound,
                  "%s %s: %s", cases[i].columns, cases[i].line, outcome.output);
    }
    setenv("COLUMNS", "1000", 1);
}
