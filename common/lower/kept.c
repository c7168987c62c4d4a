/* What a forward saves for its backward: the input of a recompute, or a tape.
 *
 * Offloaded activations go to pinned host memory when the forward of their layers (or stage, at
 * grain stage) is over, and come back for its backward, each direction on a queue of its own. At
 * most two pieces are on their way: the forward of a third waits for the first's download, as in
 * Transformer Engine's double buffering, and an upload waits for the second backward before it that
 * had an upload. It begins no earlier than the unit before its own. What is needed at once does not
 * leave: the last layer's (or the stage's), if the backward directly follows. Token ids and the
 * head's tape stay, too. */
#include "common/lower/lower_internal.h"

static const rp_op *unit_op(const rp_lowering *l, const rp_lower_unit *unit)
{
    return &l->schedule->ops[unit->last];
}

static size_t backward_index(const rp_lowering *l, const rp_op *op)
{
    const rp_producers *p = &l->producers;
    return rp_producers_backward_index(p, op->iteration, p->backward_position[op->stage],
                                       op->microbatch);
}

static rp_lower_unit *backward_of(const rp_lowering *l, const rp_op *op)
{
    return &l->units[l->unit_of[l->producers.backward_at[backward_index(l, op)]]];
}

static rp_lower_unit *forward_of(const rp_lowering *l, const rp_op *op)
{
    const rp_producers *p = &l->producers;
    size_t index = rp_producers_forward_index(p, op->iteration, p->forward_position[op->stage],
                                              op->microbatch);
    return &l->units[l->unit_of[p->forward_at[index]]];
}

rp_handle rp_lower_release(const rp_lowering *l, const rp_op *op, uint32_t part)
{
    const uint32_t *weight_at = l->producers.weight_at;
    const rp_lower_unit *backward = backward_of(l, op);
    size_t index = backward_index(l, op);
    if (weight_at != NULL && weight_at[index] != RP_NO_OP) {
        return l->units[l->unit_of[weight_at[index]]].compute_last;
    }
    return part == RP_LOWER_WHOLE ? backward->compute_last
                                  : backward->parts[backward->part_count - 1 - part].last;
}

/* ---- trips ----------------------------------------------------------------------------------- */

static bool is_forward(const rp_lowering *l, const rp_lower_unit *unit)
{
    return rp_op_kind_is_forward(unit_op(l, unit)->kind);
}

static rp_lower_trip *trip_of(const rp_lowering *l, const rp_lower_unit *forward, uint32_t part)
{
    return &l->trips[l->trip_of[forward - l->units] + (part == RP_LOWER_WHOLE ? 0 : part)];
}

rp_handle rp_lower_kept_until(const rp_lowering *l, const rp_lower_unit *forward, uint32_t part)
{
    rp_handle down = l->trips != NULL ? trip_of(l, forward, part)->down : RP_NO_HANDLE;
    return down != RP_NO_HANDLE ? down : rp_lower_release(l, unit_op(l, forward), part);
}

/* Parts that leave one by one; 0: the unit leaves as a whole, as it always does in data-parallel
 * systems, whose stages are layers. */
static uint32_t part_count(const rp_lowering *l, const rp_lower_unit *unit)
{
    return l->sharded != NULL ? 0 : unit->part_count;
}

/* Bytes per sequence of what the forward of layers [begin, end) saves; a recompute starts from the
 * input of the first of them, in data-parallel systems at grain layer from that of each. */
static uint64_t saved_bytes(const rp_lowering *l, uint32_t stage, uint32_t begin, uint32_t end)
{
    const rp_sizes *sizes = &l->config->sizes;
    bool from_ids = begin <= 1 && rp_lower_from_ids(l, stage);
    uint64_t bytes = from_ids ? rp_lower_at(sizes->tape_bytes, 0) : 0;
    if (rp_recompute_has_ops(l->schedule->recompute)) {
        uint64_t inputs = l->sharded != NULL ? (l->layers ? end - begin : 1) : from_ids ? 0 : 1;
        return inputs * sizes->boundary_bytes;
    }
    for (uint32_t layer = begin; layer < end; layer++) {
        bytes += rp_lower_at(sizes->tape_bytes, layer) - rp_lower_at(sizes->rebuilt_bytes, layer);
    }
    return bytes;
}

/* Bytes per sequence that leave the GPU after a forward, or a part of it. */
static uint64_t leaving_bytes(const rp_lowering *l, const rp_lower_unit *unit, uint32_t part)
{
    uint32_t id = unit_op(l, unit)->stage;
    const rp_stage *stage = &l->schedule->stages[id];
    uint32_t begin = stage->layer_begin + 1 + (part == RP_LOWER_WHOLE ? 0 : part);
    uint32_t end = part == RP_LOWER_WHOLE ? stage->layer_end + 1 : begin + 1;
    bool follows = backward_of(l, unit_op(l, unit)) == unit + 1;
    if (begin > stage->layer_end || (follows && end > stage->layer_end)) {
        return 0; /* the head, or what the next op needs */
    }
    return saved_bytes(l, id, begin, end);
}

/* Pieces that are on their way on a GPU. */
typedef struct traffic {
    rp_lowering *l;
    uint32_t gpu;
    rp_handle downs[2]; /* the last two downloads, oldest first */
    rp_handle users[2]; /* the last ops of the last two backwards with uploads, oldest first */
} traffic;

static rp_status add(const traffic *t, rp_op_kind kind, const rp_lower_unit *unit, uint32_t part,
                     uint64_t bytes, rp_handle *handle_out)
{
    rp_lowering *l = t->l;
    const rp_op *like = unit_op(l, unit);
    uint32_t layer = l->schedule->stages[like->stage].layer_begin + 1 + part;
    rp_op op = {.microbatch = like->microbatch,
                .stage = like->stage,
                .iteration = like->iteration,
                .part = part == RP_LOWER_WHOLE ? 0 : (uint16_t)layer,
                .kind = (uint8_t)kind};
    bool up = rp_op_kinds[kind].way == RP_WAY_UP;
    return rp_assembly_add(l->assembly, l->saved_queues + 2 * t->gpu + (up ? 1 : 0), &op, bytes,
                           handle_out);
}

static rp_status add_down(traffic *t, const rp_lower_unit *unit, uint32_t part)
{
    rp_lowering *l = t->l;
    rp_lower_trip *trip = trip_of(l, unit, part);
    bool whole = part == RP_LOWER_WHOLE;
    *trip = (rp_lower_trip){RP_NO_HANDLE, RP_NO_HANDLE, 0};
    trip->bytes =
        rp_lower_scaled(leaving_bytes(l, unit, part), l->sequences[unit_op(l, unit)->microbatch]);
    if (trip->bytes == 0) {
        return RP_OK;
    }
    rp_handle first = whole ? unit->compute_first : unit->parts[part].first;
    rp_handle last = whole ? unit->compute_last : unit->parts[part].last;
    RP_TRY(add(t, RP_OP_DOWNLOAD_SAVED, unit, part, trip->bytes, &trip->down));
    RP_TRY(rp_assembly_wait(l->assembly, trip->down, last, false));
    RP_TRY(rp_assembly_wait(l->assembly, first, t->downs[0], true));
    t->downs[0] = t->downs[1];
    t->downs[1] = trip->down;
    return RP_OK;
}

/* @param before the second unit before, or NULL */
static rp_status add_up(traffic *t, const rp_lower_unit *unit, uint32_t part,
                        const rp_lower_unit *before)
{
    rp_lowering *l = t->l;
    bool whole = part == RP_LOWER_WHOLE;
    uint32_t of_forward = whole ? part : unit->part_count - 1 - part;
    rp_lower_trip *trip = trip_of(l, forward_of(l, unit_op(l, unit)), of_forward);
    if (trip->down == RP_NO_HANDLE) {
        return RP_OK;
    }
    rp_handle first = whole ? unit->compute_first : unit->parts[part].first;
    RP_TRY(add(t, RP_OP_UPLOAD_SAVED, unit, of_forward, trip->bytes, &trip->up));
    RP_TRY(rp_assembly_wait(l->assembly, trip->up, trip->down, false));
    RP_TRY(rp_assembly_wait(l->assembly, trip->up, t->users[0], true));
    RP_TRY(before == NULL ? RP_OK
                          : rp_assembly_wait(l->assembly, trip->up, before->compute_last, true));
    RP_TRY(rp_assembly_wait(l->assembly, first, trip->up, false));
    t->users[0] = t->users[1];
    t->users[1] = whole ? unit->compute_last : unit->parts[part].last;
    return RP_OK;
}

static rp_status add_unit(traffic *t, const rp_lower_unit *unit, const rp_lower_unit *before)
{
    bool forward = is_forward(t->l, unit);
    uint32_t parts = part_count(t->l, unit);
    for (uint32_t i = 0; i < (parts != 0 ? parts : 1); i++) {
        uint32_t part = parts != 0 ? i : RP_LOWER_WHOLE;
        RP_TRY(forward ? add_down(t, unit, part) : add_up(t, unit, part, before));
    }
    return RP_OK;
}

rp_status rp_lower_add_trips(rp_lowering *l)
{
    if (!l->config->offload_activations) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(l->arena, l->unit_count, sizeof *l->trip_of, &l->trip_of));
    for (uint32_t u = 0; u < l->unit_count; u++) {
        uint32_t parts = part_count(l, &l->units[u]);
        l->trip_of[u] = l->trip_count;
        l->trip_count += !is_forward(l, &l->units[u]) ? 0 : parts != 0 ? parts : 1;
    }
    RP_TRY(rp_arena_alloc(l->arena, l->trip_count, sizeof *l->trips, &l->trips));
    for (uint32_t gpu = 0; gpu < l->schedule->gpu_count; gpu++) {
        traffic t = {l, gpu, {RP_NO_HANDLE, RP_NO_HANDLE}, {RP_NO_HANDLE, RP_NO_HANDLE}};
        uint32_t begin = l->job_begin[gpu]; /* each unit is a job */
        for (uint32_t k = begin; k < l->job_begin[gpu + 1]; k++) {
            const rp_lower_unit *unit = &l->units[l->jobs[k].first_unit];
            if (!rp_lower_is_weight(l, unit)) {
                RP_TRY(add_unit(&t, unit, k - begin >= 2 ? unit - 2 : NULL));
            }
        }
    }
    return RP_OK;
}

void rp_lower_put_trips(const rp_lowering *l, rp_program *program)
{
    bool tapes = !rp_recompute_has_ops(l->schedule->recompute);
    rp_buffer_kind kind = tapes ? RP_BUFFER_TAPE : RP_BUFFER_ACTIVATION;
    const rp_program *p = l->schedule;
    uint32_t gpus = rp_layout_gpus(&p->traits.layout) * (rp_program_ranks(p) / p->gpu_count);
    for (uint32_t u = 0; l->trips != NULL && u < l->unit_count; u++) {
        const rp_lower_unit *unit = &l->units[u];
        uint32_t parts = part_count(l, unit);
        uint32_t count = !is_forward(l, unit) ? 0 : parts != 0 ? parts : 1;
        for (uint32_t i = 0; i < count; i++) {
            const rp_lower_trip *trip = &l->trips[l->trip_of[u] + i];
            uint32_t part = parts != 0 ? i : RP_LOWER_WHOLE;
            rp_lower_put(l, program, kind, RP_PLACE_HOST, trip->bytes * gpus, trip->down, trip->up);
            rp_lower_put(l, program, kind, l->jobs[unit->job].gpu, trip->bytes, trip->up,
                         rp_lower_release(l, unit_op(l, unit), part));
        }
    }
}
