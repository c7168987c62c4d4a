/* Streams, which are threads, and events. */
#include "exec/cuda/emulator/machine/machine_internal.h"

#include "common/base/mem.h"
#include "exec/operators/random.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Small, so that an enqueueing thread must sometimes wait, as with CUDA. */
#define RING 16u

typedef struct work {
    void (*run)(const void *arguments);
    alignas(16) unsigned char arguments[EMULATOR_ARGUMENTS];
} work;

struct emulated_stream {
    rpexec_cuda_part part;
    uint32_t number;
    uint64_t performed;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    work ring[RING];
    uint32_t first;
    uint32_t count; /* including the work that is being performed */
    bool closing;
    bool of_queue;
    bool computes;
    atomic_uint records; /* records in the queue of events that have not happened */
};

typedef struct event {
    rpexec_cuda_part part;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t recorded; /* records that have been enqueued */
    uint64_t happened;
    double ms;
    uint32_t users; /* uses by streams, and by the maker */
} event;

static atomic_uint enqueued; /* work that streams have not yet performed */

const rpexec_cuda_part *emulator_part_of(const void *stream)
{
    return &((const emulated_stream *)stream)->part;
}

void emulator_stream_of_queue(void *stream, bool computes)
{
    emulated_stream *s = stream;
    pthread_mutex_lock(&s->lock);
    s->of_queue = true;
    s->computes |= computes;
    pthread_mutex_unlock(&s->lock);
}

/* ---- streams --------------------------------------------------------------------------------- */

static bool is_one(const rpexec_cuda_part *a, const rpexec_cuda_part *b)
{
    return a->context == b->context && a->device == b->device;
}

void emulator_delay(emulated_stream *s)
{
    const emulated_machine *machine = emulator_machine();
    bool late = !machine->late_beside || !s->of_queue;
    if (late && machine->delay_us != 0) {
        uint64_t bits = rpexec_random_bits(machine->seed, s->number, s->performed);
        /* Delays are rare, so that some streams fall behind by many ops. */
        if ((bits >> 60 & (machine->often ? 1 : 15)) == 0) {
            const struct timespec t = {.tv_nsec =
                                           (long)(bits % (1000 * (uint64_t)machine->delay_us))};
            nanosleep(&t, NULL);
        }
    }
}

static void *perform(void *context)
{
    emulated_stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->closing || s->count > 0) {
        if (s->count == 0) {
            pthread_cond_wait(&s->moved, &s->lock);
            continue;
        }
        work *w = &s->ring[s->first];
        pthread_mutex_unlock(&s->lock);
        emulator_delay(s);
        w->run(w->arguments);
        pthread_mutex_lock(&s->lock);
        atomic_fetch_sub(&enqueued, 1);
        s->performed++;
        s->first = (s->first + 1) % RING;
        if (s->count-- == RING || s->count == 0) {
            pthread_cond_broadcast(&s->moved);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int emulator_enqueue(emulated_stream *s, void (*run)(const void *arguments), const void *arguments,
                     size_t bytes)
{
    if (bytes > EMULATOR_ARGUMENTS) {
        return cudaErrorUnknown;
    }
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    pthread_mutex_lock(&s->lock);
    while (s->count == RING) {
        pthread_cond_wait(&s->moved, &s->lock);
    }
    work *w = &s->ring[(s->first + s->count) % RING];
    w->run = run;
    if (bytes > 0) {
        memcpy(w->arguments, arguments, bytes);
    }
    atomic_fetch_add(&enqueued, 1);
    if (s->count++ == 0) {
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int emulator_launch(void *stream, const emulated_work *w)
{
    emulated_stream *s = stream;
    if (!is_one(&s->part, emulator_here())) {
        return cudaErrorDeviceUninitialized;
    }
    return emulator_is_capturing() ? emulator_capture(s, w)
                                   : emulator_enqueue(s, w->run, w->arguments, w->bytes);
}

int emulator_stream_synchronize(void *stream)
{
    emulated_stream *s = stream;
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    pthread_mutex_lock(&s->lock);
    while (s->count > 0) {
        pthread_cond_wait(&s->moved, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int emulator_stream_create(const rpexec_cuda_part *part, void **stream_out)
{
    emulated_stream *s = NULL;
    if (rp_mem_resize(&s, sizeof *s) != RP_OK) {
        return 2;
    }
    *s = (emulated_stream){.part = *part, .number = emulator_count(EMULATED_STREAMS, 1)};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    if (pthread_create(&s->thread, NULL, perform, s) != 0) {
        rp_mem_release(&s);
        return 2;
    }
    emulator_count(EMULATED_LEFT, 1);
    *stream_out = s;
    return 0;
}

int emulator_stream_destroy(void *stream)
{
    emulated_stream *s = stream;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->moved);
    rp_mem_release(&s);
    emulator_count(EMULATED_LEFT, -1);
    return 0;
}

void emulator_wait_idle(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (atomic_load(&enqueued) != 0) {
        nanosleep(&pause, NULL);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct mark {
    event *event;
    uint64_t number;
    emulated_stream *stream; /* stream that records the event */
} mark;

int emulator_event_create(void **event_out)
{
    event *e = NULL;
    if (rp_mem_resize(&e, sizeof *e) != RP_OK) {
        return 2;
    }
    *e = (event){.part = *emulator_here(), .users = 1};
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->moved, NULL);
    emulator_count(EMULATED_LEFT, 1);
    *event_out = e;
    return 0;
}

/* Releases a use of the event. Called with the lock held. */
static void let_go(event *e)
{
    bool last = --e->users == 0;
    pthread_mutex_unlock(&e->lock);
    if (last) {
        pthread_mutex_destroy(&e->lock);
        pthread_cond_destroy(&e->moved);
        rp_mem_release(&e);
    }
}

/* The event stays until streams no longer use it. */
int emulator_event_destroy(void *handle)
{
    event *e = handle;
    pthread_mutex_lock(&e->lock);
    let_go(e);
    emulator_count(EMULATED_LEFT, -1);
    return 0;
}

static void happen(const void *arguments)
{
    const mark *m = arguments;
    struct timespec t;
    atomic_fetch_sub(&m->stream->records, 1);
    clock_gettime(CLOCK_MONOTONIC, &t);
    pthread_mutex_lock(&m->event->lock);
    m->event->happened = m->number;
    m->event->ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
    pthread_cond_broadcast(&m->event->moved);
    let_go(m->event);
}

static void await(const void *arguments)
{
    const mark *m = arguments;
    pthread_mutex_lock(&m->event->lock);
    while (m->event->happened < m->number) {
        pthread_cond_wait(&m->event->moved, &m->event->lock);
    }
    let_go(m->event);
}

int emulator_event_record(void *handle, void *stream)
{
    event *e = handle;
    emulated_stream *s = stream;
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (!is_one(&e->part, &s->part)) {
        return cudaErrorInvalidResourceHandle;
    }
    if (!is_one(&s->part, emulator_here())) {
        return cudaErrorDeviceUninitialized;
    }
    pthread_mutex_lock(&e->lock);
    const mark m = {.event = e, .number = ++e->recorded, .stream = s};
    e->users++;
    pthread_mutex_unlock(&e->lock);
    uint32_t records = atomic_fetch_add(&s->records, 1) + 1;
    if (s->computes) {
        emulator_count_most(EMULATED_RECORDS, records);
    }
    return emulator_enqueue(stream, happen, &m, sizeof m);
}

int emulator_stream_wait(void *stream, void *handle)
{
    event *e = handle;
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    pthread_mutex_lock(&e->lock);
    const mark m = {.event = e, .number = e->recorded};
    e->users += m.number != 0;
    pthread_mutex_unlock(&e->lock);
    /* CUDA would not wait at all for an event without records. */
    return m.number != 0 ? emulator_enqueue(stream, await, &m, sizeof m) : cudaErrorUnknown;
}

int emulator_event_query(void *handle)
{
    event *e = handle;
    if (emulator_machine()->asked != NULL) {
        emulator_machine()->asked();
    }
    pthread_mutex_lock(&e->lock);
    bool happened = e->happened == e->recorded;
    pthread_mutex_unlock(&e->lock);
    return happened ? 0 : cudaErrorNotReady;
}

int emulator_event_synchronize(void *handle)
{
    event *e = handle;
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    pthread_mutex_lock(&e->lock);
    bool known = e->recorded != 0;
    while (e->happened < e->recorded) {
        pthread_cond_wait(&e->moved, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return known ? 0 : cudaErrorUnknown;
}

int emulator_event_elapsed(float *ms_out, void *from, void *to)
{
    event *a = from;
    event *b = to;
    if (emulator_event_query(from) != 0 || emulator_event_query(to) != 0) {
        return cudaErrorNotReady;
    }
    *ms_out = (float)(b->ms - a->ms);
    return a->recorded != 0 && b->recorded != 0 ? 0 : cudaErrorInvalidResourceHandle;
}
