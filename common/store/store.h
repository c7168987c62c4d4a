/** @file store.h  Runs in a SQLite database: full configuration, provenance, metrics, and ops on
 * request; experiments and their points; values published or measured elsewhere.
 *
 * Tables, views and units: common/store/README.md. Version 4 (PRAGMA user_version; application_id
 * says that the database is ours). Opening one of version 3 brings it up to date; versions 1 and 2,
 * which no release has written, are refused. The database is in WAL mode; a writer waits for
 * another one for up to a minute (environment: RP_STORE_WAIT_S, seconds).
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

#define RP_STORE_VERSION 4
#define RP_STORE_OLDEST 3 /**< that is brought up to date */

/** Time that a writer waits for another one, unless the environment says otherwise. */
#define RP_STORE_WAIT_MS 60000

typedef struct rp_store rp_store;

/** A number with a name. */
typedef struct rp_store_metric {
    const char *name;
    bool is_real; /**< `real` counts, otherwise `integer`; a NaN is stored as NULL */
    int64_t integer;
    double real;
} rp_store_metric;

/** Record of a run. Texts are borrowed and may be NULL (stored as NULL) except where stated. */
typedef struct rp_store_run {
    const char *created_utc; /**< NULL: now */
    const char *host;        /**< NULL: this machine */
    const char *program;     /**< "rpsim", "rpexec"; not NULL */
    const char *version;     /**< of the program; not NULL */
    const char *git_commit;  /**< of the program (rp_commit); NULL: this build's */
    double duration_s;       /**< wall time that the run took; 0: not known (NULL) */
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
 * @retval RP_USAGE RP_STORE_WAIT_S is no number (logged)
 * @retval RP_INPUT not a database, one of another application, of a newer version, read-only, or in
 * a folder that does not exist or cannot be written (logged)
 * @retval RP_DATABASE locked for more than a minute, disk full, … (logged with SQLite's text)
 * @retval RP_NO_MEMORY
 */
rp_status rp_store_open(const char *path, rp_store **store_out);

/**
 * For the time before a run that may still be refused: as rp_store_open where there is a file.
 * Otherwise a refused run must leave none: it is only checked that one can be made, *store_out is
 * NULL, and rp_store_open makes it as soon as there is something to write.
 */
rp_status rp_store_open_before(const char *path, rp_store **store_out);

/** As rp_store_open, but waits `wait_ms` for other writers; the environment does not count. */
rp_status rp_store_open_wait(const char *path, int wait_ms, rp_store **store_out);

/**
 * Opens a database that has to be there, to read it. Where the file or its folder cannot be
 * written, it is read as it is.
 * @retval as rp_store_open; RP_INPUT also for a file that is not there, and for an older version
 * that cannot be written (logged)
 */
rp_status rp_store_open_existing(const char *path, rp_store **store_out);

/**
 * Adds a run in one transaction (that of rp_store_begin, if there is one): all of it or nothing.
 * Time and host are filled in by the store.
 * @param timeline_or_null its ops are stored too
 * @retval RP_OK
 * @retval RP_DATABASE (logged; the database is as before)
 */
rp_status rp_store_add_run(rp_store *store, const rp_store_run *run,
                           const rp_timeline *timeline_or_null);

/**
 * Begins a transaction that many runs share; until rp_store_end nothing of it is in the database.
 * @retval RP_OK, RP_DATABASE (logged)
 */
rp_status rp_store_begin(rp_store *store);

/**
 * Ends a transaction: commits it if `status` is RP_OK, otherwise undoes it.
 * @retval `status`, or RP_DATABASE (disk full, …; logged when it happened; the database is as
 * before the transaction)
 */
rp_status rp_store_end(rp_store *store, rp_status status);

/**
 * Finds an experiment by name, or adds it; its question and file become these.
 * @param points_out how many points of it are in the store
 * @retval RP_OK, RP_DATABASE (logged)
 */
rp_status rp_store_experiment(rp_store *store, const char *name, const char *question_or_null,
                              const char *file, int64_t *id_out, uint64_t *points_out);

/** State of a point in a store. */
typedef enum rp_store_point_state {
    RP_STORE_POINT_UNKNOWN,
    RP_STORE_POINT_DONE,
    RP_STORE_POINT_FAILED,
} rp_store_point_state;

/** @retval RP_OK, RP_DATABASE (logged) */
rp_status rp_store_find_point(rp_store *store, int64_t experiment, const char *command,
                              rp_store_point_state *state_out);

/**
 * Adds a point and its runs in the transaction that has begun: all of it or nothing; after an error
 * of the database the transaction may be undone and over, which rp_store_end knows. A point that
 * has failed before is replaced, one that has run stays as it is.
 * @param failure_or_null why it has no runs
 * @retval RP_OK, RP_DATABASE (logged)
 */
rp_status rp_store_add_point(rp_store *store, int64_t experiment, const char *command,
                             const char *failure_or_null, const rp_store_run *runs,
                             uint32_t run_count);

/**
 * Reads the runs of a point.
 * @param point 0: those of no point
 * @param runs_out live in `arena`, in the order they were added
 * @retval RP_OK, RP_DATABASE (logged), RP_NO_MEMORY
 */
rp_status rp_store_read_runs(rp_store *store, int64_t point, rp_arena *arena,
                             rp_store_run **runs_out, uint32_t *count_out);

/**
 * Adds all experiments, their points and runs of another store, each point in a transaction. What
 * this store has already stays as it is; a point that has failed here is replaced.
 * @param added_out points that were added
 * @retval RP_OK, RP_DATABASE (logged), RP_NO_MEMORY
 */
rp_status rp_store_merge(rp_store *store, rp_store *from, uint64_t *added_out);

/** A value that was published, or measured elsewhere, and where it belongs. */
typedef struct rp_store_reference {
    const char *kind;     /**< "published" or "measured" */
    const char *source;   /**< where it is from; not NULL */
    const char *schedule; /**< not NULL; model, too */
    const char *model;
    const char *platform; /**< NULL here and below, 0 among the numbers: any */
    const char *fidelity;
    const char *recompute;
    const char *optimizer;
    uint32_t gpus;
    uint32_t microbatches;
    uint32_t microbatch_size;
    uint32_t seq_len;
    const char *quantity; /**< one of rp_store_quantities */
    double value;         /**< NaN: it did not fit into memory */
} rp_store_reference;

/** Quantities that a reference may be of; ended by NULL. */
extern const char *const rp_store_quantities[];

/**
 * Adds a reference in the transaction that has begun; it replaces one of the same source, quantity
 * and place.
 * @retval RP_OK, RP_DATABASE (logged)
 */
rp_status rp_store_add_reference(rp_store *store, const rp_store_reference *reference);

/**
 * Writes a table or view as CSV: names of the columns, then the rows; NULL is an empty field.
 * @retval RP_OK, RP_INPUT (no such table or view; logged with those there are), RP_IO, RP_DATABASE
 */
rp_status rp_store_export(rp_store *store, const char *table, FILE *stream);

/**
 * Receives a row of a query: its cells as text, reals in full; NULL is NULL.
 * @return anything but RP_OK ends the query, which then returns it
 */
typedef rp_status (*rp_store_row)(void *context, const char *const *cells, int columns);

/**
 * Runs one SQL statement of up to 128 columns, for programs that read a store; temporary tables are
 * allowed, and go with the store's handle.
 * @param sql without texts from elsewhere, which nothing would quote
 * @retval RP_OK, RP_DATABASE (logged), RP_BROKEN, or what `row_or_null` has returned
 */
rp_status rp_store_query(rp_store *store, const char *sql, rp_store_row row_or_null, void *context);

/** NULL is allowed. */
void rp_store_close(rp_store *store);
