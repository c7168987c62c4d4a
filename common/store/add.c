/* Adds runs, experiments and their points to a store. */
#define _GNU_SOURCE /* gethostname */
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/store/schema.h"
#include "common/store/store_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Statements that every run uses, prepared only once. */
typedef enum cached {
    ADD_RUN,
    ADD_METRIC,
    FIND_POINT,
    ADD_POINT,
    DROP_FAILURE,
    ADD_RESULT,
    UNDO_RUN,
    UNDO_POINT,
} cached;

#define COLUMN(name, shown) ", " #name
#define PARAMETER(name, shown) ", ?"

static const char *const cached_sql[RP_STORE_CACHED_COUNT] = {
    [ADD_RUN] =
        "INSERT INTO runs (created_utc, host, program, version, command, config_json, seed,"
        " schedule, model, platform, costs, partition, fidelity, recompute, optimizer,"
        " program_hash, git_commit, gpus, microbatches, microbatch_size, seq_len, iterations, ops,"
        " duration_s, point_id) VALUES (coalesce(?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),"
        "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [ADD_RESULT] =
        "INSERT INTO results (run_id, configuration, cell, created_utc, program, schedule, model,"
        " platform, costs, changes, fidelity, recompute, optimizer, partition, gpus,"
        " microbatches, microbatch_size, seq_len, global_batch, iterations, ops, seed, "
        "jitter_cv" RP_STORE_COLUMNS(
            COLUMN) ") SELECT id, " RP_STORE_HASHES ", created_utc, program,"
                    " schedule, model, platform, costs, json_extract(config_json, '$.set'), "
                    "fidelity, "
                    "recompute,"
                    " optimizer, partition, gpus, microbatches, microbatch_size, seq_len,"
                    " json_extract(config_json, '$.global_batch'), iterations, ops, seed,"
                    " json_extract(config_json, '$.jitter_cv')" RP_STORE_COLUMNS(
                        PARAMETER) " FROM runs WHERE id = ?",
    [ADD_METRIC] = "INSERT INTO metrics (run_id, name, value) VALUES (?,?,?)",
    [FIND_POINT] = "SELECT failure IS NOT NULL FROM points WHERE experiment_id = ? AND command = ?",
    [ADD_POINT] = "INSERT INTO points (experiment_id, command, failure) VALUES (?,?,?)"
                  " ON CONFLICT DO NOTHING",
    [DROP_FAILURE] = "DELETE FROM points WHERE experiment_id = ? AND command = ?"
                     " AND failure IS NOT NULL",
    [UNDO_RUN] = "DELETE FROM runs WHERE id = ?",
    [UNDO_POINT] = "DELETE FROM points WHERE id = ?",
};

/* ---- adding ---------------------------------------------------------------------------------- */

/* Binds values in the order of the columns; the first failure is kept. */
typedef struct binder {
    sqlite3_stmt *statement;
    int next;
    int code;
} binder;

static void note(binder *b, int code)
{
    b->code = b->code == SQLITE_OK ? code : b->code;
}

static void bind_text(binder *b, const char *text)
{
    note(b, sqlite3_bind_text(b->statement, b->next++, text, -1, SQLITE_STATIC));
}

static void bind_integer(binder *b, int64_t value)
{
    note(b, sqlite3_bind_int64(b->statement, b->next++, value));
}

static rp_status step(rp_store *store, const char *doing, binder *b)
{
    int code = b->code == SQLITE_OK ? sqlite3_step(b->statement) : b->code;
    if (code != SQLITE_DONE) {
        return rp_store_fail(store, doing, code);
    }
    sqlite3_reset(b->statement);
    b->next = 1;
    return RP_OK;
}

static rp_status take(rp_store *store, const char *doing, cached which, binder *b)
{
    sqlite3_stmt **statement = &store->statements[which];
    if (*statement == NULL) {
        RP_TRY(rp_store_prepare(store, doing, cached_sql[which], statement));
    }
    sqlite3_reset(*statement); /* a failed statement is not reset yet */
    *b = (binder){.statement = *statement, .next = 1};
    return RP_OK;
}

static void bind_run(binder *b, const rp_store_run *run, const char *host, const char *seed,
                     const char *hash)
{
    const char *const texts[] = {run->created_utc,
                                 host,
                                 run->program,
                                 run->version,
                                 run->command,
                                 run->config_json,
                                 seed,
                                 run->schedule,
                                 run->model,
                                 run->platform,
                                 run->costs,
                                 run->partition,
                                 run->fidelity,
                                 run->recompute,
                                 run->optimizer,
                                 hash,
                                 run->git_commit != NULL ? run->git_commit : rp_commit()};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bind_text(b, texts[i]);
    }
    bind_integer(b, run->gpus);
    bind_integer(b, run->microbatches);
    bind_integer(b, run->microbatch_size);
    bind_integer(b, run->seq_len);
    bind_integer(b, run->iterations);
    bind_integer(b, (int64_t)run->ops);
}

/* Adds a run. @param point 0: the run belongs to no point. */
static rp_status add_run_row(rp_store *store, const rp_store_run *run, int64_t point)
{
    char host[256] = "unknown";
    char seed[24];
    char hash[24];
    binder b;
    RP_TRY(take(store, "add a run", ADD_RUN, &b));
    if (run->host != NULL) {
        snprintf(host, sizeof host, "%s", run->host);
    } else if (gethostname(host, sizeof host - 1) != 0) {
        strcpy(host, "unknown");
    }
    snprintf(seed, sizeof seed, "%" PRIu64, run->seed);
    snprintf(hash, sizeof hash, "%016" PRIx64, run->program_hash);
    bind_run(&b, run, host, seed, hash);
    if (run->duration_s > 0) {
        note(&b, sqlite3_bind_double(b.statement, b.next, run->duration_s));
    } else {
        note(&b, sqlite3_bind_null(b.statement, b.next));
    }
    b.next++;
    note(&b, point != 0 ? sqlite3_bind_int64(b.statement, b.next, point)
                        : sqlite3_bind_null(b.statement, b.next));
    return step(store, "add a run", &b);
}

static void bind_value(binder *b, const rp_store_metric *metric)
{
    if (metric->is_real && isnan(metric->real)) {
        note(b, sqlite3_bind_null(b->statement, b->next++));
    } else if (metric->is_real) {
        note(b, sqlite3_bind_double(b->statement, b->next++, metric->real));
    } else {
        bind_integer(b, metric->integer);
    }
}

static rp_status add_metric(rp_store *store, binder *b, int64_t run_id,
                            const rp_store_metric *metric)
{
    bind_integer(b, run_id);
    bind_text(b, metric->name);
    bind_value(b, metric);
    return step(store, "add a metric", b);
}

/* Adds the row that the views read. Its metrics are parameters in the order of RP_STORE_COLUMNS. */
static rp_status add_result(rp_store *store, int64_t run_id, const rp_store_run *run)
{
#define NAME(name, shown) #name,
    static const char *const names[] = {RP_STORE_COLUMNS(NAME)};
#undef NAME
    const int count = (int)(sizeof names / sizeof names[0]);
    binder b;
    RP_TRY(take(store, "add a result", ADD_RESULT, &b));
    note(&b, sqlite3_clear_bindings(b.statement)); /* metrics that the run lacks are NULL */
    for (size_t i = 0; i < run->metric_count; i++) {
        for (int k = 0; k < count; k++) {
            if (strcmp(run->metrics[i].name, names[k]) == 0) {
                b.next = k + 1;
                bind_value(&b, &run->metrics[i]);
            }
        }
    }
    b.next = count + 1;
    bind_integer(&b, run_id);
    return step(store, "add a result", &b);
}

static rp_status add_metrics(rp_store *store, int64_t run_id, const rp_store_run *run)
{
    binder b;
    RP_TRY(take(store, "add a metric", ADD_METRIC, &b));
    for (size_t i = 0; i < run->metric_count; i++) {
        RP_TRY(add_metric(store, &b, run_id, &run->metrics[i]));
    }
    return RP_OK;
}

static rp_status add_op(rp_store *store, binder *b, int64_t run_id, const rp_timeline *timeline,
                        const rp_queue *queue, uint32_t index)
{
    const rp_op *op = &timeline->program->ops[index];
    bind_integer(b, run_id);
    bind_integer(b, index);
    bind_text(b, rp_queue_kind_text(queue->kind));
    if (rp_queue_kind_on_gpu(queue->kind)) {
        bind_integer(b, queue->gpu);
    } else {
        note(b, sqlite3_bind_null(b->statement, b->next++));
    }
    bind_text(b, rp_op_kind_text(op->kind));
    bind_integer(b, op->stage);
    bind_integer(b, op->microbatch);
    bind_integer(b, op->iteration);
    bind_integer(b, timeline->start_ps[index]);
    bind_integer(b, timeline->end_ps[index]);
    return step(store, "add an op", b);
}

static rp_status add_ops(rp_store *store, int64_t run_id, const rp_timeline *timeline)
{
    const rp_program *program = timeline->program;
    binder b = {.next = 1};
    RP_TRY(rp_store_prepare(store, "add an op", "INSERT INTO ops VALUES (?,?,?,?,?,?,?,?,?,?)",
                            &b.statement));
    rp_status status = RP_OK;
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        for (uint32_t op = queue->op_begin; op < queue->op_end && status == RP_OK; op++) {
            status = add_op(store, &b, run_id, timeline, queue, op);
        }
    }
    sqlite3_finalize(b.statement);
    return status;
}

/* A shared transaction commits only whole runs and points: the stored part of a failed run or point
 * is removed; if even that fails, everything since the transaction's begin is undone. (A savepoint
 * for each point would copy every page that it changes.) */
static rp_status undo(rp_store *store, rp_status status, cached which, int64_t id)
{
    binder b;
    if (sqlite3_get_autocommit(store->database) != 0) {
        return status; /* SQLite has already undone the transaction */
    }
    rp_status undone = take(store, "undo", which, &b);
    if (undone == RP_OK) {
        bind_integer(&b, id);
        undone = step(store, "undo", &b);
    }
    return undone == RP_OK ? status : rp_store_end(store, status);
}

/* Adds a run. @param point 0: the run belongs to no point. A part of the run may stay after a
 * failure. */
static rp_status add_run_of(rp_store *store, const rp_store_run *run, int64_t point,
                            const rp_timeline *timeline_or_null, int64_t *id_out)
{
    *id_out = 0;
    RP_TRY(add_run_row(store, run, point));
    *id_out = sqlite3_last_insert_rowid(store->database);
    RP_TRY(add_metrics(store, *id_out, run));
    RP_TRY(add_result(store, *id_out, run));
    return timeline_or_null != NULL ? add_ops(store, *id_out, timeline_or_null) : RP_OK;
}

rp_status rp_store_add_run(rp_store *store, const rp_store_run *run,
                           const rp_timeline *timeline_or_null)
{
    int64_t id = 0;
    bool shared = sqlite3_get_autocommit(store->database) == 0;
    RP_TRY(shared ? RP_OK : rp_store_begin(store));
    rp_status status = add_run_of(store, run, 0, timeline_or_null, &id);
    if (!shared) {
        return rp_store_end(store, status);
    }
    return status == RP_OK || id == 0 ? status : undo(store, status, UNDO_RUN, id);
}

/* ---- experiments ----------------------------------------------------------------------------- */

static rp_status put_experiment(rp_store *store, const char *name, const char *question,
                                const char *file, int64_t *id_out, uint64_t *points_out)
{
    static const char sql[] =
        "INSERT INTO experiments (name, question, file) VALUES (?1,?2,?3)"
        " ON CONFLICT (name) DO UPDATE SET question = ?2, file = ?3"
        " RETURNING id, (SELECT count(*) FROM points WHERE experiment_id = experiments.id)";
    binder b = {.next = 1};
    RP_TRY(rp_store_prepare(store, "add an experiment", sql, &b.statement));
    bind_text(&b, name);
    bind_text(&b, question);
    bind_text(&b, file);
    int code = b.code == SQLITE_OK ? sqlite3_step(b.statement) : b.code;
    rp_status status = RP_OK;
    if (code == SQLITE_ROW) {
        *id_out = sqlite3_column_int64(b.statement, 0);
        *points_out = (uint64_t)sqlite3_column_int64(b.statement, 1);
        code = sqlite3_step(b.statement);
    }
    if (code != SQLITE_DONE) {
        status = rp_store_fail(store, "add an experiment", code);
    }
    sqlite3_finalize(b.statement);
    return status;
}

rp_status rp_store_experiment(rp_store *store, const char *name, const char *question_or_null,
                              const char *file, int64_t *id_out, uint64_t *points_out)
{
    RP_TRY(rp_store_begin(store));
    return rp_store_end(store,
                        put_experiment(store, name, question_or_null, file, id_out, points_out));
}

rp_status rp_store_find_point(rp_store *store, int64_t experiment, const char *command,
                              rp_store_point_state *state_out)
{
    binder b;
    RP_TRY(take(store, "look for a point", FIND_POINT, &b));
    bind_integer(&b, experiment);
    bind_text(&b, command);
    int code = b.code == SQLITE_OK ? sqlite3_step(b.statement) : b.code;
    *state_out = RP_STORE_POINT_UNKNOWN;
    if (code == SQLITE_ROW) {
        bool failed = sqlite3_column_int(b.statement, 0) != 0;
        *state_out = failed ? RP_STORE_POINT_FAILED : RP_STORE_POINT_DONE;
    }
    sqlite3_reset(b.statement);
    return code == SQLITE_ROW || code == SQLITE_DONE
               ? RP_OK
               : rp_store_fail(store, "look for a point", code);
}

static rp_status point_step(rp_store *store, cached which, int64_t experiment, const char *command,
                            const char *failure)
{
    binder b;
    RP_TRY(take(store, "add a point", which, &b));
    bind_integer(&b, experiment);
    bind_text(&b, command);
    if (which == ADD_POINT) {
        bind_text(&b, failure);
    }
    return step(store, "add a point", &b);
}

rp_status rp_store_add_point(rp_store *store, int64_t experiment, const char *command,
                             const char *failure_or_null, const rp_store_run *runs,
                             uint32_t run_count)
{
    int64_t id = 0;
    RP_TRY(point_step(store, DROP_FAILURE, experiment, command, NULL));
    bool replaces = sqlite3_changes(store->database) > 0;
    rp_status status = point_step(store, ADD_POINT, experiment, command, failure_or_null);
    bool added = status == RP_OK && sqlite3_changes(store->database) > 0;
    /* If nothing has changed, the point has run already: another combination with the same
     * options. */
    int64_t point = added ? sqlite3_last_insert_rowid(store->database) : 0;
    run_count = added ? run_count : 0;
    for (uint32_t i = 0; i < run_count && failure_or_null == NULL && status == RP_OK; i++) {
        status = add_run_of(store, &runs[i], point, NULL, &id);
    }
    if (status == RP_OK || (!added && !replaces)) {
        return status;
    }
    /* The old failure record is deleted: only undoing the whole transaction restores it. */
    return replaces ? rp_store_end(store, status) : undo(store, status, UNDO_POINT, point);
}
