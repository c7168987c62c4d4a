#include "exec/run/rank_collective.h"

#include "common/base/log.h"
#include "exec/state/scaler.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* Collective that a rank has come with: a copy, because after an abort its caller may be gone while
 * another rank still reads it. */
typedef struct post {
    rpexec_collective what;
    rpexec_collective_array *arrays;
} post;

struct rpexec_host_group {
    uint32_t ranks;
    uint32_t most_arrays;
    rpexec_host_fetch fetch;
    rpexec_host_group_moves moves;
    void *context;
    post *posts; /* [rank] */
    pthread_mutex_t lock;
    pthread_cond_t met;
    uint32_t arrived;
    uint64_t meetings;
    bool aborted;
};

/* A rank on its way through a collective. */
typedef struct part {
    rpexec_host_group *group;
    uint32_t rank;
    uint64_t moved;
} part;

/* ---- the host's memory ----------------------------------------------------------------------- */

static void host_copy(void *context, uint32_t rank, void *to, const void *from, uint64_t bytes)
{
    (void)context;
    (void)rank;
    memcpy(to, from, bytes);
}

static void host_add(void *context, uint32_t rank, rp_dtype dtype, uint64_t count,
                     const void *values, bool add, float *sum)
{
    (void)context;
    (void)rank;
    (void)rpexec_unscale(dtype, count, values, 1, add, sum);
}

static void host_narrow(void *context, uint32_t rank, rp_dtype dtype, uint64_t count,
                        const float *sum, void *to)
{
    (void)context;
    (void)rank;
    rpexec_narrow(dtype, count, sum, to);
}

static void host_meet(void *context, uint32_t rank)
{
    (void)context;
    (void)rank;
}

void rpexec_host_group_set_moves(rpexec_host_group *g, const rpexec_host_group_moves *moves)
{
    g->moves = *moves;
}

rp_status rpexec_host_group_open(uint32_t ranks, uint32_t most_arrays, rpexec_host_fetch fetch,
                                 void *context, rp_arena *arena, rpexec_host_group **group_out)
{
    rpexec_host_group *g = NULL;
    *group_out = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *g, &g));
    *g = (rpexec_host_group){
        .ranks = ranks, .most_arrays = most_arrays, .fetch = fetch, .context = context};
    g->moves = (rpexec_host_group_moves){.copy = host_copy,
                                         .add = host_add,
                                         .narrow = host_narrow,
                                         .arrive = host_meet,
                                         .depart = host_meet};
    RP_TRY(rp_arena_alloc(arena, ranks, sizeof(post), &g->posts));
    for (uint32_t i = 0; i < ranks; i++) {
        RP_TRY(rp_arena_alloc(arena, most_arrays, sizeof(rpexec_collective_array),
                              &g->posts[i].arrays));
    }
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->met, NULL);
    *group_out = g;
    return RP_OK;
}

void rpexec_host_group_close(rpexec_host_group *g)
{
    if (g != NULL) {
        pthread_cond_destroy(&g->met);
        pthread_mutex_destroy(&g->lock);
    }
}

static void abort_locked(rpexec_host_group *g)
{
    g->aborted = true;
    pthread_cond_broadcast(&g->met);
}

void rpexec_host_group_abort(rpexec_host_group *g)
{
    pthread_mutex_lock(&g->lock);
    abort_locked(g);
    pthread_mutex_unlock(&g->lock);
}

/* ---- meeting --------------------------------------------------------------------------------- */

/* The first rank whose collective differs from rank 0's; `ranks`: none. */
static uint32_t stranger(const rpexec_host_group *g)
{
    const post *first = &g->posts[0];
    for (uint32_t rank = 1; rank < g->ranks; rank++) {
        const post *p = &g->posts[rank];
        bool same = p->what.kind == first->what.kind && p->what.dtype == first->what.dtype &&
                    p->what.array_count == first->what.array_count;
        for (uint32_t i = 0; same && i < p->what.array_count; i++) {
            same = p->arrays[i].count == first->arrays[i].count;
        }
        if (!same) {
            return rank;
        }
    }
    return g->ranks;
}

static void check_posts(rpexec_host_group *g)
{
    static const char *const names[] = {"all-gather", "reduce-scatter", "all-reduce"};
    uint32_t rank = stranger(g);
    if (rank == g->ranks) {
        return;
    }
    const rpexec_collective *a = &g->posts[0].what;
    const rpexec_collective *b = &g->posts[rank].what;
    rp_log_error("rank 0 has come to an %s of %" PRIu32 " arrays, rank %" PRIu32
                 " to an %s of %" PRIu32 " arrays, or their sizes or types differ; valid is the "
                 "same collective on all ranks",
                 names[a->kind], a->array_count, rank, names[b->kind], b->array_count);
    abort_locked(g);
}

/* Called without the lock, since a failure aborts the group; the others wait to be woken
 * meanwhile. */
static void do_together(rpexec_host_group *g, uint32_t rank)
{
    if (!g->aborted && g->moves.together != NULL) {
        pthread_mutex_unlock(&g->lock);
        g->moves.together(g->context, rank);
        pthread_mutex_lock(&g->lock);
    }
}

/* All ranks come together, or the group is aborted. The rank that comes last to the beginning of a
 * collective checks that all mean the same. */
static rp_status meet(rpexec_host_group *g, uint32_t rank, bool begins)
{
    uint64_t meeting = g->meetings;
    if (++g->arrived == g->ranks) {
        if (begins) {
            check_posts(g);
            do_together(g, rank);
        }
        if (!g->aborted) {
            g->arrived = 0;
            g->meetings++;
            pthread_cond_broadcast(&g->met);
        }
    }
    while (g->meetings == meeting && !g->aborted) {
        pthread_cond_wait(&g->met, &g->lock);
    }
    return g->meetings == meeting ? RP_BROKEN : RP_OK;
}

static rp_status begin(rpexec_host_group *g, uint32_t rank, const rpexec_collective *c)
{
    g->moves.arrive(g->context, rank);
    pthread_mutex_lock(&g->lock);
    rp_status status = g->aborted ? RP_BROKEN : RP_OK;
    if (status == RP_OK) {
        post *mine = &g->posts[rank];
        mine->what = *c;
        memcpy(mine->arrays, c->arrays, c->array_count * sizeof *c->arrays);
        mine->what.arrays = mine->arrays;
        status = meet(g, rank, true);
    }
    pthread_mutex_unlock(&g->lock);
    g->moves.depart(g->context, rank);
    return status;
}

static rp_status meet_again(rpexec_host_group *g, uint32_t rank)
{
    g->moves.arrive(g->context, rank);
    pthread_mutex_lock(&g->lock);
    rp_status status = g->aborted ? RP_BROKEN : meet(g, rank, false);
    pthread_mutex_unlock(&g->lock);
    g->moves.depart(g->context, rank);
    return status;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static const post *post_of(const part *p, uint32_t rank)
{
    return &p->group->posts[rank];
}

static void fetch(part *p, void *to, uint32_t from_rank, const void *from, uint64_t bytes)
{
    if (bytes != 0) {
        p->group->fetch(p->group->context, p->rank, to, from_rank, from, bytes);
        p->moved += bytes;
    }
}

/* Fetches every other rank's share of the array: from the share itself, or from the whole array. */
static void gather(part *p, uint32_t array, bool from_whole)
{
    const post *mine = post_of(p, p->rank);
    rp_dtype dtype = mine->what.dtype;
    uint64_t count = mine->arrays[array].count;
    uint32_t ranks = p->group->ranks;
    for (uint32_t i = 1; i < ranks; i++) { /* each begins with another rank: its neighbour */
        uint32_t other = (p->rank + i) % ranks;
        uint64_t at = rpexec_share(count, ranks, other);
        uint64_t elements = rpexec_share(count, ranks, other + 1) - at;
        const rpexec_collective_array *theirs = &post_of(p, other)->arrays[array];
        const void *from = from_whole ? rpexec_element_const(dtype, theirs->to, at) : theirs->from;
        fetch(p, rpexec_element(dtype, mine->arrays[array].to, at), other, from,
              elements * rp_dtype_bytes(dtype));
    }
}

static void gather_own(part *p, uint32_t array)
{
    const post *mine = post_of(p, p->rank);
    const rpexec_collective_array *a = &mine->arrays[array];
    uint64_t at = rpexec_share(a->count, p->group->ranks, p->rank);
    uint64_t elements = rpexec_share(a->count, p->group->ranks, p->rank + 1) - at;
    void *to = rpexec_element(mine->what.dtype, a->to, at);
    if (to != a->from && elements != 0) {
        p->group->moves.copy(p->group->context, p->rank, to, a->from,
                             elements * rp_dtype_bytes(mine->what.dtype));
    }
}

static void sum_chunk(part *p, uint32_t array, uint64_t at, uint64_t elements, void *to)
{
    const post *mine = post_of(p, p->rank);
    const rpexec_host_group_moves *moves = &p->group->moves;
    rp_dtype dtype = mine->what.dtype;
    float *sum = mine->what.scratch;
    void *arrived = sum + elements;
    uint64_t bytes = elements * rp_dtype_bytes(dtype);
    for (uint32_t rank = 0; rank < p->group->ranks; rank++) {
        const void *values = rpexec_element_const(dtype, post_of(p, rank)->arrays[array].from, at);
        if (rank != p->rank) {
            fetch(p, arrived, rank, values, bytes);
            values = arrived;
        }
        moves->add(p->group->context, p->rank, dtype, elements, values, rank != 0, sum);
    }
    moves->narrow(p->group->context, p->rank, dtype, elements, sum, to);
}

/* Makes this rank's share of the sum. Nobody else reads that part of its array, so the sum may go
 * there. */
static void reduce(part *p, uint32_t array, bool into_whole)
{
    const post *mine = post_of(p, p->rank);
    const rpexec_collective_array *a = &mine->arrays[array];
    uint64_t begin = rpexec_share(a->count, p->group->ranks, p->rank);
    uint64_t end = rpexec_share(a->count, p->group->ranks, p->rank + 1);
    uint64_t chunk = mine->what.scratch_bytes / (sizeof(float) + rp_dtype_bytes(mine->what.dtype));
    void *to = rpexec_element(mine->what.dtype, a->to, into_whole ? begin : 0);
    for (uint64_t at = begin; at < end; at += chunk) {
        uint64_t elements = end - at < chunk ? end - at : chunk;
        sum_chunk(p, array, at, elements, rpexec_element(mine->what.dtype, to, at - begin));
    }
}

const rpexec_collective *rpexec_host_group_part(const rpexec_host_group *g, uint32_t rank)
{
    return &g->posts[rank].what;
}

/* Bytes that have come from other ranks, as fetching counts them: their shares for a gather, their
 * parts of this rank's share for a sum. */
static uint64_t moved_together(const part *p)
{
    const rpexec_collective *c = &post_of(p, p->rank)->what;
    uint64_t elements = 0;
    for (uint32_t i = 0; i < c->array_count; i++) {
        uint64_t count = c->arrays[i].count;
        uint64_t own = rpexec_share(count, p->group->ranks, p->rank + 1) -
                       rpexec_share(count, p->group->ranks, p->rank);
        elements += c->kind == RPEXEC_REDUCE_SCATTER ? 0 : count - own;
        elements += c->kind == RPEXEC_ALL_GATHER ? 0 : (p->group->ranks - 1) * own;
    }
    return elements * rp_dtype_bytes(c->dtype);
}

rp_status rpexec_host_group_run(rpexec_host_group *g, uint32_t rank, const rpexec_collective *c,
                                uint64_t *moved_out)
{
    part p = {.group = g, .rank = rank};
    RP_TRY(begin(g, rank, c));
    if (g->moves.together != NULL) {
        *moved_out = moved_together(&p);
        return RP_OK;
    }
    for (uint32_t i = 0; i < c->array_count; i++) {
        if (c->kind == RPEXEC_ALL_GATHER) {
            gather_own(&p, i);
            gather(&p, i, false);
        } else {
            reduce(&p, i, c->kind == RPEXEC_ALL_REDUCE);
        }
    }
    if (c->kind == RPEXEC_ALL_REDUCE) {
        RP_TRY(meet_again(g, rank)); /* all shares of the sum are there */
        for (uint32_t i = 0; i < c->array_count; i++) {
            gather(&p, i, true);
        }
    }
    *moved_out = p.moved;
    return meet_again(g, rank);
}
