/* A run: threads that submit its ops. The work of each op: ops.c. */
#include "exec/run/execute.h"

#include "common/base/log.h"
#include "exec/run/execute_internal.h"

#include <math.h>
#include <string.h>

/* ---- workers --------------------------------------------------------------------------------- */

/* A thread that submits ops: each GPU has its own, and the host's queues share another. */
typedef struct worker {
    rpexec_run *run;
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
static bool wait_for_submissions(rpexec_run *r, uint32_t op)
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

static void stop(rpexec_run *r)
{
    pthread_mutex_lock(&r->lock);
    r->stopped = true;
    pthread_cond_broadcast(&r->submitted_one);
    pthread_mutex_unlock(&r->lock);
}

static void *work(void *context)
{
    worker *w = context;
    rpexec_run *r = w->run;
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

/* Losses of microbatches are added in ascending order, not in the order of computing. */
static double own_loss(const rpexec_run *r, uint32_t iteration)
{
    const double *of = r->loss_of + (size_t)iteration * r->program->microbatch_count;
    double sum = 0;
    for (uint32_t m = 0; m < r->program->microbatch_count; m++) {
        sum += of[m];
    }
    double loss = sum / (double)r->e->batches[iteration].valid_tokens;
    return isnan(loss) ? NAN : loss; /* a NaN is printed without a sign */
}

/* Loss over all processes, which ask for the same iterations in ascending order.
 * @return NaN if a process is gone */
static double loss_of(rpexec_run *r, uint32_t iteration)
{
    double all[RPEXEC_MAX_PROCESSES];
    if (r->e->processes == NULL) {
        return own_loss(r, iteration);
    }
    for (; r->losses_known <= iteration; r->losses_known++) {
        double *loss = &r->losses[r->losses_known];
        *loss = NAN;
        if (rpexec_processes_gather(r->e->processes, rpexec_run_tag(RPEXEC_TAG_LOSS, 0),
                                    own_loss(r, r->losses_known), all) == RP_OK) {
            *loss = 0;
            for (uint32_t i = 0; i < rpexec_processes_count(r->e->processes); i++) {
                *loss += all[i];
            }
        }
    }
    return r->losses[iteration];
}

/* True for the ops after which an iteration has ended: in the host's queues those after which all
 * gradients have been summed, unless the GPUs do that, and every op of the compute queues. */
static bool ends_iteration(const rpexec_run *r, const rp_queue *queue, const rp_op *op)
{
    bool host = queue->kind != RP_QUEUE_COMPUTE;
    bool late = r->plan->sharded != NULL || r->e->processes != NULL;
    bool steps = rp_op_kinds[op->kind].phase == RP_PHASE_STEP;
    bool sums = late ? steps : rp_op_kind_collects(op->kind);
    return !host || (sums && !r->plan->resident && !rpexec_run_shards_are_trained(r));
}

/* Queues go on in order: an iteration has ended with its last op in each of them. */
static rp_status wait_for_iteration(rpexec_run *r, uint32_t iteration)
{
    const rp_program *p = r->program;
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < p->queue_count && status == RP_OK; i++) {
        const rp_queue *queue = &p->queues[i];
        uint32_t op = queue->op_end;
        if (queue->kind != RP_QUEUE_COMPUTE && rp_queue_kind_on_gpu((rp_queue_kind)queue->kind)) {
            continue;
        }
        while (op > queue->op_begin && (p->ops[op - 1].iteration != iteration ||
                                        !ends_iteration(r, queue, &p->ops[op - 1]))) {
            op--;
        }
        if (op > p->queues[i].op_begin) {
            status = r->e->driver_type->wait(r->driver, op - 1);
        }
    }
    return status;
}

/* The norm, which GPUs that step have noted, each its part, and the host when all is collected. */
static double norm_of(rpexec_run *r, uint32_t iteration)
{
    pthread_mutex_lock(&r->lock);
    double norm = r->norms[iteration];
    pthread_mutex_unlock(&r->lock);
    return norm;
}

static bool has_run(rpexec_run *r, uint32_t iteration)
{
    pthread_mutex_lock(&r->lock);
    bool run = iteration < r->run_most;
    pthread_mutex_unlock(&r->lock);
    return run;
}

static bool is_lost(const rpexec_run *r)
{
    return r->e->processes != NULL && rpexec_processes_failed(r->e->processes);
}

/* Tells the follower of each iteration as it ends. `finish` reports a failure. */
static void follow(rpexec_run *r)
{
    const rpexec_follower *f = &r->e->follower;
    for (uint32_t i = 0; f->ended != NULL && i < r->program->iteration_count; i++) {
        if (wait_for_iteration(r, i) != RP_OK || !has_run(r, i)) {
            return;
        }
        double loss = loss_of(r, i);
        if (is_lost(r)) {
            return;
        }
        f->ended(f->context, i, loss, norm_of(r, i));
    }
}

/* ---- other processes ------------------------------------------------------------------------- */

enum { VERDICT }; /* kinds of messages */

static void take_verdict(void *context, uint32_t from, const rpexec_message *message)
{
    rpexec_run *r = context;
    (void)from;
    pthread_mutex_lock(&r->lock);
    if (message->kind == VERDICT && message->number < r->program->iteration_count) {
        r->verdicts[message->number] = message->values[0] != 0 ? 1 : -1;
    }
    pthread_cond_broadcast(&r->submitted_one);
    pthread_mutex_unlock(&r->lock);
}

static void lose(void *context)
{
    rpexec_run *r = context;
    r->e->driver_type->fail(r->driver, RP_LOST);
    stop(r);
}

/* Sums over processes end only when all processes have come. */
static bool waits_for_others(void *context)
{
    const rpexec_run *r = context;
    return rpexec_processes_waits(r->e->processes);
}

/* The decision of process 0 about an iteration that has not begun. The run's lock is held. */
static bool decided(rpexec_run *r, uint32_t iteration)
{
    const rpexec_follower *f = &r->e->follower;
    if (f->begins == NULL) {
        return true;
    }
    if (r->e->processes == NULL || rpexec_processes_rank(r->e->processes) == 0) {
        bool begins = f->begins(f->context, iteration) && !r->exhausted;
        const rpexec_message verdict = {
            .kind = VERDICT, .number = iteration, .values = {begins ? 1 : 0}};
        if (r->e->processes != NULL) {
            (void)rpexec_processes_tell(r->e->processes, &verdict); /* failures are noticed */
        }
        return begins;
    }
    rpexec_processes_begin_wait(r->e->processes, 0);
    while (r->verdicts[iteration] == 0 && !r->stopped) {
        pthread_cond_wait(&r->submitted_one, &r->lock);
    }
    rpexec_processes_end_wait(r->e->processes);
    return r->verdicts[iteration] > 0;
}

bool rpexec_run_begins(rpexec_run *r, uint32_t iteration)
{
    pthread_mutex_lock(&r->lock);
    while (r->begun <= iteration && r->begun < r->run_most) {
        uint32_t next = r->begun;
        bool begins = decided(r, next); /* others may have come here meanwhile */
        if (r->begun == next && begins) {
            r->begun++;
        } else if (!begins) {
            r->run_most = next < r->run_most ? next : r->run_most;
        }
    }
    bool begins = iteration < r->run_most;
    pthread_mutex_unlock(&r->lock);
    return begins;
}

static rp_status run_workers(rpexec_run *r, rp_arena *arena)
{
    uint32_t count = r->program->gpu_count + 1;
    worker *workers = NULL;
    uint32_t started = 0;
    rp_status status = rp_arena_alloc(arena, count, sizeof *workers, &workers);
    for (; status == RP_OK && started < count; started++) {
        workers[started] = (worker){.run = r, .gpu = started};
        int error = pthread_create(&workers[started].thread, NULL, work, &workers[started]);
        if (error != 0) {
            rp_log_error("out of memory or processes: pthread_create: %s", strerror(error));
            status = RP_NO_MEMORY;
            r->e->driver_type->fail(r->driver, status);
            stop(r);
            break;
        }
    }
    if (status == RP_OK) {
        follow(r);
        status = r->e->driver_type->finish(r->driver, r->e->timeline);
    }
    if (status != RP_OK) {
        stop(r);
    }
    if (status != RP_OK && r->e->processes != NULL) {
        rpexec_processes_abort(r->e->processes); /* threads wait for messages that never come */
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static uint64_t batch_bytes(const rpexec_run *r)
{
    return r->first_sequence[r->program->microbatch_count] * r->plan->model->seq_len *
           sizeof(int32_t);
}

static uint64_t loss_count(const rpexec_run *r)
{
    return (uint64_t)r->program->iteration_count * r->program->microbatch_count;
}

/* Makes room for batches and losses in memory that operators on the GPUs reach. */
static rp_status share(rpexec_run *r)
{
    const rpexec_driver_type *type = r->e->driver_type;
    uint32_t iterations = r->program->iteration_count;
    RP_TRY(rp_arena_alloc(r->arena, iterations, sizeof *r->ids, &r->ids));
    RP_TRY(rp_arena_alloc(r->arena, iterations, sizeof *r->labels, &r->labels));
    RP_TRY(type->shared(r->driver, loss_count(r) * sizeof(double), &r->loss_of));
    for (uint32_t i = 0; i < iterations; i++) {
        RP_TRY(type->shared(r->driver, 2 * batch_bytes(r), &r->ids[i]));
        r->labels[i] = r->ids[i] + batch_bytes(r) / sizeof(int32_t);
    }
    return RP_OK;
}

static rp_status load(rpexec_run *r)
{
    for (uint32_t i = 0; i < r->plan->save_count; i++) {
        const rpexec_save *save = &r->plan->saves[i];
        r->saves[i] =
            (rpexec_stage_save){.layer = save->layer, .to = rpexec_run_at(r, save->value)};
    }
    RP_TRY(share(r));
    RP_TRY(r->plan->slices != NULL ? rpexec_run_open_slices(r) : RP_OK);
    rpexec_run_load(r);
    return r->transferred;
}

static rp_status open_run(rpexec_run *r)
{
    const rp_program *p = r->program;
    rpexec_execution *e = r->e;
    const rpexec_model *model = r->plan->model;
    uint64_t width = rp_dtype_bytes(model->dtype);
    e->driver.plan = r->plan;
    e->driver.pinned[0] =
        (rpexec_pinned){e->state->working, e->state->offsets[model->layer_count] * width};
    e->driver.pinned[1] =
        (rpexec_pinned){e->state->slots, e->state->trained[model->layer_count] * width};
    RP_TRY(rp_arena_alloc(r->arena, p->microbatch_count + 1, sizeof(uint64_t), &r->first_sequence));
    RP_TRY(rp_arena_alloc(r->arena, p->op_count, sizeof(bool), &r->submitted));
    RP_TRY(rpexec_run_open_scales(r));
    RP_TRY(rp_arena_alloc(r->arena, p->iteration_count, sizeof *r->losses, &r->losses));
    RP_TRY(rp_arena_alloc(r->arena, p->iteration_count, sizeof *r->verdicts, &r->verdicts));
    RP_TRY(rp_arena_alloc(r->arena, r->plan->save_count, sizeof *r->saves, &r->saves));
    for (uint32_t m = 0; m < p->microbatch_count; m++) {
        r->first_sequence[m + 1] = r->first_sequence[m] + p->sequences[m];
    }
    if (r->plan->sharded != NULL || r->plan->slices != NULL) {
        size_t arrays = (size_t)p->gpu_count * rpexec_plan_most_arrays(r->plan);
        RP_TRY(rp_arena_alloc(r->arena, arrays, sizeof *r->arrays, &r->arrays));
    }
    e->driver.excused = e->processes != NULL ? waits_for_others : NULL;
    RP_TRY(e->driver_type->open(&e->driver, rpexec_run_perform, r, &r->driver));
    r->operators = rpexec_driver_operators(e->driver_type, r->driver, model->dtype);
    return load(r);
}

rp_status rpexec_execution_open(rpexec_execution *e, rpexec_run **run_out)
{
    rpexec_run *r = NULL;
    rp_arena *arena = NULL;
    *run_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *r, &r);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    *r = (rpexec_run){.e = e, .plan = e->plan, .program = e->plan->program, .arena = arena};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->submitted_one, NULL);
    status = open_run(r);
    if (status != RP_OK) {
        rpexec_execution_close(r);
        return status;
    }
    *run_out = r;
    return RP_OK;
}

void rpexec_execution_close(rpexec_run *r)
{
    if (r == NULL) {
        return;
    }
    if (r->driver != NULL) {
        r->e->driver_type->close(r->driver);
    }
    pthread_cond_destroy(&r->submitted_one);
    pthread_mutex_destroy(&r->lock);
    rp_arena_destroy(r->arena);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Resets the run as if the program had not run. */
static rp_status rewind_run(rpexec_run *r)
{
    memset(r->submitted, 0, r->program->op_count * sizeof *r->submitted);
    memset(r->loss_of, 0, loss_count(r) * sizeof *r->loss_of);
    r->begun = 0;
    r->losses_known = 0;
    r->exhausted = false;
    memset(r->verdicts, 0, r->program->iteration_count * sizeof *r->verdicts);
    r->run_most = r->e->evaluates != 0 ? r->e->evaluates : r->program->iteration_count;
    atomic_store(&r->uploaded, 0);
    atomic_store(&r->downloaded, 0);
    atomic_store(&r->exchanged, 0);
    rpexec_run_begin_scales(r);
    for (uint32_t i = 0; i < r->run_most; i++) {
        memcpy(r->ids[i], r->e->batches[i].ids, batch_bytes(r));
        memcpy(r->labels[i], r->e->batches[i].labels, batch_bytes(r));
    }
    if (r->plan->slices != NULL) {
        rpexec_run_fill_slices(r);
    }
    bool again = r->has_run;
    r->has_run = true;
    return again ? r->e->driver_type->rewind(r->driver) : RP_OK;
}

/* True if a synchronous step can be fused. No download of the next iteration into a slot, and no
 * upload from it, begins before the OPTIMIZER has ended, since the next iteration's first op waits
 * for a REFRESH. Uploads of this iteration have ended before the last COLLECT, whose gradients
 * depend on them. Calls that overlap have slots of their own, so they are excluded.
 */
static bool can_fuse(const rpexec_execution *e)
{
    const rpexec_plan *p = e->plan;
    return e->fuses && !rpexec_run_wants_gradients(e) && e->processes == NULL &&
           !p->program->asynchronous && !p->resident && p->sharded == NULL && p->slices == NULL &&
           p->slot_count == 0;
}

rp_status rpexec_execution_run(rpexec_run *r)
{
    rpexec_execution *e = r->e;
    rp_arena *arena = NULL;
    RP_TRY(rewind_run(r));
    RP_TRY(rp_arena_create(&arena));
    rpexec_state_fuse(e->state, can_fuse(e));
    const rpexec_processes_handler handler = {.context = r, .arrived = take_verdict, .lost = lose};
    if (e->processes != NULL) {
        rpexec_processes_handle(e->processes, &handler);
    }
    rp_status status = run_workers(r, arena);
    if (e->processes != NULL) {
        rpexec_processes_handle(e->processes, NULL);
    }
    rpexec_state_fuse(e->state, false);
    rp_arena_destroy(arena);
    RP_TRY(status);
    e->iterations = r->run_most;
    e->uploaded_bytes = atomic_load(&r->uploaded);
    e->downloaded_bytes = atomic_load(&r->downloaded);
    e->exchanged_bytes = atomic_load(&r->exchanged);
    for (uint32_t i = 0; i < r->run_most; i++) {
        e->losses[i] = loss_of(r, i);
        if (e->norms != NULL) {
            e->norms[i] = r->norms[i];
        }
    }
    if (is_lost(r)) {
        return RP_LOST;
    }
    bool agreed = rpexec_scaler_needed(r->plan->model->dtype); /* then steps are counted already */
    bool on_gpus = r->plan->resident || rpexec_run_shards_are_trained(r);
    e->state->step += on_gpus && !agreed && e->evaluates == 0 ? e->iterations : 0;
    return r->transferred;
}

rp_status rpexec_execution_keep(rpexec_run *r)
{
    rpexec_run_store(r);
    return r->transferred;
}

rp_status rpexec_execute(rpexec_execution *e)
{
    rpexec_run *r = NULL;
    RP_TRY(rpexec_execution_open(e, &r));
    rp_status status = rpexec_execution_run(r);
    status = status == RP_OK ? rpexec_execution_keep(r) : status;
    rpexec_execution_close(r);
    return status;
}
