/* The validator's rules for units that go layer by layer: at recompute grain layer, or because
 * their gradients are reduced while they run. */
#include "common/program/check_internal.h"

static bool has_head(const rp_stage *stage)
{
    return (stage->roles & RP_STAGE_HEAD) != 0;
}

bool rp_check_names_layer(const rp_program *p, const rp_op *op)
{
    const rp_stage *stage = &p->stages[op->stage];
    uint32_t layer = rp_op_layer(op);
    bool block = layer > stage->layer_begin && layer <= stage->layer_end;
    bool head = has_head(stage) && layer == p->layer_count + 1;
    bool kind = rp_op_kinds[op->kind].tensors == RP_TENSOR_ACTIVATION ||
                rp_op_kind_moves_saved((rp_op_kind)op->kind) ||
                rp_op_kind_is_backward((rp_op_kind)op->kind);
    return p->op_bytes != NULL && kind && (block || head);
}

/* ---- the order of layers --------------------------------------------------------------------- */

typedef struct layered_unit {
    const rp_checker *c;
    const rp_queue *queue;
    rp_op like;    /* the unit's first op */
    uint32_t next; /* number of the op to take next */
} layered_unit;

static rp_status take(layered_unit *u, rp_op_kind kind, uint32_t layer, uint8_t flags)
{
    const rp_op *op = &u->c->program->ops[u->next];
    bool fits = u->next < u->queue->op_end && op->kind == kind && rp_op_layer(op) == layer &&
                op->flags == flags && op->stage == u->like.stage &&
                op->microbatch == u->like.microbatch && op->iteration == u->like.iteration;
    if (!fits) {
        uint32_t last = u->queue->op_end - 1;
        return rp_check_violated_op(u->c, RP_RULE_UNIT_LAYERS, u->next < last ? u->next : last);
    }
    u->next++;
    return RP_OK;
}

/* Takes a forward of a pipeline's stage or of a forward stage: layers ascending, then the head. */
static rp_status take_forward(layered_unit *u)
{
    const rp_program *p = u->c->program;
    const rp_stage *stage = &p->stages[u->like.stage];
    uint32_t first = u->next;
    for (uint32_t layer = stage->layer_begin + 1; layer <= stage->layer_end; layer++) {
        RP_TRY(take(u, RP_OP_FORWARD, layer, 0));
    }
    if (has_head(stage)) {
        RP_TRY(take(u, RP_OP_FORWARD, p->layer_count + 1, 0));
    }
    return rp_check_lowered_needs(u->c, u->queue, first, first);
}

/* Takes a backward or weight part that descends from the head or the last layer because its
 * gradients are reduced while it runs. If the stage has a recompute, it has run for the whole stage
 * before. */
static rp_status take_descent(layered_unit *u, uint32_t first)
{
    const rp_program *p = u->c->program;
    const rp_op like = p->ops[u->next];
    const rp_stage *stage = &p->stages[like.stage];
    uint32_t begin = u->next;
    if (has_head(stage)) {
        RP_TRY(take(u, (rp_op_kind)like.kind, p->layer_count + 1, 0));
    }
    for (uint32_t layer = stage->layer_end; layer > stage->layer_begin; layer--) {
        RP_TRY(take(u, (rp_op_kind)like.kind, layer, 0));
    }
    return rp_check_lowered_needs(u->c, u->queue, first, begin);
}

/* Takes a backward that descends from the head, including the head's forward unless the stage is a
 * pipeline's. The incoming gradient must come before the first backward, each layer's input before
 * the layer. */
static rp_status take_backward(layered_unit *u)
{
    const rp_program *p = u->c->program;
    const rp_stage *stage = &p->stages[u->like.stage];
    bool pipeline = u->c->producers.forward_position[u->like.stage] != RP_NO_OP;
    uint32_t second = u->next + 1 < p->op_count ? u->next + 1 : u->next;
    bool alone = pipeline && has_head(stage); /* the head's backward begins, without pre-work */
    rp_op_kind kind = (rp_op_kind)(alone ? u->like.kind : p->ops[second].kind);
    if (!rp_recompute_has_ops(p->recompute) || (!pipeline && (stage->roles & 1) != 0) ||
        !rp_op_kind_goes_back(kind)) {
        return rp_check_violated_op(u->c, RP_RULE_UNIT_LAYERS, u->next);
    }
    uint32_t first = u->next;
    if (has_head(stage)) {
        RP_TRY(pipeline ? RP_OK : take(u, RP_OP_FORWARD, p->layer_count + 1, RP_OP_JOIN));
        RP_TRY(take(u, kind, p->layer_count + 1, 0));
        RP_TRY(rp_check_lowered_needs(u->c, u->queue, first, u->next - 1));
    }
    for (uint32_t layer = stage->layer_end; layer > stage->layer_begin; layer--) {
        uint32_t begin = u->next;
        RP_TRY(take(u, RP_OP_RECOMPUTE, layer, RP_OP_JOIN));
        RP_TRY(take(u, kind, layer, 0));
        RP_TRY(begin == first ? rp_check_lowered_needs(u->c, u->queue, begin, begin + 1)
                              : rp_check_layer_input(u->c, u->queue, begin, begin + 1));
    }
    return RP_OK;
}

rp_status rp_check_layered_unit(const rp_checker *c, const rp_queue *queue, uint32_t first,
                                uint32_t *last_out)
{
    const rp_op *op = &c->program->ops[first];
    layered_unit u = {.c = c, .queue = queue, .like = *op, .next = first};
    bool pipeline = c->producers.forward_position[op->stage] != RP_NO_OP;
    bool forward = rp_op_kind_is_forward(op->kind) && pipeline;
    bool known = forward || c->producers.backward_position[op->stage] != RP_NO_OP;
    /* This unit recomputes nothing. */
    bool descends =
        pipeline && rp_op_kind_is_backward(op->kind) &&
        (!rp_recompute_has_ops(c->program->recompute) || rp_op_kind_is_weight_part(op->kind));
    if (!known) {
        return rp_check_violated_op(c, RP_RULE_UNIT_LAYERS, first);
    }
    RP_TRY(forward ? take_forward(&u) : descends ? take_descent(&u, first) : take_backward(&u));
    *last_out = u.next - 1;
    return RP_OK;
}

rp_status rp_check_recomputed_unit(const rp_checker *c, const rp_queue *queue, uint32_t first,
                                   uint32_t *last_out)
{
    uint32_t second = first + 1;
    const rp_op *op = &c->program->ops[second]; /* the first is joined to it */
    layered_unit u = {.c = c, .queue = queue, .like = *op, .next = second};
    bool shaped = rp_op_kind_is_recompute(c->program->ops[first].kind) && op->flags == 0 &&
                  rp_recompute_has_ops(c->program->recompute) &&
                  rp_op_kind_goes_back((rp_op_kind)op->kind) &&
                  c->producers.forward_position[op->stage] != RP_NO_OP &&
                  c->producers.backward_position[op->stage] != RP_NO_OP;
    if (!shaped) {
        return rp_check_violated_op(c, RP_RULE_UNIT_LAYERS, first);
    }
    RP_TRY(take_descent(&u, first));
    *last_out = u.next - 1;
    return RP_OK;
}
