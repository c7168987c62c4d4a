#include "sim/study/replicas.h"

#include "common/base/log.h"
#include "common/schedule/build.h"
#include "sim/study/study.h"

#include <math.h>

/* Data that every replica of a program reads. */
typedef struct scene {
    const rp_program *program;
    rp_stage_times times;
    rpsim_compute_costs costs; /* set at hardware fidelity */
    rp_machine machine;
} scene;

/* The period, or the makespan of a single asynchronous iteration. */
static double iteration_ps(rp_timeline *timeline)
{
    double period_ps = rp_metrics_period_ps(timeline);
    double ps = isnan(period_ps) ? (double)rp_metrics_makespan_ps(timeline) : period_ps;
    rp_timeline_destroy(timeline);
    return ps;
}

static rp_status run_stage(const void *context, const double *factors, double *ps_out)
{
    const scene *s = context;
    rp_timeline *timeline = NULL;
    rp_metrics metrics;
    RP_TRY(rpsim_stage_run_scaled(s->program, &s->times, factors, &timeline, &metrics, NULL));
    *ps_out = iteration_ps(timeline);
    return RP_OK;
}

static rp_status run_hardware(const void *context, const double *factors, double *ps_out)
{
    const scene *s = context;
    rp_timeline *timeline = NULL;
    RP_TRY(rpsim_hardware_run_scaled(s->program, &s->costs, &s->machine, factors, &timeline, NULL));
    *ps_out = iteration_ps(timeline);
    return RP_OK;
}

rp_status rpsim_program_replicate(const rp_program *program, const rp_costs *costs,
                                  const rpsim_noise *noise, double *ps_out)
{
    scene s = {.program = program};
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_stage_times_compute(program, costs, arena, &s.times, NULL);
    if (status == RP_OK) {
        status = rpsim_noise_run(noise, program, run_stage, &s, ps_out);
    }
    rp_arena_destroy(arena);
    return status;
}

rp_status rpsim_case_replicate(const rp_schedule_type *schedule, const rp_schedule_config *config,
                               const rpsim_noise *noise, double *ps_out)
{
    rp_schedule_config wanted = *config;
    wanted.iterations = config->asynchronous ? config->iterations : 1;
    rp_program *program = NULL;
    RP_TRY(rp_schedule_build(schedule, &wanted, &program, NULL));
    rp_status status = rpsim_program_replicate(program, config->costs, noise, ps_out);
    rp_program_destroy(program);
    return status;
}

rp_status rpsim_hardware_program_replicate(const rp_program *program, const rp_costs *costs,
                                           const rp_model *model, const rp_platform *platform,
                                           uint32_t seq_len, const rpsim_noise *noise,
                                           double *ps_out)
{
    scene s = {.program = program};
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rpsim_hardware_inputs(program, costs, model, platform, seq_len, arena,
                                             &s.costs, &s.machine, NULL);
    if (status == RP_OK) {
        status = rpsim_noise_run(noise, program, run_hardware, &s, ps_out);
    }
    rp_arena_destroy(arena);
    return status;
}

rp_status rpsim_hardware_case_replicate(const rp_resolved *run, const rp_platform *platform,
                                        const rpsim_noise *noise, double *ps_out)
{
    rp_program *program = NULL;
    RP_TRY(rpsim_hardware_lower(run, platform, &program, NULL));
    rp_status status = rpsim_hardware_program_replicate(program, run->costs, run->model, platform,
                                                        run->decided.seq_len, noise, ps_out);
    rp_program_destroy(program);
    return status;
}

rp_status rpsim_row_replicate(const rpsim_study *study, rpsim_row *row)
{
    const rpsim_setup *o = study->setup;
    if (!o->jitter_given) {
        return RP_OK;
    }
    rpsim_noise noise = {.cv = o->jitter,
                         .replicas = o->replicas,
                         .seed = o->seed,
                         .slow_gpu = o->slow_gpu,
                         .slow_factor = o->slow_factor};
    if (isnan(row->result.period_ps)) {
        rp_log_error("{jitter}: one asynchronous iteration of %s has no period; valid are 2 "
                     "iterations or more",
                     row->schedule_name);
        return RP_USAGE;
    }
    double *ps = NULL;
    RP_TRY(rp_arena_alloc(study->arena, o->replicas, sizeof *ps, &ps));
    if (row->from_program && !row->run.stage) {
        RP_TRY(rpsim_hardware_program_replicate(row->result.program, row->run.costs, row->run.model,
                                                row->platform, row->run.decided.seq_len, &noise,
                                                ps));
    } else if (row->from_program) {
        RP_TRY(rpsim_program_replicate(row->result.program, row->run.costs, &noise, ps));
    } else if (!row->run.stage) {
        RP_TRY(rpsim_hardware_case_replicate(&row->run, row->platform, &noise, ps));
    } else {
        const rp_schedule_config view = rp_resolved_view(&row->run);
        RP_TRY(rpsim_case_replicate(row->run.schedule, &view, &noise, ps));
    }
    row->replica_ps = ps;
    return rpsim_noise_quantiles(ps, o->replicas, &row->quantiles);
}

rp_status rpsim_row_draw(const rpsim_study *study, rpsim_row *row)
{
    const rpsim_setup *o = study->setup;
    if (o->intervals == 0 || row->run.stage || isnan(row->result.period_ps)) {
        return RP_OK;
    }
    const rpsim_interval_run run = {.program = row->result.program,
                                    .platform = row->platform,
                                    .resolved = &row->run,
                                    .period_ps = row->result.period_ps};
    RP_TRY(rp_arena_alloc(study->arena, 1, sizeof *row->intervals, &row->intervals));
    return rpsim_intervals_make(&run, o->intervals, o->seed, 0, true, study->arena, row->intervals);
}

double rpsim_row_beats(const rpsim_study *study, const rpsim_row *a, const rpsim_row *b)
{
    double work_a = (double)a->run.global_batch * a->run.decided.seq_len;
    double work_b = (double)b->run.global_batch * b->run.decided.seq_len;
    return rpsim_noise_beats(a->replica_ps, work_a, b->replica_ps, work_b, study->setup->replicas);
}
