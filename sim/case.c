#include "sim/case.h"

#include "sim/clock.h"

#include <math.h>

/* Runs and measures; the program stays the caller's. */
static rp_status simulate(const rp_program *program, const rp_costs *costs, rp_metrics *metrics_out,
                          rp_timeline **timeline_out)
{
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_stage_times times;
    rp_timeline *timeline = NULL;
    rp_metrics metrics;
    rp_status status = rp_stage_times_compute(program, costs, scratch, &times);
    if (status == RP_OK) {
        status = rpsim_stage_run(program, &times, &timeline, &metrics);
    }
    if (status == RP_OK) {
        bool separate = rp_program_has_separate_backward(program);
        status = rp_metrics_measure(timeline, separate, &metrics);
    }
    if (status == RP_OK && program->iteration_count == 1) {
        status = rpsim_lower_bound(program, &times, &metrics.lower_bound_ps);
    }
    rp_arena_destroy(scratch);
    if (status != RP_OK) {
        rp_timeline_destroy(timeline);
        return status;
    }
    *metrics_out = metrics;
    *timeline_out = timeline;
    return RP_OK;
}

static rp_status build_and_simulate(const rp_schedule_type *schedule,
                                    const rp_schedule_config *config, rpsim_result *result)
{
    RP_TRY(rp_schedule_build(schedule, config, &result->program));
    RP_TRY(rp_program_check(result->program));
    return simulate(result->program, config->costs, &result->metrics, &result->timeline);
}

static rp_status add_steady_state(const rp_schedule_type *schedule,
                                  const rp_schedule_config *config, rpsim_result *result)
{
    if (config->iterations > 1) {
        rp_metrics one_iteration = result->metrics;
        rpsim_result_fini(result);
        RP_TRY(build_and_simulate(schedule, config, result));
        result->metrics = one_iteration;
    }
    result->period_ps = config->asynchronous ? rp_metrics_period_ps(result->timeline)
                                             : (double)result->metrics.makespan_ps;
    return RP_OK;
}

rp_status rpsim_case_run(const rp_schedule_type *schedule, const rp_schedule_config *config,
                         rpsim_result *result_out)
{
    double begin_s = rpsim_clock_s();
    rpsim_result result = {.separate_backward = schedule->separate_backward};
    rp_schedule_config one_iteration = *config;
    one_iteration.iterations = 1;
    rp_status status = rp_schedule_check(schedule, config);
    if (status == RP_OK) {
        status = build_and_simulate(schedule, &one_iteration, &result);
    }
    if (status == RP_OK) {
        status = add_steady_state(schedule, config, &result);
    }
    if (status != RP_OK) {
        rpsim_result_fini(&result);
        return status;
    }
    result.wall_s = rpsim_clock_s() - begin_s;
    *result_out = result;
    return RP_OK;
}

rp_status rpsim_program_run(rp_program *program, const rp_costs *costs, rpsim_result *result_out)
{
    double begin_s = rpsim_clock_s();
    rpsim_result result = {.program = program, .period_ps = NAN};
    result.separate_backward = rp_program_has_separate_backward(program);
    RP_TRY(simulate(program, costs, &result.metrics, &result.timeline));
    if (program->iteration_count > 1) {
        result.period_ps = rp_metrics_period_ps(result.timeline);
    } else if (!program->asynchronous) {
        result.period_ps = (double)result.metrics.makespan_ps;
    }
    result.wall_s = rpsim_clock_s() - begin_s;
    *result_out = result;
    return RP_OK;
}

void rpsim_result_fini(rpsim_result *result)
{
    rp_timeline_destroy(result->timeline);
    rp_program_destroy(result->program);
    result->timeline = NULL;
    result->program = NULL;
}
