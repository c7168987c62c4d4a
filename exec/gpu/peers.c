/* Trials of peer access before it is relied on: patched drivers report it for GPUs that do not have
 * it, and copies then write other bytes or never end (tinygrad/open-gpu-kernel-modules #29). In
 * each pair both GPUs fetch a pattern from the other GPU and send it a pattern. */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes of a trial's copy: more than a page, as large as a piece of other copies. */
#define PATTERN_BYTES (UINT64_C(2) << 20)

/* Longest time of a trial's copy, on any link. */
#define WAIT_MS 10000u

#define ASK_NS 100000

/* A trial's resources on a device. */
typedef struct side {
    void *memory;
    void *stream;
    void *event;
} side;

struct rpexec_gpu_peers {
    side *sides;         /* [gpu] */
    unsigned char *sent; /* on the host */
    unsigned char *came;
    const char *call; /* call that has failed */
    int error;
};

typedef enum verdict { RIGHT, WRONG, HANGS, FAILS } verdict;

/* ---- resources ------------------------------------------------------------------------------- */

static bool went(rpexec_gpu_peers *p, int error, const char *call)
{
    if (error != 0 && p->error == 0) {
        p->error = error;
        p->call = call;
    }
    return error == 0;
}

static bool enter(const rpexec_devices *d, rpexec_gpu_peers *p, uint32_t gpu)
{
    const rpexec_cuda_part whole = {.device = d->gpus[gpu].part.device};
    return went(p, d->calls->enter(&whole), "cudaSetDevice");
}

static bool take_resources(const rpexec_devices *d, rpexec_gpu_peers *p)
{
    const rpexec_cuda_calls *c = d->calls;
    void *host[2] = {NULL, NULL};
    bool well = went(p, c->host_take(PATTERN_BYTES, &host[0]), "cudaHostAlloc");
    p->sent = host[0];
    well = well && went(p, c->host_take(PATTERN_BYTES, &host[1]), "cudaHostAlloc");
    p->came = host[1];
    for (uint32_t i = 0; well && i < d->count; i++) {
        const rpexec_cuda_part whole = {.device = d->gpus[i].part.device};
        side *s = &p->sides[i];
        well = enter(d, p, i) && went(p, c->memory_take(PATTERN_BYTES, &s->memory), "cudaMalloc") &&
               went(p, c->stream_create(&whole, &s->stream), "cudaStreamCreateWithFlags") &&
               went(p, c->event_create(&s->event), "cudaEventCreateWithFlags");
    }
    return well;
}

static void give_resources(const rpexec_devices *d, rpexec_gpu_peers *p)
{
    const rpexec_cuda_calls *c = d->calls;
    for (uint32_t i = 0; i < d->count; i++) {
        side *s = &p->sides[i];
        (void)enter(d, p, i);
        if (s->stream != NULL) {
            (void)c->stream_synchronize(s->stream);
            (void)c->stream_destroy(s->stream);
        }
        if (s->event != NULL) {
            (void)c->event_destroy(s->event);
        }
        if (s->memory != NULL) {
            (void)c->memory_give(s->memory);
        }
    }
    if (p->sent != NULL) {
        (void)c->host_give(p->sent);
    }
    if (p->came != NULL) {
        (void)c->host_give(p->came);
    }
}

bool rpexec_gpu_close_peers(rpexec_devices *d)
{
    if (d->peers == NULL) {
        return true;
    }
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->calls->event_query(d->peers->sides[i].event) == d->calls->not_ready) {
            return false; /* it still hangs */
        }
    }
    give_resources(d, d->peers);
    d->peers = NULL;
    return true;
}

/* ---- one pair -------------------------------------------------------------------------------- */

/* Patterns differ for each copy, so that an earlier copy's bytes are not taken for it. */
static void fill_pattern(unsigned char *pattern, uint64_t number)
{
    for (uint64_t i = 0; i < PATTERN_BYTES; i += sizeof number) {
        uint64_t value =
            (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1b54a32d192ed03);
        value ^= value >> 29;
        memcpy(pattern + i, &value, sizeof value);
    }
}

static bool copy_pattern(const rpexec_devices *d, rpexec_gpu_peers *p, uint32_t gpu, void *to,
                         const void *from)
{
    return enter(d, p, gpu) &&
           went(p, d->calls->copy(to, from, PATTERN_BYTES, p->sides[gpu].stream),
                "cudaMemcpyAsync");
}

/* Work of `second` from now on waits for all work that `first` has been given. */
static bool order_streams(const rpexec_devices *d, rpexec_gpu_peers *p, uint32_t first,
                          uint32_t second)
{
    const rpexec_cuda_calls *c = d->calls;
    return went(p, c->event_record(p->sides[first].event, p->sides[first].stream),
                "cudaEventRecord") &&
           went(p, c->stream_wait(p->sides[second].stream, p->sides[first].event),
                "cudaStreamWaitEvent");
}

static verdict wait_for(const rpexec_devices *d, rpexec_gpu_peers *p, uint32_t gpu)
{
    const struct timespec pause = {.tv_nsec = ASK_NS};
    int64_t wait_ms = d->config.peer_wait_ms != 0 ? d->config.peer_wait_ms : WAIT_MS;
    int64_t until = rpexec_driver_now_ns() + wait_ms * 1000000;
    int error = d->calls->not_ready;
    while (error == d->calls->not_ready && rpexec_driver_now_ns() < until) {
        nanosleep(&pause, NULL);
        error = d->calls->event_query(p->sides[gpu].event);
    }
    return error == d->calls->not_ready ? HANGS
           : went(p, error, "cudaEventQuery")
               ? memcmp(p->sent, p->came, PATTERN_BYTES) == 0 ? RIGHT : WRONG
               : FAILS;
}

/* Tries a pattern from `from` to `to`, copied by `gpu`, which is either of them. */
static verdict try_way(const rpexec_devices *d, rpexec_gpu_peers *p, uint32_t from, uint32_t to,
                       uint32_t gpu)
{
    fill_pattern(p->sent, 2 * ((uint64_t)from * d->count + to) + (gpu == from));
    memset(p->came, 0, PATTERN_BYTES);
    bool well =
        copy_pattern(d, p, from, p->sides[from].memory, p->sent) &&
        (gpu == from || order_streams(d, p, from, gpu)) &&
        copy_pattern(d, p, gpu, p->sides[to].memory, p->sides[from].memory) &&
        (gpu == to || order_streams(d, p, gpu, to)) &&
        copy_pattern(d, p, to, p->came, p->sides[to].memory) &&
        went(p, d->calls->event_record(p->sides[to].event, p->sides[to].stream), "cudaEventRecord");
    return well ? wait_for(d, p, to) : FAILS;
}

static verdict try_pair(const rpexec_devices *d, rpexec_gpu_peers *p, uint32_t one, uint32_t other)
{
    verdict found = RIGHT;
    for (uint32_t i = 0; i < 4 && found == RIGHT; i++) {
        uint32_t gpu = i % 2 == 0 ? one : other;
        uint32_t peer = i % 2 == 0 ? other : one;
        if (d->reached[gpu * d->count + peer]) {
            found = i < 2 ? try_way(d, p, peer, gpu, gpu) : try_way(d, p, gpu, peer, gpu);
        }
    }
    return found;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void report(const rpexec_gpu_peers *p, const rpexec_devices *d, verdict found, uint32_t one,
                   uint32_t other, uint32_t bad)
{
    rp_log_warning(
        "peer access: copies between GPU %" PRIu32 " and GPU %" PRIu32 " %s%s%s; they go "
        "over host memory, and so do those of %" PRIu32 " more pairs of GPUs",
        one, other,
        found == WRONG   ? "come out wrong"
        : found == HANGS ? "do not end"
                         : p->call,
        found == FAILS ? ": " : "", found == FAILS ? d->calls->text(p->error) : "", bad - 1);
    (void)setenv("NCCL_P2P_DISABLE", "1", 0); /* NCCL would do the same copies */
}

static void try_all(rpexec_devices *d, rpexec_gpu_peers *p)
{
    verdict first = RIGHT;
    uint32_t pair[2] = {0, 0};
    uint32_t bad = 0;
    bool hangs = false;
    for (uint32_t i = 0; i < d->count; i++) {
        for (uint32_t k = i + 1; k < d->count; k++) {
            bool *reached[2] = {&d->reached[i * d->count + k], &d->reached[k * d->count + i]};
            if (!*reached[0] && !*reached[1]) {
                continue;
            }
            verdict found = hangs ? HANGS : try_pair(d, p, i, k); /* its streams do nothing more */
            hangs |= found == HANGS;
            if (found == RIGHT) {
                continue;
            }
            *reached[0] = *reached[1] = false;
            if (bad++ == 0) {
                first = found;
                pair[0] = i;
                pair[1] = k;
            }
        }
    }
    if (first != RIGHT) {
        report(p, d, first, pair[0], pair[1], bad);
    }
    if (hangs) {
        d->peers = p; /* copies are under way */
    } else {
        give_resources(d, p);
    }
}

rp_status rpexec_gpu_find_peers(rpexec_devices *d)
{
    bool any = false;
    for (uint32_t i = 0; i < d->count; i++) {
        for (uint32_t k = 0; k < d->count; k++) {
            bool same = i == k || d->config.is_virtual;
            bool direct = d->config.transport != RPEXEC_TRANSPORT_STAGED;
            d->reached[i * d->count + k] =
                i == k || (direct && (same || d->calls->reach((int)i, (int)k)));
            any |= !same && d->reached[i * d->count + k];
        }
    }
    if (!any) {
        return RP_OK;
    }
    rpexec_gpu_peers *p = NULL;
    RP_TRY(rp_arena_alloc(d->arena, 1, sizeof *p, &p));
    RP_TRY(rp_arena_alloc(d->arena, d->count, sizeof *p->sides, &p->sides));
    if (!take_resources(d, p)) {
        give_resources(d, p);
        return rpexec_gpu_check(d, p->error, p->call);
    }
    try_all(d, p);
    return RP_OK;
}
