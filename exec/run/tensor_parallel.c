/* Tensor parallelism: the sums of ranks inside of their ops, their steps, and the ways from the
 * whole model to slices and back. Copies of a pipeline: the sum of their gradients. */
#include "exec/run/execute_internal.h"

#include <string.h>

/* ---- collectives inside of ops --------------------------------------------------------------- */

static rp_status collect_along(rpexec_run *r, uint32_t op, rpexec_axis axis,
                               rpexec_collective_kind kind, rp_dtype dtype,
                               const rpexec_collective_array *arrays, uint32_t count)
{
    const rpexec_task *task = &r->plan->tasks[op];
    uint64_t moved = 0;
    const rpexec_collective c = {.kind = kind,
                                 .axis = axis,
                                 .dtype = dtype,
                                 .arrays = arrays,
                                 .array_count = count,
                                 .scratch = rpexec_run_at(r, task->exchange),
                                 .scratch_bytes = r->plan->values[task->exchange].bytes};
    RP_TRY(r->e->driver_type->collective(r->driver, op, &c, &moved));
    atomic_fetch_add(&r->exchanged, moved);
    return RP_OK;
}

static rp_status collect(rpexec_run *r, uint32_t op, rpexec_collective_kind kind, rp_dtype dtype,
                         const rpexec_collective_array *arrays, uint32_t count)
{
    return collect_along(r, op, RPEXEC_AXIS_TENSOR, kind, dtype, arrays, count);
}

static rpexec_run_ranks *run_ranks_of(rpexec_ranks *ranks)
{
    return (rpexec_run_ranks *)(void *)ranks; /* its first member */
}

static void all_reduce(rpexec_ranks *ranks, rp_dtype dtype, uint64_t count, void *array)
{
    rpexec_run_ranks *r = run_ranks_of(ranks);
    const rpexec_collective_array all = {.from = array, .to = array, .count = count};
    r->status =
        r->status == RP_OK ? collect(r->run, r->op, RPEXEC_ALL_REDUCE, dtype, &all, 1) : r->status;
}

/* The shares are equal, since they are whole blocks (rpexec_share). */
static void all_gather(rpexec_ranks *ranks, uint64_t count, float *array)
{
    rpexec_run_ranks *r = run_ranks_of(ranks);
    const rpexec_collective_array all = {
        .from = array + ranks->rank * count, .to = array, .count = ranks->count * count};
    r->status = r->status == RP_OK
                    ? collect(r->run, r->op, RPEXEC_ALL_GATHER, RP_DTYPE_F32, &all, 1)
                    : r->status;
}

rpexec_ranks *rpexec_run_ranks_begin(rpexec_run *r, uint32_t op, rpexec_run_ranks *ranks_out)
{
    uint32_t gpu = r->program->queues[r->plan->order.queue_of[op]].gpu;
    *ranks_out = (rpexec_run_ranks){.run = r, .op = op};
    if (r->plan->slices == NULL || r->plan->tensor == 1) {
        return NULL;
    }
    ranks_out->ranks = (rpexec_ranks){.count = r->plan->tensor,
                                      .rank = gpu % r->plan->tensor,
                                      .first_id = r->plan->slices[gpu].first_id,
                                      .all_reduce = all_reduce,
                                      .all_gather = all_gather};
    return &ranks_out->ranks;
}

/* A process's copies sum, each keeps a share of the sum, and the shares are summed over
 * processes. */
static rp_status reduce_over_processes(rpexec_run *r, uint32_t op, const rpexec_job *job,
                                       rpexec_collective_array all)
{
    uint32_t group = 0;
    rp_dtype dtype = r->plan->model->dtype;
    uint32_t rank = rpexec_plan_rank(r->plan, RPEXEC_AXIS_DATA, job->gpu, &group);
    uint64_t begin = rpexec_share(all.count, r->plan->data, rank);
    uint64_t values = rpexec_share(all.count, r->plan->data, rank + 1) - begin;
    void *share = rpexec_element(dtype, all.to, begin);
    const rpexec_collective_array scattered = {.from = all.from, .to = share, .count = all.count};
    const rpexec_collective_array gathered = {.from = share, .to = all.to, .count = all.count};
    uint64_t tag = rpexec_run_tag(RPEXEC_TAG_JOB, (uint32_t)(job - r->plan->jobs));
    RP_TRY(collect_along(r, op, RPEXEC_AXIS_DATA, RPEXEC_REDUCE_SCATTER, dtype, &scattered, 1));
    RP_TRY(rpexec_processes_all_reduce(r->e->processes, tag, dtype, values, share));
    return collect_along(r, op, RPEXEC_AXIS_DATA, RPEXEC_ALL_GATHER, dtype, &gathered, 1);
}

rp_status rpexec_run_reduce_gradients(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_job *job = &r->plan->jobs[r->plan->tasks[op].job];
    void *gradients = rpexec_run_at(r, job->gradients);
    const rpexec_model *model = rpexec_plan_model(r->plan, job->gpu);
    uint64_t count = rpexec_model_trained(model, job->begin, job->end);
    const rpexec_collective_array all = {.from = gradients, .to = gradients, .count = count};
    (void)lane;
    if (r->e->processes == NULL) {
        return collect_along(r, op, RPEXEC_AXIS_DATA, RPEXEC_ALL_REDUCE, model->dtype, &all, 1);
    }
    return reduce_over_processes(r, op, job, all);
}

/* ---- the step -------------------------------------------------------------------------------- */

static uint64_t values_of(const rpexec_run *r, const rpexec_job *job)
{
    return rpexec_model_trained(&r->plan->slices[job->gpu].model, job->begin, job->end);
}

/* Offset of a layer's values in a job's arrays, which have only trained values or all. */
static uint64_t before(const rpexec_run *r, const rpexec_job *job, uint32_t layer, bool trained)
{
    const rpexec_model *m = &r->plan->slices[job->gpu].model;
    return trained ? rpexec_model_trained(m, job->begin, layer)
                   : rpexec_model_values(m, job->begin, layer);
}

static void *gradients_of(const rpexec_run *r, const rpexec_job *job, uint32_t layer)
{
    return rpexec_element(r->plan->model->dtype, rpexec_run_at(r, job->gradients),
                          before(r, job, layer, true));
}

/* Adam's arrays for a layer: the trained values lie at the end of its weights. */
static rpexec_update update_of(const rpexec_run *r, const rpexec_job *job, uint32_t layer,
                               float scale)
{
    rp_dtype dtype = r->plan->model->dtype;
    const rpexec_layer *l = rpexec_model_layer(&r->plan->slices[job->gpu].model, layer);
    uint64_t values = values_of(r, job);
    float *moments = (float *)rpexec_run_at(r, job->moments) + before(r, job, layer, true);
    void *weights = rpexec_element(dtype, rpexec_run_at(r, job->weights),
                                   before(r, job, layer, false) + l->frozen);
    bool wide = dtype == RP_DTYPE_F32;
    return (rpexec_update){.master = wide ? weights : moments + 2 * values,
                           .weights = wide ? NULL : weights,
                           .gradients = gradients_of(r, job, layer),
                           .m = moments,
                           .v = moments + values,
                           .scale = scale,
                           .count = rpexec_layer_trained(l)};
}

static bool is_block(const rpexec_run *r, uint32_t layer)
{
    return layer != 0 && layer + 1 != r->plan->model->layer_count;
}

/* Sums a gradient of which some ranks share a part and other ranks have other parts: the whole
 * tensor is summed, in which each rank fills in its own part. */
static rp_status sum_parts(rpexec_run *r, uint32_t op, rpexec_lane *lane, const rpexec_slice *s,
                           uint32_t parts, uint64_t count, void *gradient)
{
    rp_dtype dtype = r->plan->model->dtype;
    void *all = rpexec_run_at(r, r->plan->tasks[op].scratch);
    void *own = rpexec_element(dtype, all, rpexec_slice_part(s, parts) * count);
    const rpexec_collective_array array = {.from = all, .to = all, .count = parts * count};
    r->operators->zero(lane, parts * count, all);
    r->operators->copy(lane, count, gradient, own);
    RP_TRY(collect(r, op, RPEXEC_ALL_REDUCE, dtype, &array, 1));
    r->operators->copy(lane, count, own, gradient);
    return RP_OK;
}

/* Sums the gradients of tensors that several ranks have: norms of heads, kv heads, one of two
 * adapters. */
static rp_status sum_layer(rpexec_run *r, uint32_t op, rpexec_lane *lane, const rpexec_job *job,
                           uint32_t layer)
{
    const rpexec_slice *s = &r->plan->slices[job->gpu];
    rp_dtype dtype = r->plan->model->dtype;
    rpexec_collective_array *arrays =
        r->arrays + (size_t)job->gpu * rpexec_plan_most_arrays(r->plan);
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->model.block.tensor_count; i++) {
        const rpexec_tensor *t = &s->model.block.tensors[i];
        uint32_t parts = rpexec_slice_sums(s, i);
        uint64_t values = t->rows * t->columns;
        void *at =
            rpexec_element(dtype, gradients_of(r, job, layer), t->offset - s->model.block.frozen);
        if (parts == 1) {
            arrays[count++] = (rpexec_collective_array){.from = at, .to = at, .count = values};
        } else if (parts > 1) {
            RP_TRY(sum_parts(r, op, lane, s, parts, values, at));
        }
    }
    return count == 0 ? RP_OK : collect(r, op, RPEXEC_ALL_REDUCE, dtype, arrays, count);
}

/* Puts a rank's part into the whole model's gradients. */
static rp_status keep(rpexec_run *r, uint32_t op, const rpexec_update *update,
                      const rpexec_job *job, uint32_t layer)
{
    const rpexec_slice_copy copy = {.layer = layer,
                                    .width = sizeof(float),
                                    .trained = true,
                                    .to_whole = true,
                                    .whole = rpexec_run_wanted(r, op) + r->e->state->trained[layer],
                                    .part = r->staging[job->gpu]};
    RP_TRY(rpexec_run_keep(r, op, update, r->staging[job->gpu]));
    rpexec_slice_move(&r->plan->slices[job->gpu], &copy);
    return RP_OK;
}

/* Completes all gradients before the step. */
static rp_status complete(rpexec_run *r, uint32_t op, uint32_t gpu, rpexec_lane *lane)
{
    if (r->plan->model->config->tied_head && r->plan->model->rank == 0) {
        RP_TRY(rpexec_run_reduce_table(r, op, gpu, lane));
    }
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        for (uint32_t layer = job->begin; job->gpu == gpu && layer < job->end; layer++) {
            RP_TRY(is_block(r, layer) ? sum_layer(r, op, lane, job, layer) : RP_OK);
        }
    }
    return RP_OK;
}

/* Squares of the gradients that no earlier rank has; a tied table's count in the embedding's
 * place. */
static rpexec_squares squares_of(const rpexec_run *r, uint32_t gpu, rpexec_lane *lane)
{
    const rpexec_slice *s = &r->plan->slices[gpu];
    const rpexec_model *m = &s->model;
    rpexec_squares sum = {0};
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        for (uint32_t layer = job->begin; job->gpu == gpu && layer < job->end; layer++) {
            const rpexec_layer *l = rpexec_model_layer(m, layer);
            bool tied = layer + 1 == m->layer_count && m->config->tied_head;
            for (uint32_t k = 0; k < l->tensor_count; k++) {
                const rpexec_tensor *t = &l->tensors[k];
                bool again = (tied && k == RPEXEC_HEAD_TABLE) || rpexec_slice_copies(s, layer, k);
                if (rpexec_tensor_trained(l, t) && !again) {
                    r->operators->squares(lane, t->rows * t->columns,
                                          rpexec_element(m->dtype, gradients_of(r, job, layer),
                                                         t->offset - l->frozen),
                                          &sum);
                }
            }
        }
    }
    return sum;
}

rp_status rpexec_run_update_slices(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    uint32_t gpu = r->program->queues[r->plan->order.queue_of[op]].gpu;
    float scale = r->scales[r->program->ops[op].iteration];
    rpexec_run_step step;
    RP_TRY(complete(r, op, gpu, lane));
    bool first = rpexec_plan_copy(r->plan, gpu) == 0; /* others have the same gradients */
    bool keeps = first && rpexec_run_wanted(r, op) != NULL;
    const rpexec_squares squares = first ? squares_of(r, gpu, lane) : (rpexec_squares){0};
    if (!rpexec_run_agree(r, op, &squares, &step)) {
        return RP_BROKEN; /* somebody else has failed */
    }
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        if (job->gpu != gpu) {
            continue;
        }
        for (uint32_t layer = job->begin; layer < job->end; layer++) {
            const rpexec_update update = update_of(r, job, layer, scale);
            RP_TRY(keeps ? keep(r, op, &update, job, layer) : RP_OK);
            if (step.number != 0) {
                rpexec_run_adam(r, lane, &step,
                                rpexec_model_layer(&r->plan->slices[gpu].model, layer), 0, &update);
            }
        }
        r->operators->zero(lane, values_of(r, job), rpexec_run_at(r, job->gradients));
    }
    return RP_OK;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

rp_status rpexec_run_open_slices(rpexec_run *r)
{
    const rp_program *p = r->program;
    const rpexec_model *m = r->plan->model;
    uint64_t tokens = r->first_sequence[p->microbatch_count] * m->seq_len;
    RP_TRY(rp_arena_alloc(r->arena, p->gpu_count, sizeof *r->staging, &r->staging));
    RP_TRY(rp_arena_alloc(r->arena, (size_t)p->gpu_count * p->iteration_count, sizeof *r->slice_ids,
                          &r->slice_ids));
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        const rpexec_slice *s = &r->plan->slices[gpu];
        uint64_t most = 0;
        for (uint32_t layer = 0; layer < m->layer_count; layer++) {
            uint64_t floats = rpexec_model_layer(&s->model, layer)->floats;
            most = floats > most ? floats : most;
        }
        RP_TRY(rp_arena_alloc(r->arena, most, sizeof(float), &r->staging[gpu]));
        for (uint32_t i = 0; i < p->iteration_count; i++) {
            int32_t *ids = NULL;
            RP_TRY(r->e->driver_type->shared(r->driver, tokens * sizeof *ids, &ids));
            r->slice_ids[(size_t)gpu * p->iteration_count + i] = ids;
        }
    }
    return RP_OK;
}

void rpexec_run_fill_slices(rpexec_run *r)
{
    const rp_program *p = r->program;
    uint64_t tokens = r->first_sequence[p->microbatch_count] * r->plan->model->seq_len;
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        const rpexec_slice *s = &r->plan->slices[gpu];
        for (uint32_t i = 0; i < r->run_most; i++) {
            int32_t *ids = r->slice_ids[(size_t)gpu * p->iteration_count + i];
            for (uint64_t t = 0; t < tokens; t++) {
                uint32_t id = (uint32_t)r->e->batches[i].ids[t] - s->first_id;
                ids[t] = id < s->config.vocab ? (int32_t)id : -1;
            }
        }
    }
}

/* Moves a layer between the state's array at copy.whole and the rank's slice of it at `on_gpu`. */
static void move(rpexec_run *r, const rpexec_job *job, rpexec_slice_copy copy, void *on_gpu)
{
    const rpexec_slice *s = &r->plan->slices[job->gpu];
    const rpexec_layer *l = rpexec_model_layer(&s->model, copy.layer);
    uint64_t bytes = (copy.trained ? rpexec_layer_trained(l) : l->floats) * copy.width;
    copy.part = r->staging[job->gpu];
    if (copy.to_whole) {
        rpexec_run_transfer(r, copy.part, on_gpu, bytes);
        rpexec_slice_move(s, &copy);
        return;
    }
    memset(copy.part, 0, bytes); /* the gaps between tensors */
    rpexec_slice_move(s, &copy);
    rpexec_run_transfer(r, on_gpu, copy.part, bytes);
}

/* Moves masters and moments, which a tied head shares with the embedding. */
static void move_trained(rpexec_run *r, const rpexec_job *job, uint32_t layer, bool load)
{
    const rpexec_state *state = r->e->state;
    const rpexec_update update = update_of(r, job, layer, 1);
    bool tied =
        load && layer + 1 == r->plan->model->layer_count && r->plan->model->config->tied_head;
    const struct {
        float *on_gpu, *in_state;
    } arrays[] = {{update.master, state->master}, {update.m, state->m}, {update.v, state->v}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        const rpexec_slice_copy copy = {.layer = layer,
                                        .width = sizeof(float),
                                        .trained = true,
                                        .to_whole = !load,
                                        .whole = arrays[i].in_state + state->trained[layer],
                                        .table = tied ? arrays[i].in_state : NULL};
        move(r, job, copy, arrays[i].on_gpu);
    }
}

void rpexec_run_load_slices(rpexec_run *r)
{
    size_t width = rp_dtype_bytes(r->plan->model->dtype);
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        for (uint32_t layer = job->begin; layer < job->end; layer++) {
            const rpexec_slice_copy copy = {
                .layer = layer, .width = width, .whole = rpexec_state_working(r->e->state, layer)};
            move(r, job, copy,
                 rpexec_element(r->plan->model->dtype, rpexec_run_at(r, job->weights),
                                before(r, job, layer, false)));
            move_trained(r, job, layer, true);
        }
        rpexec_run_transfer(r, rpexec_run_at(r, job->gradients), NULL, values_of(r, job) * width);
    }
}

void rpexec_run_store_slices(rpexec_run *r)
{
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        bool first = rpexec_plan_copy(r->plan, job->gpu) == 0;
        for (uint32_t layer = job->begin; first && layer < job->end; layer++) {
            move_trained(r, job, layer, false);
        }
    }
    for (uint32_t layer = 0; layer < r->plan->model->layer_count; layer++) {
        rpexec_state_refresh(r->e->state, layer);
    }
}
