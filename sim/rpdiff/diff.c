#include "sim/rpdiff/diff.h"

#include "common/base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- the same ops ---------------------------------------------------------------------------- */

static bool same_op(const rp_program *a, const rp_program *b, uint32_t op)
{
    const rp_op *x = &a->ops[op];
    const rp_op *y = &b->ops[op];
    const rp_queue *on = &a->queues[rp_program_queue_of(a, op)];
    const rp_queue *at = &b->queues[rp_program_queue_of(b, op)];
    return on->kind == at->kind && on->gpu == at->gpu && x->kind == y->kind &&
           x->stage == y->stage && x->microbatch == y->microbatch && x->iteration == y->iteration;
}

static rp_status check_same(const rp_program *a, const rp_program *b, const char *const names[2])
{
    if (a->op_count != b->op_count) {
        rp_log_error("%s has %" PRIu32 " ops, %s has %" PRIu32
                     "; valid are timelines of the same program",
                     names[0], a->op_count, names[1], b->op_count);
        return RP_INPUT;
    }
    for (uint32_t i = 0; i < a->op_count; i++) {
        if (!same_op(a, b, i)) {
            char left[RP_OP_NAME_SIZE];
            char right[RP_OP_NAME_SIZE];
            rp_op_name(&a->ops[i], left);
            rp_op_name(&b->ops[i], right);
            rp_log_error(
                "op %" PRIu32
                " is %s in %s and %s in %s, or on another GPU; valid are timelines of the same "
                "program",
                i, left, names[0], right, names[1]);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double took(const rp_timeline *t, uint32_t op)
{
    return (double)(t->end_ps[op] - t->start_ps[op]);
}

static double difference(const rpsim_diff *d, uint32_t op)
{
    return fabs(took(d->predicted, op) - took(d->measured, op));
}

static void add_times(rpsim_diff_time *sum, const rpsim_diff *d, uint32_t op)
{
    sum->predicted_ps += took(d->predicted, op);
    sum->measured_ps += took(d->measured, op);
}

static void raise_end(rpsim_diff_time *end, const rpsim_diff *d, uint32_t op)
{
    end->predicted_ps = fmax(end->predicted_ps, (double)d->predicted->end_ps[op]);
    end->measured_ps = fmax(end->measured_ps, (double)d->measured->end_ps[op]);
}

/* Turns the ends of iterations into the times between successive ends. */
static void take_differences(rpsim_diff_time *iterations, uint32_t count)
{
    rpsim_diff_time before = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        rpsim_diff_time end = {fmax(before.predicted_ps, iterations[i].predicted_ps),
                               fmax(before.measured_ps, iterations[i].measured_ps)};
        iterations[i].predicted_ps = end.predicted_ps - before.predicted_ps;
        iterations[i].measured_ps = end.measured_ps - before.measured_ps;
        before = end;
    }
}

/* Keeps the list of worst ops sorted, the largest difference first, equal ops by number. The list
 * is short. */
static void consider_worst(rpsim_diff *d, uint32_t op, uint32_t most)
{
    if (most == 0 || !(difference(d, op) > 0)) {
        return;
    }
    bool full = d->worst_count == most;
    if (full && difference(d, op) <= difference(d, d->worst[most - 1])) {
        return;
    }
    uint32_t at = full ? most - 1 : d->worst_count++;
    for (; at > 0 && difference(d, d->worst[at - 1]) < difference(d, op); at--) {
        d->worst[at] = d->worst[at - 1];
    }
    d->worst[at] = op;
}

rp_status rpsim_diff_compare(const rp_timeline *predicted, const rp_timeline *measured,
                             const char *const names[2], uint32_t worst_count, rp_arena *arena,
                             rpsim_diff *diff_out)
{
    const rp_program *p = measured->program;
    rpsim_diff d = {.predicted = predicted, .measured = measured};
    RP_TRY(check_same(predicted->program, p, names));
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof *d.gpus, &d.gpus));
    RP_TRY(rp_arena_alloc(arena, p->iteration_count, sizeof *d.iterations, &d.iterations));
    RP_TRY(rp_arena_alloc(arena, (size_t)worst_count + 1, sizeof *d.worst, &d.worst));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        bool on_gpu = rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            rpsim_diff_kind *kind = &d.kinds[p->ops[i].kind];
            kind->count++;
            kind->difference_ps += difference(&d, i);
            add_times(&kind->sum, &d, i);
            raise_end(&d.makespan, &d, i);
            raise_end(&d.iterations[p->ops[i].iteration], &d, i);
            if (on_gpu) {
                raise_end(&d.gpus[queue->gpu].end, &d, i);
            }
            if (queue->kind == RP_QUEUE_COMPUTE) {
                add_times(&d.gpus[queue->gpu].busy, &d, i);
            }
            consider_worst(&d, i, worst_count);
        }
    }
    take_differences(d.iterations, p->iteration_count);
    *diff_out = d;
    return RP_OK;
}

double rpsim_diff_pct(const rpsim_diff_time *time)
{
    return time->measured_ps > 0 ? 100 * (time->predicted_ps / time->measured_ps - 1) : NAN;
}
