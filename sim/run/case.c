#include "sim/run/case.h"

#include "common/base/host_limits.h"
#include "common/schedule/build.h"
#include "sim/engine/clock.h"
#include "sim/run/run_bounds.h"

/* Runs and measures a program that has been checked; it stays the caller's. */
static rp_status simulate_in(const rp_schedule_type *schedule, const rp_schedule_config *config,
                             const rp_costs *costs, const rp_producers *producers,
                             rp_arena *scratch, rpsim_result *result, rp_reason *reason)
{
    const rp_program *program = result->program;
    rp_metrics *metrics = &result->metrics;
    rp_stage_times times;
    RP_TRY(rp_stage_times_compute(program, costs, scratch, &times, reason));
    RP_TRY(rpsim_stage_run(program, &times, &result->timeline, metrics, reason));
    bool separate = rp_program_has_separate_backward(program);
    RP_TRY(rp_metrics_measure(result->timeline, separate, metrics, reason));
    if (program->iteration_count == 1) {
        RP_TRY(rpsim_bounds_stage(schedule, config, producers, &times, costs, metrics->busy_ps,
                                  &result->bounds));
        metrics->lower_bound_ps = rpsim_bounds_best(&result->bounds);
    }
    return RP_OK;
}

/* Validates the program, then runs and measures it. The engine finds cycles.
 * @param schedule and config NULL: unknown */
static rp_status simulate(const rp_schedule_type *schedule, const rp_schedule_config *config,
                          const rp_costs *costs, rpsim_result *result, rp_reason *reason)
{
    rp_arena *scratch = NULL;
    rp_producers producers;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = rp_program_check_but_cycles(result->program, scratch, &producers);
    if (status == RP_OK) {
        status = simulate_in(schedule, config, costs, &producers, scratch, result, reason);
    }
    rp_arena_destroy(scratch);
    return status;
}

static rp_status simulate_kept(rpsim_kept *kept, const rp_schedule_type *schedule,
                               const rp_schedule_config *config, rpsim_result *result,
                               rp_reason *reason)
{
    const rpsim_kept_program *program = NULL;
    rp_arena *scratch = NULL;
    RP_TRY(rpsim_kept_stage(kept, schedule, config, &program, reason));
    result->program = program->program;
    result->program_hash = program->hash;
    result->program_is_kept = true;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status =
        simulate_in(schedule, config, config->costs, &program->producers, scratch, result, reason);
    rp_arena_destroy(scratch);
    return status;
}

static rp_status build_and_simulate(rpsim_kept *kept, const rp_schedule_type *schedule,
                                    const rp_schedule_config *config, rpsim_result *result,
                                    rp_reason *reason)
{
    if (kept != NULL) {
        return simulate_kept(kept, schedule, config, result, reason);
    }
    RP_TRY(rp_schedule_build(schedule, config, &result->program, reason));
    return simulate(schedule, config, config->costs, result, reason);
}

static rp_status add_steady_state(rpsim_kept *kept, const rp_schedule_type *schedule,
                                  const rp_schedule_config *config, rpsim_result *result,
                                  rp_reason *reason)
{
    if (config->iterations > 1) {
        rp_metrics one_iteration = result->metrics;
        rpsim_bounds bounds = result->bounds;
        rpsim_result_fini(result);
        RP_TRY(build_and_simulate(kept, schedule, config, result, reason));
        result->metrics = one_iteration;
        result->bounds = bounds;
    }
    result->period_ps = config->asynchronous ? rp_metrics_period_ps(result->timeline)
                                             : (double)result->metrics.makespan_ps;
    return RP_OK;
}

rp_status rpsim_case_run(const rp_schedule_type *schedule, const rp_schedule_config *config,
                         rpsim_result *result_out, rp_reason *reason)
{
    return rpsim_case_run_kept(NULL, schedule, config, result_out, reason);
}

rp_status rpsim_case_run_kept(rpsim_kept *kept, const rp_schedule_type *schedule,
                              const rp_schedule_config *config, rpsim_result *result_out,
                              rp_reason *reason)
{
    double begin_s = rpsim_clock_s();
    rpsim_result result = {.separate_backward = schedule->separate_backward};
    rp_schedule_config one_iteration = *config;
    one_iteration.iterations = 1;
    rp_status status = rp_schedule_check(schedule, config, reason);
    if (status == RP_OK) {
        status = rp_host_memory_allow(rp_schedule_footprint(config, false, false), schedule->name,
                                      RP_FOOTPRINT_VALID, reason);
    }
    if (status == RP_OK) {
        status = build_and_simulate(kept, schedule, &one_iteration, &result, reason);
    }
    if (status == RP_OK) {
        status = add_steady_state(kept, schedule, config, &result, reason);
    }
    if (status != RP_OK) {
        rpsim_result_fini(&result);
        return status;
    }
    result.wall_s = rpsim_clock_s() - begin_s;
    *result_out = result;
    return RP_OK;
}

rp_status rpsim_program_run(rp_program *program, const rp_costs *costs, rpsim_result *result_out,
                            rp_reason *reason)
{
    double begin_s = rpsim_clock_s();
    rpsim_result result = {.program = program};
    result.separate_backward = rp_program_has_separate_backward(program);
    RP_TRY(rp_host_memory_allow(rp_program_footprint(program->op_count, false), "the program",
                                "programs of fewer ops", reason));
    rp_status status = simulate(NULL, NULL, costs, &result, reason);
    if (status != RP_OK) {
        rp_timeline_destroy(result.timeline);
        return status;
    }
    result.period_ps = rp_metrics_period_ps(result.timeline);
    result.wall_s = rpsim_clock_s() - begin_s;
    *result_out = result;
    return RP_OK;
}

bool rpsim_result_beats_peak(const rpsim_result *result)
{
    return result->busy_share > 1 + 1e-9;
}

void rpsim_result_fini(rpsim_result *result)
{
    rp_timeline_destroy(result->timeline);
    if (!result->program_is_kept) {
        rp_program_destroy(result->program);
    }
    result->timeline = NULL;
    result->program = NULL;
    result->program_is_kept = false;
    result->program_hash = 0;
    result->memory = (rpsim_memory){0};
}
