/** @file ask_store.h  Questions to a database of SQLite, past the store. */
#pragma once

/**
 * Runs a statement.
 * @return the first value of its first row as text, "" where there is none; kept for seven more
 * calls
 */
char *rp_test_ask(const char *path, const char *sql);
