/* Adds values published or measured elsewhere, with which the store compares its runs. */
#include "common/store/store_internal.h"

#include <math.h>

const char *const rp_store_quantities[] = {"makespan_ms",
                                           "bubble_ms",
                                           "bubble_pct",
                                           "fill_ms",
                                           "fill_pct",
                                           "switch_ms",
                                           "switch_pct",
                                           "drain_ms",
                                           "drain_pct",
                                           "intra_ms",
                                           "intra_pct",
                                           "comm_total_ms",
                                           "comm_exposed_ms",
                                           "comm_exposed_pct",
                                           "iteration_ms",
                                           "tokens_per_s",
                                           "peak_gpu_bytes",
                                           "peak_host_bytes",
                                           "max_seqlen",
                                           "max_seqlen_k",
                                           "ops",
                                           NULL};

static int bind(sqlite3_stmt *statement, const rp_store_reference *reference)
{
    const char *const texts[] = {reference->kind,      reference->source,    reference->schedule,
                                 reference->model,     reference->platform,  reference->fidelity,
                                 reference->recompute, reference->optimizer, reference->quantity};
    const uint32_t numbers[] = {reference->gpus, reference->microbatches,
                                reference->microbatch_size, reference->seq_len};
    int place = 1;
    int code = SQLITE_OK;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && code == SQLITE_OK; i++) {
        code = sqlite3_bind_text(statement, place++, texts[i], -1, SQLITE_STATIC);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && code == SQLITE_OK; i++) {
        code = numbers[i] != 0 ? sqlite3_bind_int64(statement, place, numbers[i]) : SQLITE_OK;
        place++;
    }
    if (code == SQLITE_OK && !isnan(reference->value)) {
        code = sqlite3_bind_double(statement, place, reference->value);
    }
    return code;
}

rp_status rp_store_add_reference(rp_store *store, const rp_store_reference *reference)
{
    sqlite3_stmt *statement = NULL;
    RP_TRY(rp_store_prepare(store, "add a reference",
                            "INSERT OR REPLACE INTO reference (kind, source, schedule, model,"
                            " platform, fidelity, recompute, optimizer, quantity, gpus,"
                            " microbatches, microbatch_size, seq_len, value)"
                            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                            &statement));
    int code = bind(statement, reference);
    code = code == SQLITE_OK ? sqlite3_step(statement) : code;
    rp_status status = code == SQLITE_DONE ? RP_OK : rp_store_fail(store, "add a reference", code);
    sqlite3_finalize(statement);
    return status;
}
