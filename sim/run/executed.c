#include "sim/run/executed.h"

#include "common/roofline/roofline.h"

#define AGAIN RP_PASS_COUNT /* what backwards run again (selective recompute) */

/* FLOP of a sequence, by pass. */
typedef double flop_of[RP_PASS_COUNT + 1];

typedef struct work {
    flop_of *below; /* [layers + 1] FLOP of all layers below the index */
    flop_of head;
} work;

static rp_status add_up(const rp_model *model, uint32_t seq_len, uint32_t again, rp_arena *arena,
                        work *w)
{
    RP_TRY(rp_arena_alloc(arena, model->layers + 1, sizeof *w->below, &w->below));
    for (uint32_t i = 0; i < model->layers; i++) {
        flop_of layer;
        rp_layer_flop(model, i, 1, seq_len, layer);
        layer[AGAIN] = again != 0 ? rp_again_flop(model, i, 1, seq_len, again) : 0;
        for (int p = 0; p <= AGAIN; p++) {
            w->below[i + 1][p] = w->below[i][p] + layer[p];
        }
    }
    rp_layer_flop(model, model->layers, 1, seq_len, w->head);
    return RP_OK;
}

static double of_layers(const work *w, const rp_stage *stage, int pass)
{
    return w->below[stage->layer_end][pass] - w->below[stage->layer_begin][pass];
}

/* FLOP of a stage's pass, counted as layer_costs.c counts times: a recompute does not include the
 * head, the head's backward is not split, and a forward does not include layers that run forward in
 * another stage. */
static double of_stage(const work *w, const rp_stage *stage, rp_op_kind kind)
{
    uint32_t tensors = rp_op_kinds[kind].tensors;
    bool again = rp_op_kind_is_recompute(kind);
    bool head = (stage->roles & RP_STAGE_HEAD) != 0 && !again;
    bool forward = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0 || again;
    double flop = 0;
    if ((tensors & RP_TENSOR_ACTIVATION) != 0) {
        flop += forward ? of_layers(w, stage, RP_PASS_FORWARD) : 0;
        flop += head ? w->head[RP_PASS_FORWARD] : 0;
    }
    if ((tensors & RP_TENSOR_GRADIENT) != 0) {
        flop += of_layers(w, stage, RP_PASS_BACKWARD_INPUT) + of_layers(w, stage, AGAIN);
        flop += head ? w->head[RP_PASS_BACKWARD_INPUT] + w->head[RP_PASS_BACKWARD_WEIGHT] : 0;
    }
    if ((tensors & RP_TENSOR_PARAM_GRADIENT) != 0) {
        flop += of_layers(w, stage, RP_PASS_BACKWARD_WEIGHT);
    }
    return flop;
}

static double of_op(const rp_program *p, const work *w, const rp_op *op)
{
    uint32_t roles = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS;
    rp_stage one = p->stages[op->stage];
    if (rp_op_layer(op) > p->layer_count) { /* the head by itself */
        one = (rp_stage){p->layer_count, p->layer_count, roles | RP_STAGE_HEAD};
    } else if (rp_op_layer(op) != 0) {
        one = (rp_stage){rp_op_layer(op) - 1u, rp_op_layer(op), roles};
    }
    return of_stage(w, &one, (rp_op_kind)op->kind) * p->sequences[op->microbatch];
}

rp_status rpsim_executed_flop(const rp_program *program, const rp_model *model, uint32_t seq_len,
                              uint32_t slices, uint32_t again, double *flop_out)
{
    rp_arena *arena = NULL;
    work w;
    double flop = 0;
    RP_TRY(rp_arena_create(&arena));
    bool selective = program->recompute == RP_RECOMPUTE_SELECTIVE;
    rp_status status = add_up(model, seq_len, selective ? again : 0, arena, &w);
    for (uint32_t i = 0; status == RP_OK && i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        flop += rp_op_kind_is_pass((rp_op_kind)op->kind) ? of_op(program, &w, op) : 0;
    }
    rp_arena_destroy(arena);
    *flop_out = flop / slices;
    return status;
}
