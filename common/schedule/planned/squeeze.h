/** @file squeeze.h  Schedules that compact the order of another schedule. */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/planned/cells.h"

/**
 * For rp_schedule_type.prepare: makes the order of `schedule` and compacts it
 * (rp_cell_order_compact). The limit of each GPU is its own peak, in forwards of its stages, not in
 * bytes.
 * @param plan_out an rp_cell_plan
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_squeeze(const rp_schedule_type *schedule, const rp_schedule_config *config,
                     const rp_program *program, rp_arena *arena, void **plan_out,
                     rp_reason *reason);
