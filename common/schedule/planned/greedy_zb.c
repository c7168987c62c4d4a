#include "common/schedule/planned/greedy.h"

static int64_t max_ps(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t duration_ps(const rp_greedy *g, uint32_t stage, rp_cell_kind kind)
{
    return rp_cell_duration_ps(g->c, rp_cell_of(g->c, kind, stage, 0));
}

/* Time at which the first input part of GPU `gpu` can start if no later GPU delays it: microbatch 0
 * goes down to the last GPU and comes back. */
static int64_t first_input_ps(const rp_greedy *g, uint32_t gpu)
{
    const rp_cells *c = g->c;
    int64_t at = 0;
    for (uint32_t s = 0; s < c->stages; s++) {
        at += duration_ps(g, s, RP_CELL_FORWARD) + (s > 0 ? c->hop_ps : 0);
    }
    for (uint32_t s = c->stages - 1; s > gpu; s--) {
        at += duration_ps(g, s, RP_CELL_INPUT) + c->hop_ps - c->ahead_ps[s - 1];
    }
    return at;
}

/* A GPU stays at least 1 forward behind the GPU before it until that GPU has run all its forwards:
 * otherwise it could wait for a forward that comes only after one of its own input parts. */
static bool can_forward(const rp_greedy *g, uint32_t gpu)
{
    if (!rp_greedy_can(g, gpu, 0, RP_CELL_FORWARD)) {
        return false;
    }
    uint32_t before = gpu == 0 ? g->c->microbatches : g->gpus[gpu - 1].done[0][RP_CELL_FORWARD];
    return before == g->c->microbatches || before > g->gpus[gpu].done[0][RP_CELL_FORWARD] + 1;
}

static void warm_up(rp_greedy *g, bool more)
{
    for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
        const rp_greedy_gpu *state = &g->gpus[gpu];
        int64_t until = first_input_ps(g, gpu);
        bool late = false;
        while (can_forward(g, gpu) && state->live < g->capacity && !late) {
            int64_t start = max_ps(state->free_ps, rp_greedy_ready_ps(g, gpu, 0, RP_CELL_FORWARD));
            late = start + duration_ps(g, gpu, RP_CELL_FORWARD) > until;
            if (late && state->count > 0 && !(more && start < until)) {
                break;
            }
            rp_greedy_put(g, gpu, 0, RP_CELL_FORWARD);
        }
    }
}

/* True if the input part should run first: it can run, and the next GPU is more than 1 forward
 * behind. */
static bool should_skip(const rp_greedy *g, uint32_t gpu)
{
    if (gpu + 1 == g->c->gpus || !rp_greedy_can(g, gpu, 0, RP_CELL_INPUT)) {
        return false;
    }
    uint32_t ahead =
        g->gpus[gpu].done[0][RP_CELL_FORWARD] - g->gpus[gpu + 1].done[0][RP_CELL_FORWARD];
    return ahead > 1 && rp_greedy_ready_ps(g, gpu, 0, RP_CELL_INPUT) <= g->gpus[gpu].free_ps;
}

static bool put_forward(rp_greedy *g, uint32_t gpu, const rp_zb_switches *switches)
{
    if (!can_forward(g, gpu) || (switches->skip_forward && should_skip(g, gpu)) ||
        !rp_greedy_make_room(g, gpu)) {
        return false;
    }
    rp_greedy_put_filled(g, gpu, 0, RP_CELL_FORWARD, switches->force_weight);
    return true;
}

rp_status rp_greedy_zb(rp_greedy *g, const rp_zb_switches *switches)
{
    rp_greedy_begin(g);
    warm_up(g, switches->more_warmup);
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t gpu = 0; gpu < g->c->gpus; gpu++) {
            moved |= put_forward(g, gpu, switches);
        }
        for (uint32_t gpu = g->c->gpus; gpu-- > 0;) {
            if (rp_greedy_can(g, gpu, 0, RP_CELL_INPUT)) {
                rp_greedy_put_filled(g, gpu, 0, RP_CELL_INPUT, switches->force_weight);
                moved = true;
            }
        }
    }
    return rp_greedy_end(g);
}
