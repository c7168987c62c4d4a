/** @file pipeline_orders.h  Orders that several systems share. */
#pragma once

#include "common/schedule.h"

/** 1F1B with one stage per GPU (common/schedules/1f1b.c). For rp_schedule_type.order. */
void rp_1f1b_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                   uint32_t iteration, rp_emitter *emitter);

/** Looped BFS (common/schedules/looped-bfs.c). For rp_schedule_type.order. */
void rp_looped_bfs_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                         uint32_t iteration, rp_emitter *emitter);
