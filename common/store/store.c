/* Opens a store; handles its version, errors and transactions. */
#include "common/store/store.h"

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/store/schema.h"
#include "common/store/store_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_WAIT_S 86400
/* Holds the indexes of a million runs, which are not written in order. */
#define CACHE_KIB "65536"
#define RETRY_MS 10 /* between attempts that SQLite does not wait for by itself */

/* ---- calls ----------------------------------------------------------------------------------- */

/* Meaning of a result code for the user: a fault of the input or of the machine. */
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

/* True if the folder of a file is writable. */
static bool folder_is_writable(const char *path)
{
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    if (slash != NULL && (size_t)(slash - path) + 1 < sizeof folder) {
        size_t length = slash == path ? 1 : (size_t)(slash - path);
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    return access(folder, W_OK) == 0;
}

/* Causes and advice that SQLite's text leaves out. */
static const char *explain(const rp_store *store, int code)
{
    switch (code & 0xff) {
    case SQLITE_FULL:
        return "; free some space and run this again: what was stored before stays";
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
        if (access(store->path, W_OK) == 0 && !folder_is_writable(store->path)) {
            return ": its folder cannot be written, and SQLite keeps its journal there";
        }
        return (code & 0xff) == SQLITE_READONLY
                   ? "; make the file and its folder writable, or name another file"
                   : "";
    default:
        return "";
    }
}

rp_status rp_store_fail(const rp_store *store, const char *doing, int code)
{
    const char *text = store->database != NULL ? sqlite3_errmsg(store->database) : NULL;
    text = text != NULL ? text : sqlite3_errstr(code);
    if ((code & 0xff) == SQLITE_BUSY) {
        rp_log_error("%s: cannot %s: %s by another program for more than %g s; wait until it has "
                     "ended and run this again (RP_STORE_WAIT_S: how long to wait)",
                     store->path, doing, text, store->wait_ms / 1e3);
    } else {
        rp_log_error("%s: cannot %s: %s%s", store->path, doing, text, explain(store, code));
    }
    return status_of(code);
}

static rp_status execute(rp_store *store, const char *doing, const char *sql)
{
    int code = sqlite3_exec(store->database, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? RP_OK : rp_store_fail(store, doing, code);
}

/* Executes the switch to WAL, for which SQLite does not wait on a lock. */
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

/* Gives the integer that a statement of a single row and column returns. */
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

/* ---- opening --------------------------------------------------------------------------------- */

static rp_status refuse(const rp_store *store, const char *cause)
{
    rp_log_error("%s: %s", store->path, cause);
    return RP_INPUT;
}

/* Checks that the database is empty (version 0) or a store of a known version; writes nothing. */
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
    if (!is_new && *version_out < RP_STORE_OLDEST) {
        rp_log_error("%s: the database has version %" PRId64 ", which no release has written; "
                     "valid are versions from %d on: store the runs again in a new file",
                     store->path, *version_out, RP_STORE_OLDEST);
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rp_store_end(rp_store *store, rp_status status)
{
    if (sqlite3_get_autocommit(store->database) != 0) {
        return status != RP_OK ? status : RP_DATABASE; /* the failure undid and logged it */
    }
    if (status == RP_OK) {
        status = execute(store, "commit", "COMMIT");
    }
    if (status != RP_OK) {
        /* changes nothing if SQLite has already rolled back by itself */
        (void)sqlite3_exec(store->database, "ROLLBACK", NULL, NULL, NULL);
    }
    return status;
}

rp_status rp_store_begin(rp_store *store)
{
    return execute(store, "lock it", "BEGIN IMMEDIATE");
}

/* As check_identity, in a single transaction, so that all answers show the same state even if
 * another process creates the database meanwhile. */
static rp_status look(rp_store *store, int64_t *version_out)
{
    RP_TRY(execute(store, "begin to read", "BEGIN"));
    return rp_store_end(store, check_identity(store, version_out));
}

static rp_status execute_parts(rp_store *store, const char *const *parts)
{
    for (; *parts != NULL; parts++) {
        RP_TRY(execute(store, "make its tables", *parts));
    }
    return RP_OK;
}

/* Upgrades from version 0 (empty) or RP_STORE_OLDEST to the current version. */
static rp_status upgrade(rp_store *store, int64_t version)
{
    char stamp[96];
    if (version == 0) {
        RP_TRY(execute_parts(store, rp_store_tables));
    }
    RP_TRY(execute_parts(store, rp_store_upgrade));
    RP_TRY(execute_parts(store, rp_store_views));
    snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             RP_STORE_APPLICATION_ID, RP_STORE_VERSION);
    return execute(store, "write its version", stamp);
}

/* Another process may make the tables between the first look and the lock, so the version is read
 * again under the lock. */
static rp_status bring_up_to_date(rp_store *store)
{
    int64_t version;
    RP_TRY(look(store, &version));
    if (version == RP_STORE_VERSION) {
        return RP_OK;
    }
    RP_TRY(rp_store_begin(store));
    rp_status status = check_identity(store, &version);
    if (status == RP_OK && version < RP_STORE_VERSION) {
        status = upgrade(store, version);
    }
    return rp_store_end(store, status);
}

static rp_status check_path(const rp_store *store)
{
    struct stat found;
    if (stat(store->path, &found) == 0 && !S_ISREG(found.st_mode)) {
        return refuse(store, "cannot be opened: not a regular file");
    }
    return RP_OK;
}

/* Hashes eight bytes at a time, first byte lowest: a configuration has about a kilobyte. */
static uint64_t hash_bytes(uint64_t hash, const unsigned char *bytes, size_t length)
{
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        uint64_t word = 0;
        for (size_t i = 0; i < 8; i++) {
            word |= (uint64_t)bytes[at + i] << (8 * i);
        }
        hash = rp_hash_add(hash, word);
    }
    for (; at < length; at++) {
        hash = rp_hash_add(hash, bytes[at]);
    }
    return rp_hash_add(hash, length);
}

/* SQL: the same hash for the same values, each NULL, integer, real or text. */
static void hash_values(sqlite3_context *context, int count, sqlite3_value **values)
{
    uint64_t hash = RP_HASH_SEED;
    for (int i = 0; i < count; i++) {
        int type = sqlite3_value_type(values[i]);
        const unsigned char *text = sqlite3_value_text(values[i]); /* NULL for NULL */
        hash = rp_hash_add(hash, (uint64_t)type);
        hash = hash_bytes(hash, text, text != NULL ? (size_t)sqlite3_value_bytes(values[i]) : 0);
    }
    sqlite3_result_int64(context, (int64_t)hash);
}

/* SQL: json_valid, with which the tables check texts, as a function that a schema may call: SQLite
 * 3.40 counts its own json_valid among the functions that need trust. */
static void check_json(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    const char *text = (const char *)sqlite3_value_text(values[0]);
    if (text == NULL) {
        sqlite3_result_null(context);
        return;
    }
    json_t *read = json_loadb(text, (size_t)sqlite3_value_bytes(values[0]), JSON_DECODE_ANY, NULL);
    sqlite3_result_int(context, read != NULL);
    json_decref(read);
}

/* The file may come from a stranger: its triggers do not run (TEMP triggers do, SQLite 3.35), and
 * its views and expressions call no functions with side effects. */
static int distrust(sqlite3 *database)
{
    int code = sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    if (code == SQLITE_OK) {
        code = sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    }
    return code == SQLITE_OK
               ? sqlite3_create_function(database, "json_valid", 1,
                                         SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                         NULL, check_json, NULL, NULL)
               : code;
}

static rp_status connect(rp_store *store, const char *name, int flags)
{
    int code = sqlite3_open_v2(name, &store->database, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        return rp_store_fail(store, "open it", code);
    }
    sqlite3_extended_result_codes(store->database, 1);
    sqlite3_busy_timeout(store->database, store->wait_ms);
    code = distrust(store->database);
    if (code == SQLITE_OK) {
        code = sqlite3_create_function(store->database, "rp_store_hash", -1,
                                       SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, hash_values, NULL,
                                       NULL);
    }
    return code == SQLITE_OK ? RP_OK : rp_store_fail(store, "open it", code);
}

static rp_status open_database(rp_store *store)
{
    int64_t version;
    RP_TRY(check_path(store));
    RP_TRY(connect(store, store->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    RP_TRY(look(store, &version));
    if (sqlite3_db_readonly(store->database, "main") == 1) {
        return refuse(store, "the database is read-only; make the file and its folder writable, "
                             "or name another file");
    }
    RP_TRY(execute_patiently(store, "set its journal to WAL", "PRAGMA journal_mode = WAL"));
    RP_TRY(execute(store, "set it up",
                   "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;"
                   "PRAGMA cache_size = -" CACHE_KIB ""));
    RP_TRY(bring_up_to_date(store));
    return execute(store, "set it up", rp_store_own_triggers);
}

/* Prints "file:PATH?immutable=1", the only form in which SQLite reads a database whose folder
 * cannot be written. */
static rp_status print_uri(const char *path, rp_text *uri)
{
    RP_TRY(rp_text_print(uri, "file:"));
    for (; *path != '\0'; path++) {
        bool plain = strchr("?#%", *path) == NULL;
        RP_TRY(plain ? rp_text_append(uri, path, 1)
                     : rp_text_print(uri, "%%%02x", (unsigned)(unsigned char)*path));
    }
    return rp_text_print(uri, "?immutable=1");
}

/* A journal beside the database means that some process writes, and that SQLite has to read the
 * journal, too. */
static rp_status has_journal(const char *path, bool *has_out)
{
    rp_text journal = {0};
    rp_status status = rp_text_print(&journal, "%s-wal", path);
    *has_out = status == RP_OK && access(journal.bytes, F_OK) == 0;
    rp_text_fini(&journal);
    return status;
}

static rp_status open_unwritable(rp_store *store)
{
    int64_t version;
    bool journal = false;
    rp_text uri = {0};
    RP_TRY(check_path(store));
    RP_TRY(has_journal(store->path, &journal));
    rp_status status = print_uri(store->path, &uri);
    if (status == RP_OK) {
        status = connect(store, journal ? store->path : uri.bytes,
                         SQLITE_OPEN_READONLY | (journal ? 0 : SQLITE_OPEN_URI));
    }
    rp_text_fini(&uri);
    RP_TRY(status);
    RP_TRY(look(store, &version));
    if (version == 0) {
        return refuse(store, "the database is empty and cannot be written");
    }
    return RP_OK;
}

/* ---- the interface --------------------------------------------------------------------------- */

static rp_status open_with(const char *path, int wait_ms, rp_status (*open)(rp_store *),
                           rp_store **store_out)
{
    rp_store *store = NULL;
    *store_out = NULL;
    RP_TRY(rp_mem_resize(&store, sizeof *store));
    *store = (rp_store){.wait_ms = wait_ms};
    rp_status status = rp_mem_resize(&store->path, strlen(path) + 1);
    if (status == RP_OK) {
        strcpy(store->path, path);
        status = open(store);
    }
    if (status != RP_OK) {
        rp_store_close(store);
        return status;
    }
    *store_out = store;
    return RP_OK;
}

rp_status rp_store_open_wait(const char *path, int wait_ms, rp_store **store_out)
{
    return open_with(path, wait_ms, open_database, store_out);
}

/* Gives the wait from RP_STORE_WAIT_S, or the default. */
static rp_status find_wait(int *wait_ms_out)
{
    const char *text = getenv("RP_STORE_WAIT_S");
    uint64_t seconds = 0;
    *wait_ms_out = RP_STORE_WAIT_MS;
    if (text == NULL) {
        return RP_OK;
    }
    if (!rp_parse_u64(text, 0, MOST_WAIT_S, &seconds)) {
        rp_log_error("RP_STORE_WAIT_S: '%s' is not valid; valid values are whole seconds from 0 "
                     "to %d",
                     text, MOST_WAIT_S);
        return RP_USAGE;
    }
    *wait_ms_out = (int)seconds * 1000;
    return RP_OK;
}

/* Gives the cause if a new database cannot be made: SQLite only says "unable to open database
 * file". */
static rp_status check_new(const char *path)
{
    if (access(path, F_OK) == 0 || (*path != '\0' && folder_is_writable(path))) {
        return RP_OK;
    }
    rp_log_error("%s: cannot be made: %s", path, strerror(*path == '\0' ? ENOENT : errno));
    return RP_INPUT;
}

rp_status rp_store_open(const char *path, rp_store **store_out)
{
    int wait_ms = 0;
    *store_out = NULL;
    RP_TRY(find_wait(&wait_ms));
    RP_TRY(check_new(path));
    return open_with(path, wait_ms, open_database, store_out);
}

rp_status rp_store_open_before(const char *path, rp_store **store_out)
{
    int wait_ms = 0;
    *store_out = NULL;
    if (access(path, F_OK) == 0) {
        return rp_store_open(path, store_out);
    }
    RP_TRY(find_wait(&wait_ms));
    return check_new(path);
}

rp_status rp_store_open_existing(const char *path, rp_store **store_out)
{
    int wait_ms = 0;
    *store_out = NULL;
    RP_TRY(find_wait(&wait_ms));
    if (access(path, F_OK) != 0) { /* opening would create it */
        rp_log_error("%s: %s", path, strerror(errno));
        return RP_INPUT;
    }
    bool writable = access(path, W_OK) == 0 && folder_is_writable(path);
    return open_with(path, wait_ms, writable ? open_database : open_unwritable, store_out);
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
