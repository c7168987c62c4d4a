#define _GNU_SOURCE /* gethostname */
#include "common/store.h"

#include "common/log.h"
#include "common/store_inside.h"
#include "common/store_schema.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY_MS 10 /* between attempts that SQLite does not wait for by itself */

/* Statements that are used for every run, prepared once. */
typedef enum cached {
    ADD_RUN,
    ADD_METRIC,
    FIND_POINT,
    ADD_POINT,
    DROP_FAILURE,
} cached;

static const char *const cached_sql[RP_STORE_CACHED_COUNT] = {
    [ADD_RUN] =
        "INSERT INTO runs (created_utc, host, program, version, command, config_json, seed, "
        "schedule,"
        " model, platform, costs, partition, fidelity, recompute, optimizer,"
        " program_hash, gpus, microbatches, microbatch_size, seq_len, iterations, ops, point_id)"
        " VALUES (coalesce(?, strftime('%Y-%m-%dT%H:%M:%fZ', "
        "'now')),?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
        "?,?,?,?)",
    [ADD_METRIC] = "INSERT INTO metrics (run_id, name, value) VALUES (?,?,?)",
    [FIND_POINT] = "SELECT failure IS NOT NULL FROM points WHERE experiment_id = ? AND command = ?",
    [ADD_POINT] = "INSERT INTO points (experiment_id, command, failure) VALUES (?,?,?)"
                  " ON CONFLICT DO NOTHING",
    [DROP_FAILURE] = "DELETE FROM points WHERE experiment_id = ? AND command = ?"
                     " AND failure IS NOT NULL",
};

/* ---- calls ---- */

/* What a result code means for the user: whether his input is at fault or the machine. */
static rp_status status_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return RP_INPUT;
    case SQLITE_NOMEM:
        return RP_NO_MEMORY;
    default:
        return RP_DATABASE;
    }
}

rp_status rp_store_fail(const rp_store *store, const char *doing, int code)
{
    const char *text = store->database != NULL ? sqlite3_errmsg(store->database) : NULL;
    bool locked = (code & 0xff) == SQLITE_BUSY;
    rp_log_error("%s: cannot %s: %s%s", store->path, doing,
                 text != NULL ? text : sqlite3_errstr(code),
                 locked ? " by another program for too long" : "");
    return status_of(code);
}

static rp_status execute(rp_store *store, const char *doing, const char *sql)
{
    int code = sqlite3_exec(store->database, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? RP_OK : rp_store_fail(store, doing, code);
}

/* For the switch to WAL, where SQLite reports a lock at once. */
static rp_status execute_patiently(rp_store *store, const char *doing, const char *sql)
{
    for (int waited_ms = 0;; waited_ms += RETRY_MS) {
        int code = sqlite3_exec(store->database, sql, NULL, NULL, NULL);
        if (code == SQLITE_OK) {
            return RP_OK;
        }
        if ((code & 0xff) != SQLITE_BUSY || waited_ms >= store->wait_ms) {
            return rp_store_fail(store, doing, code);
        }
        sqlite3_sleep(RETRY_MS);
    }
}

rp_status rp_store_prepare(rp_store *store, const char *doing, const char *sql,
                           sqlite3_stmt **statement_out)
{
    int code = sqlite3_prepare_v2(store->database, sql, -1, statement_out, NULL);
    return code == SQLITE_OK ? RP_OK : rp_store_fail(store, doing, code);
}

/* The integer that a statement of one row and column gives. */
static rp_status query(rp_store *store, const char *doing, const char *sql, int64_t *value_out)
{
    sqlite3_stmt *statement;
    RP_TRY(rp_store_prepare(store, doing, sql, &statement));
    int code = sqlite3_step(statement);
    rp_status status = RP_OK;
    if (code == SQLITE_ROW) {
        *value_out = sqlite3_column_int64(statement, 0);
    } else {
        status = rp_store_fail(store, doing, code);
    }
    sqlite3_finalize(statement);
    return status;
}

/* ---- opening ---- */

static rp_status refuse(const rp_store *store, const char *cause)
{
    rp_log_error("%s: %s", store->path, cause);
    return RP_INPUT;
}

/* Ours and not too new; writes nothing. */
static rp_status check_identity(rp_store *store, int64_t *version_out)
{
    int64_t tables = 0;
    int64_t application = 0;
    RP_TRY(query(store, "read its version", "PRAGMA user_version", version_out));
    RP_TRY(query(store, "read its application", "PRAGMA application_id", &application));
    RP_TRY(query(store, "read its schema", "SELECT count(*) FROM sqlite_schema", &tables));
    bool is_new = *version_out == 0 && application == 0 && tables == 0;
    if (!is_new && (application != RP_STORE_APPLICATION_ID || *version_out < 1)) {
        return refuse(store, "this SQLite database belongs to another application; valid are "
                             "databases of this program and names of new files");
    }
    if (*version_out > RP_STORE_VERSION) {
        rp_log_error("%s: the database has version %" PRId64 "; this program knows versions up to "
                     "%d: use a newer one",
                     store->path, *version_out, RP_STORE_VERSION);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status end_transaction(rp_store *store, rp_status status)
{
    if (status == RP_OK) {
        status = execute(store, "commit", "COMMIT");
    }
    if (status != RP_OK) {
        /* after some failures SQLite has rolled back by itself, then this changes nothing */
        (void)sqlite3_exec(store->database, "ROLLBACK", NULL, NULL, NULL);
    }
    return status;
}

/* As check_identity, in one transaction: another process that creates the database meanwhile must
 * not show its version in one answer and not yet in the other. */
static rp_status look(rp_store *store, int64_t *version_out)
{
    RP_TRY(execute(store, "begin to read", "BEGIN"));
    return end_transaction(store, check_identity(store, version_out));
}

static rp_status migrate_from(rp_store *store, int64_t version)
{
    char stamp[96];
    for (int64_t v = version; v < RP_STORE_VERSION; v++) {
        RP_TRY(execute(store, "make its tables", rp_store_migrations[v]));
    }
    snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             RP_STORE_APPLICATION_ID, RP_STORE_VERSION);
    return execute(store, "write its version", stamp);
}

/* Another process may migrate between our look and our lock, so the version is read again inside.
 */
static rp_status migrate(rp_store *store)
{
    int64_t version;
    RP_TRY(look(store, &version));
    if (version == RP_STORE_VERSION) {
        return RP_OK;
    }
    RP_TRY(execute(store, "lock it", "BEGIN IMMEDIATE"));
    rp_status status = check_identity(store, &version);
    if (status == RP_OK) {
        status = migrate_from(store, version);
    }
    return end_transaction(store, status);
}

static rp_status check_path(const rp_store *store)
{
    struct stat found;
    if (stat(store->path, &found) == 0 && !S_ISREG(found.st_mode)) {
        return refuse(store, "cannot be opened: not a regular file");
    }
    return RP_OK;
}

static rp_status open_database(rp_store *store)
{
    int64_t version;
    RP_TRY(check_path(store));
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int code = sqlite3_open_v2(store->path, &store->database, flags, NULL);
    if (code != SQLITE_OK) {
        return rp_store_fail(store, "open it", code);
    }
    sqlite3_extended_result_codes(store->database, 1);
    sqlite3_busy_timeout(store->database, store->wait_ms);
    RP_TRY(look(store, &version));
    if (sqlite3_db_readonly(store->database, "main") == 1) {
        return refuse(store, "the database is read-only");
    }
    RP_TRY(execute_patiently(store, "set its journal to WAL", "PRAGMA journal_mode = WAL"));
    RP_TRY(execute(store, "set it up", "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON"));
    return migrate(store);
}

rp_status rp_store_open_wait(const char *path, int wait_ms, rp_store **store_out)
{
    rp_store *store = NULL;
    *store_out = NULL;
    RP_TRY(rp_mem_resize(&store, sizeof *store));
    *store = (rp_store){.wait_ms = wait_ms};
    rp_status status = rp_mem_resize(&store->path, strlen(path) + 1);
    if (status == RP_OK) {
        strcpy(store->path, path);
        status = open_database(store);
    }
    if (status != RP_OK) {
        rp_store_close(store);
        return status;
    }
    *store_out = store;
    return RP_OK;
}

rp_status rp_store_open(const char *path, rp_store **store_out)
{
    return rp_store_open_wait(path, RP_STORE_WAIT_MS, store_out);
}

void rp_store_close(rp_store *store)
{
    if (store != NULL) {
        for (int i = 0; i < RP_STORE_CACHED_COUNT; i++) {
            sqlite3_finalize(store->statements[i]);
        }
        sqlite3_close(store->database);
        rp_mem_release(&store->path);
        rp_mem_release(&store);
    }
}

/* ---- adding ---- */

/* Binds in the order of the columns; the first failure sticks. */
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
    sqlite3_reset(*statement); /* after a failure it is still where it failed */
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
                                 hash};
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

/* point 0: of none. */
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
    note(&b, point != 0 ? sqlite3_bind_int64(b.statement, b.next, point)
                        : sqlite3_bind_null(b.statement, b.next));
    return step(store, "add a run", &b);
}

static rp_status add_metric(rp_store *store, binder *b, int64_t run_id,
                            const rp_store_metric *metric)
{
    bind_integer(b, run_id);
    bind_text(b, metric->name);
    if (metric->is_real && isnan(metric->real)) {
        note(b, sqlite3_bind_null(b->statement, b->next++));
    } else if (metric->is_real) {
        note(b, sqlite3_bind_double(b->statement, b->next++, metric->real));
    } else {
        bind_integer(b, metric->integer);
    }
    return step(store, "add a metric", b);
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

static rp_status add_run(rp_store *store, const rp_store_run *run, int64_t point,
                         const rp_timeline *timeline_or_null)
{
    RP_TRY(add_run_row(store, run, point));
    int64_t run_id = sqlite3_last_insert_rowid(store->database);
    RP_TRY(add_metrics(store, run_id, run));
    return timeline_or_null != NULL ? add_ops(store, run_id, timeline_or_null) : RP_OK;
}

rp_status rp_store_begin(rp_store *store)
{
    return execute(store, "lock it", "BEGIN IMMEDIATE");
}

rp_status rp_store_end(rp_store *store, rp_status status)
{
    return end_transaction(store, status);
}

rp_status rp_store_add_run(rp_store *store, const rp_store_run *run,
                           const rp_timeline *timeline_or_null)
{
    RP_TRY(rp_store_begin(store));
    return end_transaction(store, add_run(store, run, 0, timeline_or_null));
}

/* ---- experiments ---- */

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
    return end_transaction(store,
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

static rp_status add_point(rp_store *store, int64_t experiment, const char *command,
                           const char *failure, const rp_store_run *runs, uint32_t run_count)
{
    RP_TRY(point_step(store, DROP_FAILURE, experiment, command, NULL));
    RP_TRY(point_step(store, ADD_POINT, experiment, command, failure));
    if (sqlite3_changes(store->database) == 0) {
        return RP_OK; /* it has run already: another combination with the same options */
    }
    int64_t point = sqlite3_last_insert_rowid(store->database);
    for (uint32_t i = 0; i < run_count && failure == NULL; i++) {
        RP_TRY(add_run(store, &runs[i], point, NULL));
    }
    return RP_OK;
}

rp_status rp_store_add_point(rp_store *store, int64_t experiment, const char *command,
                             const char *failure_or_null, const rp_store_run *runs,
                             uint32_t run_count)
{
    RP_TRY(execute(store, "add a point", "SAVEPOINT point"));
    rp_status status = add_point(store, experiment, command, failure_or_null, runs, run_count);
    if (status == RP_OK) {
        return execute(store, "add a point", "RELEASE point");
    }
    /* The caller keeps the points before this one: a part of a point, committed with them, would
     * pass for the whole. Of some errors SQLite has rolled everything back itself. */
    if (sqlite3_get_autocommit(store->database) == 0) {
        (void)sqlite3_exec(store->database, "ROLLBACK TO point; RELEASE point", NULL, NULL, NULL);
    }
    return status;
}
