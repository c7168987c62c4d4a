/** @file zero_bubble.h  The cost-aware zero-bubble schedules (schedules.md 3): built for the
 * run's own times within a limit of activations.
 *
 * Candidates are the orders of the fixed schedules that keep within the limit and those of greedy
 * builders (greedy.h) with all settings of their switches; each is compacted
 * (rp_cell_order_compact), and the one with the least makespan is taken, the first of equals. So a
 * planned schedule is never slower than the fixed ones, at stage fidelity.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/planned/cells.h"

/** A schedule with a rule of its own, and from how many microbatches on it may be asked. */
typedef struct rp_zb_fixed {
    const rp_schedule_type *schedule;
    uint32_t least_microbatches;
} rp_zb_fixed;

typedef struct rp_zb_search {
    uint32_t capacity; /**< forwards that a GPU may keep until their weight parts */
    const rp_zb_fixed *fixed;
    uint32_t fixed_count; /**< at least 1; the first is always allowed */
} rp_zb_search;

/**
 * For rp_schedule_type.prepare, by the program's number of stages with one per GPU or two in a V.
 * @param plan_out an rp_cell_plan
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY, RP_BROKEN (logged)
 */
rp_status rp_zb_plan(const rp_zb_search *search, const rp_schedule_config *config,
                     const rp_program *program, rp_arena *arena, void **plan_out,
                     rp_reason *reason);
