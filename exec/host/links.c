#include "exec/host/links.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define PS_PER_NS 1000

/* A copy engine's turns, as numbered tickets. */
typedef struct engine {
    uint32_t given;
    uint32_t serving;
} engine;

struct rpexec_links {
    const rp_program *program;
    rp_network *network;
    rp_routes routes;
    uint32_t *peer_routes; /* [from GPU][to GPU] */
    engine *engines;       /* [rp_copy_engine] */
    int64_t latency_ns;    /* latency of every copy with an engine */
    pthread_mutex_t lock;  /* guards all of it */
    pthread_cond_t changed;
    int64_t begin_ns;
    bool stopped;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static rp_status find_peer_routes(rpexec_links *links, const rp_machine *machine, rp_arena *arena)
{
    uint32_t gpus = links->program->gpu_count;
    RP_TRY(rp_arena_alloc(arena, (size_t)gpus * gpus, sizeof(uint32_t), &links->peer_routes));
    for (uint32_t from = 0; from < gpus; from++) {
        for (uint32_t to = 0; to < gpus; to++) {
            if (from != to) {
                RP_TRY(rp_machine_peer_route(links->program, machine, from, to, links->network,
                                             &links->peer_routes[from * gpus + to]));
            }
        }
    }
    return RP_OK;
}

rp_status rpexec_links_open(const rp_program *program, const rp_machine *machine, rp_arena *arena,
                            rpexec_links **links_out)
{
    rpexec_links *links = NULL;
    *links_out = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *links, &links));
    *links = (rpexec_links){.program = program,
                            .latency_ns = machine->copy_latency_ps / PS_PER_NS,
                            .begin_ns = now_ns()};
    RP_TRY(rp_arena_alloc(arena, (size_t)RP_ENGINES_PER_GPU * program->gpu_count, sizeof(engine),
                          &links->engines));
    RP_TRY(rp_machine_network(program, machine, arena, &links->routes, &links->network, NULL));
    rp_status status = find_peer_routes(links, machine, arena);
    if (status != RP_OK) {
        rp_network_destroy(links->network);
        return status;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&links->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&links->lock, NULL);
    *links_out = links;
    return RP_OK;
}

void rpexec_links_close(rpexec_links *links)
{
    if (links != NULL) {
        rp_network_destroy(links->network);
        pthread_cond_destroy(&links->changed);
        pthread_mutex_destroy(&links->lock);
    }
}

void rpexec_links_stop(rpexec_links *links)
{
    if (links != NULL) {
        pthread_mutex_lock(&links->lock);
        links->stopped = true;
        pthread_cond_broadcast(&links->changed);
        pthread_mutex_unlock(&links->lock);
    }
}

/* ---- all that follows: the lock is held ------------------------------------------------------ */

/* Marks the flows that have ended by now. A flow's tag is the address of its copy's flag. */
static void settle(rpexec_links *links, int64_t time_ns)
{
    rp_completion completion;
    bool any = false;
    (void)rp_network_next(links->network); /* finds flows that end at once */
    while (rp_network_pop(links->network, PS_PER_NS * (time_ns - links->begin_ns), &completion)) {
        *(bool *)(uintptr_t)completion.tag = true;
        any = true;
    }
    if (any) {
        pthread_cond_broadcast(&links->changed);
    }
}

/* Waits until `time_ns`, or until somebody signals a change. */
static void wait_until(rpexec_links *links, int64_t time_ns)
{
    struct timespec until = {.tv_sec = time_ns / 1000000000, .tv_nsec = time_ns % 1000000000};
    pthread_cond_timedwait(&links->changed, &links->lock, &until);
}

/* Sleeps until the next flow ends, or until somebody signals a change. The start of a flow only
 * delays the ends of others, so that nobody sleeps here too long. */
static void sleep_once(rpexec_links *links)
{
    int64_t next_ps = rp_network_next(links->network);
    if (next_ps == RP_NEVER) {
        pthread_cond_wait(&links->changed, &links->lock);
        return;
    }
    wait_until(links, links->begin_ns + next_ps / PS_PER_NS + 1);
}

static bool take_turn(rpexec_links *links, uint32_t number)
{
    engine *e = number == RP_NO_ENGINE ? NULL : &links->engines[number];
    uint32_t ticket = e == NULL ? 0 : e->given++;
    while (e != NULL && e->serving != ticket && !links->stopped) {
        pthread_cond_wait(&links->changed, &links->lock);
    }
    return !links->stopped;
}

static void end_turn(rpexec_links *links, uint32_t number)
{
    if (number != RP_NO_ENGINE) {
        links->engines[number].serving++;
        pthread_cond_broadcast(&links->changed);
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

static rp_status carry(rpexec_links *links, uint32_t route, uint32_t engine_number, void *to,
                       const void *from, uint64_t bytes, int64_t *begin_ns_out)
{
    bool done = false;
    rp_status status = RP_BROKEN;
    pthread_mutex_lock(&links->lock);
    if (take_turn(links, engine_number)) {
        int64_t latency_ns = engine_number == RP_NO_ENGINE ? 0 : links->latency_ns;
        int64_t now = *begin_ns_out = now_ns();
        while (now < *begin_ns_out + latency_ns && !links->stopped) {
            wait_until(links, *begin_ns_out + latency_ns);
            now = now_ns();
        }
        status = links->stopped ? RP_BROKEN
                                : rp_network_start(links->network, route, (double)bytes,
                                                   PS_PER_NS * (now - links->begin_ns),
                                                   (uint64_t)(uintptr_t)&done);
    }
    pthread_mutex_unlock(&links->lock);
    if (status != RP_OK) {
        return status;
    }
    memcpy(to, from, bytes);
    pthread_mutex_lock(&links->lock);
    while (!done && !links->stopped) {
        settle(links, now_ns());
        if (!done) {
            sleep_once(links);
        }
    }
    end_turn(links, engine_number);
    pthread_mutex_unlock(&links->lock);
    return done ? RP_OK : RP_BROKEN;
}

rp_status rpexec_links_copy(rpexec_links *links, uint32_t op, void *to, const void *from,
                            uint64_t bytes, int64_t *begin_ns_out)
{
    const rp_program *p = links->program;
    uint32_t queue = rp_program_queue_of(p, op);
    uint32_t route = rp_route_of(&links->routes, queue, op, (rp_op_kind)p->ops[op].kind);
    return carry(links, route, rp_copy_engine(NULL, &p->queues[queue]), to, from, bytes,
                 begin_ns_out);
}

rp_status rpexec_links_copy_peer(rpexec_links *links, uint32_t to_gpu, void *to, uint32_t from_gpu,
                                 const void *from, uint64_t bytes)
{
    int64_t begin_ns = 0;
    uint32_t route = links->peer_routes[from_gpu * links->program->gpu_count + to_gpu];
    return carry(links, route, RP_NO_ENGINE, to, from, bytes, &begin_ns);
}
