/* Inside of the network: what network.c (flows and time), network_route.c (routes),
 * network_rates.c (rates) and network_heap.c share. */
#pragma once

#include "sim/network.h"

#include <stddef.h>

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

typedef struct rpsim_link {
    double capacity; /* bytes per tick */
    /* Filling: what is left after all levels before `level_rate`, how many flows were fixed at
     * that rate, and how many are not fixed yet. Counting first and multiplying once makes the
     * result independent of the order in which a level's flows are visited. */
    double rest;
    double level_rate;
    uint64_t level_flows;
    uint64_t unfixed;
    uint64_t mark;         /* the number of the search that reached it last */
    rpsim_member *members; /* groups with flows */
    uint64_t member_capacity;
    uint32_t member_count;
    uint32_t route_count; /* that contain it: the most there can be members */
    uint64_t flows;
    bool busy;
    bool full;
    bool becomes_full;
    int64_t busy_since;
    int64_t busy_ticks; /* up to busy_since while busy */
    int64_t full_since;
    int64_t full_ticks;
} rpsim_link;

/* One link of one route. */
typedef struct rpsim_hop {
    uint32_t link;
    uint32_t slot; /* in the link's members while the group is listed there */
} rpsim_hop;

/* A route and the flows on it. */
typedef struct rpsim_group {
    uint32_t hop_begin;
    uint32_t hop_count;
    bool listed;           /* among the members of its links */
    bool dirty;            /* its count or its first flow may have changed at the clock's instant */
    uint32_t bottleneck;   /* link */
    uint32_t end_slot;     /* in the heap of ends, or RPSIM_NO_SLOT */
    uint64_t solved_flows; /* the count that the rates were computed for */
    uint64_t mark;
    uint64_t fill;
    double rate; /* of each flow, bytes per tick, since since_ticks */
    double new_rate;
    double service; /* bytes that a flow present from the beginning would have got */
    int64_t since_ticks;
    int64_t end_ticks; /* when the first flow ends */
    rpsim_heap flows;
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
    uint32_t group_capacity; /* also of dirty, reached_groups, changed and ends */
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
    uint32_t *changed;
    uint32_t changed_count;
    rpsim_share *shares;
    uint32_t share_count;
    rpsim_end *ends;
    uint32_t end_count;
};

/* Room for `capacity` entries, so that pushes cannot fail. RP_OK, RP_NO_MEMORY */
rp_status rpsim_heap_reserve(rpsim_heap *heap, uint64_t capacity);
void rpsim_heap_push(rpsim_heap *heap, rpsim_heap_entry entry);
rpsim_heap_entry rpsim_heap_pop(rpsim_heap *heap); /* not empty */

/* Grows an array to `count` or more items, at least twofold. RP_OK, RP_NO_MEMORY */
rp_status rpsim_grow(void *array, uint64_t *capacity, uint64_t count, size_t size);

/* Takes the group at `slot` out of the heap of ends. */
void rpsim_ends_remove(rpsim_network *network, uint32_t slot);

/* Puts groups into the heap of ends, or moves them there, by their end_ticks. Few are moved one by
 * one, many by building the heap anew. */
void rpsim_ends_update(rpsim_network *network, const uint32_t *groups, uint32_t count);

/* Marks a group whose count or first flow changes at the clock's instant. */
void rpsim_network_touch(rpsim_network *network, uint32_t group);

/* Brings rates and ends up to date with the marked groups. */
void rpsim_network_settle(rpsim_network *network);

/* Service of the group at the clock. */
double rpsim_group_service(const rpsim_network *network, const rpsim_group *group);

/* When a flow with that key ends, at the group's rate. */
int64_t rpsim_group_end(const rpsim_group *group, uint64_t key);

/* The key of a flow that ends at a service, and back: the bits of the double. */
double rpsim_key_service(uint64_t key);
uint64_t rpsim_service_key(double service);
