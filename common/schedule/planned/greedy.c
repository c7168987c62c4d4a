#include "common/schedule/planned/greedy.h"

#include <string.h>

static uint32_t stage_of(const rp_greedy *g, uint32_t gpu, uint32_t chunk)
{
    return chunk == 0 ? gpu : 2 * g->c->gpus - 1 - gpu;
}

void rp_greedy_begin(rp_greedy *g)
{
    memset(g->gpus, 0, g->c->gpus * sizeof *g->gpus);
}

rp_cell rp_greedy_next(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind)
{
    return rp_cell_of(g->c, kind, stage_of(g, gpu, chunk), g->gpus[gpu].done[chunk][kind]);
}

/* True if the cell has been appended: microbatches of each kind ascend. */
static bool is_done(const rp_greedy *g, rp_cell cell)
{
    rp_cell_name name = rp_cell_name_of(g->c, cell);
    uint32_t chunk = name.stage < g->c->gpus ? 0 : 1;
    return g->gpus[g->c->gpu_of[name.stage]].done[chunk][name.kind] > name.microbatch;
}

bool rp_greedy_can(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind)
{
    if (g->gpus[gpu].done[chunk][kind] == g->c->microbatches) {
        return false;
    }
    rp_cell_edge edges[2];
    uint32_t count = rp_cell_dependencies(g->c, rp_greedy_next(g, gpu, chunk, kind), edges);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_done(g, edges[i].on)) {
            return false;
        }
    }
    return true;
}

int64_t rp_greedy_ready_ps(const rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind)
{
    rp_cell_edge edges[2];
    uint32_t count = rp_cell_dependencies(g->c, rp_greedy_next(g, gpu, chunk, kind), edges);
    int64_t ready = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t end = g->order->start_ps[edges[i].on] + rp_cell_duration_ps(g->c, edges[i].on);
        ready = end + edges[i].lag_ps > ready ? end + edges[i].lag_ps : ready;
    }
    return ready;
}

void rp_greedy_put(rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind)
{
    rp_greedy_gpu *state = &g->gpus[gpu];
    rp_cell cell = rp_greedy_next(g, gpu, chunk, kind);
    int64_t ready = rp_greedy_ready_ps(g, gpu, chunk, kind);
    int64_t start = ready > state->free_ps ? ready : state->free_ps;
    state->bubble_ps += state->count == 0 ? 0 : start - state->free_ps;
    state->free_ps = start + rp_cell_duration_ps(g->c, cell);
    state->live += kind == RP_CELL_FORWARD ? 1 : 0;
    state->live -= kind == RP_CELL_WEIGHT ? 1 : 0;
    state->done[chunk][kind]++;
    g->order->cells[g->c->begin[gpu] + state->count++] = cell;
    g->order->start_ps[cell] = start;
}

/* Finds the pending weight part with the oldest input part among those that take at most `gap_ps`.
 */
static bool find_weight(const rp_greedy *g, uint32_t gpu, int64_t gap_ps, uint32_t *chunk_out)
{
    int64_t oldest = INT64_MAX;
    for (uint32_t chunk = 0; chunk < g->chunks; chunk++) {
        if (rp_greedy_can(g, gpu, chunk, RP_CELL_WEIGHT)) {
            rp_cell cell = rp_greedy_next(g, gpu, chunk, RP_CELL_WEIGHT);
            int64_t ready = rp_greedy_ready_ps(g, gpu, chunk, RP_CELL_WEIGHT);
            if (rp_cell_duration_ps(g->c, cell) <= gap_ps && ready < oldest) {
                oldest = ready;
                *chunk_out = chunk;
            }
        }
    }
    return oldest != INT64_MAX;
}

bool rp_greedy_make_room(rp_greedy *g, uint32_t gpu)
{
    uint32_t chunk = 0;
    while (g->gpus[gpu].live >= g->capacity && find_weight(g, gpu, INT64_MAX, &chunk)) {
        rp_greedy_put(g, gpu, chunk, RP_CELL_WEIGHT);
    }
    return g->gpus[gpu].live < g->capacity;
}

int64_t rp_greedy_bubble_ps(const rp_greedy *g)
{
    int64_t largest = 0;
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        int64_t bubble = g->gpus[gpu].bubble_ps;
        largest = bubble > largest ? bubble : largest;
    }
    return largest;
}

void rp_greedy_put_filled(rp_greedy *g, uint32_t gpu, uint32_t chunk, rp_cell_kind kind, bool force)
{
    rp_greedy_gpu *state = &g->gpus[gpu];
    int64_t ready = rp_greedy_ready_ps(g, gpu, chunk, kind);
    uint32_t weight = 0;
    while (ready > state->free_ps && find_weight(g, gpu, ready - state->free_ps, &weight)) {
        rp_greedy_put(g, gpu, weight, RP_CELL_WEIGHT);
    }
    if (force && ready > state->free_ps && find_weight(g, gpu, INT64_MAX, &weight)) {
        int64_t bubble = state->bubble_ps + ready - state->free_ps;
        if (bubble > g->approved_ps && bubble > rp_greedy_bubble_ps(g)) {
            rp_greedy_put(g, gpu, weight, RP_CELL_WEIGHT);
        }
    }
    rp_greedy_put(g, gpu, chunk, kind);
}

rp_status rp_greedy_end(rp_greedy *g)
{
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        uint32_t chunk = 0;
        while (find_weight(g, gpu, INT64_MAX, &chunk)) {
            rp_greedy_put(g, gpu, chunk, RP_CELL_WEIGHT);
        }
        if (g->gpus[gpu].count != g->c->begin[gpu + 1] - g->c->begin[gpu]) {
            g->order->makespan_ps = RP_CELL_DEADLOCK;
            return RP_OK;
        }
    }
    return rp_cell_order_run(g->c, g->order);
}
