/* The fake's streams, which are threads, and events. */
#include "tests/support/fake/cuda_internal.h"

#include "exec/operators/random.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Small, so that a thread that enqueues has to wait at times, as with CUDA. */
#define RING 16u
#define ARGUMENT_BYTES 320u

typedef struct work {
    void (*run)(const void *arguments);
    alignas(16) unsigned char arguments[ARGUMENT_BYTES];
} work;

struct rp_fake_stream {
    rpexec_cuda_part part;
    uint32_t number;
    uint64_t performed;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    work ring[RING];
    uint32_t first;
    uint32_t count; /* with the one that is being performed */
    bool closing;
    bool of_queue;
    bool computes;
    atomic_uint records; /* of events that have not happened */
};

typedef struct event {
    rpexec_cuda_part part;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t recorded; /* records that have been enqueued */
    uint64_t happened;
    double ms;
} event;

static atomic_uint streams;
static atomic_uint most_records;
static atomic_uint ranges;
static atomic_uint enqueued; /* what streams have not performed */

const rpexec_cuda_part *rp_fake_part_of(const rp_fake_stream *s)
{
    return &s->part;
}

void rp_fake_restart_streams(void)
{
    atomic_store(&streams, 0);
    atomic_store(&most_records, 0);
    atomic_store(&ranges, 0);
}

void rp_fake_stream_of_queue(void *stream, bool computes)
{
    rp_fake_stream *s = stream;
    pthread_mutex_lock(&s->lock);
    s->of_queue = true;
    s->computes |= computes;
    pthread_mutex_unlock(&s->lock);
}

uint32_t rp_fake_cuda_most_records(void)
{
    return atomic_load(&most_records);
}

/* ---- streams ----------------------------------------------------------------------------------
 */

static bool is_here(const rpexec_cuda_part *part)
{
    return part->context == rp_fake_here()->context && part->device == rp_fake_here()->device;
}

void rp_fake_delay(rp_fake_stream *s)
{
    bool late = !rp_fake_machine()->late_beside || !s->of_queue;
    if (late && rp_fake_machine()->delay_us != 0) {
        uint64_t bits = rpexec_random_bits(rp_fake_machine()->seed, s->number, s->performed);
        /* Rarely: some fall behind by many. */
        if ((bits >> 60 & (rp_fake_machine()->often ? 1 : 15)) == 0) {
            const struct timespec t = {
                .tv_nsec = (long)(bits % (1000 * (uint64_t)rp_fake_machine()->delay_us))};
            nanosleep(&t, NULL);
        }
    }
}

static void *perform(void *context)
{
    rp_fake_stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->closing || s->count > 0) {
        if (s->count == 0) {
            pthread_cond_wait(&s->moved, &s->lock);
            continue;
        }
        work *w = &s->ring[s->first];
        pthread_mutex_unlock(&s->lock);
        rp_fake_delay(s);
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

int rp_fake_enqueue(rp_fake_stream *s, void (*run)(const void *arguments), const void *arguments,
                    size_t bytes)
{
    if (bytes > ARGUMENT_BYTES) {
        return ERROR_MISUSE;
    }
    if (rp_fake_is_capturing()) {
        rp_fake_invalidate();
        return ERROR_CAPTURE;
    }
    if (!is_here(&s->part)) {
        return ERROR_CONTEXT;
    }
    pthread_mutex_lock(&s->lock);
    while (s->count == RING) {
        pthread_cond_wait(&s->moved, &s->lock);
    }
    work *w = &s->ring[(s->first + s->count) % RING];
    w->run = run;
    memcpy(w->arguments, arguments, bytes);
    atomic_fetch_add(&enqueued, 1);
    if (s->count++ == 0) {
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int rp_fake_enqueue_operator(rp_fake_stream *s, void (*run)(const void *arguments),
                             const rp_fake_operator *o)
{
    if (rp_fake_is_capturing()) {
        return is_here(&s->part) ? rp_fake_capture_operator(s, run, o) : ERROR_CONTEXT;
    }
    rp_fake_count_operator();
    return rp_fake_enqueue(s, run, o, sizeof *o);
}

int rp_fake_synchronize(rp_fake_stream *s)
{
    if (rp_fake_is_capturing()) {
        rp_fake_invalidate();
        return ERROR_CAPTURE;
    }
    pthread_mutex_lock(&s->lock);
    while (s->count > 0) {
        pthread_cond_wait(&s->moved, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int rp_fake_stream_create(const rpexec_cuda_part *part, void **stream_out)
{
    rp_fake_stream *s = NULL;
    if (rp_mem_resize(&s, sizeof *s) != RP_OK) {
        return 2;
    }
    *s = (rp_fake_stream){.part = *part, .number = atomic_fetch_add(&streams, 1)};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    if (pthread_create(&s->thread, NULL, perform, s) != 0) {
        rp_mem_release(&s);
        return 2;
    }
    rp_fake_count(1);
    *stream_out = s;
    return 0;
}

int rp_fake_stream_destroy(void *stream)
{
    rp_fake_stream *s = stream;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->moved);
    rp_mem_release(&s);
    rp_fake_count(-1);
    return 0;
}

void rp_fake_wait_idle(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (atomic_load(&enqueued) != 0) {
        nanosleep(&pause, NULL);
    }
}

int rp_fake_stream_synchronize(void *stream)
{
    return rp_fake_synchronize(stream);
}

/* ---- ranges -----------------------------------------------------------------------------------
 */

static _Thread_local uint32_t depth;

void rp_fake_range_begin(const char *name)
{
    bool well = depth++ == 0 && name[0] != '\0';
    atomic_fetch_add(&ranges, well ? 1 : 1000000);
}

void rp_fake_range_end(void)
{
    depth--;
}

uint32_t rp_fake_cuda_ranges(void)
{
    return atomic_load(&ranges);
}

/* ---- events -----------------------------------------------------------------------------------
 */

typedef struct mark {
    event *event;
    uint64_t number;
    rp_fake_stream *stream; /* that records it */
} mark;

int rp_fake_event_create(void **event_out)
{
    event *e = NULL;
    if (rp_mem_resize(&e, sizeof *e) != RP_OK) {
        return 2;
    }
    *e = (event){.part = *rp_fake_here()};
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->moved, NULL);
    rp_fake_count(1);
    *event_out = e;
    return 0;
}

int rp_fake_event_destroy(void *handle)
{
    event *e = handle;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->moved);
    rp_mem_release(&e);
    rp_fake_count(-1);
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
    pthread_mutex_unlock(&m->event->lock);
}

static void await(const void *arguments)
{
    const mark *m = arguments;
    pthread_mutex_lock(&m->event->lock);
    while (m->event->happened < m->number) {
        pthread_cond_wait(&m->event->moved, &m->event->lock);
    }
    pthread_mutex_unlock(&m->event->lock);
}

static void count_record(rp_fake_stream *s)
{
    uint32_t now = atomic_fetch_add(&s->records, 1) + 1;
    uint32_t most = atomic_load(&most_records);
    while (s->computes && now > most && !atomic_compare_exchange_weak(&most_records, &most, now)) {
    }
}

int rp_fake_event_record(void *handle, void *stream)
{
    event *e = handle;
    rp_fake_stream *s = stream;
    if (rp_fake_is_capturing()) {
        rp_fake_invalidate();
        return ERROR_CAPTURE;
    }
    if (e->part.device != s->part.device || e->part.context != s->part.context) {
        return ERROR_HANDLE;
    }
    pthread_mutex_lock(&e->lock);
    const mark m = {.event = e, .number = ++e->recorded, .stream = s};
    pthread_mutex_unlock(&e->lock);
    count_record(s);
    return rp_fake_enqueue(stream, happen, &m, sizeof m);
}

int rp_fake_stream_wait(void *stream, void *handle)
{
    event *e = handle;
    pthread_mutex_lock(&e->lock);
    const mark m = {.event = e, .number = e->recorded};
    pthread_mutex_unlock(&e->lock);
    if (m.number == 0) {
        return ERROR_MISUSE; /* CUDA would not wait at all */
    }
    /* A wait is not bound to the current context as work is. */
    rpexec_cuda_part before = *rp_fake_here();
    *rp_fake_here() = ((const rp_fake_stream *)stream)->part;
    int error = rp_fake_enqueue(stream, await, &m, sizeof m);
    *rp_fake_here() = before;
    return error;
}

int rp_fake_event_query(void *handle)
{
    event *e = handle;
    if (rp_fake_machine()->asked != NULL) {
        rp_fake_machine()->asked();
    }
    pthread_mutex_lock(&e->lock);
    bool happened = e->happened == e->recorded;
    pthread_mutex_unlock(&e->lock);
    return happened ? 0 : ERROR_NOT_READY;
}

int rp_fake_event_synchronize(void *handle)
{
    event *e = handle;
    if (rp_fake_is_capturing()) {
        rp_fake_invalidate();
        return ERROR_CAPTURE;
    }
    pthread_mutex_lock(&e->lock);
    bool known = e->recorded != 0;
    while (e->happened < e->recorded) {
        pthread_cond_wait(&e->moved, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return known ? 0 : ERROR_MISUSE;
}

int rp_fake_event_elapsed(float *ms_out, void *from, void *to)
{
    event *a = from;
    event *b = to;
    if (rp_fake_event_query(from) != 0 || rp_fake_event_query(to) != 0) {
        return ERROR_NOT_READY;
    }
    *ms_out = (float)(b->ms - a->ms);
    return a->recorded != 0 && b->recorded != 0 ? 0 : ERROR_HANDLE;
}
