#include "sim/engine/stage_engine.h"

#include "common/base/log.h"
#include "common/base/reason.h"

#include <string.h>

/* end_ps of an op that has not ended: NOT_ENDED, or PARKED(q) when queue q waits for it. Queues
 * that wait for the same op form a list through cursor.next_parked. */
#define NOT_ENDED INT64_C(-1)
#define PARKED(queue) (INT64_C(-2) - (int64_t)(queue))

/* The sweep is compiled twice, with factors and without, each copy inlined whole, so that a run
 * without factors pays nothing for them. */
#define INLINE __attribute__((always_inline)) static inline

typedef struct cursor {
    uint32_t next; /* first op that has not started */
    uint32_t end;
    int64_t free_ps;
    int64_t next_parked; /* value of the awaited op's end_ps before this queue parked on it */
} cursor;

typedef struct engine {
    const rp_program *program;
    const int64_t *ps;     /* [stage * RP_OP_KIND_COUNT + kind] */
    const double *factors; /* [op], or NULL */
    int64_t hop_ps;
    int64_t *start_ps;
    int64_t *end_ps;
    cursor *cursors;
    uint32_t *ready; /* stack of queues that can go on; each queue is in it at most once */
    uint32_t ready_count;
    uint64_t hops;
    int64_t exposed_ps;
    double overlap_saving;
    bool overlaps; /* some ops have run together */
} engine;

/* A group of joined ops that is about to start. */
typedef struct group {
    int64_t begin_ps; /* start with hops */
    int64_t plain_ps; /* start if hops took no time */
    int64_t duration_ps;
    int64_t overlapped_ps; /* time of the forward that the rest overlaps with, less the time saved
                              by the pair */
    uint32_t last;
    uint32_t hops;
} group;

INLINE int64_t max_ps(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The time of an op. `scaled` is a constant in every call. */
INLINE int64_t duration(const engine *e, const rp_op *op, bool scaled)
{
    int64_t ps = e->ps[(size_t)op->stage * RP_OP_KIND_COUNT + op->kind];
    return scaled ? rpsim_scaled_ps(ps, e->factors[op - e->program->ops]) : ps;
}

/* Moves the group's begin after the waits of `op`, which starts offset_ps into the group. If a wait
 * has not ended, parks the queue and returns false. */
INLINE bool take_waits(engine *e, uint32_t queue, const rp_op *op, int64_t offset_ps, group *g)
{
    const rp_wait *waits = e->program->waits;
    for (uint32_t w = op[0].wait_begin; w < op[1].wait_begin; w++) {
        uint32_t producer = rp_wait_op(waits[w]);
        int64_t end = e->end_ps[producer];
        if (end < 0) {
            e->cursors[queue].next_parked = end;
            e->end_ps[producer] = PARKED(queue);
            return false;
        }
        bool data = !rp_wait_is_control(waits[w]);
        g->plain_ps = max_ps(g->plain_ps, end - offset_ps);
        g->begin_ps = max_ps(g->begin_ps, end + (data ? e->hop_ps : 0) - offset_ps);
        g->hops += data ? 1 : 0;
    }
    return true;
}

INLINE bool measure_group(engine *e, uint32_t queue, bool scaled, group *g)
{
    const rp_op *ops = e->program->ops;
    const cursor *c = &e->cursors[queue];
    *g = (group){.begin_ps = c->free_ps, .plain_ps = c->free_ps, .last = c->next};
    for (;; g->last++) {
        const rp_op *op = &ops[g->last];
        if (!take_waits(e, queue, op, g->duration_ps, g)) {
            return false;
        }
        if ((op->flags & RP_OP_OVERLAP) != 0) {
            g->overlapped_ps = duration(e, op, scaled); /* the rest begins with it */
            continue;
        }
        g->duration_ps += duration(e, op, scaled);
        if ((op->flags & RP_OP_JOIN) == 0) {
            g->overlapped_ps -=
                rp_overlap_saved_ps(e->overlap_saving, g->overlapped_ps, g->duration_ps);
            return true;
        }
    }
}

INLINE void wake(engine *e, int64_t parked)
{
    while (parked != NOT_ENDED) {
        uint32_t queue = (uint32_t)(INT64_C(-2) - parked);
        parked = e->cursors[queue].next_parked;
        e->ready[e->ready_count++] = queue;
    }
}

INLINE void run_queue(engine *e, uint32_t queue, bool scaled)
{
    const rp_op *ops = e->program->ops;
    cursor *c = &e->cursors[queue];
    group g;
    while (c->next < c->end && measure_group(e, queue, scaled, &g)) {
        e->hops += g.hops;
        e->exposed_ps += g.begin_ps - g.plain_ps;
        int64_t now = g.begin_ps;
        uint32_t i = c->next;
        if ((ops[i].flags & RP_OP_OVERLAP) != 0) { /* its result exists when the pair ends */
            int64_t parked = e->end_ps[i];
            e->start_ps[i] = now;
            now += g.overlapped_ps;
            e->end_ps[i] = now + g.duration_ps;
            e->overlaps = true;
            wake(e, parked);
            i++;
        }
        for (; i <= g.last; i++) {
            int64_t parked = e->end_ps[i];
            e->start_ps[i] = now;
            now += duration(e, &ops[i], scaled);
            e->end_ps[i] = now;
            wake(e, parked);
        }
        c->free_ps = now;
        c->next = g.last + 1;
    }
}

/* While the engine runs, an overlapped forward ends when its pair ends, because its result exists
 * then. The timeline shows the pair in sequence, the saving taken off the forward. */
static void show_overlaps(const engine *e)
{
    for (uint32_t i = 0; i < e->program->op_count; i++) {
        if ((e->program->ops[i].flags & RP_OP_OVERLAP) != 0) {
            e->end_ps[i] = e->start_ps[i + 1];
        }
    }
}

static rp_status check_deadlock(const engine *e)
{
    const rp_program *program = e->program;
    for (uint32_t q = 0; q < program->queue_count; q++) {
        if (e->cursors[q].next < e->cursors[q].end) {
            char name[RP_OP_NAME_SIZE];
            rp_op_name(&program->ops[e->cursors[q].next], name);
            rp_log_error("deadlock: op %u (%s) of queue %u never starts", e->cursors[q].next, name,
                         q);
            return RP_INVALID_PROGRAM;
        }
    }
    return RP_OK;
}

/* Refuses times that could overflow: all ops in sequence, each with two hops, must stay far from
 * 2^63 ps. */
static rp_status check_times(const rp_program *program, const rp_stage_times *times,
                             const double *factors, rp_reason *reason)
{
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        bool costed = queue->kind == RP_QUEUE_COMPUTE || queue->kind == RP_QUEUE_OPTIMIZER;
        if (!costed && queue->op_end > queue->op_begin) {
            return rp_refuse(
                reason, RP_INPUT,
                "%s queue %u: stage fidelity knows no transfers; valid are programs with "
                "compute and optimizer queues only",
                rp_queue_kind_text((rp_queue_kind)queue->kind), q);
        }
    }
    double total = 2.0 * (double)times->hop_ps * program->op_count;
    double units = (double)program->microbatch_count * program->iteration_count;
    for (size_t i = 0; i < (size_t)program->stage_count * RP_OP_KIND_COUNT; i++) {
        total += units * (double)times->ps[i];
    }
    for (uint32_t i = 0; factors != NULL && i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        total += factors[i] * (double)times->ps[(size_t)op->stage * RP_OP_KIND_COUNT + op->kind];
    }
    if (!(total <= 4.0e18)) {
        return rp_refuse(
            reason, RP_INPUT,
            "the work of this run is up to %.3g days; valid are runs below 46 days of GPU "
            "time: use fewer microbatches, iterations or shorter times",
            total / 8.64e16);
    }
    return RP_OK;
}

static rp_status prepare_engine(engine *e, rp_arena *scratch)
{
    const rp_program *program = e->program;
    RP_TRY(rp_arena_alloc(scratch, program->queue_count, sizeof(cursor), &e->cursors));
    RP_TRY(rp_arena_alloc(scratch, program->queue_count, sizeof(uint32_t), &e->ready));
    memset(e->end_ps, 0xff, (size_t)program->op_count * sizeof(int64_t));
    for (uint32_t q = program->queue_count; q-- > 0;) {
        e->cursors[q] = (cursor){.next = program->queues[q].op_begin,
                                 .end = program->queues[q].op_end,
                                 .next_parked = NOT_ENDED};
        e->ready[e->ready_count++] = q;
    }
    return RP_OK;
}

static rp_status simulate_program(engine *e)
{
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = prepare_engine(e, scratch);
    if (status == RP_OK) {
        while (e->ready_count > 0 && e->factors == NULL) {
            run_queue(e, e->ready[--e->ready_count], false);
        }
        while (e->ready_count > 0) {
            run_queue(e, e->ready[--e->ready_count], true);
        }
        status = check_deadlock(e);
    }
    if (status == RP_OK && e->overlaps) {
        show_overlaps(e);
    }
    rp_arena_destroy(scratch);
    return status;
}

rp_status rpsim_stage_run(const rp_program *program, const rp_stage_times *times,
                          rp_timeline **timeline_out, rp_metrics *metrics_out, rp_reason *reason)
{
    return rpsim_stage_run_scaled(program, times, NULL, timeline_out, metrics_out, reason);
}

rp_status rpsim_stage_run_scaled(const rp_program *program, const rp_stage_times *times,
                                 const double *factors, rp_timeline **timeline_out,
                                 rp_metrics *metrics_out, rp_reason *reason)
{
    *timeline_out = NULL;
    RP_TRY(check_times(program, times, factors, reason));
    rp_timeline *timeline = NULL;
    RP_TRY(rp_timeline_create(program, &timeline));
    engine e = {.program = program,
                .ps = times->ps,
                .factors = factors,
                .hop_ps = times->hop_ps,
                .overlap_saving = times->overlap_saving,
                .start_ps = timeline->start_ps,
                .end_ps = timeline->end_ps};
    rp_status status = simulate_program(&e);
    if (status != RP_OK) {
        rp_timeline_destroy(timeline);
        return status;
    }
    *metrics_out = (rp_metrics){.comm_total_ps = (int64_t)e.hops * times->hop_ps,
                                .comm_exposed_ps = e.exposed_ps};
    *timeline_out = timeline;
    return RP_OK;
}
