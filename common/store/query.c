/* Runs queries for readers of a store. */
#include "common/base/mem.h"
#include "common/store/store_internal.h"

#define MOST_COLUMNS 128
#define NUMBER_LENGTH 32

/* Gives a row's cells as text; SQLite's own text of a real has 15 digits, which is not always
 * enough. */
static void read_row(sqlite3_stmt *statement, int columns, char (*numbers)[NUMBER_LENGTH],
                     const char **cells)
{
    for (int i = 0; i < columns; i++) {
        cells[i] = (const char *)sqlite3_column_text(statement, i);
        if (sqlite3_column_type(statement, i) == SQLITE_FLOAT) {
            snprintf(numbers[i], NUMBER_LENGTH, "%.17g", sqlite3_column_double(statement, i));
            cells[i] = numbers[i];
        }
    }
}

rp_status rp_store_query(rp_store *store, const char *sql, rp_store_row row_or_null, void *context)
{
    char numbers[MOST_COLUMNS][NUMBER_LENGTH];
    const char *cells[MOST_COLUMNS];
    sqlite3_stmt *statement = NULL;
    RP_TRY(rp_store_prepare(store, "read it", sql, &statement));
    int columns = sqlite3_column_count(statement);
    rp_status status = columns <= MOST_COLUMNS ? RP_OK : rp_broken();
    int code = SQLITE_DONE;
    while (status == RP_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        if (row_or_null != NULL) {
            read_row(statement, columns, numbers, cells);
            status = row_or_null(context, cells, columns);
        }
    }
    if (status == RP_OK && code != SQLITE_DONE) {
        status = rp_store_fail(store, "read it", code);
    }
    sqlite3_finalize(statement);
    return status;
}
