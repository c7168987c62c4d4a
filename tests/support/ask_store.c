#include "tests/support/ask_store.h"

#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>

char *rp_test_ask(const char *path, const char *sql)
{
    static char answers[8][1024];
    static unsigned next;
    char *answer = answers[next++ % 8];
    sqlite3 *database;
    sqlite3_stmt *statement;
    answer[0] = '\0';
    cr_assert(eq(int, sqlite3_open(path, &database), SQLITE_OK));
    cr_assert(eq(int, sqlite3_prepare_v2(database, sql, -1, &statement, NULL), SQLITE_OK), "%s",
              sqlite3_errmsg(database));
    if (sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_text(statement, 0) != NULL) {
        snprintf(answer, sizeof answers[0], "%s", (const char *)sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
    sqlite3_close(database);
    return answer;
}
