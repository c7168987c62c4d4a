/* The validator's third part: buffer lifetimes and freedom from cycles. */
#include "common/program/check_internal.h"

/* ---- buffers --------------------------------------------------------------------------------- */

/* A microbatch's backwards all come after its forwards: the check of the chains has shown it. */
static bool forward_then_backward(const rp_op *alloc, const rp_op *release)
{
    return alloc->microbatch == release->microbatch && alloc->iteration == release->iteration &&
           rp_op_kind_is_forward(alloc->kind) && rp_op_kind_is_backward((rp_op_kind)release->kind);
}

/* Lists the queue of every op. Without this list the searches for single ops would take most of the
 * time. */
static rp_status list_queues(const rp_checker *c, uint32_t **queue_of_out)
{
    const rp_program *p = c->program;
    RP_TRY(rp_arena_alloc_raw(c->arena, p->op_count, sizeof(uint32_t), queue_of_out));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t op = p->queues[q].op_begin; op < p->queues[q].op_end; op++) {
            (*queue_of_out)[op] = q;
        }
    }
    return RP_OK;
}

static bool comes_after(const rp_program *p, const uint32_t *queue_of, uint32_t alloc,
                        uint32_t release)
{
    if (forward_then_backward(&p->ops[alloc], &p->ops[release])) {
        return true;
    }
    const rp_queue *queue = &p->queues[queue_of[alloc]];
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

/* A question: does `release` come after `alloc`, the ops of buffer found[number]? */
typedef struct query {
    uint32_t alloc;
    uint32_t release;
    uint32_t number;
} query;

/* Buffers whose order needs a search. An op comes after op X of another queue if it, or an op
 * before it in its own queue, waits for X or for an op after X in the queue of X. A single sweep
 * over each queue therefore keeps, for every other queue, the last op that has been waited for. For
 * buffers that this leaves open, the same question is asked of each op that their free op waits
 * for. This proves every order that the lowering makes; longer chains are refused. */
typedef struct open_buffers {
    const rp_program *program;
    const uint32_t *queue_of; /* [op] */
    const uint32_t *found;    /* buffers */
    uint32_t found_count;
    bool *fine; /* [found_count] */
    query *queries;
    uint32_t count;
    uint32_t *order;   /* [count] queries by their release */
    uint32_t *begin;   /* [op_count + 1] begin[op + 1]: the first in `order` with this release */
    uint32_t *reached; /* [queue] number of the last op waited for, plus 1 */
} open_buffers;

static void sort_queries(open_buffers *open)
{
    for (uint32_t k = 0; k < open->count; k++) {
        open->begin[open->queries[k].release + 1]++;
    }
    for (uint32_t op = 0; op < open->program->op_count; op++) {
        open->begin[op + 1] += open->begin[op];
    }
    for (uint32_t k = open->count; k-- > 0;) {
        open->order[--open->begin[open->queries[k].release + 1]] = k;
    }
}

static void sweep_queue(open_buffers *open, const rp_queue *queue)
{
    const rp_program *p = open->program;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        open->reached[q] = 0;
    }
    for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
        for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
            uint32_t target = rp_wait_op(p->waits[w]);
            uint32_t *reached = &open->reached[open->queue_of[target]];
            *reached = target >= *reached ? target + 1 : *reached;
        }
        uint32_t end = op + 1 < p->op_count ? open->begin[op + 2] : open->count;
        for (uint32_t k = open->begin[op + 1]; k < end; k++) {
            const query *asked = &open->queries[open->order[k]];
            bool before = asked->alloc < open->reached[open->queue_of[asked->alloc]];
            bool same = asked->alloc >= queue->op_begin && asked->alloc <= op;
            open->fine[asked->number] |= before || same;
        }
    }
}

static rp_status answer(const rp_checker *c, open_buffers *open)
{
    const rp_program *p = open->program;
    RP_TRY(rp_arena_alloc(c->arena, open->count, sizeof(uint32_t), &open->order));
    RP_TRY(rp_arena_alloc(c->arena, (size_t)p->op_count + 1, sizeof(uint32_t), &open->begin));
    sort_queries(open);
    for (uint32_t q = 0; q < p->queue_count; q++) {
        sweep_queue(open, &p->queues[q]);
    }
    return RP_OK;
}

/* Asks a query for each op that the free ops of the remaining buffers wait for. */
static rp_status ask_further(const rp_checker *c, open_buffers *open)
{
    const rp_program *p = open->program;
    size_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            RP_TRY(rp_arena_alloc_raw(c->arena, count, sizeof(query), &open->queries));
            count = 0;
        }
        for (uint32_t i = 0; i < open->found_count; i++) {
            const rp_buffer *buffer = &p->buffers[open->found[i]];
            const rp_op *op = &p->ops[buffer->free_op];
            for (uint32_t w = op[0].wait_begin; !open->fine[i] && w < op[1].wait_begin; w++) {
                if (pass == 1) {
                    open->queries[count] = (query){buffer->alloc_op, rp_wait_op(p->waits[w]), i};
                }
                count++;
            }
        }
    }
    open->count = (uint32_t)count;
    return RP_OK;
}

static rp_status check_open(const rp_checker *c, const uint32_t *queue_of, const uint32_t *found,
                            uint32_t count)
{
    const rp_program *p = c->program;
    open_buffers open = {
        .program = p, .queue_of = queue_of, .found = found, .found_count = count, .count = count};
    RP_TRY(rp_arena_alloc(c->arena, count, sizeof(bool), &open.fine));
    RP_TRY(rp_arena_alloc(c->arena, count, sizeof(query), &open.queries));
    RP_TRY(rp_arena_alloc(c->arena, p->queue_count, sizeof(uint32_t), &open.reached));
    for (uint32_t i = 0; i < count; i++) {
        const rp_buffer *buffer = &p->buffers[found[i]];
        open.queries[i] = (query){buffer->alloc_op, buffer->free_op, i};
    }
    RP_TRY(answer(c, &open));
    RP_TRY(ask_further(c, &open));
    if (open.count > 0) {
        RP_TRY(answer(c, &open));
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!open.fine[i]) {
            return rp_check_violated(RP_RULE_BUFFER_LIFE, "buffer", found[i]);
        }
    }
    return RP_OK;
}

rp_status rp_check_buffers(const rp_checker *c)
{
    const rp_program *p = c->program;
    uint32_t *queue_of = NULL;
    uint32_t *found = NULL;
    uint32_t count = 0;
    RP_TRY(list_queues(c, &queue_of));
    RP_TRY(rp_arena_alloc_raw(c->arena, p->buffer_count, sizeof(uint32_t), &found));
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
        if (!comes_after(p, queue_of, buffer->alloc_op, buffer->free_op)) {
            found[count++] = i;
        }
    }
    return count == 0 ? RP_OK : check_open(c, queue_of, found, count);
}

/* ---- cycles ---------------------------------------------------------------------------------- */

/* state[op]: the progress of the op. Queues that wait for the same op form a list. */
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

/* @return whether all waits are done: those of `op` and of the ops that it is joined to or overlaps
 * with, as the group starts no earlier than the waits of its last op allow. Otherwise the queue is
 * parked on the first open wait. */
static inline bool may_run(walk *w, uint32_t queue, uint32_t op)
{
    const rp_program *p = w->program;
    uint32_t last = op;
    while ((p->ops[last].flags & (RP_OP_JOIN | RP_OP_OVERLAP)) != 0) {
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
