/* The validator's rules for lowered programs, where tensors travel through transfers. */
#include "common/program_check.h"

/* GPU to host, host to GPU, and a collective in between: no tensor takes more steps. */
#define MAX_STEPS 4

static bool waits_through_transfers(const rp_program *p, uint32_t op, uint32_t producer,
                                    uint32_t steps)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        if (rp_wait_is_control(p->waits[w])) {
            continue;
        }
        if (target == producer) {
            return true;
        }
        rp_op_class kind = rp_op_kind_class((rp_op_kind)p->ops[target].kind);
        bool transfer = kind == RP_CLASS_TRANSFER || kind == RP_CLASS_COLLECTIVE;
        if (transfer && steps > 0 && waits_through_transfers(p, target, producer, steps - 1)) {
            return true;
        }
    }
    return false;
}

/* A separate backward stage takes its input from where the forward computed it, not from the end of
 * the chain: that op, or RP_NO_OP where the input is the token ids. */
static uint32_t input_producer(const rp_checker *c, const rp_op *op, uint32_t last_forward)
{
    const rp_program *p = c->program;
    const rp_stage *stage = &p->stages[op->stage];
    if (c->producers.forward_position[op->stage] != RP_NO_OP || p->forward_count == 0 ||
        rp_producers_continues_forward(stage)) {
        return last_forward;
    }
    if (stage->layer_begin == 0 || stage->layer_end == stage->layer_begin) {
        return RP_NO_OP;
    }
    for (uint32_t i = 0; i < p->forward_count; i++) {
        const rp_stage *from = &p->stages[p->forward_chain[i]];
        if (from->layer_begin < stage->layer_begin && from->layer_end >= stage->layer_begin) {
            return c->producers.forward_at[rp_producers_forward_index(&c->producers, op->iteration,
                                                                      i, op->microbatch)];
        }
    }
    return RP_NO_OP;
}

static bool is_covered(const rp_checker *c, const rp_queue *queue, uint32_t first, uint32_t last,
                       uint32_t producer)
{
    if (producer >= queue->op_begin && producer < first) {
        return true;
    }
    for (uint32_t op = first; op <= last; op++) {
        if (waits_through_transfers(c->program, op, producer, MAX_STEPS)) {
            return true;
        }
    }
    return false;
}

rp_status rp_check_lowered_needs(const rp_checker *c, const rp_queue *queue, uint32_t first,
                                 uint32_t last)
{
    const rp_op *op = &c->program->ops[last];
    uint32_t producers[RP_MAX_PRODUCERS];
    uint32_t count = rp_producers_of(&c->producers, op, producers);
    bool backward = op->kind == RP_OP_BACKWARD || op->kind == RP_OP_BACKWARD_INPUT;
    if (backward && count > 0 && c->program->forward_count != 0) {
        producers[0] = input_producer(c, op, producers[0]);
    }
    for (uint32_t k = 0; k < count; k++) {
        if (producers[k] != RP_NO_OP && !is_covered(c, queue, first, last, producers[k])) {
            return rp_check_violated_op(c, RP_RULE_NEEDS, last);
        }
    }
    return RP_OK;
}
