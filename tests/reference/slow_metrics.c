#include "tests/reference/slow_sim.h"

#include <stdlib.h>

/* Times that split a GPU's idle time; -1 if there is no such op. */
typedef struct slow_marks {
    int64_t first_begin;
    int64_t last_end;
    int64_t first_backward_start;
    int64_t last_backward_end;
    int64_t window_start; /* end of the last warm-up forward */
} slow_marks;

/* Notes a warm-up forward of this GPU that ended at `end` if it is the last so far. */
static void slow_mark_forward(const slow_sim *sim, int gpu, int64_t end, int *seen,
                              slow_marks *marks)
{
    bool roundpipe = sim->config->schedule == SLOW_ROUNDPIPE;
    if (end <= marks->first_backward_start && (roundpipe || *seen < sim->config->gpus - gpu)) {
        marks->window_start = end;
        (*seen)++;
    }
}

static slow_marks slow_mark(const slow_sim *sim, int gpu)
{
    const slow_queue *queue = &sim->queues[gpu];
    slow_marks marks = {-1, -1, -1, -1, -1};
    for (int i = 0; i < queue->count; i++) {
        const slow_op *op = &sim->ops[queue->ids[i]];
        if (slow_duration(sim, op) == 0) {
            continue;
        }
        marks.first_begin = marks.first_begin < 0 ? op->begin : marks.first_begin;
        marks.last_end = op->end;
        if (op->backward) {
            marks.first_backward_start =
                marks.first_backward_start < 0 ? op->start : marks.first_backward_start;
            marks.last_backward_end = op->end;
        }
    }
    int seen = 0;
    for (int i = 0; i < queue->count; i++) {
        const slow_op *op = &sim->ops[queue->ids[i]];
        if (!op->backward && slow_duration(sim, op) > 0) {
            slow_mark_forward(sim, gpu, op->end, &seen, &marks);
        }
        if (op->backward && slow_work_of(sim, op)->head_fwd > 0) {
            slow_mark_forward(sim, gpu, op->start, &seen, &marks);
        }
    }
    return marks;
}

/* Adds an idle gap [from, to) of a GPU to the part of the bubble to which it belongs. */
static void slow_add_gap(const slow_marks *marks, int64_t from, int64_t to, slow_result *result)
{
    int64_t drain_from = marks->last_backward_end < 0 ? marks->last_end : marks->last_backward_end;
    bool window = marks->first_backward_start >= 0 && marks->window_start >= 0;
    slow_require(to >= from, "a GPU does two things at once");
    if (marks->first_begin < 0 || to <= marks->first_begin) {
        result->fill_ps += to - from;
    } else if (from >= drain_from) {
        result->drain_ps += to - from;
    } else if (window && from >= marks->window_start && to <= marks->first_backward_start) {
        result->switch_ps += to - from;
    } else {
        result->intra_ps += to - from;
    }
}

static void slow_measure_gpu(const slow_sim *sim, int gpu, slow_result *result)
{
    const slow_queue *queue = &sim->queues[gpu];
    slow_marks marks = slow_mark(sim, gpu);
    int64_t idle_from = 0;
    for (int i = 0; i < queue->count; i++) {
        const slow_op *op = &sim->ops[queue->ids[i]];
        if (slow_duration(sim, op) > 0) {
            slow_add_gap(&marks, idle_from, op->begin, result);
            idle_from = op->end;
            result->busy_ps += slow_duration(sim, op);
        }
    }
    slow_add_gap(&marks, idle_from, result->makespan_ps, result);
}

/* ---- lower bound ----------------------------------------------------------------------------- */

/* tail[i]: length of the longest path from op i's end to the end of a non-empty unit; 0 if op i
 * itself is the last non-empty unit; -1 if op i is empty and no non-empty unit comes after it. */
static void slow_paths(const slow_sim *sim, int64_t *head, int64_t *tail)
{
    for (int i = 0; i < sim->op_count; i++) {
        head[i] = 0;
        tail[i] = slow_duration(sim, &sim->ops[i]) > 0 ? 0 : -1;
    }
    int deps[2] = {-1, -1};
    for (int i = 0; i < sim->order_count; i++) {
        int id = sim->order[i];
        const slow_op *op = &sim->ops[id];
        int64_t pre = sim->pre_early ? slow_work_of(sim, op)->pre : 0;
        int count = slow_dependencies(sim, op, deps);
        for (int d = 0; d < count; d++) {
            const slow_op *dep = &sim->ops[deps[d]];
            int64_t dep_end = head[deps[d]] + slow_duration(sim, dep);
            head[id] = slow_max(head[id], dep_end + slow_hop(sim, dep, op) - pre);
        }
    }
    for (int i = sim->order_count - 1; i >= 0; i--) {
        int id = sim->order[i];
        const slow_op *op = &sim->ops[id];
        int64_t pre = sim->pre_early ? slow_work_of(sim, op)->pre : 0;
        int count = slow_dependencies(sim, op, deps);
        for (int d = 0; d < count && tail[id] >= 0; d++) {
            int64_t path = slow_hop(sim, &sim->ops[deps[d]], op) + slow_duration(sim, op) - pre;
            tail[deps[d]] = slow_max(tail[deps[d]], path + tail[id]);
        }
    }
}

static int64_t slow_gpu_bound(const slow_sim *sim, int gpu, const int64_t *head,
                              const int64_t *tail)
{
    int64_t busy = 0;
    int64_t least_head = INT64_MAX;
    int64_t least_tail = INT64_MAX;
    for (int i = 0; i < sim->queues[gpu].count; i++) {
        int id = sim->queues[gpu].ids[i];
        if (slow_duration(sim, &sim->ops[id]) > 0) {
            busy += slow_duration(sim, &sim->ops[id]);
            least_head = slow_min(least_head, head[id]);
            least_tail = slow_min(least_tail, tail[id]);
        }
    }
    return busy == 0 ? 0 : least_head + busy + least_tail;
}

static int64_t slow_lower_bound(const slow_sim *sim)
{
    int64_t *head = slow_alloc((size_t)sim->op_count, sizeof(int64_t));
    int64_t *tail = slow_alloc((size_t)sim->op_count, sizeof(int64_t));
    slow_paths(sim, head, tail);
    int64_t bound = 0;
    for (int i = 0; i < sim->op_count; i++) {
        if (tail[i] >= 0) {
            bound = slow_max(bound, head[i] + slow_duration(sim, &sim->ops[i]) + tail[i]);
        }
    }
    for (int g = 0; g < sim->config->gpus; g++) {
        bound = slow_max(bound, slow_gpu_bound(sim, g, head, tail));
    }
    free(head);
    free(tail);
    return bound;
}

slow_result slow_measure(const slow_sim *sim)
{
    const slow_config *config = sim->config;
    slow_result result = {.comm_total_ps = sim->comm_total_ps,
                          .comm_exposed_ps = sim->comm_exposed_ps};
    result.makespan_ps = slow_latest_end(sim, true, 0);
    slow_require(result.makespan_ps <= INT64_MAX / config->gpus, "times fit into int64_t");
    for (int g = 0; g < config->gpus; g++) {
        slow_measure_gpu(sim, g, &result);
    }
    result.bubble_ps = config->gpus * result.makespan_ps - result.busy_ps;
    slow_require(result.fill_ps >= 0 && result.switch_ps >= 0 && result.drain_ps >= 0 &&
                     result.intra_ps >= 0,
                 "no part of the bubble is negative");
    slow_require(result.fill_ps + result.switch_ps + result.drain_ps + result.intra_ps ==
                     result.bubble_ps,
                 "the parts sum to the bubble");
    if (config->iterations == 1) {
        result.lower_bound_ps = slow_lower_bound(sim);
        slow_require(result.lower_bound_ps <= result.makespan_ps, "the bound is a bound");
    }
    result.iteration_end_ps = slow_alloc((size_t)config->iterations, sizeof(int64_t));
    for (int i = 0; i < config->iterations; i++) {
        result.iteration_end_ps[i] = slow_latest_end(sim, false, i);
    }
    return result;
}
