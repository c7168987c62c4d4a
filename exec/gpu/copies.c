/* Copies of the GPU driver: within a device, between devices that reach each other, over pinned
 * host memory between other devices, and by NCCL if that is forced (exchange.c). */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"

#include <string.h>

static rpexec_gpu_queue *queue_of(rpexec_driver *d, uint32_t op)
{
    return &d->queues[d->config.plan->order.queue_of[op]];
}

unsigned char *rpexec_gpu_memory(rpexec_driver *d, uint32_t place)
{
    bool host = place == d->config.plan->program->gpu_count;
    return host ? d->devices->host : d->devices->gpus[place].arena;
}

/* ---- beside the queues ----------------------------------------------------------------------- */

rp_status rpexec_gpu_shared(rpexec_driver *d, uint64_t bytes, void *memory_out)
{
    void *memory = NULL;
    if (d->shared_count == d->shared_most) {
        uint32_t most = d->shared_most == 0 ? 16 : 2 * d->shared_most;
        void **grown = NULL;
        RP_TRY(rp_arena_alloc(d->arena, most, sizeof *grown, &grown));
        if (d->shared_count != 0) {
            memcpy(grown, d->shared, d->shared_count * sizeof *grown);
        }
        d->shared = grown;
        d->shared_most = most;
    }
    RP_TRY(rpexec_gpu_check(d->devices, d->calls->host_take(bytes == 0 ? 1 : bytes, &memory),
                            "cudaHostAlloc"));
    d->shared[d->shared_count++] = memory;
    memset(memory, 0, bytes);
    memcpy(memory_out, &memory, sizeof memory);
    return RP_OK;
}

/* The GPU whose arena has an address; count: none. */
static uint32_t gpu_with(const rpexec_devices *d, const void *address)
{
    const unsigned char *at = address;
    uint32_t i = 0;
    while (i < d->count &&
           (at < d->gpus[i].arena || at >= d->gpus[i].arena + d->gpus[i].arena_bytes)) {
        i++;
    }
    return i;
}

int rpexec_gpu_copy_pieces(const rpexec_devices *d, void *to, const void *from, uint64_t bytes,
                           void *stream)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    int error = 0;
    for (uint64_t at = 0; error == 0 && at < bytes;) {
        uint64_t now = rpexec_gpu_pinned_together(d, source + at, bytes - at);
        now = rpexec_gpu_pinned_together(d, target + at, now);
        error = d->calls->copy(target + at, source + at, now, stream);
        at += now;
    }
    return error;
}

rp_status rpexec_gpu_transfer(rpexec_driver *d, void *to, const void *from, uint64_t bytes)
{
    const rpexec_cuda_calls *c = d->calls;
    uint32_t gpu = gpu_with(d->devices, to);
    if (gpu == d->devices->count) {
        gpu = gpu_with(d->devices, from);
    }
    if (gpu == d->devices->count) {
        rp_log_error("a transfer of no GPU's memory");
        return rp_broken();
    }
    void *stream = d->devices->gpus[gpu].aside;
    const rpexec_cuda_part whole = {.device = d->devices->gpus[gpu].part.device};
    RP_TRY(rpexec_gpu_check(d->devices, c->enter(&whole), "cudaSetDevice"));
    RP_TRY(rpexec_gpu_check(d->devices,
                            from != NULL
                                ? rpexec_gpu_copy_pieces(d->devices, to, from, bytes, stream)
                                : c->fill(to, 0, bytes, stream),
                            from != NULL ? "cudaMemcpyAsync" : "cudaMemsetAsync"));
    return rpexec_gpu_check(d->devices, c->stream_synchronize(stream), "cudaStreamSynchronize");
}

const float *rpexec_gpu_rotary(rpexec_driver *d, uint32_t op)
{
    return (const float *)(void *)queue_of(d, op)->gpu->rotary;
}

const void *rpexec_gpu_read(rpexec_driver *d, uint32_t op, const void *from, uint64_t bytes)
{
    rpexec_gpu_queue *q = queue_of(d, op);
    rpexec_gpu_graphs_flush(q->graphs);
    if (bytes > q->bounce_bytes) {
        pthread_mutex_lock(&d->lock); /* all queues use the arena */
        rp_status status = rp_arena_alloc(d->arena, bytes, 1, &q->bounce);
        pthread_mutex_unlock(&d->lock);
        if (status != RP_OK) {
            rpexec_gpu_fail(d, status);
            return NULL;
        }
        q->bounce_bytes = bytes;
    }
    bool done =
        rpexec_gpu_tried(d, rpexec_gpu_copy_pieces(d->devices, q->bounce, from, bytes, q->stream),
                         "cudaMemcpyAsync") &&
        rpexec_gpu_tried(d, d->calls->stream_synchronize(q->stream), "cudaStreamSynchronize");
    return done ? q->bounce : NULL;
}

/* ---- over the host --------------------------------------------------------------------------- */

/* Makes events on another GPU's side, and a stream if the copy goes over the host. */
static int open_theirs(rpexec_gpu_queue *q, uint32_t gpu)
{
    const rpexec_devices *devices = q->driver->devices;
    const rpexec_cuda_calls *c = devices->calls;
    const rpexec_cuda_part whole = {.device = devices->gpus[gpu].part.device};
    bool over_host =
        !devices->by_nccl[RPEXEC_GPU_COPIES] && !devices->reached[q->index * devices->count + gpu];
    int error = c->enter(&whole);
    for (uint32_t half = 0; error == 0 && half < 2; half++) {
        error = c->event_create(&q->stage.theirs[2 * gpu + half]);
    }
    return error == 0 && over_host ? c->stream_create(&whole, &q->stage.streams[gpu]) : error;
}

rp_status rpexec_gpu_open_stage(rpexec_gpu_queue *q)
{
    rpexec_driver *d = q->driver;
    const rpexec_cuda_calls *c = d->calls;
    rpexec_gpu_stage *s = &q->stage;
    void *memory = NULL;
    RP_TRY(rp_arena_alloc(d->arena, (size_t)2 * d->devices->count, sizeof *s->theirs, &s->theirs));
    RP_TRY(rp_arena_alloc(d->arena, d->devices->count, sizeof *s->streams, &s->streams));
    if (!d->devices->by_nccl[RPEXEC_GPU_COPIES]) {
        RP_TRY(rpexec_gpu_check(d->devices,
                                c->host_take(2 * d->devices->config.stage_bytes, &memory),
                                "cudaHostAlloc"));
        s->memory = memory;
    }
    rpexec_gpu_visit(d->devices, q->gpu);
    int error = c->event_create(&s->go);
    error = error == 0 ? c->event_create(&s->own[0]) : error;
    error = error == 0 ? c->event_create(&s->own[1]) : error;
    rpexec_gpu_leave(d->devices, q->gpu);
    for (uint32_t i = 0; error == 0 && i < d->devices->count; i++) {
        error = open_theirs(q, i);
    }
    return rpexec_gpu_check(d->devices, error, "cudaEventCreateWithFlags");
}

void rpexec_gpu_close_stage(rpexec_gpu_queue *q)
{
    const rpexec_cuda_calls *c = q->driver->calls;
    rpexec_gpu_stage *s = &q->stage;
    void *own[] = {s->go, s->own[0], s->own[1]};
    for (uint32_t i = 0; s->streams != NULL && i < q->driver->devices->count; i++) {
        if (s->streams[i] != NULL) { /* after a failure, work may be under way */
            (void)c->stream_synchronize(s->streams[i]);
            (void)c->stream_destroy(s->streams[i]);
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        if (own[i] != NULL) {
            (void)c->event_destroy(own[i]);
        }
    }
    for (uint32_t i = 0; s->theirs != NULL && i < 2 * q->driver->devices->count; i++) {
        if (s->theirs[i] != NULL) {
            (void)c->event_destroy(s->theirs[i]);
        }
    }
    if (s->memory != NULL) {
        (void)c->host_give(s->memory);
    }
}

/* A side of a copy over the host, with its stream. */
typedef struct side {
    const rpexec_cuda_part *part;
    void *stream;
    void **events; /* [2] */
} side;

static bool enqueue_half(rpexec_driver *d, const side *at, void *to, const void *from,
                         uint64_t bytes, const side *after, uint32_t half, bool waits)
{
    const rpexec_cuda_calls *c = d->calls;
    return rpexec_gpu_tried(d, c->enter(at->part), "cuCtxSetCurrent") &&
           (!waits || rpexec_gpu_tried(d, c->stream_wait(at->stream, after->events[half]),
                                       "cudaStreamWaitEvent")) &&
           rpexec_gpu_tried(d, c->copy(to, from, bytes, at->stream), "cudaMemcpyAsync") &&
           rpexec_gpu_tried(d, c->event_record(at->events[half], at->stream), "cudaEventRecord");
}

/* Copies down in a stream and up in another, half by half. One of the streams is the queue's own;
 * the other begins when the queue has come to the copy, and the queue goes on when both are done.
 * This orders all copies of the queue, whichever GPU they are with: the halves are free when a copy
 * begins. Nothing can wait for itself: only the queue's thread fills both streams, and it has them
 * wait only for events that it has recorded before. */
static void copy_over_host(rpexec_gpu_queue *q, uint32_t other_gpu, bool sends, unsigned char *to,
                           const unsigned char *from, uint64_t bytes)
{
    rpexec_driver *d = q->driver;
    const rpexec_cuda_calls *c = d->calls;
    const rpexec_cuda_part whole = {.device = d->devices->gpus[other_gpu].part.device};
    const side own = {.part = &q->gpu->part, .stream = q->stream, .events = q->stage.own};
    const side theirs = {.part = &whole,
                         .stream = q->stage.streams[other_gpu],
                         .events = q->stage.theirs + 2 * other_gpu};
    const side *down = sends ? &own : &theirs;
    const side *up = sends ? &theirs : &own;
    bool well =
        rpexec_gpu_tried(d, c->event_record(q->stage.go, q->stream), "cudaEventRecord") &&
        rpexec_gpu_tried(d, c->stream_wait(theirs.stream, q->stage.go), "cudaStreamWaitEvent");
    uint64_t most = d->devices->config.stage_bytes;
    uint32_t piece = 0;
    for (uint64_t at = 0; well && at < bytes; at += most, piece++) {
        uint64_t left = bytes - at;
        uint64_t now = left < most ? left : most;
        uint32_t half = piece % 2;
        unsigned char *between = q->stage.memory + half * most;
        /* A half is free after its previous bytes have gone up. */
        well = enqueue_half(d, down, between, from + at, now, up, half, piece >= 2) &&
               enqueue_half(d, up, to + at, between, now, down, half, true);
    }
    for (uint32_t half = 0; well && half < 2 && half < piece; half++) {
        well =
            rpexec_gpu_tried(d, c->stream_wait(q->stream, up->events[half]), "cudaStreamWaitEvent");
    }
    (void)rpexec_gpu_tried(d, c->enter(&q->gpu->part), "cuCtxSetCurrent");
}

/* ---- in queues ------------------------------------------------------------------------------- */

void rpexec_gpu_copy_between(rpexec_gpu_queue *q, uint32_t to_gpu, void *to, uint32_t from_gpu,
                             const void *from, uint64_t bytes)
{
    rpexec_driver *d = q->driver;
    bool sends = q->index == from_gpu;
    uint32_t other = sends ? to_gpu : from_gpu;
    if (d->devices->by_nccl[RPEXEC_GPU_COPIES]) {
        rpexec_gpu_copy_by_nccl(q, to_gpu, to, from_gpu, from, bytes);
    } else if (d->devices->reached[q->index * d->devices->count + other]) {
        (void)rpexec_gpu_tried(d, d->calls->copy(to, from, bytes, q->stream), "cudaMemcpyAsync");
    } else {
        copy_over_host(q, other, sends, to, from, bytes);
    }
}

void rpexec_gpu_copy(rpexec_driver *d, uint32_t op, void *to, const void *from, uint64_t bytes)
{
    rpexec_gpu_queue *q = queue_of(d, op);
    uint32_t receiver = q->index;
    if (bytes == 0) {
        return;
    }
    rpexec_gpu_graphs_flush(q->graphs);
    if (rp_op_kind_sends(d->config.plan->program->ops[op].kind)) {
        receiver = gpu_with(d->devices, to);
    }
    if (receiver == q->index) {
        (void)rpexec_gpu_tried(d, rpexec_gpu_copy_pieces(d->devices, to, from, bytes, q->stream),
                               "cudaMemcpyAsync");
    } else {
        rpexec_gpu_copy_between(q, receiver, to, q->index, from, bytes);
    }
}
