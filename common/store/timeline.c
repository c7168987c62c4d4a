#include "common/store/timeline.h"

#include "common/base/log.h"
#include "common/store/store_internal.h"

#include <inttypes.h>

/* SQL: the ops of a run, as rows of timeline_csv.h. */
static const char ops_sql[] =
    "SELECT queue, coalesce(gpu, 0), kind, stage, microbatch, iteration, start_ps, end_ps "
    "FROM ops WHERE run_id = ?1 ORDER BY op";

static rp_status count_ops(rp_store *store, int64_t run, uint32_t *count_out)
{
    sqlite3_stmt *statement = NULL;
    RP_TRY(rp_store_prepare(store, "count ops",
                            "SELECT (SELECT count(*) FROM ops WHERE run_id = ?1), "
                            "(SELECT count(*) FROM runs WHERE id = ?1)",
                            &statement));
    sqlite3_bind_int64(statement, 1, run);
    int code = sqlite3_step(statement);
    int64_t ops = sqlite3_column_int64(statement, 0);
    bool known = sqlite3_column_int64(statement, 1) != 0;
    sqlite3_finalize(statement);
    if (code != SQLITE_ROW) {
        return rp_store_fail(store, "count ops", code);
    }
    if (ops <= 0 || ops > RP_MAX_OPS) {
        rp_log_error("%s: %s %" PRId64 "%s; valid are runs stored with {db_ops}", store->path,
                     known ? "run" : "there is no run", run, known ? " has no ops" : "");
        return RP_INPUT;
    }
    *count_out = (uint32_t)ops;
    return RP_OK;
}

static bool take_row(sqlite3_stmt *s, rp_timeline_row *row)
{
    const char *queue = (const char *)sqlite3_column_text(s, 0);
    const char *kind = (const char *)sqlite3_column_text(s, 2);
    const int64_t most[] = {RP_MAX_GPUS, 2 * RP_MAX_STAGES, RP_MAX_MICROBATCHES, RP_MAX_ITERATIONS};
    static const int columns[] = {1, 3, 4, 5};
    bool fits = true;
    for (int i = 0; i < 4; i++) {
        int64_t value = sqlite3_column_int64(s, columns[i]);
        fits = fits && value >= 0 && value < most[i];
    }
    row->gpu = (uint16_t)sqlite3_column_int64(s, 1);
    row->op.stage = (uint16_t)sqlite3_column_int64(s, 3);
    row->op.microbatch = (uint32_t)sqlite3_column_int64(s, 4);
    row->op.iteration = (uint16_t)sqlite3_column_int64(s, 5);
    row->start_ps = sqlite3_column_int64(s, 6);
    row->end_ps = sqlite3_column_int64(s, 7);
    return fits && queue != NULL && kind != NULL && rp_timeline_row_kinds(queue, kind, row) &&
           row->start_ps >= 0 && row->end_ps >= row->start_ps;
}

static rp_status read_rows(rp_store *store, int64_t run, rp_timeline_row *rows, uint32_t count)
{
    sqlite3_stmt *statement = NULL;
    RP_TRY(rp_store_prepare(store, "read ops", ops_sql, &statement));
    sqlite3_bind_int64(statement, 1, run);
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < count && status == RP_OK; i++) {
        int code = sqlite3_step(statement);
        if (code != SQLITE_ROW) {
            status = rp_store_fail(store, "read ops", code);
        } else if (!take_row(statement, &rows[i])) {
            rp_log_error("%s: op %" PRIu32 " of run %" PRId64 " is none of this program's",
                         store->path, i, run);
            status = RP_INPUT;
        }
    }
    sqlite3_finalize(statement);
    return status;
}

rp_status rp_store_read_timeline(rp_store *store, int64_t run, rp_read_timeline *out)
{
    rp_arena *arena = NULL;
    rp_timeline_row *rows = NULL;
    uint32_t count = 0;
    *out = (rp_read_timeline){0};
    RP_TRY(count_ops(store, run, &count));
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, count, sizeof *rows, &rows);
    if (status == RP_OK) {
        status = read_rows(store, run, rows, count);
    }
    if (status == RP_OK) {
        status = rp_timeline_of_rows(store->path, rows, count, out);
    }
    rp_arena_destroy(arena);
    return status;
}
