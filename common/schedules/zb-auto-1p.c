/* ZB-1p: the zero-bubble schedule built for the run's own times, with the activations of 1F1B: no
 * GPU keeps more than P microbatches until their weight parts. A GPU has a single stage. */
#include "common/schedule/orders/zero_bubble.h"

extern const rp_schedule_type rp_schedule_zb_h1;

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    return rp_cell_plan_check(config, "zb-auto-1p", reason);
}

static rp_status prepare(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, void **plan_out, rp_reason *reason)
{
    const rp_zb_fixed fixed[] = {{&rp_schedule_zb_h1, 1}};
    rp_zb_search search = {.capacity = config->gpus, .fixed = fixed, .fixed_count = 1};
    return rp_zb_plan(&search, config, program, arena, plan_out, reason);
}

const rp_schedule_type rp_schedule_zb_auto_1p = {
    .name = "zb-auto-1p",
    .summary = "ZB-1p: zero bubble planned for the run's times, with 1F1B's activations",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3.1; with compaction "
        "of our own (common/schedule/planned/cells.h)",
    .splits_backward = true,
    .planning_runs = 70,
    .default_recompute = RP_RECOMPUTE_NONE,
    .check = check,
    .prepare = prepare,
    .order = rp_cell_plan_emit,
};
