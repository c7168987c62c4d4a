#include "sim/case.h"

#include "sim/clock.h"

#include <math.h>

/* Validates, runs and measures; the program stays the caller's. Cycles are left to the engine. */
static rp_status simulate_in(const rp_program *program, const rp_costs *costs, rp_arena *scratch,
                             rp_metrics *metrics_out, rp_timeline **timeline_out)
{
    rp_stage_times times;
    rp_producers producers;
    RP_TRY(rp_program_check_but_cycles(program, scratch, &producers));
    RP_TRY(rp_stage_times_compute(program, costs, scratch, &times));
    RP_TRY(rpsim_stage_run(program, &times, timeline_out, metrics_out));
    bool separate = rp_program_has_separate_backward(program);
    RP_TRY(rp_metrics_measure(*timeline_out, separate, metrics_out));
    if (program->iteration_count == 1) {
        return rpsim_lower_bound(&producers, &times, &metrics_out->lower_bound_ps);
    }
    return RP_OK;
}

static rp_status simulate(const rp_program *program, const rp_costs *costs, rp_metrics *metrics_out,
                          rp_timeline **timeline_out)
{
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_timeline *timeline = NULL;
    rp_status status = simulate_in(program, costs, scratch, metrics_out, &timeline);
    rp_arena_destroy(scratch);
    if (status != RP_OK) {
        rp_timeline_destroy(timeline);
        return status;
    }
    *timeline_out = timeline;
    return RP_OK;
}

static rp_status build_and_simulate(const rp_schedule_type *schedule,
                                    const rp_schedule_config *config, rpsim_result *result)
{
    RP_TRY(rp_schedule_build(schedule, config, &result->program));
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
    result->memory = (rpsim_memory){0};
}
