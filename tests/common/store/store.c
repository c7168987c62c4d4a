/* The SQLite store, read back with SQLite. */
#include "common/store/store.h"
#include "common/base/log.h"
#include "common/store/schema.h"
#include "tests/support/ask_store.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *folder;
static const char *path;
static char messages[8192];

static void begin(void)
{
    static char kept[256];
    folder = rp_test_make_folder();
    snprintf(kept, sizeof kept, "%s/runs.db", folder);
    path = kept;
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    rp_test_remove(folder);
    rp_test_end(NULL);
}

TestSuite(store, .init = begin, .fini = end);

static const rp_store_metric metrics[] = {
    {"makespan_ps", false, 9007199254740993, 0}, /* 2^53 + 1: no double holds it */
    {"bubble_ps", false, 1000, 0},
    {"tokens_per_s", true, 0, 0.1},
    {"iteration_ps", true, 0, NAN},
};

static rp_store_run make_run(const char *schedule)
{
    return (rp_store_run){.program = "rpsim",
                          .version = "0.1.0",
                          .command = "rpsim --schedule 'x'; DROP TABLE runs",
                          .config_json = "{\"gpus\": 2}",
                          .seed = UINT64_MAX,
                          .schedule = schedule,
                          .model = "tiny",
                          .gpus = 2,
                          .microbatches = 2,
                          .iterations = 1,
                          .ops = RP_TEST_OPS,
                          .program_hash = 0xabc,
                          .metrics = metrics,
                          .metric_count = sizeof metrics / sizeof metrics[0]};
}

static rp_status add(const char *schedule, int wait_ms)
{
    rp_store *store;
    rp_store_run run = make_run(schedule);
    RP_TRY(rp_store_open_wait(path, wait_ms, &store));
    rp_status status = rp_store_add_run(store, &run, NULL);
    rp_store_close(store);
    return status;
}

static char *ask(const char *sql)
{
    return rp_test_ask(path, sql);
}

static void expect_failure(rp_status status, rp_status expected, const char *message)
{
    cr_expect(eq(int, status, expected));
    cr_expect(strstr(messages, path) != NULL, "no path in: %s", messages);
    cr_expect(strstr(messages, message) != NULL, "no '%s' in: %s", message, messages);
}

Test(store, everything_is_kept)
{
    cr_assert(eq(int, add("1f1b", 0), RP_OK), "%s", messages);
    cr_expect(eq(str, ask("PRAGMA user_version"), "4"));
    cr_expect(eq(str, ask("PRAGMA journal_mode"), "wal"));
    cr_expect(eq(str, ask("PRAGMA integrity_check"), "ok"));
    cr_expect(eq(str, ask("SELECT seed FROM runs"), "18446744073709551615"));
    cr_expect(eq(str, ask("SELECT command FROM runs"), "rpsim --schedule 'x'; DROP TABLE runs"));
    cr_expect(eq(str, ask("SELECT config_json ->> 'gpus' FROM runs"), "2"));
    cr_expect(eq(str, ask("SELECT program_hash FROM runs"), "0000000000000abc"));
    cr_expect(eq(str,
                 ask("SELECT schedule || model || gpus || microbatches || iterations || ops"
                     " || program || version FROM runs"),
                 "1f1btiny2219rpsim0.1.0"));
    cr_expect(eq(str,
                 ask("SELECT count(*) FROM runs WHERE platform IS NULL AND costs IS NULL AND"
                     " created_utc > '2020' AND host <> ''"),
                 "1"));
    cr_expect(
        eq(str, ask("SELECT value FROM metrics WHERE name = 'makespan_ps'"), "9007199254740993"));
    cr_expect(
        eq(str, ask("SELECT typeof(value) FROM metrics WHERE name = 'tokens_per_s'"), "real"));
    cr_expect(eq(str, ask("SELECT value FROM metrics WHERE name = 'tokens_per_s'"), "0.1"));
    cr_expect(
        eq(str, ask("SELECT typeof(value) FROM metrics WHERE name = 'iteration_ps'"), "null"));
    cr_expect(eq(str, ask("SELECT count(*) FROM ops"), "0"));
}

Test(store, ops_on_request)
{
    rp_program *program;
    rp_timeline *timeline;
    rp_store *store;
    rp_store_run run = make_run("1f1b");
    cr_assert(eq(int, rp_test_make_program(&program), RP_OK));
    cr_assert(eq(int, rp_test_make_timeline(program, &timeline), RP_OK));
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_add_run(store, &run, timeline), RP_OK));
    rp_store_close(store);
    cr_expect(eq(str, ask("SELECT count(*) FROM ops"), "9"));
    cr_expect(eq(str,
                 ask("SELECT group_concat(queue || ' ' || gpu || ' ' || kind || ' ' || stage ||"
                     " ' ' || microbatch || ' ' || iteration || ' ' || start_ps || ' ' ||"
                     " end_ps) FROM ops WHERE op = 5"),
                 "compute 1 B 1 0 0 2100003 4100003"));
    cr_expect(eq(str, ask("SELECT kind || ' ' || queue FROM ops WHERE gpu IS NULL"),
                 "OPTIMIZER optimizer"));
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
}

Test(store, views)
{
    static const rp_store_metric slow[] = {{"makespan_ps", false, 4000000000, 0},
                                           {"fill_ps", false, 800000000, 0}};
    static const rp_store_metric fast[] = {{"makespan_ps", false, 3500000000, 0}};
    rp_store *store;
    rp_store_run run = make_run("gpipe");
    run.metrics = slow;
    run.metric_count = 2;
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_add_run(store, &run, NULL), RP_OK));
    cr_assert(eq(int, rp_store_add_run(store, &run, NULL), RP_OK));
    run.schedule = "roundpipe";
    run.metrics = fast;
    run.metric_count = 1;
    cr_assert(eq(int, rp_store_add_run(store, &run, NULL), RP_OK));
    rp_store_close(store);
    cr_expect(eq(str, ask("SELECT count(*) FROM summary"), "3"));
    cr_expect(eq(str, ask("SELECT count(*) FROM latest"), "2"));
    cr_expect(eq(str, ask("SELECT run_id FROM latest WHERE schedule = 'gpipe'"), "2"));
    cr_expect(eq(str, ask("SELECT fill_pct FROM latest WHERE schedule = 'gpipe'"), "10.0"));
    cr_expect(
        eq(str, ask("SELECT group_concat(schedule || makespan_ms) FROM best"), "roundpipe3.5"));
}

Test(store, bad_json_adds_nothing)
{
    rp_store *store;
    rp_store_run run = make_run("1f1b");
    run.config_json = "{";
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    expect_failure(rp_store_add_run(store, &run, NULL), RP_DATABASE, "json_valid");
    run = make_run("1f1b");
    cr_expect(eq(int, rp_store_add_run(store, &run, NULL), RP_OK), "the store works on");
    rp_store_close(store);
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "1"));
}

/* The second metric is a repetition: neither run nor first metric may stay. */
Test(store, all_or_nothing)
{
    static const rp_store_metric twice[] = {{"a", false, 1, 0}, {"a", false, 2, 0}};
    rp_store *store;
    rp_store_run run = make_run("1f1b");
    run.metrics = twice;
    run.metric_count = 2;
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    expect_failure(rp_store_add_run(store, &run, NULL), RP_DATABASE, "UNIQUE");
    rp_store_close(store);
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "0"));
    cr_expect(eq(str, ask("SELECT count(*) FROM metrics"), "0"));
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A child takes the write lock, reports through the pipe, and keeps it for `hold_us`. */
static pid_t hold_lock(unsigned hold_us)
{
    int ready[2];
    char byte;
    cr_assert(eq(int, pipe(ready), 0));
    pid_t child = fork();
    if (child == 0) {
        sqlite3 *database;
        sqlite3_open(path, &database);
        int code = sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        bool told = write(ready[1], "x", 1) == 1;
        usleep(hold_us);
        sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
        sqlite3_close(database);
        _exit(code == SQLITE_OK && told ? 0 : 1);
    }
    cr_assert(eq(int, (int)read(ready[0], &byte, 1), 1));
    close(ready[0]);
    close(ready[1]);
    return child;
}

Test(store, second_writer_waits)
{
    cr_assert(eq(int, add("first", 0), RP_OK));
    pid_t child = hold_lock(500000);
    double begun_s = now_s();
    cr_expect(eq(int, add("second", 20000), RP_OK), "%s", messages);
    double waited_s = now_s() - begun_s;
    int status;
    waitpid(child, &status, 0);
    cr_expect(eq(int, status, 0));
    cr_expect(waited_s > 0.3 && waited_s < 15, "it waited %g s", waited_s);
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "2"));
}

Test(store, locked_for_too_long)
{
    cr_assert(eq(int, add("first", 0), RP_OK));
    pid_t child = hold_lock(1500000);
    expect_failure(add("second", 100), RP_DATABASE, "locked by another program");
    waitpid(child, NULL, 0);
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "1"));
}

/* Eight processes create the same database at once and add 5 runs each. The race to create it lasts
 * a few microseconds, hence the rounds. */
Test(store, many_writers)
{
    for (int round = 0; round < 20; round++) {
        unlink(path);
        for (int i = 0; i < 8; i++) {
            if (fork() == 0) {
                rp_status status = RP_OK;
                for (int k = 0; k < 5 && status == RP_OK; k++) {
                    status = add("1f1b", 30000);
                }
                _exit(status == RP_OK ? 0 : 1);
            }
        }
        for (int i = 0; i < 8; i++) {
            int status;
            wait(&status);
            cr_expect(eq(int, status, 0));
        }
        cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "40"));
    }
}

/* A stranger's file: its triggers do not run, but its own rows of runs still get a latest run
 * (results_newer). */
Test(store, triggers_of_strangers_do_not_run)
{
    cr_assert(eq(int, add("first", 0), RP_OK));
    ask("CREATE TRIGGER planted AFTER INSERT ON runs BEGIN DELETE FROM results; END");
    ask("DROP TRIGGER results_newer");
    ask("CREATE TRIGGER results_newer AFTER INSERT ON results BEGIN"
        " UPDATE runs SET schedule = 'changed'; END");
    cr_assert(eq(int, add("first", 0), RP_OK), "%s", messages);
    cr_expect(eq(str, ask("SELECT group_concat(schedule) FROM runs"), "first,first"));
    cr_expect(eq(str, ask("SELECT group_concat(latest) FROM results"), "0,1"));
}

/* No release has written version 2. */
Test(store, version_before_the_first_release)
{
    cr_assert(eq(int, add("first", 0), RP_OK));
    ask("PRAGMA user_version = 2");
    expect_failure(add("second", 0), RP_INPUT, "version 2, which no release has written");
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "1"));
    cr_expect(eq(str, ask("PRAGMA user_version"), "2"));
}

/* A store of release 0.2.0 keeps its runs; its views show new columns. */
Test(store, brings_version_3_up_to_date)
{
    sqlite3 *database = NULL;
    char stamp[64];
    snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d", RP_STORE_APPLICATION_ID);
    cr_assert(eq(int, sqlite3_open(path, &database), SQLITE_OK));
    for (const char *const *part = rp_store_tables; *part != NULL; part++) {
        cr_assert(eq(int, sqlite3_exec(database, *part, NULL, NULL, NULL), SQLITE_OK));
    }
    sqlite3_close(database);
    ask("CREATE VIEW summary AS SELECT run_id FROM results");
    ask("INSERT INTO runs (host, program, version, command, config_json, seed, schedule, gpus,"
        " microbatches, microbatch_size, seq_len, iterations, ops, program_hash)"
        " VALUES ('h', 'rpsim', '0.2.0', 'rpsim', '{}', '0', 'old', 1, 1, 1, 1, 1, 1, '0')");
    ask("INSERT INTO metrics VALUES (1, 'host_memory_bytes', 512)");
    ask("INSERT INTO results (run_id, configuration, cell, created_utc, program, schedule, gpus,"
        " microbatches, microbatch_size, seq_len, iterations, ops, seed)"
        " VALUES (1, 1, 1, '', 'rpsim', 'old', 1, 1, 1, 1, 1, 1, '0')");
    ask(stamp);
    ask("PRAGMA user_version = 3");
    cr_assert(eq(int, add("new", 0), RP_OK), "%s", messages);
    cr_expect(eq(str, ask("PRAGMA user_version"), "4"));
    cr_expect(eq(str, ask("PRAGMA integrity_check"), "ok"));
    cr_expect(eq(str,
                 ask("SELECT group_concat(schedule || ifnull(host_memory_bytes, '-')) FROM latest"),
                 "old512,new-"));
}

/* Points are found again, replaced after a failure, kept after a run. */
Test(store, points)
{
    rp_store *store = NULL;
    int64_t experiment = 0;
    uint64_t present = 7;
    rp_store_point_state state;
    const rp_store_metric metric = {.name = "answer", .integer = 42};
    const rp_store_run run = {.program = "rpsim",
                              .version = "0",
                              .command = "rpsim --gpus 2",
                              .config_json = "{}",
                              .schedule = "1f1b",
                              .gpus = 2,
                              .metrics = &metric,
                              .metric_count = 1};
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_experiment(store, "e", NULL, "file", &experiment, &present), RP_OK));
    cr_expect(eq(u64, present, 0));
    cr_assert(eq(int, rp_store_begin(store), RP_OK));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "a", NULL, &run, 1), RP_OK));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "b", "why", NULL, 0), RP_OK));
    cr_assert(eq(int, rp_store_end(store, RP_OK), RP_OK), "%s", messages);
    cr_assert(eq(int, rp_store_find_point(store, experiment, "a", &state), RP_OK));
    cr_expect(eq(int, state, RP_STORE_POINT_DONE));
    cr_assert(eq(int, rp_store_find_point(store, experiment, "b", &state), RP_OK));
    cr_expect(eq(int, state, RP_STORE_POINT_FAILED));
    cr_assert(eq(int, rp_store_find_point(store, experiment, "c", &state), RP_OK));
    cr_expect(eq(int, state, RP_STORE_POINT_UNKNOWN));
    cr_assert(eq(int, rp_store_begin(store), RP_OK));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "a", NULL, &run, 1), RP_OK));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "b", NULL, &run, 1), RP_OK));
    cr_assert(eq(int, rp_store_end(store, RP_OK), RP_OK), "%s", messages);
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "2"));
    cr_expect(eq(str, ask("SELECT count(*) FROM points WHERE failure IS NULL"), "2"));
    cr_expect(eq(str, ask("SELECT sum(value) FROM metrics"), "84"));
    cr_assert(eq(int, rp_store_begin(store), RP_OK));
    cr_assert(eq(int, rp_store_add_point(store, experiment, "c", NULL, &run, 1), RP_OK));
    cr_assert(eq(int, rp_store_end(store, RP_TOOL), RP_TOOL));
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "2"));
    cr_assert(eq(int, rp_store_experiment(store, "e", "?", "file", &experiment, &present), RP_OK));
    cr_expect(eq(u64, present, 2));
    rp_store_close(store);
}

Test(store, newer_version)
{
    cr_assert(eq(int, add("first", 0), RP_OK));
    ask("PRAGMA user_version = 5");
    expect_failure(add("second", 0), RP_INPUT, "version 5");
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "1"));
}

Test(store, database_of_another_application)
{
    ask("CREATE TABLE cats (name)");
    expect_failure(add("1f1b", 0), RP_INPUT, "another application");
    cr_expect(eq(str, ask("SELECT count(*) FROM sqlite_schema"), "1"));
    cr_expect(eq(str, ask("PRAGMA journal_mode"), "delete"), "it must not be touched");
}

Test(store, not_a_database)
{
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 300; i++) {
        fprintf(file, "schedule,model,makespan_ms\n");
    }
    fclose(file);
    expect_failure(add("1f1b", 0), RP_INPUT, "file is not a database");
}

Test(store, places_that_cannot_be)
{
    const char *good = path;
    path = rp_test_path(folder, "none/runs.db");
    expect_failure(add("1f1b", 0), RP_INPUT, "unable to open database file");
    path = folder;
    expect_failure(add("1f1b", 0), RP_INPUT, "not a regular file");
    path = good;
    cr_expect(eq(sz, rp_test_remove(folder), 0));
}

Test(store, read_only)
{
    cr_assert(eq(int, add("first", 0), RP_OK));
    chmod(path, 0444);
    if (access(path, W_OK) == 0) {
        rp_test_remove(folder); /* a skipped test does not get to its end */
        cr_skip("this user may write everything");
    }
    expect_failure(add("second", 0), RP_INPUT, "read-only");
}

/* The file may not grow, as on a full disk: the run is refused, others stay. */
Test(store, disk_full)
{
    rp_store *store;
    rp_store_run run = make_run("first");
    cr_assert(eq(int, rp_store_open(path, &store), RP_OK));
    cr_assert(eq(int, rp_store_add_run(store, &run, NULL), RP_OK));
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &limit);
    rp_status status = rp_store_add_run(store, &run, NULL);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_FSIZE, &limit);
    expect_failure(status, RP_DATABASE, "cannot");
    cr_expect(eq(int, rp_store_add_run(store, &run, NULL), RP_OK), "%s", messages);
    rp_store_close(store);
    cr_expect(eq(str, ask("SELECT count(*) FROM runs"), "2"));
    cr_expect(eq(str, ask("PRAGMA integrity_check"), "ok"));
}
