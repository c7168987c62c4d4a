/* Benchmark: the store with as many rows as a large sweep writes, and the time of each view.
 *
 * Usage: bench_store FILE [ROWS [REPETITIONS]] > store.csv
 * FILE is made anew and removed. ROWS (10^7) counts the rows of the tables runs and metrics
 * together; the rows of results and points come on top. The runs are those of
 * experiments/sweep-100k.yaml: each of its 25 schedules and models is simulated once at stage
 * fidelity. Its variations have other factors of the times, with configuration, costs and metrics
 * to match. In every 20 variations, 17 change times, two change only the seed and the number of
 * microbatches, and the last repeats the previous run as a newer run. Every hundredth point fails.
 * The table `reference` has 625 published cells (schedule, model, GPUs, microbatches).
 *
 * To answer a query, a new connection prepares it, steps through ALL rows of the result, and looks
 * at every column of each row. Columns of the CSV: the kind of figure, the query, rows of the
 * result, median and minimum over the repetitions, unit. */
#include "common/base/log.h"
#include "sim/study/record.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COMMIT_POINTS 5000u /* as in rpsweep */
#define MAX_REPETITIONS 101
#define MAX_METRICS 32

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs",
                                        "roundpipe"};
static const char *const models[] = {"qwen3-1.7b", "llama3.1-8b", "gpt-oss-20b", "qwen3-32b",
                                     "qwen3-235b"};
#define SCHEDULES (sizeof schedules / sizeof schedules[0])
#define MODELS (sizeof models / sizeof models[0])
#define TEMPLATES (SCHEDULES * MODELS)

static void require(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "bench: %s\n", rp_status_text(status));
        exit(1);
    }
}

static double clock_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A number from 0.9 to 1.1 that is the same on every machine. */
static double factor_of(uint64_t variation, uint64_t which)
{
    uint64_t x = variation * 4 + which + 1;
    x ^= x >> 12;
    x *= UINT64_C(2685821657736338717);
    x ^= x >> 27;
    x *= UINT64_C(2685821657736338717);
    return 0.9 + 0.2 * (double)(x >> 40) / (double)(1 << 24);
}

static void simulate(const char *schedule, const char *model, rp_arena *arena, rp_store_run *run)
{
    const char *named[] = {model};
    const rp_schedule_type *type = NULL;
    rpsim_setup setup = RPSIM_SETUP_INIT;
    rp_store_run *runs = NULL;
    uint32_t count = 0;
    require(rp_schedule_require("--schedule", schedule, true, &type, NULL));
    require(rpsim_setup_schedule(type, arena, &setup));
    setup.run.hardware = false;
    setup.run.gpus = 8;
    setup.run.microbatches = 16;
    setup.models = named;
    setup.model_count = 1;
    setup.hashes = true;
    require(rpsim_setup_record(&setup, "rpsim", arena, &runs, &count));
    *run = runs[0];
}

typedef struct texts {
    char changes[160];
    char costs[256];
    char command[512];
    char json[4096];
} texts;

/* Gives the configuration another "set". */
static void vary_json(const rp_store_run *template, const char *changes, const char *costs,
                      uint32_t microbatches, texts *t)
{
    char *json = NULL;
    sqlite3 *memory = NULL;
    static sqlite3_stmt *statement;
    if (statement == NULL) { /* lives as long as the benchmark */
        sqlite3_open(":memory:", &memory);
        sqlite3_prepare_v2(memory,
                           "SELECT json_set(?, '$.set', ?, '$.costs', ?, '$.microbatches', ?)", -1,
                           &statement, NULL);
    }
    sqlite3_bind_text(statement, 1, template->config_json, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, changes, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 3, costs, -1, SQLITE_STATIC);
    sqlite3_bind_int(statement, 4, (int)microbatches);
    if (sqlite3_step(statement) == SQLITE_ROW) {
        json = (char *)sqlite3_column_text(statement, 0);
    }
    snprintf(t->json, sizeof t->json, "%s", json != NULL ? json : "{}");
    sqlite3_reset(statement);
}

/* Makes a point of the sweep. */
static void vary(const rp_store_run *template, uint64_t variation, texts *t,
                 rp_store_metric metrics[MAX_METRICS], rp_store_run *run)
{
    uint64_t kind = variation % 20;
    bool changed = kind < 17;
    uint64_t same_as = kind == 19 ? variation - 1 : variation;
    double f = factor_of(same_as, 0);
    *run = *template;
    t->changes[0] = '\0';
    snprintf(t->costs, sizeof t->costs, "%s", template->costs);
    if (changed) {
        double b = factor_of(same_as, 1);
        double h = factor_of(same_as, 2);
        snprintf(t->changes, sizeof t->changes,
                 "costs.bwd_ms*%.4f,costs.fwd_ms*%.4f,costs.head_fwd_ms*%.4f,costs.hop_ms=%.4f", b,
                 f, h, 40 * (b - 0.9));
        snprintf(t->costs, sizeof t->costs,
                 "%s with bwd_ms*%.4f fwd_ms*%.4f head_fwd_ms*%.4f hop_ms=%.4f", template->costs, b,
                 f, h, 40 * (b - 0.9));
    } else {
        run->microbatches = 8 + (uint32_t)(same_as / 20 % 1000);
        run->seed = same_as;
    }
    vary_json(template, changed ? t->changes : NULL, t->costs, run->microbatches, t);
    snprintf(t->command, sizeof t->command,
             "rpsim --set %s --fidelity stage --gpus 8 --microbatches %" PRIu32
             " --model %s --schedule %s --seed %" PRIu64 "%s",
             t->changes, run->microbatches, template->model, template->schedule, variation,
             kind == 19 ? " --repeat" : "");
    for (size_t i = 0; i < template->metric_count; i++) {
        metrics[i] = template->metrics[i];
        metrics[i].integer = (int64_t)((double)metrics[i].integer * f);
        metrics[i].real *= f;
    }
    run->metrics = metrics;
    run->costs = t->costs;
    run->command = t->command;
    run->config_json = t->json;
}

/* @return the number of runs added */
static uint64_t fill(rp_store *store, const rp_store_run templates[TEMPLATES], uint64_t rows)
{
    int64_t experiment = 0;
    uint64_t present = 0;
    uint64_t point = 0;
    uint64_t runs = 0;
    texts t;
    rp_store_metric metrics[MAX_METRICS];
    require(rp_store_experiment(store, "bench", "How fast?", "none", &experiment, &present));
    require(rp_store_begin(store));
    for (uint64_t written = 0; written < rows; point++) {
        rp_store_run run;
        bool fails = point % 100 == 99;
        vary(&templates[point % TEMPLATES], point / TEMPLATES, &t, metrics, &run);
        require(rp_store_add_point(store, experiment, t.command,
                                   fails ? "--microbatches: too few" : NULL, &run, fails ? 0 : 1));
        if (!fails) {
            written += 1 + run.metric_count;
            runs++;
        }
        if (point % COMMIT_POINTS == COMMIT_POINTS - 1) {
            require(rp_store_end(store, RP_OK));
            require(rp_store_begin(store));
        }
    }
    require(rp_store_end(store, RP_OK));
    return runs;
}

static sqlite3 *connect(const char *path)
{
    sqlite3 *database = NULL;
    if (sqlite3_open(path, &database) != SQLITE_OK) {
        fprintf(stderr, "bench: %s: %s\n", path, sqlite3_errmsg(database));
        exit(1);
    }
    return database;
}

static void add_references(const char *path)
{
    char *message = NULL;
    sqlite3 *database = connect(path);
    if (sqlite3_exec(database,
                     "INSERT INTO reference (source, schedule, model, platform, fidelity, gpus,"
                     " microbatches, quantity, value) SELECT 'bench', schedule, model, platform,"
                     " fidelity, gpus, microbatches, 'tokens_per_s', tokens_per_s * 1.1 FROM"
                     " (SELECT *, row_number() OVER (PARTITION BY schedule, model, microbatches)"
                     "  AS number FROM latest WHERE changes IS NULL AND microbatches < 33)"
                     " WHERE number = 1",
                     NULL, NULL, &message) != SQLITE_OK) {
        fprintf(stderr, "bench: %s\n", message);
        exit(1);
    }
    sqlite3_close(database);
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Steps through the whole result. @return its number of rows */
static uint64_t answer(const char *path, const char *sql)
{
    static volatile int seen;
    sqlite3_stmt *statement = NULL;
    uint64_t rows = 0;
    sqlite3 *database = connect(path);
    if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) != SQLITE_OK) {
        fprintf(stderr, "bench: %s: %s\n", sql, sqlite3_errmsg(database));
        exit(1);
    }
    int columns = sqlite3_column_count(statement);
    for (; sqlite3_step(statement) == SQLITE_ROW; rows++) {
        for (int i = 0; i < columns; i++) {
            seen = seen + sqlite3_column_type(statement, i);
        }
    }
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return rows;
}

static void measure(const char *path, const char *sql, uint32_t repetitions)
{
    double wall_s[MAX_REPETITIONS];
    double cpu_s[MAX_REPETITIONS];
    uint64_t rows = 0;
    for (uint32_t i = 0; i < repetitions; i++) {
        double wall = clock_s(CLOCK_MONOTONIC);
        double cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        rows = answer(path, sql);
        wall_s[i] = clock_s(CLOCK_MONOTONIC) - wall;
        cpu_s[i] = clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    }
    qsort(wall_s, repetitions, sizeof *wall_s, by_size);
    qsort(cpu_s, repetitions, sizeof *cpu_s, by_size);
    printf("answer,%s,%" PRIu64 ",%.4f,%.4f,s\n", sql, rows, wall_s[repetitions / 2], wall_s[0]);
    printf("answer_cpu,%s,%" PRIu64 ",%.4f,%.4f,s\n", sql, rows, cpu_s[repetitions / 2], cpu_s[0]);
    fflush(stdout);
}

static void remove_store(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

int main(int argc, char **argv)
{
    /* No query has a comma, because the CSV quotes no field. */
    static const char *const queries[] = {
        "SELECT * FROM best",
        "SELECT * FROM wins",
        "SELECT * FROM failures",
        "SELECT * FROM error_per_cell",
        "SELECT * FROM latest",
        "SELECT * FROM summary",
        "SELECT count(*) FROM summary",
        "SELECT * FROM summary WHERE model = 'qwen3-32b' AND schedule = 'roundpipe'",
        "SELECT * FROM best WHERE model = 'qwen3-32b'",
        "SELECT * FROM runs WHERE id = 4242",
        "SELECT * FROM metrics WHERE run_id = 4242",
    };
    const char *path = argc > 1 ? argv[1] : NULL;
    uint64_t rows = argc > 2 ? (uint64_t)strtod(argv[2], NULL) : 10000000;
    uint32_t repetitions = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 5;
    if (path == NULL || rows == 0 || repetitions == 0 || repetitions > MAX_REPETITIONS) {
        fputs("usage: bench_store FILE [ROWS [REPETITIONS]]\n", stderr);
        return 2;
    }
    rp_arena *arena = NULL;
    rp_store *store = NULL;
    rp_store_run templates[TEMPLATES];
    require(rp_arena_create(&arena));
    for (size_t i = 0; i < TEMPLATES; i++) {
        simulate(schedules[i % SCHEDULES], models[i / SCHEDULES], arena, &templates[i]);
    }
    remove_store(path);
    require(rp_store_open(path, &store));
    double wall = clock_s(CLOCK_MONOTONIC);
    double cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t runs = fill(store, templates, rows);
    rp_store_close(store);
    wall = clock_s(CLOCK_MONOTONIC) - wall;
    cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    add_references(path);
    struct stat file;
    require(stat(path, &file) == 0 ? RP_OK : RP_IO);
    puts("quantity,case,rows,median,minimum,unit");
    printf("insert,runs and metrics,%" PRIu64 ",%.0f,,rows/s\n", rows, (double)rows / wall);
    printf("insert_cpu,runs and metrics,%" PRIu64 ",%.0f,,rows/s of CPU time\n", rows,
           (double)rows / cpu);
    printf("insert,runs,%" PRIu64 ",%.0f,,runs/s\n", runs, (double)runs / wall);
    printf("size,file,%" PRIu64 ",%.0f,,bytes\n", rows, (double)file.st_size);
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        measure(path, queries[i], repetitions);
    }
    remove_store(path);
    rp_arena_destroy(arena);
    return 0;
}
