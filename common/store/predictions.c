#include "common/store/predictions.h"

#include "common/store/store_internal.h"

/* SQL: the settings of a run's JSON that `keys` allows and that differ from rpexec's defaults.
 * Prediction and measurement belong to the same run and program, so that pieces are the same in
 * both; runs with pieces of other sizes are other configurations. */
#define SETTINGS(keys)                                                                             \
    "coalesce((SELECT group_concat(setting, ' ') FROM (SELECT key || '=' || value AS setting"      \
    " FROM json_each(runs.config_json) WHERE type <> 'null' AND value NOT IN (0, '') AND " keys    \
    " AND setting NOT IN ('dtype=fp32', 'accumulate=1', 'transport=auto', 'attention=own', "       \
    "'piece_mb=256', 'data_parallel=1', 'tensor_parallel=1',"                                      \
    " 'device=host threads', 'grain=stage', 'reduce_each=step', 'partition=even', 'round=all')"    \
    " ORDER BY key)), '')"

/* Settings of a schedule, without its name and its recompute mode. */
#define OF_SCHEDULE "'grain', 'partition', 'round', 'reduce_each', 'program_in'"

/* Settings that have their own column or no effect on times; predictions may come from many
 * records. */
#define OF_NONE                                                                                    \
    "'schedule', 'backend', 'gpus', 'microbatches', 'model', 'steps', 'microbatch_size',"          \
    " 'seq_len', 'optimizer', 'recompute', 'seed', 'data', 'lr', 'weight_decay', 'lora_alpha',"    \
    " 'betas', 'eps', 'lr_schedule', 'warmup_steps', 'weight_decay_of', 'eval_data',"              \
    " 'eval_every', 'gpu_memory_mb', 'staged', 'costs'"

/* The last column gives the number of rows, which is needed before the first row is kept. */
static const char rows_sql[] =
    "SELECT coalesce(model, ''), coalesce(fidelity, ''), coalesce(optimizer, ''), schedule,"
    " " SETTINGS("key NOT IN (" OF_NONE ", " OF_SCHEDULE ")") ", " SETTINGS(
        "key IN (" OF_SCHEDULE
        ")") ", coalesce(recompute, ''), gpus,"
             " microbatches, microbatch_size, seq_len, p.value / 1e9, m.value / 1e9, count(*) OVER "
             "()"
             " FROM runs JOIN metrics AS p ON p.run_id = runs.id AND p.name = "
             "'predicted_iteration_ps'"
             " JOIN metrics AS m ON m.run_id = runs.id AND m.name = 'iteration_median_ps'"
             " WHERE p.value IS NOT NULL AND m.value > 0"
             " ORDER BY 1, 2, 3, microbatch_size, seq_len, gpus, microbatches, 5, schedule, 6, 7, "
             "runs.id";

static rp_status take_row(sqlite3_stmt *s, rp_arena *arena, rp_store_prediction *run)
{
    const char **const texts[] = {&run->model,    &run->backend, &run->optimizer, &run->schedule,
                                  &run->settings, &run->variant, &run->recompute};
    uint32_t *const numbers[] = {&run->gpus, &run->microbatches, &run->microbatch_size,
                                 &run->seq_len};
    for (int i = 0; i < 7; i++) {
        RP_TRY(rp_arena_print(arena, texts[i], "%s", (const char *)sqlite3_column_text(s, i)));
    }
    for (int i = 0; i < 4; i++) {
        *numbers[i] = (uint32_t)sqlite3_column_int64(s, 7 + i);
    }
    run->predicted_ms = sqlite3_column_double(s, 11);
    run->measured_ms = sqlite3_column_double(s, 12);
    return RP_OK;
}

static rp_status read_rows(rp_store *store, sqlite3_stmt *statement, rp_arena *arena,
                           rp_store_prediction **runs_out, uint32_t *count_out)
{
    int code = sqlite3_step(statement);
    uint32_t most = code == SQLITE_ROW ? (uint32_t)sqlite3_column_int64(statement, 13) : 0;
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
