/* Inside of the network: types and functions that network.c (flows and time), route.c (routes),
 * reach.c (the groups that a change reaches), rates.c (rates) and ends.c (ends of groups) share. */
#pragma once

#include "common/base/heap.h"
#include "common/machine/network/network.h"

#include <stddef.h>
#include <string.h>

/* Member of a link: a group that has flows on it; `hop` is the link's place in the group's
 * route. */
typedef struct rp_member {
    uint32_t group;
    uint32_t hop;
} rp_member;

/* The demand of a route on a link is the most that it could take, in parts of the link's capacity:
 * RP_WHOLE if the route has no narrower link. Demands are integers, so sums do not depend on their
 * order. */
#define RP_WHOLE (UINT32_C(1) << 30)
/* A link with at least this sum of demands can be a bottleneck. The distance from RP_WHOLE is far
 * above the rounding of rates. */
#define RP_TIGHT (RP_WHOLE - (1u << 10))

typedef struct rp_link {
    double capacity;    /* bytes per tick */
    double first_share; /* capacity / flows, while there are flows */
    uint64_t flows;
    uint64_t mark;      /* number of the last search that reached it */
    uint64_t demand;    /* sum of the demands of its members, see RP_WHOLE */
    rp_member *members; /* groups with flows */
    uint32_t member_count;
    uint32_t route_count; /* routes that contain it: the most members that it can have */
    bool tight;           /* at the last computation of rates the demand was RP_TIGHT or more */
    bool full;
    bool becomes_full;
    /* Filling: the capacity left after all levels before `level_rate`, the number of flows that
     * were fixed at that rate, and the number of flows that are not fixed yet. Counting first and
     * multiplying once makes the result independent of the order in which a level's flows are
     * visited. */
    double rest;
    double level_rate;
    uint64_t level_flows;
    uint64_t unfixed;
    int64_t busy_since;
    int64_t busy_ticks; /* up to busy_since while there are members */
    int64_t full_since;
    int64_t full_ticks;
    uint64_t member_capacity;
} rp_link;

/* A link of a route. */
typedef struct rp_hop {
    rp_link *link;
    uint32_t slot;   /* place in the link's members while the group is listed there */
    uint32_t demand; /* demand of the route on the link, see RP_WHOLE */
} rp_hop;

/* A route and the flows on it. */
typedef struct rp_group {
    double rate;    /* rate of each flow, bytes per tick, since since_ticks */
    double service; /* bytes that a flow present from the beginning would have received */
    int64_t since_ticks;
    int64_t end_ticks; /* end of the first flow, until the heap of ends has it */
    rp_heap flows; /* flows by the service of the group at which each ends, see rp_service_key */
    uint32_t end_slot;     /* place in the heap of ends, or RP_NO_SLOT */
    uint32_t reached_slot; /* place in reached_groups, while the group has their mark */
    bool listed;           /* the group is among the members of its links */
    bool dirty;            /* its count or its first flow may have changed at the clock's instant */
    uint32_t hop_begin;
    uint32_t hop_count;
    const rp_link *bottleneck;
    uint64_t solved_flows; /* the count of flows for which the rates were computed */
    uint64_t mark;
    uint64_t fill;
    double new_rate;
    double ended_bytes;
    double service_at_starts; /* sum over the present flows of the service at their starts */
} rp_group;

#define RP_NO_SLOT UINT32_MAX

/* Groups by the end of their first flow. */
typedef struct rp_end {
    int64_t ticks;
    uint32_t group;
} rp_end;

/* A link and a lower bound of the rate that each unfixed flow on it could get. Links are ordered by
 * it. */
typedef struct rp_share {
    double rate;
    rp_link *link; /* NULL: no link */
} rp_share;

struct rp_network {
    double ticks_per_s;
    int64_t clock_ticks;
    uint64_t sequence;
    uint64_t flow_count;
    rp_link *links; /* hops point here: the number of links does not change */
    uint32_t link_count;
    rp_group *groups;
    uint32_t group_count;
    uint32_t group_capacity; /* also the capacity of dirty, reached_groups, starts, changed, ends */
    rp_hop *hops;
    uint32_t hop_count;
    uint64_t hop_capacity;
    uint32_t *sorted_links; /* [link_count] a route while it is looked up */
    uint32_t *table;        /* open addressing: route + 1, or 0 */
    uint32_t table_size;    /* power of two */
    rp_heap ended;          /* completions that are not yet popped, by time */
    uint32_t *dirty;
    uint32_t dirty_count;
    /* State of a recomputation */
    uint64_t mark;  /* mark of all links and groups that the last search reached; 0 marks none */
    uint64_t fill;  /* number of the last filling, in the groups that it fixed */
    uint32_t reuse; /* recomputations since the last search */
    rp_link **reached_links;
    uint32_t reached_link_count;
    uint32_t *reached_groups;
    uint32_t reached_group_count;
    rp_link *limit;     /* the link that limits all reached groups; NULL: not known */
    double other_share; /* the least share of the other reached links, or a lower bound */
    bool whole;         /* rp_network_recompute: also look at links that are not tight */
    uint32_t *starts;   /* groups whose count has changed: the search begins there */
    uint32_t start_count;
    bool few_ends;     /* there are so few ends that new ends need no order */
    uint32_t *changed; /* groups with a new end, if ends need an order */
    uint32_t changed_count;
    rp_share *shares;
    uint32_t share_count;
    rp_end *ends;
    uint32_t end_count;
};

/* Grows an array to `count` or more items, at least twofold. RP_OK, RP_NO_MEMORY */
rp_status rp_grow(void *array, uint64_t *capacity, uint64_t count, size_t size);

/* Room for `capacity` entries, so that pushes cannot fail. RP_OK, RP_NO_MEMORY */
static inline rp_status rp_heap_reserve(rp_heap *heap, uint64_t capacity)
{
    if (capacity <= heap->capacity) {
        return RP_OK;
    }
    return rp_grow(&heap->entries, &heap->capacity, capacity, sizeof *heap->entries);
}

/* Removes the group at `slot` from the heap of ends. */
void rp_ends_remove(rp_network *network, uint32_t slot);

/* Up to this number ends have no order, except that the least end is the first: looking at all of
 * them is cheaper than a heap. */
#define RP_FEW_ENDS 16u

/* Begins changes of ends, after which at most `count` more groups have an end. */
static inline void rp_ends_begin(rp_network *network, uint32_t count)
{
    network->changed_count = 0;
    network->few_ends = network->end_count + count <= RP_FEW_ENDS;
}

/* Finishes changes of ends: the first end is the least again. */
void rp_ends_update(rp_network *network);

/* Gives a group its next end, between rp_ends_begin and rp_ends_update. */
static inline void rp_ends_set(rp_network *network, uint32_t index, int64_t ticks)
{
    rp_group *group = &network->groups[index];
    if (!network->few_ends) {
        group->end_ticks = ticks;
        network->changed[network->changed_count++] = index;
        return;
    }
    if (group->end_slot == RP_NO_SLOT) {
        group->end_slot = network->end_count++;
    }
    network->ends[group->end_slot] = (rp_end){ticks, index};
}

/* Marks a group whose count or first flow changes at the clock's instant. */
static inline void rp_network_touch(rp_network *network, uint32_t group)
{
    if (!network->groups[group].dirty) {
        network->groups[group].dirty = true;
        network->dirty[network->dirty_count++] = group;
    }
}

/* Brings rates and ends up to date with the marked groups, of which there is at least one. */
void rp_network_settle_dirty(rp_network *network);

/* As rp_network_settle_dirty, also if no group is marked, as is often the case. */
static inline void rp_network_settle(rp_network *network)
{
    if (network->dirty_count > 0) {
        rp_network_settle_dirty(network);
    }
}

/* Brings the links of a group up to date with its count of flows: the first step of a change. */
void rp_network_relink(rp_network *network, uint32_t group);

/* @return whether the link connects the groups on it: it may be a bottleneck of more than one
 * group, now or at the rates computed last. A link that all its groups together cannot fill is
 * never a bottleneck. */
static inline bool rp_link_connects(const rp_link *link)
{
    return link->tight || link->demand >= RP_TIGHT;
}

/* Adds a group, with a reached link, to the reached groups and links. */
void rp_network_join(rp_network *network, uint32_t group);

/* Collects in reached_groups and reached_links the groups that are connected with the groups in
 * `starts`, and all links that connect them. Both are kept from change to change. */
void rp_network_reach(rp_network *network);

/* As rp_network_reach, for all groups with flows and all their links. */
void rp_network_reach_all(rp_network *network);

/* Convert between the service at which a flow ends and its key: the bits of the double. */
static inline double rp_key_service(uint64_t key)
{
    double service;
    memcpy(&service, &key, sizeof service);
    return service;
}

static inline uint64_t rp_service_key(double service)
{
    uint64_t key;
    memcpy(&key, &service, sizeof key);
    return key;
}

/* Service of the group at the clock. */
static inline double rp_group_service(const rp_network *network, const rp_group *group)
{
    return group->service + group->rate * (double)(network->clock_ticks - group->since_ticks);
}

/* The time at which a flow with this key ends, at the group's rate. */
static inline int64_t rp_group_end(const rp_group *group, uint64_t key)
{
    double left = rp_key_service(key) - group->service;
    double ticks = left > 0 ? left / group->rate + 0.5 : 0;
    int64_t end;
    bool never =
        ticks >= 0x1p63 || __builtin_add_overflow(group->since_ticks, (int64_t)ticks, &end);
    return never ? RP_NEVER : end;
}
