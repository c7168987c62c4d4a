/* Runs Chakra execution traces: an event for the end of each node. */
#include "sim/interchange/chakra.h"

#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/machine/platform_machine.h"
#include "common/roofline/roofline.h"

#include <inttypes.h>
#include <math.h>

#define NO_NODE UINT32_MAX

/* Resources that nodes without exact times take turns on. */
typedef enum resource {
    RESOURCE_GPU,
    RESOURCE_CPU,
    RESOURCE_LOAD,
    RESOURCE_STORE,
    RESOURCE_SEND,
    RESOURCE_COLLECTIVE,
    RESOURCE_COUNT,
} resource;

typedef struct turns {
    bool busy;
    uint32_t first, last; /* waiting nodes, NO_NODE: none */
} turns;

typedef struct engine {
    const rpsim_chakra_trace *trace;
    int64_t *ps;               /* [node] duration */
    uint32_t *pending;         /* [node] number of things that it still waits for */
    uint32_t *dependent_begin; /* [node + 1] */
    uint32_t *dependents;
    uint32_t *next_waiting;  /* [node] */
    uint32_t *absent;        /* [meeting] members that cannot start yet */
    uint32_t *members;       /* [meeting] number of members */
    uint32_t *meeting_begin; /* [meeting + 1] */
    uint32_t *meeting_nodes;
    turns *turns; /* [rank * RESOURCE_COUNT + resource] */
    rp_heap ends; /* ends of running nodes, by time; tag: the node */
    uint64_t sequence;
    uint32_t ended;
    int64_t now_ps;
} engine;

/* ---- events ---------------------------------------------------------------------------------- */

static void push_end(engine *e, uint32_t node)
{
    rp_heap_push(&e->ends, (rp_heap_entry){.key = (uint64_t)(e->now_ps + e->ps[node]),
                                           .sequence = e->sequence++,
                                           .tag = node});
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool takes_turns(const rpsim_chakra_node *node)
{
    return !node->exact && node->type != RPSIM_CHAKRA_RECV && node->type != RPSIM_CHAKRA_METADATA;
}

static turns *turns_of(const engine *e, const rpsim_chakra_node *node)
{
    static const uint8_t resources[] = {[RPSIM_CHAKRA_MEM_LOAD] = RESOURCE_LOAD,
                                        [RPSIM_CHAKRA_MEM_STORE] = RESOURCE_STORE,
                                        [RPSIM_CHAKRA_SEND] = RESOURCE_SEND,
                                        [RPSIM_CHAKRA_COLL] = RESOURCE_COLLECTIVE};
    resource r = node->type == RPSIM_CHAKRA_COMP ? (node->on_cpu ? RESOURCE_CPU : RESOURCE_GPU)
                                                 : (resource)resources[node->type];
    return &e->turns[(size_t)node->rank * RESOURCE_COUNT + r];
}

/* Begins a node that waits for nothing any more, or puts it in line. */
static void start(engine *e, uint32_t index)
{
    const rpsim_chakra_node *node = &e->trace->nodes[index];
    if (!takes_turns(node)) {
        push_end(e, index);
        return;
    }
    turns *t = turns_of(e, node);
    if (!t->busy) {
        t->busy = true;
        push_end(e, index);
        return;
    }
    e->next_waiting[index] = NO_NODE;
    if (t->first == NO_NODE) {
        t->first = index;
    } else {
        e->next_waiting[t->last] = index;
    }
    t->last = index;
}

static void release(engine *e, const rpsim_chakra_node *node)
{
    turns *t = turns_of(e, node);
    t->busy = t->first != NO_NODE;
    if (t->busy) {
        uint32_t next = t->first;
        t->first = e->next_waiting[next];
        push_end(e, next);
    }
}

/* Takes off a thing that a node waited for. When nothing is left the node starts; a collective
 * first waits for its other members. */
static void settle(engine *e, uint32_t index)
{
    if (--e->pending[index] != 0) {
        return;
    }
    const rpsim_chakra_node *node = &e->trace->nodes[index];
    if (node->type != RPSIM_CHAKRA_COLL) {
        start(e, index);
        return;
    }
    uint32_t meeting = node->partner;
    if (--e->absent[meeting] == 0) {
        for (uint32_t i = e->meeting_begin[meeting]; i < e->meeting_begin[meeting + 1]; i++) {
            start(e, e->meeting_nodes[i]);
        }
    }
}

static void finish(engine *e, uint32_t index)
{
    const rpsim_chakra_node *node = &e->trace->nodes[index];
    e->ended++;
    if (takes_turns(node)) {
        release(e, node);
    }
    for (uint32_t d = e->dependent_begin[index]; d < e->dependent_begin[index + 1]; d++) {
        settle(e, e->dependents[d]);
    }
}

/* ---- setting up ------------------------------------------------------------------------------ */

rpsim_chakra_rates rpsim_chakra_platform_rates(const rp_platform *platform)
{
    double link = rp_link_bytes_per_s(platform);
    link = link > 0 ? link : 1e9 * platform->link_gb_per_s;
    double peer = platform->peer_gb_per_s > 0 ? 1e9 * platform->peer_gb_per_s : link;
    bool bus = platform->collective_gb_per_s > 0;
    return (rpsim_chakra_rates){.memory = link,
                                .peer = peer,
                                .collective = bus ? 1e9 * platform->collective_gb_per_s : peer};
}

/* The bytes of a collective that go through each of n ranks. */
static double collective_bytes(const rpsim_chakra_node *node, uint32_t n)
{
    double bytes = (double)node->bytes;
    switch ((rpsim_chakra_collective)node->collective) {
    case RPSIM_CHAKRA_ALL_REDUCE:
        return 2 * bytes * (n - 1) / n;
    case RPSIM_CHAKRA_ALL_GATHER:
        return bytes * (n - 1);
    case RPSIM_CHAKRA_REDUCE_SCATTER:
    case RPSIM_CHAKRA_REDUCE_SCATTER_BLOCK:
    case RPSIM_CHAKRA_ALL_TO_ALL:
        return bytes * (n - 1) / n;
    case RPSIM_CHAKRA_BARRIER:
        return 0;
    case RPSIM_CHAKRA_REDUCE:
    case RPSIM_CHAKRA_GATHER:
    case RPSIM_CHAKRA_SCATTER:
    case RPSIM_CHAKRA_BROADCAST:
        break;
    }
    return bytes;
}

static double size_s(const engine *e, const rpsim_chakra_rates *rates,
                     const rpsim_chakra_node *node)
{
    switch ((rpsim_chakra_type)node->type) {
    case RPSIM_CHAKRA_MEM_LOAD:
    case RPSIM_CHAKRA_MEM_STORE:
        return (double)node->bytes / rates->memory;
    case RPSIM_CHAKRA_SEND:
        return (double)node->bytes / rates->peer;
    case RPSIM_CHAKRA_COLL:
        return collective_bytes(node, e->members[node->partner]) / rates->collective;
    case RPSIM_CHAKRA_INVALID:
    case RPSIM_CHAKRA_METADATA:
    case RPSIM_CHAKRA_COMP:
    case RPSIM_CHAKRA_RECV:
        break;
    }
    return 0;
}

/* Sets the durations, and refuses times that are too long: no run takes longer than all nodes in
 * sequence. */
static rp_status set_times(engine *e, const rpsim_chakra_rates *rates)
{
    const rpsim_chakra_trace *t = e->trace;
    double sum_ps = 0;
    for (uint32_t i = 0; i < t->node_count; i++) {
        const rpsim_chakra_node *node = &t->nodes[i];
        bool by_size = node->ps == RPSIM_CHAKRA_BY_SIZE;
        double ps = by_size ? 1e12 * size_s(e, rates, node) : (double)node->ps;
        sum_ps += ps;
        if (!(sum_ps < 4e18)) {
            rp_log_error_at(t->names[node->rank], 0,
                            "node %" PRIu64 ": all nodes up to this one take too long; valid are "
                            "traces of up to 4e18 picoseconds",
                            node->id);
            return RP_INPUT;
        }
        e->ps[i] = by_size ? (int64_t)llround(ps) : node->ps;
    }
    return RP_OK;
}

/* begin[k + 2] holds the count of k; afterwards begin[k + 1] is the index at which filling k
 * begins. */
static void add_up(uint32_t *begin, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        begin[i + 2] += begin[i + 1];
    }
}

static rp_status index_dependents(engine *e, rp_arena *arena)
{
    const rpsim_chakra_trace *t = e->trace;
    size_t edges = (size_t)t->dependency_count + t->node_count;
    RP_TRY(rp_arena_alloc(arena, edges, sizeof(uint32_t), &e->dependents));
    for (int pass = 0; pass < 2; pass++) {
        uint32_t *begin = e->dependent_begin + (pass == 0 ? 2 : 1);
        for (uint32_t i = 0; i < t->node_count; i++) {
            const rpsim_chakra_node *node = &t->nodes[i];
            bool receives = node->type == RPSIM_CHAKRA_RECV;
            uint32_t parents = node->dependency_count + (receives ? 1 : 0);
            for (uint32_t d = 0; d < parents; d++) {
                uint32_t parent = d < node->dependency_count
                                      ? (uint32_t)t->dependencies[node->dependency_begin + d]
                                      : node->partner;
                if (pass == 1) {
                    e->dependents[begin[parent]] = i;
                }
                begin[parent]++;
            }
            e->pending[i] = parents + 1; /* + 1 for the beginning of the run */
        }
        if (pass == 0) {
            add_up(e->dependent_begin, t->node_count);
        }
    }
    return RP_OK;
}

static rp_status index_meetings(engine *e, rp_arena *arena)
{
    const rpsim_chakra_trace *t = e->trace;
    size_t count = t->meeting_count;
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint32_t), &e->absent));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(uint32_t), &e->members));
    RP_TRY(rp_arena_alloc(arena, count + 2, sizeof(uint32_t), &e->meeting_begin));
    RP_TRY(rp_arena_alloc(arena, t->node_count, sizeof(uint32_t), &e->meeting_nodes));
    for (uint32_t i = 0; i < t->node_count; i++) {
        if (t->nodes[i].type == RPSIM_CHAKRA_COLL) {
            e->absent[t->nodes[i].partner]++;
            e->members[t->nodes[i].partner]++;
            e->meeting_begin[t->nodes[i].partner + 2]++;
        }
    }
    add_up(e->meeting_begin, t->meeting_count);
    for (uint32_t i = 0; i < t->node_count; i++) {
        if (t->nodes[i].type == RPSIM_CHAKRA_COLL) {
            e->meeting_nodes[e->meeting_begin[t->nodes[i].partner + 1]++] = i;
        }
    }
    return RP_OK;
}

static rp_status prepare(engine *e, const rpsim_chakra_rates *rates, rp_arena *arena)
{
    const rpsim_chakra_trace *t = e->trace;
    size_t resources = (size_t)t->rank_count * RESOURCE_COUNT;
    RP_TRY(rp_arena_alloc(arena, t->node_count, sizeof(int64_t), &e->ps));
    RP_TRY(rp_arena_alloc(arena, t->node_count, sizeof(uint32_t), &e->pending));
    RP_TRY(rp_arena_alloc(arena, t->node_count, sizeof(uint32_t), &e->next_waiting));
    RP_TRY(rp_arena_alloc(arena, (size_t)t->node_count + 2, sizeof(uint32_t), &e->dependent_begin));
    RP_TRY(rp_arena_alloc(arena, t->node_count, sizeof(rp_heap_entry), &e->ends.entries));
    RP_TRY(rp_arena_alloc(arena, resources, sizeof(turns), &e->turns));
    for (size_t i = 0; i < resources; i++) {
        e->turns[i] = (turns){false, NO_NODE, NO_NODE};
    }
    RP_TRY(index_dependents(e, arena));
    RP_TRY(index_meetings(e, arena));
    return set_times(e, rates);
}

/* ---- running --------------------------------------------------------------------------------- */

static void account(const engine *e, const rpsim_chakra_node *node, uint32_t index,
                    rpsim_chakra_rank *rank)
{
    int64_t ps = e->ps[index];
    rank->nodes++;
    rank->end_ps = e->now_ps;
    switch ((rpsim_chakra_type)node->type) {
    case RPSIM_CHAKRA_COMP:
        *(node->on_cpu ? &rank->cpu_ps : &rank->compute_ps) += ps;
        break;
    case RPSIM_CHAKRA_MEM_LOAD:
    case RPSIM_CHAKRA_MEM_STORE:
        rank->memory_ps += ps;
        break;
    case RPSIM_CHAKRA_SEND:
        rank->send_ps += ps;
        break;
    case RPSIM_CHAKRA_COLL:
        rank->collective_ps += ps;
        break;
    case RPSIM_CHAKRA_INVALID:
    case RPSIM_CHAKRA_METADATA:
    case RPSIM_CHAKRA_RECV:
        break;
    }
}

static rp_status check_finished(const engine *e)
{
    for (uint32_t i = 0; i < e->trace->node_count && e->ended < e->trace->node_count; i++) {
        const rpsim_chakra_node *node = &e->trace->nodes[i];
        if (e->pending[i] != 0 ||
            (node->type == RPSIM_CHAKRA_COLL && e->absent[node->partner] != 0)) {
            rp_log_error_at(e->trace->names[node->rank], 0,
                            "node %" PRIu64
                            " never starts: it, or what it waits for, is in a circle "
                            "of nodes that wait for each other; valid are dependencies without "
                            "circles, across ranks, too",
                            node->id);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

rp_status rpsim_chakra_run(const rpsim_chakra_trace *trace, const rpsim_chakra_rates *rates,
                           rp_arena *arena, rpsim_chakra_rank **ranks_out, int64_t *makespan_ps_out)
{
    engine e = {.trace = trace};
    RP_TRY(rp_arena_alloc(arena, trace->rank_count, sizeof **ranks_out, ranks_out));
    RP_TRY(prepare(&e, rates, arena));
    for (uint32_t i = 0; i < trace->node_count; i++) {
        settle(&e, i);
    }
    while (e.ends.count > 0) {
        rp_heap_entry next = rp_heap_pop(&e.ends);
        uint32_t index = (uint32_t)next.tag;
        const rpsim_chakra_node *node = &trace->nodes[index];
        e.now_ps = (int64_t)next.key;
        account(&e, node, index, &(*ranks_out)[node->rank]);
        finish(&e, index);
    }
    *makespan_ps_out = e.now_ps;
    return check_finished(&e);
}
