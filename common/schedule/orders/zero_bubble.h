/** @file zero_bubble.h  The cost-aware zero-bubble schedules (schedules.md 3), built for the run's
 * own times within a limit of activations.
 *
 * Candidates are the orders of the fixed schedules that keep within the limit and the orders of
 * greedy builders (greedy.h) with all settings of their switches. Each candidate is compacted
 * (rp_cell_order_compact), and the candidate with the least makespan is taken, the first among
 * equals. So at stage fidelity a planned schedule is never slower than the fixed schedules.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/planned/cells.h"

/** A schedule with its own rule, and the fewest microbatches for which it may be tried. */
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
 * For rp_schedule_type.prepare; the program's number of stages decides between 1 stage per GPU and
 * 2 stages in a V.
 * @param plan_out an rp_cell_plan
 * @retval RP_OK, RP_USAGE, RP_INPUT, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_zb_plan(const rp_zb_search *search, const rp_schedule_config *config,
                     const rp_program *program, rp_arena *arena, void **plan_out,
                     rp_reason *reason);
