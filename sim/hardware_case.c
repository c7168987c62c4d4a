#include "sim/hardware_case.h"

#include "common/log.h"
#include "common/lower.h"
#include "sim/clock.h"
#include "sim/hardware_engine.h"

#include <math.h>

typedef struct inputs {
    const rp_schedule_type *schedule;
    const rp_schedule_config *config;
    const rpsim_workload *workload;
    const rp_model *model;
    rp_arena *arena;
    uint32_t *sequences;
    rpsim_gpu_rates rates;
    rpsim_machine machine;
} inputs;

rp_status rpsim_workload_split(const rpsim_workload *w, rp_arena *arena, uint32_t **sequences_out)
{
    uint64_t microbatches = (uint64_t)w->calls * w->microbatches;
    if (microbatches > w->global_batch) {
        rp_log_error("--global-batch: %u sequences cannot fill %u calls of %u microbatches; valid "
                     "values are %llu and more",
                     w->global_batch, w->calls, w->microbatches, (unsigned long long)microbatches);
        return RP_USAGE;
    }
    uint32_t *sequences = NULL;
    RP_TRY(rp_arena_alloc(arena, microbatches, sizeof *sequences, &sequences));
    uint64_t batch = w->global_batch;
    for (uint64_t call = 0; call < w->calls; call++) {
        uint64_t of_call = batch * (call + 1) / w->calls - batch * call / w->calls;
        for (uint64_t m = 0; m < w->microbatches; m++) {
            sequences[call * w->microbatches + m] =
                (uint32_t)(of_call * (m + 1) / w->microbatches - of_call * m / w->microbatches);
        }
    }
    *sequences_out = sequences;
    return RP_OK;
}

static rp_status set_machine(const rp_platform *platform, inputs *in)
{
    const struct {
        const char *key;
        double value;
    } needed[] = {
        {"link_effective_gb_per_s", platform->link_effective_gb_per_s},
        {"attention_fwd_tflops", platform->attention_fwd_tflops},
        {"attention_bwd_tflops", platform->attention_bwd_tflops},
        {"memory_effective_gb_per_s", platform->memory_effective_gb_per_s},
        {"host_optimizer_gb_per_s", platform->host_optimizer_gb_per_s},
    };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!(needed[i].value > 0)) {
            rp_log_error("--platform: %s has no %s, which hardware fidelity needs; valid are "
                         "platform files with a positive value",
                         platform->name, needed[i].key);
            return RP_INPUT;
        }
    }
    in->rates = (rpsim_gpu_rates){1e12 * platform->attention_fwd_tflops,
                                  1e12 * platform->attention_bwd_tflops,
                                  1e9 * platform->memory_effective_gb_per_s};
    in->machine = (rpsim_machine){.upload_Bps = 1e9 * platform->link_effective_gb_per_s,
                                  .download_Bps = 1e9 * platform->link_effective_gb_per_s,
                                  .host_Bps = 1e9 * platform->host_optimizer_gb_per_s};
    return RP_OK;
}

static rp_status lower(const inputs *in, const rp_schedule_config *config, rp_program **program_out)
{
    rp_program *schedule = NULL;
    RP_TRY(rp_schedule_build(in->schedule, config, &schedule));
    rp_lower_config lower = {.placement = in->schedule->separate_backward ? RP_PLACEMENT_OFFLOAD
                                                                          : RP_PLACEMENT_RESIDENT,
                             .call_microbatches = in->workload->microbatches,
                             .piece_bytes = RP_PIECE_BYTES};
    rp_status status = rp_sizes_of_model(in->model, in->workload->seq_len, in->arena, &lower.sizes);
    if (status == RP_OK) {
        status = rp_lower(schedule, &lower, in->sequences, program_out);
    }
    rp_program_destroy(schedule);
    return status;
}

rp_status rpsim_hardware_lower(const rp_schedule_type *schedule, const rp_schedule_config *config,
                               const rpsim_workload *workload, const rp_model *model,
                               rp_program **program_out)
{
    inputs in = {.schedule = schedule, .config = config, .workload = workload, .model = model};
    RP_TRY(rp_arena_create(&in.arena));
    rp_status status = rpsim_workload_split(workload, in.arena, &in.sequences);
    if (status == RP_OK) {
        status = lower(&in, config, program_out);
    }
    rp_arena_destroy(in.arena);
    return status;
}

/* Validates, runs and measures result->program. */
static rp_status run_program(const inputs *in, const rp_costs *table, uint32_t seq_len,
                             rpsim_result *result)
{
    rpsim_compute_costs costs;
    RP_TRY(rp_program_check(result->program));
    RP_TRY(rpsim_compute_costs_create(result->program, table, in->model, &in->rates, seq_len,
                                      in->arena, &costs));
    RP_TRY(rpsim_hardware_run(result->program, &costs, &in->machine, &result->timeline));
    return rp_metrics_measure(result->timeline, result->separate_backward, &result->metrics);
}

static rp_status run_steps(const inputs *in, uint32_t iterations, rpsim_result *result)
{
    rp_schedule_config config = *in->config;
    config.iterations = iterations;
    RP_TRY(lower(in, &config, &result->program));
    return run_program(in, config.costs, in->workload->seq_len, result);
}

static rp_status run(inputs *in, rpsim_result *result)
{
    RP_TRY(rpsim_workload_split(in->workload, in->arena, &in->sequences));
    RP_TRY(run_steps(in, 1, result));
    if (in->config->iterations > 1) {
        rp_metrics one = result->metrics;
        rpsim_result_fini(result);
        RP_TRY(run_steps(in, in->config->iterations, result));
        result->metrics = one;
    }
    result->period_ps = rp_metrics_period_ps(result->timeline);
    return RP_OK;
}

rp_status rpsim_hardware_case_run(const rp_schedule_type *schedule,
                                  const rp_schedule_config *config, const rpsim_workload *workload,
                                  const rp_model *model, const rp_platform *platform,
                                  rpsim_result *result_out)
{
    double begin_s = rpsim_clock_s();
    inputs in = {.schedule = schedule, .config = config, .workload = workload, .model = model};
    rpsim_result result = {.separate_backward = schedule->separate_backward, .period_ps = NAN};
    RP_TRY(set_machine(platform, &in));
    RP_TRY(rp_arena_create(&in.arena));
    rp_status status = run(&in, &result);
    rp_arena_destroy(in.arena);
    if (status != RP_OK) {
        rpsim_result_fini(&result);
        return status;
    }
    result.wall_s = rpsim_clock_s() - begin_s;
    *result_out = result;
    return RP_OK;
}

rp_status rpsim_hardware_program_run(rp_program *program, const rp_costs *costs,
                                     const rp_model *model, const rp_platform *platform,
                                     uint32_t seq_len, rpsim_result *result_out)
{
    double begin_s = rpsim_clock_s();
    if (program->op_bytes == NULL) {
        rp_log_error("--program-in: hardware fidelity needs a lowered program, this is a compute "
                     "schedule; valid are programs that rpsim --fidelity hardware --program-out "
                     "wrote, or --fidelity stage");
        return RP_INPUT;
    }
    inputs in = {.model = model};
    rpsim_result result = {.program = program, .period_ps = NAN};
    result.separate_backward = rp_program_has_separate_backward(program);
    RP_TRY(set_machine(platform, &in));
    RP_TRY(rp_arena_create(&in.arena));
    rp_status status = run_program(&in, costs, seq_len, &result);
    rp_arena_destroy(in.arena);
    if (status != RP_OK) {
        rp_timeline_destroy(result.timeline);
        return status;
    }
    result.period_ps = rp_metrics_period_ps(result.timeline);
    result.wall_s = rpsim_clock_s() - begin_s;
    *result_out = result;
    return RP_OK;
}
