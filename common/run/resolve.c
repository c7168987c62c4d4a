#include "common/run/resolve.h"

#include "common/timeline/metrics.h"

rp_schedule_config rp_resolved_view(const rp_resolved *run)
{
    uint32_t round = rp_resolved_round(run);
    bool whole = round == run->microbatches;
    return (rp_schedule_config){
        .gpus = run->gpus,
        .microbatches = rp_resolved_microbatches(run),
        .iterations = run->iterations,
        .round = run->stage ? run->round : round,
        .call_microbatches = run->microbatches,
        .round_start = run->stage ? run->round_start
                       : whole    ? RP_ROUND_START_ROTATE
                                  : RP_ROUND_START_FREE_FIRST,
        .asynchronous = run->asynchronous,
        .recompute = run->recompute,
        .layers = run->layers != 0 ? run->layers : run->model->layers,
        .partition = run->partition,
        .costs = run->costs,
        .boundary_bytes = run->boundary_bytes,
        .orders = run->orders,
    };
}

static rp_status check_batch(const rp_resolved *run, rp_reason *reason)
{
    uint64_t microbatches = (uint64_t)run->calls * run->microbatches;
    if (microbatches > run->global_batch) {
        return rp_refuse(reason, RP_USAGE,
                         "{global_batch}: %u sequences cannot fill %u calls of %u microbatches; "
                         "valid values are %llu and more",
                         run->global_batch, run->calls, run->microbatches,
                         (unsigned long long)microbatches);
    }
    return RP_OK;
}

rp_status rp_resolved_split(const rp_resolved *run, rp_arena *arena, uint32_t **sequences_out,
                            rp_reason *reason)
{
    uint32_t *sequences = NULL;
    RP_TRY(check_batch(run, reason));
    RP_TRY(rp_arena_alloc(arena, rp_resolved_microbatches(run), sizeof *sequences, &sequences));
    uint64_t batch = run->global_batch;
    for (uint64_t call = 0; call < run->calls; call++) {
        uint64_t of_call = batch * (call + 1) / run->calls - batch * call / run->calls;
        for (uint64_t m = 0; m < run->microbatches; m++) {
            sequences[call * run->microbatches + m] =
                (uint32_t)(of_call * (m + 1) / run->microbatches - of_call * m / run->microbatches);
        }
    }
    *sequences_out = sequences;
    return RP_OK;
}

/* ---- from decisions to a run ----------------------------------------------------------------- */

static uint32_t usual_microbatches(uint32_t gpus)
{
    return 2 * gpus;
}

uint32_t rp_run_places(const rp_run *run)
{
    const rp_layout layout = rp_run_layout(run);
    uint32_t nodes = run->nodes != 0 ? run->nodes : 1;
    return run->gpus * nodes / rp_layout_gpus(&layout);
}

void rp_run_decide(rp_run *run, const rp_schedule_type *schedule)
{
    run->microbatches =
        run->microbatches != 0 ? run->microbatches : usual_microbatches(rp_run_places(run));
    run->microbatch_size = run->microbatch_size != 0 ? run->microbatch_size : 1;
    run->accumulate = run->accumulate != 0 ? run->accumulate : 1;
    if (!run->grain_given) {
        run->layer_grain = rp_usual_layer_grain(schedule);
        run->grain_given = true;
    }
    if (run->recompute_count == 0) {
        run->recomputes[0] = schedule->default_recompute;
        run->recompute_count = 1;
    }
}

rp_resolved rp_resolved_of_run(const rp_run *run, const rp_schedule_type *schedule,
                               const rp_model *model)
{
    return (rp_resolved){.schedule = schedule,
                         .model = model,
                         .gpus = rp_run_places(run),
                         .layout = rp_run_layout(run),
                         .seq_len = run->seq_len,
                         .dtype = run->dtype,
                         .calls = run->accumulate,
                         .microbatches = run->microbatches,
                         .microbatch_size = run->microbatch_size,
                         .iterations = run->iterations,
                         .round = run->round,
                         .round_start = run->round_start,
                         .asynchronous = run->asynchronous,
                         .recompute = run->recomputes[0],
                         .layer_grain = run->layer_grain,
                         .piece_bytes = (uint64_t)run->piece_mb << 20,
                         .reductions = run->reductions};
}

/* Stage fidelity: a step is a single call, and a round has as many microbatches as there are
 * GPUs. */
static void resolve_stage(const rp_run *run, rp_resolved *r)
{
    uint32_t size = run->microbatch_size != 0 ? run->microbatch_size : r->costs->microbatch_size;
    r->stage = true;
    r->calls = 1;
    r->global_batch = r->microbatches * size;
    r->round = run->round_given ? run->round : r->gpus;
    r->iterations = run->iterations != 0 ? run->iterations
                    : run->asynchronous  ? RP_STEADY_ITERATIONS
                                         : 1;
}

static rp_status set_batch(const rp_run *run, rp_resolved *r, rp_reason *reason)
{
    uint32_t size = run->microbatch_size != 0 ? run->microbatch_size : r->costs->microbatch_size;
    uint64_t units = (uint64_t)r->calls * r->microbatches;
    if (units > RP_MAX_MICROBATCHES || units * size > UINT32_MAX) {
        return rp_refuse(reason, RP_USAGE,
                         "{accumulate}: %u calls of %u microbatches; valid are up to %u "
                         "microbatches per step",
                         r->calls, r->microbatches, RP_MAX_MICROBATCHES);
    }
    uint32_t copies = rp_layout_data(&r->layout);
    if (run->global_batch % copies != 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{global_batch}: %u copies cannot share %u sequences equally; valid are "
                         "multiples of %u",
                         copies, run->global_batch, copies);
    }
    if (run->global_batch != 0 || r->global_batch == 0) {
        r->global_batch =
            run->global_batch != 0 ? run->global_batch / copies : (uint32_t)units * size;
    }
    return check_batch(r, reason);
}

/* Hardware fidelity: a step has calls and its own sizes, and a run has enough iterations for a
 * steady state unless the user sets them; each call is a round of a rotation that never resets. */
static rp_status resolve_hardware(const rp_run *run, const rp_run_inputs *in, rp_resolved *r,
                                  rp_reason *reason)
{
    r->calls = 1;
    r->layer_grain = rp_usual_layer_grain(r->schedule);
    if (run->config_paper && run->max_seqlen) {
        RP_TRY(rp_resolve_longest(in->recorded_name, r, reason));
    } else if (run->config_paper) {
        RP_TRY(rp_resolve_published(in->recorded_name, run->optimizer_given, r, reason));
    }
    r->dtype = r->costs->arithmetic.dtype; /* 16 bits: published runs and the usual run alike */
    r->microbatches = run->microbatches != 0 ? run->microbatches : r->microbatches;
    r->calls = run->accumulate != 0 ? run->accumulate : r->calls;
    r->layer_grain = run->grain_given ? run->layer_grain : r->layer_grain;
    RP_TRY(set_batch(run, r, reason));
    r->round = r->microbatches;
    r->round_start = RP_ROUND_START_ROTATE;
    uint32_t usual = in->usual_iterations != 0 ? in->usual_iterations : RP_STEADY_ITERATIONS;
    r->iterations = run->iterations != 0 ? run->iterations : usual;
    return RP_OK;
}

rp_status rp_resolve(const rp_run *run, const rp_run_inputs *in, const rp_schedule_type *schedule,
                     rp_recompute recompute, rp_resolved *resolved_out, rp_reason *reason)
{
    const rp_costs *costs = in->costs;
    uint64_t hidden = in->model != NULL ? in->model->hidden : 0;
    uint32_t gpus = run->gpus != 0 && run->nodes == 0 ? run->gpus : in->platform->gpus;
    rp_resolved r = rp_resolved_of_run(run, schedule, in->model);
    r.costs = costs;
    r.layers = costs->layers;
    r.seq_len = run->seq_len != 0 ? run->seq_len : costs->seq_len;
    r.recompute = recompute;
    r.boundary_bytes = 2 * hidden * costs->microbatch_size * costs->seq_len;
    r.orders = in->orders;
    r.gpus = gpus / rp_layout_gpus(&r.layout);
    r.microbatches = run->microbatches != 0 ? run->microbatches : usual_microbatches(r.gpus);
    rp_status status = RP_OK;
    if (run->hardware) {
        status = resolve_hardware(run, in, &r, reason);
    } else {
        resolve_stage(run, &r);
    }
    *resolved_out = r;
    return status;
}

/* ---- from a program to its run --------------------------------------------------------------- */

rp_resolved rp_resolved_of_program(const rp_program *program, uint32_t calls)
{
    rp_resolved r = {.stage = program->op_bytes == NULL || program->sequences == NULL,
                     .layers = program->layer_count,
                     .gpus = program->gpu_count,
                     .layout = program->traits.layout,
                     .dtype = program->dtype,
                     .calls = calls,
                     .microbatches = program->microbatch_count / calls,
                     .iterations = program->iteration_count,
                     .asynchronous = program->asynchronous,
                     .recompute = program->recompute,
                     .layer_grain = rp_program_has_layer_grain(program)};
    for (uint32_t m = 0; program->sequences != NULL && m < program->microbatch_count; m++) {
        uint32_t sequences = program->sequences[m];
        r.microbatch_size = sequences > r.microbatch_size ? sequences : r.microbatch_size;
    }
    return r;
}

void rp_run_of_program(const rp_resolved *program, rp_run *run)
{
    run->gpus = program->gpus * rp_layout_gpus(&program->layout);
    run->layout.data_parallel = program->layout.data_parallel;
    run->layout.tensor_parallel = program->layout.tensor_parallel;
    run->accumulate = program->calls;
    run->microbatches = program->microbatches;
    run->asynchronous = program->asynchronous;
    run->recomputes[0] = program->recompute;
    run->recompute_count = 1;
    if (program->microbatch_size != 0) {
        run->microbatch_size = program->microbatch_size;
    }
    if (!program->stage) {
        run->dtype = program->dtype;
        run->layer_grain = program->layer_grain;
        run->grain_given = true;
    }
}
