/* Inside of the network: what network.c (flows and time), route.c (routes),
 * reach.c (what a change reaches), rates.c (rates) and ends.c (ends of groups) share. */
#pragma once

#include "common/base/heap.h"
#include "common/machine/network/network.h"

#include <stddef.h>
#include <string.h>

/* That a group has flows on a link; `hop` is the place in the group's route. */
typedef struct rp_member {
    uint32_t group;
    uint32_t hop;
} rp_member;

/* Most that a route could take of a link, in parts of its capacity: RP_WHOLE, where the route
 * has no narrower link. Integers, so that sums do not depend on their order. */
#define RP_WHOLE (UINT32_C(1) << 30)
/* From this sum on a link can be a bottleneck: the distance is far above the rounding of rates. */
#define RP_TIGHT (RP_WHOLE - (1u << 10))

typedef struct rp_link {
    double capacity;    /* bytes per tick */
    double first_share; /* capacity / flows, while there are flows */
    uint64_t flows;
    uint64_t mark;      /* the number of the search that reached it last */
    uint64_t demand;    /* sum over the members of what they could take, see RP_WHOLE */
    rp_member *members; /* groups with flows */
    uint32_t member_count;
    uint32_t route_count; /* that contain it: the most there can be members */
    bool tight;           /* when rates were computed last: the demand was RP_TIGHT or more */
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
    int64_t busy_ticks; /* up to busy_since while there are members */
    int64_t full_since;
    int64_t full_ticks;
    uint64_t member_capacity;
} rp_link;

/* One link of one route. */
typedef struct rp_hop {
    rp_link *link;
    uint32_t slot;   /* in the link's members while the group is listed there */
    uint32_t demand; /* of the route on the link, see RP_WHOLE */
} rp_hop;

/* A route and the flows on it. */
typedef struct rp_group {
    double rate;    /* of each flow, bytes per tick, since since_ticks */
    double service; /* bytes that a flow present from the beginning would have got */
    int64_t since_ticks;
    int64_t end_ticks;     /* when the first flow ends, until the heap of ends has it */
    rp_heap flows;         /* by the service of the group at which each ends, see rp_service_key */
    uint32_t end_slot;     /* in the heap of ends, or RP_NO_SLOT */
    uint32_t reached_slot; /* in reached_groups, while it has their mark */
    bool listed;           /* among the members of its links */
    bool dirty;            /* its count or its first flow may have changed at the clock's instant */
    uint32_t hop_begin;
    uint32_t hop_count;
    const rp_link *bottleneck;
    uint64_t solved_flows; /* the count that the rates were computed for */
    uint64_t mark;
    uint64_t fill;
    double new_rate;
    double ended_bytes;
    double service_at_starts; /* sum over the flows present */
} rp_group;

#define RP_NO_SLOT UINT32_MAX

/* Groups by the end of their first flow. */
typedef struct rp_end {
    int64_t ticks;
    uint32_t group;
} rp_end;

/* Links by what a flow that is not fixed could get; a lower bound of it. */
typedef struct rp_share {
    double rate;
    rp_link *link; /* NULL: none */
} rp_share;

struct rp_network {
    double ticks_per_s;
    int64_t clock_ticks;
    uint64_t sequence;
    uint64_t flow_count;
    rp_link *links; /* where hops point to: their number does not change */
    uint32_t link_count;
    rp_group *groups;
    uint32_t group_count;
    uint32_t group_capacity; /* also of dirty, reached_groups, starts, changed, ends */
    rp_hop *hops;
    uint32_t hop_count;
    uint64_t hop_capacity;
    uint32_t *sorted_links; /* a route while it is looked up; link_count */
    uint32_t *table;        /* open addressing: route + 1, or 0 */
    uint32_t table_size;    /* power of two */
    rp_heap ended;          /* not yet popped, by time */
    uint32_t *dirty;
    uint32_t dirty_count;
    /* One recomputation */
    uint64_t mark;  /* of what the last search reached; 0 is nobody's */
    uint64_t fill;  /* of what the last filling fixed */
    uint32_t reuse; /* recomputations since the last search */
    rp_link **reached_links;
    uint32_t reached_link_count;
    uint32_t *reached_groups;
    uint32_t reached_group_count;
    rp_link *limit;     /* that limited all reached groups; NULL: not known */
    double other_share; /* no other reached link has less */
    bool whole;         /* rp_network_recompute: links that are not tight are looked at, too */
    uint32_t *starts;   /* groups whose count has changed: where the search begins */
    uint32_t start_count;
    bool few_ends;     /* so few that new ends need not be brought in order */
    uint32_t *changed; /* groups with a new end, where they must */
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

/* Takes the group at `slot` out of the heap of ends. */
void rp_ends_remove(rp_network *network, uint32_t slot);

/* Up to so many ends have no order, but for the least one, which is the first: looking at all of
 * them is cheaper than a heap. */
#define RP_FEW_ENDS 16u

/* Begins changes of ends, after which at most `count` more groups have one. */
static inline void rp_ends_begin(rp_network *network, uint32_t count)
{
    network->changed_count = 0;
    network->few_ends = network->end_count + count <= RP_FEW_ENDS;
}

/* Ends them: the first end is the least again. */
void rp_ends_update(rp_network *network);

/* Gives a group its next end, between the two. */
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

/* Brings rates and ends up to date with the marked groups, of which there are some. */
void rp_network_settle_dirty(rp_network *network);

/* The same; often there are none. */
static inline void rp_network_settle(rp_network *network)
{
    if (network->dirty_count > 0) {
        rp_network_settle_dirty(network);
    }
}

/* Brings the links of a group up to date with its count of flows: what a change begins with. */
void rp_network_relink(rp_network *network, uint32_t group);

/* True where the link connects the groups on it: it may be a bottleneck of more than one, now or
 * at the rates computed last. A link that all its groups together cannot fill never is one. */
static inline bool rp_link_connects(const rp_link *link)
{
    return link->tight || link->demand >= RP_TIGHT;
}

/* Joins the reached groups and links: a group, one of whose links is reached. */
void rp_network_join(rp_network *network, uint32_t group);

/* Collects the groups that the groups in `starts` are connected with, and all links that connect
 * those, in reached_groups and reached_links. They are kept from change to change. */
void rp_network_reach(rp_network *network);

/* The same for all groups with flows and all their links. */
void rp_network_reach_all(rp_network *network);

/* The key of a flow that ends at a service, and back: the bits of the double. */
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

/* When a flow with that key ends, at the group's rate. */
static inline int64_t rp_group_end(const rp_group *group, uint64_t key)
{
    double left = rp_key_service(key) - group->service;
    double ticks = left > 0 ? left / group->rate + 0.5 : 0;
    int64_t end;
    bool never =
        ticks >= 0x1p63 || __builtin_add_overflow(group->since_ticks, (int64_t)ticks, &end);
    return never ? RP_NEVER : end;
}
