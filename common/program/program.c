#include "common/program/program.h"

#include "common/base/hash.h"

#include <stdio.h>
#include <string.h>

#define ON(kind) (UINT32_C(1) << RP_QUEUE_##kind)
#define OF(kind) (UINT32_C(1) << RP_PLACEMENT_##kind)
const rp_op_row rp_op_kinds[RP_OP_KIND_COUNT] = {
#define OP(name, colour, class, in_text, means, ...)                                               \
    [RP_OP_##name] = {.text = in_text, .meaning = means, .op_class = RP_CLASS_##class, __VA_ARGS__},
#include "common/program/op_rows.inc"
#undef OP
};

static const struct {
    const char *text;
    rp_carrier carrier;
} queue_kinds[RP_QUEUE_KIND_COUNT] = {
#define RP_QUEUE_ENTRY(name, text, carrier, ...) [RP_QUEUE_##name] = {text, RP_CARRIER_##carrier},
    RP_QUEUE_KIND_LIST(RP_QUEUE_ENTRY)
#undef RP_QUEUE_ENTRY
};

static const char *const recompute_texts[RP_RECOMPUTE_COUNT] = {
#define RP_RECOMPUTE_ENTRY(name, text) [RP_RECOMPUTE_##name] = text,
    RP_RECOMPUTE_LIST(RP_RECOMPUTE_ENTRY)
#undef RP_RECOMPUTE_ENTRY
};

static const char *const buffer_kinds[RP_BUFFER_KIND_COUNT] = {
#define RP_BUFFER_ENTRY(name, text) [RP_BUFFER_##name] = text,
    RP_BUFFER_KIND_LIST(RP_BUFFER_ENTRY)
#undef RP_BUFFER_ENTRY
};

const char *rp_op_kind_text(rp_op_kind kind)
{
    return rp_op_kinds[kind].text;
}

bool rp_op_kind_parse(const char *text, rp_op_kind *kind_out)
{
    for (uint32_t i = 0; i < RP_OP_KIND_COUNT; i++) {
        if (strcmp(text, rp_op_kinds[i].text) == 0) {
            *kind_out = (rp_op_kind)i;
            return true;
        }
    }
    return false;
}

const char *rp_op_kind_meaning(rp_op_kind kind)
{
    return rp_op_kinds[kind].meaning;
}

const char *rp_queue_kind_text(rp_queue_kind kind)
{
    return queue_kinds[kind].text;
}

bool rp_queue_kind_on_gpu(rp_queue_kind kind)
{
    return queue_kinds[kind].carrier != RP_CARRIER_HOST;
}

rp_carrier rp_queue_kind_carrier(rp_queue_kind kind)
{
    return queue_kinds[kind].carrier;
}

const char *rp_recompute_text(rp_recompute recompute)
{
    return recompute_texts[recompute];
}

bool rp_recompute_parse(const char *text, rp_recompute *recompute_out)
{
    for (int i = 0; i < RP_RECOMPUTE_COUNT; i++) {
        if (strcmp(text, recompute_texts[i]) == 0) {
            *recompute_out = (rp_recompute)i;
            return true;
        }
    }
    return false;
}

const char *rp_buffer_kind_text(rp_buffer_kind kind)
{
    return buffer_kinds[kind];
}

void rp_op_name(const rp_op *op, char text[static RP_OP_NAME_SIZE])
{
    const char *kind = op->kind < RP_OP_KIND_COUNT ? rp_op_kinds[op->kind].text : "?";
    int length = 0;
    if (op->kind < RP_OP_KIND_COUNT && rp_op_kinds[op->kind].op_class == RP_CLASS_HOST) {
        length = op->microbatch == 0
                     ? snprintf(text, RP_OP_NAME_SIZE, "%s", kind)
                     : snprintf(text, RP_OP_NAME_SIZE, "%s%u", kind, op->microbatch);
    } else {
        length = snprintf(text, RP_OP_NAME_SIZE, "%u%s%u", op->stage, kind, op->microbatch);
    }
    if (op->part != 0) {
        length += snprintf(text + length, RP_OP_NAME_SIZE - (size_t)length, "/%u", op->part);
    }
    if (op->iteration != 0) {
        snprintf(text + length, RP_OP_NAME_SIZE - (size_t)length, "@%u", op->iteration);
    }
}

uint32_t rp_program_queue_of(const rp_program *program, uint32_t op)
{
    uint32_t low = 0;
    uint32_t high = program->queue_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (program->queues[middle].op_begin <= op) {
            low = middle;
        } else {
            high = middle;
        }
    }
    /* Empty queues share their begin with the queue after them, which the search has preferred. */
    return low;
}

bool rp_program_has_separate_backward(const rp_program *program)
{
    if (program->forward_count == 0) {
        return true; /* all fused */
    }
    for (uint32_t i = 0; i < program->forward_count; i++) {
        if (program->forward_chain[i] == program->backward_chain[0]) {
            return false;
        }
    }
    return true;
}

bool rp_program_has(const rp_program *program, bool (*is)(rp_op_kind kind))
{
    bool wanted[RP_OP_KIND_COUNT];
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        wanted[kind] = is((rp_op_kind)kind);
    }
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (wanted[program->ops[i].kind]) {
            return true;
        }
    }
    return false;
}

bool rp_program_has_layer_grain(const rp_program *program)
{
    for (uint32_t i = 0; i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        bool forward = rp_op_kind_is_forward(op->kind) || rp_op_kind_is_recompute(op->kind);
        if (forward && rp_op_layer(op) != 0) {
            return true;
        }
    }
    return false;
}

rp_status rp_program_create(rp_program **program_out)
{
    *program_out = NULL;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_program *program = NULL;
    rp_status status = rp_arena_alloc(arena, 1, sizeof *program, &program);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    program->arena = arena;
    program->schedule = "";
    *program_out = program;
    return RP_OK;
}

void rp_program_destroy(rp_program *program)
{
    if (program != NULL) {
        rp_arena_destroy(program->arena);
    }
}

static uint64_t hash_structure(const rp_program *program, uint64_t hash)
{
    for (uint32_t i = 0; i < program->stage_count; i++) {
        hash = rp_hash_add(hash, program->stages[i].layer_begin);
        hash = rp_hash_add(hash, program->stages[i].layer_end);
        hash = rp_hash_add(hash, program->stages[i].roles);
    }
    for (uint32_t i = 0; i < program->forward_count; i++) {
        hash = rp_hash_add(hash, program->forward_chain[i]);
    }
    for (uint32_t i = 0; i < program->backward_count; i++) {
        hash = rp_hash_add(hash, program->backward_chain[i]);
    }
    for (uint32_t i = 0; i < program->queue_count; i++) {
        hash = rp_hash_add(hash, program->queues[i].op_end - program->queues[i].op_begin);
        hash = rp_hash_add(hash, (uint64_t)program->queues[i].gpu << 16 | program->queues[i].kind);
    }
    return hash;
}

uint64_t rp_program_hash(const rp_program *program)
{
    uint64_t hash = rp_traits_hash(&program->traits, RP_HASH_SEED);
    const uint64_t header[] = {
        program->gpu_count,   program->microbatch_count, program->iteration_count,
        program->layer_count, program->recompute,        program->asynchronous,
        program->stage_count, program->forward_count,    program->backward_count,
        program->queue_count, program->op_count,         program->wait_count,
        program->buffer_count};
    for (size_t i = 0; i < sizeof header / sizeof header[0]; i++) {
        hash = rp_hash_add(hash, header[i]);
    }
    hash = hash_structure(program, hash);
    for (uint32_t i = 0; i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        hash = rp_hash_add(hash, (uint64_t)op->microbatch << 32 | op->wait_begin);
        hash = rp_hash_add(hash, (uint64_t)op->part << 48 | (uint64_t)op->stage << 32 |
                                     (uint64_t)op->iteration << 16 | (uint64_t)op->kind << 8 |
                                     op->flags);
    }
    for (uint32_t i = 0; i < program->wait_count; i++) {
        hash = rp_hash_add(hash, program->waits[i]);
    }
    for (uint32_t i = 0; program->op_bytes != NULL && i < program->op_count; i++) {
        hash = rp_hash_add(hash, program->op_bytes[i]);
    }
    hash = rp_hash_add(hash, program->op_bytes != NULL ? program->dtype : 0);
    for (uint32_t i = 0; program->sequences != NULL && i < program->microbatch_count; i++) {
        hash = rp_hash_add(hash, program->sequences[i]);
    }
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const rp_buffer *buffer = &program->buffers[i];
        hash = rp_hash_add(hash, buffer->bytes);
        hash = rp_hash_add(hash, (uint64_t)buffer->alloc_op << 32 | buffer->free_op);
        hash = rp_hash_add(hash, (uint64_t)buffer->place << 16 | buffer->kind);
    }
    return hash;
}

uint32_t rp_sharding_kept_from(const rp_sharding *sharding, rp_recompute recompute,
                               const uint64_t *weight_bytes, uint32_t layers,
                               uint32_t element_bytes)
{
    uint32_t first = layers + 2;
    uint64_t used = 0;
    while (first > 0 && used < sharding->reuse_distance) {
        first--;
        uint32_t uses = first <= layers && rp_recompute_has_ops(recompute) ? 3 : 2;
        used += uses * (weight_bytes[first] / element_bytes);
    }
    return first;
}

uint32_t rp_program_stage_reduces(const rp_program *p, const rp_sharding *sharding, uint32_t stage,
                                  bool backward, rp_recompute recompute)
{
    const rp_stage *s = &p->stages[stage];
    bool first = p->forward_chain[0] == stage;
    bool head = (s->roles & RP_STAGE_HEAD) != 0;
    uint32_t of_layers =
        (s->layer_end - s->layer_begin) * rp_sharding_reduces(sharding, backward, recompute);
    return of_layers + (backward ? (head ? 1 : 0) : (first ? 1 : 0));
}

uint32_t rp_program_op_reduces(const rp_program *p, uint32_t index)
{
    const rp_op *op = &p->ops[index];
    bool cuts = rp_op_kind_passes(op->kind) > 1 && rp_cuts_layers(&p->traits);
    if (!cuts || op->part != 0 || op->wait_begin == p->ops[index + 1].wait_begin) {
        return rp_op_repeat(op);
    }
    const rp_op *pass = &p->ops[rp_wait_op(p->waits[op->wait_begin])];
    uint32_t count =
        rp_program_stage_reduces(p, &p->traits.sharding, op->stage,
                                 rp_op_kind_is_backward((rp_op_kind)pass->kind), p->recompute);
    return count != 0 ? count : 1;
}
