#include "sim/run/run_bounds.h"
#include <math.h>

uint32_t rpsim_bound_rounds(const rp_schedule_type *schedule, const rp_schedule_config *config)
{
    if (schedule == NULL || config == NULL || rp_is_data_parallel(&schedule->traits) ||
        config->orders != NULL) {
        return 0;
    }
    if (!schedule->separate_backward || config->round == RP_ROUND_ALL) {
        return 1;
    }
    return (config->microbatches - 1) / config->round + 1;
}

static bool has_pairs(const rp_program *program)
{
    for (uint32_t i = 0; i < program->op_count; i++) {
        if ((program->ops[i].flags & RP_OP_OVERLAP) != 0) {
            return true;
        }
    }
    return false;
}

static rpsim_bound_work describe(const rp_program *program, int64_t busy_ps)
{
    return (rpsim_bound_work){.gpus = rp_program_ranks(program),
                              .busy_ps = busy_ps,
                              .recompute = program->recompute,
                              .separate_backward = rp_program_has_separate_backward(program),
                              .splits = rp_program_has(program, rp_op_kind_is_weight_part),
                              .gradients_up = rp_program_has(program, rp_op_kind_uploads_sums),
                              .asynchronous = program->asynchronous};
}

rp_status rpsim_bounds_stage(const rp_schedule_type *schedule, const rp_schedule_config *config,
                             const rp_producers *producers, const rp_stage_times *times,
                             const rp_costs *costs, int64_t busy_ps, rpsim_bounds *bounds_out)
{
    const rp_program *program = producers->program;
    rpsim_bound_size size = {.costs = costs, .microbatches = program->microbatch_count};
    rpsim_bound_work work = describe(program, busy_ps);
    work.sizes = &size;
    work.size_count = 1;
    work.hop_ps = costs->hop_ps;
    work.rounds = rpsim_bound_rounds(schedule, config);
    work.overlap_saving = has_pairs(program) ? costs->overlap_saving : 0;
    RP_TRY(rpsim_bounds_of_work(&work, bounds_out));
    return rpsim_lower_bound(producers, times, &bounds_out->ps[RPSIM_BOUND_OPS]);
}

/* ---- hardware fidelity ----------------------------------------------------------------------- */

/* Lists the layer times for each number of sequences in a microbatch, as the engine has them. */
static rp_status list_sizes(const rpsim_bound_run *run, rp_arena *arena, rpsim_bound_work *work)
{
    const rp_program *p = run->program;
    const uint32_t *class_of = run->costs->class_of;
    uint32_t equal = rp_program_ranks(p) / p->gpu_count;
    rpsim_bound_size *sizes = NULL;
    for (uint32_t m = 0; m < p->microbatch_count; m++) {
        work->size_count = class_of[m] >= work->size_count ? class_of[m] + 1 : work->size_count;
    }
    RP_TRY(rp_arena_alloc(arena, work->size_count, sizeof *sizes, &sizes));
    for (uint32_t k = 0; k < work->size_count; k++) {
        rp_costs *times = NULL;
        RP_TRY(rp_arena_alloc(arena, 1, sizeof *times, &times));
        RP_TRY(rpsim_layer_table(run->costs, k, false, arena, times));
        sizes[k].costs = times;
    }
    for (uint32_t m = 0; m < p->microbatch_count; m++) {
        sizes[class_of[m]].microbatches += equal;
    }
    work->sizes = sizes;
    return RP_OK;
}

/* The least time of a hop: down to host memory and up again, leaving out narrower links on the
 * way. */
static int64_t least_hop_ps(const rpsim_bound_run *run, const rp_sizes *bytes)
{
    const rp_machine *m = run->machine;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < run->program->microbatch_count; i++) {
        uint32_t sequences = run->program->sequences[i];
        least = sequences < least ? sequences : least;
    }
    double moved = (double)bytes->boundary_bytes * least;
    double up_Bps = 0;
    double down_Bps = 0;
    for (uint32_t gpu = 0; gpu < run->program->gpu_count; gpu++) {
        up_Bps = fmax(up_Bps, rp_machine_upload_Bps(m, gpu));
        down_Bps = fmax(down_Bps, rp_machine_download_Bps(m, gpu));
    }
    double seconds = moved / down_Bps + moved / up_Bps;
    int64_t ps = 2 * m->copy_latency_ps + (int64_t)(seconds * 1e12) - 4;
    return run->through_host && ps > 0 ? ps : 0;
}

rp_status rpsim_bounds_hardware(const rpsim_bound_run *run, rpsim_bounds *bounds_out,
                                rp_reason *reason)
{
    const rp_program *p = run->program;
    const rp_machine *m = run->machine;
    uint32_t ranks = rp_program_ranks(p);
    rpsim_bound_work work = describe(p, run->busy_ps);
    rp_arena *arena = NULL;
    rp_sizes bytes;
    if (rp_layout_gpus(&p->traits.layout) > 1) { /* other schedules might have other layouts */
        *bounds_out = (rpsim_bounds){{0}};
        return rpsim_bounds_of_program(p, run->costs, m, run->limits, bounds_out, reason);
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status =
        rp_sizes_of_types(run->model, run->seq_len, p->dtype, &p->traits.types, arena, &bytes);
    if (status == RP_OK) {
        status = list_sizes(run, arena, &work);
    }
    if (status == RP_OK) {
        work.hop_ps = least_hop_ps(run, &bytes);
        work.slack_ps = 1;
        work.rounds = rpsim_bound_rounds(run->schedule, run->config);
        bool offload =
            run->schedule != NULL && run->schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
        uint32_t nodes = m->gpus_per_node > 0 ? (ranks - 1) / m->gpus_per_node + 1 : 1;
        work.bytes = offload ? &bytes : NULL;
        work.upload_Bps = m->upload_Bps * ranks;
        work.download_Bps = m->download_Bps * ranks;
        for (uint32_t gpu = 0; m->listed > 0 && gpu < p->gpu_count; gpu++) {
            work.upload_Bps += rp_machine_upload_Bps(m, gpu) - m->upload_Bps;
            work.download_Bps += rp_machine_download_Bps(m, gpu) - m->download_Bps;
        }
        work.adam_Bps = rp_machine_host_Bps(m, RP_OP_OPTIMIZER) * nodes;
        work.refresh_Bps = rp_machine_host_Bps(m, RP_OP_REFRESH) * nodes;
        work.collect_Bps = rp_machine_host_Bps(m, RP_OP_COLLECT) * nodes;
        status = rpsim_bounds_of_work(&work, bounds_out);
    }
    rp_arena_destroy(arena);
    RP_TRY(status);
    return rpsim_bounds_of_program(p, run->costs, m, run->limits, bounds_out, reason);
}
