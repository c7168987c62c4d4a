/* V-Min after compaction with the run's own times: warm-up and cool-down move into idle time, and
 * no GPU keeps more forwards of its stages than it does in V-Min. If its two stages differ in
 * layers, the same number of forwards may take more bytes. */
#include "common/schedule/planned/squeeze.h"

extern const rp_schedule_type rp_schedule_v_min;

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    return rp_cell_plan_check(config, "v-min-squeezed", reason);
}

static rp_status prepare(const rp_schedule_config *config, const rp_program *program,
                         rp_arena *arena, void **plan_out, rp_reason *reason)
{
    return rp_squeeze(&rp_schedule_v_min, config, program, arena, plan_out, reason);
}

const rp_schedule_type rp_schedule_v_min_squeezed = {
    .name = "v-min-squeezed",
    .summary = "V-Min compacted for the run's times, with no more forwards kept on any GPU",
    .source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 4; "
              "compaction of our own (common/schedule/planned/cells.h)",
    .stages_per_gpu = 2,
    .splits_backward = true,
    .planning_runs = 45,
    .default_recompute = RP_RECOMPUTE_NONE,
    .check = check,
    .prepare = prepare,
    .order = rp_cell_plan_emit,
};
