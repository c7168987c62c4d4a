/* Work of each op of a run. */
#include "common/base/log.h"
#include "exec/run/execute_internal.h"

#include <string.h>

/* ---- places of tensors ----------------------------------------------------------------------- */

void *rpexec_run_at(const rpexec_run *r, uint32_t value)
{
    if (value == RPEXEC_NO_TENSOR) {
        return NULL;
    }
    const rpexec_value *v = &r->plan->values[value];
    return r->e->driver_type->memory(r->driver, v->place) + v->offset;
}

static const rpexec_batch *batch_of(const rpexec_run *r, const rp_op *op)
{
    return &r->e->batches[op->iteration];
}

static uint64_t first_token(const rpexec_run *r, const rp_op *op)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    rpexec_plan_microbatches(r->plan, op->microbatch, &begin, &end);
    return r->first_sequence[begin] * r->plan->model->seq_len;
}

/* Address of the op's token ids on the host. */
static const int32_t *ids_of(const rpexec_run *r, const rp_op *op, uint32_t gpu)
{
    const int32_t *ids = r->ids[op->iteration];
    if (r->plan->slices != NULL) {
        ids = r->slice_ids[(size_t)gpu * r->program->iteration_count + op->iteration];
    }
    return ids + first_token(r, op);
}

static uint64_t tokens_of(const rpexec_run *r, const rp_op *op)
{
    return (uint64_t)rpexec_plan_sequences(r->plan, op->microbatch) * r->plan->model->seq_len;
}

/* Values of a job that are trained. */
static uint64_t job_values(const rpexec_run *r, const rpexec_job *job)
{
    return r->e->state->trained[job->end] - r->e->state->trained[job->begin];
}

/* ---- transfers ------------------------------------------------------------------------------- */

void rpexec_run_copy(rpexec_run *r, uint32_t op, void *to, const void *from, uint64_t bytes)
{
    bool down = rp_op_kinds[r->program->ops[op].kind].way == RP_WAY_DOWN;
    atomic_fetch_add(down ? &r->downloaded : &r->uploaded, bytes);
    r->e->driver_type->copy(r->driver, op, to, from, bytes);
}

static rp_status upload_activation(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rp_op *o = &r->program->ops[op];
    uint64_t bytes = tokens_of(r, o) * sizeof(int32_t);
    uint64_t first = first_token(r, o);
    (void)lane;
    if (task->output != RPEXEC_NO_TENSOR) {
        uint64_t boundary = tokens_of(r, o) * r->plan->model->config->hidden *
                            rp_dtype_bytes(r->plan->model->dtype);
        rpexec_run_copy(r, op, rpexec_run_at(r, task->output), rpexec_run_at(r, task->input),
                        boundary);
    }
    if (task->ids != RPEXEC_NO_TENSOR) {
        uint32_t gpu = r->program->queues[r->plan->order.queue_of[op]].gpu;
        rpexec_run_copy(r, op, rpexec_run_at(r, task->ids), ids_of(r, o, gpu), bytes);
    }
    if (task->labels != RPEXEC_NO_TENSOR) {
        rpexec_run_copy(r, op, rpexec_run_at(r, task->labels), r->labels[o->iteration] + first,
                        bytes);
    }
    return RP_OK;
}

static rp_status move_boundary(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    (void)lane;
    rpexec_run_copy(r, op, rpexec_run_at(r, task->output), rpexec_run_at(r, task->input),
                    r->program->op_bytes[op]);
    return RP_OK;
}

/* Copies from a GPU's memory into another GPU's. */
static rp_status send(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    uint64_t bytes = r->program->op_bytes[op];
    (void)lane;
    atomic_fetch_add(&r->exchanged, bytes);
    r->e->driver_type->copy(r->driver, op, rpexec_run_at(r, task->output),
                            rpexec_run_at(r, task->input), bytes);
    return RP_OK;
}

/* Working weights and slots of a stage's layers are contiguous on the host as well. */
static rp_status upload_parameters(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    unsigned char *weights = rpexec_run_at(r, job->weights);
    const unsigned char *working = rpexec_state_working(r->e->state, job->begin);
    (void)lane;
    rpexec_run_copy(r, op, weights + task->from_byte, working + task->from_byte,
                    task->to_byte - task->from_byte);
    return RP_OK;
}

/* Moves a job's gradients to or from the host's slot or, if calls overlap, a tensor of their
 * own. */
static rp_status move_gradients(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    bool own = task->output != RPEXEC_NO_TENSOR;
    void *on_host =
        own ? rpexec_run_at(r, task->output) : rpexec_state_slot(r->e->state, job->begin);
    void *on_gpu = rpexec_run_at(r, job->gradients);
    bool up = rp_op_kinds[r->program->ops[op].kind].way == RP_WAY_UP;
    (void)lane;
    rpexec_run_copy(r, op, up ? on_gpu : on_host, up ? on_host : on_gpu,
                    job_values(r, job) * rp_dtype_bytes(r->plan->model->dtype));
    return RP_OK;
}

/* ---- compute --------------------------------------------------------------------------------- */

/* Sets weights and gradients, or their fp32 sums, of the layers that an op works on in its job. */
static void set_parameters(const rpexec_run *r, const rpexec_job *job, uint32_t sums,
                           rpexec_stage_data *data)
{
    const rpexec_model *model = rpexec_plan_model(r->plan, job->gpu);
    /* If embedding and head are kept apart, the weights begin with the first block. */
    bool later = job->root != RPEXEC_NO_TENSOR && job->begin == 0;
    uint64_t weights = rpexec_model_values(model, job->begin + (later ? 1 : 0), data->begin);
    data->root = rpexec_run_at(r, job->root);
    data->weights = rpexec_element_const(model->dtype, rpexec_run_at(r, job->weights), weights);
    uint64_t trained = rpexec_model_trained(model, job->begin, data->begin);
    data->gradients = sums != RPEXEC_NO_TENSOR
                          ? rpexec_element(RP_DTYPE_F32, rpexec_run_at(r, sums), trained)
                          : rpexec_element(model->dtype, rpexec_run_at(r, job->gradients), trained);
}

/* The weight part of a backward whose input part went layer by layer. */
static void compute_parts(const rpexec_run *r, const rpexec_task *task, const rpexec_compute *c,
                          rpexec_stage_data *data)
{
    for (uint32_t i = task->part_end; i-- > task->part_begin;) {
        const rpexec_part *part = &r->plan->parts[i];
        data->begin = part->begin;
        data->end = part->end;
        data->tape = rpexec_run_at(r, part->tape);
        data->weight_tape = rpexec_run_at(r, part->weight_tape);
        set_parameters(r, &r->plan->jobs[task->job], task->sums, data);
        rpexec_stage_backward(c, data, RPEXEC_BACKWARD_WEIGHT);
    }
}

static void run_stage(const rpexec_run *r, const rp_op *o, const rpexec_task *task,
                      const rpexec_compute *c, rpexec_stage_data *data)
{
    if (task->runs_layers) {
        rpexec_stage_forward(c, data, task->keep);
    }
    if (task->runs_head) {
        rpexec_stage_head(c, data);
    }
    if (!rp_op_kind_is_backward(o->kind) || data->loss_only) {
        return;
    }
    if (task->part_end > task->part_begin) {
        compute_parts(r, task, c, data);
        return;
    }
    data->d_input = rpexec_run_at(r, task->output);
    rpexec_stage_backward(c, data,
                          rp_op_kind_is_weight_part(o->kind)   ? RPEXEC_BACKWARD_WEIGHT
                          : rp_op_kind_leaves_weights(o->kind) ? RPEXEC_BACKWARD_INPUT
                                                               : RPEXEC_BACKWARD_BOTH);
}

/* Clears a job's gradients and their fp32 sums, each of which takes the room of two values. */
static void begin_gradients(const rpexec_run *r, const rpexec_task *task, const rpexec_compute *c)
{
    const rpexec_job *job = &r->plan->jobs[task->job];
    uint64_t values = rpexec_model_trained(c->model, job->begin, job->end);
    if (task->clears) {
        c->operators->zero(c->lane, values, rpexec_run_at(r, job->gradients));
    }
    if (task->begins_sums) {
        c->operators->zero(c->lane, 2 * values, rpexec_run_at(r, task->sums));
    }
}

static void end_gradients(const rpexec_run *r, const rpexec_task *task, const rpexec_compute *c)
{
    const rpexec_job *job = &r->plan->jobs[task->job];
    if (task->ends_sums) {
        c->operators->add_sums(c->lane, rpexec_model_trained(c->model, job->begin, job->end),
                               rpexec_run_at(r, task->sums), rpexec_run_at(r, job->gradients));
    }
}

static rp_status compute(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rp_op *o = &r->program->ops[op];
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    const rpexec_batch *batch = batch_of(r, o);
    rpexec_run_ranks ranks;
    const rpexec_compute c = {.model = rpexec_plan_model(r->plan, job->gpu),
                              .operators = r->operators,
                              .lane = lane,
                              .ranks = rpexec_run_ranks_begin(r, op, &ranks),
                              .rotary = r->e->driver_type->rotary(r->driver, op),
                              .wide = task->sums != RPEXEC_NO_TENSOR};
    double scale = (double)r->scales[o->iteration];
    double *loss = &r->loss_of[(size_t)o->iteration * r->program->microbatch_count + o->microbatch];
    const int32_t *ids = rpexec_run_at(r, task->ids);
    const int32_t *labels = rpexec_run_at(r, task->labels);
    rpexec_stage_data data = {
        .begin = task->begin,
        .end = task->end,
        .sequences = rpexec_plan_sequences(r->plan, o->microbatch),
        .input = rpexec_run_at(r, task->input),
        .ids = ids != NULL ? ids : ids_of(r, o, job->gpu),
        .embedded = rpexec_run_at(r, task->embedded),
        .is_embedded = task->embedded != RPEXEC_NO_TENSOR && rp_op_kind_is_recompute(o->kind),
        .labels = labels != NULL ? labels : r->labels[o->iteration] + first_token(r, o),
        .loss_scale = (float)(scale / (double)batch->valid_tokens),
        .loss = loss,
        .loss_only = r->e->evaluates != 0,
        .output = rpexec_run_at(r, task->body),
        .tape = rpexec_run_at(r, task->tape),
        .weight_tape = rpexec_run_at(r, task->weight_tape),
        .scratch = rpexec_run_at(r, task->scratch),
        .head_gradient = rpexec_run_at(r, task->head_gradient),
        .statistics = rpexec_run_at(r, task->statistics),
        .d_output = rpexec_run_at(r, task->d_output),
        .saves = r->saves + task->save_begin,
        .save_count = task->save_end - task->save_begin};
    set_parameters(r, job, task->sums, &data);
    if (r->e->evaluates != 0) {
        run_stage(r, o, task, &c, &data);
        return ranks.status;
    }
    begin_gradients(r, task, &c);
    run_stage(r, o, task, &c, &data);
    end_gradients(r, task, &c);
    return ranks.status;
}

/* ---- the host -------------------------------------------------------------------------------- */

/* Collects the gradients of a layer; if calls overlap, of each call in turn. */
static rp_status collect(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    uint32_t layer = rp_op_layer(&r->program->ops[op]);
    const rpexec_task *task = &r->plan->tasks[op];
    rpexec_state *state = r->e->state;
    float scale = r->scales[r->program->ops[op].iteration];
    (void)lane;
    rpexec_state_collect(state, layer, scale);
    for (uint32_t i = task->slot_begin; i < task->slot_end; i++) {
        const rpexec_slot *slot = &r->plan->slots[i];
        uint64_t first = state->trained[layer] - state->trained[r->plan->jobs[slot->job].begin];
        rpexec_state_add(
            state, layer,
            rpexec_element(r->plan->model->dtype, rpexec_run_at(r, slot->value), first), scale);
    }
    if (r->e->processes == NULL) {
        rpexec_run_measure(r, op, layer);
    }
    return RP_OK;
}

static rp_status refresh(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rp_op *o = &r->program->ops[op];
    (void)lane;
    rpexec_state_refresh(r->e->state, rp_op_layer(o));
    if (rp_op_layer(o) == 0) {
        r->scales[o->iteration + 1] = r->e->state->scaler.next;
    }
    return RP_OK;
}

/* With resident weights only a barrier. Several processes take the norm of their sum here: in
 * NETWORK_REDUCE it would keep the network waiting. */
static rp_status optimise(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    (void)lane;
    if (!r->plan->resident) {
        for (uint32_t i = r->e->processes != NULL ? r->plan->model->layer_count : 0; i-- > 0;) {
            rpexec_run_measure(r, op, i);
        }
        rpexec_run_optimise(r, op);
    }
    return RP_OK;
}

float *rpexec_run_wanted(const rpexec_run *r, uint32_t op)
{
    bool first = r->e->first_gradients != NULL && r->program->ops[op].iteration == 0;
    return first ? r->e->first_gradients : r->e->keep_gradients ? r->e->state->gradients : NULL;
}

bool rpexec_run_wants_gradients(const rpexec_execution *e)
{
    return e->keep_gradients || e->first_gradients != NULL;
}

void rpexec_run_optimise(rpexec_run *r, uint32_t op)
{
    rpexec_state *state = r->e->state;
    float *to = rpexec_run_wanted(r, op);
    if (to != NULL && to != state->gradients) {
        memcpy(to, state->gradients, state->trained[r->plan->model->layer_count] * sizeof *to);
    }
    rpexec_state_optimise(state, &r->e->adam);
    pthread_mutex_lock(&r->lock);
    r->exhausted = state->exhausted != 0;
    pthread_mutex_unlock(&r->lock);
}

rp_status rpexec_run_keep(rpexec_run *r, uint32_t op, const rpexec_update *update, float *to)
{
    rp_dtype dtype = r->plan->model->dtype;
    if (update->count == 0) { /* frozen: a driver may have nothing to read */
        return RP_OK;
    }
    const void *gradients = r->e->driver_type->read(r->driver, op, update->gradients,
                                                    update->count * rp_dtype_bytes(dtype));
    if (gradients == NULL) {
        return RP_BROKEN; /* logged by the driver */
    }
    (void)rpexec_unscale(dtype, update->count, gradients, update->scale, false, to);
    return RP_OK;
}

/* Adam's arrays for a layer of a job: trained values lie at the end of the layer's weights. */
static rpexec_update update_of(const rpexec_run *r, const rpexec_job *job, uint32_t layer,
                               float scale)
{
    const rpexec_state *s = r->e->state;
    rp_dtype dtype = r->plan->model->dtype;
    uint64_t values = job_values(r, job);
    uint64_t before = s->trained[layer] - s->trained[job->begin];
    uint64_t frozen = rpexec_model_layer(r->plan->model, layer)->frozen;
    float *moments = (float *)rpexec_run_at(r, job->moments) + before;
    void *weights = rpexec_element(dtype, rpexec_run_at(r, job->weights),
                                   s->offsets[layer] - s->offsets[job->begin] + frozen);
    bool wide = dtype == RP_DTYPE_F32;
    return (rpexec_update){.master = wide ? weights : moments + 2 * values,
                           .weights = wide ? NULL : weights,
                           .gradients =
                               rpexec_element(dtype, rpexec_run_at(r, job->gradients), before),
                           .m = moments,
                           .v = moments + values,
                           .scale = scale,
                           .count = s->trained[layer + 1] - s->trained[layer]};
}

/* Squares of all gradients on the GPU; a tied table's are counted only in the embedding's place. */
static rpexec_squares squares_of(const rpexec_run *r, uint32_t gpu, rpexec_lane *lane)
{
    rpexec_squares sum = {0};
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        if (job->gpu == gpu && job->begin < job->end) {
            r->operators->squares(lane, rpexec_state_own(r->e->state, job->begin, job->end),
                                  rpexec_run_at(r, job->gradients), &sum);
        }
    }
    return sum;
}

/* Takes Adam's step for a GPU's weights, if all agree; then its gradients are empty again. */
static rp_status update(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    uint32_t gpu = r->program->queues[r->plan->order.queue_of[op]].gpu;
    uint16_t iteration = r->program->ops[op].iteration;
    bool tied = r->plan->model->config->tied_head && r->plan->model->rank == 0;
    if (r->plan->slices != NULL) {
        return rpexec_run_update_slices(r, op, lane);
    }
    if (tied) {
        RP_TRY(rpexec_run_reduce_table(r, op, gpu, lane));
    }
    rpexec_run_step step;
    float *wanted = rpexec_run_wanted(r, op);
    bool copy = rpexec_plan_copy(r->plan, gpu) != 0; /* has gradients that another GPU counts */
    const rpexec_squares squares = copy ? (rpexec_squares){0} : squares_of(r, gpu, lane);
    if (!rpexec_run_agree(r, op, &squares, &step)) {
        return RP_BROKEN; /* somebody else has failed */
    }
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        if (job->gpu != gpu) {
            continue;
        }
        for (uint32_t layer = job->begin; layer < job->end; layer++) {
            rpexec_update update = update_of(r, job, layer, r->scales[iteration]);
            if (wanted != NULL && !copy) {
                RP_TRY(rpexec_run_keep(r, op, &update, wanted + r->e->state->trained[layer]));
            }
            update.count -= tied ? rpexec_run_follow_table(r, job, layer, lane) : 0;
            if (step.number != 0) {
                rpexec_run_adam(r, lane, &step, rpexec_model_layer(r->plan->model, layer), 0,
                                &update);
            }
        }
        r->operators->zero(lane, job_values(r, job), rpexec_run_at(r, job->gradients));
    }
    return RP_OK;
}

void rpexec_run_transfer(rpexec_run *r, void *to, const void *from, uint64_t bytes)
{
    if (bytes != 0 && r->transferred == RP_OK) {
        r->transferred = r->e->driver_type->transfer(r->driver, to, from, bytes);
    }
}

/* Loads a job's layers from an array of the state that is laid out as the trained values; in the
 * place of a tied head's table it takes the embedding's. */
static void load_trained(rpexec_run *r, const rpexec_job *job, const float *from, float *to)
{
    const rpexec_state *state = r->e->state;
    uint64_t own = rpexec_state_own(state, job->begin, job->end);
    rpexec_run_transfer(r, to, from + state->trained[job->begin], own * sizeof *to);
    rpexec_run_transfer(r, to + own, from, (job_values(r, job) - own) * sizeof *to);
}

void rpexec_run_load(rpexec_run *r)
{
    const rpexec_state *state = r->e->state;
    if (r->plan->sharded != NULL) {
        rpexec_run_load_sharded(r);
    }
    if (r->plan->slices != NULL) {
        rpexec_run_load_slices(r);
        return;
    }
    for (uint32_t i = 0; r->plan->resident && i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        size_t width = rp_dtype_bytes(r->plan->model->dtype);
        float *moments = rpexec_run_at(r, job->moments);
        load_trained(r, job, state->m, moments);
        load_trained(r, job, state->v, moments + job_values(r, job));
        if (r->plan->model->dtype != RP_DTYPE_F32) {
            load_trained(r, job, state->master, moments + 2 * job_values(r, job));
        }
        rpexec_run_transfer(r, rpexec_run_at(r, job->weights),
                            rpexec_state_working(state, job->begin),
                            (state->offsets[job->end] - state->offsets[job->begin]) * width);
        rpexec_run_transfer(r, rpexec_run_at(r, job->gradients), NULL, job_values(r, job) * width);
    }
}

/* Weights and moments that the GPUs have trained become the state again. */
void rpexec_run_store(rpexec_run *r)
{
    rpexec_state *state = r->e->state;
    if (r->plan->sharded != NULL) {
        rpexec_run_store_sharded(r);
    }
    if (r->plan->slices != NULL) {
        rpexec_run_store_slices(r);
    }
    for (uint32_t i = 0; r->plan->resident && r->plan->slices == NULL && i < r->plan->job_count;
         i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        if (rpexec_plan_copy(r->plan, job->gpu) != 0) {
            continue;
        }
        rpexec_run_transfer(r, rpexec_state_working(state, job->begin),
                            rpexec_run_at(r, job->weights),
                            (state->offsets[job->end] - state->offsets[job->begin]) *
                                rp_dtype_bytes(r->plan->model->dtype));
        for (uint32_t layer = job->begin; layer < job->end; layer++) {
            uint64_t first = state->trained[layer];
            const rpexec_update update = update_of(r, job, layer, 1);
            uint64_t bytes = update.count * sizeof(float);
            rpexec_run_transfer(r, state->master + first, update.master, bytes);
            rpexec_run_transfer(r, state->m + first, update.m, bytes);
            rpexec_run_transfer(r, state->v + first, update.v, bytes);
        }
    }
}

/* Copies of the pipeline sum gradients; ranks that share layers have summed in their compute
 * ops. */
static rp_status all_reduce(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    rp_queue_kind kind = (rp_queue_kind)r->program->queues[r->plan->order.queue_of[op]].kind;
    return kind == RP_QUEUE_DATA ? rpexec_run_reduce_gradients(r, op, lane) : RP_OK;
}

/* Does nothing: a RECV's SEND has put the tensor there. */
static rp_status done(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    (void)r;
    (void)op;
    (void)lane;
    return RP_OK;
}

/* clang-format off */

/* X(op kind, its work in pipelines, its work in data-parallel systems, when an evaluation does it);
 * NULL: the plan has refused it. If a backward begins with the head, a recompute makes its
 * input. */
#define WORK(X)                                                                                    \
    X(FORWARD, compute, compute, ALWAYS)                                                           \
    X(RECOMPUTE, compute, compute, OF_HEAD)                                                        \
    X(BACKWARD, compute, compute, WITH_HEAD)                                                       \
    X(BACKWARD_INPUT, compute, NULL, WITH_HEAD)                                                    \
    X(BACKWARD_WEIGHT, compute, NULL, NEVER)                                                       \
    X(UPLOAD_PARAMS, upload_parameters, rpexec_run_sharded_upload, ALWAYS)                         \
    X(UPLOAD_ACT, upload_activation, NULL, ALWAYS)                                                 \
    X(UPLOAD_GRAD, move_boundary, NULL, NEVER)                                                     \
    X(UPLOAD_PARAM_GRAD, move_gradients, NULL, NEVER)                                              \
    X(DOWNLOAD_ACT, move_boundary, NULL, ALWAYS)                                                   \
    X(DOWNLOAD_GRAD, move_boundary, NULL, NEVER)                                                   \
    X(DOWNLOAD_PARAM_GRAD, move_gradients, rpexec_run_sharded_download, NEVER)                     \
    X(SEND, send, NULL, ALWAYS)                                                                    \
    X(RECV, done, NULL, ALWAYS)                                                                    \
    X(ALL_GATHER, NULL, rpexec_run_sharded_gather, ALWAYS)                                         \
    X(REDUCE_SCATTER, NULL, rpexec_run_sharded_reduce, NEVER)                                      \
    X(ALL_REDUCE, all_reduce, rpexec_run_sharded_reduce, NEVER)                                    \
    X(OPTIMIZER, optimise, rpexec_run_sharded_optimise, NEVER)                                     \
    X(REFRESH, refresh, NULL, NEVER)                                                               \
    X(COLLECT, collect, rpexec_run_sharded_collect, NEVER)                                         \
    X(UPDATE, update, rpexec_run_sharded_update, NEVER)                                            \
    X(NETWORK_REDUCE, rpexec_run_network_reduce, NULL, NEVER)                                      \
    X(ALL_TO_ALL, NULL, NULL, NEVER)                                                               \
    X(UPLOAD_SAVED, NULL, NULL, NEVER)                                                             \
    X(DOWNLOAD_SAVED, NULL, NULL, NEVER)

/* clang-format on */

RP_OP_ROWS_CHECK(WORK);

static bool evaluates(const rpexec_run *r, uint32_t op)
{
    enum { NEVER, ALWAYS, OF_HEAD, WITH_HEAD };
#define WHEN_OF(kind, pipeline, sharded, when) [RP_OP_##kind] = (when),
    static const int whens[RP_OP_KIND_COUNT] = {WORK(WHEN_OF)};
    const rpexec_task *task = &r->plan->tasks[op];
    int when = whens[r->program->ops[op].kind];
    return when == ALWAYS || (when == WITH_HEAD && task->runs_head) ||
           (when == OF_HEAD && r->plan->jobs[task->job].end == r->plan->model->layer_count);
}

rp_status rpexec_run_perform(void *context, uint32_t op, rpexec_lane *lane)
{
#define WORK_OF(kind, pipeline, sharded, when) [RP_OP_##kind] = {pipeline, sharded},
    static rpexec_run_op *const works[RP_OP_KIND_COUNT][2] = {WORK(WORK_OF)};
    rpexec_run *r = context;
    if (op == r->e->fail_op) {
        return RP_TOOL;
    }
    const rp_op *o = &r->program->ops[op];
    if (!rpexec_run_begins(r, o->iteration) || (r->e->evaluates != 0 && !evaluates(r, op))) {
        return RP_OK;
    }
    rpexec_run_op *work = works[o->kind][r->plan->sharded != NULL ? 1 : 0];
    rp_status status = work != NULL ? work(r, op, lane) : rp_broken();
    if (r->e->processes != NULL) {
        rpexec_processes_note_work(r->e->processes);
    }
    return status;
}
