#include "exec/plan/order.h"

#include "common/base/log.h"

#include <string.h>

typedef struct sorter {
    const rp_program *program;
    rpexec_order *order;
    uint32_t *next; /* [queue] */
    bool *done;     /* [op] */
    uint32_t count;
} sorter;

static bool is_ready(const sorter *s, uint32_t op)
{
    const rp_program *p = s->program;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        if (!s->done[rp_wait_op(p->waits[w])]) {
            return false;
        }
    }
    return true;
}

/* An op's clock: the largest of its predecessors' clocks, which have ended themselves. */
static void set_clock(const sorter *s, uint32_t op)
{
    const rp_program *p = s->program;
    const uint32_t *queue_of = s->order->queue_of;
    uint32_t *clock = &s->order->clocks[(size_t)op * p->queue_count];
    uint32_t begin = p->queues[queue_of[op]].op_begin;
    if (op > begin) {
        memcpy(clock, clock - p->queue_count, p->queue_count * sizeof *clock);
        clock[queue_of[op]] = op - begin;
    }
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        const uint32_t *other = &s->order->clocks[(size_t)target * p->queue_count];
        for (uint32_t q = 0; q < p->queue_count; q++) {
            clock[q] = other[q] > clock[q] ? other[q] : clock[q];
        }
        uint32_t ended = target - p->queues[queue_of[target]].op_begin + 1;
        uint32_t *of_target = &clock[queue_of[target]];
        *of_target = ended > *of_target ? ended : *of_target;
    }
}

static rp_status sort(sorter *s)
{
    const rp_program *p = s->program;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t q = 0; q < p->queue_count; q++) {
            for (; s->next[q] < p->queues[q].op_end && is_ready(s, s->next[q]); s->next[q]++) {
                uint32_t op = s->next[q];
                set_clock(s, op);
                s->done[op] = true;
                s->order->ops[s->count++] = op;
                moved = true;
            }
        }
    }
    if (s->count == p->op_count) {
        return RP_OK;
    }
    for (uint32_t q = 0; q < p->queue_count; q++) {
        if (s->next[q] < p->queues[q].op_end) {
            char name[RP_OP_NAME_SIZE];
            rp_op_name(&p->ops[s->next[q]], name);
            rp_log_error("the program waits in a circle: op %u (%s) of queue %u never starts",
                         s->next[q], name, q);
            break;
        }
    }
    return RP_INVALID_PROGRAM;
}

rp_status rpexec_order_create(const rp_program *program, rp_arena *arena, rpexec_order *order_out)
{
    *order_out = (rpexec_order){.program = program};
    sorter s = {.program = program, .order = order_out};
    size_t ops = program->op_count;
    RP_TRY(rp_arena_alloc(arena, ops, sizeof(uint32_t), &order_out->ops));
    RP_TRY(rp_arena_alloc(arena, ops, sizeof(uint32_t), &order_out->queue_of));
    RP_TRY(rp_arena_alloc(arena, ops * program->queue_count, sizeof(uint32_t), &order_out->clocks));
    RP_TRY(rp_arena_alloc(arena, program->queue_count, sizeof(uint32_t), &s.next));
    RP_TRY(rp_arena_alloc(arena, ops, sizeof(bool), &s.done));
    for (uint32_t q = 0; q < program->queue_count; q++) {
        s.next[q] = program->queues[q].op_begin;
        for (uint32_t i = program->queues[q].op_begin; i < program->queues[q].op_end; i++) {
            order_out->queue_of[i] = q;
        }
    }
    return sort(&s);
}
