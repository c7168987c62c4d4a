/* NCCL: a kernel per communicator and group, which runs in the machine's streams.
 *
 * Kernels of a communicator run one after the other in the order of enqueueing; calls of running
 * kernels find each other as in the library: collectives by their number, messages by their number
 * from a rank to another. Results are written to each rank's memory by its own stream. Misuse that
 * gives wrong data or a hang with NCCL is an error here if it can be detected, and hangs otherwise:
 * collectives or sizes that differ between ranks, a communicator in two threads at a time, memory
 * of another device, ranges that overlap in another way than in-place calls may. */
#include "exec/cuda/emulator/machine/nccl_internal.h"

#include "common/base/mem.h"
#include "exec/operators/random.h"

#include <string.h>
#include <time.h>

static _Thread_local struct {
    bool open;
    int error;
    uint32_t count;
    uint32_t room;
    emulated_nccl_call *calls;
} group;

static void late(uint64_t what, uint64_t which)
{
    const emulated_machine *machine = emulator_machine();
    uint64_t bits = rpexec_random_bits(machine->seed + 977, what, which);
    if (machine->delay_us != 0 && (bits >> 60 & 3) == 0) {
        const struct timespec t = {.tv_nsec = (long)(bits % (1000 * (uint64_t)machine->delay_us))};
        nanosleep(&t, NULL);
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static bool all_done(const emulated_nccl_kernel *k)
{
    bool done = true;
    for (uint32_t i = 0; i < k->count; i++) {
        done &= k->calls[i].done;
    }
    return done;
}

static void let_go(emulated_nccl_clique *q)
{
    bool last = q->open == 0 && q->kernels == 0;
    pthread_mutex_unlock(&q->lock);
    if (last) {
        pthread_cond_destroy(&q->moved);
        pthread_mutex_destroy(&q->lock);
        rp_mem_release(&q);
    }
}

static void land(emulated_nccl_kernel *k, bool well)
{
    for (uint32_t i = 0; i < k->count; i++) {
        emulated_nccl_call *c = &k->calls[i];
        if (well && c->result != NULL && c->to != NULL) {
            memcpy(c->to, c->result, c->result_bytes);
        }
        rp_mem_release(&c->result);
    }
}

static void run_kernel(const void *arguments)
{
    emulated_nccl_kernel *k = NULL;
    memcpy(&k, arguments, sizeof k);
    emulated_nccl_member *m = k->with;
    emulated_nccl_clique *q = m->clique;
    pthread_mutex_lock(&q->lock);
    while (!m->aborted && (m->performed != k->number || k->lost)) {
        pthread_cond_wait(&q->moved, &q->lock);
    }
    if (!m->aborted) {
        m->running = k;
        emulated_nccl_read_messages(k);
        emulated_nccl_go_on(q);
    }
    while (!m->aborted && !all_done(k)) {
        pthread_cond_wait(&q->moved, &q->lock);
    }
    bool well = !m->aborted;
    m->running = NULL;
    pthread_mutex_unlock(&q->lock);
    late(100 + m->rank, k->number);
    land(k, well);
    pthread_mutex_lock(&q->lock);
    m->performed++;
    q->kernels--;
    pthread_cond_broadcast(&q->moved);
    rp_mem_release(&k->calls);
    rp_mem_release(&k);
    let_go(q);
}

static int enqueue_kernel(emulated_nccl_member *m, void *stream)
{
    emulated_nccl_kernel *k = NULL;
    if (rp_mem_resize(&k, sizeof *k) != RP_OK) {
        return EMULATED_NCCL_ERROR_SYSTEM;
    }
    *k = (emulated_nccl_kernel){.with = m};
    if (rp_mem_resize(&k->calls, group.count * sizeof *k->calls) != RP_OK) {
        return EMULATED_NCCL_ERROR_SYSTEM;
    }
    for (uint32_t i = 0; i < group.count; i++) {
        if (group.calls[i].with == m) {
            k->calls[k->count++] = group.calls[i];
        }
    }
    uint32_t number = emulator_count(EMULATED_KERNELS, 1) + 1;
    pthread_mutex_lock(&m->clique->lock);
    k->number = m->enqueued++;
    k->lost = number == emulator_machine()->nccl_lose_at;
    if (number == emulator_machine()->nccl_error_at) {
        k->lost = true;
        m->clique->error = EMULATED_NCCL_ERROR_REMOTE;
    }
    m->clique->kernels++;
    pthread_mutex_unlock(&m->clique->lock);
    *emulator_here() = *emulator_part_of(stream); /* it stays current: NCCL promises no other */
    return emulator_enqueue(stream, run_kernel, &k, sizeof k);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int group_begin(void)
{
    int error = group.open ? EMULATED_NCCL_ERROR_USAGE : 0;
    group.open = true;
    group.error = 0;
    group.count = 0;
    return error;
}

/* All calls of a communicator in a group must name the same stream here. */
static int check_streams(void)
{
    for (uint32_t i = 0; i < group.count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (group.calls[i].with == group.calls[k].with &&
                group.calls[i].stream != group.calls[k].stream) {
                return EMULATED_NCCL_ERROR_USAGE;
            }
        }
    }
    return 0;
}

static int group_end(void)
{
    uint32_t number = emulator_count(EMULATED_GROUPS, 1) + 1;
    int error = !group.open ? EMULATED_NCCL_ERROR_USAGE : group.error;
    error = error == 0 ? check_streams() : error;
    error = error == 0 && number == emulator_machine()->nccl_fail_at ? EMULATED_NCCL_ERROR_SYSTEM
                                                                     : error;
    for (uint32_t i = 0; error == 0 && i < group.count; i++) {
        emulated_nccl_member *m = group.calls[i].with;
        bool first = true;
        for (uint32_t k = 0; k < i; k++) {
            first &= group.calls[k].with != m;
        }
        if (first) {
            late(number, i);
            error = enqueue_kernel(m, group.calls[i].stream);
        }
    }
    for (uint32_t i = 0; i < group.count; i++) {
        atomic_store(&group.calls[i].with->user, 0);
    }
    rp_mem_release(&group.calls);
    group.calls = NULL;
    group.room = group.count = 0;
    group.open = false;
    return error;
}

static bool is_own(const emulated_nccl_member *m, const void *at, uint64_t bytes)
{
    const unsigned char *last = (const unsigned char *)at + (bytes == 0 ? 0 : bytes - 1);
    return emulator_owner(at) == m->device && emulator_owner(last) == m->device;
}

/* True if ranges overlap in another way than those of in-place calls. */
static bool overlaps(const emulated_nccl_call *c, uint64_t from_bytes, uint64_t to_bytes,
                     uint64_t offset_from, uint64_t offset_to)
{
    const unsigned char *from = c->from;
    const unsigned char *to = c->to;
    bool apart = from + from_bytes <= to || to + to_bytes <= from;
    return !apart && from + offset_from != to + offset_to;
}

static bool is_valid(const emulated_nccl_call *c)
{
    const emulated_nccl_member *m = c->with;
    uint64_t share = emulated_nccl_bytes(c, c->count);
    bool gathers = c->kind == EMULATED_NCCL_ALL_GATHER;
    bool scatters = c->kind == EMULATED_NCCL_REDUCE_SCATTER;
    bool reads = c->kind != EMULATED_NCCL_RECEIVE &&
                 (c->kind != EMULATED_NCCL_BROADCAST || m->rank == c->root);
    bool writes =
        c->kind != EMULATED_NCCL_SEND && (c->kind != EMULATED_NCCL_REDUCE || m->rank == c->root);
    uint64_t from_bytes = scatters ? m->clique->ranks * share : share;
    uint64_t to_bytes = gathers ? m->clique->ranks * share : share;
    uint64_t own = m->rank * share;
    return c->root < m->clique->ranks && (!reads || is_own(m, c->from, from_bytes)) &&
           (!writes || is_own(m, c->to, to_bytes)) &&
           (!reads || !writes ||
            !overlaps(c, from_bytes, to_bytes, scatters ? own : 0, gathers ? own : 0)) &&
           emulator_part_of(c->stream)->device == m->device;
}

static int note(const emulated_nccl_call *c)
{
    static _Thread_local char me;
    uintptr_t nobody = 0;
    uintptr_t self = (uintptr_t)&me;
    int error = !group.open || c->count == 0 || !is_valid(c) ? EMULATED_NCCL_ERROR_ARGUMENT : 0;
    if (!atomic_compare_exchange_strong(&c->with->user, &nobody, self) && nobody != self) {
        error = EMULATED_NCCL_ERROR_USAGE; /* another thread uses it */
    }
    if (error == 0 && group.count == group.room) {
        group.room = group.room == 0 ? 16 : 2 * group.room;
        error = rp_mem_resize(&group.calls, group.room * sizeof *group.calls) == RP_OK
                    ? 0
                    : EMULATED_NCCL_ERROR_SYSTEM;
    }
    if (error == 0) {
        group.calls[group.count++] = *c;
    }
    group.error = group.error != 0 ? group.error : error;
    return error;
}

/* Collectives have a count, a type and mostly a root; messages have bytes and a peer. */
#define CALL(KIND, DTYPE, FROM, TO, COUNT, ROOT)                                                   \
    note(&(emulated_nccl_call){.kind = (KIND),                                                     \
                               .dtype = (DTYPE),                                                   \
                               .from = (FROM),                                                     \
                               .to = (TO),                                                         \
                               .count = (COUNT),                                                   \
                               .root = (ROOT),                                                     \
                               .with = with,                                                       \
                               .stream = stream})

static int all_gather(const void *from, void *to, uint64_t count, rp_dtype dtype, void *with,
                      void *stream)
{
    return CALL(EMULATED_NCCL_ALL_GATHER, dtype, from, to, count, 0);
}

static int reduce_scatter(const void *from, void *to, uint64_t count, rp_dtype dtype, void *with,
                          void *stream)
{
    return CALL(EMULATED_NCCL_REDUCE_SCATTER, dtype, from, to, count, 0);
}

static int all_reduce(const void *from, void *to, uint64_t count, rp_dtype dtype, void *with,
                      void *stream)
{
    return CALL(EMULATED_NCCL_ALL_REDUCE, dtype, from, to, count, 0);
}

static int broadcast(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                     void *with, void *stream)
{
    return CALL(EMULATED_NCCL_BROADCAST, dtype, from, to, count, root);
}

static int reduce(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                  void *with, void *stream)
{
    return CALL(EMULATED_NCCL_REDUCE, dtype, from, to, count, root);
}

static int send(const void *from, uint64_t bytes, uint32_t to_rank, void *with, void *stream)
{
    return CALL(EMULATED_NCCL_SEND, 0, from, NULL, bytes, to_rank);
}

static int receive(void *to, uint64_t bytes, uint32_t from_rank, void *with, void *stream)
{
    return CALL(EMULATED_NCCL_RECEIVE, 0, NULL, to, bytes, from_rank);
}

/* ---- communicators --------------------------------------------------------------------------- */

static bool load(const char **version_out, const char **why_out)
{
    *version_out = "2.99.0";
    *why_out = "the machine has no NCCL";
    return emulator_machine()->nccl;
}

static int open_all(uint32_t count, const int *devices, void **communicators_out)
{
    emulated_nccl_clique *q = NULL;
    if (emulator_machine()->nccl_refuses || count > EMULATED_NCCL_MOST_RANKS ||
        rp_mem_resize(&q, sizeof *q) != RP_OK) {
        return EMULATED_NCCL_ERROR_SYSTEM;
    }
    memset(q, 0, sizeof *q);
    q->ranks = q->open = count;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->moved, NULL);
    for (uint32_t i = 0; i < count; i++) {
        q->members[i].clique = q;
        q->members[i].rank = i;
        q->members[i].device = devices[i];
        communicators_out[i] = &q->members[i];
        emulator_count(EMULATED_LEFT, 1);
    }
    return 0;
}

static void leave(emulated_nccl_member *m)
{
    m->clique->open--;
    emulator_count(EMULATED_LEFT, -1);
    let_go(m->clique);
}

static void close_one(void *with)
{
    emulated_nccl_member *m = with;
    pthread_mutex_lock(&m->clique->lock);
    while (m->performed != m->enqueued) {
        pthread_cond_wait(&m->clique->moved, &m->clique->lock);
    }
    leave(m);
}

static void abort_one(void *with)
{
    emulated_nccl_member *m = with;
    pthread_mutex_lock(&m->clique->lock);
    m->aborted = true;
    pthread_cond_broadcast(&m->clique->moved);
    leave(m);
}

static int async_error(void *with)
{
    emulated_nccl_member *m = with;
    pthread_mutex_lock(&m->clique->lock);
    int error = m->clique->error;
    pthread_mutex_unlock(&m->clique->lock);
    return error;
}

const char *emulator_nccl_text(int error)
{
    static const char *const texts[] = {"success",        "unhandled cuda error", "system error",
                                        "internal error", "invalid argument",     "invalid usage",
                                        "remote error"};
    size_t number = (size_t)(error - RPEXEC_NCCL_ERRORS);
    return number < sizeof texts / sizeof *texts ? texts[number] : "another error of NCCL";
}

const rpexec_nccl_calls emulator_nccl = {
    .load = load,
    .open = open_all,
    .close = close_one,
    .abort = abort_one,
    .async_error = async_error,
    .group_begin = group_begin,
    .group_end = group_end,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .reduce = reduce,
    .send = send,
    .receive = receive,
};
