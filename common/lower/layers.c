/* Recompute grain layer: units that go layer by layer, and the transfers of layer inputs.
 *
 * A forward runs its layers in turn; with weights in host memory the input of each layer goes down
 * while the layer runs (the first layer's input has come from there). A backward goes down from the
 * head or the last layer: input up, recompute, backward; the incoming gradient comes up before the
 * first input (executor.md 1.3). The embedding goes with the first layer and is recomputed from the
 * token ids; a pipeline's head is not recomputed. Fused stages, which have just run forward, and
 * weight parts of backwards stay whole.
 *
 * At any grain the gradients of a unit may be reduced in buckets while it runs: its backward, or
 * weight part, then descends layer by layer behind the whole recompute. */
#include "common/lower/lower_internal.h"

static const rp_op *unit_op(const rp_lowering *l, const rp_lower_unit *unit)
{
    return &l->schedule->ops[unit->last];
}

static const rp_stage *stage_of(const rp_lowering *l, const rp_lower_unit *unit)
{
    return &l->schedule->stages[unit_op(l, unit)->stage];
}

static bool is_pipeline(const rp_lowering *l, const rp_lower_unit *unit)
{
    return l->producers.forward_position[unit_op(l, unit)->stage] != RP_NO_OP;
}

static bool is_forward(const rp_lowering *l, const rp_lower_unit *unit)
{
    return rp_op_kind_is_forward(unit_op(l, unit)->kind);
}

static uint16_t head_layer(const rp_lowering *l)
{
    return (uint16_t)(l->config->sizes.layers + 1);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Number of ops of a layer each into which a unit's stage can be divided. */
static uint32_t layers_of(const rp_lowering *l, const rp_lower_unit *unit)
{
    const rp_stage *stage = stage_of(l, unit);
    return stage->layer_end - stage->layer_begin + ((stage->roles & RP_STAGE_HEAD) != 0 ? 1 : 0);
}

static uint32_t count_parts(const rp_lowering *l, const rp_lower_unit *unit)
{
    bool kept = !rp_recompute_has_ops(l->schedule->recompute) && !rp_lower_is_weight(l, unit);
    if (!l->layers || !(is_forward(l, unit) || rp_lower_recomputes(l, unit) || kept)) {
        return 0;
    }
    uint32_t parts = layers_of(l, unit);
    return parts > 1 ? parts : 0;
}

/* Lists the layers: those of forwards ascend, those of backwards descend. */
static rp_status list_layers(rp_lowering *l, const rp_lower_unit *unit, uint32_t count,
                             rp_lower_part **parts_out)
{
    const rp_stage *stage = stage_of(l, unit);
    RP_TRY(rp_arena_alloc(l->arena, count, sizeof **parts_out, parts_out));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = is_forward(l, unit) ? i : count - 1 - i;
        uint32_t layer = stage->layer_begin + 1 + place;
        layer = layer > stage->layer_end ? head_layer(l) : layer;
        (*parts_out)[i] = (rp_lower_part){(uint16_t)layer, RP_NO_HANDLE, RP_NO_HANDLE, RP_NO_HANDLE,
                                          RP_NO_HANDLE};
    }
    return RP_OK;
}

rp_status rp_lower_find_parts(rp_lowering *l, rp_lower_unit *unit)
{
    unit->part_count = count_parts(l, unit);
    RP_TRY(list_layers(l, unit, unit->part_count, &unit->parts));
    uint32_t layers = layers_of(l, unit);
    bool splits = unit->part_count == 0 && layers > 1 && rp_lower_is_split(l, unit);
    unit->split_count = splits ? layers : 0;
    return list_layers(l, unit, unit->split_count, &unit->splits);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static rp_status add_op(rp_lowering *l, uint32_t queue, const rp_lower_unit *unit, rp_op_kind kind,
                        uint16_t layer, uint8_t flags, uint64_t bytes, rp_handle *handle_out)
{
    rp_op op = *unit_op(l, unit);
    op.kind = (uint8_t)kind;
    op.part = layer;
    op.flags = flags;
    return rp_assembly_add(l->assembly, queue, &op, bytes, handle_out);
}

static rp_status add_part(rp_lowering *l, uint32_t queue, rp_lower_unit *unit, rp_lower_part *part)
{
    rp_op_kind kind = (rp_op_kind)unit_op(l, unit)->kind;
    bool head = part->layer == head_layer(l);
    bool alone = is_forward(l, unit) || (head && is_pipeline(l, unit)) ||
                 !rp_recompute_has_ops(l->schedule->recompute);
    if (!alone) {
        RP_TRY(add_op(l, queue, unit, head ? RP_OP_FORWARD : RP_OP_RECOMPUTE, part->layer,
                      RP_OP_JOIN, 0, &part->first));
        unit->forward = head ? part->first : unit->forward;
    }
    RP_TRY(add_op(l, queue, unit, kind, part->layer, 0, 0, &part->last));
    part->first = alone ? part->last : part->first;
    unit->forward = is_forward(l, unit) ? part->last : unit->forward;
    return RP_OK;
}

static rp_status add_whole(rp_lowering *l, uint32_t queue, rp_lower_unit *unit)
{
    uint32_t end = unit->split_count != 0 ? unit->last : unit->last + 1;
    for (uint32_t i = unit->first; i < end; i++) {
        rp_op op = l->schedule->ops[i];
        rp_handle handle;
        op.flags &= RP_OP_JOIN; /* there is a single compute queue: only transfers overlap */
        RP_TRY(rp_assembly_add(l->assembly, queue, &op, 0, &handle));
        unit->compute_first = i == unit->first ? handle : unit->compute_first;
        unit->forward = rp_op_kind_is_forward(op.kind) ? handle : unit->forward;
        unit->compute_last = handle;
    }
    for (uint32_t i = 0; i < unit->split_count; i++) {
        rp_lower_part *part = &unit->splits[i];
        rp_op_kind kind = (rp_op_kind)unit_op(l, unit)->kind;
        RP_TRY(add_op(l, queue, unit, kind, part->layer, 0, 0, &part->last));
        unit->compute_first =
            i == 0 && unit->first == unit->last ? part->last : unit->compute_first;
        unit->compute_last = part->last;
    }
    return RP_OK;
}

rp_status rp_lower_add_compute(rp_lowering *l, uint32_t queue, rp_lower_unit *unit)
{
    if (unit->part_count == 0) {
        return add_whole(l, queue, unit);
    }
    for (uint32_t i = 0; i < unit->part_count; i++) {
        RP_TRY(add_part(l, queue, unit, &unit->parts[i]));
    }
    unit->compute_first = unit->parts[0].first;
    unit->compute_last = unit->parts[unit->part_count - 1].last;
    return RP_OK;
}

static uint32_t queue_of(const rp_lowering *l, const rp_lower_unit *unit, uint32_t queue)
{
    return l->jobs[unit->job].gpu * RP_LOWER_QUEUES_PER_GPU + queue;
}

rp_status rp_lower_add_layer_uploads(rp_lowering *l, rp_lower_unit *unit)
{
    const rp_sizes *sizes = &l->config->sizes;
    uint64_t sequences = l->sequences[unit_op(l, unit)->microbatch];
    for (uint32_t i = 0; i < unit->part_count; i++) {
        rp_lower_part *part = &unit->parts[i];
        bool ids = part->layer == 1 && rp_lower_from_ids(l, unit_op(l, unit)->stage);
        uint64_t bytes = ids ? sizes->input_bytes : sizes->boundary_bytes;
        bytes += part->layer == head_layer(l) ? sizes->input_bytes : 0; /* labels */
        RP_TRY(add_op(l, queue_of(l, unit, RP_LOWER_UPLOAD), unit, RP_OP_UPLOAD_ACT, part->layer, 0,
                      bytes * sequences, &part->up));
    }
    return RP_OK;
}

/* @return whether a forward downloads the embedding's output: if the last backward stage has only
 * the embedding, the stage before it begins with that output. */
static bool downloads_embedding(const rp_lowering *l, const rp_lower_unit *unit)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    bool found = false;
    rp_lower_layers(l, unit_op(l, unit)->stage, false, &begin, &end);
    for (uint32_t j = 0; l->separate && begin == 0 && j < l->schedule->backward_count; j++) {
        uint32_t stage = l->schedule->backward_chain[j];
        uint32_t first = 0;
        rp_lower_layers(l, stage, true, &first, &end);
        found |= first == 1 && rp_lower_begins_inside(l, stage, unit_op(l, unit)->stage);
    }
    return found;
}

rp_status rp_lower_add_layer_downloads(rp_lowering *l, rp_lower_unit *unit)
{
    const rp_program *p = l->schedule;
    const rp_op *op = unit_op(l, unit);
    uint64_t bytes = l->config->sizes.boundary_bytes * l->sequences[op->microbatch];
    for (uint32_t i = downloads_embedding(l, unit) ? 0 : 1; i < unit->part_count; i++) {
        rp_lower_part *part = &unit->parts[i];
        RP_TRY(add_op(l, queue_of(l, unit, RP_LOWER_DOWNLOAD), unit, RP_OP_DOWNLOAD_ACT,
                      part->layer, 0, bytes, &part->down));
        unit->down_last = part->down;
    }
    for (uint32_t j = 0; l->separate && j < p->backward_count; j++) { /* stages beginning inside */
        if (rp_lower_begins_inside(l, p->backward_chain[j], op->stage)) {
            uint32_t layer = p->stages[p->backward_chain[j]].layer_begin;
            l->saved[rp_lower_saved_index(l, op->iteration, j, op->microbatch)] =
                unit->parts[layer - stage_of(l, unit)->layer_begin].down;
        }
    }
    return RP_OK;
}

/* ---- waits ----------------------------------------------------------------------------------- */

static rp_status wait(rp_lowering *l, rp_handle op, rp_handle target, bool control)
{
    return rp_assembly_wait(l->assembly, op, target, control);
}

static const rp_lower_unit *forward_at(const rp_lowering *l, const rp_op *op, uint32_t position)
{
    return &l->units[l->unit_of[l->producers.forward_at[rp_producers_forward_index(
        &l->producers, op->iteration, position, op->microbatch)]]];
}

rp_handle rp_lower_layer_input(const rp_lowering *l, const rp_lower_unit *unit, uint16_t layer)
{
    const rp_program *p = l->schedule;
    const rp_op *op = unit_op(l, unit);
    uint32_t own = l->producers.forward_position[op->stage];
    uint32_t before = layer == head_layer(l) ? l->config->sizes.layers : layer - 1u;
    if (before == 0 && own == RP_NO_OP) { /* token ids, or the embedding's output */
        return rp_lower_saved_input(l, op, l->producers.backward_position[op->stage]);
    }
    if (layer == head_layer(l) && own == RP_NO_OP) { /* stages without layers may come last */
        return forward_at(l, op, p->forward_count - 1)->down_out;
    }
    for (uint32_t s = own == RP_NO_OP ? 0 : own; s < p->forward_count; s++) {
        const rp_stage *from = &p->stages[p->forward_chain[s]];
        const rp_lower_unit *forward = forward_at(l, op, s);
        if (before > from->layer_begin && before - from->layer_begin < forward->part_count) {
            return forward->parts[before - from->layer_begin].down;
        }
        if (own != RP_NO_OP) {
            break; /* the input of the stage's own forward */
        }
        if (before == from->layer_end && before > from->layer_begin) {
            return forward->down_out;
        }
    }
    return own != RP_NO_OP && own != 0 ? forward_at(l, op, own - 1)->down_out : RP_NO_HANDLE;
}

rp_status rp_lower_connect_layers(rp_lowering *l, const rp_lower_unit *unit)
{
    for (uint32_t i = 0; i < unit->part_count; i++) {
        const rp_lower_part *part = &unit->parts[i];
        if (part->up != RP_NO_HANDLE) {
            RP_TRY(wait(l, part->up, rp_lower_layer_input(l, unit, part->layer), false));
            RP_TRY(wait(l, part->first, part->up, false));
        }
        if (part->down != RP_NO_HANDLE) {
            RP_TRY(wait(l, part->down, unit->parts[i == 0 ? 0 : i - 1].last, false));
        }
    }
    return RP_OK;
}

/* ---- ops in flight --------------------------------------------------------------------------- */

static void issue_upload(rp_lower_flight *flight)
{
    flight->before_upload = flight->compute;
}

static void issue_download(rp_handle down, rp_lower_flight *flight)
{
    if (down != RP_NO_HANDLE && down != flight->down) {
        flight->before_down = flight->down;
        flight->down = down;
    }
}

void rp_lower_issue(const rp_lower_unit *unit, rp_lower_flight *flight)
{
    if (unit->up_act != RP_NO_HANDLE || unit->up_grad != RP_NO_HANDLE) {
        issue_upload(flight);
    }
    flight->compute = unit->compute_last;
    issue_download(unit->down_last, flight);
}

rp_status rp_lower_issue_layers(rp_lowering *l, const rp_lower_unit *unit, rp_lower_flight *flight)
{
    rp_handle boundary = unit->up_act != RP_NO_HANDLE ? unit->up_act : unit->up_grad;
    if (boundary != RP_NO_HANDLE) {
        RP_TRY(unit->received ? RP_OK : wait(l, boundary, flight->before_upload, true));
        issue_upload(flight);
    }
    for (uint32_t i = 0; i < unit->part_count; i++) {
        const rp_lower_part *part = &unit->parts[i];
        if (part->up != RP_NO_HANDLE) {
            RP_TRY(wait(l, part->up, flight->before_upload, true));
            issue_upload(flight);
        }
        if (i != 0) {
            issue_download(part->down, flight);
        }
        RP_TRY(wait(l, part->first, flight->before_down, true));
        flight->compute = part->last;
        if (i == 0) { /* the embedding's output, which this part computes */
            issue_download(part->down, flight);
        }
    }
    issue_download(unit->down_out, flight);
    return RP_OK;
}
