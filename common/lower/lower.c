/* The lowering: finds units and jobs of a compute schedule, then adds ops (pipeline_ops.c) and
 * waits (pipeline_waits.c). */
#include "common/lower/lower.h"

#include "common/base/reason.h"
#include "common/lower/lower_internal.h"

void rp_lower_layers(const rp_lowering *l, uint32_t stage, bool backward, uint32_t *begin_out,
                     uint32_t *end_out)
{
    const rp_program *p = l->schedule;
    const rp_stage *s = &p->stages[stage];
    bool first = backward ? p->backward_chain[p->backward_count - 1] == stage
                          : p->forward_count != 0 && p->forward_chain[0] == stage;
    *begin_out = s->layer_begin + (first ? 0 : 1);
    *end_out = s->layer_end + 1 + ((s->roles & RP_STAGE_HEAD) != 0 ? 1 : 0);
}

bool rp_lower_from_ids(const rp_lowering *l, uint32_t stage)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    rp_lower_layers(l, stage, true, &begin, &end);
    return begin == 0;
}

bool rp_lower_begins_inside(const rp_lowering *l, uint32_t backward, uint32_t forward)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t from = 0;
    uint32_t to = 0;
    rp_lower_layers(l, backward, true, &begin, &end);
    rp_lower_layers(l, forward, false, &from, &to);
    return begin < end && begin > from && begin < to;
}

static bool same_job(const rp_lowering *l, const rp_lower_job *job, const rp_op *op, bool backward)
{
    return job->stage == op->stage && job->iteration == op->iteration &&
           job->backward == backward && job->call == op->microbatch / l->config->call_microbatches;
}

/* If no weights are uploaded per job, every unit is a job of its own, since pipelines mix stages
 * freely.
 */
static void add_unit(rp_lowering *l, uint32_t gpu, uint32_t first, uint32_t last)
{
    const rp_op *op = &l->schedule->ops[last];
    bool backward = rp_op_kind_is_backward((rp_op_kind)op->kind);
    rp_lower_job *job = l->job_count > l->job_begin[gpu] ? &l->jobs[l->job_count - 1] : NULL;
    if (job == NULL || !l->offload || !same_job(l, job, op, backward)) {
        job = &l->jobs[l->job_count++];
        *job = (rp_lower_job){.gpu = gpu,
                              .first_unit = l->unit_count,
                              .stage = op->stage,
                              .iteration = op->iteration,
                              .call = op->microbatch / l->config->call_microbatches,
                              .backward = backward,
                              .params_first = RP_NO_HANDLE,
                              .params_last = RP_NO_HANDLE,
                              .param_grads_up = RP_NO_HANDLE,
                              .param_grads_down = RP_NO_HANDLE};
        uint32_t position =
            backward ? l->schedule->forward_count + l->producers.backward_position[op->stage]
                     : l->producers.forward_position[op->stage];
        l->job_of[rp_lower_job_index(l, op->iteration, job->call, position)] = l->job_count - 1;
    }
    job->unit_count++;
    l->unit_of[last] = l->unit_count;
    l->units[l->unit_count++] = (rp_lower_unit){.first = first,
                                                .last = last,
                                                .job = l->job_count - 1,
                                                .forward = RP_NO_HANDLE,
                                                .up_act = RP_NO_HANDLE,
                                                .up_grad = RP_NO_HANDLE,
                                                .down_out = RP_NO_HANDLE,
                                                .down_last = RP_NO_HANDLE,
                                                .reduce = RP_NO_HANDLE,
                                                .gather = {RP_NO_HANDLE, RP_NO_HANDLE}};
}

static void find_units(rp_lowering *l)
{
    const rp_program *p = l->schedule;
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        l->job_begin[gpu] = l->job_count;
        const rp_queue *queue = &p->queues[gpu];
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            uint32_t first = i;
            while ((p->ops[i].flags & RP_OP_JOIN) != 0) {
                i++;
            }
            add_unit(l, gpu, first, i);
        }
    }
    l->job_begin[p->gpu_count] = l->job_count;
}

static rp_status allocate_tables(rp_lowering *l)
{
    const rp_program *p = l->schedule;
    size_t positions = (size_t)p->forward_count + p->backward_count;
    size_t saved = (size_t)p->iteration_count * p->backward_count * p->microbatch_count;
    size_t host = (size_t)p->iteration_count * (l->config->sizes.layers + 2);
    size_t jobs = (size_t)p->iteration_count * l->calls * positions;
    RP_TRY(rp_arena_alloc(l->arena, p->op_count, sizeof(rp_lower_unit), &l->units));
    RP_TRY(rp_arena_alloc(l->arena, p->op_count, sizeof(uint32_t), &l->unit_of));
    RP_TRY(rp_arena_alloc(l->arena, p->op_count, sizeof(rp_lower_job), &l->jobs));
    RP_TRY(rp_arena_alloc(l->arena, p->gpu_count + 1, sizeof(uint32_t), &l->job_begin));
    RP_TRY(rp_arena_alloc(l->arena, jobs, sizeof(uint32_t), &l->job_of));
    RP_TRY(rp_arena_alloc(l->arena, saved, sizeof(rp_handle), &l->saved));
    RP_TRY(rp_arena_alloc(l->arena, host, sizeof(rp_handle), &l->refresh));
    RP_TRY(rp_arena_alloc(l->arena, host, sizeof(rp_handle), &l->collect));
    size_t updates = (size_t)p->iteration_count * p->gpu_count;
    RP_TRY(rp_arena_alloc(l->arena, updates, sizeof(rp_handle), &l->update));
    for (size_t i = 0; i < saved; i++) {
        l->saved[i] = RP_NO_HANDLE;
    }
    for (size_t i = 0; i < host; i++) {
        l->refresh[i] = l->collect[i] = RP_NO_HANDLE;
    }
    for (size_t i = 0; i < updates; i++) {
        l->update[i] = RP_NO_HANDLE;
    }
    updates *= RP_LOWER_FAMILIES;
    RP_TRY(rp_arena_alloc(l->arena, updates, sizeof(rp_handle), &l->updated));
    RP_TRY(rp_arena_alloc(l->arena, updates, sizeof(uint64_t), &l->trained_bytes));
    for (size_t i = 0; i < updates; i++) {
        l->updated[i] = RP_NO_HANDLE;
    }
    return RP_OK;
}

static rp_status create_assembly(rp_lowering *l)
{
    static const rp_queue_kind kinds[RP_LOWER_QUEUES_PER_GPU] = {
        [RP_LOWER_COMPUTE] = RP_QUEUE_COMPUTE,   [RP_LOWER_PARAMS] = RP_QUEUE_PARAM_UPLOAD,
        [RP_LOWER_UPLOAD] = RP_QUEUE_ACT_UPLOAD, [RP_LOWER_DOWNLOAD] = RP_QUEUE_DOWNLOAD,
        [RP_LOWER_PEER] = RP_QUEUE_PEER,
    };
    uint32_t gpus = l->schedule->gpu_count;
    bool peers =
        l->schedule->traits.placement == RP_PLACEMENT_RESIDENT && l->config->peer_gpus != 0;
    rp_queue *queues = NULL;
    l->host_queue = gpus * RP_LOWER_QUEUES_PER_GPU;
    l->saved_queues = l->host_queue + 1 + rp_lower_group_queues(l);
    uint32_t count = l->saved_queues + (l->config->offload_activations ? 2 * gpus : 0);
    RP_TRY(rp_arena_alloc(l->arena, count, sizeof *queues, &queues));
    for (uint32_t q = 0; q < l->host_queue; q++) {
        queues[q].gpu = (uint16_t)(q / RP_LOWER_QUEUES_PER_GPU);
        uint32_t slot = q % RP_LOWER_QUEUES_PER_GPU;
        bool receives = peers && slot == RP_LOWER_RECEIVE;
        queues[q].kind = (uint16_t)(receives ? RP_QUEUE_RECEIVE : kinds[slot]);
    }
    queues[l->host_queue].kind = RP_QUEUE_OPTIMIZER;
    rp_lower_set_group_queues(l, l->host_queue + 1, queues);
    for (uint32_t q = l->saved_queues; q < count; q++) {
        queues[q].gpu = (uint16_t)((q - l->saved_queues) / 2);
        queues[q].kind =
            (q - l->saved_queues) % 2 == 0 ? RP_QUEUE_SAVED_DOWNLOAD : RP_QUEUE_SAVED_UPLOAD;
    }
    return rp_assembly_create(l->arena, queues, count, &l->assembly, l->reason);
}

/* Copies everything except ops and waits from the compute schedule. */
static rp_status copy_header(const rp_lowering *l, rp_program *p)
{
    const rp_program *from = l->schedule;
    rp_arena *arena = p->arena;
    *p = *from;
    p->arena = arena;
    p->buffer_count = 0;
    p->buffers = NULL;
    p->dtype = l->config->sizes.dtype;
    RP_TRY(rp_arena_print(arena, &p->schedule, "%s", from->schedule));
    RP_TRY(rp_arena_alloc(arena, p->stage_count, sizeof(rp_stage), &p->stages));
    RP_TRY(rp_arena_alloc(arena, p->forward_count, sizeof(uint16_t), &p->forward_chain));
    RP_TRY(rp_arena_alloc(arena, p->backward_count, sizeof(uint16_t), &p->backward_chain));
    RP_TRY(rp_arena_alloc(arena, p->microbatch_count, sizeof(uint32_t), &p->sequences));
    for (uint32_t i = 0; i < p->stage_count; i++) {
        p->stages[i] = from->stages[i];
    }
    for (uint32_t i = 0; i < p->forward_count; i++) {
        p->forward_chain[i] = from->forward_chain[i];
    }
    for (uint32_t i = 0; i < p->backward_count; i++) {
        p->backward_chain[i] = from->backward_chain[i];
    }
    for (uint32_t i = 0; i < p->microbatch_count; i++) {
        p->sequences[i] = l->sequences[i];
    }
    return RP_OK;
}

static rp_status check_form(const rp_program *schedule, const rp_lower_config *config,
                            rp_reason *reason)
{
    bool separate = rp_program_has_separate_backward(schedule);
    if (schedule->traits.placement == RP_PLACEMENT_RESIDENT && separate) {
        return rp_refuse(
            reason, RP_USAGE,
            "lowering %s: its stages have no GPU of their own; valid is offload placement",
            schedule->schedule);
    }
    if (schedule->traits.placement == RP_PLACEMENT_OFFLOAD && config->offload_activations) {
        return rp_refuse(
            reason, RP_USAGE,
            "lowering %s: activations are offloaded with weights on GPUs alone; valid are resident "
            "and sharded placement",
            schedule->schedule);
    }
    if (config->grain == RP_GRAIN_LAYER && schedule->layer_count >= UINT16_MAX) {
        return rp_refuse(reason, RP_USAGE,
                         "lowering: %u layers at recompute grain layer; valid are fewer than %u",
                         schedule->layer_count, UINT16_MAX);
    }
    if (config->sizes.layers != schedule->layer_count) {
        return rp_refuse(
            reason, RP_USAGE,
            "lowering: sizes of %u layers for a program of %u; valid are the program's",
            config->sizes.layers, schedule->layer_count);
    }
    return RP_OK;
}

/* Weights in host memory are uploaded once per job: stages must run all microbatches of a call at
 * once. */
static rp_status check_jobs(const rp_lowering *l)
{
    const rp_program *p = l->schedule;
    uint64_t chains = (uint64_t)p->forward_count + p->backward_count;
    uint64_t jobs = chains * p->iteration_count * l->calls;
    if (!l->offload || l->job_count == jobs) {
        return RP_OK;
    }
    return rp_refuse(l->reason, RP_USAGE,
                     "lowering %s: weights in host memory are uploaded per stage and call, which "
                     "needs stages that run all microbatches of a call at once; valid is resident "
                     "placement",
                     p->schedule);
}

static rp_status lower(rp_lowering *l, rp_program *program)
{
    RP_TRY(rp_program_check_but_cycles(l->schedule, l->arena, &l->producers));
    RP_TRY(allocate_tables(l));
    RP_TRY(create_assembly(l));
    find_units(l);
    RP_TRY(check_jobs(l));
    RP_TRY(rp_lower_find_reductions(l));
    if (l->schedule->traits.placement == RP_PLACEMENT_SHARDED) {
        RP_TRY(rp_lower_sharded(l));
    } else {
        RP_TRY(rp_lower_add_ops(l));
        RP_TRY(rp_lower_add_waits(l));
    }
    RP_TRY(rp_lower_add_trips(l));
    RP_TRY(copy_header(l, program));
    RP_TRY(rp_assembly_finish(l->assembly, program));
    return rp_lower_add_buffers(l, program);
}

rp_status rp_lower(const rp_program *schedule, const rp_lower_config *config,
                   const uint32_t *sequences, rp_program **program_out, rp_reason *reason)
{
    *program_out = NULL;
    RP_TRY(check_form(schedule, config, reason));
    rp_lowering l = {
        .schedule = schedule, .config = config, .sequences = sequences, .reason = reason};
    l.separate = rp_program_has_separate_backward(schedule);
    l.offload = schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    l.layers = config->grain == RP_GRAIN_LAYER &&
               (rp_recompute_has_ops(schedule->recompute) || config->offload_activations);
    l.calls = (schedule->microbatch_count - 1) / config->call_microbatches + 1;
    RP_TRY(rp_arena_create(&l.arena));
    rp_program *program = NULL;
    rp_status status = rp_program_create(&program);
    if (status == RP_OK) {
        status = lower(&l, program);
    }
    rp_arena_destroy(l.arena);
    if (status != RP_OK) {
        rp_program_destroy(program);
        return status;
    }
    *program_out = program;
    return RP_OK;
}
