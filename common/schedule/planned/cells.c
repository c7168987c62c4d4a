#include "common/schedule/planned/cells.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/units.h"
#include "common/schedule/build.h"

#include <string.h>

/* ---- cells to run ---------------------------------------------------------------------------- */

static int64_t hop_ps(const rp_cells *c, uint32_t from, uint32_t to)
{
    return c->gpu_of[from] != c->gpu_of[to] ? c->hop_ps : 0;
}

/* Lag from the input part of stage + 1 to the input part of `stage`. */
static int64_t gradient_lag_ps(const rp_cells *c, uint32_t stage)
{
    bool same = c->gpu_of[stage + 1] == c->gpu_of[stage];
    return same ? 0 : c->hop_ps - c->ahead_ps[stage];
}

uint32_t rp_cell_dependencies(const rp_cells *c, rp_cell cell, rp_cell_edge edges_out[2])
{
    rp_cell_name name = rp_cell_name_of(c, cell);
    uint32_t stage = name.stage;
    uint32_t count = 0;
    if (name.kind != RP_CELL_FORWARD) { /* the part before it of the same microbatch */
        edges_out[count++] = (rp_cell_edge){cell - 1, 0};
    }
    if (name.kind == RP_CELL_FORWARD && stage > 0) {
        rp_cell on = rp_cell_of(c, RP_CELL_FORWARD, stage - 1, name.microbatch);
        edges_out[count++] = (rp_cell_edge){on, hop_ps(c, stage - 1, stage)};
    }
    if (name.kind == RP_CELL_INPUT && stage + 1 < c->stages) {
        rp_cell on = rp_cell_of(c, RP_CELL_INPUT, stage + 1, name.microbatch);
        edges_out[count++] = (rp_cell_edge){on, gradient_lag_ps(c, stage)};
    }
    return count;
}

uint32_t rp_cell_dependents(const rp_cells *c, rp_cell cell, rp_cell_edge edges_out[2])
{
    rp_cell_name name = rp_cell_name_of(c, cell);
    uint32_t stage = name.stage;
    uint32_t count = 0;
    if (name.kind != RP_CELL_WEIGHT) {
        edges_out[count++] = (rp_cell_edge){cell + 1, 0};
    }
    if (name.kind == RP_CELL_FORWARD && stage + 1 < c->stages) {
        rp_cell on = rp_cell_of(c, RP_CELL_FORWARD, stage + 1, name.microbatch);
        edges_out[count++] = (rp_cell_edge){on, hop_ps(c, stage, stage + 1)};
    }
    if (name.kind == RP_CELL_INPUT && stage > 0) {
        rp_cell on = rp_cell_of(c, RP_CELL_INPUT, stage - 1, name.microbatch);
        edges_out[count++] = (rp_cell_edge){on, gradient_lag_ps(c, stage - 1)};
    }
    return count;
}

/* Sums of times must stay far from 2^63, as in the engine. */
static rp_status check_work(const rp_cells *c, rp_reason *reason)
{
    double total = 2.0 * (double)c->hop_ps * c->count;
    for (uint32_t i = 0; i < c->stages * RP_CELL_KINDS; i++) {
        total += (double)c->microbatches * (double)c->duration_ps[i];
    }
    if (!(total <= 4.0e18)) {
        return rp_refuse(
            reason, RP_INPUT,
            "the work of this run is up to %.3g days; valid are runs below 46 days of GPU "
            "time: use fewer microbatches or shorter times",
            total / 8.64e16);
    }
    return RP_OK;
}

rp_status rp_cells_make(const rp_schedule_config *config, const rp_program *program,
                        rp_arena *arena, rp_cells *cells_out, rp_reason *reason)
{
    uint32_t stages = program->stage_count;
    rp_cells c = {.gpus = config->gpus,
                  .stages = stages,
                  .microbatches = config->microbatches,
                  .count = stages * config->microbatches * RP_CELL_KINDS};
    rp_stage_times times;
    RP_TRY(rp_stage_times_compute(program, config->costs, arena, &times, reason));
    RP_TRY(rp_arena_alloc(arena, stages, sizeof(uint32_t), &c.gpu_of));
    RP_TRY(rp_arena_alloc(arena, c.gpus + 1, sizeof(uint32_t), &c.begin));
    RP_TRY(rp_arena_alloc(arena, (size_t)stages * RP_CELL_KINDS, sizeof(int64_t), &c.duration_ps));
    RP_TRY(rp_arena_alloc(arena, stages, sizeof(int64_t), &c.ahead_ps));
    c.hop_ps = times.hop_ps;
    uint32_t per_gpu = stages / c.gpus;
    for (uint32_t g = 0; g < c.gpus; g++) {
        c.begin[g + 1] = c.begin[g] + per_gpu * c.microbatches * RP_CELL_KINDS;
    }
    for (uint32_t s = 0; s < stages; s++) {
        const int64_t *ps = &times.ps[(size_t)s * RP_OP_KIND_COUNT];
        bool recomputes = rp_recompute_has_ops(program->recompute);
        int64_t recompute = recomputes ? ps[RP_OP_RECOMPUTE] : 0;
        c.gpu_of[s] = s < c.gpus ? s : 2 * c.gpus - 1 - s;
        c.duration_ps[s * RP_CELL_KINDS + RP_CELL_FORWARD] = ps[RP_OP_FORWARD];
        c.duration_ps[s * RP_CELL_KINDS + RP_CELL_INPUT] = recompute + ps[RP_OP_BACKWARD_INPUT];
        c.duration_ps[s * RP_CELL_KINDS + RP_CELL_WEIGHT] = ps[RP_OP_BACKWARD_WEIGHT];
        c.ahead_ps[s] = program->recompute == RP_RECOMPUTE_EARLY ? recompute : 0;
    }
    RP_TRY(check_work(&c, reason));
    *cells_out = c;
    return RP_OK;
}

/* ---- orders ---------------------------------------------------------------------------------- */

rp_status rp_cell_order_make(const rp_cells *c, rp_arena *arena, rp_cell_order *order_out)
{
    *order_out = (rp_cell_order){0};
    RP_TRY(rp_arena_alloc(arena, c->count, sizeof(rp_cell), &order_out->cells));
    RP_TRY(rp_arena_alloc(arena, c->count, sizeof(int64_t), &order_out->start_ps));
    return rp_arena_alloc(arena, c->count, sizeof(uint32_t), &order_out->sequence);
}

void rp_cell_order_copy(const rp_cells *c, const rp_cell_order *from, rp_cell_order *to)
{
    memcpy(to->cells, from->cells, c->count * sizeof *to->cells);
    memcpy(to->start_ps, from->start_ps, c->count * sizeof *to->start_ps);
    memcpy(to->sequence, from->sequence, c->count * sizeof *to->sequence);
    to->makespan_ps = from->makespan_ps;
}

static rp_cell_kind kind_of(rp_op_kind kind)
{
    return rp_op_kind_is_forward(kind)       ? RP_CELL_FORWARD
           : rp_op_kind_leaves_weights(kind) ? RP_CELL_INPUT
                                             : RP_CELL_WEIGHT;
}

rp_status rp_cell_order_of(const rp_schedule_type *schedule, const rp_schedule_config *config,
                           const rp_cells *c, rp_arena *arena, rp_cell_order *order,
                           rp_reason *reason)
{
    rp_schedule_config one_iteration = *config;
    one_iteration.iterations = 1;
    rp_program *program = NULL;
    RP_TRY(rp_cell_order_make(c, arena, order));
    RP_TRY(rp_schedule_build(schedule, &one_iteration, &program, reason));
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        if (!rp_op_kind_is_recompute(op->kind)) {
            rp_cell_kind kind = kind_of((rp_op_kind)op->kind);
            order->cells[count++] = rp_cell_of(c, kind, op->stage, op->microbatch);
        }
    }
    rp_program_destroy(program);
    return rp_cell_order_run(c, order);
}

typedef struct runner {
    const rp_cells *c;
    rp_cell_order *order;
    uint32_t *next;      /* [gpu] position of its next cell in the order */
    rp_cell *blocked_on; /* [gpu] cell on another GPU for which its next cell waits */
    int64_t *free_ps;    /* [gpu] */
    uint32_t *ready;     /* stack of GPUs that can go on */
    uint32_t ready_count;
    uint32_t done;
} runner;

#define NOT_RUN UINT32_MAX

/* Finds the time at which the cell can start; false: a cell on which it depends has not run and is
 * noted in blocked_on. */
static bool find_start(runner *r, uint32_t gpu, rp_cell cell, int64_t *start_out)
{
    rp_cell_edge edges[2];
    uint32_t count = rp_cell_dependencies(r->c, cell, edges);
    *start_out = r->free_ps[gpu];
    for (uint32_t i = 0; i < count; i++) {
        rp_cell on = edges[i].on;
        if (r->order->sequence[on] == NOT_RUN) {
            r->blocked_on[gpu] = on;
            return false;
        }
        int64_t end = r->order->start_ps[on] + rp_cell_duration_ps(r->c, on);
        *start_out = rp_max_ps(*start_out, end + edges[i].lag_ps);
    }
    return true;
}

static void wake_dependents(runner *r, rp_cell cell)
{
    rp_cell_edge edges[2];
    uint32_t count = rp_cell_dependents(r->c, cell, edges);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t gpu = rp_cell_gpu(r->c, edges[i].on);
        if (r->blocked_on[gpu] == cell) {
            r->blocked_on[gpu] = RP_NO_CELL;
            r->ready[r->ready_count++] = gpu;
        }
    }
}

static void run_gpu(runner *r, uint32_t gpu)
{
    rp_cell_order *order = r->order;
    int64_t start = 0;
    while (r->next[gpu] < r->c->begin[gpu + 1] &&
           find_start(r, gpu, order->cells[r->next[gpu]], &start)) {
        rp_cell cell = order->cells[r->next[gpu]++];
        int64_t duration = rp_cell_duration_ps(r->c, cell);
        order->start_ps[cell] = start;
        order->sequence[cell] = r->done++;
        r->free_ps[gpu] = start + duration;
        if (duration > 0) {
            order->makespan_ps = rp_max_ps(order->makespan_ps, start + duration);
        }
        wake_dependents(r, cell);
    }
}

static rp_status run_in(const rp_cells *c, rp_arena *scratch, rp_cell_order *order)
{
    runner r = {.c = c, .order = order};
    RP_TRY(rp_arena_alloc(scratch, c->gpus, sizeof(uint32_t), &r.next));
    RP_TRY(rp_arena_alloc(scratch, c->gpus, sizeof(rp_cell), &r.blocked_on));
    RP_TRY(rp_arena_alloc(scratch, c->gpus, sizeof(int64_t), &r.free_ps));
    RP_TRY(rp_arena_alloc(scratch, c->gpus, sizeof(uint32_t), &r.ready));
    order->makespan_ps = 0;
    memset(order->sequence, 0xff, c->count * sizeof *order->sequence);
    for (uint32_t gpu = c->gpus; gpu-- > 0;) {
        r.next[gpu] = c->begin[gpu];
        r.blocked_on[gpu] = RP_NO_CELL;
        r.ready[r.ready_count++] = gpu;
    }
    while (r.ready_count > 0) {
        run_gpu(&r, r.ready[--r.ready_count]);
    }
    if (r.done != c->count) {
        order->makespan_ps = RP_CELL_DEADLOCK;
    }
    return RP_OK;
}

rp_status rp_cell_order_run(const rp_cells *c, rp_cell_order *order)
{
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = run_in(c, scratch, order);
    rp_arena_destroy(scratch);
    return status;
}

uint32_t rp_cell_order_peaks(const rp_cells *c, const rp_cell_order *order, uint32_t *peaks_out)
{
    uint32_t largest = 0;
    for (uint32_t gpu = 0; gpu < c->gpus; gpu++) {
        uint32_t live = 0;
        peaks_out[gpu] = 0;
        for (uint32_t i = c->begin[gpu]; i < c->begin[gpu + 1]; i++) {
            uint32_t kind = order->cells[i] % RP_CELL_KINDS;
            live += kind == RP_CELL_FORWARD ? 1 : 0;
            peaks_out[gpu] = live > peaks_out[gpu] ? live : peaks_out[gpu];
            live -= kind == RP_CELL_WEIGHT ? 1 : 0;
        }
        largest = peaks_out[gpu] > largest ? peaks_out[gpu] : largest;
    }
    return largest;
}

int64_t rp_cell_order_span_ps(const rp_cells *c, const rp_cell_order *order)
{
    int64_t longest = 0;
    for (uint32_t gpu = 0; gpu < c->gpus; gpu++) {
        rp_cell last = order->cells[c->begin[gpu + 1] - 1];
        int64_t end = order->start_ps[last] + rp_cell_duration_ps(c, last);
        longest = rp_max_ps(longest, end - order->start_ps[order->cells[c->begin[gpu]]]);
    }
    return longest;
}

void rp_cell_plan_emit(const rp_schedule_config *config, const void *plan_pointer, uint32_t rank,
                       uint32_t iteration, rp_emitter *emitter)
{
    (void)config;
    (void)iteration;
    const rp_cell_plan *plan = plan_pointer;
    const rp_cells *c = &plan->cells;
    for (uint32_t i = c->begin[rank]; i < c->begin[rank + 1]; i++) {
        rp_cell_name name = rp_cell_name_of(c, plan->order.cells[i]);
        if (name.kind == RP_CELL_FORWARD) {
            rp_emit_forward(emitter, name.stage, name.microbatch);
        } else if (name.kind == RP_CELL_INPUT) {
            rp_emit_backward_input(emitter, name.stage, name.microbatch);
        } else {
            rp_emit_backward_weight(emitter, name.stage, name.microbatch);
        }
    }
}

rp_status rp_cell_plan_check(const rp_schedule_config *config, const char *name, rp_reason *reason)
{
    if (config->costs != NULL) {
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE,
                     "{schedule}: %s plans with times; valid are runs with a cost table", name);
}
