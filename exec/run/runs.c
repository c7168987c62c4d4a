#include "exec/run/runs.h"

#include "common/base/reason.h"
#include "exec/plan/plan.h"
#include "exec/run/work.h"

/* Sizes that meet the divisors of all schedules: two GPUs, chunks of them, pairs of
 * microbatches. */
#define GPUS 2u
#define LAYERS 8u

static rp_status try(const rp_schedule_type *schedule, bool asynchronous, rp_arena *arena,
                     rp_reason *reason)
{
    static const rp_model config = {.name = "a small decoder",
                                    .layers = LAYERS,
                                    .hidden = 8,
                                    .heads = 2,
                                    .kv_heads = 2,
                                    .head_dim = 4,
                                    .intermediate = 8,
                                    .experts = 1,
                                    .active_experts = 1,
                                    .vocab = 8,
                                    .max_positions = 8,
                                    .rope_theta = 10000,
                                    .norm_eps = 1e-6,
                                    .rope_scaling = "none"};
    rpexec_model model;
    rp_costs costs;
    rpexec_plan plan;
    rp_program *program = NULL;
    const rpexec_plan_limits limits = {0};
    rp_run run = {.hardware = true, .gpus = GPUS, .iterations = 2, .asynchronous = asynchronous};
    rp_run_decide(&run, schedule);
    const rp_resolved work = rp_resolved_of_run(&run, schedule, &config);
    RP_TRY(rpexec_model_create(&config, config.max_positions, RP_DTYPE_F32, arena, &model));
    RP_TRY(rpexec_work_costs(&model, work.decided.microbatch_size, arena, &costs));
    RP_TRY(rpexec_work_program(&work, &model, &costs, &program, reason));
    rp_status status = rpexec_plan_create(program, &model, &limits, arena, &plan, reason);
    rp_program_destroy(program);
    return status;
}

rp_status rpexec_runs(const rp_schedule_type *schedule, bool asynchronous, rp_arena *arena,
                      const char **reason_out)
{
    rp_reason reason = {0};
    size_t length = 0;
    *reason_out = NULL;
    rp_status status = try(schedule, asynchronous, arena, &reason);
    if (status == RP_OK || reason.status != status) {
        return status;
    }
    const char *cause = rp_reason_cause(&reason, schedule->name, &length);
    return rp_arena_copy_text(arena, cause, length, reason_out);
}
