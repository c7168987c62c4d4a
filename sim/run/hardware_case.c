#include "sim/run/hardware_case.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "common/compile/compile.h"
#include "common/lower/lower.h"
#include "common/machine/platform_machine.h"
#include "common/roofline/roofline.h"
#include "common/schedule/build.h"
#include "sim/engine/clock.h"
#include "sim/run/card_factors.h"
#include "sim/run/executed.h"
#include "sim/run/explain/explain.h"
#include "sim/run/library_run.h"
#include "sim/run/memory/host.h"
#include "sim/run/run_bounds.h"

#include <math.h>

/* Bytes per parameter that Megatron-LM's step with fp16 gradients moves: gradients cast to fp32 6,
 * unscaled and searched for infinities 8, their norm 4, Adam in fp32 28, weights cast 6, gradients
 * cleared 2 (megatron/optimizer/optimizer.py, Float16OptimizerWithFloat16Params). */
#define MEGATRON_STEP_BYTES 54.0

typedef struct inputs {
    const rp_resolved *run; /* NULL: the program was given */
    const rp_model *model;
    const rp_model *table_model; /* the model whose layers the table describes: `model`, or a rank's
                                    part of it */
    const rp_platform *platform;
    rp_roof roof; /* the platform, and the number formats of the run's arithmetic */
    rp_arena *arena;
    uint32_t *sequences;
    uint32_t block; /* GPUs of the program, of which others are repetitions; 0: all GPUs */
    rpsim_gpu_rates rates;
    rp_machine machine;
    rpsim_memory_limits limits;
    uint32_t peer_gpus; /* rp_lower_config */
    const uint32_t *peer_groups;
    uint32_t queue_depth; /* launches; 0: dispatch is not modelled */
} inputs;

/* The arithmetic of a table's times. A table that does not say it was made with the run's type;
 * before tables said it, fp16 accumulated in fp16. */
static rp_arithmetic arithmetic_of(const rp_costs *table, rp_dtype dtype)
{
    bool half = dtype == RP_DTYPE_F16;
    bool known = table->arithmetic.accumulation != RP_ACCUMULATION_USUAL;
    return known ? table->arithmetic
                 : (rp_arithmetic){dtype, half ? RP_ACCUMULATION_F16 : RP_ACCUMULATION_F32};
}

static rp_status set_machine(const rp_platform *platform, const rp_costs *table, rp_dtype dtype,
                             inputs *in, rp_reason *reason)
{
    in->platform = platform;
    in->roof = (rp_roof){platform, arithmetic_of(table, dtype), NULL};
    in->machine = rp_machine_of(platform);
    in->peer_gpus = rp_peer_gpus(platform);
    const rp_needed_rate needed[] = {
        {"link_effective_gb_per_s or link_efficiency", rp_link_bytes_per_s(platform)},
        {"attention_fwd_tflops", platform->attention_fwd_tflops},
        {"attention_bwd_tflops", platform->attention_bwd_tflops},
        {"memory_effective_gb_per_s", platform->memory_effective_gb_per_s},
        {"host_optimizer_gb_per_s or optimizer_threads", in->machine.host_Bps},
    };
    RP_TRY(rp_platform_need(platform, needed, sizeof needed / sizeof needed[0],
                            "which hardware fidelity needs", reason));
    in->rates = (rpsim_gpu_rates){
        .attention_fwd_flops = rp_attention_flops_per_s(&in->roof, RP_PASS_FORWARD),
        .attention_bwd_flops = rp_attention_flops_per_s(&in->roof, RP_PASS_BACKWARD_INPUT),
        .value_bytes = (double)rp_dtype_bytes(in->roof.arithmetic.dtype),
        .memory_bytes_per_s = 1e9 * platform->memory_effective_gb_per_s,
        .launch_s = 1e-6 * platform->launch_overhead_us,
        .time_factor = platform->layer_time_factor,
    };
    in->machine.module_ps = rp_ms_to_ps(1e-3 * platform->dispatch_us_per_module);
    in->machine.object_ps = rp_ms_to_ps(1e-3 * platform->optimizer_us_per_object);
    return RP_OK;
}

/* Products hide a part of the traffic of tensor groups. A layer gathers and reduces twice in each
 * direction. */
static void hide_tensor(const rp_stack *stack, uint32_t tensor, inputs *in)
{
    rp_machine *m = &in->machine;
    if (stack == NULL || tensor == 1 || stack->tensor_exposed <= 0) {
        return;
    }
    m->tensor.Bps /= stack->tensor_exposed;
    double ring_s =
        1e-12 * (double)(m->collective_latency_ps + ((int64_t)tensor - 1) * m->collective_hop_ps);
    double bytes = in->rates.value_bytes * in->model->hidden * (tensor - 1) / tensor;
    in->rates.tensor_s = 4 * ring_s;
    in->rates.tensor_token_s = 4 * bytes / m->tensor.Bps;
}

/* Sets the layout: each GPU of the program stands for several GPUs of the layout. From a table of
 * whole layers, the time of a rank's part follows from its share of the tokens, as for a slice of
 * megatron-tp. */
static rp_status set_layout(const rp_traits *traits, uint32_t gpus, const rp_costs *table,
                            rp_arena *arena, inputs *in, rp_reason *reason)
{
    const rp_layout *layout = &traits->layout;
    uint32_t tensor = rp_layout_tensor(layout);
    in->table_model = in->model;
    RP_TRY(rp_machine_peer_groups(&in->machine, gpus, arena, &in->peer_groups));
    if (rp_server_copies(traits) > 1) { /* the program is of one server, which shares nothing */
        in->machine.servers = rp_server_copies(traits);
        return RP_OK;
    }
    RP_TRY(rp_machine_fold(&in->machine, layout, gpus, reason));
    RP_TRY(rp_machine_peer_groups(&in->machine, gpus, arena, &in->peer_groups));
    hide_tensor(table->stack, tensor, in);
    if (in->peer_gpus != 0 && in->peer_gpus != UINT32_MAX) {
        in->peer_gpus = in->machine.nvlink_gpus;
    }
    bool cuts = tensor > 1 || rp_layout_expert(layout) > 1;
    if (cuts && table->tensor_parallel == tensor) {
        rp_model *rank = NULL;
        RP_TRY(rp_arena_alloc(arena, 1, sizeof *rank, &rank));
        RP_TRY(rp_model_cut(in->model, layout, arena, rank, reason));
        in->table_model = rank;
    } else if (tensor > 1) {
        in->rates.sequence_slices = tensor;
    }
    return RP_OK;
}

/* Sets the costs of FSDP's and ZeRO-3's collectives to the passes beside them (sim/model.md section
 * 13). Collectives occupy some multiprocessors from their start to their end. If each microbatch is
 * reduced, its gradients are put together (2 v bytes per parameter of v bytes), cast to the type of
 * the reduction (v + r) and divided by the ranks (2 r); the table already contains ACCUMULATED
 * bytes of these. */
#define ACCUMULATED 6.0
static void set_collectives(const rp_sharding *sharding, const rp_platform *platform, uint32_t gpus,
                            rp_dtype dtype, inputs *in)
{
    if (!sharding->overlap) {
        return;
    }
    rpsim_gpu_rates *rates = &in->rates;
    const rp_machine *machine = &in->machine;
    double v = (double)rp_dtype_bytes(dtype);
    double r = sharding->reduce_bytes != 0 ? sharding->reduce_bytes : v;
    double reductions = sharding->reductions != 0 ? 1 : 0;
    double share = platform->sms != 0 ? (double)platform->collective_sms / platform->sms : 0;
    double bus_Bps = share > 0 ? rp_machine_bus_Bps(machine, gpus) : 1;
    double byte_s = share * (gpus - 1.0) / gpus / bus_Bps;
    double ring_s =
        share * 1e-12 * (double)rp_machine_collective_ps(machine, gpus, RP_OP_ALL_GATHER);
    double fwd = sharding->forward_gathers;
    double bwd = sharding->backward_gathers;
    rates->collective_fwd_s = ring_s * fwd;
    rates->collective_bwd_s = ring_s * (bwd + reductions);
    rates->collective_fwd_parameter_s = byte_s * fwd * v;
    rates->collective_bwd_parameter_s = byte_s * (bwd * v + reductions * r);
    if (sharding->reductions != 0) {
        double prepared = 2 * v + (sharding->reduce_bytes != 0 ? v + r : 0) + 2 * r - ACCUMULATED;
        rates->collective_bwd_parameter_s += prepared / rates->memory_bytes_per_s;
    }
}

/* Sets the behaviour of the software of the table's times: these contain the loss as it runs
 * it, and the host launches its kernels. */
static void set_stack(const rp_traits *traits, const rp_stack *stack, rp_dtype dtype, inputs *in)
{
    if (stack == NULL) {
        return;
    }
    bool tensor = rp_layout_tensor(&traits->layout) > 1;
    in->rates.loss_bytes_per_logit = 0;
    in->rates.loss_chunk_tokens = 0;
    in->machine.collective_latency_ps += rp_ms_to_ps(1e-3 * stack->collective_us);
    in->rates.host = (rp_stack_host){.stack = stack,
                                     .host_speed = in->platform->host_speed,
                                     .tensor = tensor,
                                     .sharded = traits->sharding.forward_gathers > 0,
                                     .frozen = in->model->frozen};
    if (traits->one_dispatcher && !stack->clones_modules) {
        in->queue_depth = 0;
        in->machine.adam_Bps = in->machine.refresh_Bps = in->machine.collect_Bps = 0;
        in->limits.gpu_fixed_bytes -= (uint64_t)(1e9 * in->platform->process_gb);
    }
    if (stack->reserve_pct > 0 && !stack->of_schedule) {
        double logit = stack->logit_bytes > 0 ? stack->logit_bytes : 1;
        double reserved = stack->logit_reserved_bytes > logit ? stack->logit_reserved_bytes : logit;
        in->limits.gpu_reserve = 1 + stack->reserve_pct / 100;
        in->limits.logit_reserve = reserved / logit;
    }
    if (stack->step_bytes > 0) {
        in->rates.update_passes = rp_compile_step_passes(traits, dtype, stack->step_bytes);
    }
}

/* Sets the inputs that depend on the software, not on the server. */
static void set_software(const rp_traits *traits, const rp_costs *table, uint32_t gpus,
                         rp_dtype dtype, inputs *in)
{
    const rp_platform *platform = in->platform;
    bool data_parallel = rp_is_data_parallel(traits);
    bool unfused = traits->unfused_loss && !in->model->fused_loss;
    in->rates.loss_bytes_per_logit = unfused ? RPSIM_UNFUSED_LOSS_BYTES : 0;
    in->rates.loss_chunk_tokens = traits->unfused_loss ? 0 : RP_LOSS_CHUNK_TOKENS;
    set_collectives(&traits->sharding, platform, gpus, dtype, in);
    bool steps = data_parallel && !traits->sharding.host_optimizer;
    in->rates.update_s = steps ? 1e-3 * in->model->step_host_ms : 0;
    in->rates.update_passes = in->model->megatron_kernels
                                  ? rp_compile_step_passes(traits, dtype, MEGATRON_STEP_BYTES)
                                  : 1;
    in->machine.local_memory = data_parallel;
    if (!traits->one_dispatcher) { /* the three rates were given for RoundPipe's library */
        in->machine.adam_Bps = in->machine.refresh_Bps = 0;
        in->machine.collect_Bps = data_parallel ? 1e9 * platform->zero_gradient_gb_per_s : 0;
    }
    uint32_t copies = rp_server_copies(traits) > 1 ? 1 : rp_layout_gpus(&traits->layout);
    in->limits = rpsim_memory_limits_of(platform, traits, gpus * copies);
    if (copies > 1) {
        in->limits.inner = rp_layout_strides(&traits->layout, gpus).pipeline;
        in->limits.outer = copies / in->limits.inner;
    }
    in->queue_depth = traits->one_dispatcher ? platform->launch_queue_depth : 0;
    set_stack(traits, table->stack, dtype, in);
}

/* Sets what backwards with selective recompute run again. */
static rp_status set_again(const inputs *in, const rp_costs *table, rp_arena *arena,
                           rpsim_gpu_rates *rates, rp_reason *reason)
{
    uint32_t again = rp_stack_again(table->stack);
    const rp_model *model = in->table_model;
    double *shares = NULL;
    rp_kernel_run run = {.roof = in->roof, .seq_len = table->seq_len};
    run.roof.stack = table->stack;
    RP_TRY(rp_roofline_check(&run.roof, reason));
    RP_TRY(rp_arena_alloc(arena, model->layers, sizeof *shares, &shares));
    for (uint32_t i = 0; i < model->layers; i++) {
        bool as_before = model->kinds == NULL && i >= 2; /* even and odd layers may differ */
        shares[i] = as_before ? shares[i - 2]
                              : rp_again_share(model, i, table->microbatch_size, &run, again);
    }
    rates->again = shares;
    rates->again_attention = (again & RP_AGAIN_ATTENTION) != 0;
    rates->host.selective = true;
    return RP_OK;
}

static rp_status create_costs(const inputs *in, const rp_program *program, const rp_costs *table,
                              uint32_t seq_len, rp_arena *arena, rpsim_compute_costs *costs_out,
                              rp_reason *reason)
{
    rpsim_gpu_rates rates = in->rates;
    if (program->recompute == RP_RECOMPUTE_SELECTIVE) {
        RP_TRY(set_again(in, table, arena, &rates, reason));
    }
    RP_TRY(rpsim_compute_costs_create(program, table, in->table_model, &rates, seq_len, arena,
                                      costs_out, reason));
    const rpsim_card_run cards = {.platform = in->platform,
                                  .traits = &program->traits,
                                  .table = table,
                                  .model = in->table_model,
                                  .arithmetic = in->roof.arithmetic,
                                  .gpus = program->gpu_count};
    RP_TRY(rpsim_card_factors(&cards, arena, &costs_out->gpu_factor, reason));
    return in->queue_depth == 0 ? RP_OK
                                : rpsim_dispatch_count(program, in->model, in->queue_depth, arena,
                                                       &costs_out->dispatch);
}

static uint32_t slice_tokens(const rp_resolved *run)
{
    uint32_t slices = run->sequence_slices != 0 ? run->sequence_slices : 1;
    return (run->decided.seq_len - 1) / slices + 1;
}

/* The run whose program is simulated. */
static rp_resolved simulated(const inputs *in, uint32_t iterations)
{
    rp_resolved run = *in->run;
    run.decided.seq_len = slice_tokens(in->run);
    run.sequences = in->sequences;
    run.decided.iterations = iterations;
    run.peer_gpus = in->peer_gpus;
    run.peer_groups = in->peer_groups;
    if (in->block != 0) {
        run.decided.microbatches = run.decided.microbatches / run.gpus * in->block;
        run.ranks = run.gpus;
        run.gpus = in->block;
    }
    return run;
}

static rp_status compile(const inputs *in, uint32_t iterations, rp_program **program_out,
                         rp_reason *reason)
{
    const rp_resolved run = simulated(in, iterations);
    return rp_compile(&run, program_out, reason);
}

/* Finds whether some ranks are enough: every GPU of every rank's row of microbatches has as many
 * sequences. Keeps the sequences of those that are. */
static void leave_equal_ranks(inputs *in)
{
    const rp_resolved *run = in->run;
    uint32_t gpus = run->gpus;
    uint32_t block = rp_machine_block(&in->machine, gpus);
    bool alike = in->platform->cards == NULL && in->limits.listed == 0 && block < gpus &&
                 run->decided.microbatches % gpus == 0 && run->last_microbatches == 0;
    uint32_t microbatches = rp_resolved_microbatches(run);
    for (uint32_t m = 0; alike && m < microbatches; m++) {
        alike = in->sequences[m] == in->sequences[m - m % gpus];
    }
    for (uint32_t m = 0; alike && m < microbatches / gpus * block; m++) {
        in->sequences[m] = in->sequences[m / block * gpus];
    }
    in->block = alike ? block : 0;
}

static rp_traits traits_of(const rp_resolved *run)
{
    rp_traits traits = run->schedule->traits;
    traits.layout = run->decided.layout;
    traits.types = run->decided.types;
    rp_compile_set_reductions(&run->decided.reductions, run->decided.dtype, &traits);
    rp_compile_set_software(run->costs, &traits);
    return traits;
}

rp_status rpsim_hardware_lower(const rp_resolved *run, const rp_platform *platform,
                               rp_program **program_out, rp_reason *reason)
{
    inputs in = {.run = run,
                 .model = run->model,
                 .machine = rp_machine_of(platform),
                 .peer_gpus = rp_peer_gpus(platform)};
    RP_TRY(rp_arena_create(&in.arena));
    rp_status status = rp_resolved_split(run, in.arena, &in.sequences, reason);
    if (status == RP_OK) {
        const rp_traits traits = traits_of(run);
        status = set_layout(&traits, run->gpus, run->costs, in.arena, &in, reason);
    }
    if (status == RP_OK) {
        status = compile(&in, run->decided.iterations, program_out, reason);
    }
    rp_arena_destroy(in.arena);
    return status;
}

/* Sets times and machine for a program as it is; only seq_len and sequence_slices of the run are
 * read. */
static rp_status set_program(const rp_program *program, const rp_costs *table,
                             const rp_platform *platform, const rp_resolved *run, rp_arena *arena,
                             inputs *in, rpsim_compute_costs *costs_out, rp_reason *reason)
{
    RP_TRY(set_machine(platform, table, program->dtype, in, reason));
    in->rates.sequence_slices = run->sequence_slices;
    set_software(&program->traits, table, rp_program_ranks(program), program->dtype, in);
    RP_TRY(set_layout(&program->traits, program->gpu_count, table, arena, in, reason));
    return create_costs(in, program, table, run->decided.seq_len, arena, costs_out, reason);
}

rp_status rpsim_hardware_inputs(const rp_program *program, const rp_costs *table,
                                const rp_model *model, const rp_platform *platform,
                                uint32_t seq_len, rp_arena *arena, rpsim_compute_costs *costs_out,
                                rp_machine *machine_out, rp_reason *reason)
{
    inputs in = {.model = model};
    const rp_resolved whole = {.decided.seq_len = seq_len};
    RP_TRY(set_program(program, table, platform, &whole, arena, &in, costs_out, reason));
    *machine_out = in.machine;
    return RP_OK;
}

rp_status rpsim_hardware_period(const rp_program *program, const rp_costs *table,
                                const rp_platform *platform, const rp_resolved *run,
                                rp_arena *arena, double *period_ps_out, rp_reason *reason)
{
    inputs in = {.model = run->model};
    rpsim_compute_costs costs;
    rp_timeline *timeline = NULL;
    RP_TRY(set_program(program, table, platform, run, arena, &in, &costs, reason));
    RP_TRY(rpsim_hardware_run(program, &costs, &in.machine, &timeline, reason));
    *period_ps_out = rp_metrics_period_ps(timeline);
    rp_timeline_destroy(timeline);
    return RP_OK;
}

/* Measures memory; the host's includes weights, gradients and optimizer if the schedule keeps them
 * there. */
static rp_status measure_memory(const inputs *in, uint32_t seq_len, rpsim_result *result)
{
    rpsim_memory_limits limits = in->limits;
    RP_TRY(
        rpsim_host_bytes(result->program, in->model, seq_len, in->arena, &limits.host_fixed_bytes));
    return rpsim_memory_measure(result->timeline, &limits, result->program->arena, &result->memory);
}

static rp_status find_bounds(const inputs *in, const rpsim_compute_costs *costs, uint32_t seq_len,
                             rpsim_result *result, rp_reason *reason)
{
    const rp_schedule_type *schedule = in->run != NULL ? in->run->schedule : NULL;
    rp_schedule_config view = {0};
    if (in->run != NULL) {
        view = rp_resolved_view(in->run);
    }
    bool resident = schedule != NULL && schedule->traits.placement == RP_PLACEMENT_RESIDENT;
    rpsim_bound_run run = {
        .schedule = schedule,
        .config = in->run != NULL ? &view : NULL,
        .program = result->program,
        .costs = costs,
        .model = in->model,
        .machine = &in->machine,
        .limits = result->memory.known && result->memory.fits ? &in->limits : NULL,
        .seq_len = in->run != NULL ? slice_tokens(in->run) : seq_len,
        .through_host = schedule != NULL && (!resident || in->peer_gpus == 0),
        .busy_ps = costs->gpu_factor != NULL ? rpsim_card_least_ps(result->program, costs)
                                             : result->metrics.busy_ps,
    };
    RP_TRY(rpsim_bounds_hardware(&run, &result->bounds, reason));
    result->metrics.lower_bound_ps = rpsim_bounds_best(&result->bounds);
    return RP_OK;
}

static rp_status find_communication(const inputs *in, const rpsim_compute_costs *costs,
                                    rpsim_result *result, rp_reason *reason)
{
    rpsim_explain_case run = {
        .timeline = result->timeline, .costs = costs, .machine = &in->machine};
    rpsim_explanation explanation;
    RP_TRY(rpsim_explain(&run, in->arena, &explanation, reason));
    rpsim_explain_communication(result->timeline, &explanation, &result->metrics.comm_total_ps,
                                &result->metrics.comm_exposed_ps);
    return RP_OK;
}

/* Refuses computed times that beat the GPUs' peak: a platform's factor may be too low, everything
 * else is a defect. Measured times may be wrong, and another check warns of them. */
static rp_status check_share(const inputs *in, const rp_costs *table, const rpsim_result *result,
                             rp_reason *reason)
{
    bool computed =
        table->kind != RP_MEASURED && table->arithmetic.accumulation != RP_ACCUMULATION_USUAL;
    if (!computed || !rpsim_result_beats_peak(result)) {
        return RP_OK;
    }
    double factor = in->platform->layer_time_factor;
    if (factor < 1) {
        return rp_refuse(reason, RP_INPUT,
                         "layer_time_factor: with %g GPUs of %s would compute at %.1f %% of their "
                         "peak in %s; valid values are from %.2f",
                         factor, in->platform->name, 100 * result->busy_share,
                         rp_arithmetic_text(in->roof.arithmetic),
                         ceil(100 * factor * result->busy_share) / 100);
    }
    rp_log_error("%s: GPUs of %s would compute at %.1f %% of their peak in %s, and nobody has "
                 "measured that",
                 table->name, in->platform->name, 100 * result->busy_share,
                 rp_arithmetic_text(in->roof.arithmetic));
    return rp_broken();
}

static rp_status measure_flop(const inputs *in, const rp_costs *table, uint32_t seq_len,
                              rpsim_result *result, rp_reason *reason)
{
    const rp_program *p = result->program;
    uint32_t slices = in->rates.sequence_slices != 0 ? in->rates.sequence_slices : 1;
    double flop = 0;
    RP_TRY(rpsim_executed_flop(p, in->table_model, seq_len, slices, rp_stack_again(table->stack),
                               &flop));
    double busy_s = 1e-12 * (double)result->metrics.passes_ps;
    flop *= rp_program_ranks(p) / p->gpu_count;
    result->gpu_flop = flop / ((double)rp_program_ranks(p) * p->iteration_count);
    double peak = rp_peak_flops_per_s(&in->roof);
    double faster = table->fp8_products ? 1e12 * in->platform->fp8_tflops / peak : 1;
    uint32_t copies = rp_layout_gpus(&p->traits.layout);
    result->peak_flops_per_s =
        faster * rpsim_card_mean_peak(&in->roof, rp_program_ranks(p) * copies);
    peak *= faster;
    result->busy_share = peak > 0 && busy_s > 0 ? flop / busy_s / peak : 0;
    return check_share(in, table, result, reason);
}

/* Validates, runs and measures result->program. @param without RPSIM_WITHOUT_* */
static rp_status run_program(const inputs *in, const rp_costs *table, uint32_t seq_len,
                             unsigned without, rpsim_result *result, rp_reason *reason)
{
    rpsim_compute_costs costs;
    if ((without & RPSIM_WITHOUT_CHECK) == 0) {
        RP_TRY(rp_program_check(result->program));
    }
    RP_TRY(create_costs(in, result->program, table, seq_len, in->arena, &costs, reason));
    RP_TRY(rpsim_hardware_run(result->program, &costs, &in->machine, &result->timeline, reason));
    RP_TRY(measure_memory(in, seq_len, result));
    RP_TRY(
        rp_metrics_measure(result->timeline, result->separate_backward, &result->metrics, reason));
    RP_TRY(measure_flop(in, table, seq_len, result, reason));
    if (result->program->iteration_count > 1 || (without & RPSIM_WITHOUT_STEP) != 0) {
        return RP_OK;
    }
    RP_TRY(find_communication(in, &costs, result, reason));
    return find_bounds(in, &costs, seq_len, result, reason);
}

static rp_status run_steps(const inputs *in, uint32_t iterations, unsigned without,
                           rpsim_result *result, rp_reason *reason)
{
    RP_TRY(compile(in, iterations, &result->program, reason));
    return run_program(in, in->run->costs, in->run->decided.seq_len, without, result, reason);
}

static rp_status run_case(inputs *in, unsigned without, rpsim_result *result, rp_reason *reason)
{
    RP_TRY(rp_resolved_split(in->run, in->arena, &in->sequences, reason));
    if ((without & RPSIM_WITHOUT_EQUAL_RANKS) != 0 &&
        rp_is_data_parallel(&in->run->schedule->traits)) {
        leave_equal_ranks(in);
    }
    uint32_t iterations = in->run->decided.iterations;
    const rp_resolved run = simulated(in, iterations);
    const rp_schedule_config view = rp_resolved_view(&run);
    /* for the program of all iterations, before that of one iteration is built */
    RP_TRY(rp_host_memory_allow(rp_schedule_footprint(&view, true, run.decided.layer_grain),
                                run.schedule->name, RP_FOOTPRINT_VALID, reason));
    bool alone = (without & RPSIM_WITHOUT_STEP) == 0;
    RP_TRY(run_steps(in, alone ? 1 : iterations, without, result, reason));
    if (iterations > 1 && alone) {
        rp_metrics one = result->metrics;
        rpsim_bounds bounds = result->bounds;
        rpsim_result_fini(result);
        RP_TRY(run_steps(in, iterations, without, result, reason));
        result->metrics = one;
        result->bounds = bounds;
    }
    result->period_ps = rp_metrics_period_ps(result->timeline);
    return rpsim_library_measure(in->run, in->platform, &result->memory, reason);
}

rp_status rpsim_hardware_case_run(const rp_resolved *run, const rp_platform *platform,
                                  unsigned without, rpsim_result *result_out, rp_reason *reason)
{
    double begin_s = rpsim_clock_s();
    inputs in = {.run = run, .model = run->model};
    rpsim_result result = {.separate_backward = run->schedule->separate_backward, .period_ps = NAN};
    RP_TRY(set_machine(platform, run->costs, run->decided.dtype, &in, reason));
    const rp_traits traits = traits_of(run);
    set_software(&traits, run->costs, run->gpus, run->decided.dtype, &in);
    in.rates.sequence_slices = run->sequence_slices;
    RP_TRY(rp_arena_create(&in.arena));
    rp_status status = set_layout(&traits, run->gpus, run->costs, in.arena, &in, reason);
    if (status == RP_OK) {
        status = run_case(&in, without, &result, reason);
    }
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
                                     uint32_t seq_len, rpsim_result *result_out, rp_reason *reason)
{
    double begin_s = rpsim_clock_s();
    if (program->op_bytes == NULL) {
        return rp_refuse(
            reason, RP_INPUT,
            "{program_in}: hardware fidelity needs a lowered program, this is a compute "
            "schedule; valid are programs that {program_out} wrote at {fidelity} "
            "hardware, or {fidelity} stage");
    }
    inputs in = {.model = model};
    RP_TRY(rp_host_memory_allow(rp_program_footprint(program->op_count, true), "the program",
                                "programs of fewer ops", reason));
    rpsim_result result = {.program = program, .period_ps = NAN};
    result.separate_backward = rp_program_has_separate_backward(program);
    RP_TRY(set_machine(platform, costs, program->dtype, &in, reason));
    set_software(&program->traits, costs, program->gpu_count, program->dtype, &in);
    RP_TRY(rp_arena_create(&in.arena));
    rp_status status =
        set_layout(&program->traits, program->gpu_count, costs, in.arena, &in, reason);
    if (status == RP_OK) {
        status = run_program(&in, costs, seq_len, 0, &result, reason);
    }
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
