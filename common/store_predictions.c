#include "common/store_predictions.h"

#include "common/store_inside.h"

/* The last column tells how many rows there are before the first is kept. */
static const char rows_sql[] =
    "SELECT coalesce(model, ''), coalesce(fidelity, ''), coalesce(optimizer, ''), schedule, gpus,"
    " microbatches, microbatch_size, seq_len, p.value / 1e9, m.value / 1e9, count(*) OVER ()"
    " FROM runs JOIN metrics AS p ON p.run_id = runs.id AND p.name = 'predicted_iteration_ps'"
    " JOIN metrics AS m ON m.run_id = runs.id AND m.name = 'iteration_median_ps'"
    " WHERE p.value IS NOT NULL AND m.value > 0"
    " ORDER BY 1, 2, 3, microbatch_size, seq_len, gpus, microbatches, schedule, runs.id";

static rp_status take_row(sqlite3_stmt *s, rp_arena *arena, rp_store_prediction *run)
{
    const char **const texts[] = {&run->model, &run->backend, &run->optimizer, &run->schedule};
    uint32_t *const numbers[] = {&run->gpus, &run->microbatches, &run->microbatch_size,
                                 &run->seq_len};
    for (int i = 0; i < 4; i++) {
        RP_TRY(rp_arena_print(arena, texts[i], "%s", (const char *)sqlite3_column_text(s, i)));
        *numbers[i] = (uint32_t)sqlite3_column_int64(s, 4 + i);
    }
    run->predicted_ms = sqlite3_column_double(s, 8);
    run->measured_ms = sqlite3_column_double(s, 9);
    return RP_OK;
}

static rp_status read_rows(rp_store *store, sqlite3_stmt *statement, rp_arena *arena,
                           rp_store_prediction **runs_out, uint32_t *count_out)
{
    int code = sqlite3_step(statement);
    uint32_t most = code == SQLITE_ROW ? (uint32_t)sqlite3_column_int64(statement, 10) : 0;
    RP_TRY(rp_arena_alloc(arena, (size_t)most + 1, sizeof **runs_out, runs_out));
    while (code == SQLITE_ROW && *count_out < most) {
        RP_TRY(take_row(statement, arena, &(*runs_out)[(*count_out)++]));
        code = sqlite3_step(statement);
    }
    return code == SQLITE_DONE ? RP_OK : rp_store_fail(store, "read predictions", code);
}

rp_status rp_store_read_predictions(rp_store *store, rp_arena *arena,
                                    rp_store_prediction **runs_out, uint32_t *count_out)
{
    sqlite3_stmt *statement = NULL;
    *runs_out = NULL;
    *count_out = 0;
    RP_TRY(rp_store_prepare(store, "read predictions", rows_sql, &statement));
    rp_status status = read_rows(store, statement, arena, runs_out, count_out);
    sqlite3_finalize(statement);
    return status;
}
