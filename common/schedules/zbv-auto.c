/* ZB-V built for the run's own times: two stages per GPU in a V, and no GPU keeps more than 2 P
 * forwards of its stages until their weight parts, as many activations as 1F1B keeps. */
#include "common/schedule/orders/zero_bubble.h"

extern const rp_schedule_type rp_schedule_zbv;

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    return rp_cell_plan_check(config, "zbv-auto", reason);
}

static rp_status prepare(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, void **plan_out, rp_reason *reason)
{
    const rp_zb_fixed fixed[] = {{&rp_schedule_zbv, 1}};
    rp_zb_search search = {.capacity = 2 * config->gpus, .fixed = fixed, .fixed_count = 1};
    return rp_zb_plan(&search, config, program, arena, plan_out, reason);
}

const rp_schedule_type rp_schedule_zbv_auto = {
    .name = "zbv-auto",
    .summary = "ZB-V planned for the run's times, with 1F1B's activations",
    .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6; with compaction "
              "of our own (common/schedule/planned/cells.h)",
    .stages_per_gpu = 2,
    .splits_backward = true,
    .planning_runs = 180,
    .default_recompute = RP_RECOMPUTE_NONE,
    .check = check,
    .prepare = prepare,
    .order = rp_cell_plan_emit,
};
