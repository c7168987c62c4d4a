/** @file timeline.h  A stored run's ops as a timeline. */
#pragma once

#include "common/store/store.h"
#include "common/timeline/timeline_rows.h"

/**
 * Reads the ops of a run that was stored with them (rpsim --db-ops).
 * @param out released by rp_read_timeline_fini, also after a failure
 * @retval RP_OK, RP_INPUT (no such run, or a run without ops; logged), RP_DATABASE, RP_NO_MEMORY
 */
rp_status rp_store_read_timeline(rp_store *store, int64_t run, rp_read_timeline *out);
