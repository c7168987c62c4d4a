/* The host backend: every queue is a thread, every memory a separate arena, and copies are memcpy.
 *
 * A single lock guards the set of ended ops. A queue sleeps on its own condition until its next op
 * has been submitted and everything that the op waits for has ended. The work is done without the
 * lock.
 */
#include "exec/host/driver.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "exec/host/cores.h"
#include "exec/host/lane.h"
#include "exec/host/links.h"
#include "exec/host/meetings.h"
#include "exec/run/rank_collective.h"

#include <cblas.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

typedef struct queue {
    rpexec_driver *driver;
    uint32_t number;
    uint32_t next;      /* op that runs next */
    uint32_t submitted; /* ops before this number have been submitted */
    pthread_t thread;
    pthread_cond_t wake;
    rpexec_lane lane;
    bool carried; /* a link has carried the op */
} queue;

struct rpexec_driver {
    rpexec_driver_config config;
    rpexec_perform perform;
    void *context;
    rp_arena *arena;
    unsigned char **memories; /* [gpu + 1] */
    queue *queues;
    uint32_t started;    /* threads */
    rpexec_links *links; /* NULL: not limited */
    rpexec_host_meetings *meetings;
    pthread_mutex_t lock;
    pthread_cond_t all_ended;
    bool *ended; /* [op] */
    uint32_t ended_count;
    uint32_t awaited;  /* op that the caller waits for */
    int64_t *start_ns; /* [op] */
    int64_t *end_ns;
    int64_t *work_ns; /* [op] for rp_timeline.work_ps */
    int64_t begin_ns;
    int64_t last_end_ns;
    bool closing;
    rp_status status;
    uint32_t failed; /* op that failed first; op_count: none has failed */
};

static int64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static const rp_program *program_of(const rpexec_driver *d)
{
    return d->config.plan->program;
}

static uint32_t gpu_of(const rpexec_driver *d, uint32_t op)
{
    return program_of(d)->queues[d->config.plan->order.queue_of[op]].gpu;
}

/* An op that is waited for and has not ended; op_count: none. */
static uint32_t missing(const rpexec_driver *d, uint32_t op)
{
    return rpexec_driver_missing(program_of(d), d->ended, op);
}

static bool can_run(const queue *q)
{
    return q->next < q->submitted && missing(q->driver, q->next) == program_of(q->driver)->op_count;
}

static void wake_all(rpexec_driver *d)
{
    /* Only started queues: after a failure to open there may be none. */
    for (uint32_t i = 0; i < d->started; i++) {
        pthread_cond_signal(&d->queues[i].wake);
    }
    pthread_cond_broadcast(&d->all_ended);
}

static void fail_locked(rpexec_driver *d, rp_status status)
{
    d->status = d->status == RP_OK ? status : d->status;
    rpexec_links_stop(d->links);
    rpexec_host_meetings_abort(d->meetings);
    wake_all(d);
}

/* Wakes the queues whose next op waits for `op`. */
static void tell(rpexec_driver *d, uint32_t op)
{
    const rp_program *p = program_of(d);
    for (uint32_t i = 0; i < p->queue_count; i++) {
        queue *q = &d->queues[i];
        if (q->next < q->submitted && rpexec_driver_waits_for(p, q->next, op)) {
            pthread_cond_signal(&q->wake);
        }
    }
    /* Not for every op: waking the caller takes processors from the ops. */
    if (d->ended_count == p->op_count || op == d->awaited) {
        pthread_cond_broadcast(&d->all_ended);
    }
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void run_one(queue *q)
{
    rpexec_driver *d = q->driver;
    uint32_t op = q->next;
    pthread_mutex_unlock(&d->lock);
    rpexec_driver_delay(&d->config, op);
    q->carried = false;
    int64_t start_ns = rpexec_driver_now_ns();
    int64_t thread_start_ns = thread_ns();
    rp_status status = d->perform(d->context, op, &q->lane);
    int64_t work_ns = thread_ns() - thread_start_ns;
    int64_t end_ns = rpexec_driver_now_ns();
    pthread_mutex_lock(&d->lock);
    d->start_ns[op] = d->start_ns[op] != 0 ? d->start_ns[op] : start_ns;
    d->end_ns[op] = end_ns;
    d->work_ns[op] = q->carried ? end_ns - d->start_ns[op] : work_ns;
    d->last_end_ns = end_ns;
    d->ended[op] = true;
    d->ended_count++;
    q->next++;
    tell(d, op);
    if (status != RP_OK) {
        d->failed = d->status == RP_OK ? op : d->failed;
        fail_locked(d, status);
    }
}

/* @return true if the thread runs on its own processor. */
static bool keep_to_core(const queue *q)
{
    const rp_queue *of = &program_of(q->driver)->queues[q->number];
    bool bound = q->driver->config.bound && rp_queue_kind_on_gpu((rp_queue_kind)of->kind);
    return !bound || rpexec_host_bind(of->gpu);
}

static void *run_queue(void *context)
{
    queue *q = context;
    rpexec_driver *d = q->driver;
    bool kept = keep_to_core(q);
    pthread_mutex_lock(&d->lock);
    if (!kept) {
        rp_log_error("{bind}: the kernel does not bind threads to processors here");
        fail_locked(d, RP_TOOL);
    }
    while (!d->closing && d->status == RP_OK) {
        if (can_run(q)) {
            run_one(q);
        } else {
            pthread_cond_wait(&q->wake, &d->lock);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- the watchdog ---------------------------------------------------------------------------- */

static void dump(const rpexec_driver *d)
{
    const rp_program *p = program_of(d);
    rp_log_error("nothing has ended for %u s; who waits for whom:", d->config.watchdog_s);
    for (uint32_t i = 0; i < p->queue_count; i++) {
        const queue *q = &d->queues[i];
        if (q->next == p->queues[i].op_end) {
            continue;
        }
        bool submitted = q->next < q->submitted;
        uint32_t other = submitted ? missing(d, q->next) : p->op_count;
        rpexec_driver_log_wait(d->config.plan, i, q->next, other,
                               submitted ? "nothing: it runs" : "the program to submit it");
    }
}

/* Waits for the end, a second at most; gives up when nothing has ended for too long. */
static void wait_a_while(rpexec_driver *d)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_cond_timedwait(&d->all_ended, &d->lock, &until);
    if (d->status == RP_OK && rpexec_driver_is_idle(&d->config, d->context, &d->last_end_ns)) {
        dump(d);
        fail_locked(d, RP_BROKEN);
    }
}

/* ---- the interface --------------------------------------------------------------------------- */

/* Starts a thread per queue, and makes their memory apart from the arenas. */
static rp_status start_queues(rpexec_driver *d)
{
    const rp_program *p = program_of(d);
    for (uint32_t i = 0; i < p->queue_count; i++) {
        int error = pthread_create(&d->queues[i].thread, NULL, run_queue, &d->queues[i]);
        if (error != 0) {
            rp_log_error("out of memory or processes: pthread_create: %s; valid are fewer {gpus} "
                         "and larger limits (ulimit -v, -u)",
                         strerror(error));
            return RP_NO_MEMORY;
        }
        d->started++;
    }
    return rpexec_host_reserve_buffers(p->gpu_count + 1); /* --check takes another */
}

static rp_status open_queues(rpexec_driver *d)
{
    openblas_set_num_threads(1); /* a GPU computes in its compute queue's thread only */
    const rp_program *p = program_of(d);
    const rpexec_model *model = d->config.plan->model;
    uint32_t sequences = rpexec_plan_most_sequences(d->config.plan);
    for (uint32_t i = 0; i < p->queue_count; i++) {
        queue *q = &d->queues[i];
        *q = (queue){.driver = d,
                     .number = i,
                     .next = p->queues[i].op_begin,
                     .submitted = p->queues[i].op_begin};
        pthread_cond_init(&q->wake, NULL);
        if (rp_queue_kind_on_gpu((rp_queue_kind)p->queues[i].kind)) {
            /* Queues other than compute queues only add and copy. */
            uint64_t tokens = p->queues[i].kind == RP_QUEUE_COMPUTE ? sequences : 0;
            RP_TRY(rpexec_host_lane_create(model, tokens * model->seq_len, d->arena, &q->lane));
        }
    }
    return start_queues(d);
}

static rp_status open_memories(rpexec_driver *d)
{
    const rpexec_plan *plan = d->config.plan;
    uint64_t all = 0;
    for (uint32_t place = 0; place <= plan->program->gpu_count; place++) {
        all += plan->arena_bytes[place];
    }
    RP_TRY(rp_host_memory_require(all, "the arenas of the emulated GPUs"));
    for (uint32_t place = 0; place <= plan->program->gpu_count; place++) {
        uint64_t bytes = plan->arena_bytes[place];
        RP_TRY(rp_arena_alloc(d->arena, bytes, 1, &d->memories[place]));
        if (d->config.poison) {
            memset(d->memories[place], 0xff, bytes);
        }
    }
    return RP_OK;
}

static void host_fail(rpexec_driver *d, rp_status status)
{
    pthread_mutex_lock(&d->lock);
    fail_locked(d, status);
    pthread_mutex_unlock(&d->lock);
}

/* A copy of a collective has failed. */
static void fail_meeting(void *context, rp_status status)
{
    host_fail(context, status);
}

static rp_status open_meetings(rpexec_driver *d)
{
    const rpexec_host_meetings_config config = {
        .plan = d->config.plan, .links = d->links, .fail = fail_meeting, .context = d};
    return rpexec_host_meetings_open(&config, d->arena, &d->meetings);
}

static void host_close(rpexec_driver *d)
{
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    wake_all(d);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->started; i++) {
        pthread_join(d->queues[i].thread, NULL);
    }
    rpexec_links_close(d->links);
    rpexec_host_meetings_close(d->meetings);
    rp_arena_destroy(d->arena);
}

static rp_status host_open(const rpexec_driver_config *config, rpexec_perform perform,
                           void *context, rpexec_driver **driver_out)
{
    const rp_program *p = config->plan->program;
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
                         .awaited = p->op_count,
                         .failed = p->op_count};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->all_ended, NULL);
    const struct {
        size_t count, size;
        void *pointer;
    } arrays[] = {{p->gpu_count + 1, sizeof(unsigned char *), &d->memories},
                  {p->queue_count, sizeof(queue), &d->queues},
                  {p->op_count, sizeof(bool), &d->ended},
                  {p->op_count, sizeof(int64_t), &d->start_ns},
                  {p->op_count, sizeof(int64_t), &d->end_ns},
                  {p->op_count, sizeof(int64_t), &d->work_ns}};
    for (size_t i = 0; status == RP_OK && i < sizeof arrays / sizeof arrays[0]; i++) {
        status = rp_arena_alloc(arena, arrays[i].count, arrays[i].size, arrays[i].pointer);
    }
    if (status == RP_OK && config->machine != NULL) {
        status = rpexec_links_open(p, config->machine, arena, &d->links);
    }
    status = status == RP_OK ? open_memories(d) : status;
    status = status == RP_OK ? open_meetings(d) : status;
    d->begin_ns = d->last_end_ns = rpexec_driver_now_ns();
    status = status == RP_OK ? open_queues(d) : status;
    if (status != RP_OK) {
        host_close(d);
        return status;
    }
    *driver_out = d;
    return RP_OK;
}

static unsigned char *host_memory(rpexec_driver *d, uint32_t place)
{
    return d->memories[place];
}

static rp_status host_shared(rpexec_driver *d, uint64_t bytes, void *memory_out)
{
    return rp_arena_alloc(d->arena, bytes, 1, memory_out);
}

static rp_status host_transfer(rpexec_driver *d, void *to, const void *from, uint64_t bytes)
{
    (void)d;
    if (from != NULL) {
        memcpy(to, from, bytes);
    } else {
        memset(to, 0, bytes);
    }
    return RP_OK;
}

static const float *host_rotary(rpexec_driver *d, uint32_t op)
{
    (void)d;
    (void)op;
    return NULL;
}

static const void *host_read(rpexec_driver *d, uint32_t op, const void *from, uint64_t bytes)
{
    (void)d;
    (void)op;
    (void)bytes;
    return from;
}

/* A throttled op starts when its link takes it, not when it begins to wait for the link. */
static void host_copy(rpexec_driver *d, uint32_t op, void *to, const void *from, uint64_t bytes)
{
    int64_t begin_ns = 0;
    if (d->links == NULL) {
        memcpy(to, from, bytes);
        return;
    }
    rp_status status = rpexec_links_copy(d->links, op, to, from, bytes, &begin_ns);
    d->queues[d->config.plan->order.queue_of[op]].carried = true;
    if (status != RP_OK) {
        host_fail(d, status);
    } else if (d->start_ns[op] == 0) {
        d->start_ns[op] = begin_ns;
    }
}

static rp_status host_collective(rpexec_driver *d, uint32_t op, const rpexec_collective *collective,
                                 uint64_t *moved_out)
{
    return rpexec_host_meetings_run(d->meetings, gpu_of(d, op), collective, moved_out);
}

static rp_status host_sum_pair(rpexec_driver *d, uint32_t op, uint32_t rank, uint64_t count,
                               void *array)
{
    return rpexec_host_meetings_sum_pair(d->meetings, gpu_of(d, op), rank, count, array);
}

static rp_status host_submit(rpexec_driver *d, uint32_t op)
{
    queue *q = &d->queues[d->config.plan->order.queue_of[op]];
    pthread_mutex_lock(&d->lock);
    q->submitted = op + 1;
    if (q->next == op) {
        pthread_cond_signal(&q->wake);
    }
    rp_status status = d->status;
    pthread_mutex_unlock(&d->lock);
    return status;
}

static rp_status host_wait(rpexec_driver *d, uint32_t op)
{
    pthread_mutex_lock(&d->lock);
    d->awaited = op;
    while (!d->ended[op] && d->status == RP_OK) {
        wait_a_while(d);
    }
    rp_status status = d->status;
    pthread_mutex_unlock(&d->lock);
    return status;
}

static rp_status host_finish(rpexec_driver *d, rp_timeline *timeline)
{
    uint32_t ops = program_of(d)->op_count;
    pthread_mutex_lock(&d->lock);
    while (d->ended_count < ops && d->status == RP_OK) {
        wait_a_while(d);
    }
    rp_status status = d->status;
    uint32_t failed = d->failed;
    pthread_mutex_unlock(&d->lock);
    if (failed != ops) {
        rpexec_driver_log_failure(d->config.plan, failed, status);
    }
    if (status == RP_OK && timeline != NULL) {
        status = rp_arena_alloc(timeline->arena, ops, sizeof(int64_t), &timeline->work_ps);
    }
    for (uint32_t i = 0; status == RP_OK && timeline != NULL && i < ops; i++) {
        timeline->work_ps[i] = 1000 * d->work_ns[i];
        timeline->start_ps[i] = 1000 * (d->start_ns[i] - d->begin_ns);
        timeline->end_ps[i] = 1000 * (d->end_ns[i] - d->begin_ns);
    }
    return status;
}

/* The queues' threads sleep until something is submitted. */
static rp_status host_rewind(rpexec_driver *d)
{
    const rp_program *p = program_of(d);
    pthread_mutex_lock(&d->lock);
    memset(d->ended, 0, p->op_count * sizeof *d->ended);
    memset(d->start_ns, 0, p->op_count * sizeof *d->start_ns);
    d->ended_count = 0;
    d->awaited = p->op_count;
    for (uint32_t i = 0; i < p->queue_count; i++) {
        d->queues[i].next = d->queues[i].submitted = p->queues[i].op_begin;
    }
    d->begin_ns = d->last_end_ns = rpexec_driver_now_ns();
    pthread_mutex_unlock(&d->lock);
    return RP_OK;
}

const rpexec_driver_type rpexec_host_driver = {
    .operators = rpexec_host_operators,
    .chunk = RPEXEC_HOST_CHUNK,
    .open = host_open,
    .memory = host_memory,
    .shared = host_shared,
    .transfer = host_transfer,
    .read = host_read,
    .rotary = host_rotary,
    .copy = host_copy,
    .collective = host_collective,
    .sum_pair = host_sum_pair,
    .submit = host_submit,
    .wait = host_wait,
    .finish = host_finish,
    .rewind = host_rewind,
    .fail = host_fail,
    .close = host_close,
};
