/* Exchanges between GPUs, and NCCL's part in them.
 *
 * When NCCL. In a collective its rings and trees add while they move, and each byte crosses each
 * link once; copies and sums of the ranks take turns and meet in between. So AUTO has it do the
 * collectives wherever it can be had. A SEND is one copy from one GPU to another: a copy engine
 * does that beside the kernels, where NCCL's kernels take multiprocessors from them and wait on
 * both sides for as long as the other side is late. So AUTO leaves SENDs (and the sum of a tied
 * table, which is not worth a communicator) to copies, over the host where peers do not reach each
 * other; NCCL does them where it is forced.
 *
 * Why nothing hangs. All that is enqueued has a place in one order, the order of enqueueing,
 * and work only waits for work with an earlier place:
 * - A stream waits for its own earlier work, and for events recorded before (driver.h).
 * - All GPUs' parts of a group are enqueued by one thread under one lock, after what each part's
 *   stream waits for has been. So they take one place, the same on all GPUs. A communicator's
 *   kernels run one after the other in that order: they wait for earlier groups only.
 * - There is one communicator per GPU, not one per pair or direction: never two kernels on a GPU
 *   that hold multiprocessors and wait for other GPUs. Kernels that compute wait for nobody.
 * So the work with the earliest place can run and ends. The price: of two SENDs of a GPU the one
 * that was enqueued later waits for the other one, even if its tensor is there first.
 *
 * Sums. NCCL adds in the storage type, which is rounded once per addition, n - 1 times on n ranks
 * and in the order of its rings; the ranks' own logic rounds once. Exact additions would cost fp32
 * copies of all gradients and twice the bytes on the links, which is what ZeRO and FSDP save when
 * they reduce bf16 in bf16. With u = 2^-24, 2^-11 or 2^-8 (fp32, fp16, bf16) the rms of a rounding
 * is u / sqrt(3) of what is rounded, of a steadily growing sum u sqrt(n / 3) of the result. --check
 * allows 2 u sqrt(M) of 16 bits for all roundings of M microbatches, of which each rank has at
 * least one. Two ranks: the same bits as copies. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Seconds for aborting; and before it for the thread that enqueues, to come to an end. */
#define ABORT_S 5
#define ENQUEUE_S 1

/* ---- choosing ---------------------------------------------------------------------------------
 */

/* NULL: NCCL can be had. */
static const char *lacking(const rpexec_devices *d, const char **version_out)
{
    const rpexec_nccl_calls *nccl = d->calls->nccl;
    const char *why = "this rpexec was built without nccl.h";
    bool there = nccl != NULL && nccl->load(version_out, &why);
    return there ? NULL : why;
}

static rp_status open_communicators(rpexec_devices *d)
{
    int *devices = NULL;
    void **communicators = NULL;
    RP_TRY(rp_arena_alloc(d->arena, d->count, sizeof *devices, &devices));
    RP_TRY(rp_arena_alloc(d->arena, d->count, sizeof *communicators, &communicators));
    for (uint32_t i = 0; i < d->count; i++) {
        devices[i] = (int)i;
    }
    RP_TRY(rpexec_gpu_check(d, d->calls->nccl->open(d->count, devices, communicators),
                            "ncclCommInitAll"));
    d->communicators = communicators;
    return RP_OK;
}

rp_status rpexec_gpu_open_exchange(rpexec_devices *d)
{
    const char *version = "";
    const char *why = NULL;
    char *name = NULL;
    bool forced = d->config.transport == RPEXEC_TRANSPORT_NCCL;
    bool worth = d->config.transport == RPEXEC_TRANSPORT_AUTO && d->config.collectives &&
                 !d->config.is_virtual && d->count > 1;
    if (!forced && !worth) {
        return RP_OK;
    }
    if (d->config.is_virtual) {
        rp_log_error("--transport nccl: virtual GPUs share a device, which NCCL takes once per "
                     "communicator; valid are auto, copy and staged");
        return RP_USAGE;
    }
    why = lacking(d, &version);
    if (why != NULL && forced) {
        rp_log_error("--transport nccl: %s; valid here are auto, copy and staged", why);
        return RP_USAGE;
    }
    rp_status status = why == NULL ? open_communicators(d) : RP_OK;
    if (status != RP_OK && (forced || status == RP_NO_MEMORY)) {
        return status;
    }
    if (why != NULL || status != RP_OK) {
        rp_log_warning("--transport auto: collectives are copies and additions: %s",
                       why != NULL ? why : "NCCL makes no communicators");
        return RP_OK;
    }
    d->by_nccl[RPEXEC_GPU_COLLECTIVES] = true;
    d->by_nccl[RPEXEC_GPU_COPIES] = forced;
    size_t size = sizeof "nccl " + strlen(version);
    RP_TRY(rp_arena_alloc(d->arena, size, 1, &name));
    snprintf(name, size, "nccl %s", version);
    d->transport = name;
    return RP_OK;
}

void rpexec_gpu_name_exchange(rpexec_devices *d)
{
    bool direct = d->count == 1;
    bool over_host = false;
    for (uint32_t i = 0; i < d->count * d->count; i++) {
        direct |= d->reached[i] && i / d->count != i % d->count;
        over_host |= !d->reached[i];
    }
    if (d->transport == NULL) {
        d->transport = !over_host ? "copy" : direct ? "copy and staged" : "staged";
    }
}

void rpexec_gpu_close_exchange(rpexec_devices *d)
{
    for (uint32_t i = 0; d->communicators != NULL && i < d->count; i++) {
        d->calls->nccl->close(d->communicators[i]);
    }
    d->communicators = NULL;
}

/* ---- failures ---------------------------------------------------------------------------------
 */

typedef struct aborting {
    const rpexec_devices *devices;
    void **communicators;
} aborting;

static void *abort_all(void *context)
{
    const aborting *a = context;
    for (uint32_t i = 0; i < a->devices->count; i++) {
        a->devices->calls->nccl->abort(a->communicators[i]);
    }
    return NULL;
}

static struct timespec seconds_from_now(time_t seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    return until;
}

/* In a thread, since aborting waits for a GPU, too, which may not answer any more. */
bool rpexec_gpu_abort_exchange(rpexec_devices *d)
{
    pthread_t thread;
    aborting *a = NULL;
    struct timespec until = seconds_from_now(ENQUEUE_S);
    if (d->communicators == NULL) {
        return true;
    }
    if (rp_arena_alloc(d->arena, 1, sizeof *a, &a) != RP_OK) {
        return false;
    }
    /* A thread that hangs in NCCL has the lock: it is aborting that lets it go. */
    bool locked = pthread_mutex_timedlock(&d->enqueuing, &until) == 0;
    *a = (aborting){.devices = d, .communicators = d->communicators};
    d->communicators = NULL;
    if (locked) {
        pthread_mutex_unlock(&d->enqueuing);
    }
    if (pthread_create(&thread, NULL, abort_all, a) != 0) {
        return false;
    }
    until = seconds_from_now(ABORT_S);
    if (pthread_timedjoin_np(thread, NULL, &until) != 0) {
        rp_log_error("ncclCommAbort has not come back for %d s", ABORT_S);
        pthread_detach(thread);
        return false;
    }
    return true;
}

int rpexec_gpu_exchange_error(const rpexec_devices *d)
{
    int error = 0;
    for (uint32_t i = 0; d->communicators != NULL && error == 0 && i < d->count; i++) {
        error = d->calls->nccl->async_error(d->communicators[i]);
    }
    return error;
}

/* ---- groups -----------------------------------------------------------------------------------
 */

/* Calls of one thread that are enqueued together, while it has the lock. */
typedef struct group {
    rpexec_driver *driver;
    const rpexec_nccl_calls *nccl;
    void **communicators;
    bool well;
} group;

static void note(group *g, int error, const char *call)
{
    g->well = g->well && rpexec_gpu_tried(g->driver, error, call);
}

/* @return true where calls may follow, and then close_group */
static bool open_group(rpexec_driver *d, group *g)
{
    pthread_mutex_lock(&d->devices->enqueuing);
    *g = (group){.driver = d,
                 .nccl = d->calls->nccl,
                 .communicators = d->devices->communicators,
                 .well = true};
    if (g->communicators == NULL) { /* the run has failed already */
        pthread_mutex_unlock(&d->devices->enqueuing);
        rpexec_gpu_fail(d, RP_BROKEN);
        return false;
    }
    note(g, g->nccl->group_begin(), "ncclGroupStart");
    return true;
}

/* NCCL enqueues nothing of a group with a call that has failed. Another device than the thread's
 * may be current afterwards. */
static void close_group(group *g)
{
    int error = g->nccl->group_end();
    pthread_mutex_unlock(&g->driver->devices->enqueuing);
    note(g, error, "ncclGroupEnd");
}

/* ---- collectives ------------------------------------------------------------------------------
 */

/* One array of a collective, as all ranks have come with it. */
typedef struct cut {
    const rpexec_gpu_meeting *meeting;
    rp_dtype dtype;
    uint32_t index;
    uint64_t count;
} cut;

static const rpexec_collective_array *array_of(const cut *c, uint32_t rank)
{
    return &rpexec_host_group_part(c->meeting->group, rank)->arrays[c->index];
}

static uint64_t share_of(const cut *c, uint32_t rank, uint64_t *begin_out)
{
    *begin_out = rpexec_share(c->count, c->meeting->ranks, rank);
    return rpexec_share(c->count, c->meeting->ranks, rank + 1) - *begin_out;
}

static bool is_even(const cut *c)
{
    uint64_t at = 0;
    bool even = c->count % c->meeting->ranks == 0;
    for (uint32_t rank = 0; rank < c->meeting->ranks; rank++) {
        even &= share_of(c, rank, &at) == c->count / c->meeting->ranks;
    }
    return even;
}

/* Collectives that NCCL has one call for. */
static void collect_evenly(group *g, const cut *c, rpexec_collective_kind kind)
{
    const rpexec_gpu_meeting *m = c->meeting;
    for (uint32_t rank = 0; rank < m->ranks; rank++) {
        const rpexec_collective_array *a = array_of(c, rank);
        void *with = g->communicators[m->queues[rank]->index];
        void *stream = m->queues[rank]->stream;
        uint64_t share = c->count / m->ranks;
        if (kind == RPEXEC_ALL_GATHER) {
            note(g, g->nccl->all_gather(a->from, a->to, share, c->dtype, with, stream),
                 "ncclAllGather");
        } else if (kind == RPEXEC_REDUCE_SCATTER) {
            note(g, g->nccl->reduce_scatter(a->from, a->to, share, c->dtype, with, stream),
                 "ncclReduceScatter");
        } else {
            note(g, g->nccl->all_reduce(a->from, a->to, c->count, c->dtype, with, stream),
                 "ncclAllReduce");
        }
    }
}

/* Share by share: each has a root, which it comes from or goes to. */
static void collect_share(group *g, const cut *c, rpexec_collective_kind kind, uint32_t root)
{
    const rpexec_gpu_meeting *m = c->meeting;
    uint64_t at = 0;
    uint64_t share = share_of(c, root, &at);
    for (uint32_t rank = 0; share != 0 && rank < m->ranks; rank++) {
        const rpexec_collective_array *a = array_of(c, rank);
        void *with = g->communicators[m->queues[rank]->index];
        void *stream = m->queues[rank]->stream;
        if (kind == RPEXEC_ALL_GATHER) {
            void *to = rpexec_element(c->dtype, a->to, at);
            const void *from = rank == root ? a->from : to;
            note(g, g->nccl->broadcast(from, to, share, c->dtype, root, with, stream),
                 "ncclBroadcast");
        } else {
            const void *from = rpexec_element_const(c->dtype, a->from, at);
            void *to = rank == root ? a->to : NULL;
            note(g, g->nccl->reduce(from, to, share, c->dtype, root, with, stream), "ncclReduce");
        }
    }
}

void rpexec_gpu_collect_by_nccl(rpexec_gpu_queue *q, const rpexec_gpu_meeting *m)
{
    rpexec_driver *d = q->driver;
    const rpexec_collective *first = rpexec_host_group_part(m->group, 0);
    group g;
    if (!open_group(d, &g)) {
        return;
    }
    for (uint32_t i = 0; i < first->array_count; i++) {
        const cut c = {
            .meeting = m, .dtype = first->dtype, .index = i, .count = first->arrays[i].count};
        if (c.count == 0) {
            continue;
        }
        if (first->kind == RPEXEC_ALL_REDUCE || is_even(&c)) {
            collect_evenly(&g, &c, first->kind);
            continue;
        }
        for (uint32_t root = 0; root < m->ranks; root++) {
            collect_share(&g, &c, first->kind, root);
        }
    }
    close_group(&g);
    (void)rpexec_gpu_tried(d, d->calls->enter(&q->gpu->part), "cudaSetDevice");
}

/* ---- from one GPU to another ------------------------------------------------------------------
 */

/* One of the streams is the queue's own, the other one the other GPU's `aside`: that GPU's own
 * queues are other threads' to enqueue in, and have their places already for what waits for this
 * copy. `aside` begins when the queue has come so far, since what the queue has waited for is what
 * makes the target free; the queue goes on when the other side is done, so that the op's end means
 * that everything has arrived. */
void rpexec_gpu_copy_by_nccl(rpexec_gpu_queue *q, uint32_t to_gpu, void *to, uint32_t from_gpu,
                             const void *from, uint64_t bytes)
{
    rpexec_driver *d = q->driver;
    const rpexec_cuda_calls *c = d->calls;
    bool sends = q->index == from_gpu;
    uint32_t other = sends ? to_gpu : from_gpu;
    void *aside = d->devices->gpus[other].aside;
    void *done = q->stage.theirs[2 * (size_t)other];
    const rpexec_cuda_part whole = {.device = d->devices->gpus[other].part.device};
    group g;
    if (!rpexec_gpu_tried(d, c->event_record(q->stage.go, q->stream), "cudaEventRecord") ||
        !rpexec_gpu_tried(d, c->stream_wait(aside, q->stage.go), "cudaStreamWaitEvent") ||
        !open_group(d, &g)) {
        return;
    }
    note(&g,
         g.nccl->send(from, bytes, to_gpu, g.communicators[from_gpu], sends ? q->stream : aside),
         "ncclSend");
    note(&g,
         g.nccl->receive(to, bytes, from_gpu, g.communicators[to_gpu], sends ? aside : q->stream),
         "ncclRecv");
    close_group(&g);
    (void)(g.well && rpexec_gpu_tried(d, c->enter(&whole), "cudaSetDevice") &&
           rpexec_gpu_tried(d, c->event_record(done, aside), "cudaEventRecord") &&
           rpexec_gpu_tried(d, c->stream_wait(q->stream, done), "cudaStreamWaitEvent"));
    (void)rpexec_gpu_tried(d, c->enter(&q->gpu->part), "cudaSetDevice");
}
