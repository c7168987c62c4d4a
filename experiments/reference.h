/** @file reference.h  Published or measured values from CSV files into the store
 * (common/store/README.md). */
#pragma once

#include "common/base/mem.h"
#include "common/store/store.h"

/**
 * Reads a table and adds its values to the store: all of them, or nothing if one is not valid.
 * @param db the store; one that is not there is made for a valid table only
 * @param path "-" is standard input
 * @param cell_or_null "NAME=VALUE,…": columns that the file lacks, of the same value in every row
 * @param added_out how many values the file has
 * @retval RP_OK, RP_USAGE (cell), RP_INPUT (the file; both logged), RP_DATABASE, RP_NO_MEMORY
 */
rp_status rpsweep_reference_import(const char *db, const char *path, const char *cell_or_null,
                                   rp_arena *arena, uint64_t *added_out);
