/** @file record.h  Runs as bytes, for the way from the process that runs them to the process that
 * stores them. Both processes run the same program on machines of the same kind, so the bytes need
 * neither a byte order nor versions. */
#pragma once

#include "common/base/text.h"
#include "common/store/store.h"

/** Appends a run. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_store_run_pack(const rp_store_run *run, rp_text *bytes);

/**
 * Reads a run at `*at` of `bytes` and moves `*at` past it.
 * @param run_out its texts and metrics live in `arena`
 * @retval RP_OK, RP_BROKEN (the bytes are not a packed run), RP_NO_MEMORY
 */
rp_status rp_store_run_unpack(const char *bytes, size_t length, size_t *at, rp_arena *arena,
                              rp_store_run *run_out);

/** Appends a text, which may be NULL. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_store_text_pack(const char *text, rp_text *bytes);

/** Reads a text. @retval as rp_store_run_unpack */
rp_status rp_store_text_unpack(const char *bytes, size_t length, size_t *at, rp_arena *arena,
                               const char **text_out);
