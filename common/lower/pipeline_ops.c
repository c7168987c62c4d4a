/* The lowering's first pass: the ops of every queue. */
#include "common/lower/lower_internal.h"

#include <stdlib.h>

static uint32_t queue_of(const rp_lower_job *job, uint32_t queue)
{
    return job->gpu * RP_LOWER_QUEUES_PER_GPU + queue;
}

static const rp_op *unit_op(const rp_lowering *l, const rp_lower_unit *unit)
{
    return &l->schedule->ops[unit->last];
}

static rp_status add(rp_lowering *l, uint32_t queue, rp_op_kind kind, const rp_op *like,
                     uint64_t bytes, rp_handle *handle_out)
{
    rp_op op = {.microbatch = like->microbatch,
                .stage = like->stage,
                .iteration = like->iteration,
                .kind = (uint8_t)kind};
    return rp_assembly_add(l->assembly, queue, &op, bytes, handle_out);
}

/* ---- parameters ------------------------------------------------------------------------------ */

typedef struct piece_list {
    uint64_t *bytes;
    uint32_t count;
} piece_list;

static uint64_t piece_count(const rp_lowering *l, uint64_t bytes)
{
    return (bytes + l->config->piece_bytes - 1) / l->config->piece_bytes;
}

/* Cuts layers into pieces of nearly equal size (executor.md 1.4). */
static rp_status cut_pieces(rp_lowering *l, const rp_lower_job *job, piece_list *list)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t count = 0;
    rp_lower_layers(l, job->stage, job->backward, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        count += piece_count(l, l->config->sizes.weight_bytes[layer]);
    }
    RP_TRY(rp_arena_alloc(l->arena, count, sizeof(uint64_t), &list->bytes));
    list->count = 0;
    for (uint32_t layer = begin; layer < end; layer++) {
        uint64_t bytes = l->config->sizes.weight_bytes[layer];
        uint64_t pieces = piece_count(l, bytes);
        for (uint64_t i = 0; i < pieces; i++) {
            list->bytes[list->count++] = bytes * (i + 1) / pieces - bytes * i / pieces;
        }
    }
    return RP_OK;
}

static int descending(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

typedef struct bin {
    uint64_t bytes;
    uint32_t number;
} bin;

static int by_bytes(const void *a, const void *b)
{
    const bin *left = a;
    const bin *right = b;
    if (left->bytes != right->bytes) {
        return left->bytes < right->bytes ? -1 : 1;
    }
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Packs the largest piece first, each into the smallest bin (lowest number on ties); bins are
 * sorted ascending. Bin k goes behind the k-th activation upload of the job before. */
static rp_status pack_bins(rp_lowering *l, piece_list *pieces, uint32_t bin_count, bin **bins_out,
                           uint32_t **bin_of_out)
{
    qsort(pieces->bytes, pieces->count, sizeof(uint64_t), descending);
    RP_TRY(rp_arena_alloc(l->arena, bin_count, sizeof(bin), bins_out));
    RP_TRY(rp_arena_alloc(l->arena, pieces->count, sizeof(uint32_t), bin_of_out));
    bin *bins = *bins_out;
    for (uint32_t i = 0; i < bin_count; i++) {
        bins[i].number = i;
    }
    for (uint32_t i = 0; i < pieces->count; i++) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < bin_count; k++) {
            best = bins[k].bytes < bins[best].bytes ? k : best;
        }
        bins[best].bytes += pieces->bytes[i];
        (*bin_of_out)[i] = best;
    }
    qsort(bins, bin_count, sizeof(bin), by_bytes);
    return RP_OK;
}

/* Lists the activation uploads of a job, in the order of their queue. */
static uint32_t list_marks(const rp_lowering *l, const rp_lower_job *job, rp_handle *marks)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->unit_count; i++) {
        const rp_lower_unit *unit = &l->units[job->first_unit + i];
        if (unit->up_act != RP_NO_HANDLE) {
            marks[count++] = unit->up_act;
        }
        if (unit->up_grad != RP_NO_HANDLE) {
            marks[count++] = unit->up_grad;
        }
        for (uint32_t k = 0; job->backward && k < unit->part_count; k++) {
            marks[count++] = unit->parts[k].up;
        }
    }
    return count;
}

static size_t most_marks(const rp_lowering *l, const rp_lower_job *job)
{
    size_t most = 0;
    for (uint32_t i = 0; i < job->unit_count; i++) {
        most += 2 + (size_t)l->units[job->first_unit + i].part_count;
    }
    return most;
}

static rp_status add_pieces(rp_lowering *l, rp_lower_job *job, const rp_lower_job *before)
{
    const rp_op *like = unit_op(l, &l->units[job->first_unit]);
    piece_list pieces = {0};
    RP_TRY(cut_pieces(l, job, &pieces));
    rp_handle *marks = NULL;
    uint32_t mark_count = 0;
    if (before != NULL) {
        RP_TRY(rp_arena_alloc(l->arena, most_marks(l, before), sizeof *marks, &marks));
        mark_count = list_marks(l, before, marks);
    }
    bin *bins = NULL;
    uint32_t *bin_of = NULL;
    uint32_t bin_count = mark_count == 0 ? 1 : mark_count;
    RP_TRY(pack_bins(l, &pieces, bin_count, &bins, &bin_of));
    for (uint32_t k = 0; k < bin_count; k++) {
        for (uint32_t i = 0; i < pieces.count; i++) {
            if (bin_of[i] != bins[k].number) {
                continue;
            }
            rp_handle handle;
            RP_TRY(add(l, queue_of(job, RP_LOWER_PARAMS), RP_OP_UPLOAD_PARAMS, like,
                       pieces.bytes[i], &handle));
            if (mark_count != 0) {
                RP_TRY(rp_assembly_wait(l->assembly, handle, marks[k], true));
            }
            if (job->params_first == RP_NO_HANDLE) {
                job->params_first = handle;
            }
            job->params_last = handle;
        }
    }
    return RP_OK;
}

static uint64_t gradient_bytes(const rp_lowering *l, const rp_lower_job *job)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t bytes = 0;
    rp_lower_layers(l, job->stage, true, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        bytes += l->config->sizes.gradient_bytes[layer];
    }
    return bytes;
}

static rp_status begin_job(rp_lowering *l, rp_lower_job *job, const rp_lower_job *before)
{
    if (!l->offload) {
        return RP_OK;
    }
    RP_TRY(add_pieces(l, job, before));
    if (job->backward && job->call > 0 && !l->schedule->traits.overlapping_rounds) {
        /* the gradients that earlier calls of the step have accumulated */
        const rp_op *like = unit_op(l, &l->units[job->first_unit]);
        RP_TRY(add(l, queue_of(job, RP_LOWER_PARAMS), RP_OP_UPLOAD_PARAM_GRAD, like,
                   gradient_bytes(l, job), &job->param_grads_up));
        job->params_last = job->param_grads_up;
        if (job->params_first == RP_NO_HANDLE) {
            job->params_first = job->param_grads_up;
        }
    }
    return RP_OK;
}

static rp_status end_job(rp_lowering *l, rp_lower_job *job)
{
    if (!l->offload || !job->backward) {
        return RP_OK;
    }
    const rp_op *like = unit_op(l, &l->units[job->first_unit + job->unit_count - 1]);
    return add(l, queue_of(job, RP_LOWER_DOWNLOAD), RP_OP_DOWNLOAD_PARAM_GRAD, like,
               gradient_bytes(l, job), &job->param_grads_down);
}

/* ---- units ----------------------------------------------------------------------------------- */

static uint32_t gpu_of(const rp_lowering *l, uint32_t op)
{
    return rp_program_queue_of(l->schedule, op);
}

/* @return whether the boundary between two chain neighbours of a microbatch crosses the host. */
static bool crosses(const rp_lowering *l, uint32_t from, uint32_t to)
{
    return l->offload || gpu_of(l, from) != gpu_of(l, to);
}

/* @return whether the boundary goes directly from a GPU to another. */
static bool is_direct(const rp_lowering *l, uint32_t from, uint32_t to)
{
    uint32_t group = l->config->peer_gpus;
    const uint32_t *groups = l->config->peer_groups;
    if (l->schedule->traits.placement != RP_PLACEMENT_RESIDENT || group == 0) {
        return false;
    }
    return groups != NULL ? groups[gpu_of(l, from)] == groups[gpu_of(l, to)]
                          : gpu_of(l, from) / group == gpu_of(l, to) / group;
}

static rp_status add_transfer(rp_lowering *l, const rp_lower_job *job, uint32_t queue,
                              rp_op_kind kind, const rp_op *like, uint64_t per_sequence,
                              rp_handle *handle_out)
{
    return add(l, queue_of(job, queue), kind, like, per_sequence * l->sequences[like->microbatch],
               handle_out);
}

static rp_status add_forward_uploads(rp_lowering *l, const rp_lower_job *job, rp_lower_unit *unit)
{
    const rp_op *op = unit_op(l, unit);
    uint32_t position = l->producers.forward_position[op->stage];
    uint64_t bytes = l->config->sizes.input_bytes;
    uint32_t queue = RP_LOWER_UPLOAD;
    if (position != 0) {
        uint32_t from = l->producers.forward_at[rp_producers_forward_index(
            &l->producers, op->iteration, position - 1, op->microbatch)];
        if (!crosses(l, from, unit->last)) {
            return RP_OK;
        }
        unit->received = is_direct(l, from, unit->last);
        bytes = unit->received ? rp_lower_sent_bytes(l) : l->config->sizes.boundary_bytes;
        queue = unit->received ? RP_LOWER_RECEIVE : RP_LOWER_UPLOAD;
    }
    return add_transfer(l, job, queue, unit->received ? RP_OP_RECV : RP_OP_UPLOAD_ACT, op, bytes,
                        &unit->up_act);
}

static rp_status add_backward_uploads(rp_lowering *l, const rp_lower_job *job, rp_lower_unit *unit)
{
    const rp_op *op = unit_op(l, unit);
    uint32_t position = l->producers.backward_position[op->stage];
    uint64_t boundary = l->config->sizes.boundary_bytes;
    uint64_t labels = l->config->sizes.input_bytes;
    if (l->offload && unit->part_count == 0) { /* the stage's saved input, or token ids; the head's
                                                  stage takes labels, too */
        bool from_ids = rp_lower_from_ids(l, op->stage);
        uint64_t bytes = (from_ids ? labels : boundary) + (position == 0 ? labels : 0);
        RP_TRY(add_transfer(l, job, RP_LOWER_UPLOAD, RP_OP_UPLOAD_ACT, op, bytes, &unit->up_act));
    }
    if (position == 0) {
        return RP_OK;
    }
    uint32_t from = l->producers.backward_at[rp_producers_backward_index(
        &l->producers, op->iteration, position - 1, op->microbatch)];
    if (!crosses(l, from, unit->last)) {
        return RP_OK;
    }
    unit->received = is_direct(l, from, unit->last);
    uint32_t queue = unit->received ? RP_LOWER_RECEIVE : RP_LOWER_UPLOAD;
    return add_transfer(l, job, queue, unit->received ? RP_OP_RECV : RP_OP_UPLOAD_GRAD, op,
                        unit->received ? rp_lower_sent_bytes(l) : boundary, &unit->up_grad);
}

/* Adds the transfer of the unit's boundary tensor off the GPU. */
static rp_status add_output(rp_lowering *l, const rp_lower_job *job, rp_lower_unit *unit,
                            rp_op_kind kind)
{
    bool sends = rp_op_kind_sends(kind);
    uint32_t queue = sends ? RP_LOWER_PEER : RP_LOWER_DOWNLOAD;
    uint64_t boundary = l->config->sizes.boundary_bytes;
    RP_TRY(add_transfer(l, job, queue, kind, unit_op(l, unit),
                        sends ? rp_lower_sent_bytes(l) : boundary, &unit->down_out));
    unit->down_last = unit->down_out;
    return RP_OK;
}

/* Adds downloads of the inputs of backward stages that begin inside this forward stage, then of the
 * stage's output. */
static rp_status add_forward_downloads(rp_lowering *l, const rp_lower_job *job, rp_lower_unit *unit)
{
    const rp_program *p = l->schedule;
    const rp_op *op = unit_op(l, unit);
    uint64_t boundary = l->config->sizes.boundary_bytes;
    bool layers = unit->part_count != 0;
    RP_TRY(layers && l->offload ? rp_lower_add_layer_downloads(l, unit) : RP_OK);
    for (uint32_t j = 0; l->separate && !layers && j < p->backward_count; j++) {
        if (rp_lower_begins_inside(l, p->backward_chain[j], op->stage)) {
            RP_TRY(add_transfer(l, job, RP_LOWER_DOWNLOAD, RP_OP_DOWNLOAD_ACT, op, boundary,
                                &unit->down_last));
            l->saved[rp_lower_saved_index(l, op->iteration, j, op->microbatch)] = unit->down_last;
        }
    }
    uint32_t position = l->producers.forward_position[op->stage];
    bool last = position + 1 == p->forward_count;
    bool direct = false;
    if (last && !l->separate) {
        return RP_OK; /* the head is here */
    }
    if (!last) {
        uint32_t to = l->producers.forward_at[rp_producers_forward_index(
            &l->producers, op->iteration, position + 1, op->microbatch)];
        if (!crosses(l, unit->last, to)) {
            return RP_OK;
        }
        direct = is_direct(l, unit->last, to);
    }
    return add_output(l, job, unit, direct ? RP_OP_SEND : RP_OP_DOWNLOAD_ACT);
}

static rp_status add_backward_downloads(rp_lowering *l, const rp_lower_job *job,
                                        rp_lower_unit *unit)
{
    const rp_op *op = unit_op(l, unit);
    uint32_t position = l->producers.backward_position[op->stage];
    if (position + 1 == l->schedule->backward_count) {
        return RP_OK;
    }
    uint32_t to = l->producers.backward_at[rp_producers_backward_index(
        &l->producers, op->iteration, position + 1, op->microbatch)];
    if (!crosses(l, unit->last, to)) {
        return RP_OK;
    }
    bool direct = is_direct(l, unit->last, to);
    return add_output(l, job, unit, direct ? RP_OP_SEND : RP_OP_DOWNLOAD_GRAD);
}

static rp_status add_unit(rp_lowering *l, const rp_lower_job *job, rp_lower_unit *unit)
{
    uint32_t compute = queue_of(job, RP_LOWER_COMPUTE);
    RP_TRY(rp_lower_find_parts(l, unit));
    if (rp_lower_is_weight(l, unit)) {
        return rp_lower_add_compute(l, compute, unit);
    }
    if (job->backward) {
        RP_TRY(add_backward_uploads(l, job, unit));
        RP_TRY(l->offload ? rp_lower_add_layer_uploads(l, unit) : RP_OK);
        RP_TRY(rp_lower_add_compute(l, compute, unit));
        RP_TRY(rp_lower_add_tensor_reduce(l, unit));
        return add_backward_downloads(l, job, unit);
    }
    RP_TRY(add_forward_uploads(l, job, unit));
    RP_TRY(rp_lower_add_compute(l, compute, unit));
    RP_TRY(rp_lower_add_tensor_reduce(l, unit));
    return add_forward_downloads(l, job, unit);
}

/* ---- resident weights ------------------------------------------------------------------------ */

/* Counts the working weights that a GPU trains; a GPU with embedding and tied head trains their
 * table once.
 */
static rp_status set_trained(rp_lowering *l, uint32_t gpu)
{
    const rp_sizes *sizes = &l->config->sizes;
    uint32_t count = sizes->layers + 2;
    bool *here = NULL;
    RP_TRY(rp_arena_alloc(l->arena, count, sizeof(bool), &here));
    for (uint32_t k = l->job_begin[gpu]; k < l->job_begin[gpu + 1]; k++) {
        uint32_t begin = 0;
        uint32_t end = 0;
        rp_lower_layers(l, l->jobs[k].stage, false, &begin, &end);
        for (uint32_t layer = begin; layer < end; layer++) {
            here[layer] = true;
        }
    }
    here[0] = here[0] && !(sizes->tied_head && here[count - 1]);
    for (uint32_t layer = 0; layer < count; layer++) {
        for (rp_lower_family f = RP_LOWER_DENSE; here[layer] && f < RP_LOWER_FAMILIES; f++) {
            l->trained_bytes[rp_lower_family_index(l, 0, gpu, f)] +=
                rp_lower_of_family(l, f, sizes->gradient_bytes[layer],
                                   rp_lower_at(sizes->expert_gradient_bytes, layer));
        }
    }
    return RP_OK;
}

/* Adds the step of a GPU's own weights, or of its share of them, after all its work of the
 * iteration. */
static rp_status add_update(rp_lowering *l, uint32_t gpu, const rp_lower_job *job)
{
    rp_op like = {.stage = job->stage, .iteration = job->iteration};
    size_t index = (size_t)job->iteration * l->schedule->gpu_count + gpu;
    uint64_t parameters = 0;
    for (rp_lower_family f = RP_LOWER_DENSE; f < RP_LOWER_FAMILIES; f++) {
        uint64_t bytes = l->trained_bytes[rp_lower_family_index(l, 0, gpu, f)];
        parameters += rp_lower_share(l, f, 1, bytes / rp_dtype_bytes(l->config->sizes.dtype));
    }
    RP_TRY(add(l, queue_of(job, RP_LOWER_COMPUTE), RP_OP_UPDATE, &like,
               rp_lower_traffic(rp_lower_step_bytes(l).update, parameters), &l->update[index]));
    l->updated[rp_lower_family_index(l, job->iteration, gpu, RP_LOWER_DENSE)] = l->update[index];
    const uint32_t queues[] = {l->tensor_queues, l->expert_queues};
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        if (queues[i] != 0) {
            rp_handle reduce = rp_assembly_last(l->assembly, queues[i] + gpu);
            RP_TRY(rp_assembly_wait(l->assembly, l->update[index], reduce, true));
        }
    }
    return RP_OK;
}

/* ---- the host -------------------------------------------------------------------------------- */

static rp_status add_host(rp_lowering *l, rp_op_kind kind, uint32_t iteration, uint32_t layer,
                          uint64_t bytes, rp_handle *handle_out)
{
    rp_op like = {.microbatch = layer, .iteration = (uint16_t)iteration};
    return add(l, l->host_queue, kind, &like, bytes, handle_out);
}

static rp_status add_refresh(rp_lowering *l, uint32_t iteration)
{
    uint32_t count = l->config->sizes.layers + 2;
    for (uint32_t layer = 0; layer < count; layer++) {
        uint64_t bytes =
            rp_lower_traffic(rp_lower_step_bytes(l).refresh, l->config->sizes.parameters[layer]);
        RP_TRY(add_host(l, RP_OP_REFRESH, iteration, layer, bytes,
                        &l->refresh[(size_t)iteration * count + layer]));
    }
    return RP_OK;
}

/* Adds the barrier of a step: resident weights are updated on their GPU, and no GPU goes on before
 * all have updated theirs. */
static rp_status add_barrier(rp_lowering *l, uint32_t iteration)
{
    size_t row = (size_t)iteration * (l->config->sizes.layers + 2);
    return add_host(l, RP_OP_OPTIMIZER, iteration, 0, 0, &l->refresh[row]);
}

static rp_status add_step(rp_lowering *l, uint32_t iteration)
{
    if (!l->offload) {
        bool last = iteration + 1 == l->schedule->iteration_count;
        return l->schedule->asynchronous || last ? RP_OK : add_barrier(l, iteration);
    }
    uint32_t count = l->config->sizes.layers + 2;
    uint64_t parameters = 0;
    if (l->schedule->asynchronous) {
        RP_TRY(add_refresh(l, iteration));
    }
    for (uint32_t layer = count; layer-- > 0;) {
        parameters += l->config->sizes.parameters[layer];
        uint32_t more_slots = l->schedule->traits.overlapping_rounds ? l->calls - 1 : 0;
        uint64_t bytes =
            rp_lower_traffic(rp_lower_step_bytes(l).collect + RP_SLOT_BYTES * more_slots,
                             l->config->sizes.parameters[layer]) +
            rp_lower_sum_bytes(l, layer);
        RP_TRY(add_host(l, RP_OP_COLLECT, iteration, layer, bytes,
                        &l->collect[(size_t)iteration * count + layer]));
    }
    rp_handle adam;
    RP_TRY(add_host(l, RP_OP_OPTIMIZER, iteration, 0,
                    rp_lower_traffic(rp_lower_step_bytes(l).adam, parameters), &adam));
    RP_TRY(rp_lower_add_exchanges(l, iteration, adam));
    return l->schedule->asynchronous ? RP_OK : add_refresh(l, iteration);
}

rp_status rp_lower_add_ops(rp_lowering *l)
{
    uint32_t *last_job = NULL; /* [iteration] of the GPU; iterations may be interleaved */
    RP_TRY(rp_arena_alloc(l->arena, l->schedule->iteration_count, sizeof *last_job, &last_job));
    for (uint32_t gpu = 0; gpu < l->schedule->gpu_count; gpu++) {
        RP_TRY(l->offload ? RP_OK : set_trained(l, gpu));
        for (uint32_t k = l->job_begin[gpu]; k < l->job_begin[gpu + 1]; k++) {
            last_job[l->jobs[k].iteration] = k;
        }
        for (uint32_t k = l->job_begin[gpu]; k < l->job_begin[gpu + 1]; k++) {
            rp_lower_job *job = &l->jobs[k];
            RP_TRY(begin_job(l, job, k > l->job_begin[gpu] ? job - 1 : NULL));
            for (uint32_t i = 0; i < job->unit_count; i++) {
                RP_TRY(add_unit(l, job, &l->units[job->first_unit + i]));
            }
            RP_TRY(end_job(l, job));
            bool last = last_job[job->iteration] == k;
            RP_TRY(last && !l->offload ? add_update(l, gpu, job) : RP_OK);
        }
        RP_TRY(rp_lower_add_copies(l, gpu));
    }
    for (uint32_t i = 0; i < l->schedule->iteration_count; i++) {
        RP_TRY(add_step(l, i));
    }
    return RP_OK;
}
