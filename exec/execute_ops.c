/* What each op of a run does. */
#include "exec/execute_inside.h"

#include <string.h>

#define TABLE_DONE UINT32_MAX

/* ---- where things are -------------------------------------------------------------------------
 */

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
    return r->first_sequence[op->microbatch] * r->plan->model->seq_len;
}

static uint64_t tokens_of(const rpexec_run *r, const rp_op *op)
{
    return (uint64_t)r->program->sequences[op->microbatch] * r->plan->model->seq_len;
}

/* ---- transfers --------------------------------------------------------------------------------
 */

static void copy(rpexec_run *r, uint32_t op, void *to, const void *from, uint64_t bytes)
{
    bool down = r->program->queues[r->plan->order.queue_of[op]].kind == RP_QUEUE_DOWNLOAD;
    atomic_fetch_add(down ? &r->downloaded : &r->uploaded, bytes);
    r->e->driver_type->copy(r->driver, op, to, from, bytes);
}

static void upload_activation(rpexec_run *r, uint32_t op)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rp_op *o = &r->program->ops[op];
    const rpexec_batch *batch = batch_of(r, o);
    uint64_t bytes = tokens_of(r, o) * sizeof(int32_t);
    uint64_t first = first_token(r, o);
    if (task->output != RPEXEC_NO_TENSOR) {
        uint64_t boundary = tokens_of(r, o) * r->plan->model->config->hidden * sizeof(float);
        copy(r, op, rpexec_run_at(r, task->output), rpexec_run_at(r, task->input), boundary);
    }
    if (task->ids != RPEXEC_NO_TENSOR) {
        copy(r, op, rpexec_run_at(r, task->ids), batch->ids + first, bytes);
    }
    if (task->labels != RPEXEC_NO_TENSOR) {
        copy(r, op, rpexec_run_at(r, task->labels), batch->labels + first, bytes);
    }
}

static void move_boundary(rpexec_run *r, uint32_t op)
{
    const rpexec_task *task = &r->plan->tasks[op];
    copy(r, op, rpexec_run_at(r, task->output), rpexec_run_at(r, task->input),
         r->program->op_bytes[op]);
}

/* Working weights and slots of a stage's layers lie one after the other on the host as well. */
static void move_parameters(rpexec_run *r, uint32_t op)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    rpexec_state *state = r->e->state;
    uint64_t first = state->offsets[job->begin];
    uint64_t whole = (state->offsets[job->end] - first) * sizeof(float);
    switch (r->program->ops[op].kind) {
    case RP_OP_UPLOAD_PARAMS:
        copy(r, op, (unsigned char *)rpexec_run_at(r, job->weights) + task->from_byte,
             (const unsigned char *)(state->working + first) + task->from_byte,
             task->to_byte - task->from_byte);
        break;
    case RP_OP_UPLOAD_PARAM_GRAD:
        copy(r, op, rpexec_run_at(r, job->gradients), state->slots + first, whole);
        break;
    default:
        copy(r, op, state->slots + first, rpexec_run_at(r, job->gradients), whole);
        break;
    }
}

/* ---- compute ----------------------------------------------------------------------------------
 */

static void compute(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rp_op *o = &r->program->ops[op];
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    const rpexec_batch *batch = batch_of(r, o);
    const rpexec_compute c = {
        .model = r->plan->model, .operators = r->e->driver_type->operators, .lane = lane};
    double *loss = &r->loss_of[(size_t)o->iteration * r->program->microbatch_count + o->microbatch];
    const int32_t *labels = rpexec_run_at(r, task->labels);
    rpexec_stage_data data = {.begin = job->begin,
                              .end = job->end,
                              .sequences = r->program->sequences[o->microbatch],
                              .weights = rpexec_run_at(r, job->weights),
                              .gradients = rpexec_run_at(r, job->gradients),
                              .input = rpexec_run_at(r, task->input),
                              .ids = rpexec_run_at(r, task->ids),
                              .labels = labels != NULL ? labels : batch->labels + first_token(r, o),
                              .loss_scale = (float)(1.0 / (double)batch->valid_tokens),
                              .loss = loss,
                              .output = rpexec_run_at(r, task->body),
                              .tape = rpexec_run_at(r, task->tape),
                              .weight_tape = rpexec_run_at(r, task->weight_tape),
                              .scratch = rpexec_run_at(r, task->scratch),
                              .head_gradient = rpexec_run_at(r, task->head_gradient),
                              .d_output = rpexec_run_at(r, task->d_output),
                              .saves = r->saves + task->save_begin,
                              .save_count = task->save_end - task->save_begin};
    if (task->clears) {
        uint64_t floats = r->e->state->offsets[job->end] - r->e->state->offsets[job->begin];
        c.operators->zero(lane, floats, data.gradients);
    }
    if (task->runs_layers) {
        rpexec_stage_forward(&c, &data, task->keep);
    }
    if (task->runs_head) {
        rpexec_stage_head(&c, &data);
    }
    if (o->kind == RP_OP_FORWARD || o->kind == RP_OP_RECOMPUTE) {
        return;
    }
    data.d_input = rpexec_run_at(r, task->output);
    rpexec_stage_backward(&c, &data,
                          o->kind == RP_OP_BACKWARD         ? RPEXEC_BACKWARD_BOTH
                          : o->kind == RP_OP_BACKWARD_INPUT ? RPEXEC_BACKWARD_INPUT
                                                            : RPEXEC_BACKWARD_WEIGHT);
}

/* ---- the host ---------------------------------------------------------------------------------
 */

static uint64_t job_floats(const rpexec_run *r, const rpexec_job *job)
{
    return r->e->state->offsets[job->end] - r->e->state->offsets[job->begin];
}

/* Where the other copy of a tied table is: in the head's array for a job that has the embedding,
 * in the embedding's for one with the head; NULL where the model has one table only. */
static float *table_of(const rpexec_run *r, const rpexec_job *job, uint32_t tensor, bool head)
{
    const rpexec_state *state = r->e->state;
    uint32_t layer = head ? r->plan->model->layer_count - 1 : 0;
    uint64_t first = state->offsets[layer] - state->offsets[job->begin];
    uint64_t inside = head ? r->plan->model->head.tensors[RPEXEC_HEAD_TABLE].offset : 0;
    return (float *)rpexec_run_at(r, tensor) + first + inside;
}

static bool has_layer(const rpexec_job *job, uint32_t layer)
{
    return job->begin <= layer && layer < job->end;
}

/* The two gradients of a tied table become their sum, as Megatron-LM's all-reduce between the first
 * and the last stage has it: whoever comes second adds, head's first, for both. */
static bool reduce_table(rpexec_run *r, uint32_t gpu, uint16_t iteration)
{
    const rpexec_job *first = NULL;
    const rpexec_job *last = NULL;
    uint32_t head = r->plan->model->layer_count - 1;
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        first = has_layer(job, 0) ? job : first;
        last = has_layer(job, head) ? job : last;
    }
    if (first->gpu != gpu && last->gpu != gpu) {
        return true;
    }
    uint32_t needed = (first->gpu == gpu) != (last->gpu == gpu) ? 2 : 1;
    pthread_mutex_lock(&r->lock);
    uint32_t arrived = ++r->tables[iteration];
    if (arrived == needed) {
        float *to = table_of(r, first, first->gradients, false);
        float *other = table_of(r, last, last->gradients, true);
        for (uint64_t i = 0; i < r->plan->model->embedding.floats; i++) {
            to[i] = other[i] = other[i] + to[i];
        }
        r->tables[iteration] = TABLE_DONE;
        pthread_cond_broadcast(&r->submitted_one);
    }
    while (r->tables[iteration] != TABLE_DONE && !r->stopped) {
        pthread_cond_wait(&r->submitted_one, &r->lock);
    }
    bool done = r->tables[iteration] == TABLE_DONE;
    pthread_mutex_unlock(&r->lock);
    return done;
}

/* Adam of what a GPU has; then its gradients are empty again. */
static rp_status update(rpexec_run *r, uint32_t op, rpexec_lane *lane)
{
    const rpexec_operators *operators = r->e->driver_type->operators;
    uint32_t gpu = r->program->queues[r->plan->order.queue_of[op]].gpu;
    uint16_t iteration = r->program->ops[op].iteration;
    if (r->plan->model->config->tied_head && !reduce_table(r, gpu, iteration)) {
        return RP_BROKEN; /* somebody else has failed */
    }
    for (uint32_t i = 0; i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        if (job->gpu != gpu) {
            continue;
        }
        uint64_t floats = job_floats(r, job);
        float *moments = rpexec_run_at(r, job->moments);
        const rpexec_adam_slice slice = {.parameters = rpexec_run_at(r, job->weights),
                                         .gradients = rpexec_run_at(r, job->gradients),
                                         .m = moments,
                                         .v = moments + floats,
                                         .count = floats};
        if (r->e->keep_gradients) {
            memcpy(r->e->state->gradients + r->e->state->offsets[job->begin],
                   rpexec_run_at(r, job->gradients), floats * sizeof(float));
        }
        operators->adam(lane, &r->e->adam, r->e->state->step + iteration + 1, &slice);
        operators->zero(lane, floats, rpexec_run_at(r, job->gradients));
    }
    return RP_OK;
}

void rpexec_run_load(rpexec_run *r)
{
    const rpexec_state *state = r->e->state;
    for (uint32_t i = 0; r->plan->resident && i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        uint64_t floats = job_floats(r, job);
        float *moments = rpexec_run_at(r, job->moments);
        rpexec_state_moments(state, job->begin, job->end, moments, moments + floats);
        memcpy(rpexec_run_at(r, job->weights), state->working + state->offsets[job->begin],
               floats * sizeof(float));
        memset(rpexec_run_at(r, job->gradients), 0, floats * sizeof(float));
    }
}

/* What the GPUs have trained is the state again. */
void rpexec_run_store(rpexec_run *r)
{
    rpexec_state *state = r->e->state;
    for (uint32_t i = 0; r->plan->resident && i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        uint64_t first = state->offsets[job->begin];
        uint64_t floats = job_floats(r, job);
        const float *moments = rpexec_run_at(r, job->moments);
        memcpy(state->master + first, rpexec_run_at(r, job->weights), floats * sizeof(float));
        memcpy(state->working + first, rpexec_run_at(r, job->weights), floats * sizeof(float));
        memcpy(state->m + first, moments, floats * sizeof(float));
        memcpy(state->v + first, moments + floats, floats * sizeof(float));
    }
    state->step += r->plan->resident ? r->program->iteration_count : 0;
}

rp_status rpexec_run_perform(void *context, uint32_t op, rpexec_lane *lane)
{
    rpexec_run *r = context;
    if (op == r->e->fail_op) {
        return RP_TOOL;
    }
    const rp_op *o = &r->program->ops[op];
    switch ((rp_op_kind)o->kind) {
    case RP_OP_FORWARD:
    case RP_OP_RECOMPUTE:
    case RP_OP_BACKWARD:
    case RP_OP_BACKWARD_INPUT:
    case RP_OP_BACKWARD_WEIGHT:
        compute(r, op, lane);
        return RP_OK;
    case RP_OP_UPLOAD_ACT:
        upload_activation(r, op);
        return RP_OK;
    case RP_OP_UPLOAD_GRAD:
    case RP_OP_DOWNLOAD_ACT:
    case RP_OP_DOWNLOAD_GRAD:
        move_boundary(r, op);
        return RP_OK;
    case RP_OP_UPLOAD_PARAMS:
    case RP_OP_UPLOAD_PARAM_GRAD:
    case RP_OP_DOWNLOAD_PARAM_GRAD:
        move_parameters(r, op);
        return RP_OK;
    case RP_OP_OPTIMIZER:
        if (!r->plan->resident) { /* with resident weights a barrier */
            rpexec_state_optimise(r->e->state, &r->e->adam);
        }
        return RP_OK;
    case RP_OP_UPDATE:
        return update(r, op, lane);
    case RP_OP_REFRESH:
        rpexec_state_refresh(r->e->state, o->microbatch);
        return RP_OK;
    case RP_OP_COLLECT:
        rpexec_state_collect(r->e->state, o->microbatch);
        return RP_OK;
    case RP_OP_SEND:
    case RP_OP_RECV:
    case RP_OP_ALL_GATHER:
    case RP_OP_REDUCE_SCATTER:
    case RP_OP_ALL_REDUCE:
    case RP_OP_KIND_COUNT:
        break;
    }
    return RP_BROKEN; /* the plan has refused them */
}
