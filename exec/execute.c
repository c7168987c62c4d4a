#include "exec/execute.h"

#include "common/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* A run while it is on. */
typedef struct run {
    rpexec_execution *e;
    const rpexec_plan *plan;
    const rp_program *program;
    rpexec_driver *driver;
    uint64_t *first_sequence; /* [microbatch + 1] where a microbatch begins in its batch */
    double *loss_of;          /* [iteration][microbatch] */
    rpexec_stage_save *saves; /* [save] of the plan */
    atomic_ullong uploaded;
    atomic_ullong downloaded;
    /* Who has submitted what: an op is submitted once all that it waits for has been. */
    pthread_mutex_t lock;
    pthread_cond_t submitted_one;
    bool *submitted; /* [op] */
    bool stopped;
    uint32_t *tables; /* [iteration] jobs with a tied table whose gradients are complete */
} run;

#define TABLE_DONE UINT32_MAX

/* ---- where things are -------------------------------------------------------------------------
 */

static void *at(const run *r, uint32_t value)
{
    if (value == RPEXEC_NO_TENSOR) {
        return NULL;
    }
    const rpexec_value *v = &r->plan->values[value];
    return r->e->driver_type->memory(r->driver, v->place) + v->offset;
}

static const rpexec_batch *batch_of(const run *r, const rp_op *op)
{
    return &r->e->batches[op->iteration];
}

static uint64_t first_token(const run *r, const rp_op *op)
{
    return r->first_sequence[op->microbatch] * r->plan->model->seq_len;
}

static uint64_t tokens_of(const run *r, const rp_op *op)
{
    return (uint64_t)r->program->sequences[op->microbatch] * r->plan->model->seq_len;
}

/* ---- transfers --------------------------------------------------------------------------------
 */

static void copy(run *r, uint32_t op, void *to, const void *from, uint64_t bytes)
{
    bool down = r->program->queues[r->plan->order.queue_of[op]].kind == RP_QUEUE_DOWNLOAD;
    atomic_fetch_add(down ? &r->downloaded : &r->uploaded, bytes);
    r->e->driver_type->copy(r->driver, op, to, from, bytes);
}

static void upload_activation(run *r, uint32_t op)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rp_op *o = &r->program->ops[op];
    const rpexec_batch *batch = batch_of(r, o);
    uint64_t bytes = tokens_of(r, o) * sizeof(int32_t);
    uint64_t first = first_token(r, o);
    if (task->output != RPEXEC_NO_TENSOR) {
        uint64_t boundary = tokens_of(r, o) * r->plan->model->config->hidden * sizeof(float);
        copy(r, op, at(r, task->output), at(r, task->input), boundary);
    }
    if (task->ids != RPEXEC_NO_TENSOR) {
        copy(r, op, at(r, task->ids), batch->ids + first, bytes);
    }
    if (task->labels != RPEXEC_NO_TENSOR) {
        copy(r, op, at(r, task->labels), batch->labels + first, bytes);
    }
}

static void move_boundary(run *r, uint32_t op)
{
    const rpexec_task *task = &r->plan->tasks[op];
    copy(r, op, at(r, task->output), at(r, task->input), r->program->op_bytes[op]);
}

/* Working weights and slots of a stage's layers lie one after the other on the host as well. */
static void move_parameters(run *r, uint32_t op)
{
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    rpexec_state *state = r->e->state;
    uint64_t first = state->offsets[job->begin];
    uint64_t whole = (state->offsets[job->end] - first) * sizeof(float);
    switch (r->program->ops[op].kind) {
    case RP_OP_UPLOAD_PARAMS:
        copy(r, op, (unsigned char *)at(r, job->weights) + task->from_byte,
             (const unsigned char *)(state->working + first) + task->from_byte,
             task->to_byte - task->from_byte);
        break;
    case RP_OP_UPLOAD_PARAM_GRAD:
        copy(r, op, at(r, job->gradients), state->slots + first, whole);
        break;
    default:
        copy(r, op, state->slots + first, at(r, job->gradients), whole);
        break;
    }
}

/* ---- compute ----------------------------------------------------------------------------------
 */

static void compute(run *r, uint32_t op, rpexec_lane *lane)
{
    const rp_op *o = &r->program->ops[op];
    const rpexec_task *task = &r->plan->tasks[op];
    const rpexec_job *job = &r->plan->jobs[task->job];
    const rpexec_batch *batch = batch_of(r, o);
    const rpexec_compute c = {
        .model = r->plan->model, .operators = r->e->driver_type->operators, .lane = lane};
    double *loss = &r->loss_of[(size_t)o->iteration * r->program->microbatch_count + o->microbatch];
    const int32_t *labels = at(r, task->labels);
    rpexec_stage_data data = {.begin = job->begin,
                              .end = job->end,
                              .sequences = r->program->sequences[o->microbatch],
                              .weights = at(r, job->weights),
                              .gradients = at(r, job->gradients),
                              .input = at(r, task->input),
                              .ids = at(r, task->ids),
                              .labels = labels != NULL ? labels : batch->labels + first_token(r, o),
                              .loss_scale = (float)(1.0 / (double)batch->valid_tokens),
                              .loss = loss,
                              .output = at(r, task->body),
                              .tape = at(r, task->tape),
                              .weight_tape = at(r, task->weight_tape),
                              .scratch = at(r, task->scratch),
                              .head_gradient = at(r, task->head_gradient),
                              .d_output = at(r, task->d_output),
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
    data.d_input = at(r, task->output);
    rpexec_stage_backward(&c, &data,
                          o->kind == RP_OP_BACKWARD         ? RPEXEC_BACKWARD_BOTH
                          : o->kind == RP_OP_BACKWARD_INPUT ? RPEXEC_BACKWARD_INPUT
                                                            : RPEXEC_BACKWARD_WEIGHT);
}

/* ---- the host ---------------------------------------------------------------------------------
 */

static uint64_t job_floats(const run *r, const rpexec_job *job)
{
    return r->e->state->offsets[job->end] - r->e->state->offsets[job->begin];
}

/* Where the other copy of a tied table is: in the head's array for a job that has the embedding,
 * in the embedding's for one with the head; NULL where the model has one table only. */
static float *table_of(const run *r, const rpexec_job *job, uint32_t tensor, bool head)
{
    const rpexec_state *state = r->e->state;
    uint32_t layer = head ? r->plan->model->layer_count - 1 : 0;
    uint64_t first = state->offsets[layer] - state->offsets[job->begin];
    uint64_t inside = head ? r->plan->model->head.tensors[RPEXEC_HEAD_TABLE].offset : 0;
    return (float *)at(r, tensor) + first + inside;
}

static bool has_layer(const rpexec_job *job, uint32_t layer)
{
    return job->begin <= layer && layer < job->end;
}

/* The two gradients of a tied table become their sum, as Megatron-LM's all-reduce between the first
 * and the last stage has it: whoever comes second adds, head's first, for both. */
static bool reduce_table(run *r, uint32_t gpu, uint16_t iteration)
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
static rp_status update(run *r, uint32_t op, rpexec_lane *lane)
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
        float *moments = at(r, job->moments);
        const rpexec_adam_slice slice = {.parameters = at(r, job->weights),
                                         .gradients = at(r, job->gradients),
                                         .m = moments,
                                         .v = moments + floats,
                                         .count = floats};
        if (r->e->keep_gradients) {
            memcpy(r->e->state->gradients + r->e->state->offsets[job->begin], at(r, job->gradients),
                   floats * sizeof(float));
        }
        operators->adam(lane, &r->e->adam, r->e->state->step + iteration + 1, &slice);
        operators->zero(lane, floats, at(r, job->gradients));
    }
    return RP_OK;
}

static void load_resident(run *r)
{
    const rpexec_state *state = r->e->state;
    for (uint32_t i = 0; r->plan->resident && i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        uint64_t floats = job_floats(r, job);
        float *moments = at(r, job->moments);
        rpexec_state_moments(state, job->begin, job->end, moments, moments + floats);
        memcpy(at(r, job->weights), state->working + state->offsets[job->begin],
               floats * sizeof(float));
        memset(at(r, job->gradients), 0, floats * sizeof(float));
    }
}

/* What the GPUs have trained is the state again. */
static void store_resident(run *r)
{
    rpexec_state *state = r->e->state;
    for (uint32_t i = 0; r->plan->resident && i < r->plan->job_count; i++) {
        const rpexec_job *job = &r->plan->jobs[i];
        uint64_t first = state->offsets[job->begin];
        uint64_t floats = job_floats(r, job);
        const float *moments = at(r, job->moments);
        memcpy(state->master + first, at(r, job->weights), floats * sizeof(float));
        memcpy(state->working + first, at(r, job->weights), floats * sizeof(float));
        memcpy(state->m + first, moments, floats * sizeof(float));
        memcpy(state->v + first, moments + floats, floats * sizeof(float));
    }
    state->step += r->plan->resident ? r->program->iteration_count : 0;
}

static rp_status perform(void *context, uint32_t op, rpexec_lane *lane)
{
    run *r = context;
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

/* ---- workers ----------------------------------------------------------------------------------
 */

/* Whoever submits: one per GPU, and one for the host's queues. */
typedef struct worker {
    run *run;
    uint32_t gpu; /* gpu_count: the host */
    pthread_t thread;
} worker;

static bool is_mine(const worker *w, uint32_t op)
{
    const rp_queue *queue = &w->run->program->queues[w->run->plan->order.queue_of[op]];
    bool on_gpu = rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
    return on_gpu ? queue->gpu == w->gpu : w->gpu == w->run->program->gpu_count;
}

/* An event may be waited for once the op that it belongs to has been submitted. */
static bool wait_for_submissions(run *r, uint32_t op)
{
    const rp_program *p = r->program;
    pthread_mutex_lock(&r->lock);
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        while (!r->submitted[rp_wait_op(p->waits[w])] && !r->stopped) {
            pthread_cond_wait(&r->submitted_one, &r->lock);
        }
    }
    bool go = !r->stopped;
    pthread_mutex_unlock(&r->lock);
    return go;
}

static void stop(run *r)
{
    pthread_mutex_lock(&r->lock);
    r->stopped = true;
    pthread_cond_broadcast(&r->submitted_one);
    pthread_mutex_unlock(&r->lock);
}

static void *work(void *context)
{
    worker *w = context;
    run *r = w->run;
    for (uint32_t i = 0; i < r->program->op_count; i++) {
        uint32_t op = r->plan->order.ops[i];
        if (!is_mine(w, op)) {
            continue;
        }
        if (!wait_for_submissions(r, op)) {
            break;
        }
        rp_status status = r->e->driver_type->submit(r->driver, op);
        if (status != RP_OK) {
            stop(r);
            break;
        }
        pthread_mutex_lock(&r->lock);
        r->submitted[op] = true;
        pthread_cond_broadcast(&r->submitted_one);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

static rp_status run_workers(run *r, rp_arena *arena)
{
    uint32_t count = r->program->gpu_count + 1;
    worker *workers = NULL;
    uint32_t started = 0;
    rp_status status = rp_arena_alloc(arena, count, sizeof *workers, &workers);
    for (; status == RP_OK && started < count; started++) {
        workers[started] = (worker){.run = r, .gpu = started};
        int error = pthread_create(&workers[started].thread, NULL, work, &workers[started]);
        if (error != 0) {
            rp_log_error("pthread_create: %s", strerror(error));
            status = RP_TOOL;
            r->e->driver_type->fail(r->driver, status);
            stop(r);
            break;
        }
    }
    if (status == RP_OK) {
        status = r->e->driver_type->finish(r->driver, r->e->timeline);
    }
    if (status != RP_OK) {
        stop(r);
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

/* Microbatches are added in their order, whoever computed them when. */
static void sum_losses(const run *r)
{
    for (uint32_t i = 0; i < r->program->iteration_count; i++) {
        double sum = 0;
        for (uint32_t m = 0; m < r->program->microbatch_count; m++) {
            sum += r->loss_of[(size_t)i * r->program->microbatch_count + m];
        }
        r->e->losses[i] = sum / (double)r->e->batches[i].valid_tokens;
    }
}

static rp_status execute(run *r, rp_arena *arena)
{
    const rp_program *p = r->program;
    size_t losses = (size_t)p->iteration_count * p->microbatch_count;
    RP_TRY(rp_arena_alloc(arena, p->microbatch_count + 1, sizeof(uint64_t), &r->first_sequence));
    RP_TRY(rp_arena_alloc(arena, losses, sizeof(double), &r->loss_of));
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(bool), &r->submitted));
    RP_TRY(rp_arena_alloc(arena, p->iteration_count, sizeof(uint32_t), &r->tables));
    RP_TRY(rp_arena_alloc(arena, r->plan->save_count, sizeof *r->saves, &r->saves));
    for (uint32_t m = 0; m < p->microbatch_count; m++) {
        r->first_sequence[m + 1] = r->first_sequence[m] + p->sequences[m];
    }
    RP_TRY(r->e->driver_type->open(&r->e->driver, perform, r, &r->driver));
    for (uint32_t i = 0; i < r->plan->save_count; i++) {
        const rpexec_save *save = &r->plan->saves[i];
        r->saves[i] = (rpexec_stage_save){.layer = save->layer, .to = at(r, save->value)};
    }
    load_resident(r);
    rp_status status = run_workers(r, arena);
    if (status == RP_OK) {
        store_resident(r);
    }
    r->e->driver_type->close(r->driver);
    if (status == RP_OK) {
        sum_losses(r);
        r->e->uploaded_bytes = atomic_load(&r->uploaded);
        r->e->downloaded_bytes = atomic_load(&r->downloaded);
    }
    return status;
}

rp_status rpexec_execute(rpexec_execution *e)
{
    run r = {.e = e, .plan = e->plan, .program = e->plan->program};
    rp_arena *arena = NULL;
    e->driver.plan = e->plan;
    RP_TRY(rp_arena_create(&arena));
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.submitted_one, NULL);
    rp_status status = execute(&r, arena);
    pthread_cond_destroy(&r.submitted_one);
    pthread_mutex_destroy(&r.lock);
    rp_arena_destroy(arena);
    return status;
}
