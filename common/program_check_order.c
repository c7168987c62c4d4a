/* The validator's third part: buffer lifetimes and freedom from cycles. */
#include "common/program_check.h"

/* ---- buffers ----------------------------------------------------------------------------------
 */

static bool is_backward(uint8_t kind)
{
    return kind == RP_OP_BACKWARD || kind == RP_OP_BACKWARD_INPUT || kind == RP_OP_BACKWARD_WEIGHT;
}

/* Of one microbatch all backwards come after all forwards: the chains have been checked. */
static bool forward_then_backward(const rp_op *alloc, const rp_op *release)
{
    return alloc->microbatch == release->microbatch && alloc->iteration == release->iteration &&
           alloc->kind == RP_OP_FORWARD && is_backward(release->kind);
}

static bool comes_after(const rp_program *p, uint32_t alloc, uint32_t release)
{
    if (forward_then_backward(&p->ops[alloc], &p->ops[release])) {
        return true;
    }
    const rp_queue *queue = &p->queues[rp_program_queue_of(p, alloc)];
    if (release >= queue->op_begin && release < queue->op_end) {
        return release >= alloc;
    }
    for (uint32_t w = p->ops[release].wait_begin; w < p->ops[release + 1].wait_begin; w++) {
        if (rp_wait_op(p->waits[w]) == alloc) {
            return true;
        }
    }
    return false;
}

rp_status rp_check_buffers(const rp_checker *c)
{
    const rp_program *p = c->program;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const rp_buffer *buffer = &p->buffers[i];
        if (buffer->alloc_op >= p->op_count || buffer->free_op >= p->op_count) {
            return rp_check_violated(RP_RULE_BUFFER_OP, "buffer", i);
        }
        if (buffer->place >= p->gpu_count && buffer->place != RP_PLACE_HOST) {
            return rp_check_violated(RP_RULE_BUFFER_PLACE, "buffer", i);
        }
        if (buffer->kind >= RP_BUFFER_KIND_COUNT || buffer->unused != 0) {
            return rp_check_violated(RP_RULE_BUFFER_KIND, "buffer", i);
        }
        if (!comes_after(p, buffer->alloc_op, buffer->free_op)) {
            return rp_check_violated(RP_RULE_BUFFER_LIFE, "buffer", i);
        }
    }
    return RP_OK;
}

/* ---- cycles -----------------------------------------------------------------------------------
 */

/* state[op]: what has become of it. Queues that wait for the same op form a list. */
enum {
    PENDING = 0,
    DONE = 1,
    AWAITED = 2, /* + queue */
};

typedef struct walk {
    const rp_program *program;
    uint32_t *state;
    uint32_t *next;        /* [queue] first op that has not run */
    uint32_t *next_parked; /* [queue] state of the awaited op before this queue parked on it */
    uint32_t *ready;
    uint32_t ready_count;
} walk;

/* Returns true when all waits of `op` and of the ops that it is joined to are done: the group
 * starts as late as its last op's waits demand. Otherwise the queue is parked on the first open
 * one. */
static inline bool may_run(walk *w, uint32_t queue, uint32_t op)
{
    const rp_program *p = w->program;
    uint32_t last = op;
    while ((p->ops[last].flags & RP_OP_JOIN) != 0) {
        last++;
    }
    for (uint32_t k = p->ops[op].wait_begin; k < p->ops[last + 1].wait_begin; k++) {
        uint32_t target = rp_wait_op(p->waits[k]);
        if (w->state[target] != DONE) {
            w->next_parked[queue] = w->state[target];
            w->state[target] = AWAITED + queue;
            return false;
        }
    }
    return true;
}

static void walk_queue(walk *w, uint32_t queue)
{
    uint32_t end = w->program->queues[queue].op_end;
    uint32_t op = w->next[queue];
    for (; op < end && may_run(w, queue, op); op++) {
        uint32_t awaited = w->state[op];
        w->state[op] = DONE;
        while (awaited != PENDING) {
            uint32_t waiter = awaited - AWAITED;
            awaited = w->next_parked[waiter];
            w->ready[w->ready_count++] = waiter;
        }
    }
    w->next[queue] = op;
}

rp_status rp_check_acyclic(const rp_checker *c)
{
    const rp_program *p = c->program;
    walk w = {.program = p};
    RP_TRY(rp_arena_alloc(c->arena, p->op_count, sizeof(uint32_t), &w.state));
    RP_TRY(rp_arena_alloc(c->arena, p->queue_count, sizeof(uint32_t), &w.next));
    RP_TRY(rp_arena_alloc(c->arena, p->queue_count, sizeof(uint32_t), &w.next_parked));
    RP_TRY(rp_arena_alloc(c->arena, p->queue_count, sizeof(uint32_t), &w.ready));
    for (uint32_t q = p->queue_count; q-- > 0;) {
        w.next[q] = p->queues[q].op_begin;
        w.ready[w.ready_count++] = q;
    }
    while (w.ready_count > 0) {
        walk_queue(&w, w.ready[--w.ready_count]);
    }
    for (uint32_t q = 0; q < p->queue_count; q++) {
        if (w.next[q] < p->queues[q].op_end) {
            return rp_check_violated_op(c, RP_RULE_CYCLE, w.next[q]);
        }
    }
    return RP_OK;
}
