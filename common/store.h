/** @file store.h  Runs in a SQLite database: full configuration, metrics, and ops on request.
 *
 * Tables of schema version 1 (PRAGMA user_version; application_id says that the database is ours):
 *  - runs: one row per run, what it was (config_json is its full configuration);
 *  - metrics (run_id, name, value): integers or reals, units in the names (makespan_ps, …);
 *  - ops (run_id, op, queue, gpu, kind, stage, microbatch, iteration, start_ps, end_ps): timelines.
 * Views: summary (a run and its usual metrics in one row, in ms and percent), latest (the newest
 * run of each configuration), best (the shortest makespan per model and size). The database is in
 * WAL mode; a writer waits for another one for up to a minute.
 */
#pragma once

#include "common/timeline.h"

#define RP_STORE_VERSION 1

/** How long a writer waits for another one. */
#define RP_STORE_WAIT_MS 60000

typedef struct rp_store rp_store;

/** A number with a name. */
typedef struct rp_store_metric {
    const char *name;
    bool is_real; /**< `real` counts, otherwise `integer`; a NaN is stored as NULL */
    int64_t integer;
    double real;
} rp_store_metric;

/** What a run was. Texts are borrowed and may be NULL (stored as NULL) except where stated. */
typedef struct rp_store_run {
    const char *program;     /**< "rpsim", "rpexec"; not NULL */
    const char *version;     /**< of the program; not NULL */
    const char *command;     /**< command line; not NULL */
    const char *config_json; /**< every setting, defaults included: a JSON object; not NULL */
    uint64_t seed;
    const char *schedule; /**< not NULL */
    const char *model;
    const char *platform;
    const char *costs;
    const char *partition;
    const char *fidelity; /**< or the backend of a measured run */
    const char *recompute;
    const char *optimizer;
    uint32_t gpus;
    uint32_t microbatches;
    uint32_t microbatch_size;
    uint32_t seq_len;
    uint32_t iterations;
    uint64_t ops;
    uint64_t program_hash; /**< rp_program_hash; stored as 16 hexadecimal digits */
    const rp_store_metric *metrics;
    size_t metric_count;
} rp_store_run;

/**
 * Opens or creates the database at `path` and brings its schema up to date.
 * @param path a file name as it is, never a URI
 * @param store_out owned by the caller; NULL on failure
 * @retval RP_OK
 * @retval RP_INPUT not a database, one of another application, of a newer version, read-only, or in
 * a folder that does not exist or cannot be written (logged)
 * @retval RP_DATABASE locked for more than a minute, disk full, … (logged with SQLite's text)
 * @retval RP_NO_MEMORY
 */
rp_status rp_store_open(const char *path, rp_store **store_out);

/** As rp_store_open with another time to wait for other writers. */
rp_status rp_store_open_wait(const char *path, int wait_ms, rp_store **store_out);

/**
 * Adds a run in one transaction: all of it or nothing. Time and host are filled in by the store.
 * @param timeline_or_null its ops are stored too
 * @retval RP_OK
 * @retval RP_DATABASE (logged; the database is as before)
 */
rp_status rp_store_add_run(rp_store *store, const rp_store_run *run,
                           const rp_timeline *timeline_or_null);

/** NULL is allowed. */
void rp_store_close(rp_store *store);
