/* Turns the orders of a schedule into a program: ops, recompute, waits, buffers, iterations.
 *
 * Two passes over the ops in queue order. In the first the schedule emits ops, and the builder
 * notes the position of each (iteration, stage, microbatch); the second looks up the producers and
 * writes the waits. All sizes are known before anything is allocated. */
#include "common/schedule/build.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/schedule/schedule_type.h"

#include <inttypes.h>
#include <string.h>

#define NOWHERE UINT32_MAX

/* Ops at the beginning of a stage's backward unit. */
enum {
    UNIT_RECOMPUTE = 1,
    UNIT_FORWARD = 2,
};

struct rp_emitter {
    rp_program *program;
    uint32_t count; /* ops emitted so far */
    uint32_t capacity;
    bool overflow; /* the schedule emitted more ops than its rule allows */
    uint16_t iteration;
    uint32_t microbatches;
    uint32_t backward_base; /* stage of backward position 0 if backward stages are separate */
    uint8_t *unit;          /* [stage] UNIT_* */
    uint32_t *forward_at;   /* [iteration][forward stage][microbatch] -> op */
    uint32_t *backward_at;  /* [iteration][stage - backward_base][microbatch] -> B or I */
    uint32_t *weight_at;    /* as backward_at -> W; NULL if the schedule does not split */
    uint64_t inputs;        /* backwards emitted in two parts */
    uint64_t weights;
    uint32_t *iteration_begin; /* [queue][iteration + 1] -> first op */
    uint32_t wait_count;
};

static inline size_t forward_index(const rp_emitter *e, uint32_t iteration, uint32_t stage,
                                   uint32_t microbatch)
{
    return ((size_t)iteration * e->program->forward_count + stage) * e->microbatches + microbatch;
}

static inline size_t backward_index(const rp_emitter *e, uint32_t iteration, uint32_t stage,
                                    uint32_t microbatch)
{
    size_t row = (size_t)iteration * e->program->backward_count + (stage - e->backward_base);
    return row * e->microbatches + microbatch;
}

static inline void emit(rp_emitter *e, rp_op_kind kind, uint32_t stage, uint32_t microbatch,
                        uint8_t flags)
{
    if (e->count >= e->capacity) {
        e->overflow = true;
        return;
    }
    e->program->ops[e->count++] = (rp_op){.microbatch = microbatch,
                                          .stage = (uint16_t)stage,
                                          .iteration = e->iteration,
                                          .kind = (uint8_t)kind,
                                          .flags = flags};
}

void rp_emit_iteration(rp_emitter *e, uint32_t iteration)
{
    e->iteration = (uint16_t)iteration;
}

static inline void emit_chained(rp_emitter *e, uint32_t stage, uint32_t microbatch, uint8_t flags)
{
    e->forward_at[forward_index(e, e->iteration, stage, microbatch)] = e->count;
    emit(e, RP_OP_FORWARD, stage, microbatch, flags);
}

void rp_emit_forward(rp_emitter *e, uint32_t stage, uint32_t microbatch)
{
    emit_chained(e, stage, microbatch, 0);
}

void rp_emit_overlapped_forward(rp_emitter *e, uint32_t stage, uint32_t microbatch)
{
    emit_chained(e, stage, microbatch, RP_OP_OVERLAP);
}

static inline void emit_unit(rp_emitter *e, rp_op_kind kind, uint32_t stage, uint32_t microbatch)
{
    if ((e->unit[stage] & UNIT_RECOMPUTE) != 0) {
        emit(e, RP_OP_RECOMPUTE, stage, microbatch, RP_OP_JOIN);
    }
    if ((e->unit[stage] & UNIT_FORWARD) != 0) {
        emit(e, RP_OP_FORWARD, stage, microbatch, RP_OP_JOIN);
    }
    e->backward_at[backward_index(e, e->iteration, stage, microbatch)] = e->count;
    emit(e, kind, stage, microbatch, 0);
}

void rp_emit_backward(rp_emitter *e, uint32_t stage, uint32_t microbatch)
{
    emit_unit(e, RP_OP_BACKWARD, stage, microbatch);
}

void rp_emit_backward_input(rp_emitter *e, uint32_t stage, uint32_t microbatch)
{
    e->inputs++;
    emit_unit(e, RP_OP_BACKWARD_INPUT, stage, microbatch);
}

void rp_emit_backward_weight(rp_emitter *e, uint32_t stage, uint32_t microbatch)
{
    e->weights++;
    e->weight_at[backward_index(e, e->iteration, stage, microbatch)] = e->count;
    emit(e, RP_OP_BACKWARD_WEIGHT, stage, microbatch, 0);
}

/* ---- stages and chains ----------------------------------------------------------------------- */

static void set_pipeline_stages(const rp_partition *partition, rp_program *program)
{
    uint32_t layer = 0;
    uint32_t count = partition->forward_count;
    for (uint32_t s = 0; s < count; s++) {
        uint32_t roles = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS;
        roles |= s + 1 == count ? RP_STAGE_HEAD : 0;
        uint32_t end = layer + partition->forward_layers[s];
        program->stages[s] = (rp_stage){layer, end, roles};
        program->forward_chain[s] = (uint16_t)s;
        program->backward_chain[s] = (uint16_t)(count - 1 - s);
        layer = end;
    }
}

/* Sets forward stages, ascending, then backward stages in execution order, the head's first. If the
 * forward stages leave out the layers of the head's stage, that stage is fused: it computes their
 * forward itself and recomputes nothing. */
static void set_separate_stages(const rp_partition *partition, rp_program *program)
{
    uint32_t layer = 0;
    for (uint32_t s = 0; s < partition->forward_count; s++) {
        uint32_t end = layer + partition->forward_layers[s];
        program->stages[s] = (rp_stage){layer, end, RP_STAGE_FORWARD_LAYERS};
        program->forward_chain[s] = (uint16_t)s;
        layer = end;
    }
    bool fused = layer < program->layer_count;
    uint32_t end = program->layer_count;
    for (uint32_t j = 0; j < partition->backward_count; j++) {
        uint32_t begin = end - partition->backward_layers[j];
        uint32_t roles = RP_STAGE_BACKWARD_LAYERS;
        roles |= j == 0 ? RP_STAGE_HEAD : 0;
        roles |= j == 0 && fused ? RP_STAGE_FORWARD_LAYERS : 0;
        uint32_t stage = partition->forward_count + j;
        program->stages[stage] = (rp_stage){begin, end, roles};
        program->backward_chain[j] = (uint16_t)stage;
        end = begin;
    }
}

static rp_status build_stages(const rp_schedule_type *schedule, const rp_schedule_config *config,
                              rp_program *program)
{
    const rp_partition *partition = config->partition;
    bool separate = schedule->separate_backward;
    program->forward_count = partition->forward_count;
    program->backward_count = separate ? partition->backward_count : partition->forward_count;
    program->stage_count = partition->forward_count + (separate ? partition->backward_count : 0);
    rp_arena *arena = program->arena;
    RP_TRY(rp_arena_alloc(arena, program->stage_count, sizeof(rp_stage), &program->stages));
    RP_TRY(
        rp_arena_alloc(arena, program->forward_count, sizeof(uint16_t), &program->forward_chain));
    RP_TRY(
        rp_arena_alloc(arena, program->backward_count, sizeof(uint16_t), &program->backward_chain));
    if (separate) {
        set_separate_stages(partition, program);
    } else {
        set_pipeline_stages(partition, program);
    }
    return RP_OK;
}

static rp_status set_units(const rp_schedule_type *schedule, rp_program *program, rp_arena *scratch,
                           rp_emitter *e)
{
    RP_TRY(rp_arena_alloc(scratch, program->stage_count, 1, &e->unit));
    for (uint32_t j = 0; j < program->backward_count; j++) {
        uint32_t stage = program->backward_chain[j];
        const rp_stage *s = &program->stages[stage];
        bool fused = schedule->separate_backward && (s->roles & RP_STAGE_FORWARD_LAYERS) != 0;
        bool layers = s->layer_end > s->layer_begin;
        if (rp_recompute_has_ops(program->recompute) && layers && !fused) {
            e->unit[stage] |= UNIT_RECOMPUTE;
        }
        if (schedule->separate_backward && (s->roles & RP_STAGE_HEAD) != 0) {
            e->unit[stage] |= UNIT_FORWARD;
        }
    }
    return RP_OK;
}

/* ---- pass 1: ops ----------------------------------------------------------------------------- */

static uint64_t ops_per_microbatch(const rp_emitter *e)
{
    const rp_program *program = e->program;
    uint64_t ops = (uint64_t)program->forward_count + program->backward_count;
    for (uint32_t s = 0; s < program->stage_count; s++) {
        ops += (e->unit[s] & UNIT_RECOMPUTE) != 0 ? 1 : 0;
        ops += (e->unit[s] & UNIT_FORWARD) != 0 ? 1 : 0;
    }
    return ops;
}

/* Iterations of a synchronous run are separated by an OPTIMIZER op on the host. */
static uint32_t barrier_count(const rp_program *program)
{
    return program->asynchronous ? 0 : program->iteration_count - 1;
}

static rp_status allocate(rp_emitter *e, bool splits, rp_arena *scratch, rp_reason *reason)
{
    rp_program *program = e->program;
    uint64_t units = (uint64_t)program->microbatch_count * program->iteration_count;
    uint64_t barriers = barrier_count(program);
    uint64_t weights = splits ? program->backward_count : 0;
    uint64_t ops = units * (ops_per_microbatch(e) + weights) + barriers;
    /* Every forward waits for at most 1 op, every backward for 2, a barrier for all GPUs, and all
     * GPUs for the barrier. Pages that are not touched cost nothing. */
    uint64_t waits = units * (program->forward_count + 2 * (uint64_t)program->backward_count) +
                     barriers * 2 * program->gpu_count;
    if (ops > RP_MAX_OPS || waits > UINT32_MAX) {
        return rp_refuse(reason, RP_USAGE,
                         "the program would have %" PRIu64 " ops and up to %" PRIu64
                         " waits; valid are at most %u ops: use fewer microbatches, stages or "
                         "iterations",
                         ops, waits, RP_MAX_OPS);
    }
    e->capacity = (uint32_t)ops;
    program->queue_count = program->gpu_count + (barriers != 0 ? 1 : 0);
    rp_arena *arena = program->arena;
    RP_TRY(rp_arena_alloc(arena, program->queue_count, sizeof(rp_queue), &program->queues));
    RP_TRY(rp_arena_alloc_raw(arena, ops + 1, sizeof(rp_op), &program->ops));
    RP_TRY(rp_arena_alloc_raw(arena, waits, sizeof(rp_wait), &program->waits));
    size_t forwards = (size_t)units * program->forward_count;
    size_t backwards = (size_t)units * program->backward_count;
    RP_TRY(rp_arena_alloc_raw(scratch, forwards, sizeof(uint32_t), &e->forward_at));
    RP_TRY(rp_arena_alloc_raw(scratch, backwards, sizeof(uint32_t), &e->backward_at));
    if (splits) {
        RP_TRY(rp_arena_alloc_raw(scratch, backwards, sizeof(uint32_t), &e->weight_at));
        memset(e->weight_at, 0xff, backwards * sizeof(uint32_t));
    }
    memset(e->forward_at, 0xff, forwards * sizeof(uint32_t));
    memset(e->backward_at, 0xff, backwards * sizeof(uint32_t));
    return rp_arena_alloc(scratch, (size_t)program->gpu_count * (program->iteration_count + 1),
                          sizeof(uint32_t), &e->iteration_begin);
}

static rp_status emit_orders(const rp_schedule_type *schedule, const rp_schedule_config *with_costs,
                             const void *plan, rp_emitter *e)
{
    rp_program *program = e->program;
    rp_schedule_config without = *with_costs;
    const rp_schedule_config *config = schedule->prepare != NULL ? with_costs : &without;
    without.costs = NULL;
    for (uint32_t gpu = 0; gpu < program->gpu_count; gpu++) {
        uint32_t *begins = &e->iteration_begin[(size_t)gpu * (program->iteration_count + 1)];
        rp_queue *queue = &program->queues[gpu];
        *queue = (rp_queue){e->count, 0, (uint16_t)gpu, RP_QUEUE_COMPUTE};
        for (uint32_t iteration = 0; iteration < program->iteration_count; iteration++) {
            begins[iteration] = e->count;
            e->iteration = (uint16_t)iteration;
            schedule->order(config, plan, gpu, iteration, e);
        }
        begins[program->iteration_count] = e->count;
        queue->op_end = e->count;
    }
    uint32_t barriers = barrier_count(program);
    if (barriers != 0) {
        program->queues[program->gpu_count] =
            (rp_queue){e->count, e->count + barriers, 0, RP_QUEUE_OPTIMIZER};
        for (uint32_t iteration = 0; iteration < barriers; iteration++) {
            e->iteration = (uint16_t)iteration;
            emit(e, RP_OP_OPTIMIZER, 0, 0, 0);
        }
    }
    uint64_t units = (uint64_t)program->microbatch_count * program->iteration_count;
    uint64_t expected = units * ops_per_microbatch(e) + e->inputs + barriers;
    if (e->overflow || e->count != expected || e->inputs != e->weights) {
        rp_log_error("schedule %s emitted %s ops than its stages and microbatches have",
                     schedule->name, e->overflow || e->count > expected ? "more" : "fewer");
        return rp_broken();
    }
    program->op_count = e->count;
    return RP_OK;
}

/* ---- pass 2: waits --------------------------------------------------------------------------- */

/* Adds a wait, unless the producer is in the same queue, whose order already covers it. */
static inline void add_wait(rp_emitter *e, const rp_queue *queue, uint32_t producer)
{
    if (producer == NOWHERE || (producer >= queue->op_begin && producer < queue->op_end)) {
        return;
    }
    e->program->waits[e->wait_count++] = producer;
}

static void add_backward_waits(rp_emitter *e, const rp_queue *queue, const rp_op *op)
{
    const rp_program *program = e->program;
    uint32_t position = e->backward_base != 0 || program->stage_count != program->forward_count
                            ? op->stage - e->backward_base
                            : program->backward_count - 1 - op->stage;
    uint32_t first = e->wait_count;
    if (e->backward_base != 0) {
        uint32_t last_forward = program->forward_count - 1;
        add_wait(e, queue,
                 e->forward_at[forward_index(e, op->iteration, last_forward, op->microbatch)]);
    }
    if (position != 0) {
        uint32_t previous = program->backward_chain[position - 1];
        add_wait(e, queue,
                 e->backward_at[backward_index(e, op->iteration, previous, op->microbatch)]);
    }
    rp_wait *waits = program->waits;
    if (e->wait_count - first == 2 && waits[first] > waits[first + 1]) {
        rp_wait swap = waits[first];
        waits[first] = waits[first + 1];
        waits[first + 1] = swap;
    }
}

/* @param first the op begins a unit @param early a recompute may run before the unit's
 * dependencies */
static void add_op_waits(rp_emitter *e, const rp_queue *queue, const rp_op *op, bool in_unit,
                         bool first, bool early)
{
    bool backward = rp_op_kind_goes_back((rp_op_kind)op->kind);
    if (rp_op_kind_is_weight_part(op->kind)) {
        return; /* its input part is in the same queue */
    }
    if (!in_unit && !backward) {
        if (op->stage != 0) {
            add_wait(
                e, queue,
                e->forward_at[forward_index(e, op->iteration, op->stage - 1u, op->microbatch)]);
        }
        return;
    }
    if (early ? backward : first) {
        add_backward_waits(e, queue, op);
    }
}

static void add_barrier_wait(rp_emitter *e, uint32_t gpu, uint32_t number, const rp_op *op)
{
    const rp_program *program = e->program;
    const uint32_t *begins = &e->iteration_begin[(size_t)gpu * (program->iteration_count + 1)];
    if (op->iteration != 0 && begins[op->iteration] == number) {
        uint32_t barrier = program->queues[program->gpu_count].op_begin + op->iteration - 1;
        program->waits[e->wait_count++] = barrier | RP_WAIT_CONTROL;
    }
}

static void build_waits(rp_emitter *e)
{
    rp_program *program = e->program;
    bool early = program->recompute == RP_RECOMPUTE_EARLY;
    bool barriers = barrier_count(program) != 0;
    for (uint32_t gpu = 0; gpu < program->gpu_count; gpu++) {
        const rp_queue *queue = &program->queues[gpu];
        bool in_unit = false; /* the op before is joined to the current op */
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            rp_op *op = &program->ops[i];
            op->wait_begin = e->wait_count;
            bool joins = (op->flags & RP_OP_JOIN) != 0;
            add_op_waits(e, queue, op, in_unit || joins, !in_unit, early);
            if (barriers) {
                add_barrier_wait(e, gpu, i, op);
            }
            in_unit = joins;
        }
    }
}

static void build_barrier_waits(rp_emitter *e)
{
    rp_program *program = e->program;
    if (barrier_count(program) == 0) {
        return;
    }
    const rp_queue *host = &program->queues[program->gpu_count];
    for (uint32_t iteration = 0; iteration + 1 < program->iteration_count; iteration++) {
        program->ops[host->op_begin + iteration].wait_begin = e->wait_count;
        for (uint32_t gpu = 0; gpu < program->gpu_count; gpu++) {
            const uint32_t *begins =
                &e->iteration_begin[(size_t)gpu * (program->iteration_count + 1)];
            if (begins[iteration + 1] > begins[iteration]) {
                program->waits[e->wait_count++] = (begins[iteration + 1] - 1) | RP_WAIT_CONTROL;
            }
        }
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* The forward stage that computes `layer`; the last forward stage for the head's input. */
static uint32_t forward_stage_of(const rp_program *program, uint32_t layer)
{
    for (uint32_t s = 0; s < program->forward_count; s++) {
        const rp_stage *stage = &program->stages[s];
        if (layer >= stage->layer_begin && layer < stage->layer_end) {
            return s;
        }
    }
    return program->forward_count - 1;
}

static bool keeps_input(const rp_stage *stage)
{
    return stage->layer_end > stage->layer_begin || (stage->roles & RP_STAGE_HEAD) != 0;
}

static void add_stage_buffers(rp_emitter *e, uint32_t stage, uint64_t bytes, bool separate)
{
    rp_program *program = e->program;
    uint32_t from =
        separate ? forward_stage_of(program, program->stages[stage].layer_begin) : stage;
    for (uint32_t it = 0; it < program->iteration_count; it++) {
        const uint32_t *alloc = &e->forward_at[forward_index(e, it, from, 0)];
        const uint32_t *backward = &e->backward_at[backward_index(e, it, stage, 0)];
        const uint32_t *weight =
            e->weight_at != NULL ? &e->weight_at[backward_index(e, it, stage, 0)] : NULL;
        const rp_queue *queue = &program->queues[rp_program_queue_of(program, alloc[0])];
        for (uint32_t m = 0; m < program->microbatch_count; m++) {
            if (alloc[m] < queue->op_begin || alloc[m] >= queue->op_end) {
                queue = &program->queues[rp_program_queue_of(program, alloc[m])];
            }
            uint16_t place = separate ? RP_PLACE_HOST : queue->gpu;
            uint32_t release = weight != NULL && weight[m] != NOWHERE ? weight[m] : backward[m];
            program->buffers[program->buffer_count++] = (rp_buffer){.bytes = bytes,
                                                                    .alloc_op = alloc[m],
                                                                    .free_op = release,
                                                                    .place = place,
                                                                    .kind = RP_BUFFER_ACTIVATION};
        }
    }
}

/* Makes a buffer for each backward stage and microbatch: the stage's input, kept from the forward
 * to the backward, or to the weight part of a backward in two parts. A pipeline's stage keeps it on
 * its GPU; separate backward stages run elsewhere, so their inputs go through host memory. */
static rp_status build_buffers(const rp_schedule_config *config, bool separate, rp_emitter *e)
{
    rp_program *program = e->program;
    if (program->forward_count == 0) {
        return RP_OK; /* all stages are fused: no input is kept */
    }
    uint64_t kept = 0;
    for (uint32_t j = 0; j < program->backward_count; j++) {
        kept += keeps_input(&program->stages[program->backward_chain[j]]) ? 1 : 0;
    }
    kept *= (uint64_t)program->microbatch_count * program->iteration_count;
    RP_TRY(rp_arena_alloc_raw(program->arena, kept, sizeof(rp_buffer), &program->buffers));
    for (uint32_t j = 0; j < program->backward_count; j++) {
        uint32_t stage = program->backward_chain[j];
        if (keeps_input(&program->stages[stage])) {
            add_stage_buffers(e, stage, config->boundary_bytes, separate);
        }
    }
    return RP_OK;
}

/* ---- the build ------------------------------------------------------------------------------- */

static rp_status fill(const rp_schedule_type *schedule, const rp_schedule_config *config,
                      rp_arena *scratch, rp_program *program, rp_reason *reason)
{
    RP_TRY(rp_arena_copy_text(program->arena, schedule->name, strlen(schedule->name),
                              &program->schedule));
    program->traits = schedule->traits;
    program->gpu_count = config->gpus;
    program->microbatch_count = config->microbatches;
    program->iteration_count = config->iterations;
    program->layer_count = config->layers;
    program->recompute = config->recompute;
    program->asynchronous = config->asynchronous;
    RP_TRY(build_stages(schedule, config, program));
    rp_emitter e = {.program = program, .microbatches = config->microbatches};
    e.backward_base = schedule->separate_backward ? program->forward_count : 0;
    RP_TRY(set_units(schedule, program, scratch, &e));
    RP_TRY(allocate(&e, schedule->splits_backward, scratch, reason));
    void *plan = NULL;
    if (schedule->prepare != NULL) {
        RP_TRY(schedule->prepare(config, program, scratch, &plan, reason));
    }
    RP_TRY(emit_orders(schedule, config, plan, &e));
    build_waits(&e);
    build_barrier_waits(&e);
    program->wait_count = e.wait_count;
    program->ops[program->op_count] = (rp_op){.wait_begin = e.wait_count};
    return build_buffers(config, schedule->separate_backward, &e);
}

rp_status rp_schedule_build(const rp_schedule_type *schedule, const rp_schedule_config *config,
                            rp_program **program_out, rp_reason *reason)
{
    *program_out = NULL;
    RP_TRY(rp_schedule_check(schedule, config, reason));
    rp_program *program = NULL;
    RP_TRY(rp_program_create(&program));
    rp_arena *scratch = NULL;
    rp_status status = rp_arena_create(&scratch);
    if (status != RP_OK) {
        goto destroy_program;
    }
    status = fill(schedule, config, scratch, program, reason);
    rp_arena_destroy(scratch);
    if (status != RP_OK) {
        goto destroy_program;
    }
    *program_out = program;
    return RP_OK;

destroy_program:
    rp_program_destroy(program);
    return status;
}
