#include "common/schedule/orders/zero_bubble.h"

#include "common/base/hash.h"
#include "common/schedule/planned/greedy.h"

/* Most candidates: fixed schedules, and each setting of the switches as often as it gains. */
#define MOST_CANDIDATES 64u

typedef struct search {
    rp_cell_plan *plan;             /* best plan so far */
    uint64_t seen[MOST_CANDIDATES]; /* hashes of the candidates' orders */
    uint32_t seen_count;
    uint32_t *capacity; /* [gpu] */
    rp_greedy greedy;
    rp_cell_order order; /* order of the greedy builder */
} search;

/* True if `a` has a smaller makespan, or the same makespan and less time between a GPU's first
 * start and last end: iterations without a barrier can follow each other at that distance. */
static bool is_better(const rp_cells *c, const rp_cell_order *a, const rp_cell_order *b)
{
    return a->makespan_ps < b->makespan_ps ||
           (a->makespan_ps == b->makespan_ps &&
            rp_cell_order_span_ps(c, a) < rp_cell_order_span_ps(c, b));
}

/* False for an order that another setting has given before, so that each order is tried once. */
static bool is_new(search *s, const rp_cell_order *candidate)
{
    uint64_t hash = RP_HASH_SEED;
    for (uint32_t i = 0; i < s->plan->cells.count; i++) {
        hash = rp_hash_add(hash, candidate->cells[i]);
    }
    for (uint32_t i = 0; i < s->seen_count; i++) {
        if (s->seen[i] == hash) {
            return false;
        }
    }
    if (s->seen_count < MOST_CANDIDATES) {
        s->seen[s->seen_count++] = hash;
    }
    return true;
}

/* Compacts the candidate and keeps it if it is better than the best. */
static rp_status consider(search *s, rp_cell_order *candidate)
{
    const rp_cells *c = &s->plan->cells;
    if (candidate->makespan_ps == RP_CELL_DEADLOCK || !is_new(s, candidate)) {
        return RP_OK;
    }
    RP_TRY(rp_cell_order_compact(c, s->capacity, candidate));
    if (s->plan->order.makespan_ps == RP_CELL_DEADLOCK ||
        is_better(c, candidate, &s->plan->order)) {
        rp_cell_order_copy(c, candidate, &s->plan->order);
    }
    return RP_OK;
}

static rp_status try_fixed(search *s, const rp_zb_search *rules, const rp_schedule_config *config,
                           rp_arena *arena, rp_reason *reason)
{
    for (uint32_t i = 0; i < rules->fixed_count; i++) {
        const rp_zb_fixed *fixed = &rules->fixed[i];
        if (config->microbatches >= fixed->least_microbatches) {
            rp_cell_order order;
            RP_TRY(
                rp_cell_order_of(fixed->schedule, config, &s->plan->cells, arena, &order, reason));
            RP_TRY(consider(s, &order));
        }
    }
    return RP_OK;
}

static rp_status try_zb(search *s)
{
    for (uint32_t bits = 0; bits < 8; bits++) {
        rp_zb_switches switches = {.more_warmup = (bits & 1) != 0,
                                   .skip_forward = (bits & 2) != 0,
                                   .force_weight = (bits & 4) != 0};
        RP_TRY(rp_greedy_zb(&s->greedy, &switches));
        RP_TRY(consider(s, &s->order));
    }
    return RP_OK;
}

/* Repeats each setting with the bubble found, as long as the bubble shrinks: a bubble that some GPU
 * has anyway need not be avoided on other GPUs. */
static rp_status try_zbv(search *s)
{
    for (uint32_t bits = 0; bits < 4; bits++) {
        int64_t bubble = INT64_MAX;
        bool better = true;
        s->greedy.approved_ps = 0;
        while (better) {
            RP_TRY(rp_greedy_zbv(&s->greedy, (bits & 1) != 0, (bits & 2) != 0));
            better = s->order.makespan_ps != RP_CELL_DEADLOCK &&
                     rp_greedy_bubble_ps(&s->greedy) < bubble;
            bubble = rp_greedy_bubble_ps(&s->greedy);
            s->greedy.approved_ps = bubble;
            RP_TRY(consider(s, &s->order));
        }
    }
    return RP_OK;
}

rp_status rp_zb_plan(const rp_zb_search *rules, const rp_schedule_config *config,
                     const rp_program *program, rp_arena *arena, void **plan_out, rp_reason *reason)
{
    search s = {0};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *s.plan, &s.plan));
    RP_TRY(rp_cells_make(config, program, arena, &s.plan->cells, reason));
    const rp_cells *c = &s.plan->cells;
    RP_TRY(rp_cell_order_make(c, arena, &s.plan->order));
    RP_TRY(rp_cell_order_make(c, arena, &s.order));
    RP_TRY(rp_arena_alloc(arena, c->gpus, sizeof(uint32_t), &s.capacity));
    for (uint32_t gpu = 0; gpu < c->gpus; gpu++) {
        s.capacity[gpu] = rules->capacity;
    }
    s.greedy = (rp_greedy){
        .c = c, .order = &s.order, .chunks = c->stages / c->gpus, .capacity = rules->capacity};
    RP_TRY(rp_arena_alloc(arena, c->gpus, sizeof(rp_greedy_gpu), &s.greedy.gpus));
    s.plan->order.makespan_ps = RP_CELL_DEADLOCK;
    RP_TRY(try_fixed(&s, rules, config, arena, reason));
    RP_TRY(s.greedy.chunks == 1 ? try_zb(&s) : try_zbv(&s));
    *plan_out = s.plan;
    return RP_OK;
}
