/* Compaction of orders by justification (cells.h). The same pass serves both directions: in
 * reversed time, from the makespan backwards, dependents and dependencies change places, weight
 * parts take memory and forwards give it back. */
#include "common/schedule/planned/cells.h"

#include "common/base/units.h"
#include <stdlib.h>
#include <string.h>

/* Most entries that are searched backwards for a gap; a cell's old place is always found. */
#define LOOK_BACK 4096u

/* Number of visited cells after which no further round of two passes begins. */
#define MOST_STEPS (UINT64_C(1) << 28)

typedef struct entry {
    int64_t key_ps;
    uint32_t sequence;
    rp_cell cell;
} entry;

typedef struct pass {
    const rp_cells *c;
    const uint32_t *capacity;
    bool reversed;
    entry *entries;
    rp_cell *row;      /* [gpu's begin ...] placed cells, in the order of their times */
    uint32_t *placed;  /* [gpu] number of placed cells */
    int64_t *start_ps; /* [cell] start in the pass's direction */
    uint32_t *live;    /* [cell] forwards kept while it runs, itself included */
    uint64_t steps;
} pass;

static int compare_entries(const void *left, const void *right)
{
    const entry *a = left;
    const entry *b = right;
    if (a->key_ps != b->key_ps) {
        return a->key_ps < b->key_ps ? -1 : 1;
    }
    return a->sequence < b->sequence ? -1 : 1;
}

/* Sorts the cells by time. An input part counts from the time at which its gradient is needed: its
 * dependencies then come before it, even if its recompute runs ahead. */
static void sort_cells(pass *p, const rp_cell_order *order)
{
    for (rp_cell cell = 0; cell < p->c->count; cell++) {
        rp_cell_name name = rp_cell_name_of(p->c, cell);
        int64_t ahead = name.kind == RP_CELL_INPUT ? p->c->ahead_ps[name.stage] : 0;
        int64_t key = order->start_ps[cell] + ahead;
        uint32_t sequence = order->sequence[cell];
        p->entries[cell] = p->reversed ? (entry){-key, p->c->count - sequence, cell}
                                       : (entry){key, sequence, cell};
    }
    qsort(p->entries, p->c->count, sizeof *p->entries, compare_entries);
}

static bool takes(const pass *p, rp_cell cell)
{
    return cell % RP_CELL_KINDS == (p->reversed ? RP_CELL_WEIGHT : RP_CELL_FORWARD);
}

static bool gives(const pass *p, rp_cell cell)
{
    return cell % RP_CELL_KINDS == (p->reversed ? RP_CELL_FORWARD : RP_CELL_WEIGHT);
}

static int64_t end_of(const pass *p, rp_cell cell)
{
    return p->start_ps[cell] + rp_cell_duration_ps(p->c, cell);
}

static bool waits_for(const rp_cell_edge *edges, uint32_t count, rp_cell cell)
{
    return (count > 0 && edges[0].on == cell) || (count > 1 && edges[1].on == cell);
}

/* Forwards kept while `cell` runs, if it is inserted at place `at` of the row. */
static uint32_t live_at(const pass *p, const rp_cell *row, uint32_t at, rp_cell cell)
{
    uint32_t before = at == 0 ? 0 : p->live[row[at - 1]] - (gives(p, row[at - 1]) ? 1 : 0);
    return before + (takes(p, cell) ? 1 : 0);
}

/* Puts the cell into its GPU's first gap that is late and long enough. */
static void place(pass *p, rp_cell cell)
{
    uint32_t gpu = rp_cell_gpu(p->c, cell);
    rp_cell *row = &p->row[p->c->begin[gpu]];
    uint32_t count = p->placed[gpu]++;
    int64_t duration = rp_cell_duration_ps(p->c, cell);
    rp_cell_edge edges[2];
    uint32_t edge_count = p->reversed ? rp_cell_dependents(p->c, cell, edges)
                                      : rp_cell_dependencies(p->c, cell, edges);
    int64_t ready = 0;
    for (uint32_t i = 0; i < edge_count; i++) {
        ready = rp_max_ps(ready, end_of(p, edges[i].on) + edges[i].lag_ps);
    }
    uint32_t best = count;
    int64_t start = count == 0 ? ready : rp_max_ps(ready, end_of(p, row[count - 1]));
    uint32_t stop = count > LOOK_BACK ? count - LOOK_BACK : 0;
    for (uint32_t at = count; at > stop; at--) { /* past row[at - 1] */
        rp_cell next = row[at - 1];
        p->steps++;
        if (p->start_ps[next] < ready + duration || waits_for(edges, edge_count, next) ||
            (takes(p, cell) && p->live[next] >= p->capacity[gpu]) ||
            live_at(p, row, at - 1, cell) > p->capacity[gpu]) {
            break;
        }
        int64_t from = at == 1 ? ready : rp_max_ps(ready, end_of(p, row[at - 2]));
        /* A cell without duration stays behind cells that were placed at the same time before
         * it. */
        if (from + duration <= p->start_ps[next] && from < p->start_ps[next]) {
            best = at - 1;
            start = from;
        }
    }
    p->live[cell] = live_at(p, row, best, cell);
    for (uint32_t i = best; i < count; i++) {
        p->live[row[i]] += takes(p, cell) ? 1u : 0u;
        p->live[row[i]] -= gives(p, cell) ? 1u : 0u;
    }
    memmove(&row[best + 1], &row[best], (count - best) * sizeof *row);
    row[best] = cell;
    p->start_ps[cell] = start;
}

/* Places all cells again and reverses the result if the pass was reversed. */
static void justify(pass *p, bool reversed, rp_cell_order *order)
{
    const rp_cells *c = p->c;
    p->reversed = reversed;
    sort_cells(p, order);
    memset(p->placed, 0, c->gpus * sizeof *p->placed);
    for (uint32_t i = 0; i < c->count; i++) {
        place(p, p->entries[i].cell);
    }
    int64_t end = 0;
    for (rp_cell cell = 0; cell < c->count; cell++) {
        end = rp_max_ps(end, end_of(p, cell));
    }
    for (rp_cell cell = 0; cell < c->count; cell++) {
        order->start_ps[cell] = reversed ? end - end_of(p, cell) : p->start_ps[cell];
    }
    for (uint32_t gpu = 0; gpu < c->gpus; gpu++) {
        for (uint32_t i = c->begin[gpu]; i < c->begin[gpu + 1]; i++) {
            uint32_t mirrored = c->begin[gpu + 1] - 1 - (i - c->begin[gpu]);
            order->cells[i] = p->row[reversed ? mirrored : i];
        }
    }
}

/* Places cells as late as possible. Running the order gives its sequence, but also sets the
 * earliest times, so the late times are restored. Cells that take no time can block each other;
 * then the order does not run. */
static rp_status justify_late(pass *p, int64_t *late_ps, rp_cell_order *order)
{
    justify(p, true, order);
    memcpy(late_ps, order->start_ps, p->c->count * sizeof *late_ps);
    RP_TRY(rp_cell_order_run(p->c, order));
    memcpy(order->start_ps, late_ps, p->c->count * sizeof *late_ps);
    return RP_OK;
}

static rp_status compact_in(const rp_cells *c, const uint32_t *capacity, rp_arena *scratch,
                            rp_cell_order *best)
{
    pass p = {.c = c, .capacity = capacity};
    rp_cell_order order;
    int64_t *late_ps = NULL;
    RP_TRY(rp_arena_alloc(scratch, c->count, sizeof(entry), &p.entries));
    RP_TRY(rp_arena_alloc(scratch, c->count, sizeof(rp_cell), &p.row));
    RP_TRY(rp_arena_alloc(scratch, c->gpus, sizeof(uint32_t), &p.placed));
    RP_TRY(rp_arena_alloc(scratch, c->count, sizeof(int64_t), &p.start_ps));
    RP_TRY(rp_arena_alloc(scratch, c->count, sizeof(uint32_t), &p.live));
    RP_TRY(rp_arena_alloc(scratch, c->count, sizeof(int64_t), &late_ps));
    RP_TRY(rp_cell_order_make(c, scratch, &order));
    rp_cell_order_copy(c, best, &order);
    bool gain = best->makespan_ps != RP_CELL_DEADLOCK;
    while (gain && p.steps < MOST_STEPS) {
        RP_TRY(justify_late(&p, late_ps, &order));
        if (order.makespan_ps == RP_CELL_DEADLOCK) {
            break;
        }
        justify(&p, false, &order);
        RP_TRY(rp_cell_order_run(c, &order));
        gain = order.makespan_ps < best->makespan_ps;
        if (gain) {
            rp_cell_order_copy(c, &order, best);
        }
    }
    return RP_OK;
}

rp_status rp_cell_order_compact(const rp_cells *c, const uint32_t *capacity, rp_cell_order *order)
{
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = compact_in(c, capacity, scratch, order);
    rp_arena_destroy(scratch);
    return status;
}
