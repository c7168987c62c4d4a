/* Reads runs back from a store, and merges other stores. */
#include "common/base/log.h"
#include "common/store/store_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- runs ------------------------------------------------------------------------------------ */

static rp_status text_at(sqlite3_stmt *statement, int column, rp_arena *arena, const char **out)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    *out = NULL;
    return text != NULL ? rp_arena_copy_text(arena, text, strlen(text), out) : RP_OK;
}

static rp_status read_run(sqlite3_stmt *statement, rp_arena *arena, rp_store_run *run)
{
    const char **const texts[] = {
        &run->created_utc, &run->host,     &run->program,   &run->version,   &run->command,
        &run->config_json, &run->schedule, &run->model,     &run->platform,  &run->costs,
        &run->partition,   &run->fidelity, &run->recompute, &run->optimizer, &run->git_commit};
    uint32_t *const sizes[] = {&run->gpus, &run->microbatches, &run->microbatch_size, &run->seq_len,
                               &run->iterations};
    int column = 1;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        RP_TRY(text_at(statement, column++, arena, texts[i]));
    }
    if (run->git_commit == NULL) { /* for adding, NULL would mean this build's commit */
        run->git_commit = "unknown";
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *sizes[i] = (uint32_t)sqlite3_column_int64(statement, column++);
    }
    run->ops = (uint64_t)sqlite3_column_int64(statement, column++);
    const char *seed = (const char *)sqlite3_column_text(statement, column++);
    run->seed = seed != NULL ? strtoull(seed, NULL, 10) : 0;
    const char *hash = (const char *)sqlite3_column_text(statement, column++);
    run->program_hash = hash != NULL ? strtoull(hash, NULL, 16) : 0;
    run->duration_s = sqlite3_column_double(statement, column++); /* NULL is read as 0 */
    run->metric_count = (size_t)sqlite3_column_int64(statement, column++);
    return RP_OK;
}

static rp_status read_metric(sqlite3_stmt *statement, rp_arena *arena, rp_store_metric *metric)
{
    RP_TRY(text_at(statement, 0, arena, &metric->name));
    int type = sqlite3_column_type(statement, 1);
    metric->is_real = type != SQLITE_INTEGER;
    metric->integer = metric->is_real ? 0 : sqlite3_column_int64(statement, 1);
    metric->real = type == SQLITE_NULL ? strtod("nan", NULL) : sqlite3_column_double(statement, 1);
    return RP_OK;
}

static rp_status read_metrics(rp_store *store, int64_t id, rp_arena *arena, rp_store_run *run)
{
    rp_store_metric *metrics = NULL;
    sqlite3_stmt *statement = NULL;
    RP_TRY(rp_arena_alloc(arena, run->metric_count, sizeof *metrics, &metrics));
    RP_TRY(rp_store_prepare(store, "read metrics",
                            "SELECT name, value FROM metrics WHERE run_id = ? ORDER BY name",
                            &statement));
    int code = sqlite3_bind_int64(statement, 1, id);
    rp_status status = RP_OK;
    for (size_t i = 0; i < run->metric_count && code == SQLITE_OK && status == RP_OK; i++) {
        if (sqlite3_step(statement) != SQLITE_ROW) {
            code = sqlite3_errcode(store->database);
            break;
        }
        status = read_metric(statement, arena, &metrics[i]);
    }
    if (code != SQLITE_OK && status == RP_OK) {
        status = rp_store_fail(store, "read metrics", code);
    }
    sqlite3_finalize(statement);
    run->metrics = metrics;
    return status;
}

#define RUN_COLUMNS                                                                                \
    "SELECT id, created_utc, host, program, version, command, config_json, schedule, model,"       \
    " platform, costs, partition, fidelity, recompute, optimizer, git_commit, gpus,"               \
    " microbatches, microbatch_size, seq_len, iterations, ops, seed, program_hash, duration_s,"    \
    " (SELECT count(*) FROM metrics WHERE run_id = runs.id) FROM runs "

/* Counts the rows that a statement gives. */
static rp_status count_rows(rp_store *store, sqlite3_stmt *statement, uint32_t *count_out)
{
    int code = SQLITE_ROW;
    *count_out = 0;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        ++*count_out;
    }
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? RP_OK : rp_store_fail(store, "read runs", code);
}

static rp_status read_rows(rp_store *store, sqlite3_stmt *statement, rp_arena *arena,
                           rp_store_run **runs_out, uint32_t *count_out)
{
    RP_TRY(count_rows(store, statement, count_out));
    RP_TRY(rp_arena_alloc(arena, *count_out, sizeof **runs_out, runs_out));
    for (uint32_t i = 0; i < *count_out; i++) {
        int code = sqlite3_step(statement);
        if (code != SQLITE_ROW) {
            return rp_store_fail(store, "read runs", code);
        }
        int64_t id = sqlite3_column_int64(statement, 0);
        RP_TRY(read_run(statement, arena, &(*runs_out)[i]));
        RP_TRY(read_metrics(store, id, arena, &(*runs_out)[i]));
    }
    return RP_OK;
}

rp_status rp_store_read_runs(rp_store *store, int64_t point, rp_arena *arena,
                             rp_store_run **runs_out, uint32_t *count_out)
{
    sqlite3_stmt *statement = NULL;
    const char *sql = point == 0 ? RUN_COLUMNS "WHERE point_id IS NULL ORDER BY id"
                                 : RUN_COLUMNS "WHERE point_id = ? ORDER BY id";
    RP_TRY(rp_store_prepare(store, "read runs", sql, &statement));
    int code = point != 0 ? sqlite3_bind_int64(statement, 1, point) : SQLITE_OK;
    rp_status status = code == SQLITE_OK ? read_rows(store, statement, arena, runs_out, count_out)
                                         : rp_store_fail(store, "read runs", code);
    sqlite3_finalize(statement);
    return status;
}

/* ---- merging --------------------------------------------------------------------------------- */

static rp_status merge_point(rp_store *store, rp_store *from, int64_t experiment,
                             sqlite3_stmt *points, uint64_t *added)
{
    rp_arena *arena = NULL;
    rp_store_run *runs = NULL;
    uint32_t count = 0;
    rp_store_point_state state = RP_STORE_POINT_UNKNOWN;
    const char *command = (const char *)sqlite3_column_text(points, 1);
    const char *failure = (const char *)sqlite3_column_text(points, 2);
    RP_TRY(rp_store_find_point(store, experiment, command, &state));
    if (state == RP_STORE_POINT_DONE || (state == RP_STORE_POINT_FAILED && failure != NULL)) {
        return RP_OK;
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status =
        rp_store_read_runs(from, sqlite3_column_int64(points, 0), arena, &runs, &count);
    if (status == RP_OK) {
        status = rp_store_add_point(store, experiment, command, failure, runs, count);
    }
    rp_arena_destroy(arena);
    *added += status == RP_OK ? 1 : 0;
    return status;
}

static rp_status merge_points(rp_store *store, rp_store *from, int64_t here, int64_t there,
                              uint64_t *added)
{
    sqlite3_stmt *points = NULL;
    RP_TRY(rp_store_prepare(
        from, "read points",
        "SELECT id, command, failure FROM points WHERE experiment_id = ? ORDER BY id", &points));
    int code = sqlite3_bind_int64(points, 1, there);
    rp_status status = rp_store_begin(store);
    bool begun = status == RP_OK;
    while (code == SQLITE_OK && status == RP_OK && (code = sqlite3_step(points)) == SQLITE_ROW) {
        status = merge_point(store, from, here, points, added);
        code = SQLITE_OK;
    }
    if (status == RP_OK && code != SQLITE_DONE) {
        status = rp_store_fail(from, "read points", code);
    }
    sqlite3_finalize(points);
    return begun ? rp_store_end(store, status) : status;
}

rp_status rp_store_merge(rp_store *store, rp_store *from, uint64_t *added_out)
{
    sqlite3_stmt *experiments = NULL;
    *added_out = 0;
    RP_TRY(rp_store_prepare(from, "read experiments",
                            "SELECT id, name, question, file FROM experiments ORDER BY id",
                            &experiments));
    int code = SQLITE_DONE;
    rp_status status = RP_OK;
    while (status == RP_OK && (code = sqlite3_step(experiments)) == SQLITE_ROW) {
        int64_t id = 0;
        uint64_t unused = 0;
        status =
            rp_store_experiment(store, (const char *)sqlite3_column_text(experiments, 1),
                                (const char *)sqlite3_column_text(experiments, 2),
                                (const char *)sqlite3_column_text(experiments, 3), &id, &unused);
        if (status == RP_OK) {
            status = merge_points(store, from, id, sqlite3_column_int64(experiments, 0), added_out);
        }
    }
    if (status == RP_OK && code != SQLITE_DONE) {
        status = rp_store_fail(from, "read experiments", code);
    }
    sqlite3_finalize(experiments);
    return status;
}
