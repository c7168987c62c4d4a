#include "common/timeline/metrics.h"

#include "common/base/log.h"
#include "common/base/reason.h"

#include <inttypes.h>
#include <math.h>

/* An op in the sense of the metrics: a forward, or a backward with the pre-work joined to it. */
typedef struct unit {
    int64_t begin_ps;
    int64_t end_ps;
    int64_t proper_ps; /* start of the backward itself */
    bool backward;
    bool head_forward; /* its pre-work holds a forward that takes time */
    uint32_t next;     /* first op after the unit */
} unit;

/* Times that divide a GPU's idle time into parts; -1 if there is no such op. */
typedef struct gpu_marks {
    int64_t first_begin_ps;
    int64_t last_end_ps;
    int64_t first_backward_ps; /* start of the first non-empty backward, without its pre-work */
    int64_t last_backward_end_ps;
    int64_t window_ps; /* end of the last warm-up forward */
} gpu_marks;

static inline unit read_unit(const rp_timeline *timeline, uint32_t op)
{
    const rp_op *ops = timeline->program->ops;
    unit u = {.begin_ps = timeline->start_ps[op]};
    /* In a lowered program pre-work runs as soon as it can, so every op is a unit. */
    bool joined = timeline->program->op_bytes == NULL;
    while (joined && (ops[op].flags & RP_OP_JOIN) != 0) {
        u.head_forward = u.head_forward || (rp_op_kind_is_forward(ops[op].kind) &&
                                            timeline->end_ps[op] > timeline->start_ps[op]);
        op++;
    }
    u.backward = rp_op_kind_is_backward((rp_op_kind)ops[op].kind);
    u.proper_ps = timeline->start_ps[op];
    u.end_ps = timeline->end_ps[op];
    u.next = op + 1;
    return u;
}

/* Ops come in order of time, so the warm-up forwards are the forwards before the first backward,
 * and the window is known once that backward is seen. */
static void mark_unit(const unit *u, uint32_t warmup_limit, uint32_t *warmups, gpu_marks *marks)
{
    if (u->end_ps == u->begin_ps) {
        return; /* empty ops are ignored */
    }
    if (marks->first_begin_ps < 0) {
        marks->first_begin_ps = u->begin_ps;
    }
    marks->last_end_ps = u->end_ps;
    bool before_backward = marks->first_backward_ps < 0;
    if (u->backward) {
        if (before_backward) {
            marks->first_backward_ps = u->proper_ps;
        }
        marks->last_backward_end_ps = u->end_ps;
    }
    bool forward_before = before_backward && (!u->backward || u->head_forward);
    if (forward_before && *warmups < warmup_limit) {
        marks->window_ps = u->backward ? u->proper_ps : u->end_ps;
        (*warmups)++;
    }
}

static void add_gap(const gpu_marks *marks, int64_t from, int64_t to, rp_metrics *metrics)
{
    int64_t drain_from =
        marks->last_backward_end_ps < 0 ? marks->last_end_ps : marks->last_backward_end_ps;
    bool window = marks->window_ps >= 0 && marks->first_backward_ps >= 0;
    if (marks->first_begin_ps < 0 || to <= marks->first_begin_ps) {
        metrics->fill_ps += to - from;
    } else if (from >= drain_from) {
        metrics->drain_ps += to - from;
    } else if (window && from >= marks->window_ps && to <= marks->first_backward_ps) {
        metrics->switch_ps += to - from;
    } else {
        metrics->intra_ps += to - from;
    }
}

static rp_status measure_queue(const rp_timeline *timeline, const rp_queue *queue,
                               uint32_t warmup_limit, rp_metrics *metrics)
{
    gpu_marks marks = {-1, -1, -1, -1, -1};
    uint32_t warmups = 0;
    for (uint32_t i = queue->op_begin; i < queue->op_end;) {
        unit u = read_unit(timeline, i);
        mark_unit(&u, warmup_limit, &warmups, &marks);
        i = u.next;
    }
    int64_t idle_from = 0;
    for (uint32_t i = queue->op_begin; i < queue->op_end;) {
        unit u = read_unit(timeline, i);
        i = u.next;
        if (u.end_ps == u.begin_ps) {
            continue;
        }
        if (u.begin_ps < idle_from) {
            rp_log_error("GPU %u does two things at %" PRId64 " ps", queue->gpu, u.begin_ps);
            return rp_broken();
        }
        if (u.begin_ps > idle_from) {
            add_gap(&marks, idle_from, u.begin_ps, metrics);
        }
        idle_from = u.end_ps;
        /* Only lowered programs have held times, and their units are single ops. */
        int64_t held_ps = timeline->held_ps != NULL ? timeline->held_ps[u.next - 1] : 0;
        int64_t busy_ps = u.end_ps - u.begin_ps - held_ps;
        bool pass = rp_op_kind_is_pass(timeline->program->ops[u.next - 1].kind);
        metrics->busy_ps += busy_ps;
        metrics->passes_ps += pass ? busy_ps : 0;
        metrics->intra_ps += held_ps;
    }
    add_gap(&marks, idle_from, metrics->makespan_ps, metrics);
    return RP_OK;
}

/* End of the last op of a queue's range that takes time. */
static int64_t last_end(const rp_timeline *timeline, uint32_t begin, uint32_t end)
{
    for (uint32_t i = end; i > begin; i--) {
        if (timeline->end_ps[i - 1] > timeline->start_ps[i - 1]) {
            return timeline->end_ps[i - 1];
        }
    }
    return 0;
}

int64_t rp_metrics_makespan_ps(const rp_timeline *timeline)
{
    const rp_program *program = timeline->program;
    int64_t makespan = 0;
    for (uint32_t q = 0; q < program->queue_count; q++) {
        int64_t end = last_end(timeline, program->queues[q].op_begin, program->queues[q].op_end);
        makespan = end > makespan ? end : makespan;
    }
    return makespan;
}

static rp_status check_sum(const rp_metrics *m)
{
    bool negative = m->fill_ps < 0 || m->switch_ps < 0 || m->drain_ps < 0 || m->intra_ps < 0;
    if (negative || m->fill_ps + m->switch_ps + m->drain_ps + m->intra_ps != m->bubble_ps) {
        rp_log_error("the parts of the bubble do not sum to it");
        return rp_broken();
    }
    return RP_OK;
}

rp_status rp_metrics_measure(const rp_timeline *timeline, bool separate_backward,
                             rp_metrics *metrics_out, rp_reason *reason)
{
    const rp_program *program = timeline->program;
    uint32_t ranks = rp_program_ranks(program);
    rp_metrics m = *metrics_out;
    m.passes_ps = m.fullest_ps = 0;
    m.busy_ps = m.fill_ps = m.switch_ps = m.drain_ps = m.intra_ps = 0;
    m.makespan_ps = rp_metrics_makespan_ps(timeline);
    int64_t gpu_time = 0;
    if (__builtin_mul_overflow((int64_t)ranks, m.makespan_ps, &gpu_time)) {
        return rp_refuse(reason, RP_INPUT,
                         "GPU time of the run exceeds 106 days; valid are shorter runs");
    }
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        for (uint32_t rank = queue->gpu; queue->kind == RP_QUEUE_COMPUTE && rank < ranks;
             rank += program->gpu_count) {
            uint32_t limit = separate_backward ? UINT32_MAX : ranks - rank;
            int64_t others_ps = m.passes_ps;
            RP_TRY(measure_queue(timeline, queue, limit, &m));
            int64_t own_ps = m.passes_ps - others_ps;
            m.fullest_ps = own_ps > m.fullest_ps ? own_ps : m.fullest_ps;
        }
    }
    m.bubble_ps = gpu_time - m.busy_ps;
    RP_TRY(check_sum(&m));
    *metrics_out = m;
    return RP_OK;
}

double rp_metrics_period_ps(const rp_timeline *timeline)
{
    const rp_program *program = timeline->program;
    uint32_t iterations = program->iteration_count;
    if (iterations == 1) {
        return program->asynchronous ? NAN : (double)rp_metrics_makespan_ps(timeline);
    }
    int64_t half_end = 0; /* end of iteration I/2, counted from 1 */
    int64_t last = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        int64_t end = timeline->end_ps[i];
        if (end > timeline->start_ps[i]) {
            uint32_t iteration = program->ops[i].iteration + 1u;
            half_end = iteration == iterations / 2 && end > half_end ? end : half_end;
            last = iteration == iterations && end > last ? end : last;
        }
    }
    return (double)(last - half_end) / (double)(iterations - iterations / 2);
}
