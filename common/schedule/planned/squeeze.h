/** @file squeeze.h  Schedules that are another schedule after compaction. */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/planned/cells.h"

/**
 * For rp_schedule_type.prepare: the order of `schedule`, compacted (rp_cell_order_compact) with
 * each GPU's own peak as what it may keep, in forwards of its stages, not in bytes.
 * @param plan_out an rp_cell_plan
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY, RP_BROKEN (logged)
 */
rp_status rp_squeeze(const rp_schedule_type *schedule, const rp_schedule_config *config,
                     const rp_program *program, rp_arena *arena, void **plan_out,
                     rp_reason *reason);
