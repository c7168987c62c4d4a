/** @file store.h  Runs in a SQLite database: full configuration, provenance, metrics, and ops on
 * request; experiments and their points; values published or measured elsewhere.
 *
 * Tables, views and units: common/store/README.md. The version is 4 (PRAGMA user_version;
 * application_id marks a database of this project). Opening a database of version 3 brings it up to
 * date; versions 1 and 2, which no release has written, are refused. The database is in WAL mode; a
 * writer waits for another writer for up to a minute (environment: RP_STORE_WAIT_S, seconds).
 */
#pragma once

#include "common/timeline/timeline.h"

#include <stdio.h>

#define RP_STORE_VERSION 4
#define RP_STORE_OLDEST 3 /**< oldest version that is brought up to date */

/** Time that a writer waits for another writer, in ms, unless the environment sets it. */
#define RP_STORE_WAIT_MS 60000

typedef struct rp_store rp_store;

/** A number with a name. */
typedef struct rp_store_metric {
    const char *name;
    bool is_real; /**< the value is `real`, otherwise `integer`; NaN is stored as NULL */
    int64_t integer;
    double real;
} rp_store_metric;

/** Record of a run. Texts are borrowed and may be NULL (stored as NULL) unless stated otherwise. */
typedef struct rp_store_run {
    const char *created_utc; /**< NULL: now */
    const char *host;        /**< NULL: this machine */
    const char *program;     /**< "rpsim", "rpexec"; not NULL */
    const char *version;     /**< version of the program; not NULL */
    const char *git_commit;  /**< commit of the program (rp_commit); NULL: this build's */
    double duration_s;       /**< wall time of the run in seconds; 0: not known (NULL) */
    const char *command;     /**< command line; not NULL */
    const char *config_json; /**< all settings, defaults included, as a JSON object; not NULL */
    uint64_t seed;
    const char *schedule; /**< not NULL */
    const char *model;
    const char *platform;
    const char *costs;
    const char *partition;
    const char *fidelity; /**< fidelity, or the backend of a measured run */
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
 * @param path a plain file name, never a URI
 * @param store_out owned by the caller; NULL on failure
 * @retval RP_OK
 * @retval RP_USAGE RP_STORE_WAIT_S is not a number (logged)
 * @retval RP_INPUT the file is not a database, belongs to another application, has a newer version,
 * is read-only, or is in a folder that does not exist or cannot be written (logged)
 * @retval RP_DATABASE locked for more than a minute, disk full, … (logged with SQLite's text)
 * @retval RP_NO_MEMORY
 */
rp_status rp_store_open(const char *path, rp_store **store_out);

/**
 * For use before a run that may still be refused. If the file exists, as rp_store_open. Otherwise
 * only checks that the file can be made, since a refused run must leave no file: *store_out is
 * NULL, and rp_store_open makes the file as soon as there is something to write.
 */
rp_status rp_store_open_before(const char *path, rp_store **store_out);

/** As rp_store_open, but waits `wait_ms` for other writers and ignores the environment. */
rp_status rp_store_open_wait(const char *path, int wait_ms, rp_store **store_out);

/**
 * Opens an existing database for reading. If the file or its folder cannot be written, it is read
 * without an upgrade.
 * @retval as rp_store_open; RP_INPUT also for a file that does not exist, and for an older version
 * that cannot be written (logged)
 */
rp_status rp_store_open_existing(const char *path, rp_store **store_out);

/**
 * Adds a run in a single transaction (that of rp_store_begin, if begun): all of it or nothing. The
 * store fills in time and host.
 * @param timeline_or_null timeline whose ops are stored, too
 * @retval RP_OK
 * @retval RP_DATABASE (logged; the database is as before)
 */
rp_status rp_store_add_run(rp_store *store, const rp_store_run *run,
                           const rp_timeline *timeline_or_null);

/**
 * Begins a transaction that many runs share; the database shows none of them before rp_store_end.
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
 * Finds an experiment by name, or adds it; sets its question and file.
 * @param points_out number of its points in the store
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
 * Adds a point and its runs in the open transaction: all of it or nothing. An error of the database
 * may undo and end the transaction, which rp_store_end recognises. A point that has failed before
 * is replaced; a point that has run stays unchanged.
 * @param failure_or_null reason of its failure, if it has no runs
 * @retval RP_OK, RP_DATABASE (logged)
 */
rp_status rp_store_add_point(rp_store *store, int64_t experiment, const char *command,
                             const char *failure_or_null, const rp_store_run *runs,
                             uint32_t run_count);

/**
 * Reads the runs of a point.
 * @param point 0: the runs without a point
 * @param runs_out live in `arena`, in the order in which they were added
 * @retval RP_OK, RP_DATABASE (logged), RP_NO_MEMORY
 */
rp_status rp_store_read_runs(rp_store *store, int64_t point, rp_arena *arena,
                             rp_store_run **runs_out, uint32_t *count_out);

/**
 * Adds all experiments, their points and runs of another store, each point in a transaction. Points
 * that this store already has stay unchanged, except that a failed point is replaced.
 * @param added_out number of added points
 * @retval RP_OK, RP_DATABASE (logged), RP_NO_MEMORY
 */
rp_status rp_store_merge(rp_store *store, rp_store *from, uint64_t *added_out);

/** A value that was published or measured elsewhere, and the runs to which it belongs. */
typedef struct rp_store_reference {
    const char *kind;     /**< "published" or "measured" */
    const char *source;   /**< origin of the value; not NULL */
    const char *schedule; /**< not NULL, nor is model */
    const char *model;
    const char *platform; /**< here and below NULL or, for numbers, 0 means any */
    const char *fidelity;
    const char *recompute;
    const char *optimizer;
    uint32_t gpus;
    uint32_t microbatches;
    uint32_t microbatch_size;
    uint32_t seq_len;
    const char *quantity; /**< a member of rp_store_quantities */
    double value;         /**< NaN: the run did not fit into memory */
} rp_store_reference;

/** Valid quantities of a reference, ended by NULL. */
extern const char *const rp_store_quantities[];

/**
 * Adds a reference in the open transaction; replaces a reference with the same source, quantity and
 * place.
 * @retval RP_OK, RP_DATABASE (logged)
 */
rp_status rp_store_add_reference(rp_store *store, const rp_store_reference *reference);

/**
 * Writes a table or view as CSV: names of the columns, then the rows; NULL is an empty field.
 * @retval RP_OK, RP_INPUT (no such table or view; logged with all names), RP_IO, RP_DATABASE
 */
rp_status rp_store_export(rp_store *store, const char *table, FILE *stream);

/**
 * Receives a row of a query: its cells as text, reals in full; NULL is NULL.
 * @return any status but RP_OK ends the query, which returns that status
 */
typedef rp_status (*rp_store_row)(void *context, const char *const *cells, int columns);

/**
 * Runs an SQL statement of up to 128 columns, for programs that read a store; temporary tables are
 * allowed, and end with the store's handle.
 * @param sql must not contain texts from outside, as nothing quotes them
 * @retval RP_OK, RP_DATABASE (logged), RP_BROKEN, or the status that `row_or_null` has returned
 */
rp_status rp_store_query(rp_store *store, const char *sql, rp_store_row row_or_null, void *context);

/** NULL is allowed. */
void rp_store_close(rp_store *store);
