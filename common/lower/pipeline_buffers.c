/* The lowering's last pass: the buffers, each with the ops between which it lives.
 *
 * Offload: a job's weights live from its first upload to its last compute op, its gradients from
 * its first compute op (or from the upload of accumulated gradients) to their download. Resident:
 * both, and the optimizer's states, live as long as the GPU's compute queue. A unit has the tensors
 * that it uploads and downloads, and a backward its tape. Saved inputs are in host memory from
 * their download to their last upload. If a backward has two parts, tape and incoming gradient stay
 * for the weight part: it needs inputs and outputs' gradients of its matrix products, about as much
 * as the tape holds (Qi et al. 2024, section 2: 32 instead of 34 bytes per token and hidden unit).
 * The tape contains the stage's input, so an uploaded input is subtracted from it. The logits of a
 * chunk of tokens stay with the allocator of each GPU that runs the head (sim/model.md 4). Units
 * that go layer by layer: layer_buffers.c. All of this is for pipelines and RoundPipe; for
 * data-parallel systems see data_parallel_buffers.c. */
#include "common/lower/lower_internal.h"

typedef struct buffer_writer {
    const rp_lowering *l;
    rp_program *program;
    bool *kept;    /* [forward position] its output is the input of a backward stage */
    uint8_t *seen; /* [stage] whether this GPU runs it */
} buffer_writer;

static const rp_op *unit_op(const rp_lowering *l, const rp_lower_unit *unit)
{
    return &l->schedule->ops[unit->last];
}

void rp_lower_put(const rp_lowering *l, rp_program *p, rp_buffer_kind kind, uint32_t place,
                  uint64_t bytes, rp_handle from, rp_handle to)
{
    if (bytes == 0 || from == RP_NO_HANDLE || to == RP_NO_HANDLE) {
        return;
    }
    p->buffers[p->buffer_count++] =
        (rp_buffer){.bytes = bytes < RP_LOWER_MOST_BYTES ? bytes : RP_LOWER_MOST_BYTES,
                    .alloc_op = rp_assembly_number(l->assembly, from),
                    .free_op = rp_assembly_number(l->assembly, to),
                    .place = (uint16_t)place,
                    .kind = (uint16_t)kind};
}

void rp_lower_put_gradients(const rp_lowering *l, rp_program *p, uint32_t gpu, uint64_t bytes,
                            uint64_t narrow, const rp_handle between[2], const rp_handle *updates)
{
    const rp_sizes *sizes = &l->config->sizes;
    bool alone = rp_layout_data(&l->schedule->traits.layout) == 1;
    bool wide = sizes->fp32_gradients && sizes->dtype == RP_DTYPE_BF16 && alone;
    bool copied = sizes->fp32_gradients && rp_dtype_bytes(sizes->dtype) == 2 && !wide;
    rp_lower_put(l, p, RP_BUFFER_GRADIENT, gpu, wide ? 2 * bytes : bytes, between[0], between[1]);
    for (uint32_t i = 0; copied && i < l->schedule->iteration_count; i++) {
        rp_handle update = updates[(size_t)i * l->schedule->gpu_count + gpu];
        rp_lower_put(l, p, RP_BUFFER_GRADIENT, gpu, 2 * narrow, update, update);
    }
}

void rp_lower_put_step(const rp_lowering *l, rp_program *p, uint32_t gpu, uint64_t parameters,
                       const rp_handle *updates)
{
    uint64_t bytes = l->config->sizes.step_bytes * parameters;
    for (uint32_t i = 0; bytes != 0 && i < l->schedule->iteration_count; i++) {
        rp_handle update = updates[(size_t)i * l->schedule->gpu_count + gpu];
        rp_lower_put(l, p, RP_BUFFER_OPTIMIZER, gpu, bytes, update, update);
    }
}

static void put(const buffer_writer *w, rp_buffer_kind kind, uint32_t place, uint64_t bytes,
                rp_handle from, rp_handle to)
{
    rp_lower_put(w->l, w->program, kind, place, bytes, from, to);
}

/* Adds the buffer of a transfer's bytes, which lives during the transfer and for some time before
 * or after it. */
static void put_moved(const buffer_writer *w, rp_buffer_kind kind, uint32_t place,
                      rp_handle transfer, rp_handle from, rp_handle to)
{
    if (transfer != RP_NO_HANDLE) {
        uint64_t bytes = w->program->op_bytes[rp_assembly_number(w->l->assembly, transfer)];
        put(w, kind, place, bytes, from, to);
    }
}

/* ---- jobs and whole GPUs --------------------------------------------------------------------- */

static void put_job(const buffer_writer *w, const rp_lower_job *job)
{
    const rp_lowering *l = w->l;
    const rp_sizes *sizes = &l->config->sizes;
    const rp_lower_unit *first = &l->units[job->first_unit];
    const rp_lower_unit *last = first + job->unit_count - 1;
    uint64_t weights = 0;
    uint64_t gradients = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
    rp_lower_layers(l, job->stage, job->backward, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        weights += sizes->weight_bytes[layer];
        gradients += sizes->gradient_bytes[layer];
    }
    put(w, RP_BUFFER_WEIGHT, job->gpu, weights, job->params_first, last->compute_last);
    rp_handle from =
        job->param_grads_up != RP_NO_HANDLE ? job->param_grads_up : first->compute_first;
    put(w, RP_BUFFER_GRADIENT, job->gpu, gradients, from, job->param_grads_down);
}

/* Number of versions of weights: a synchronous step flushes the pipeline, so a single version is
 * enough. */
static uint64_t version_count(const rp_lowering *l, uint32_t gpu)
{
    const rp_program *p = l->schedule;
    if (!p->asynchronous || p->traits.versions == RP_VERSIONS_ONE) {
        return 1;
    }
    uint64_t all = (uint64_t)p->microbatch_count * p->iteration_count;
    uint64_t in_flight = p->gpu_count - gpu;
    in_flight = in_flight < all ? in_flight : all;
    return p->traits.versions == RP_VERSIONS_TWO ? 2 : in_flight;
}

/* Adds a layer's weights, gradients and optimizer states, or a copy's share of them. */
static void add_resident(const rp_lowering *l, uint32_t layer, bool adds,
                         uint64_t bytes[RP_LOWER_FAMILIES][RP_BUFFER_KIND_COUNT])
{
    const rp_sizes *sizes = &l->config->sizes;
    uint64_t of_experts = rp_lower_at(sizes->expert_gradient_bytes, layer);
    for (rp_lower_family f = RP_LOWER_DENSE; f < RP_LOWER_FAMILIES; f++) {
        uint64_t weights = rp_lower_of_family(l, f, sizes->weight_bytes[layer],
                                              rp_lower_at(sizes->expert_weight_bytes, layer));
        uint64_t gradients = rp_lower_of_family(l, f, sizes->gradient_bytes[layer], of_experts);
        uint64_t states = rp_lower_of_family(l, f, rp_lower_at(sizes->optimizer_bytes, layer),
                                             rp_lower_at(sizes->expert_optimizer_bytes, layer));
        bytes[f][RP_BUFFER_WEIGHT] += adds ? weights : -weights;
        bytes[f][RP_BUFFER_GRADIENT] += adds ? gradients : -gradients;
        bytes[f][RP_BUFFER_OPTIMIZER] += adds ? states : -states;
    }
}

/* Adds the buffers of resident weights, gradients and states, from the GPU's first to its last
 * compute op. */
static void put_resident(const buffer_writer *w, uint32_t gpu, rp_handle first, rp_handle last)
{
    const rp_lowering *l = w->l;
    const rp_sizes *sizes = &l->config->sizes;
    uint64_t of[RP_LOWER_FAMILIES][RP_BUFFER_KIND_COUNT] = {{0}};
    uint64_t bytes[RP_BUFFER_KIND_COUNT] = {0};
    bool embedding = false;
    for (uint32_t s = 0; s < l->schedule->stage_count; s++) {
        uint32_t begin = 0;
        uint32_t end = 0;
        rp_lower_layers(l, s, false, &begin, &end);
        for (uint32_t layer = begin; w->seen[s] != 0 && layer < end; layer++) {
            add_resident(l, layer, true, of);
            embedding |= layer == 0;
        }
        if (w->seen[s] != 0 && end == sizes->layers + 2 && embedding && sizes->tied_head) {
            add_resident(l, 0, false, of);
        }
    }
    uint64_t v = rp_dtype_bytes(sizes->dtype);
    uint64_t narrow = 0;
    uint64_t stepped = 0; /* parameters */
    uint64_t buckets = 0;
    for (rp_lower_family f = RP_LOWER_DENSE; f < RP_LOWER_FAMILIES; f++) {
        uint64_t whole = of[f][RP_BUFFER_GRADIENT];
        uint64_t gradients = rp_lower_reduced(l, whole);
        narrow += gradients == whole ? rp_lower_share(l, f, 1, gradients) : 0;
        bytes[RP_BUFFER_WEIGHT] += rp_lower_share(l, f, 3, of[f][RP_BUFFER_WEIGHT]);
        bytes[RP_BUFFER_GRADIENT] +=
            rp_lower_keeps_gradients(l) ? gradients : rp_lower_share(l, f, 2, gradients);
        bytes[RP_BUFFER_OPTIMIZER] += rp_lower_share(l, f, 1, of[f][RP_BUFFER_OPTIMIZER]);
        stepped += rp_lower_share(l, f, 1, whole) / v;
        buckets += sizes->bucket_bytes * (whole / v);
    }
    const rp_handle between[] = {first, last};
    rp_lower_put_gradients(l, w->program, gpu, bytes[RP_BUFFER_GRADIENT], narrow, between,
                           l->update);
    put(w, RP_BUFFER_WEIGHT, gpu, bytes[RP_BUFFER_WEIGHT] * version_count(l, gpu), first, last);
    put(w, RP_BUFFER_OPTIMIZER, gpu, bytes[RP_BUFFER_OPTIMIZER], first, last);
    bool reduces = rp_layout_data(&l->schedule->traits.layout) > 1;
    put(w, RP_BUFFER_GRADIENT, gpu, reduces ? buckets : 0, first, last);
    rp_lower_put_step(l, w->program, gpu, stepped, l->update);
}

static void put_gpu(const buffer_writer *w, uint32_t gpu)
{
    const rp_lowering *l = w->l;
    const rp_sizes *sizes = &l->config->sizes;
    rp_handle last = rp_assembly_last(l->assembly, gpu * RP_LOWER_QUEUES_PER_GPU);
    if (last == RP_NO_HANDLE) {
        return;
    }
    uint32_t first_unit = l->jobs[l->job_begin[gpu]].first_unit;
    const rp_lower_job *last_job = &l->jobs[l->job_begin[gpu + 1] - 1];
    uint64_t most = 0;
    for (uint32_t s = 0; s < l->schedule->stage_count; s++) {
        w->seen[s] = 0;
    }
    for (uint32_t u = first_unit; u < last_job->first_unit + last_job->unit_count; u++) {
        const rp_op *op = unit_op(l, &l->units[u]);
        w->seen[op->stage] = 1;
        bool head = (l->schedule->stages[op->stage].roles & RP_STAGE_HEAD) != 0;
        uint64_t logits = rp_lower_scaled(sizes->logits_bytes, l->sequences[op->microbatch]);
        most = head && (l->offload || !sizes->unfused_loss) && logits > most ? logits : most;
    }
    rp_handle first = l->units[first_unit].compute_first;
    most = most > sizes->logits_chunk_bytes ? sizes->logits_chunk_bytes : most;
    put(w, RP_BUFFER_LOGITS, gpu, most, first, last);
    put(w, RP_BUFFER_TEMPORARY, gpu, sizes->dequantised_bytes, first, last);
    if (!l->offload) {
        put_resident(w, gpu, first, last);
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Tape per sequence of all layers of a stage at once. @param kept without what the backward makes
 * again */
static uint64_t tape_of(const rp_lowering *l, uint32_t stage, bool backward, bool kept)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t sum = 0;
    rp_lower_layers(l, stage, backward, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        sum += rp_lower_at(l->config->sizes.tape_bytes, layer);
        sum -= kept ? rp_lower_at(l->config->sizes.rebuilt_bytes, layer) : 0;
    }
    return sum;
}

static uint64_t temporary_of(const rp_lowering *l, uint32_t stage)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t most = 0;
    rp_lower_layers(l, stage, true, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        uint64_t bytes = rp_lower_at(l->config->sizes.temporary_bytes, layer);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Adds the buffers of a backward whose stage's input comes up again. With early recompute its tape
 * waits for the gradient. A fused stage keeps the tape of all its layers at any grain, as it has
 * run them forward as a whole. A pipeline's head is counted with the backward. */
static void put_offloaded_backward(const buffer_writer *w, const rp_lower_job *job,
                                   const rp_lower_unit *unit)
{
    const rp_lowering *l = w->l;
    const rp_op *op = unit_op(l, unit);
    uint64_t sequences = l->sequences[op->microbatch];
    uint64_t tape = tape_of(l, op->stage, true, false);
    bool from_ids = rp_lower_from_ids(l, op->stage);
    tape = from_ids ? tape : rp_lower_less(tape, l->config->sizes.tape_input_bytes);
    put(w, RP_BUFFER_TAPE, job->gpu, rp_lower_scaled(tape, sequences), unit->compute_first,
        unit->compute_last);
    put(w, RP_BUFFER_TEMPORARY, job->gpu, rp_lower_scaled(temporary_of(l, op->stage), sequences),
        unit->compute_last, unit->compute_last);
    put_moved(w, RP_BUFFER_ACTIVATION, job->gpu, unit->up_act, unit->up_act, unit->compute_last);
    rp_handle saved = rp_lower_saved_input(l, op, l->producers.backward_position[op->stage]);
    put_moved(w, RP_BUFFER_ACTIVATION, RP_PLACE_HOST, saved, saved, unit->up_act);
}

static rp_handle release_of(const buffer_writer *w, const rp_op *op)
{
    return rp_lower_release(w->l, op, RP_LOWER_WHOLE);
}

/* Adds the logits that an unfused loss holds. If a microbatch's backward directly follows its
 * forward, the loss's backward is over before the first layer is recomputed, so the logits count
 * with the forward. Otherwise they wait for the backward. */
static void put_unfused_logits(const buffer_writer *w, const rp_lower_job *job,
                               const rp_lower_unit *unit)
{
    const rp_lowering *l = w->l;
    const rp_op *op = unit_op(l, unit);
    const rp_producers *producers = &l->producers;
    uint32_t at = producers->backward_at[rp_producers_backward_index(
        producers, op->iteration, producers->backward_position[op->stage], op->microbatch)];
    const rp_lower_unit *backward = &l->units[l->unit_of[at]];
    uint64_t bytes = rp_lower_scaled(l->config->sizes.logits_bytes, l->sequences[op->microbatch]);
    rp_handle made =
        unit->part_count != 0 ? unit->parts[unit->part_count - 1].first : unit->compute_first;
    put(w, RP_BUFFER_LOGITS, job->gpu, bytes, made,
        backward == unit + 1 ? unit->compute_last : backward->compute_first);
}

/* Adds the buffers of a pipeline's forward: the stage's input (without recompute the whole tape)
 * waits for the backward, and so does the head's tape, which is not recomputed. */
static void put_pipeline_forward(const buffer_writer *w, const rp_lower_job *job,
                                 const rp_lower_unit *unit, rp_handle input)
{
    const rp_lowering *l = w->l;
    const rp_op *op = unit_op(l, unit);
    uint64_t sequences = l->sequences[op->microbatch];
    bool first = l->producers.forward_position[op->stage] == 0;
    uint64_t per_sequence = first ? l->config->sizes.input_bytes : l->config->sizes.boundary_bytes;
    bool whole = unit->part_count == 0;
    rp_handle release = release_of(w, op);
    rp_handle kept = rp_lower_kept_until(l, unit, whole ? RP_LOWER_WHOLE : 0);
    put(w, RP_BUFFER_ACTIVATION, job->gpu, rp_lower_scaled(per_sequence, sequences), input,
        first ? release : kept);
    bool head = (l->schedule->stages[op->stage].roles & RP_STAGE_HEAD) != 0;
    if (head && l->config->sizes.unfused_loss) {
        put_unfused_logits(w, job, unit);
    }
    uint64_t of_head =
        head && whole ? rp_lower_at(l->config->sizes.tape_bytes, l->config->sizes.layers + 1) : 0;
    if (!rp_recompute_has_ops(l->schedule->recompute) && whole) {
        uint64_t tape = tape_of(l, op->stage, false, true);
        tape = first ? tape : rp_lower_less(tape, l->config->sizes.tape_input_bytes);
        of_head = kept != release ? of_head : 0; /* the head's part does not leave */
        put(w, RP_BUFFER_TAPE, job->gpu, rp_lower_scaled(rp_lower_less(tape, of_head), sequences),
            unit->compute_first, kept);
    }
    put(w, RP_BUFFER_TAPE, job->gpu, rp_lower_scaled(of_head, sequences), unit->compute_first,
        release);
}

/* Part of the tape per sequence that a backward makes again: of a layer at a time, or of all layers
 * if their weight parts come later. */
static uint64_t rebuilt_of(const buffer_writer *w, const rp_op *op, const rp_lower_unit *unit)
{
    bool split = release_of(w, op) != unit->compute_last;
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t bytes = 0;
    rp_lower_layers(w->l, op->stage, true, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        uint64_t one = rp_lower_at(w->l->config->sizes.rebuilt_bytes, layer);
        bytes = split ? bytes + one : one > bytes ? one : bytes;
    }
    return bytes;
}

static void put_pipeline_backward(const buffer_writer *w, const rp_lower_job *job,
                                  const rp_lower_unit *unit)
{
    const rp_lowering *l = w->l;
    const rp_op *op = unit_op(l, unit);
    uint64_t sequences = l->sequences[op->microbatch];
    if (rp_lower_recomputes(l, unit)) {
        bool head = (l->schedule->stages[op->stage].roles & RP_STAGE_HEAD) != 0;
        uint64_t tape = tape_of(l, op->stage, true, false);
        tape -= head ? rp_lower_at(l->config->sizes.tape_bytes, l->config->sizes.layers + 1) : 0;
        bool first = l->producers.forward_position[op->stage] == 0;
        tape = first ? tape : rp_lower_less(tape, l->config->sizes.tape_input_bytes);
        put(w, RP_BUFFER_TAPE, job->gpu, rp_lower_scaled(tape, sequences), unit->compute_first,
            release_of(w, op));
    }
    put(w, RP_BUFFER_TAPE, job->gpu, rp_lower_scaled(rebuilt_of(w, op, unit), sequences),
        unit->compute_first, release_of(w, op));
    put(w, RP_BUFFER_TEMPORARY, job->gpu, rp_lower_scaled(temporary_of(l, op->stage), sequences),
        unit->compute_last, unit->compute_last);
}

static void put_unit(const buffer_writer *w, const rp_lower_job *job, const rp_lower_unit *unit)
{
    const rp_lowering *l = w->l;
    const rp_op *op = unit_op(l, unit);
    if (rp_lower_is_weight(l, unit)) {
        return; /* it frees the tensors that its input part has kept */
    }
    rp_buffer_kind kind = job->backward ? RP_BUFFER_GRADIENT : RP_BUFFER_ACTIVATION;
    put_moved(w, kind, job->gpu, unit->down_out, unit->compute_last, unit->down_out);
    if (job->backward) {
        uint32_t position = l->producers.backward_position[op->stage];
        rp_handle release = release_of(w, op);
        bool split = release != unit->compute_last;
        rp_handle used = unit->part_count != 0 && !split ? unit->parts[0].last : release;
        if (unit->up_grad != RP_NO_HANDLE) {
            uint32_t from = l->producers.backward_at[rp_producers_backward_index(
                &l->producers, op->iteration, position - 1, op->microbatch)];
            rp_handle down = l->units[l->unit_of[from]].down_out;
            rp_handle arrival = unit->received ? down : unit->up_grad;
            put_moved(w, RP_BUFFER_GRADIENT, job->gpu, unit->up_grad, arrival, used);
            put_moved(w, RP_BUFFER_GRADIENT, RP_PLACE_HOST, down, down,
                      unit->received ? RP_NO_HANDLE : unit->up_grad);
        }
        if (unit->part_count != 0) {
            rp_lower_put_layered_backward(l, w->program, unit, release);
        } else if (rp_lower_keeps_tape(l)) {
            put_pipeline_backward(w, job, unit);
        } else {
            put_offloaded_backward(w, job, unit);
        }
        return;
    }
    if (!rp_op_kind_is_forward(op->kind)) {
        return;
    }
    if (unit->part_count != 0) {
        rp_lower_put_layered_forward(l, w->program, unit);
    }
    uint32_t position = l->producers.forward_position[op->stage];
    const rp_lower_unit *from = NULL;
    if (position != 0) {
        from = &l->units[l->unit_of[l->producers.forward_at[rp_producers_forward_index(
            &l->producers, op->iteration, position - 1, op->microbatch)]]];
        if (!w->kept[position - 1] && !unit->received) {
            put_moved(w, RP_BUFFER_ACTIVATION, RP_PLACE_HOST, from->down_out, from->down_out,
                      unit->up_act);
        }
    }
    if (rp_lower_keeps_tape(l)) {
        bool here = unit->up_act == RP_NO_HANDLE;
        put_pipeline_forward(w, job, unit,
                             here             ? from->compute_last
                             : unit->received ? from->down_out
                                              : unit->up_act);
        return;
    }
    rp_handle used = unit->part_count != 0 ? unit->parts[0].last : unit->compute_last;
    put_moved(w, RP_BUFFER_ACTIVATION, job->gpu, unit->up_act, unit->up_act, used);
}

/* Adds the inputs of backward stages that begin inside a forward stage, on their way to the
 * host. */
static void put_inside(const buffer_writer *w, const rp_lower_job *job, const rp_lower_unit *unit)
{
    const rp_lowering *l = w->l;
    const rp_op *op = unit_op(l, unit);
    for (uint32_t j = 0; l->separate && !job->backward && j < l->schedule->backward_count; j++) {
        rp_handle down = l->saved[rp_lower_saved_index(l, op->iteration, j, op->microbatch)];
        if (rp_lower_begins_inside(l, l->schedule->backward_chain[j], op->stage) &&
            unit->part_count == 0) {
            put_moved(w, RP_BUFFER_ACTIVATION, job->gpu, down, unit->compute_last, down);
        }
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void keep(const buffer_writer *w, rp_handle saved)
{
    const rp_lowering *l = w->l;
    for (uint32_t i = 0; i < l->schedule->forward_count && saved != RP_NO_HANDLE; i++) {
        uint32_t op = l->producers.forward_at[rp_producers_forward_index(&l->producers, 0, i, 0)];
        w->kept[i] |= l->units[l->unit_of[op]].down_out == saved;
    }
}

static void find_kept(const buffer_writer *w)
{
    const rp_lowering *l = w->l;
    const rp_program *p = l->schedule;
    for (uint32_t j = 0; l->offload && j < p->backward_count; j++) {
        const rp_op first = {.stage = p->backward_chain[j]}; /* the same in all microbatches */
        uint32_t op = l->producers.backward_at[rp_producers_backward_index(&l->producers, 0, j, 0)];
        const rp_lower_unit *unit = &l->units[l->unit_of[op]];
        for (uint32_t i = 0; i < unit->part_count; i++) {
            keep(w, rp_lower_layer_input(l, unit, unit->parts[i].layer));
        }
        keep(w, unit->part_count == 0 ? rp_lower_saved_input(l, &first, j) : RP_NO_HANDLE);
    }
}

rp_status rp_lower_add_buffers(const rp_lowering *l, rp_program *program)
{
    const rp_program *p = l->schedule;
    if (l->sharded != NULL) {
        return rp_lower_add_sharded_buffers(l, program);
    }
    buffer_writer w = {.l = l, .program = program};
    /* Two lists of stages over the same layers overlap in fewer pairs than there are stages. */
    size_t pairs = 2 * ((size_t)p->forward_count + p->backward_count);
    size_t inside = l->separate ? pairs * p->iteration_count * p->microbatch_count : 0;
    size_t most =
        2 * (size_t)l->job_count + 8 * (size_t)l->unit_count + inside + 5 * (size_t)p->gpu_count;
    most += p->gpu_count;                                  /* buckets */
    most += 2 * (size_t)p->iteration_count * p->gpu_count; /* what the step copies and makes */
    most += rp_lower_layer_buffers(l) + rp_lower_copies_buffers(l) + 2 * (size_t)l->trip_count;
    RP_TRY(rp_arena_alloc(l->arena, p->forward_count, sizeof(bool), &w.kept));
    RP_TRY(rp_arena_alloc(l->arena, p->stage_count, sizeof(uint8_t), &w.seen));
    RP_TRY(rp_arena_alloc_raw(program->arena, most, sizeof(rp_buffer), &program->buffers));
    find_kept(&w);
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        put_gpu(&w, gpu);
        for (uint32_t k = l->job_begin[gpu]; k < l->job_begin[gpu + 1]; k++) {
            const rp_lower_job *job = &l->jobs[k];
            if (l->offload) {
                put_job(&w, job);
            }
            for (uint32_t i = 0; i < job->unit_count; i++) {
                put_unit(&w, job, &l->units[job->first_unit + i]);
                put_inside(&w, job, &l->units[job->first_unit + i]);
                rp_lower_put_copies(l, program, &l->units[job->first_unit + i]);
            }
        }
    }
    rp_lower_put_trips(l, program);
    return RP_OK;
}
