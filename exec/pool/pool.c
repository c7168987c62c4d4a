#define _GNU_SOURCE /* pthread_setaffinity_np */
#include "exec/pool/pool.h"

#include "common/base/crew.h"
#include "exec/pool/numa.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct member {
    rpexec_pool *pool;
    pthread_t thread;
    uint32_t node;
} member;

/* Pieces of a pass that a node's threads take, on its own cache line. */
typedef struct share {
    atomic_ullong next;
    uint64_t end;
    unsigned char apart[48];
} share;

struct rpexec_pool {
    uint32_t threads; /* wanted */
    bool is_started;
    uint32_t started;
    uint32_t node_count;
    rpexec_numa_node *nodes; /* [node_count]; with a single node no thread is bound */
    member *members;         /* [threads] */
    share *shares;           /* [node_count] */
    pthread_mutex_t turn;    /* held by the caller whose pass runs */
    /* The pass, guarded by `lock`; `run`, `context` and `count` do not change while threads
     * work. */
    pthread_mutex_t lock;
    pthread_cond_t begins;
    pthread_cond_t ends;
    uint64_t passes; /* passes that have begun */
    uint32_t working;
    bool closing;
    uint64_t count;
    rpexec_pool_piece run;
    void *context;
};

uint32_t rpexec_pool_threads(uint32_t cores)
{
    return cores - cores / 8;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void work_on(rpexec_pool *pool, share *own)
{
    for (;;) {
        uint64_t piece = atomic_fetch_add_explicit(&own->next, 1, memory_order_relaxed);
        if (piece >= own->end) {
            return;
        }
        uint64_t first = piece * RPEXEC_POOL_PIECE;
        uint64_t rest = pool->count - first;
        pool->run(pool->context, first, rest < RPEXEC_POOL_PIECE ? rest : RPEXEC_POOL_PIECE);
    }
}

static void *serve(void *argument)
{
    const member *m = argument;
    rpexec_pool *pool = m->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    while (true) {
        while (pool->passes == seen && !pool->closing) {
            pthread_cond_wait(&pool->begins, &pool->lock);
        }
        if (pool->closing) {
            break;
        }
        seen = pool->passes;
        pthread_mutex_unlock(&pool->lock);
        work_on(pool, &pool->shares[m->node]);
        pthread_mutex_lock(&pool->lock);
        if (--pool->working == 0) {
            pthread_cond_signal(&pool->ends);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* If binding fails, the thread runs anywhere, and only speed suffers. */
static void bind(const rpexec_numa_node *node, pthread_attr_t *attributes)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t cpu = 0; cpu < RPEXEC_NUMA_PROCESSORS && cpu < CPU_SETSIZE; cpu++) {
        if ((node->mask[cpu / 64] >> cpu % 64 & 1) != 0) {
            CPU_SET(cpu, &set);
        }
    }
    (void)pthread_attr_setaffinity_np(attributes, sizeof set, &set);
}

static bool start_one(rpexec_pool *pool, member *m)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    if (pool->node_count > 1) {
        bind(&pool->nodes[m->node], &attributes);
    }
    bool started = pthread_create(&m->thread, &attributes, serve, m) == 0 ||
                   pthread_create(&m->thread, NULL, serve, m) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

/* Cuts all processors into as many equal parts as there are threads; thread k belongs to the node
 * of the k-th part. */
static uint32_t node_of(const rpexec_pool *pool, uint32_t k)
{
    uint64_t processors = 0;
    for (uint32_t i = 0; i < pool->node_count; i++) {
        processors += pool->nodes[i].processors;
    }
    uint64_t at = k * processors / pool->threads;
    uint32_t node = 0;
    while (node + 1 < pool->node_count && at >= pool->nodes[node].processors) {
        at -= pool->nodes[node++].processors;
    }
    return node;
}

/* If a thread cannot be started, passes only take longer. */
static void start(rpexec_pool *pool)
{
    pool->is_started = true;
    while (pool->started < pool->threads) {
        member *m = &pool->members[pool->started];
        *m = (member){.pool = pool, .node = node_of(pool, pool->started)};
        if (!start_one(pool, m)) {
            break;
        }
        pool->started++;
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Each node gets pieces in proportion to its number of threads. */
static void deal(rpexec_pool *pool, uint64_t pieces)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < pool->node_count; i++) {
        uint32_t members = 0;
        for (uint32_t k = 0; k < pool->started; k++) {
            members += pool->members[k].node == i ? 1 : 0;
        }
        atomic_store_explicit(&pool->shares[i].next, pieces * before / pool->started,
                              memory_order_relaxed);
        before += members;
        pool->shares[i].end = pieces * before / pool->started;
    }
}

static void run_pass(rpexec_pool *pool, uint64_t count, rpexec_pool_piece run, void *context)
{
    pthread_mutex_lock(&pool->lock);
    pool->count = count;
    pool->run = run;
    pool->context = context;
    deal(pool, rpexec_pool_pieces(count));
    pool->working = pool->started;
    pool->passes++;
    pthread_cond_broadcast(&pool->begins);
    while (pool->working > 0) {
        pthread_cond_wait(&pool->ends, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}

void rpexec_pool_run(rpexec_pool *pool, uint64_t count, rpexec_pool_piece run, void *context)
{
    bool alone = pool == NULL || pool->threads < 2 || rpexec_pool_pieces(count) < 2;
    if (!alone) {
        pthread_mutex_lock(&pool->turn);
        if (!pool->is_started) {
            start(pool);
        }
        alone = pool->started == 0;
        if (!alone) {
            run_pass(pool, count, run, context);
        }
        pthread_mutex_unlock(&pool->turn);
    }
    for (uint64_t first = 0; alone && first < count; first += RPEXEC_POOL_PIECE) {
        uint64_t rest = count - first;
        run(context, first, rest < RPEXEC_POOL_PIECE ? rest : RPEXEC_POOL_PIECE);
    }
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void close_pool(void *context)
{
    rpexec_pool *pool = context;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->begins);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started; i++) {
        pthread_join(pool->members[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->ends);
    pthread_cond_destroy(&pool->begins);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
}

rp_status rpexec_pool_create(uint32_t threads, rp_arena *arena, rpexec_pool **pool_out)
{
    rpexec_pool *pool = NULL;
    uint32_t wanted = threads;
    if (threads == 0) {
        wanted = rpexec_pool_threads(rp_crew_threads(0, RP_CREW_MAX_THREADS));
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *pool, &pool));
    pool->threads = wanted;
    RP_TRY(rp_arena_alloc(arena, RPEXEC_MAX_NUMA_NODES, sizeof *pool->nodes, &pool->nodes));
    RP_TRY(rp_arena_alloc(arena, wanted, sizeof *pool->members, &pool->members));
    pool->node_count = wanted < 2 ? 0 : rpexec_numa_find(pool->nodes);
    pool->node_count = pool->node_count == 0 ? 1 : pool->node_count;
    RP_TRY(rp_arena_alloc(arena, pool->node_count, sizeof *pool->shares, &pool->shares));
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begins, NULL);
    pthread_cond_init(&pool->ends, NULL);
    RP_TRY(rp_arena_at_end(arena, close_pool, pool));
    *pool_out = pool;
    return RP_OK;
}
