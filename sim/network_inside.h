/* Inside of the network: what network.c (flows and time), network_route.c (routes),
 * network_reach.c (what a change reaches), network_rates.c (rates) and network_heap.c share. */
#pragma once

#include "sim/network.h"

#include <stddef.h>
#include <string.h>

/* A heap of flows by (key, sequence). The key of a flow that has not ended is the service of its
 * group at which it ends, as the bits of a double, which order like the number as it is not
 * negative; of one that has ended, its time. */
typedef struct rpsim_heap_entry {
    uint64_t key;
    uint64_t sequence;
    uint64_t tag;
    double bytes;
} rpsim_heap_entry;

typedef struct rpsim_heap {
    rpsim_heap_entry *entries;
    uint64_t count;
    uint64_t capacity;
} rpsim_heap;

/* That a group has flows on a link; `hop` is the place in the group's route. */
typedef struct rpsim_member {
    uint32_t group;
    uint32_t hop;
} rpsim_member;

/* What a route could take of a link at most, in parts of its capacity: RPSIM_WHOLE, where the route
 * has no narrower link. Integers, so that sums do not depend on their order. */
#define RPSIM_WHOLE (UINT32_C(1) << 30)
/* From this sum on a link can be a bottleneck: the distance is far above the rounding of rates. */
#define RPSIM_TIGHT (RPSIM_WHOLE - (1u << 10))

typedef struct rpsim_link {
    double capacity;    /* bytes per tick */
    double first_share; /* capacity / flows, while there are flows */
    uint64_t flows;
    uint64_t mark;         /* the number of the search that reached it last */
    uint64_t demand;       /* sum over the members of what they could take, see RPSIM_WHOLE */
    rpsim_member *members; /* groups with flows */
    uint32_t member_count;
    uint32_t route_count; /* that contain it: the most there can be members */
    bool tight;           /* when rates were computed last: the demand was RPSIM_TIGHT or more */
    bool busy;
    bool full;
    bool becomes_full;
    /* Filling: what is left after all levels before `level_rate`, how many flows were fixed at
     * that rate, and how many are not fixed yet. Counting first and multiplying once makes the
     * result independent of the order in which a level's flows are visited. */
    double rest;
    double level_rate;
    uint64_t level_flows;
    uint64_t unfixed;
    int64_t busy_since;
    int64_t busy_ticks; /* up to busy_since while busy */
    int64_t full_since;
    int64_t full_ticks;
    uint64_t member_capacity;
} rpsim_link;

/* One link of one route. */
typedef struct rpsim_hop {
    uint32_t link;
    uint32_t slot;   /* in the link's members while the group is listed there */
    uint32_t demand; /* of the route on the link, see RPSIM_WHOLE */
} rpsim_hop;

/* A route and the flows on it. */
typedef struct rpsim_group {
    double rate;    /* of each flow, bytes per tick, since since_ticks */
    double service; /* bytes that a flow present from the beginning would have got */
    int64_t since_ticks;
    int64_t end_ticks; /* when the first flow ends */
    rpsim_heap flows;
    uint32_t end_slot; /* in the heap of ends, or RPSIM_NO_SLOT */
    bool listed;       /* among the members of its links */
    bool dirty;        /* its count or its first flow may have changed at the clock's instant */
    uint32_t hop_begin;
    uint32_t hop_count;
    uint32_t bottleneck;   /* link */
    uint64_t solved_flows; /* the count that the rates were computed for */
    uint64_t mark;
    uint64_t fill;
    double new_rate;
    double ended_bytes;
    double service_at_starts; /* sum over the flows present */
} rpsim_group;

#define RPSIM_NO_SLOT UINT32_MAX

/* Groups by the end of their first flow. */
typedef struct rpsim_end {
    int64_t ticks;
    uint32_t group;
} rpsim_end;

/* Links by what a flow that is not fixed could get; a lower bound of it. */
typedef struct rpsim_share {
    double rate;
    uint32_t link;
} rpsim_share;

struct rpsim_network {
    double ticks_per_s;
    int64_t clock_ticks;
    uint64_t sequence;
    uint64_t flow_count;
    rpsim_link *links;
    uint32_t link_count;
    rpsim_group *groups;
    uint32_t group_count;
    uint32_t group_capacity; /* also of dirty, reached_groups, starts, changed, ends */
    rpsim_hop *hops;
    uint32_t hop_count;
    uint64_t hop_capacity;
    uint32_t *sorted_links; /* a route while it is looked up; link_count */
    uint32_t *table;        /* open addressing: route + 1, or 0 */
    uint32_t table_size;    /* power of two */
    rpsim_heap ended;       /* not yet popped */
    uint32_t *dirty;
    uint32_t dirty_count;
    /* One recomputation */
    uint64_t mark;  /* of what the last search reached; 0 is nobody's */
    uint64_t fill;  /* of what the last filling fixed */
    uint32_t reuse; /* recomputations since the last search */
    uint32_t *reached_links;
    uint32_t reached_link_count;
    uint32_t *reached_groups;
    uint32_t reached_group_count;
    bool group_left;  /* one of reached_groups has lost its last flow */
    bool whole;       /* rpsim_network_recompute: links that are not tight are looked at, too */
    uint32_t *starts; /* groups whose count has changed: where the search begins */
    uint32_t start_count;
    uint32_t *changed; /* groups with a new end */
    uint32_t changed_count;
    rpsim_share *shares;
    uint32_t share_count;
    rpsim_end *ends;
    uint32_t end_count;
};

/* Puts an entry into a heap that has room for it. */
void rpsim_heap_push(rpsim_heap *heap, rpsim_heap_entry entry);

/* Takes the first entry out of a heap that is not empty. */
rpsim_heap_entry rpsim_heap_pop(rpsim_heap *heap);

/* Grows an array to `count` or more items, at least twofold. RP_OK, RP_NO_MEMORY */
rp_status rpsim_grow(void *array, uint64_t *capacity, uint64_t count, size_t size);

/* Room for `capacity` entries, so that pushes cannot fail. RP_OK, RP_NO_MEMORY */
static inline rp_status rpsim_heap_reserve(rpsim_heap *heap, uint64_t capacity)
{
    if (capacity <= heap->capacity) {
        return RP_OK;
    }
    return rpsim_grow(&heap->entries, &heap->capacity, capacity, sizeof *heap->entries);
}

/* Takes the group at `slot` out of the heap of ends. */
void rpsim_ends_remove(rpsim_network *network, uint32_t slot);

/* Puts groups into the heap of ends, or moves them there, by their end_ticks. Few are moved one by
 * one, many by building the heap anew. The first end is always the least; up to RPSIM_FEW_ENDS the
 * others have no order, as looking at all of them is cheaper. */
#define RPSIM_FEW_ENDS 16u
void rpsim_ends_update(rpsim_network *network, const uint32_t *groups, uint32_t count);

/* Marks a group whose count or first flow changes at the clock's instant. */
static inline void rpsim_network_touch(rpsim_network *network, uint32_t group)
{
    if (!network->groups[group].dirty) {
        network->groups[group].dirty = true;
        network->dirty[network->dirty_count++] = group;
    }
}

/* Brings rates and ends up to date with the marked groups, of which there are some. */
void rpsim_network_settle_dirty(rpsim_network *network);

/* The same; often there are none. */
static inline void rpsim_network_settle(rpsim_network *network)
{
    if (network->dirty_count > 0) {
        rpsim_network_settle_dirty(network);
    }
}

/* Brings the links of a group up to date with its count of flows: what a change begins with. */
void rpsim_network_relink(rpsim_network *network, uint32_t group);

/* Whether the link connects the groups on it: it may be a bottleneck of more than one, now or at
 * the rates computed last. A link that all its groups together cannot fill never is one. */
static inline bool rpsim_link_connects(const rpsim_link *link)
{
    return link->tight || link->demand >= RPSIM_TIGHT;
}

/* Whether the group, whose links are up to date, shares none that connects. */
bool rpsim_group_is_alone(const rpsim_network *network, const rpsim_group *group);

/* Where a group that is alone has links among the reached ones, it joins them. */
void rpsim_network_reach_alone(rpsim_network *network, uint32_t group);

/* Collects the groups that the groups in `starts` are connected with, and all links that connect
 * those, in reached_groups and reached_links. They are kept from change to change. */
void rpsim_network_reach(rpsim_network *network);

/* The same for all groups with flows and all their links. */
void rpsim_network_reach_all(rpsim_network *network);

/* The key of a flow that ends at a service, and back: the bits of the double. */
static inline double rpsim_key_service(uint64_t key)
{
    double service;
    memcpy(&service, &key, sizeof service);
    return service;
}

static inline uint64_t rpsim_service_key(double service)
{
    uint64_t key;
    memcpy(&key, &service, sizeof key);
    return key;
}

/* Service of the group at the clock. */
static inline double rpsim_group_service(const rpsim_network *network, const rpsim_group *group)
{
    return group->service + group->rate * (double)(network->clock_ticks - group->since_ticks);
}

/* When a flow with that key ends, at the group's rate. */
static inline int64_t rpsim_group_end(const rpsim_group *group, uint64_t key)
{
    double left = rpsim_key_service(key) - group->service;
    double ticks = left > 0 ? left / group->rate + 0.5 : 0;
    if (ticks >= (double)(RPSIM_NEVER - group->since_ticks)) {
        return RPSIM_NEVER;
    }
    return group->since_ticks + (int64_t)ticks;
}
