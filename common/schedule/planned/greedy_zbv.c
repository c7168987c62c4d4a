#include "common/schedule/planned/greedy.h"

enum { DOWN, UP };

static uint32_t forwards(const rp_greedy *g, uint32_t gpu)
{
    return g->gpus[gpu].done[DOWN][RP_CELL_FORWARD] + g->gpus[gpu].done[UP][RP_CELL_FORWARD];
}

/* Before the first forward on the way up of GPU `gpu`, appends forwards on the way down through all
 * GPUs up to this GPU, as long as they fit in time, and in memory with a reserve of two forwards
 * for each GPU on the way up. */
static void push_down(rp_greedy *g, uint32_t gpu)
{
    int64_t up = rp_greedy_ready_ps(g, gpu, UP, RP_CELL_FORWARD);
    uint32_t reserve = 2 + 2 * gpu;
    const rp_greedy_gpu *state = &g->gpus[gpu];
    while (state->done[DOWN][RP_CELL_FORWARD] < g->c->microbatches &&
           state->live + reserve <= g->capacity) {
        int64_t end = 0; /* end of another forward on this GPU */
        for (uint32_t i = 0; i <= gpu; i++) {
            const rp_greedy_gpu *on = &g->gpus[i];
            int64_t ready = i == 0 ? 0 : end + g->c->hop_ps;
            end = ready > on->free_ps ? ready : on->free_ps;
            end += rp_cell_duration_ps(g->c, rp_greedy_next(g, i, DOWN, RP_CELL_FORWARD));
        }
        if (end > up) {
            return;
        }
        for (uint32_t i = 0; i <= gpu; i++) {
            rp_greedy_put(g, i, DOWN, RP_CELL_FORWARD);
        }
    }
}

/* Appends another forward, on the way up if possible, if the GPU before has run more forwards. */
static bool catch_up(rp_greedy *g, uint32_t gpu)
{
    uint32_t chunk = rp_greedy_can(g, gpu, UP, RP_CELL_FORWARD) ? UP : DOWN;
    if (forwards(g, gpu) >= forwards(g, gpu - 1) || g->gpus[gpu].live >= g->capacity ||
        !rp_greedy_can(g, gpu, chunk, RP_CELL_FORWARD)) {
        return false;
    }
    rp_greedy_put(g, gpu, chunk, RP_CELL_FORWARD);
    return true;
}

static void warm_up(rp_greedy *g)
{
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        rp_greedy_put(g, gpu, DOWN, RP_CELL_FORWARD);
    }
    for (uint32_t gpu = g->c->gpus; gpu-- > 0;) {
        push_down(g, gpu);
        rp_greedy_put(g, gpu, UP, RP_CELL_FORWARD);
    }
    for (bool moved = true; moved;) { /* until all GPUs have equally many forwards */
        moved = false;
        for (uint32_t gpu = g->c->gpus; gpu-- > 1;) {
            moved |= catch_up(g, gpu);
        }
    }
}

/* All GPUs choose before any of them moves: a stage on the way down has its gradient only if the
 * next GPU has run its input part in an earlier turn. */
static void choose_inputs(rp_greedy *g)
{
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        g->gpus[gpu].choice = rp_greedy_can(g, gpu, DOWN, RP_CELL_INPUT) ? DOWN : UP;
    }
}

static bool put_input(rp_greedy *g, uint32_t gpu, uint32_t chunk, bool force)
{
    if (g->gpus[gpu].choice != chunk || !rp_greedy_can(g, gpu, chunk, RP_CELL_INPUT)) {
        return false;
    }
    rp_greedy_put_filled(g, gpu, chunk, RP_CELL_INPUT, force);
    return true;
}

static bool put_inputs(rp_greedy *g, bool force)
{
    bool moved = false;
    choose_inputs(g);
    for (uint32_t gpu = g->c->gpus; gpu-- > 0;) {
        moved |= put_input(g, gpu, DOWN, force);
    }
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        moved |= put_input(g, gpu, UP, force);
    }
    return moved;
}

static void choose_forwards(rp_greedy *g)
{
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        g->gpus[gpu].choice = rp_greedy_can(g, gpu, UP, RP_CELL_FORWARD) ? UP : DOWN;
    }
}

static bool put_forward(rp_greedy *g, uint32_t gpu, uint32_t chunk, bool force)
{
    if (g->gpus[gpu].choice != chunk || !rp_greedy_can(g, gpu, chunk, RP_CELL_FORWARD) ||
        !rp_greedy_make_room(g, gpu)) {
        return false;
    }
    rp_greedy_put_filled(g, gpu, chunk, RP_CELL_FORWARD, force);
    return true;
}

static bool put_forwards(rp_greedy *g, bool force)
{
    bool moved = false;
    choose_forwards(g);
    for (uint32_t gpu = g->c->gpus; gpu-- > 0;) {
        moved |= put_forward(g, gpu, UP, force);
    }
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        moved |= put_forward(g, gpu, DOWN, force);
    }
    return moved;
}

rp_status rp_greedy_zbv(rp_greedy *g, bool force_forward, bool force_input)
{
    rp_greedy_begin(g);
    warm_up(g);
    bool moved = true;
    while (moved) {
        moved = put_inputs(g, force_input);
        moved |= put_forwards(g, force_forward);
    }
    return rp_greedy_end(g);
}
