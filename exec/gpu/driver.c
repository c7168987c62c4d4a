/* The GPU driver's queues: threads that enqueue ops, and the times when these have happened. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "exec/gpu/driver.h"

#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"
#include "exec/operators/calls.h"

#include <string.h>
#include <time.h>

/* Seconds in which threads have to come back after the watchdog has given up. */
#define GRACE_S 5

static const rp_program *program_of(const rpexec_driver *d)
{
    return d->config.plan->program;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void wake_all(rpexec_driver *d)
{
    for (uint32_t i = 0; i < d->started; i++) {
        pthread_cond_signal(&d->queues[i].wake);
    }
    pthread_cond_broadcast(&d->moved);
}

void rpexec_gpu_fail_locked(rpexec_driver *d, rp_status status)
{
    d->status = d->status == RP_OK ? status : d->status;
    rpexec_gpu_abort_meetings(d);
    wake_all(d);
}

void rpexec_gpu_fail(rpexec_driver *d, rp_status status)
{
    pthread_mutex_lock(&d->lock);
    rpexec_gpu_fail_locked(d, status);
    pthread_mutex_unlock(&d->lock);
}

bool rpexec_gpu_tried(rpexec_driver *d, int error, const char *call)
{
    if (error == 0) {
        return true;
    }
    pthread_mutex_lock(&d->lock);
    if (d->status == RP_OK) { /* later failures mostly follow from the first */
        d->failed_call = call;
        d->failed_error = error;
        d->failed_thread = pthread_self();
    }
    rpexec_gpu_fail_locked(d, RP_TOOL);
    pthread_mutex_unlock(&d->lock);
    return false;
}

/* ---- turns ----------------------------------------------------------------------------------- */

void rpexec_gpu_hold(rpexec_gpu_queue *q)
{
    if (q->gpu->part.context != NULL) {
        rpexec_gpu_turn_take(&q->gpu->turn);
        (void)rpexec_gpu_tried(q->driver, q->driver->calls->enter(&q->gpu->part),
                               "cuCtxSetCurrent");
    }
}

void rpexec_gpu_release(rpexec_gpu_queue *q)
{
    if (q->gpu->part.context != NULL) {
        (void)rpexec_gpu_tried(q->driver, q->driver->calls->leave(&q->gpu->part),
                               "cuCtxSetCurrent");
        rpexec_gpu_turn_give(&q->gpu->turn);
    }
}

static void gpu_aside(rpexec_driver *d, uint32_t op, bool waits)
{
    rpexec_gpu_queue *q = &d->queues[d->config.plan->order.queue_of[op]];
    if (waits) {
        rpexec_gpu_graphs_flush(q->graphs);
        rpexec_gpu_release(q);
    } else {
        rpexec_gpu_hold(q);
    }
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* An op that is waited for and has not been enqueued (an op of the host: not ended); op_count:
 * none. */
static uint32_t missing(const rpexec_driver *d, uint32_t op)
{
    return rpexec_driver_missing(program_of(d), d->issued, op);
}

static bool can_issue(const rpexec_gpu_queue *q)
{
    return q->next < q->submitted && missing(q->driver, q->next) == program_of(q->driver)->op_count;
}

/* Wakes the queues whose next op waits for `op`. */
static void tell(rpexec_driver *d, uint32_t op)
{
    for (uint32_t i = 0; i < program_of(d)->queue_count; i++) {
        rpexec_gpu_queue *q = &d->queues[i];
        if (q->next < q->submitted && rpexec_driver_waits_for(program_of(d), q->next, op)) {
            pthread_cond_signal(&q->wake);
        }
    }
}

/* Before a compute op is enqueued, waits until the op before the last of its queue has ended. Then
 * an op is under way while the next is enqueued, which keeps the GPU busy, and no more: a thread
 * that goes on until CUDA's queue of launches is full holds the turn of a part of a device while it
 * waits there, and enqueued work cannot be taken back when the run is to end. Copies need no limit:
 * they follow compute ops, whose memory they fill and empty. */
static void keep_close(rpexec_gpu_queue *q, uint32_t op)
{
    rpexec_driver *d = q->driver;
    const rp_queue *queue = &program_of(d)->queues[q->number];
    if (queue->kind == RP_QUEUE_COMPUTE && !d->config.unbounded &&
        op - queue->op_begin >= RPEXEC_GPU_AHEAD) {
        (void)rpexec_gpu_tried(d, d->calls->event_synchronize(d->end_events[op - RPEXEC_GPU_AHEAD]),
                               "cudaEventSynchronize");
    }
}

/* The only caller of `perform`: a GPU's op is enqueued, an op of the host is done. */
static rp_status perform_named(rpexec_driver *d, uint32_t op, rpexec_lane *lane)
{
    char name[RP_OP_NAME_SIZE];
    if (d->calls->range_begin == NULL) {
        return d->perform(d->context, op, lane);
    }
    rp_op_name(&program_of(d)->ops[op], name);
    d->calls->range_begin(name);
    rp_status status = d->perform(d->context, op, lane);
    d->calls->range_end();
    return status;
}

/* The stream waits for the ops that `op` waits for; ops of the host have ended already. */
static rp_status issue(rpexec_gpu_queue *q, uint32_t op)
{
    rpexec_driver *d = q->driver;
    const rp_program *p = program_of(d);
    const rpexec_cuda_calls *c = d->calls;
    rp_status status = RP_OK;
    keep_close(q, op);
    rpexec_gpu_hold(q);
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        void *event = d->end_events[rp_wait_op(p->waits[w])];
        if (event != NULL) {
            (void)rpexec_gpu_tried(d, c->stream_wait(q->stream, event), "cudaStreamWaitEvent");
        }
    }
    (void)rpexec_gpu_tried(d, c->event_record(d->start_events[op], q->stream), "cudaEventRecord");
    status = perform_named(d, op, q->graphs != NULL ? rpexec_gpu_graphs_lane(q->graphs) : q->lane);
    rpexec_gpu_graphs_flush(q->graphs);
    status = status == RP_OK ? c->lane_status(q->lane) : status;
    if (status == RP_OK) {
        (void)rpexec_gpu_tried(d, c->event_record(d->end_events[op], q->stream), "cudaEventRecord");
    }
    rpexec_gpu_release(q);
    return status;
}

/* Runs in the queue's own thread, after the GPUs' ops that `op` waits for. */
static rp_status run_on_host(rpexec_gpu_queue *q, uint32_t op)
{
    rpexec_driver *d = q->driver;
    const rp_program *p = program_of(d);
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        void *event = d->end_events[rp_wait_op(p->waits[w])];
        if (event != NULL &&
            !rpexec_gpu_tried(d, d->calls->event_synchronize(event), "cudaEventSynchronize")) {
            return RP_BROKEN; /* logged by the call */
        }
    }
    d->start_ns[op] = rpexec_driver_now_ns();
    rp_status status = perform_named(d, op, NULL);
    d->end_ns[op] = rpexec_driver_now_ns();
    return status;
}

static void run_one(rpexec_gpu_queue *q)
{
    rpexec_driver *d = q->driver;
    uint32_t op = q->next;
    pthread_mutex_unlock(&d->lock);
    rpexec_driver_delay(&d->config, op);
    rp_status status = q->gpu != NULL ? issue(q, op) : run_on_host(q, op);
    pthread_mutex_lock(&d->lock);
    q->next++;
    d->last_end_ns = rpexec_driver_now_ns();
    bool mine = d->failed_call != NULL && pthread_equal(d->failed_thread, pthread_self());
    if (status != RP_OK || mine) {
        d->failed = d->status == RP_OK || mine ? op : d->failed;
        rpexec_gpu_fail_locked(d, status);
        return; /* without a recorded event: nobody may wait for it */
    }
    d->issued[op] = true;
    tell(d, op);
}

/* Waits for the end of the queue, all of whose ops have been enqueued. */
static void drain(rpexec_gpu_queue *q)
{
    rpexec_driver *d = q->driver;
    if (q->gpu != NULL && q->next > program_of(d)->queues[q->number].op_begin) {
        void *last = d->end_events[q->next - 1];
        pthread_mutex_unlock(&d->lock);
        (void)rpexec_gpu_tried(d, d->calls->event_synchronize(last), "cudaEventSynchronize");
        pthread_mutex_lock(&d->lock);
    }
    q->drained = true;
    d->drained++;
    d->last_end_ns = rpexec_driver_now_ns();
    pthread_cond_broadcast(&d->moved);
}

static void *run_queue(void *context)
{
    rpexec_gpu_queue *q = context;
    rpexec_driver *d = q->driver;
    const rpexec_cuda_part whole = {.device = q->gpu != NULL ? q->gpu->part.device : 0};
    (void)rpexec_gpu_tried(d, d->calls->enter(&whole), "cudaSetDevice");
    pthread_mutex_lock(&d->lock);
    while (!d->closing && d->status == RP_OK && !q->drained) {
        if (q->next == program_of(d)->queues[q->number].op_end) {
            drain(q);
        } else if (can_issue(q)) {
            run_one(q);
        } else {
            pthread_cond_wait(&q->wake, &d->lock);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void give_events(rpexec_driver *d)
{
    const rp_program *p = program_of(d);
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        uint32_t next = 0;
        for (uint32_t i = 0; i < p->queue_count; i++) {
            const rpexec_gpu_queue *q = &d->queues[i];
            for (uint32_t op = p->queues[i].op_begin;
                 q->gpu != NULL && q->index == gpu && op < p->queues[i].op_end; op++) {
                d->start_events[op] = q->gpu->events[next++];
                d->end_events[op] = q->gpu->events[next++];
            }
        }
    }
}

/* True for a queue that may copy between GPUs over the host or by NCCL. */
static bool needs_stage(const rpexec_driver *d, const rpexec_gpu_queue *q)
{
    const rp_program *p = program_of(d);
    const bool *by_nccl = d->devices->by_nccl;
    bool reached = !by_nccl[RPEXEC_GPU_COPIES];
    bool moves = false;
    for (uint32_t i = 0; q->gpu != NULL && i < d->devices->count; i++) {
        reached &= d->devices->reached[q->index * d->devices->count + i];
    }
    for (uint32_t op = p->queues[q->number].op_begin; op < p->queues[q->number].op_end; op++) {
        rp_op_kind kind = (rp_op_kind)p->ops[op].kind;
        moves |=
            rp_op_kind_sends(kind) || rp_op_kind_is_update(kind) ||
            (rp_op_kind_class(kind) == RP_CLASS_COLLECTIVE && !by_nccl[RPEXEC_GPU_COLLECTIVES]);
    }
    return q->gpu != NULL && !reached && moves;
}

static rp_status make_queues(rpexec_driver *d)
{
    const rp_program *p = program_of(d);
    for (uint32_t i = 0; i < p->queue_count; i++) {
        const rp_queue *queue = &p->queues[i];
        rpexec_gpu_queue *q = &d->queues[i];
        *q = (rpexec_gpu_queue){.driver = d,
                                .number = i,
                                .next = queue->op_begin,
                                .submitted = queue->op_begin,
                                .ended = queue->op_begin};
        pthread_cond_init(&q->wake, NULL);
        if (rp_queue_kind_on_gpu((rp_queue_kind)queue->kind)) {
            q->index = queue->gpu;
            q->gpu = &d->devices->gpus[queue->gpu];
            q->stream = q->gpu->streams[queue->kind];
            q->lane = q->gpu->lanes[queue->kind];
            q->graphs = q->gpu->graphs[queue->kind];
        }
        if (needs_stage(d, q)) {
            RP_TRY(rpexec_gpu_open_stage(q));
        }
    }
    return RP_OK;
}

static rp_status start_queues(rpexec_driver *d)
{
    for (uint32_t i = 0; i < program_of(d)->queue_count; i++) {
        int error = pthread_create(&d->queues[i].thread, NULL, run_queue, &d->queues[i]);
        if (error != 0) {
            rp_log_error("pthread_create: %s", strerror(error));
            return RP_TOOL;
        }
        pthread_mutex_lock(&d->lock);
        d->started++;
        pthread_mutex_unlock(&d->lock);
    }
    return RP_OK;
}

/* Fills memory that no tensor has yet with NaN. */
static rp_status poison(rpexec_driver *d)
{
    const uint64_t *bytes = d->config.plan->arena_bytes;
    for (uint32_t i = 0; i < d->devices->count; i++) {
        const rpexec_gpu *gpu = &d->devices->gpus[i];
        const rpexec_cuda_part whole = {.device = gpu->part.device};
        int error = d->calls->enter(&whole);
        error = error == 0 ? d->calls->fill(gpu->arena, 0xff, bytes[i], gpu->aside) : error;
        error = error == 0 ? d->calls->stream_synchronize(gpu->aside) : error;
        RP_TRY(rpexec_gpu_check(d->devices, error, "cudaMemsetAsync"));
    }
    memset(d->devices->host, 0xff, bytes[d->devices->count]);
    return RP_OK;
}

/* @return true if all threads have come back. */
static bool join_queues(rpexec_driver *d)
{
    bool all = true;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GRACE_S;
    for (uint32_t i = 0; i < d->started; i++) {
        if (!d->hung) {
            pthread_join(d->queues[i].thread, NULL);
        } else if (pthread_timedjoin_np(d->queues[i].thread, NULL, &until) != 0) {
            pthread_detach(d->queues[i].thread);
            all = false;
        }
    }
    return all;
}

static void gpu_close(rpexec_driver *d)
{
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    bool failed = d->status != RP_OK;
    wake_all(d);
    pthread_mutex_unlock(&d->lock);
    /* Before the wait for threads: their GPUs may wait for a GPU that has failed. */
    bool lost = failed && !rpexec_gpu_abort_exchange(d->devices);
    d->hung |= lost;
    if (!join_queues(d) || lost) {
        d->devices->abandoned = true; /* a GPU hangs: a thread still looks at all of this */
        return;
    }
    for (uint32_t i = 0; d->queues != NULL && i < program_of(d)->queue_count; i++) {
        if (d->queues[i].gpu != NULL) { /* after a failure work may be under way */
            (void)d->calls->stream_synchronize(d->queues[i].stream);
        }
    }
    for (uint32_t i = 0; i < d->devices->count; i++) {
        (void)d->calls->stream_synchronize(d->devices->gpus[i].aside);
    }
    for (uint32_t i = 0; d->queues != NULL && i < program_of(d)->queue_count; i++) {
        if (d->queues[i].driver != NULL) {
            rpexec_gpu_close_stage(&d->queues[i]);
            pthread_cond_destroy(&d->queues[i].wake);
        }
    }
    rpexec_gpu_close_meetings(d);
    for (uint32_t i = 0; i < d->shared_count; i++) {
        (void)d->calls->host_give(d->shared[i]);
    }
    pthread_cond_destroy(&d->moved);
    pthread_mutex_destroy(&d->lock);
    rp_arena_destroy(d->arena);
}

static rp_status open_driver(rpexec_driver *d)
{
    const rp_program *p = program_of(d);
    const struct {
        size_t count, size;
        void *pointer;
    } arrays[] = {{p->queue_count, sizeof *d->queues, &d->queues},
                  {p->op_count, sizeof(bool), &d->issued},
                  {p->op_count, sizeof(void *), &d->start_events},
                  {p->op_count, sizeof(void *), &d->end_events},
                  {p->op_count, sizeof(int64_t), &d->start_ns},
                  {p->op_count, sizeof(int64_t), &d->end_ns}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        RP_TRY(rp_arena_alloc(d->arena, arrays[i].count, arrays[i].size, arrays[i].pointer));
    }
    RP_TRY(rpexec_gpu_prepare(d));
    RP_TRY(make_queues(d));
    RP_TRY(rpexec_gpu_open_meetings(d));
    give_events(d);
    if (d->config.poison) {
        RP_TRY(poison(d));
    }
    RP_TRY(rpexec_gpu_align(d->devices));
    d->begin_ns = d->last_end_ns = d->looked_ns = rpexec_driver_now_ns();
    return start_queues(d);
}

/* The queues' threads have ended with their last op. */
static rp_status gpu_rewind(rpexec_driver *d)
{
    const rp_program *p = program_of(d);
    (void)join_queues(d); /* nothing has failed: none hangs */
    memset(d->issued, 0, p->op_count * sizeof *d->issued);
    for (uint32_t i = 0; i < p->queue_count; i++) {
        rpexec_gpu_queue *q = &d->queues[i];
        q->next = q->submitted = q->ended = p->queues[i].op_begin;
        q->drained = false;
    }
    d->drained = d->started = 0;
    RP_TRY(rpexec_gpu_align(d->devices));
    d->begin_ns = d->last_end_ns = d->looked_ns = rpexec_driver_now_ns();
    return start_queues(d);
}

static rp_status gpu_open(const rpexec_driver_config *config, rpexec_perform perform, void *context,
                          rpexec_driver **driver_out)
{
    rp_arena *arena = NULL;
    rpexec_driver *d = NULL;
    *driver_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *d, &d);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    *d = (rpexec_driver){.config = *config,
                         .perform = perform,
                         .context = context,
                         .arena = arena,
                         .devices = config->devices,
                         .calls = config->devices->calls,
                         .failed = config->plan->program->op_count};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->moved, NULL);
    status = open_driver(d);
    if (status != RP_OK) {
        gpu_close(d);
        return status;
    }
    *driver_out = d;
    return RP_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static rp_status gpu_submit(rpexec_driver *d, uint32_t op)
{
    rpexec_gpu_queue *q = &d->queues[d->config.plan->order.queue_of[op]];
    pthread_mutex_lock(&d->lock);
    q->submitted = op + 1;
    if (q->next == op) {
        pthread_cond_signal(&q->wake);
    }
    rp_status status = d->status;
    pthread_mutex_unlock(&d->lock);
    return status;
}

static bool read_event(rpexec_driver *d, const rpexec_gpu *gpu, void *event, int64_t *ps_out)
{
    float ms = 0;
    bool known =
        rpexec_gpu_tried(d, d->calls->event_elapsed(&ms, gpu->base, event), "cudaEventElapsedTime");
    double ns = gpu->base_ns - (double)d->begin_ns + 1e6 * (double)ms;
    *ps_out = ns > 0 ? (int64_t)(1000 * ns) : 0;
    return known;
}

static rp_status read_times(rpexec_driver *d, rp_timeline *timeline)
{
    const rp_program *p = program_of(d);
    for (uint32_t op = 0; op < p->op_count; op++) {
        const rpexec_gpu *gpu = d->queues[d->config.plan->order.queue_of[op]].gpu;
        if (gpu == NULL) {
            timeline->start_ps[op] = 1000 * (d->start_ns[op] - d->begin_ns);
            timeline->end_ps[op] = 1000 * (d->end_ns[op] - d->begin_ns);
        } else if (!read_event(d, gpu, d->start_events[op], &timeline->start_ps[op]) ||
                   !read_event(d, gpu, d->end_events[op], &timeline->end_ps[op])) {
            return RP_TOOL;
        }
    }
    return RP_OK;
}

#define ASK_NS INT64_C(1000000) /* ns between queries of an event that a thread waits for */

/* Does not use cudaEventSynchronize: the watchdog must see work that never ends. */
static rp_status gpu_wait(rpexec_driver *d, uint32_t op)
{
    const rpexec_gpu_queue *q = &d->queues[d->config.plan->order.queue_of[op]];
    pthread_mutex_lock(&d->lock);
    while (d->status == RP_OK) {
        bool issued = d->issued[op];
        pthread_mutex_unlock(&d->lock);
        bool ended = issued && (q->gpu == NULL || d->calls->event_query(d->end_events[op]) == 0);
        pthread_mutex_lock(&d->lock);
        if (ended) {
            break;
        }
        rpexec_gpu_watch(d, ASK_NS);
    }
    rp_status status = d->status;
    pthread_mutex_unlock(&d->lock);
    return status;
}

static rp_status gpu_finish(rpexec_driver *d, rp_timeline *timeline)
{
    const rp_program *p = program_of(d);
    pthread_mutex_lock(&d->lock);
    while (d->drained < p->queue_count && d->status == RP_OK) {
        rpexec_gpu_watch(d, RPEXEC_GPU_LOOK_NS);
    }
    rp_status status = d->status;
    uint32_t failed = d->failed;
    const char *call = d->failed_call;
    int error = d->failed_error;
    pthread_mutex_unlock(&d->lock);
    if (call != NULL) {
        rp_log_error("%s: %s; an operator or a copy before it may be the cause%s", call,
                     d->calls->text(error), rpexec_gpu_remedy(d->devices, error));
    }
    if (failed != p->op_count) {
        rpexec_driver_log_failure(d->config.plan, failed, status);
    }
    return status == RP_OK && timeline != NULL ? read_times(d, timeline) : status;
}

static const rpexec_operators *const *gpu_operators_of(const rpexec_driver *d)
{
    static const rpexec_operators *const noting[RP_DTYPE_COUNT] = {
        [RP_DTYPE_F32] = &rpexec_noting_operators,
        [RP_DTYPE_F16] = &rpexec_noting_operators,
        [RP_DTYPE_BF16] = &rpexec_noting_operators,
    };
    return d->devices->config.graphs ? noting : d->calls->operators;
}

const rpexec_driver_type rpexec_gpu_driver = {
    .chunk = RPEXEC_GPU_CHUNK,
    .detach = rpexec_gpu_detach,
    .graphs = rpexec_gpu_count_graphs,
    .attention = rpexec_gpu_report_attention,
    .transport = rpexec_gpu_transport,
    .pinning = rpexec_gpu_pinning,
    .open = gpu_open,
    .operators_of = gpu_operators_of,
    .memory = rpexec_gpu_memory,
    .shared = rpexec_gpu_shared,
    .transfer = rpexec_gpu_transfer,
    .read = rpexec_gpu_read,
    .rotary = rpexec_gpu_rotary,
    .copy = rpexec_gpu_copy,
    .collective = rpexec_gpu_collective,
    .sum_pair = rpexec_gpu_sum_pair,
    .aside = gpu_aside,
    .submit = gpu_submit,
    .wait = gpu_wait,
    .finish = gpu_finish,
    .rewind = gpu_rewind,
    .fail = rpexec_gpu_fail,
    .close = gpu_close,
};
