/** @file store_internal.h  Internals of the store; private to this folder. */
#pragma once

#include "common/store/store.h"

#include <sqlite3.h>

#define RP_STORE_CACHED_COUNT 8

struct rp_store {
    sqlite3 *database;
    char *path; /**< for messages */
    int wait_ms;
    sqlite3_stmt *statements[RP_STORE_CACHED_COUNT]; /**< NULL until first needed */
};

/** Logs SQLite's text for a result code. @return its meaning for the user (status.h) */
rp_status rp_store_fail(const rp_store *store, const char *doing, int code);

/** @param statement_out to be finalized by the caller @retval RP_OK, or as rp_store_fail */
rp_status rp_store_prepare(rp_store *store, const char *doing, const char *sql,
                           sqlite3_stmt **statement_out);
