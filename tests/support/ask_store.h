/** @file ask_store.h  Questions to an SQLite database, directly and not through the store. */
#pragma once

/**
 * Runs a statement.
 * @return the first value of its first row as text, "" if there is none; kept for seven more calls
 */
char *rp_test_ask(const char *path, const char *sql);
