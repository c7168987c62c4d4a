/* Exchanges between GPUs, and NCCL's part in them.
 *
 * When NCCL is used. In a collective NCCL's rings and trees add while they move, and each byte
 * crosses each link once; copies and sums of the ranks take turns and meet in between. So AUTO
 * gives the collectives to NCCL whenever it is available. A SEND is a single copy between two GPUs:
 * a copy engine does it beside the kernels, but NCCL's kernels take multiprocessors from them and
 * wait on both sides for as long as the other side is late. So AUTO leaves SENDs (and the sum of a
 * tied table, which is not worth a communicator) to copies, over the host if peers do not reach
 * each other; NCCL does them only if it is forced.
 *
 * Why nothing hangs. All enqueued work has a place in a single order, the order of enqueueing, and
 * work only waits for work with an earlier place:
 * - A stream waits for its own earlier work, and for events recorded before (driver.h).
 * - All GPUs' parts of a group are enqueued by a single thread under a lock, after the work that
 *   each part's stream waits for. So they take a single place, the same on all GPUs. A
 *   communicator's kernels run in that order: they wait for earlier groups only.
 * - A GPU has a single communicator, not one per pair or direction: there are never two kernels
 *   on a GPU that hold multiprocessors and wait for other GPUs. Kernels that compute wait for
 *   nobody. In a layout a GPU has a communicator per axis, and another for SENDs if NCCL is
 *   forced; events keep the kernels of all of them in the order of enqueueing, as with a single
 *   communicator.
 *
 * So the work with the earliest place can always run and end. The price: of two SENDs of a GPU the
 * later enqueued waits for the earlier, even if its tensor is there first.
 *
 * Sums. NCCL adds in the storage type, which is rounded once per addition, n - 1 times on n ranks
 * and in the order of its rings; the ranks' own logic rounds once. Exact additions would cost fp32
 * copies of all gradients and twice the bytes on the links, which ZeRO and FSDP save when they
 * reduce bf16 in bf16. With u = 2^-24, 2^-11 or 2^-8 (fp32, fp16, bf16) the rms of a rounding is
 * u / sqrt(3) of the rounded value, and for a steadily growing sum u sqrt(n / 3) of the result.
 * --check allows 2 u sqrt(M) in 16 bits for all roundings of M microbatches, of which each rank has
 * at least one. With two ranks NCCL gives the same bits as copies. */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Seconds for aborting, and before that for the enqueueing thread to end. */
#define ABORT_S 5
#define ENQUEUE_S 1

/* ---- choosing -------------------------------------------------------------------------------- */

/* The reason why NCCL cannot be used; NULL: it can. */
static const char *lacking(const rpexec_devices *d, const char **version_out)
{
    const rpexec_nccl_calls *nccl = d->calls->nccl;
    const char *why = "this rpexec was built without nccl.h";
    bool there = nccl != NULL && nccl->load(version_out, &why);
    return there ? NULL : why;
}

/* Opens the groups of an axis: each has `ranks` GPUs, which are `stride` apart. */
static rp_status open_axis(rpexec_devices *d, rpexec_axis axis, uint32_t stride, uint32_t ranks)
{
    int *devices = NULL;
    void **of_group = NULL;
    void **communicators = NULL;
    RP_TRY(rp_arena_alloc(d->arena, ranks, sizeof *devices, &devices));
    RP_TRY(rp_arena_alloc(d->arena, ranks, sizeof *of_group, &of_group));
    RP_TRY(rp_arena_alloc(d->arena, d->count, sizeof *communicators, &communicators));
    d->communicators[axis] = communicators; /* a failure closes those opened so far */
    for (uint32_t first = 0; first < d->count; first++) {
        if (first / stride % ranks != 0) {
            continue;
        }
        for (uint32_t rank = 0; rank < ranks; rank++) {
            devices[rank] = (int)(first + rank * stride);
        }
        RP_TRY(
            rpexec_gpu_check(d, d->calls->nccl->open(ranks, devices, of_group), "ncclCommInitAll"));
        for (uint32_t rank = 0; rank < ranks; rank++) {
            communicators[first + rank * stride] = of_group[rank];
        }
    }
    return RP_OK;
}

static rp_status open_events(rpexec_devices *d)
{
    int error = 0;
    for (uint32_t i = 0; i < d->count && error == 0; i++) {
        rpexec_gpu_visit(d, &d->gpus[i]);
        error = d->calls->event_create(&d->gpus[i].exchanged);
        rpexec_gpu_leave(d, &d->gpus[i]);
    }
    return rpexec_gpu_check(d, error, "cudaEventCreateWithFlags");
}

static rp_status open_all(rpexec_devices *d, bool forced)
{
    uint32_t tensor = rp_layout_tensor(&d->config.layout);
    uint32_t data = rp_layout_data(&d->config.layout);
    if (forced || tensor * data == 1) { /* for SENDs, and for data-parallel systems */
        RP_TRY(open_axis(d, RPEXEC_AXIS_ALL, 1, d->count));
    }
    RP_TRY(tensor > 1 ? open_axis(d, RPEXEC_AXIS_TENSOR, 1, tensor) : RP_OK);
    RP_TRY(data > 1 ? open_axis(d, RPEXEC_AXIS_DATA, tensor, data) : RP_OK);
    return tensor * data > 1 ? open_events(d) : RP_OK;
}

static rp_status open_communicators(rpexec_devices *d, bool forced)
{
    rp_status status = open_all(d, forced);
    if (status != RP_OK) {
        rpexec_gpu_close_exchange(d);
    }
    return status;
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
        rp_log_error("{transport} nccl: virtual GPUs share a device, which NCCL takes once per "
                     "communicator; valid are auto, copy and staged");
        return RP_USAGE;
    }
    why = lacking(d, &version);
    if (why != NULL && forced) {
        rp_log_error("{transport} nccl: %s; valid here are auto, copy and staged", why);
        return RP_USAGE;
    }
    rp_status status = why == NULL ? open_communicators(d, forced) : RP_OK;
    if (status != RP_OK && (forced || status == RP_NO_MEMORY)) {
        return status;
    }
    if (why != NULL || status != RP_OK) {
        rp_log_warning("{transport} auto: collectives are copies and additions: %s",
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

/* Closes or aborts each communicator of `all`, by axis and GPU. */
static void end_all(const rpexec_devices *d, void **const *all, void (*end)(void *communicator))
{
    for (uint32_t axis = 0; axis < RPEXEC_AXIS_COUNT; axis++) {
        for (uint32_t i = 0; all[axis] != NULL && i < d->count; i++) {
            if (all[axis][i] != NULL) {
                end(all[axis][i]);
            }
        }
    }
}

void rpexec_gpu_close_exchange(rpexec_devices *d)
{
    if (d->calls->nccl != NULL) {
        end_all(d, d->communicators, d->calls->nccl->close);
    }
    memset(d->communicators, 0, sizeof d->communicators);
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->gpus[i].exchanged != NULL) {
            (void)d->calls->event_destroy(d->gpus[i].exchanged);
            d->gpus[i].exchanged = NULL;
            d->gpus[i].has_exchanged = false;
        }
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct aborting {
    const rpexec_devices *devices;
    void **communicators[RPEXEC_AXIS_COUNT];
} aborting;

static void *abort_all(void *context)
{
    const aborting *a = context;
    end_all(a->devices, a->communicators, a->devices->calls->nccl->abort);
    return NULL;
}

static bool has_communicators(const rpexec_devices *d)
{
    bool has = false;
    for (uint32_t axis = 0; axis < RPEXEC_AXIS_COUNT; axis++) {
        has |= d->communicators[axis] != NULL;
    }
    return has;
}

static struct timespec seconds_from_now(time_t seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    return until;
}

/* Aborts in a thread of its own, since aborting also waits for a GPU, which may not answer any
 * more. */
bool rpexec_gpu_abort_exchange(rpexec_devices *d)
{
    pthread_t thread;
    aborting *a = NULL;
    struct timespec until = seconds_from_now(ENQUEUE_S);
    if (!has_communicators(d)) {
        return true;
    }
    if (rp_arena_alloc(d->arena, 1, sizeof *a, &a) != RP_OK) {
        return false;
    }
    /* A thread that hangs in NCCL has the lock: only aborting frees it. */
    bool locked = pthread_mutex_timedlock(&d->enqueuing, &until) == 0;
    a->devices = d;
    memcpy(a->communicators, d->communicators, sizeof a->communicators);
    memset(d->communicators, 0, sizeof d->communicators);
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
    for (uint32_t axis = 0; axis < RPEXEC_AXIS_COUNT; axis++) {
        void **of_axis = d->communicators[axis];
        for (uint32_t i = 0; of_axis != NULL && error == 0 && i < d->count; i++) {
            error = d->calls->nccl->async_error(of_axis[i]);
        }
    }
    return error;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Calls of a thread that are enqueued together, while it has the lock. */
typedef struct group {
    rpexec_driver *driver;
    const rpexec_nccl_calls *nccl;
    void **communicators; /* [gpu] */
    bool well;
    int error; /* error of ending the group */
} group;

static void note(group *g, int error, const char *call)
{
    g->well = g->well && rpexec_gpu_tried(g->driver, error, call);
}

/* Communicators of an axis: tensor parallelism over all GPUs uses those of axis ALL. */
static void **communicators_of(const rpexec_devices *d, rpexec_axis axis)
{
    return d->communicators[axis] != NULL ? d->communicators[axis]
                                          : d->communicators[RPEXEC_AXIS_ALL];
}

/* @return true if calls may follow, and then close_group */
static bool open_group(rpexec_driver *d, rpexec_axis axis, group *g)
{
    pthread_mutex_lock(&d->devices->enqueuing);
    *g = (group){.driver = d,
                 .nccl = d->calls->nccl,
                 .communicators = communicators_of(d->devices, axis),
                 .well = true};
    if (g->communicators == NULL) { /* the run has failed already */
        pthread_mutex_unlock(&d->devices->enqueuing);
        rpexec_gpu_fail(d, RP_BROKEN);
        return false;
    }
    note(g, g->nccl->group_begin(), "ncclGroupStart");
    return true;
}

/* If GPUs have several communicators, a stream's part of the group waits for the GPU's parts of
 * earlier groups. */
static void follow(group *g, uint32_t gpu, void *stream)
{
    const rpexec_driver *d = g->driver;
    const rpexec_gpu *of = &d->devices->gpus[gpu];
    if (of->has_exchanged && g->well) {
        note(g, d->calls->enter(&of->part), "cudaSetDevice");
        note(g, d->calls->stream_wait(stream, of->exchanged), "cudaStreamWaitEvent");
    }
}

/* If GPUs have several communicators, parts of later groups wait for this part. */
static void precede(group *g, uint32_t gpu, void *stream)
{
    const rpexec_driver *d = g->driver;
    rpexec_gpu *of = &d->devices->gpus[gpu];
    if (of->exchanged != NULL && g->well) {
        note(g, d->calls->enter(&of->part), "cudaSetDevice");
        note(g, d->calls->event_record(of->exchanged, stream), "cudaEventRecord");
        of->has_exchanged = g->well;
    }
}

/* NCCL enqueues nothing of a group with a call that has failed. Afterwards another device may be
 * current. */
static void end_group(group *g)
{
    g->error = g->nccl->group_end();
    g->well = g->well && g->error == 0;
}

static void close_group(group *g)
{
    pthread_mutex_unlock(&g->driver->devices->enqueuing);
    g->well = rpexec_gpu_tried(g->driver, g->error, "ncclGroupEnd") && g->well;
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* An array of a collective, as all ranks have come with it. */
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

/* Collectives that are a single call of NCCL. */
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

/* Collects share by share: each share has a root, from which it comes or to which it goes. */
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
    if (!open_group(d, m->axis, &g)) {
        return;
    }
    for (uint32_t rank = 0; rank < m->ranks; rank++) {
        follow(&g, m->queues[rank]->index, m->queues[rank]->stream);
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
    end_group(&g);
    for (uint32_t rank = 0; rank < m->ranks; rank++) {
        precede(&g, m->queues[rank]->index, m->queues[rank]->stream);
    }
    close_group(&g);
    (void)rpexec_gpu_tried(d, d->calls->enter(&q->gpu->part), "cudaSetDevice");
}

/* ---- from one GPU to another ----------------------------------------------------------------- */

/* One of the streams is the queue's own, the other is the other GPU's `aside`: in that GPU's own
 * queues other threads enqueue, and work that waits for this copy already has its place there.
 * `aside` begins when the queue has come to the copy, since the target is free only after
 * everything that the queue has waited for; the queue goes on when the other side is done, so that
 * the op's end means that everything has arrived. */
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
        !open_group(d, RPEXEC_AXIS_ALL, &g)) {
        return;
    }
    void *out = sends ? q->stream : aside;
    void *in = sends ? aside : q->stream;
    follow(&g, from_gpu, out);
    follow(&g, to_gpu, in);
    note(&g, g.nccl->send(from, bytes, to_gpu, g.communicators[from_gpu], out), "ncclSend");
    note(&g, g.nccl->receive(to, bytes, from_gpu, g.communicators[to_gpu], in), "ncclRecv");
    end_group(&g);
    precede(&g, from_gpu, out);
    precede(&g, to_gpu, in);
    close_group(&g);
    (void)(g.well && rpexec_gpu_tried(d, c->enter(&whole), "cudaSetDevice") &&
           rpexec_gpu_tried(d, c->event_record(done, aside), "cudaEventRecord") &&
           rpexec_gpu_tried(d, c->stream_wait(q->stream, done), "cudaStreamWaitEvent"));
    (void)rpexec_gpu_tried(d, c->enter(&q->gpu->part), "cudaSetDevice");
}
