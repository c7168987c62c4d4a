#include "common/run/resolve.h"

#include "common/timeline/metrics.h"

rp_schedule_config rp_resolved_view(const rp_resolved *resolved)
{
    const rp_run *run = &resolved->decided;
    uint32_t round = rp_resolved_round(resolved);
    bool whole = round == run->microbatches;
    return (rp_schedule_config){
        .gpus = resolved->gpus,
        .microbatches = rp_resolved_microbatches(resolved),
        .iterations = run->iterations,
        .round = resolved->stage ? run->round : round,
        .call_microbatches = run->microbatches,
        .round_start = resolved->stage ? run->round_start
                       : whole         ? RP_ROUND_START_ROTATE
                                       : RP_ROUND_START_FREE_FIRST,
        .asynchronous = run->asynchronous,
        .recompute = resolved->recompute,
        .layers = resolved->layers != 0 ? resolved->layers : resolved->model->layers,
        .partition = resolved->partition,
        .costs = resolved->costs,
        .boundary_bytes = resolved->boundary_bytes,
        .orders = resolved->orders,
    };
}

static rp_status check_batch(const rp_resolved *run, rp_reason *reason)
{
    uint32_t calls = run->decided.accumulate;
    uint64_t microbatches = (uint64_t)calls * run->decided.microbatches;
    if (microbatches > run->global_batch) {
        return rp_refuse(reason, RP_USAGE,
                         "{global_batch}: %u sequences cannot fill %u calls of %u microbatches; "
                         "valid values are %llu and more",
                         run->global_batch, calls, run->decided.microbatches,
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
    uint64_t calls = run->decided.accumulate;
    uint64_t microbatches = run->decided.microbatches;
    for (uint64_t call = 0; call < calls; call++) {
        uint64_t of_call = batch * (call + 1) / calls - batch * call / calls;
        for (uint64_t m = 0; m < microbatches; m++) {
            sequences[call * microbatches + m] =
                (uint32_t)(of_call * (m + 1) / microbatches - of_call * m / microbatches);
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
    uint32_t nodes = run->nodes != 0 ? run->nodes : 1;
    return run->gpus * nodes / rp_layout_gpus(&run->layout);
}

void rp_run_decide(rp_run *run, const rp_schedule_type *schedule)
{
    run->microbatches =
        run->microbatches != 0 ? run->microbatches : usual_microbatches(rp_run_places(run));
    run->microbatch_size = run->microbatch_size != 0 ? run->microbatch_size : 1;
    run->accumulate = run->accumulate != 0 ? run->accumulate : 1;
    if (!run->grain_given) {
        run->layer_grain = rp_run_usual_layer_grain(run, schedule);
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
                         .decided = *run,
                         .gpus = rp_run_places(run),
                         .recompute = run->recomputes[0]};
}

static void decide(uint32_t *decision, uint32_t usual)
{
    *decision = *decision != 0 ? *decision : usual;
}

/* Stage fidelity: a step is a single call, and a round has as many microbatches as there are
 * GPUs. */
static void resolve_stage(rp_resolved *r)
{
    rp_run *run = &r->decided;
    uint32_t size = run->microbatch_size != 0 ? run->microbatch_size : r->costs->microbatch_size;
    r->stage = true;
    decide(&run->microbatches, usual_microbatches(r->gpus));
    decide(&run->iterations, run->asynchronous ? RP_STEADY_ITERATIONS : 1);
    run->accumulate = 1;
    run->round = run->round_given ? run->round : r->gpus;
    r->global_batch = run->microbatches * size;
}

static rp_status set_batch(rp_resolved *r, rp_reason *reason)
{
    const rp_run *run = &r->decided;
    uint32_t size = run->microbatch_size != 0 ? run->microbatch_size : r->costs->microbatch_size;
    uint64_t units = (uint64_t)run->accumulate * run->microbatches;
    if (units > RP_MAX_MICROBATCHES || units * size > UINT32_MAX) {
        return rp_refuse(reason, RP_USAGE,
                         "{accumulate}: %u calls of %u microbatches; valid are up to %u "
                         "microbatches per step",
                         run->accumulate, run->microbatches, RP_MAX_MICROBATCHES);
    }
    uint32_t copies = rp_layout_data(&run->layout);
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
static rp_status resolve_hardware(const rp_run_inputs *in, rp_resolved *r, rp_reason *reason)
{
    rp_run *run = &r->decided;
    run->layer_grain =
        run->grain_given ? run->layer_grain : rp_run_usual_layer_grain(run, r->schedule);
    if (run->config_paper && run->max_seqlen) {
        RP_TRY(rp_resolve_longest(in->recorded_name, r, reason));
    } else if (run->config_paper) {
        RP_TRY(rp_resolve_published(in->recorded_name, run->optimizer_given, r, reason));
    }
    run->dtype = r->costs->arithmetic.dtype; /* 16 bits: published runs and the usual run alike */
    decide(&run->microbatches, usual_microbatches(r->gpus));
    decide(&run->accumulate, 1);
    RP_TRY(set_batch(r, reason));
    run->round = run->microbatches;
    run->round_start = RP_ROUND_START_ROTATE;
    decide(&run->iterations,
           in->usual_iterations != 0 ? in->usual_iterations : RP_STEADY_ITERATIONS);
    return RP_OK;
}

rp_status rp_resolve(const rp_run *run, const rp_run_inputs *in, const rp_schedule_type *schedule,
                     rp_recompute recompute, rp_resolved *resolved_out, rp_reason *reason)
{
    const rp_costs *costs = in->costs;
    uint64_t hidden = in->model != NULL ? in->model->hidden : 0;
    uint32_t gpus =
        run->gpus != 0 && run->nodes == 0 ? run->gpus : rp_platform_usual_gpus(in->platform);
    rp_resolved r = rp_resolved_of_run(run, schedule, in->model);
    r.costs = costs;
    r.layers = costs->layers;
    decide(&r.decided.seq_len, costs->seq_len);
    r.recompute = recompute;
    r.boundary_bytes = 2 * hidden * costs->microbatch_size * costs->seq_len;
    r.orders = in->orders;
    r.gpus = gpus / rp_layout_gpus(&r.decided.layout);
    rp_status status = RP_OK;
    if (run->hardware) {
        status = resolve_hardware(in, &r, reason);
    } else {
        resolve_stage(&r);
    }
    *resolved_out = r;
    return status;
}

/* ---- from a program to its run --------------------------------------------------------------- */

static bool is_lowered(const rp_program *program)
{
    return program->op_bytes != NULL && program->sequences != NULL;
}

rp_run rp_run_of_program(const rp_program *program, uint32_t calls, const rp_run *asked)
{
    rp_run run = *asked;
    uint32_t largest = 0;
    for (uint32_t m = 0; program->sequences != NULL && m < program->microbatch_count; m++) {
        largest = program->sequences[m] > largest ? program->sequences[m] : largest;
    }
    run.gpus = program->gpu_count * rp_layout_gpus(&program->traits.layout);
    run.layout = program->traits.layout;
    run.types = program->traits.types;
    run.accumulate = calls;
    run.microbatches = program->microbatch_count / calls;
    run.microbatch_size = largest != 0 ? largest : run.microbatch_size;
    run.iterations = program->iteration_count;
    run.asynchronous = program->asynchronous;
    run.recomputes[0] = program->recompute;
    run.recompute_count = 1;
    if (is_lowered(program)) {
        run.dtype = program->dtype;
        run.layer_grain = rp_program_has_layer_grain(program);
        run.grain_given = true;
    }
    return run;
}

rp_resolved rp_resolved_of_program(const rp_program *program, uint32_t calls)
{
    const rp_run open = {.dtype = program->dtype,
                         .layer_grain = rp_program_has_layer_grain(program)};
    return (rp_resolved){.decided = rp_run_of_program(program, calls, &open),
                         .stage = !is_lowered(program),
                         .layers = program->layer_count,
                         .gpus = program->gpu_count,
                         .recompute = program->recompute};
}
