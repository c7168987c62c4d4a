/** @file data_parallel.h  The order that all data-parallel systems share. */
#pragma once

#include "common/schedule/schedule_type.h"

/**
 * Rank r runs microbatches r, r + N, r + 2N, …: each through all stages forward, then all stages
 * backward. For rp_schedule_type.order.
 */
void rp_data_parallel_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                            uint32_t iteration, rp_emitter *emitter);
