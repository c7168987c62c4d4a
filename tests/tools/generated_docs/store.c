/* Tables, views and columns of a store, with the meanings of store_rows.inc. */
#include "common/store/schema.h"
#include "tests/tools/generated_docs/pages.h"

#include <sqlite3.h>
#include <string.h>

static const struct {
    const char *name;
    const char *meaning;
} tables[] = {
#define TABLE(name, meaning) {#name, meaning},
#define COLUMN(table, column, meaning)
#include "common/store/store_rows.inc"
#undef TABLE
#undef COLUMN
};

static const struct {
    const char *table;
    const char *column;
    const char *meaning;
} columns[] = {
#define TABLE(name, meaning)
#define COLUMN(table, column, meaning) {#table, #column, meaning},
#include "common/store/store_rows.inc"
#undef TABLE
#undef COLUMN
};
static bool column_used[COUNT(columns)];

/* @return the meaning from the row of a column. Columns of views and `results` may also have the
 * row of the column with the same name, or with the same time in picoseconds. */
static const char *meaning_of(const char *table, const char *column)
{
    char in_ps[64];
    size_t length = strlen(column);
    bool is_ms = length > 3 && strcmp(column + length - 3, "_ms") == 0;
    (void)snprintf(in_ps, sizeof in_ps, "%.*s_ps", (int)(is_ms ? length - 3 : 0), column);
    const char *const places[][2] = {
        {table, column}, {"results", column}, {"results", in_ps}, {"runs", column}};
    for (size_t p = 0; p < COUNT(places); p++) {
        for (size_t i = 0; i < COUNT(columns); i++) {
            if (strcmp(columns[i].table, places[p][0]) == 0 &&
                strcmp(columns[i].column, places[p][1]) == 0) {
                column_used[i] = true;
                return columns[i].meaning;
            }
        }
    }
    return NULL;
}

static sqlite3_stmt *prepare(sqlite3 *database, const char *sql, const char *value)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) != SQLITE_OK ||
        (value != NULL && sqlite3_bind_text(statement, 1, value, -1, SQLITE_STATIC) != SQLITE_OK)) {
        docs_fail(sqlite3_errmsg(database), "store");
    }
    return statement;
}

static void write_table_columns(sqlite3 *database, const char *table, bool view, FILE *stream)
{
    sqlite3_stmt *statement =
        prepare(database, "SELECT name, type FROM pragma_table_info(?)", table);
    fputs(view ? "| column | value |\n|---|---|\n" : "| column | type | value |\n|---|---|---|\n",
          stream);
    uint32_t count = 0;
    for (; sqlite3_step(statement) == SQLITE_ROW; count++) {
        const char *column = (const char *)sqlite3_column_text(statement, 0);
        const char *type = (const char *)sqlite3_column_text(statement, 1);
        const char *meaning = meaning_of(table, column);
        if (meaning == NULL) {
            docs_fail("has no row in common/store/store_rows.inc", column);
            continue;
        }
        fprintf(stream, view ? "| `%s` | %s%s |\n" : "| `%s` | %s | %s |\n", column,
                view ? "" : type, meaning);
    }
    if (count == 0) {
        docs_fail("is in no store", table);
    }
    sqlite3_finalize(statement);
}

/* True if a view has the columns of `summary`. */
static bool is_like_summary(sqlite3 *database, const char *table)
{
    sqlite3_stmt *statement =
        prepare(database,
                "SELECT (SELECT group_concat(name) FROM pragma_table_info(?))"
                " = (SELECT group_concat(name) FROM pragma_table_info('summary'))",
                table);
    bool like = sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_int(statement, 0) != 0;
    sqlite3_finalize(statement);
    return like && strcmp(table, "summary") != 0;
}

static void write_table(sqlite3 *database, const char *table, const char *meaning, FILE *stream)
{
    sqlite3_stmt *statement =
        prepare(database, "SELECT type = 'view' FROM sqlite_schema WHERE name = ?", table);
    bool view = sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_int(statement, 0) != 0;
    sqlite3_finalize(statement);
    fprintf(stream, "\n## %s\n\n%s%s\n", table, view ? "View. " : "", meaning);
    if (is_like_summary(database, table)) {
        fputs("\nIts columns are those of `summary`.\n", stream);
        return;
    }
    fputc('\n', stream);
    write_table_columns(database, table, view, stream);
    if (strcmp(table, "reference") == 0) {
        fputs("\nQuantities:", stream);
        for (size_t i = 0; rp_store_quantities[i] != NULL; i++) {
            fprintf(stream, "%s `%s`", i == 0 ? "" : ",", rp_store_quantities[i]);
        }
        fputs(". `max_seqlen_k` counts 1024 tokens.\n", stream);
    }
}

static void execute(sqlite3 *database, const char *const *parts)
{
    for (; *parts != NULL; parts++) {
        if (sqlite3_exec(database, *parts, NULL, NULL, NULL) != SQLITE_OK) {
            docs_fail(sqlite3_errmsg(database), "store");
        }
    }
}

static void check_tables(sqlite3 *database)
{
    sqlite3_stmt *names =
        prepare(database, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')", NULL);
    while (sqlite3_step(names) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(names, 0);
        size_t i = 0;
        while (i < COUNT(tables) && strcmp(tables[i].name, name) != 0) {
            i++;
        }
        if (i == COUNT(tables)) {
            docs_fail("has no row in common/store/store_rows.inc", name);
        }
    }
    sqlite3_finalize(names);
    for (size_t i = 0; i < COUNT(columns); i++) {
        if (!column_used[i]) {
            docs_fail("is in no store", columns[i].column);
        }
    }
}

void docs_write_store(FILE *stream)
{
    sqlite3 *database = NULL;
    if (sqlite3_open(":memory:", &database) != SQLITE_OK) {
        docs_fail("cannot be opened", "store");
        return;
    }
    execute(database, rp_store_tables);
    execute(database, rp_store_upgrade);
    execute(database, rp_store_views);
    fputs("Tables and views of the SQLite database that `--db` writes. "
          "[common/store](" DOCS_ROOT
          "common/store/README.md) has rules and examples. Units are in the "
          "names. NULL: not known, not modelled, or not asked for.\n",
          stream);
    for (size_t i = 0; i < COUNT(tables); i++) {
        write_table(database, tables[i].name, tables[i].meaning, stream);
    }
    check_tables(database);
    sqlite3_close(database);
}
