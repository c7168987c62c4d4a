/** @file reference.h  Imports published or measured values from CSV files into the store
 * (common/store/README.md). */
#pragma once

#include "common/base/mem.h"
#include "common/store/store.h"

/**
 * Reads a table and adds its values to the store: all of them, or nothing if any value is not
 * valid.
 * @param db the store; if it does not exist, only a valid table creates it
 * @param path "-" is standard input
 * @param cell_or_null "NAME=VALUE,…": columns that the file lacks; their values are the same in
 * every row
 * @param added_out number of values in the file
 * @retval RP_OK, RP_USAGE (cell), RP_INPUT (the file; both logged), RP_DATABASE, RP_NO_MEMORY
 */
rp_status rpsweep_reference_import(const char *db, const char *path, const char *cell_or_null,
                                   rp_arena *arena, uint64_t *added_out);
