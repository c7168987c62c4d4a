/* The validator's rules for lowered programs, in which tensors travel through transfers. */
#include "common/program/check_internal.h"

/* Most transfers that a tensor takes: GPU to host, host to GPU, and a collective in between. */
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

/* The op of a forward stage that gives the output of `layer`: its last op, `last`, or, if the stage
 * goes layer by layer, the op of that layer; RP_NO_OP if the op is missing. */
static uint32_t output_of(const rp_program *p, uint32_t last, uint32_t layer)
{
    const rp_op *end = &p->ops[last];
    uint32_t end_layer = rp_op_layer(end);
    if (end_layer == 0 || end_layer <= layer) {
        return last;
    }
    uint32_t back = end_layer - layer; /* the ops of successive layers follow each other */
    if (back > last) {
        return RP_NO_OP;
    }
    const rp_op *op = &p->ops[last - back];
    bool fits = rp_op_layer(op) == layer && rp_op_kind_is_forward(op->kind) &&
                op->stage == end->stage && op->microbatch == end->microbatch &&
                op->iteration == end->iteration;
    return fits ? last - back : RP_NO_OP;
}

/* @return whether an op's input is the token ids; *op_out is RP_NO_OP then. Otherwise *op_out is
 * the op that gives the input, or RP_NO_OP if that op is missing. A separate backward stage takes
 * its input from the forward stage that computed it, not from the end of the chain. */
static bool takes_ids(const rp_checker *c, const rp_op *op, uint32_t last_forward, uint32_t *op_out)
{
    const rp_program *p = c->program;
    const rp_stage *stage = &p->stages[op->stage];
    *op_out = last_forward;
    uint32_t layer = rp_op_layer(op);
    bool head_alone = layer == p->layer_count + 1;
    if (c->producers.forward_position[op->stage] != RP_NO_OP || p->forward_count == 0 ||
        rp_producers_continues_forward(stage) || head_alone) {
        return false;
    }
    uint32_t before = layer != 0 ? layer - 1u : stage->layer_begin;
    bool last_stage = c->producers.backward_position[op->stage] + 1 == p->backward_count;
    *op_out = RP_NO_OP;
    if ((before == 0 && last_stage) || stage->layer_end == stage->layer_begin) {
        return true;
    }
    if (before == 0) { /* the embedding's output, with the first stage's first layer */
        *op_out = output_of(p,
                            c->producers.forward_at[rp_producers_forward_index(
                                &c->producers, op->iteration, 0, op->microbatch)],
                            1);
        return false;
    }
    for (uint32_t i = 0; i < p->forward_count; i++) {
        const rp_stage *from = &p->stages[p->forward_chain[i]];
        if (from->layer_begin < before && from->layer_end >= before) {
            uint32_t last = c->producers.forward_at[rp_producers_forward_index(
                &c->producers, op->iteration, i, op->microbatch)];
            *op_out = output_of(p, last, before);
            return false;
        }
    }
    return true;
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

rp_status rp_check_layer_input(const rp_checker *c, const rp_queue *queue, uint32_t first,
                               uint32_t last)
{
    const rp_op *op = &c->program->ops[last];
    uint32_t producers[RP_MAX_PRODUCERS];
    uint32_t count = rp_producers_of(&c->producers, op, producers);
    uint32_t input = RP_NO_OP;
    if (c->program->forward_count == 0 || count == 0 || takes_ids(c, op, producers[0], &input)) {
        return RP_OK;
    }
    bool there = input != RP_NO_OP && is_covered(c, queue, first, last, input);
    return there ? RP_OK : rp_check_violated_op(c, RP_RULE_NEEDS, last);
}

rp_status rp_check_lowered_needs(const rp_checker *c, const rp_queue *queue, uint32_t first,
                                 uint32_t last)
{
    const rp_op *op = &c->program->ops[last];
    uint32_t producers[RP_MAX_PRODUCERS];
    uint32_t count = rp_producers_of(&c->producers, op, producers);
    bool backward = rp_op_kind_goes_back((rp_op_kind)op->kind);
    bool input_first = backward && count > 0 && c->program->forward_count != 0;
    RP_TRY(input_first ? rp_check_layer_input(c, queue, first, last) : RP_OK);
    for (uint32_t k = input_first ? 1 : 0; k < count; k++) {
        if (!is_covered(c, queue, first, last, producers[k])) {
            return rp_check_violated_op(c, RP_RULE_NEEDS, last);
        }
    }
    return RP_OK;
}
