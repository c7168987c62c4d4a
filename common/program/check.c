/* The validator: every invariant of a program, each with a message of its own. */
#include "common/program/check_internal.h"

#include "common/base/log.h"

static const char *const rule_messages[] = {
#define RP_RULE_TEXT(name, message) [RP_RULE_##name] = message,
    RP_RULE_LIST(RP_RULE_TEXT)
#undef RP_RULE_TEXT
};

const char *rp_rule_message(rp_rule rule)
{
    return rule_messages[rule];
}

rp_status rp_check_violated(rp_rule rule, const char *what, uint32_t number)
{
    rp_log_error("program: %s %u: %s", what, number, rule_messages[rule]);
    return RP_INVALID_PROGRAM;
}

rp_status rp_check_violated_op(const rp_checker *c, rp_rule rule, uint32_t op)
{
    char name[RP_OP_NAME_SIZE];
    rp_op_name(&c->program->ops[op], name);
    rp_log_error("program: op %u (%s, queue %u): %s", op, name, rp_program_queue_of(c->program, op),
                 rule_messages[rule]);
    return RP_INVALID_PROGRAM;
}

/* ---- header, stages, chains, queues ---------------------------------------------------------- */

static rp_status check_header(const rp_program *p)
{
    bool sizes = p->gpu_count >= 1 && p->gpu_count <= RP_MAX_GPUS && p->microbatch_count >= 1 &&
                 p->microbatch_count <= RP_MAX_MICROBATCHES && p->iteration_count >= 1 &&
                 p->iteration_count <= RP_MAX_ITERATIONS && p->layer_count >= 1 &&
                 p->layer_count <= RP_MAX_LAYERS && p->op_count <= RP_MAX_OPS;
    if (!sizes) {
        rp_log_error("program: %s", rule_messages[RP_RULE_SIZES]);
        return RP_INVALID_PROGRAM;
    }
    if ((unsigned)p->recompute >= RP_RECOMPUTE_COUNT) {
        rp_log_error("program: %s", rule_messages[RP_RULE_MODE]);
        return RP_INVALID_PROGRAM;
    }
    if ((unsigned)p->traits.placement > RP_PLACEMENT_SHARDED ||
        (unsigned)p->traits.versions > RP_VERSIONS_STASHED) {
        rp_log_error("program: %s", rule_messages[RP_RULE_TRAITS]);
        return RP_INVALID_PROGRAM;
    }
    return RP_OK;
}

static rp_status check_stages(const rp_program *p)
{
    uint32_t known = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS | RP_STAGE_HEAD;
    for (uint32_t s = 0; s < p->stage_count; s++) {
        const rp_stage *stage = &p->stages[s];
        if (stage->layer_begin > stage->layer_end || stage->layer_end > p->layer_count) {
            return rp_check_violated(RP_RULE_STAGE_LAYERS, "stage", s);
        }
        if (stage->roles == 0 || (stage->roles & ~known) != 0) {
            return rp_check_violated(RP_RULE_STAGE_ROLES, "stage", s);
        }
    }
    return RP_OK;
}

static rp_status check_chain_members(rp_checker *c, const uint16_t *chain, uint32_t count,
                                     uint8_t *seen, uint8_t mark)
{
    for (uint32_t i = 0; i < count; i++) {
        if (chain[i] >= c->program->stage_count || (seen[chain[i]] & mark) != 0) {
            return rp_check_violated(RP_RULE_CHAIN_STAGE, "chain position", i);
        }
        seen[chain[i]] |= mark;
    }
    return RP_OK;
}

/* Forward stages ascend from layer 0 to the end, or to the layers that the first backward stage
 * runs forward itself; backward stages descend from the end to layer 0. */
static rp_status check_coverage(const rp_checker *c, const uint8_t *seen)
{
    const rp_program *p = c->program;
    uint32_t layer = 0;
    for (uint32_t i = 0; i < p->forward_count; i++) {
        const rp_stage *stage = &p->stages[p->forward_chain[i]];
        bool runs = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
        if (!runs || stage->layer_begin != layer) {
            return rp_check_violated(RP_RULE_CHAIN_LAYERS, "forward stage", i);
        }
        layer = stage->layer_end;
    }
    uint32_t forward_end = p->layer_count;
    uint32_t end = p->layer_count;
    for (uint32_t j = 0; j < p->backward_count; j++) {
        const rp_stage *stage = &p->stages[p->backward_chain[j]];
        bool runs = (stage->roles & RP_STAGE_BACKWARD_LAYERS) != 0;
        bool forward = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
        bool own_forward = (seen[p->backward_chain[j]] & 1) != 0;
        if (!runs || stage->layer_end != end || (forward && !own_forward && j != 0)) {
            return rp_check_violated(RP_RULE_CHAIN_LAYERS, "backward stage", j);
        }
        end = stage->layer_begin;
        forward_end = forward && !own_forward ? end : forward_end;
    }
    if (end != 0 || layer != forward_end) {
        return rp_check_violated(RP_RULE_CHAIN_LAYERS, "layer", end != 0 ? end : layer);
    }
    return RP_OK;
}

static rp_status check_chains(rp_checker *c)
{
    const rp_program *p = c->program;
    uint8_t *seen = NULL;
    RP_TRY(rp_arena_alloc(c->arena, p->stage_count, 1, &seen));
    RP_TRY(check_chain_members(c, p->forward_chain, p->forward_count, seen, 1));
    RP_TRY(check_chain_members(c, p->backward_chain, p->backward_count, seen, 2));
    for (uint32_t s = 0; s < p->stage_count; s++) {
        bool head = (p->stages[s].roles & RP_STAGE_HEAD) != 0;
        if (seen[s] == 0) {
            return rp_check_violated(RP_RULE_STAGE_UNUSED, "stage", s);
        }
        if (head != (p->backward_count != 0 && s == p->backward_chain[0])) {
            return rp_check_violated(RP_RULE_CHAIN_HEAD, "stage", s);
        }
    }
    RP_TRY(check_coverage(c, seen));
    if (p->backward_count == 0) {
        return rp_check_violated(RP_RULE_CHAIN_HEAD, "stage", 0);
    }
    bool sharded = rp_is_data_parallel(&p->traits);
    return sharded && rp_program_has_separate_backward(p)
               ? rp_check_violated(RP_RULE_CHAIN_SHARDED, "stage", p->backward_chain[0])
               : RP_OK;
}

static rp_status check_queues(rp_checker *c)
{
    const rp_program *p = c->program;
    uint8_t *taken = NULL;
    RP_TRY(rp_arena_alloc(c->arena, p->gpu_count, RP_QUEUE_KIND_COUNT, &taken));
    uint32_t next = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        if (queue->op_begin != next || queue->op_end < next || queue->op_end > p->op_count) {
            return rp_check_violated(RP_RULE_QUEUE_RANGE, "queue", q);
        }
        next = queue->op_end;
        bool host =
            queue->kind < RP_QUEUE_KIND_COUNT && !rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
        if (queue->kind >= RP_QUEUE_KIND_COUNT || queue->gpu >= p->gpu_count ||
            (host && queue->gpu != 0)) {
            return rp_check_violated(RP_RULE_QUEUE_GPU, "queue", q);
        }
        uint8_t *mark = &taken[(size_t)queue->gpu * RP_QUEUE_KIND_COUNT + queue->kind];
        if (*mark != 0) {
            return rp_check_violated(RP_RULE_QUEUE_TWICE, "queue", q);
        }
        *mark = 1;
    }
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        if (taken[(size_t)gpu * RP_QUEUE_KIND_COUNT + RP_QUEUE_COMPUTE] == 0) {
            return rp_check_violated(RP_RULE_QUEUE_MISSING, "GPU", gpu);
        }
    }
    return next == p->op_count ? RP_OK : rp_check_violated(RP_RULE_QUEUE_RANGE, "op", next);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static rp_status check_join(const rp_checker *c, const rp_queue *queue, uint32_t i)
{
    const rp_op *op = &c->program->ops[i];
    if (i + 1 == queue->op_end) {
        return rp_check_violated_op(c, RP_RULE_JOIN_END, i);
    }
    if (op[1].stage != op->stage || op[1].microbatch != op->microbatch ||
        op[1].iteration != op->iteration) {
        return rp_check_violated_op(c, RP_RULE_JOIN_OTHER, i);
    }
    return RP_OK;
}

static rp_status check_overlap(const rp_checker *c, const rp_queue *queue, uint32_t i)
{
    const rp_program *p = c->program;
    const rp_op *op = &p->ops[i];
    uint32_t last = i + 1;
    while (last < queue->op_end && (p->ops[last].flags & RP_OP_JOIN) != 0) {
        last++;
    }
    bool shaped = rp_op_kind_is_forward(op->kind) && op->flags == RP_OP_OVERLAP &&
                  p->op_bytes == NULL && last < queue->op_end &&
                  p->ops[last].iteration == op->iteration &&
                  rp_op_kind_goes_back((rp_op_kind)p->ops[last].kind);
    if (!shaped || (p->ops[last].stage == op->stage && p->ops[last].microbatch == op->microbatch)) {
        return rp_check_violated_op(c, RP_RULE_OVERLAP_SHAPE, i);
    }
    return RP_OK;
}

/* A queue of a group's collectives belongs only into programs whose layout has such groups. */
static bool has_group(const rp_program *p, const rp_queue *queue)
{
    const rp_layout *layout = &p->traits.layout;
    if (queue->kind == RP_QUEUE_NETWORK) {
        return rp_server_copies(&p->traits) > 1;
    }
    uint32_t gpus = queue->kind == RP_QUEUE_TENSOR   ? rp_layout_tensor(layout)
                    : queue->kind == RP_QUEUE_EXPERT ? rp_layout_expert(layout)
                    : queue->kind == RP_QUEUE_DATA   ? rp_layout_data(layout)
                                                     : rp_layout_replicas(layout);
    return gpus > 1;
}

static inline rp_status check_op(const rp_checker *c, const rp_queue *queue, uint32_t i)
{
    const rp_program *p = c->program;
    const rp_op *op = &p->ops[i];
    if (op->kind >= RP_OP_KIND_COUNT) {
        return rp_check_violated_op(c, RP_RULE_OP_KIND, i);
    }
    bool host = rp_op_kind_class((rp_op_kind)op->kind) == RP_CLASS_HOST;
    if ((rp_op_kinds[op->kind].queues >> queue->kind & 1) == 0) {
        return rp_check_violated_op(c, RP_RULE_OP_QUEUE, i);
    }
    bool group = rp_queue_kind_is_group((rp_queue_kind)queue->kind);
    bool joins = group || queue->kind == RP_QUEUE_NETWORK;
    if (joins ? !has_group(p, queue)
              : (rp_op_kinds[op->kind].unfit >> p->traits.placement & 1) != 0) {
        return rp_check_violated_op(c, RP_RULE_OP_PLACEMENT, i);
    }
    if (host ? op->stage != 0 : op->stage >= p->stage_count) {
        return rp_check_violated_op(c, RP_RULE_OP_STAGE, i);
    }
    uint32_t host_limit = p->op_bytes != NULL ? p->layer_count + 2 : 1; /* host ops name a layer */
    if (op->microbatch >= (host ? host_limit : p->microbatch_count)) {
        return rp_check_violated_op(c, RP_RULE_OP_MICROBATCH, i);
    }
    if (op->iteration >= p->iteration_count) {
        return rp_check_violated_op(c, RP_RULE_OP_ITERATION, i);
    }
    if ((op->flags & ~(RP_OP_JOIN | RP_OP_OVERLAP)) != 0) {
        return rp_check_violated_op(c, RP_RULE_OP_FLAGS, i);
    }
    if (op->part != 0 && !group && !rp_check_names_layer(p, op)) {
        return rp_check_violated_op(c, RP_RULE_OP_LAYER, i);
    }
    if ((op->flags & RP_OP_OVERLAP) != 0) {
        RP_TRY(check_overlap(c, queue, i));
    }
    return (op->flags & RP_OP_JOIN) != 0 ? check_join(c, queue, i) : RP_OK;
}

static rp_status check_ops(rp_checker *c)
{
    const rp_program *p = c->program;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        uint32_t first_iteration = 0; /* first iteration that may run after the updates so far */
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            RP_TRY(check_op(c, &p->queues[q], i));
            if (p->ops[i].iteration < first_iteration) {
                return rp_check_violated_op(c, RP_RULE_UPDATE_ORDER, i);
            }
            first_iteration =
                rp_op_kind_is_update(p->ops[i].kind) ? p->ops[i].iteration + 1u : first_iteration;
            c->sends += rp_op_kind_sends(p->ops[i].kind) ? 1 : 0;
            c->receives += rp_op_kind_receives(p->ops[i].kind) ? 1 : 0;
            c->saved += rp_op_kind_moves_saved(p->ops[i].kind) ? 1 : 0;
        }
    }
    return RP_OK;
}

/* ---- waits ----------------------------------------------------------------------------------- */

static rp_status check_waits(const rp_checker *c)
{
    const rp_program *p = c->program;
    if (p->ops[0].wait_begin != 0 || p->ops[p->op_count].wait_begin != p->wait_count) {
        return rp_check_violated(RP_RULE_WAIT_RANGE, "wait", p->ops[p->op_count].wait_begin);
    }
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            const rp_op *op = &p->ops[i];
            if (op[1].wait_begin < op->wait_begin || op[1].wait_begin > p->wait_count) {
                return rp_check_violated_op(c, RP_RULE_WAIT_RANGE, i);
            }
            for (uint32_t w = op->wait_begin; w < op[1].wait_begin; w++) {
                uint32_t target = rp_wait_op(p->waits[w]);
                if (target >= p->op_count) {
                    return rp_check_violated_op(c, RP_RULE_WAIT_TARGET, i);
                }
                if (target >= queue->op_begin && target < queue->op_end) {
                    return rp_check_violated_op(c, RP_RULE_WAIT_SELF, i);
                }
                if (w > op->wait_begin && rp_wait_op(p->waits[w - 1]) >= target) {
                    return rp_check_violated_op(c, RP_RULE_WAIT_ORDER, i);
                }
            }
        }
    }
    return RP_OK;
}

static rp_status check_all_but_cycles(rp_checker *c)
{
    RP_TRY(check_header(c->program));
    RP_TRY(check_stages(c->program));
    RP_TRY(check_chains(c));
    RP_TRY(check_queues(c));
    RP_TRY(check_ops(c));
    RP_TRY(check_waits(c));
    RP_TRY(rp_check_work(c));
    return rp_check_buffers(c);
}

rp_status rp_program_check_but_cycles(const rp_program *program, rp_arena *arena,
                                      rp_producers *producers_out)
{
    rp_checker c = {.program = program, .arena = arena};
    RP_TRY(check_all_but_cycles(&c));
    *producers_out = c.producers;
    return RP_OK;
}

rp_status rp_program_check(const rp_program *program)
{
    rp_checker c = {.program = program};
    RP_TRY(rp_arena_create(&c.arena));
    rp_status status = check_all_but_cycles(&c);
    if (status == RP_OK) {
        status = rp_check_acyclic(&c);
    }
    rp_arena_destroy(c.arena);
    return status;
}
