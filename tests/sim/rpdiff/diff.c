/* rpdiff: errors computed by hand, and invariants of rpsim's timelines. */
#include "exec/rpexec/options.h"
#include "exec/rpexec/report.h"
#include "sim/rpdiff/runs.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(diff, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 100);

static rp_test_outcome run(const char *line)
{
    return rp_test_tool_run(RPDIFF_PATH, "rpdiff", line);
}

static json_t *run_json(const char *line)
{
    rp_test_outcome result = run(line);
    cr_assert(eq(int, result.status, 0), "%s: %s", line, result.messages);
    json_t *json = json_loads(result.output, 0, NULL);
    cr_assert(json != NULL, "%s", result.output);
    return json;
}

static void write_file(const char *name, const char *rows)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", rp_test_tool_folder(), name);
    FILE *stream = fopen(path, "w");
    cr_assert(stream != NULL);
    fprintf(stream, "op,queue,gpu,kind,stage,microbatch,iteration,start_ps,end_ps\n%s", rows);
    fclose(stream);
}

Test(diff, bad_commands_are_refused)
{
    rp_test_refusals(RP_TEST_ROOT "/bad/rpdiff.tsv", 15, run);
}

static void expect_time(const json_t *json, double predicted_ms, double measured_ms, double pct)
{
    cr_expect(ieee_ulp_eq(dbl, rp_test_json_number(json, "predicted_ms"), predicted_ms, 4));
    cr_expect(ieee_ulp_eq(dbl, rp_test_json_number(json, "measured_ms"), measured_ms, 4));
    cr_expect(epsilon_eq(dbl, rp_test_json_number(json, "error_pct"), pct, 1e-9));
}

/* Two GPUs and a host, two iterations, in ms:
 *                      predicted        measured
 *   F0 on GPU 0        0..10            0..8
 *   F0 on GPU 1        10..30           10..35
 *   F0@1 on GPU 1      30..50           40..60
 *   optimizer          50..55           60..64 */
Test(diff, errors_worked_out_by_hand)
{
    write_file("p.csv", "0,compute,0,F,0,0,0,0,10000000000\n"
                        "1,compute,1,F,1,0,0,10000000000,30000000000\n"
                        "2,compute,1,F,1,0,1,30000000000,50000000000\n"
                        "3,optimizer,host,OPTIMIZER,0,0,1,50000000000,55000000000\n");
    write_file("m.csv", "0,compute,0,F,0,0,0,0,8000000000\n"
                        "1,compute,1,F,1,0,0,10000000000,35000000000\n"
                        "2,compute,1,F,1,0,1,40000000000,60000000000\n"
                        "3,optimizer,host,OPTIMIZER,0,0,1,60000000000,64000000000\n");
    json_t *json = run_json("@DIR@/p.csv @DIR@/m.csv --format json --worst 2");
    expect_time(json, 55, 64, 100 * (55.0 / 64 - 1));
    const json_t *iterations = json_object_get(json, "iterations");
    cr_assert(eq(sz, json_array_size(iterations), 2));
    expect_time(json_array_get(iterations, 0), 30, 35, 100 * (30.0 / 35 - 1));
    expect_time(json_array_get(iterations, 1), 25, 29, 100 * (25.0 / 29 - 1));
    const json_t *gpus = json_object_get(json, "gpus");
    cr_assert(eq(sz, json_array_size(gpus), 2));
    expect_time(json_object_get(json_array_get(gpus, 0), "busy"), 10, 8, 25);
    expect_time(json_object_get(json_array_get(gpus, 1), "busy"), 40, 45, 100 * (40.0 / 45 - 1));
    expect_time(json_object_get(json_array_get(gpus, 1), "end"), 50, 60, 100 * (50.0 / 60 - 1));
    const json_t *kinds = json_object_get(json, "kinds");
    cr_assert(eq(sz, json_array_size(kinds), 2));
    const json_t *forward = json_array_get(kinds, 0);
    cr_expect(eq(str, (char *)rp_test_json_text(forward, "kind"), "F"));
    expect_time(forward, 50, 53, 100 * (50.0 / 53 - 1));
    cr_expect(epsilon_eq(dbl, rp_test_json_number(forward, "mean_difference_ms"), 7.0 / 3, 1e-9));
    const json_t *worst = json_object_get(json, "worst_ops");
    cr_assert(eq(sz, json_array_size(worst), 2));
    expect_time(json_array_get(worst, 0), 20, 25, -20);
    expect_time(json_array_get(worst, 1), 10, 8, 25);
    json_decref(json);
    const char *table = run("@DIR@/p.csv @DIR@/m.csv --worst 1").output;
    cr_expect(strstr(table, "\niteration 1          25.000      29.000 -13.8%\n") != NULL, "%s",
              table);
    cr_expect(strstr(table, "\n1F0, GPU 1       20.000      25.000 -20.0%\n") != NULL, "%s", table);
}

/* A run equals itself, from a file and from the store; scaled times are off by the factor
 * everywhere. */
Test(diff, timelines_of_rpsim)
{
    static const char *const schedules[] = {"gpipe", "roundpipe", "interleaved-1f1b"};
    for (size_t i = 0; i < 3; i++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "--schedule %s --gpus 4 --fidelity stage --iterations 2 --timeline-out @DIR@/a.csv "
            "--db @DIR@/s.db --db-ops",
            schedules[i]);
        rp_test_rpsim_well(line);
        snprintf(
            line, sizeof line,
            "--schedule %s --gpus 4 --fidelity stage --iterations 2 --timeline-out @DIR@/b.csv "
            "--set costs.fwd_ms*2,costs.bwd_ms*2,costs.head_fwd_ms*2,"
            "costs.head_bwd_ms*2,costs.hop_ms*2",
            schedules[i]);
        rp_test_rpsim_well(line);
        snprintf(line, sizeof line, "@DIR@/a.csv @DIR@/s.db:%zu --format json", i + 1);
        json_t *same = run_json(line);
        cr_expect(eq(dbl, rp_test_json_number(same, "error_pct"), 0.0));
        cr_expect(eq(sz, json_array_size(json_object_get(same, "worst_ops")), 0));
        json_decref(same);
        json_t *twice = run_json("@DIR@/b.csv @DIR@/a.csv --format json --worst 3");
        cr_expect(epsilon_eq(dbl, rp_test_json_number(twice, "error_pct"), 100.0, 1e-6), "%s",
                  schedules[i]);
        const json_t *kinds = json_object_get(twice, "kinds");
        uint32_t checked = 0;
        for (size_t k = 0; k < json_array_size(kinds); k++) {
            const json_t *kind = json_array_get(kinds, k);
            bool takes_time = rp_test_json_number(kind, "measured_ms") > 0;
            double pct = rp_test_json_number(kind, "error_pct");
            double off = takes_time ? fabs(pct - 100.0) : 0;
            cr_expect(lt(dbl, off, 1e-6), "%s", schedules[i]);
            checked += takes_time ? 1 : 0;
        }
        cr_expect(ge(u32, checked, 2u));
        cr_expect(eq(sz, json_array_size(json_object_get(twice, "worst_ops")), 3));
        json_decref(twice);
    }
}

/* Stores that lack the requested data, or have data that no program wrote. */
Test(diff, stores_without_it_are_refused)
{
    static const struct {
        const char *sql; /* runs first */
        const char *line;
        const char *expected;
    } rows[] = {
        {"", "@DIR@/s.db", "no run was predicted; valid are stores with runs of rpexec --predict"},
        {"", "@DIR@/s.db:2 @DIR@/s.db:1", "there is no run 2; valid are runs stored with --db-ops"},
        {"UPDATE ops SET kind = 'X' WHERE op = 3", "@DIR@/s.db:1 @DIR@/s.db:1",
         "op 3 of run 1 is none of this program's"},
        {"DELETE FROM ops", "@DIR@/s.db:1 @DIR@/s.db:1", "run 1 has no ops"},
    };
    rp_test_rpsim_well("--schedule gpipe --gpus 2 --fidelity stage --db @DIR@/s.db --db-ops");
    const char *store = rp_test_tool_expand("@DIR@/s.db", strlen("@DIR@/s.db"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const change[] = {"sqlite3", store, rows[i].sql, NULL};
        cr_assert(eq(int, rp_test_tool_execute("/usr/bin/sqlite3", change).status, 0));
        rp_test_outcome result = run(rows[i].line);
        cr_expect(eq(int, result.status, 2), "%s", rows[i].line);
        cr_expect(strstr(result.messages, rows[i].expected) != NULL, "%s", result.messages);
        cr_expect(eq(str, (char *)result.output, ""));
    }
}

/* A trace has both timelines, each with its own processes and every op once. */
Test(diff, one_trace_has_both)
{
    rp_test_rpsim_well(
        "--schedule 1f1b --gpus 2 --microbatches 2 --recompute none --fidelity stage "
        "--timeline-out "
        "@DIR@/a.csv");
    rp_test_outcome result = run("@DIR@/a.csv @DIR@/a.csv --trace-out @DIR@/t.json");
    cr_assert(eq(int, result.status, 0), "%s", result.messages);
    const char *path = rp_test_tool_expand("@DIR@/t.json", strlen("@DIR@/t.json"));
    json_t *trace = json_loads(rp_test_tool_read(path), 0, NULL);
    cr_assert(trace != NULL);
    size_t slices[2] = {0, 0};
    size_t names = 0;
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *phase = rp_test_json_text(event, "ph");
        double pid = rp_test_json_number(event, "pid");
        if (strcmp(phase, "X") == 0) {
            slices[pid >= 1000]++;
        }
        if (strcmp(rp_test_json_text(event, "name"), "process_name") == 0) {
            const char *name = rp_test_json_text(json_object_get(event, "args"), "name");
            const char *side = pid >= 1000 ? "measured " : "predicted ";
            cr_expect(eq(int, strncmp(name, side, strlen(side)), 0), "%s", name);
            names++;
        }
    }
    cr_expect(eq(sz, slices[0], 8)); /* two stages, two microbatches, forward and backward */
    cr_expect(eq(sz, slices[1], 8));
    cr_expect(eq(sz, names, 4));
    json_decref(trace);
}

/* ---- many runs ------------------------------------------------------------------------------- */

static rp_store_prediction prediction(const char *schedule, uint32_t gpus, double predicted_ms,
                                      double measured_ms)
{
    return (rp_store_prediction){.model = "m",
                                 .backend = "host",
                                 .optimizer = "sync",
                                 .schedule = schedule,
                                 .gpus = gpus,
                                 .microbatches = 4,
                                 .microbatch_size = 1,
                                 .seq_len = 8,
                                 .settings = "",
                                 .variant = "",
                                 .predicted_ms = predicted_ms,
                                 .measured_ms = measured_ms};
}

/* Adds a run of gpipe, predicted at 10 ms and measured at `measured_ms`. */
static void store_run(rp_store *store, const char *settings, const char *recompute,
                      double measured_ms)
{
    const rp_store_metric metrics[] = {
        {.name = "predicted_iteration_ps", .is_real = true, .real = 10e9},
        {.name = "iteration_median_ps", .is_real = true, .real = 1e9 * measured_ms}};
    const rp_store_run run = {.program = "rpexec",
                              .version = "1",
                              .command = "rpexec",
                              .config_json = settings,
                              .schedule = "gpipe",
                              .model = "m",
                              .fidelity = "host",
                              .recompute = recompute,
                              .optimizer = "sync",
                              .gpus = 2,
                              .metrics = metrics,
                              .metric_count = 2};
    cr_assert(eq(int, rp_store_add_run(store, &run, NULL), RP_OK));
}

/* A configuration has runs that should take the same time; an order has schedules that differ in
 * nothing else. */
Test(diff, other_settings_are_other_configurations)
{
    static const char *const expected[] = {"|recompute=early", "|", "|partition=1,1", "bind=1|",
                                           "dtype=bf16 platform=rtx3090x8|"};
    rp_store *store = NULL;
    const char *path = rp_test_tool_expand("@DIR@/s.db", strlen("@DIR@/s.db"));
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    store_run(store, "{\"dtype\":\"fp32\",\"bind\":0,\"platform\":null,\"seed\":1}", "wait", 9);
    store_run(store, "{\"dtype\":\"bf16\",\"bind\":0,\"platform\":\"rtx3090x8\"}", "wait", 20);
    store_run(store, "{\"dtype\":\"fp32\",\"bind\":1,\"platform\":null}", "wait", 30);
    store_run(store, "{\"dtype\":\"fp32\",\"lr\":0.5,\"seed\":2}", "wait", 11);
    store_run(store, "{\"partition\":\"1,1\"}", "wait", 40);
    store_run(store, "{\"round\":\"all\",\"grain\":\"stage\"}", "early", 50);
    rp_store_close(store);
    json_t *json = run_json("@DIR@/s.db --format json");
    size_t at = 0;
    size_t i;
    json_t *order;
    cr_assert(eq(dbl, rp_test_json_number(json, "configurations"), 5));
    json_array_foreach(json_object_get(json, "orders"), i, order)
    {
        size_t k;
        json_t *schedule;
        json_array_foreach(json_object_get(order, "schedules"), k, schedule)
        {
            char text[128];
            snprintf(text, sizeof text, "%s|%s", rp_test_json_text(order, "settings"),
                     rp_test_json_text(schedule, "variant"));
            cr_assert(lt(sz, at, 5));
            cr_expect(eq(str, text, (char *)expected[at]));
            cr_expect(eq(dbl, rp_test_json_number(schedule, "runs"), at == 1 ? 2 : 1));
            at++;
        }
    }
    cr_expect(eq(sz, i, 3));
    cr_expect(eq(sz, at, 5));
    json_decref(json);
    rp_test_outcome csv = run("@DIR@/s.db --format csv");
    const char *quoted = strstr(csv.output, ",,,,\"partition=1,1\"\n");
    cr_expect(ne(ptr, (void *)quoted, NULL), "%s", csv.output);
}

/* A default run of rpexec names no settings; pieces that were the default once are named. */
Test(diff, defaults_are_no_settings)
{
    char *arguments[][4] = {{"rpexec", "--backend", "host", NULL}, {"rpexec", "--piece-mb", "32"}};
    static const char *const expected[] = {"", "piece_mb=32"};
    rp_store *store = NULL;
    rp_store_prediction *runs = NULL;
    uint32_t count = 0;
    const char *path = rp_test_tool_expand("@DIR@/s.db", strlen("@DIR@/s.db"));
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    for (uint32_t i = 0; i < 2; i++) {
        char settings[4096] = "";
        rpexec_options o;
        cr_assert(
            eq(int, rpexec_options_parse(3, arguments[i], rp_test_tool_arena(), &o, NULL), RP_OK));
        FILE *stream = fmemopen(settings, sizeof settings, "w");
        cr_assert(ne(ptr, stream, NULL));
        rpexec_report_settings(&o, stream);
        fclose(stream);
        store_run(store, settings, "wait", 10 + i);
    }
    cr_assert(
        eq(int, rp_store_read_predictions(store, rp_test_tool_arena(), &runs, &count), RP_OK));
    cr_assert(eq(u32, count, 2));
    for (uint32_t i = 0; i < 2; i++) {
        cr_expect(eq(str, (char *)runs[i].settings, (char *)expected[i]));
        cr_expect(eq(str, (char *)runs[i].variant, ""));
    }
    rp_store_close(store);
}

/* a: 100, 102 and 110 measured; b 120, c 118 (within b's spread of 4), d 200 though predicted
 * fastest. The pairs of 2 GPUs ab and ac (both apart), ad, bd, cd count, bc does not. */
Test(diff, order_of_schedules_by_hand)
{
    const rp_store_prediction runs[] = {prediction("a", 2, 95, 110),  prediction("a", 2, 170, 100),
                                        prediction("a", 2, 102, 102), prediction("b", 2, 115, 118),
                                        prediction("b", 2, 115, 122), prediction("c", 2, 116, 118),
                                        prediction("d", 2, 90, 200),  prediction("a", 4, 50, 40)};
    rpsim_diff_runs r;
    cr_assert(eq(int, rpsim_diff_runs_compare(runs, 8, rp_test_tool_arena(), &r), RP_OK));
    cr_assert(eq(u32, r.configuration_count, 5));
    const rpsim_diff_configuration *a = &r.configurations[0];
    cr_expect(eq(u32, a->runs, 3));
    cr_expect(ieee_ulp_eq(dbl, a->measured_ms, 102.0, 1));
    cr_expect(epsilon_eq(dbl, a->predicted_ms, 102.0, 1e-12));
    cr_expect(epsilon_eq(dbl, a->spread, 10.0 / 102, 1e-12));
    cr_expect(epsilon_eq(dbl, a->error, 0.0, 1e-12));
    const double errors[] = {0, 115.0 / 120 - 1, 116.0 / 118 - 1, 90.0 / 200 - 1, 50.0 / 40 - 1};
    double sum = 0;
    double absolute = 0;
    for (int i = 0; i < 5; i++) {
        sum += errors[i] / 5;
        absolute += fabs(errors[i]) / 5;
    }
    cr_expect(epsilon_eq(dbl, r.mean_error, sum, 1e-12));
    cr_expect(epsilon_eq(dbl, r.mean_absolute_error, absolute, 1e-12));
    cr_expect(epsilon_eq(dbl, r.worst_error, 0.55, 1e-12));
    cr_assert(eq(u32, r.order_count, 2));
    /* a is 18 from b and 16 from c; its own spread, 10 of 102, is 11.8 and 11.6 of their times. */
    cr_expect(eq(u32, r.orders[0].pairs, 5));
    cr_expect(epsilon_eq(dbl, r.orders[0].tau, (2.0 - 3.0) / 5, 1e-12));
    cr_expect(eq(u32, r.orders[1].pairs, 0));
    cr_expect(isnan(r.orders[1].tau) != 0);
}
