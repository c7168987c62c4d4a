/* The store's views of runs, against the metrics by other SQL. */
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/store/store.h"
#include "tests/support/ask_store.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const char *folder;
static char path[256];
static char messages[8192];

static void begin(void)
{
    folder = rp_test_make_folder();
    snprintf(path, sizeof path, "%s/runs.db", folder);
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rp_test_remove(folder);
    rp_test_end(NULL);
}

TestSuite(store_views, .init = begin, .fini = end);

/* The summary as a pivot of metrics. */
#define PIVOT                                                                                      \
    "WITH wide AS (SELECT run_id, max(value) FILTER (WHERE name = 'makespan_ps') AS m,"            \
    " max(value) FILTER (WHERE name = 'bubble_ps') AS b,"                                          \
    " max(value) FILTER (WHERE name = 'fill_ps') AS f,"                                            \
    " max(value) FILTER (WHERE name = 'switch_ps') AS s,"                                          \
    " max(value) FILTER (WHERE name = 'drain_ps') AS d,"                                           \
    " max(value) FILTER (WHERE name = 'intra_ps') AS i,"                                           \
    " max(value) FILTER (WHERE name = 'comm_total_ps') AS ct,"                                     \
    " max(value) FILTER (WHERE name = 'comm_exposed_ps') AS ce,"                                   \
    " max(value) FILTER (WHERE name = 'lower_bound_ps') AS lb,"                                    \
    " max(value) FILTER (WHERE name = 'tokens_per_s') AS t,"                                       \
    " max(value) FILTER (WHERE name = 'iteration_ps') AS it,"                                      \
    " max(value) FILTER (WHERE name = 'fits') AS fi,"                                              \
    " max(value) FILTER (WHERE name = 'max_seqlen') AS ms,"                                        \
    " max(value) FILTER (WHERE name = 'peak_gpu_bytes') AS pg,"                                    \
    " max(value) FILTER (WHERE name = 'peak_host_bytes') AS ph,"                                   \
    " max(value) FILTER (WHERE name = 'host_memory_bytes') AS hm FROM metrics GROUP BY run_id) "

#define DIFFERENT                                                                                  \
    PIVOT "SELECT count(*) FROM runs r LEFT JOIN wide w ON w.run_id = r.id LEFT JOIN summary s"    \
          " ON s.run_id = r.id WHERE s.run_id IS NULL OR makespan_ms IS NOT m / 1e9"               \
          " OR bubble_ms IS NOT b / 1e9 OR bubble_pct IS NOT 100.0 * b / (r.gpus * m)"             \
          " OR fill_pct IS NOT 100.0 * f / (r.gpus * m)"                                           \
          " OR switch_pct  IS NOT 100.0 * w.s / (r.gpus * m)"                                      \
          " OR drain_pct IS NOT 100.0 * d / (r.gpus * m)"                                          \
          " OR intra_pct IS NOT 100.0 * i / (r.gpus * m) OR comm_total_ms IS NOT ct / 1e9"         \
          " OR comm_exposed_ms IS NOT ce / 1e9 OR lower_bound_ms IS NOT lb / 1e9"                  \
          " OR tokens_per_s IS NOT t OR iteration_ms IS NOT it / 1e9 OR fits IS NOT fi"            \
          " OR max_seqlen IS NOT ms OR peak_gpu_bytes IS NOT pg OR peak_host_bytes IS NOT ph"      \
          " OR host_memory_bytes IS NOT hm"                                                        \
          " OR s.schedule <> r.schedule OR s.model IS NOT r.model OR s.costs IS NOT r.costs"       \
          " OR s.platform IS NOT r.platform OR s.partition IS NOT r.partition"                     \
          " OR s.changes IS NOT config_json ->> 'set' OR s.seed <> r.seed"                         \
          " OR s.global_batch IS NOT config_json ->> 'global_batch'"

static const rp_store_metric all_metrics[] = {
    {"makespan_ps", false, 4000000000, 0},     {"busy_ps", false, 5000000000, 0},
    {"bubble_ps", false, 3000000000, 0},       {"fill_ps", false, 800000000, 0},
    {"switch_ps", false, 700000000, 0},        {"drain_ps", false, 600000000, 0},
    {"intra_ps", false, 900000000, 0},         {"comm_total_ps", false, 90000000, 0},
    {"comm_exposed_ps", false, 40000000, 0},   {"lower_bound_ps", false, 3500000000, 0},
    {"iteration_ps", true, 0, 4000000001.5},   {"tokens_per_s", true, 0, 1234.5},
    {"peak_gpu_bytes", false, 1 << 30, 0},     {"fits", false, 1, 0},
    {"peak_host_bytes", false, 2000000000, 0}, {"host_memory_bytes", false, 512000000000, 0},
    {"max_seqlen", false, 31744, 0},           {"something_else", true, 0, 1},
};

static rp_store_run make_run(const char *schedule, const char *json)
{
    return (rp_store_run){.program = "rpsim",
                          .version = "0.1.0",
                          .command = "rpsim",
                          .config_json = json,
                          .schedule = schedule,
                          .model = "tiny",
                          .platform = "p",
                          .costs = "c",
                          .gpus = 2,
                          .microbatches = 2,
                          .iterations = 1,
                          .ops = 7,
                          .metrics = all_metrics,
                          .metric_count = sizeof all_metrics / sizeof all_metrics[0]};
}

static void add(const rp_store_run *run)
{
    rp_store *store = NULL;
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK), "%s", messages);
    cr_assert(eq(int, rp_store_add_run(store, run, NULL), RP_OK), "%s", messages);
    rp_store_close(store);
}

Test(store_views, summary_is_the_metrics)
{
    rp_store_run run = make_run("1f1b", "{\"set\":\"x*2\",\"global_batch\":64}");
    add(&run);
    run.metric_count = 3;
    add(&run);
    run.metric_count = 0;
    add(&run);
    cr_expect(eq(str, rp_test_ask(path, DIFFERENT), "0"));
    rp_test_ask(path, "UPDATE results SET fill_ps = fill_ps + 1 WHERE run_id = 1");
    cr_expect(eq(str, rp_test_ask(path, DIFFERENT), "1"), "the comparison sees a difference");
}

Test(store_views, provenance)
{
    rp_store_run run = make_run("1f1b", "{}");
    run.duration_s = 1.25;
    add(&run);
    run.duration_s = 0;
    run.git_commit = "0123abcd";
    run.host = "elsewhere";
    add(&run);
    cr_expect(eq(int, strcmp(rp_test_ask(path, "SELECT git_commit FROM runs"), rp_commit()), 0));
    cr_expect(eq(str, rp_test_ask(path, "SELECT git_commit || host FROM runs WHERE id = 2"),
                 "0123abcdelsewhere"));
    cr_expect(eq(str, rp_test_ask(path, "SELECT group_concat(ifnull(duration_s, '-')) FROM runs"),
                 "1.25,-"));
}

/* A configuration's newest run; if it is deleted, the run before. */
Test(store_views, latest)
{
    rp_store_run run = make_run("1f1b", "{\"round\":8}");
    add(&run);
    add(&run);
    rp_store_run other = make_run("1f1b", "{\"round\":\"all\"}");
    add(&other);
    add(&run);
    const char *ids = "SELECT group_concat(run_id) FROM latest";
    cr_expect(eq(str, rp_test_ask(path, ids), "3,4"));
    rp_test_ask(path, "DELETE FROM results WHERE run_id = 4");
    cr_expect(eq(str, rp_test_ask(path, ids), "2,3"));
    rp_test_ask(path, "DELETE FROM results WHERE run_id = 1");
    cr_expect(eq(str, rp_test_ask(path, ids), "2,3"));
}

static void add_of(const char *schedule, const char *costs, int64_t makespan_ps, int64_t fits,
                   const char *json)
{
    const rp_store_metric metrics[] = {{"makespan_ps", false, makespan_ps, 0},
                                       {"fits", false, fits, 0}};
    rp_store_run run = make_run(schedule, json);
    run.costs = costs;
    run.metrics = metrics;
    run.metric_count = 2;
    add(&run);
}

/* A row per cell: runs that do not fit never win, other times are another cell, the earlier of two
 * equal runs wins, a configuration's older runs do not count. */
Test(store_views, best_and_wins)
{
    add_of("gpipe", "c", 500, 1, "{}");
    add_of("1f1b", "c", 400, 1, "{}");
    add_of("1f1b", "c", 450, 1, "{}");
    add_of("roundpipe", "c", 450, 1, "{}");
    add_of("zero2", "c", 100, 0, "{}");
    add_of("gpipe", "c with hop_ms=0", 90, 1, "{\"set\":\"costs.hop_ms=0\"}");
    add_of("roundpipe", "c with hop_ms=0", 95, 1, "{\"set\":\"costs.hop_ms=0\"}");
    add_of("roundpipe", "d", 95, 1, "{}");
    cr_expect(eq(
        str,
        rp_test_ask(path, "SELECT group_concat(run_id) FROM (SELECT run_id FROM best ORDER BY 1)"),
        "3,6,8"));
    cr_expect(eq(str,
                 rp_test_ask(path, "SELECT group_concat(schedule || ' ' || wins || ' ' ||"
                                   " round(wins_pct, 1)) FROM wins"),
                 "1f1b 1 33.3,gpipe 1 33.3,roundpipe 1 33.3"));
    add_of("gpipe", "c", 10, 1, "{\"jitter_cv\":0.1}");
    add_of("gpipe", "c", 11, 1, "{\"jitter_cv\":0.2}");
    cr_expect(eq(str, rp_test_ask(path, "SELECT count(*) FROM best"), "5"), "other noise");
}

static char *errors(const char *columns)
{
    char sql[256];
    snprintf(sql, sizeof sql, "SELECT group_concat(%s, ' ') FROM error_per_cell", columns);
    return rp_test_ask(path, sql);
}

Test(store_views, error_per_cell)
{
    const char *insert = "INSERT INTO reference (source, schedule, model, gpus, quantity, value)"
                         " VALUES ('paper', 'gpipe', 'tiny', 2, 'makespan_ms', 0.8)";
    add_of("gpipe", "c", 1000000000, 1, "{}");
    add_of("gpipe", "c with x", 9, 1, "{\"set\":\"x\"}");
    rp_test_ask(path, insert);
    cr_expect(eq(str, errors("run_id || ' ' || outcome || round(error, 9) || ' ' || error_pct"),
                 "1 compared0.2 25.0"),
              "signed, and of the run with nothing changed");
    cr_expect(eq(str, errors("measured || ' ' || predicted"), "0.8 1.0"));
    rp_test_ask(path, "UPDATE reference SET value = 1.25");
    cr_expect(eq(str, errors("error_pct"), "-20.0"));
    rp_test_ask(path, "UPDATE reference SET value = NULL");
    cr_expect(eq(str, errors("outcome"), "out of memory only when measured"));
    rp_test_ask(path, "UPDATE reference SET gpus = 3");
    cr_expect(eq(str, errors("outcome"), "no run"));
    rp_test_ask(path, "UPDATE reference SET gpus = NULL, quantity = 'tokens_per_s', value = 1");
    cr_expect(eq(str, errors("outcome || gpus"), "not predicted2"));
    add_of("gpipe", "c", 1000000000, 0, "{}");
    cr_expect(eq(str, errors("outcome || gpus"), "out of memory only when predicted2"));
    rp_test_ask(path, "UPDATE reference SET value = NULL, platform = 'p'");
    cr_expect(eq(str, errors("outcome"), "both out of memory"));
    rp_test_ask(path, "UPDATE reference SET platform = 'q'");
    cr_expect(eq(str, errors("outcome || platform"), "no runq"));
}

/* A point that cannot be stored leaves nothing in a shared transaction. */
Test(store_views, half_a_point)
{
    rp_store *store = NULL;
    int64_t experiment = 0;
    uint64_t present = 0;
    const rp_store_run good = make_run("1f1b", "{}");
    const rp_store_run runs[] = {good, make_run("1f1b", "{")};
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_experiment(store, "e", NULL, "f", &experiment, &present), RP_OK));
    cr_assert(eq(int, rp_store_begin(store), RP_OK));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "a", NULL, &good, 1), RP_OK));
    cr_expect(eq(int, rp_store_add_point(store, experiment, "b", NULL, runs, 2), RP_DATABASE));
    cr_expect(eq(int, rp_store_add_run(store, &runs[1], NULL), RP_DATABASE));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "c", NULL, &good, 1), RP_OK));
    cr_assert(eq(int, rp_store_end(store, RP_OK), RP_OK), "%s", messages);
    rp_store_close(store);
    cr_expect(eq(str, rp_test_ask(path, "SELECT group_concat(command) FROM points"), "a,c"));
    cr_expect(eq(str, rp_test_ask(path, "SELECT count(*) FROM runs"), "2"));
    cr_expect(eq(str, rp_test_ask(path, "SELECT count(*) FROM results"), "2"));
    cr_expect(eq(str, rp_test_ask(path, "SELECT count(*) FROM metrics"), "36"));
}

/* A failed point stays failed if its replacement cannot be stored. */
Test(store_views, half_a_replacement)
{
    rp_store *store = NULL;
    int64_t experiment = 0;
    uint64_t present = 0;
    const rp_store_run bad = make_run("1f1b", "{");
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_experiment(store, "e", NULL, "f", &experiment, &present), RP_OK));
    cr_assert(eq(int, rp_store_begin(store), RP_OK));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "a", "why", NULL, 0), RP_OK));
    cr_assert(eq(int, rp_store_end(store, RP_OK), RP_OK));
    cr_assert(eq(int, rp_store_begin(store), RP_OK));
    cr_expect(eq(int, rp_store_add_point(store, experiment, "a", NULL, &bad, 1), RP_DATABASE));
    cr_expect(eq(int, rp_store_end(store, RP_OK), RP_DATABASE), "the transaction is over");
    rp_store_close(store);
    cr_expect(eq(str, rp_test_ask(path, "SELECT failure FROM points"), "why"));
    cr_expect(eq(str, rp_test_ask(path, "SELECT count(*) FROM runs"), "0"));
}
