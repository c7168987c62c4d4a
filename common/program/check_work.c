/* The validator's second part: the work that a program must do, and the results that each op
 * needs. */
#include "common/base/log.h"
#include "common/program/check_internal.h"

/* ---- the work: once, in whole units, after what it needs ------------------------------------- */

static rp_status check_once(rp_checker *c)
{
    /* This check also bounds the tables below by the number of ops. */
    uint64_t units = (uint64_t)c->program->microbatch_count * c->program->iteration_count;
    uint64_t chains = (uint64_t)c->program->forward_count + c->program->backward_count;
    if (chains > c->program->op_count || units * chains > c->program->op_count) {
        return rp_check_violated(RP_RULE_NEVER_RUNS, "program with ops", c->program->op_count);
    }
    RP_TRY(rp_producers_create(c->program, c->arena, &c->producers));
    const rp_producers *p = &c->producers;
    if (p->duplicate != RP_NO_OP) {
        return rp_check_violated_op(c, RP_RULE_RUNS_TWICE, p->duplicate);
    }
    if (p->missing_position != RP_NO_OP) {
        bool forward = rp_op_kind_is_forward(p->missing_kind);
        const uint16_t *chain = forward ? c->program->forward_chain : c->program->backward_chain;
        rp_log_error("program: %u%s%u of iteration %u: %s", chain[p->missing_position],
                     rp_op_kind_text(p->missing_kind), p->missing_microbatch, p->missing_iteration,
                     rp_rule_message(RP_RULE_NEVER_RUNS));
        return RP_INVALID_PROGRAM;
    }
    return RP_OK;
}

enum {
    PRE_RECOMPUTE = 1,
    PRE_FORWARD = 2,
};

static const uint8_t pre_of[RP_PHASE_COUNT] = {
    [RP_PHASE_RECOMPUTE] = PRE_RECOMPUTE, [RP_PHASE_FORWARD] = PRE_FORWARD};

/* The pre-work that each stage's backward unit must have, PRE_*. */
static rp_status expected_units(rp_checker *c, uint8_t **expected_out)
{
    const rp_program *p = c->program;
    RP_TRY(rp_arena_alloc(c->arena, p->stage_count, 1, expected_out));
    for (uint32_t s = 0; s < p->stage_count; s++) {
        const rp_stage *stage = &p->stages[s];
        bool pipeline = c->producers.forward_position[s] != RP_NO_OP;
        bool fused = !pipeline && (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
        bool layers = stage->layer_end > stage->layer_begin;
        bool recomputes = rp_recompute_has_ops(p->recompute) && layers && !fused;
        bool head_forward = !pipeline && (stage->roles & RP_STAGE_HEAD) != 0;
        (*expected_out)[s] =
            (uint8_t)((recomputes ? PRE_RECOMPUTE : 0) | (head_forward ? PRE_FORWARD : 0));
    }
    return RP_OK;
}

static uint32_t count_data_waits(const rp_program *p, uint32_t op)
{
    uint32_t count = 0;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        count += rp_wait_is_control(p->waits[w]) ? 0 : 1;
    }
    return count;
}

static bool waits_for(const rp_program *p, uint32_t op, uint32_t producer)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        if (p->waits[w] == producer) {
            return true;
        }
    }
    return false;
}

/* Checks the needs of a unit. `op` is the op that must carry the unit's waits, `first` the unit's
 * first op. */
static rp_status check_needs(const rp_checker *c, const rp_queue *queue, uint32_t first,
                             uint32_t op)
{
    const rp_program *p = c->program;
    uint32_t producers[RP_MAX_PRODUCERS];
    uint32_t count = rp_producers_of(&c->producers, &p->ops[op], producers);
    uint32_t covered = 0;
    for (uint32_t k = 0; k < count; k++) {
        bool same_queue = producers[k] >= queue->op_begin && producers[k] < queue->op_end;
        if (same_queue ? producers[k] >= first : !waits_for(p, op, producers[k])) {
            return rp_check_violated_op(c, RP_RULE_NEEDS, op);
        }
        covered += same_queue ? 0 : 1;
    }
    return count_data_waits(p, op) == covered ? RP_OK
                                              : rp_check_violated_op(c, RP_RULE_WAIT_DATA, op);
}

static rp_status check_unit(const rp_checker *c, const rp_queue *queue, const uint8_t *expected,
                            uint32_t first, uint32_t last)
{
    const rp_program *p = c->program;
    const rp_op *ops = p->ops;
    uint8_t found = 0;
    for (uint32_t i = first; i < last; i++) {
        uint8_t pre = pre_of[rp_op_kinds[ops[i].kind].phase];
        if (pre <= found) { /* recompute first, each at most once */
            return rp_check_violated_op(c, RP_RULE_UNIT_SHAPE, i);
        }
        found |= pre;
    }
    bool backward = rp_op_kind_goes_back((rp_op_kind)ops[last].kind);
    if (!backward || found != expected[ops[last].stage]) {
        return rp_check_violated_op(c, RP_RULE_UNIT_SHAPE, last);
    }
    if (p->op_bytes != NULL) {
        return rp_check_lowered_needs(c, queue, first, last);
    }
    uint32_t carrier = p->recompute == RP_RECOMPUTE_EARLY ? last : first;
    for (uint32_t i = first; i <= last; i++) {
        if (i != carrier && count_data_waits(p, i) != 0) {
            return rp_check_violated_op(c, RP_RULE_WAIT_DATA, i);
        }
    }
    return check_needs(c, queue, first, carrier);
}

static rp_status check_compute_queue(const rp_checker *c, const rp_queue *queue,
                                     const uint8_t *expected)
{
    const rp_op *ops = c->program->ops;
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        uint32_t first = i;
        bool joined = (ops[i].flags & RP_OP_JOIN) != 0; /* a joined op is not its queue's last */
        bool alone = rp_op_layer(&ops[i]) != 0;
        if (alone || (joined && rp_op_layer(&ops[i + 1]) != 0)) {
            RP_TRY(alone ? rp_check_layered_unit(c, queue, i, &i)
                         : rp_check_recomputed_unit(c, queue, i, &i));
            continue;
        }
        while ((ops[i].flags & RP_OP_JOIN) != 0) {
            i++;
        }
        const rp_op *op = &ops[i];
        if (first == i && (rp_op_kind_is_recompute(op->kind) ||
                           (rp_op_kind_is_forward(op->kind) &&
                            c->producers.forward_position[op->stage] == RP_NO_OP))) {
            return rp_check_violated_op(c, RP_RULE_PREWORK_ALONE, i);
        }
        bool backward = rp_op_kind_goes_back((rp_op_kind)op->kind);
        if (backward && c->producers.backward_position[op->stage] == RP_NO_OP) {
            return rp_check_violated_op(c, RP_RULE_OP_STAGE, i);
        }
        if (backward || first != i) {
            RP_TRY(check_unit(c, queue, expected, first, i));
        } else if (rp_op_kind_is_weight_part(op->kind) &&
                   c->producers.backward_position[op->stage] == RP_NO_OP) {
            return rp_check_violated_op(c, RP_RULE_OP_STAGE, i);
        } else if (!rp_op_kind_is_pass((rp_op_kind)op->kind)) {
            continue; /* an update needs results of its own queue; its waits are orderings */
        } else if (c->program->op_bytes != NULL) {
            RP_TRY(rp_check_lowered_needs(c, queue, i, i));
        } else {
            RP_TRY(check_needs(c, queue, i, i));
        }
    }
    return RP_OK;
}

/* In a compute schedule tensors go from compute op to compute op. */
static rp_status check_other_queue(const rp_checker *c, const rp_queue *queue)
{
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        if (c->program->op_bytes == NULL && count_data_waits(c->program, i) != 0) {
            return rp_check_violated_op(c, RP_RULE_WAIT_DATA, i);
        }
    }
    return RP_OK;
}

/* ---- peer transfers -------------------------------------------------------------------------- */

static rp_status check_receive(const rp_checker *c, uint32_t op, uint8_t *received)
{
    const rp_program *p = c->program;
    uint32_t sends = 0;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        const rp_op *send = &p->ops[target];
        if (rp_op_kind_sends(send->kind) && send->microbatch == p->ops[op].microbatch &&
            send->iteration == p->ops[op].iteration) {
            if (received[target] != 0) {
                return rp_check_violated_op(c, RP_RULE_SEND_MATCH, target);
            }
            received[target] = 1;
            sends++;
        }
    }
    return sends == 1 ? RP_OK : rp_check_violated_op(c, RP_RULE_RECV_MATCH, op);
}

static rp_status check_peers(const rp_checker *c)
{
    const rp_program *p = c->program;
    if (c->sends == 0 && c->receives == 0) {
        return RP_OK;
    }
    uint8_t *received = NULL;
    RP_TRY(rp_arena_alloc(c->arena, p->op_count, 1, &received));
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (rp_op_kind_receives(p->ops[i].kind)) {
            RP_TRY(check_receive(c, i, received));
        }
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (rp_op_kind_sends(p->ops[i].kind) && received[i] == 0) {
            return rp_check_violated_op(c, RP_RULE_SEND_MATCH, i);
        }
    }
    return RP_OK;
}

/* ---- saved tensors --------------------------------------------------------------------------- */

/* Counts what the op's data waits say about saved tensors: a backward's wait for an upload, and an
 * upload's wait for the download of the same tensors, which counts for both. */
static void count_saved(const rp_program *p, uint32_t op, uint32_t *counts)
{
    const rp_op *o = &p->ops[op];
    bool uploads = rp_op_kind_moves_saved((rp_op_kind)o->kind);
    bool forward = rp_op_kind_is_forward(o->kind);
    for (uint32_t w = o->wait_begin; w < o[1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        const rp_op *from = &p->ops[target];
        bool up = rp_op_kinds[from->kind].way == RP_WAY_UP;
        bool same = from->stage == o->stage && from->microbatch == o->microbatch &&
                    from->iteration == o->iteration &&
                    (!uploads || rp_op_layer(from) == rp_op_layer(o));
        if (rp_wait_is_control(p->waits[w]) || !same || forward || up == uploads ||
            !rp_op_kind_moves_saved((rp_op_kind)from->kind)) {
            continue;
        }
        counts[target]++;
        counts[op] += uploads ? 1 : 0;
    }
}

static rp_status check_saved(const rp_checker *c)
{
    const rp_program *p = c->program;
    uint32_t *counts = NULL;
    if (c->saved == 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(c->arena, p->op_count, sizeof *counts, &counts));
    for (uint32_t i = 0; i < p->op_count; i++) {
        count_saved(p, i, counts);
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        uint32_t wanted = rp_op_kinds[p->ops[i].kind].way == RP_WAY_UP ? 2 : 1;
        if (rp_op_kind_moves_saved((rp_op_kind)p->ops[i].kind) && counts[i] != wanted) {
            return rp_check_violated_op(c, RP_RULE_SAVED_MATCH, i);
        }
    }
    return RP_OK;
}

rp_status rp_check_work(rp_checker *c)
{
    RP_TRY(check_once(c));
    uint8_t *expected = NULL;
    RP_TRY(expected_units(c, &expected));
    for (uint32_t q = 0; q < c->program->queue_count; q++) {
        if (c->program->queues[q].kind == RP_QUEUE_COMPUTE) {
            RP_TRY(check_compute_queue(c, &c->program->queues[q], expected));
        } else {
            RP_TRY(check_other_queue(c, &c->program->queues[q]));
        }
    }
    RP_TRY(check_peers(c));
    return check_saved(c);
}
