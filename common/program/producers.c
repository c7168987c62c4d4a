#include "common/program/producers.h"

#include <string.h>

static rp_status allocate_table(rp_arena *arena, size_t entries, uint32_t **table_out)
{
    RP_TRY(rp_arena_alloc_raw(arena, entries, sizeof(uint32_t), table_out));
    memset(*table_out, 0xff, entries * sizeof(uint32_t));
    return RP_OK;
}

static rp_status set_positions(const rp_program *program, rp_arena *arena, rp_producers *p)
{
    RP_TRY(allocate_table(arena, program->stage_count, &p->forward_position));
    RP_TRY(allocate_table(arena, program->stage_count, &p->backward_position));
    for (uint32_t i = 0; i < program->forward_count; i++) {
        p->forward_position[program->forward_chain[i]] = i;
    }
    for (uint32_t i = 0; i < program->backward_count; i++) {
        p->backward_position[program->backward_chain[i]] = i;
    }
    return RP_OK;
}

static inline void note(rp_producers *p, uint32_t *entry, uint32_t op)
{
    if (*entry != RP_NO_OP && p->duplicate == RP_NO_OP) {
        p->duplicate = op;
    }
    *entry = op;
}

/* @return whether the result of a unit is ready after `op`: if the unit goes layer by layer, only
 * its last op has the result. */
static bool ends_unit(const rp_producers *p, const rp_op *op)
{
    const rp_stage *stage = &p->program->stages[op->stage];
    uint32_t layer = rp_op_layer(op);
    if (layer == 0) {
        return true;
    }
    bool head = (stage->roles & RP_STAGE_HEAD) != 0;
    uint32_t forward_end = head ? p->program->layer_count + 1 : stage->layer_end;
    return layer == (rp_op_kind_is_forward(op->kind) ? forward_end : stage->layer_begin + 1);
}

/* The table entry that `op` fills; NULL for ops whose results no other op needs. */
static inline uint32_t *entry_of(const rp_producers *p, const rp_op *op)
{
    if (!rp_op_kind_is_pass(op->kind) || !ends_unit(p, op)) {
        return NULL;
    }
    if (rp_op_kind_is_forward(op->kind)) {
        uint32_t position = p->forward_position[op->stage];
        if (position == RP_NO_OP) {
            return NULL; /* the head's forward inside a backward unit */
        }
        return &p->forward_at[rp_producers_forward_index(p, op->iteration, position,
                                                         op->microbatch)];
    }
    uint32_t position = p->backward_position[op->stage];
    if (position == RP_NO_OP || !rp_op_kind_is_backward(op->kind)) {
        return NULL;
    }
    size_t index = rp_producers_backward_index(p, op->iteration, position, op->microbatch);
    return rp_op_kind_goes_back(op->kind) ? &p->backward_at[index] : &p->weight_at[index];
}

static void note_missing(rp_producers *p, rp_op_kind kind, size_t index, uint32_t positions)
{
    uint32_t microbatches = p->program->microbatch_count;
    p->missing_kind = kind;
    p->missing_microbatch = (uint32_t)(index % microbatches);
    p->missing_position = (uint32_t)(index / microbatches % positions);
    p->missing_iteration = (uint32_t)(index / microbatches / positions);
}

static void find_missing(rp_producers *p, size_t forwards, size_t backwards)
{
    const rp_program *program = p->program;
    for (size_t i = 0; i < forwards; i++) {
        if (p->forward_at[i] == RP_NO_OP) {
            note_missing(p, RP_OP_FORWARD, i, program->forward_count);
            return;
        }
    }
    for (size_t i = 0; i < backwards; i++) {
        if (p->backward_at[i] == RP_NO_OP) {
            note_missing(p, RP_OP_BACKWARD, i, program->backward_count);
            return;
        }
        bool split = rp_op_kind_leaves_weights(program->ops[p->backward_at[i]].kind);
        bool weight = p->weight_at != NULL && p->weight_at[i] != RP_NO_OP;
        if (split && !weight) {
            note_missing(p, RP_OP_BACKWARD_WEIGHT, i, program->backward_count);
            return;
        }
        if (!split && weight) {
            p->duplicate = p->weight_at[i]; /* a full backward has computed this part already */
            return;
        }
    }
}

rp_status rp_producers_create(const rp_program *program, rp_arena *arena,
                              rp_producers *producers_out)
{
    rp_producers p = {.program = program, .duplicate = RP_NO_OP, .missing_position = RP_NO_OP};
    RP_TRY(set_positions(program, arena, &p));
    size_t units = (size_t)program->microbatch_count * program->iteration_count;
    size_t forwards = units * program->forward_count;
    size_t backwards = units * program->backward_count;
    RP_TRY(allocate_table(arena, forwards, &p.forward_at));
    RP_TRY(allocate_table(arena, backwards, &p.backward_at));
    if (rp_program_has(program, rp_op_kind_is_weight_part)) {
        RP_TRY(allocate_table(arena, backwards, &p.weight_at));
    }
    for (uint32_t i = 0; i < program->op_count; i++) {
        uint32_t *entry = entry_of(&p, &program->ops[i]);
        if (entry != NULL) {
            note(&p, entry, i);
        }
    }
    find_missing(&p, forwards, backwards);
    *producers_out = p;
    return RP_OK;
}
