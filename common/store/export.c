/* Writes tables and views of a store as CSV. */
#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/store/store_internal.h"

#include <string.h>

/* Refuses an unknown table, with the names of all tables and views. */
static rp_status refuse_table(rp_store *store, const char *table)
{
    sqlite3_stmt *names = NULL;
    RP_TRY(rp_store_prepare(store, "read its schema",
                            "SELECT group_concat(name, ', ') FROM (SELECT name FROM sqlite_schema"
                            " WHERE type IN ('table', 'view') ORDER BY name)",
                            &names));
    int code = sqlite3_step(names);
    const char *text = code == SQLITE_ROW ? (const char *)sqlite3_column_text(names, 0) : NULL;
    rp_log_error("%s: no table or view '%s'; valid are %s", store->path, table,
                 text != NULL ? text : "none");
    sqlite3_finalize(names);
    return RP_INPUT;
}

static rp_status find_type(rp_store *store, const char *table, bool *there_out, bool *is_view_out)
{
    sqlite3_stmt *statement = NULL;
    RP_TRY(rp_store_prepare(
        store, "read its schema",
        "SELECT type = 'view' FROM sqlite_schema WHERE type IN ('table', 'view') AND name = ?",
        &statement));
    int code = sqlite3_bind_text(statement, 1, table, -1, SQLITE_STATIC);
    code = code == SQLITE_OK ? sqlite3_step(statement) : code;
    *there_out = code == SQLITE_ROW;
    *is_view_out = *there_out && sqlite3_column_int(statement, 0) != 0;
    sqlite3_finalize(statement);
    return code == SQLITE_ROW || code == SQLITE_DONE
               ? RP_OK
               : rp_store_fail(store, "read its schema", code);
}

static void write_field(FILE *stream, const char *text, bool first)
{
    if (!first) {
        fputc(',', stream);
    }
    rp_csv_write_cell(text != NULL ? text : "", stream);
}

/* Writes reals itself: SQLite's own text of a real has 15 digits, which is not always enough. */
static void write_value(FILE *stream, sqlite3_stmt *statement, int column)
{
    char number[32];
    const char *text = (const char *)sqlite3_column_text(statement, column);
    if (sqlite3_column_type(statement, column) == SQLITE_FLOAT) {
        snprintf(number, sizeof number, "%.17g", sqlite3_column_double(statement, column));
        text = number;
    }
    write_field(stream, text, column == 0);
}

static rp_status write_rows(rp_store *store, sqlite3_stmt *statement, FILE *stream)
{
    int columns = sqlite3_column_count(statement);
    for (int i = 0; i < columns; i++) {
        write_field(stream, sqlite3_column_name(statement, i), i == 0);
    }
    fputc('\n', stream);
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        for (int i = 0; i < columns; i++) {
            write_value(stream, statement, i);
        }
        fputc('\n', stream);
    }
    if (code != SQLITE_DONE) {
        return rp_store_fail(store, "read it", code);
    }
    return ferror(stream) ? RP_IO : RP_OK;
}

rp_status rp_store_export(rp_store *store, const char *table, FILE *stream)
{
    bool there = false;
    bool is_view = false;
    RP_TRY(find_type(store, table, &there, &is_view));
    if (!there) {
        return refuse_table(store, table);
    }
    sqlite3_stmt *statement = NULL;
    /* A view has its own order; a table is sorted by its key, which is in the first columns. */
    char *sql = sqlite3_mprintf("SELECT * FROM \"%w\"%s", table, is_view ? "" : " ORDER BY 1, 2");
    if (sql == NULL) {
        rp_log_error("out of memory for a query");
        return RP_NO_MEMORY;
    }
    rp_status status = rp_store_prepare(store, "read it", sql, &statement);
    sqlite3_free(sql);
    if (status == RP_OK) {
        status = write_rows(store, statement, stream);
    }
    sqlite3_finalize(statement);
    return status;
}
