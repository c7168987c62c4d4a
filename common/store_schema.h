/** @file store_schema.h  The tables of the store, version by version; used by store.c only. */
#pragma once

#include "common/store.h"

/** "RPDB": tells our databases from those of other applications. */
#define RP_STORE_APPLICATION_ID 0x52504442

/** SQL that leads from version i to i + 1; run inside a transaction. Never edit an old entry: add
 * one. */
extern const char *const rp_store_migrations[RP_STORE_VERSION];
