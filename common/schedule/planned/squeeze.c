#include "common/schedule/planned/squeeze.h"

rp_status rp_squeeze(const rp_schedule_type *schedule, const rp_schedule_config *config,
                     const rp_program *program, rp_arena *arena, void **plan_out, rp_reason *reason)
{
    rp_cell_plan *plan = NULL;
    uint32_t *peaks = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *plan, &plan));
    RP_TRY(rp_arena_alloc(arena, config->gpus, sizeof(uint32_t), &peaks));
    RP_TRY(rp_cells_make(config, program, arena, &plan->cells, reason));
    RP_TRY(rp_cell_order_of(schedule, config, &plan->cells, arena, &plan->order, reason));
    rp_cell_order_peaks(&plan->cells, &plan->order, peaks);
    *plan_out = plan;
    return rp_cell_order_compact(&plan->cells, peaks, &plan->order);
}
