/* Buffers of data-parallel and tensor-parallel systems, each with the ops between which it lives
 * (sim/model.md section 4).
 *
 * All the time: the rank's share of weights, gradients and optimizer, or the whole of those that
 * are not sharded, and the communication buckets. Per unit: gathered weights, from their gather to
 * the unit's end. Layer grain in these systems: every layer is checkpointed, and its input waits
 * for the backward, which recomputes a layer at a time. Stage grain: an input and a tape per stage.
 * The loss and its backward are over before the first layer is recomputed, but the backward of the
 * head has no op of its own. So the logits are counted with the head's forward, and the head's
 * backward with that of its layers. Gradients that are reduced at once pass through the buckets. */
#include "common/lower/data_parallel_internal.h"

/* Tensor parallelism does not split the two norms of a layer in fp32 and their inputs, 20 h per
 * token (common/inputs/sizes.c): this is their size in boundaries of 2 h. */
#define WHOLE_TAPE_BOUNDARIES 10u

typedef struct writer {
    const rp_sharded *s;
    const rp_sizes *sizes;
    rp_program *program;
    bool tensor;  /* every layer is split over all ranks */
    bool gathers; /* weights are sharded and gathered unit by unit */
    bool layers;  /* layers are recomputed singly */
} writer;

static void put(const writer *w, rp_buffer_kind kind, uint32_t gpu, uint64_t bytes, rp_handle from,
                rp_handle to)
{
    rp_lower_put(w->s->l, w->program, kind, gpu, bytes, from, to);
}

static uint64_t share(const writer *w, uint64_t bytes)
{
    return (bytes + w->s->ranks - 1) / w->s->ranks;
}

/* Values of embedding and head; a tied table counts once. */
static uint64_t root_of(const writer *w, const uint64_t *values)
{
    uint64_t first = rp_lower_at(values, 0);
    return rp_lower_at(values, w->sizes->layers + 1) + (w->sizes->tied_head ? 0 : first);
}

static uint64_t all_of(const writer *w, const uint64_t *values)
{
    uint64_t bytes = root_of(w, values);
    for (uint32_t layer = 1; layer <= w->sizes->layers; layer++) {
        bytes += rp_lower_at(values, layer);
    }
    return bytes;
}

static uint64_t largest_of(const rp_stage *stage, const uint64_t *values)
{
    uint64_t most = 0;
    for (uint32_t block = stage->layer_begin; block < stage->layer_end; block++) {
        uint64_t bytes = rp_lower_at(values, block + 1);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Bytes of the largest layer that are gathered. */
static uint64_t gathered_of(const writer *w, const rp_stage *stage)
{
    uint64_t most = 0;
    for (uint32_t block = stage->layer_begin; block < stage->layer_end; block++) {
        uint64_t bytes = rp_lower_at(w->sizes->weight_bytes, block + 1) -
                         rp_lower_at(w->sizes->scale_bytes, block + 1);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static uint64_t blocks_of(const rp_stage *stage, const uint64_t *values)
{
    uint64_t sum = 0;
    for (uint32_t block = stage->layer_begin; block < stage->layer_end; block++) {
        sum += rp_lower_at(values, block + 1);
    }
    return sum;
}

static const rp_stage *stage_of(const writer *w, const rp_op *op)
{
    return &w->s->l->schedule->stages[op->stage];
}

static bool has_head(const writer *w, const rp_op *op)
{
    return (stage_of(w, op)->roles & RP_STAGE_HEAD) != 0;
}

/* The unit that runs the backward of a stage for a microbatch, on the same GPU. */
static uint32_t backward_index(const writer *w, uint32_t gpu, const rp_op *op, uint32_t stage,
                               uint32_t microbatch)
{
    const rp_lowering *l = w->s->l;
    uint32_t at = l->producers.backward_at[rp_producers_backward_index(
        &l->producers, op->iteration, l->producers.backward_position[stage], microbatch)];
    return l->unit_of[at] - gpu * w->s->per_gpu;
}

/* ---- all the time ---------------------------------------------------------------------------- */

/* Weights that a rank holds all the time. */
static uint64_t kept_weights(const writer *w)
{
    const rp_sharding *sharding = w->s->sharding;
    uint64_t scales = all_of(w, w->sizes->scale_bytes);
    uint64_t weights = all_of(w, w->sizes->weight_bytes) - scales;
    uint64_t trained = all_of(w, w->sizes->gradient_bytes);
    uint64_t frozen = rp_lower_less(weights, trained);
    if (sharding->keeps_root) { /* the optimizer has the trained shard, if it has masters */
        bool steps_weights = w->sizes->types.master == RP_MASTER_NONE;
        return scales + (sharding->host_weights ? 0 : share(w, steps_weights ? weights : frozen));
    }
    if (w->gathers && sharding->host_weights) { /* adapters are small and stay */
        return scales + (frozen != 0 ? trained : 0);
    }
    return scales + (w->tensor || w->gathers ? share(w, weights) : weights);
}

static void put_resident(const writer *w, uint32_t gpu)
{
    const rp_sharding *sharding = w->s->sharding;
    rp_handle first = rp_sharded_unit_at(w->s, gpu, 0)->compute_first;
    rp_handle last = rp_assembly_last(w->s->l->assembly, gpu * RP_LOWER_QUEUES_PER_GPU);
    const rp_handle between[] = {first, last};
    uint64_t gradients = all_of(w, w->sizes->gradient_bytes);
    uint64_t optimizer = all_of(w, w->sizes->optimizer_bytes);
    bool kept_gradients = !sharding->keeps_root && !sharding->host_gradients;
    uint64_t own = kept_gradients ? share(w, gradients) : 0;
    put(w, RP_BUFFER_WEIGHT, gpu, kept_weights(w), first, last);
    put(w, RP_BUFFER_TEMPORARY, gpu, w->sizes->dequantised_bytes, first, last);
    rp_lower_put_gradients(w->s->l, w->program, gpu, own, own, between, w->s->updates);
    put(w, RP_BUFFER_OPTIMIZER, gpu, sharding->host_optimizer ? 0 : share(w, optimizer), first,
        last);
    /* ZeRO-Offload adds a tensor's gradients up in a buffer of its own, as large as the largest
     * tensor (temp_grad_buffer_for_gpu_offload). */
    uint64_t table = rp_lower_at(w->sizes->gradient_bytes, 0);
    uint64_t head = rp_lower_at(w->sizes->gradient_bytes, w->sizes->layers + 1);
    bool adds_up = sharding->host_collects && !w->gathers;
    put(w, RP_BUFFER_TEMPORARY, gpu, !adds_up ? 0 : table > head ? table : head, first, last);
}

/* Buffers of DeepSpeed while it computes a step: a bucket and, if weights are gathered, as many
 * weights as may be live. Before the optimizer's step all are freed but ZeRO-3's bucket, which is
 * made once; the step has copies of the shard's gradients instead: a flat copy and an fp32 copy of
 * that (sim/model.md section 4). */
static void put_steps(const writer *w, uint32_t gpu)
{
    const rp_sharded *s = w->s;
    uint64_t v = rp_dtype_bytes(w->sizes->dtype);
    uint64_t weights = all_of(w, w->sizes->weight_bytes);
    uint64_t live = weights < s->sharding->live_bytes ? weights : s->sharding->live_bytes;
    uint64_t own = share(w, all_of(w, w->sizes->gradient_bytes));
    uint64_t stepped = own / v < s->sharding->step_group ? own : v * s->sharding->step_group;
    uint64_t copies = stepped + (v < sizeof(float) ? stepped / v * sizeof(float) : 0);
    for (uint32_t i = 0; i < s->l->schedule->iteration_count; i++) {
        uint32_t begin = i * s->per_iteration;
        rp_handle first = rp_sharded_unit_at(s, gpu, begin)->compute_first;
        rp_handle last = rp_sharded_unit_at(s, gpu, begin + s->per_iteration - 1)->compute_last;
        rp_handle update =
            s->sharding->host_optimizer ? RP_NO_HANDLE : s->updates[(size_t)i * s->gpus + gpu];
        put(w, RP_BUFFER_TEMPORARY, gpu, s->sharding->bucket_bytes, first,
            w->gathers && update != RP_NO_HANDLE ? update : last);
        put(w, RP_BUFFER_WEIGHT, gpu, live, first, last);
        put(w, RP_BUFFER_GRADIENT, gpu, copies, update, update);
    }
    if (!s->sharding->host_optimizer) {
        rp_lower_put_step(s->l, w->program, gpu, own / v, s->updates);
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

/* A layer that is larger than the limit of live weights comes on top of that limit while it runs,
 * when nothing is prefetched; the head stays until its backward is over. */
static void put_large(const writer *w, uint32_t gpu, uint32_t index, rp_handle gather)
{
    const rp_lower_unit *unit = rp_sharded_unit_at(w->s, gpu, index);
    const rp_op *op = rp_sharded_op_of(w->s, unit);
    const uint64_t *weights = w->sizes->weight_bytes;
    uint64_t most = w->s->sharding->live_bytes;
    bool forward = !rp_sharded_is_backward(w->s, unit);
    uint64_t layer = gathered_of(w, stage_of(w, op));
    put(w, RP_BUFFER_WEIGHT, gpu, layer > most ? layer : 0,
        most != 0 ? unit->compute_first : gather, unit->compute_last);
    if (most == 0 || !forward) {
        return;
    }
    if (w->s->l->producers.forward_position[op->stage] == 0 && weights[0] > most) {
        put(w, RP_BUFFER_WEIGHT, gpu, weights[0], unit->compute_first, unit->compute_last);
    }
    if (has_head(w, op) && weights[w->sizes->layers + 1] > most) {
        uint32_t end = backward_index(w, gpu, op, op->stage, op->microbatch);
        put(w, RP_BUFFER_WEIGHT, gpu, weights[w->sizes->layers + 1], unit->compute_first,
            rp_sharded_unit_at(w->s, gpu, end)->compute_last);
    }
}

static void put_gathered(const writer *w, uint32_t gpu, uint32_t index)
{
    const rp_lower_unit *unit = rp_sharded_unit_at(w->s, gpu, index);
    const rp_op *op = rp_sharded_op_of(w->s, unit);
    rp_handle gather = rp_sharded_extra_at(w->s, gpu, index)->gather;
    bool in_bucket = w->s->sharding->live_bytes != 0; /* prefetched weights are in it already */
    put_large(w, gpu, index, gather);
    put(w, RP_BUFFER_WEIGHT, gpu, in_bucket ? 0 : share(w, gathered_of(w, stage_of(w, op))),
        rp_sharded_extra_at(w->s, gpu, index)->shard_up, gather);
    bool first = w->s->l->producers.forward_position[op->stage] == 0;
    if (w->s->sharding->keeps_root && first && !rp_sharded_is_backward(w->s, unit)) {
        /* The buffer does not begin with the gather, which the lowering lets run ahead into the
         * microbatch before: FSDP gathers the root when its forward begins. */
        uint32_t end = backward_index(w, gpu, op, op->stage, op->microbatch);
        put(w, RP_BUFFER_WEIGHT, gpu, root_of(w, w->sizes->weight_bytes), unit->compute_first,
            rp_sharded_unit_at(w->s, gpu, end)->compute_last);
    }
}

/* @return whether a rank's gradients begin to be reduced with this microbatch: the first if each
 * microbatch is reduced, otherwise the last. */
static bool begins_reduction(const writer *w, const rp_op *op)
{
    return w->s->sharding->reductions != 0 ? op->microbatch < w->s->gpus
                                           : rp_sharded_is_last_microbatch(w->s, op);
}

/* Gradients that are reduced with every microbatch: the whole gradient of a unit lives until its
 * reduction, with a copy if that has another type; shards live from the first reduction to the
 * step. */
static void put_passing_gradients(const writer *w, uint32_t gpu, uint32_t index, uint64_t whole,
                                  uint64_t root)
{
    const rp_lower_unit *unit = rp_sharded_unit_at(w->s, gpu, index);
    const rp_op *op = rp_sharded_op_of(w->s, unit);
    uint64_t v = rp_dtype_bytes(w->sizes->dtype);
    uint64_t copied = w->s->sharding->reduce_bytes;
    uint64_t passing = whole / v * (v + copied);
    uint64_t wide = w->sizes->types.master == RP_MASTER_F32 ? sizeof(float) : v;
    rp_handle reduce = rp_sharded_extra_at(w->s, gpu, index)->reduce;
    put(w, RP_BUFFER_GRADIENT, gpu, passing, unit->compute_last, reduce);
    if (begins_reduction(w, op)) { /* shards have the type of the masters */
        uint64_t shards = share(w, (whole + root) / v * wide);
        put(w, RP_BUFFER_GRADIENT, gpu, shards, reduce, w->s->steps[op->iteration]);
    }
}

/* Whole gradients live from the first microbatch's backward of a step to the reduction; shards live
 * from there to the step, or until they are on the host. If a step has a single microbatch, a
 * layer's gradients are reduced as soon as they are there. */
static void put_gradients(const writer *w, uint32_t gpu, uint32_t index)
{
    const rp_lower_unit *unit = rp_sharded_unit_at(w->s, gpu, index);
    const rp_op *op = rp_sharded_op_of(w->s, unit);
    rp_handle reduce = rp_sharded_extra_at(w->s, gpu, index)->reduce;
    if (!w->s->sharding->keeps_root) {
        return;
    }
    const rp_lowering *l = w->s->l;
    if (w->s->sharding->reductions != 0) {
        bool last = l->producers.forward_position[op->stage] == 0;
        put_passing_gradients(w, gpu, index, blocks_of(stage_of(w, op), w->sizes->gradient_bytes),
                              last ? root_of(w, w->sizes->gradient_bytes) : 0);
        return;
    }
    if (!rp_sharded_is_last_microbatch(w->s, op)) {
        return;
    }
    bool accumulates = l->schedule->microbatch_count > w->s->gpus;
    uint64_t whole = blocks_of(stage_of(w, op), w->sizes->gradient_bytes);
    uint64_t held = accumulates ? whole : largest_of(stage_of(w, op), w->sizes->gradient_bytes);
    uint32_t begin = backward_index(w, gpu, op, op->stage, gpu);
    put(w, RP_BUFFER_GRADIENT, gpu, held, rp_sharded_unit_at(w->s, gpu, begin)->compute_last,
        reduce);
    uint64_t root = root_of(w, w->sizes->gradient_bytes);
    if (l->producers.forward_position[op->stage] == 0) { /* the last stage of the backward */
        uint32_t head = l->schedule->backward_chain[0];
        uint32_t from = backward_index(w, gpu, op, head, gpu);
        put(w, RP_BUFFER_GRADIENT, gpu, root, rp_sharded_unit_at(w->s, gpu, from)->compute_last,
            reduce);
        whole += root;
    }
    rp_handle down = rp_sharded_extra_at(w->s, gpu, index)->shard_down;
    put(w, RP_BUFFER_GRADIENT, gpu, share(w, whole), reduce,
        down != RP_NO_HANDLE ? down : w->s->steps[op->iteration]);
}

/* Bytes of boundaries. Tensor parallel: a rank's share of most tensors of all ranks' tokens is as
 * large as the whole tensors of its own tokens; but boundaries and norms are whole, so they count
 * for all ranks' tokens. */
static uint64_t boundaries(const writer *w, uint64_t count, uint64_t sequences)
{
    uint64_t bytes = rp_lower_scaled(w->sizes->boundary_bytes, count * sequences);
    return w->tensor ? rp_lower_scaled(bytes, w->s->ranks) : bytes;
}

static uint64_t tape_of(const writer *w, uint64_t per_sequence, uint64_t sequences)
{
    uint64_t more = rp_lower_scaled(w->sizes->boundary_bytes, WHOLE_TAPE_BOUNDARIES * sequences);
    uint64_t bytes = rp_lower_scaled(per_sequence, sequences);
    return bytes + (w->tensor ? rp_lower_scaled(more, w->s->ranks - 1) : 0);
}

/* Tape of all layers of a stage at once. */
static uint64_t whole_tape(const writer *w, const rp_stage *stage, uint64_t sequences)
{
    uint64_t layers = stage->layer_end - stage->layer_begin;
    uint64_t tape = tape_of(w, blocks_of(stage, w->sizes->tape_bytes), sequences);
    tape += w->tensor && layers > 1 ? (layers - 1) * tape_of(w, 0, sequences) : 0;
    return layers > 0 ? tape : 0;
}

static void put_forward(const writer *w, uint32_t gpu, const rp_lower_unit *unit)
{
    const rp_lowering *l = w->s->l;
    const rp_op *op = rp_sharded_op_of(w->s, unit);
    const rp_stage *stage = stage_of(w, op);
    uint64_t sequences = l->sequences[op->microbatch];
    rp_handle release = rp_lower_kept_until(l, unit, RP_LOWER_WHOLE);
    if (!rp_recompute_has_ops(l->schedule->recompute)) {
        uint64_t rebuilt = rp_lower_scaled(blocks_of(stage, w->sizes->rebuilt_bytes), sequences);
        put(w, RP_BUFFER_TAPE, gpu, whole_tape(w, stage, sequences) - rebuilt, unit->compute_first,
            release);
    } else {
        uint64_t layers = stage->layer_end - stage->layer_begin;
        uint64_t inputs = boundaries(w, w->layers || layers == 0 ? layers : 1, sequences);
        put(w, RP_BUFFER_ACTIVATION, gpu, inputs, unit->compute_first, release);
    }
    if (has_head(w, op)) {
        uint64_t tape = rp_lower_at(w->sizes->tape_bytes, w->sizes->layers + 1);
        uint64_t logits = rp_lower_scaled(w->sizes->logits_bytes, sequences);
        logits = logits < w->sizes->logits_chunk_bytes ? logits : w->sizes->logits_chunk_bytes;
        /* FSDP frees a block's weights after its forward: the last block's weights are gone when
         * the head begins, which has no op of its own. */
        bool freed = w->s->sharding->keeps_root;
        uint64_t block = largest_of(stage, w->sizes->weight_bytes);
        logits = rp_lower_less(logits, freed ? block : 0);
        put(w, RP_BUFFER_LOGITS, gpu, logits, unit->compute_first, unit->compute_last);
        put(w, RP_BUFFER_TAPE, gpu,
            rp_lower_scaled(tape, sequences * (w->tensor ? w->s->ranks : 1)), unit->compute_first,
            unit->compute_last);
    }
}

/* The tape is counted without the input that has waited, which it contains. */
static void put_backward(const writer *w, uint32_t gpu, const rp_lower_unit *unit)
{
    const rp_lowering *l = w->s->l;
    const rp_op *op = rp_sharded_op_of(w->s, unit);
    const rp_stage *stage = stage_of(w, op);
    uint64_t sequences = l->sequences[op->microbatch];
    uint64_t tape = w->layers ? tape_of(w, largest_of(stage, w->sizes->tape_bytes), sequences)
                              : whole_tape(w, stage, sequences);
    uint64_t input = w->sizes->tape_input_bytes != 0 ? boundaries(w, 1, sequences) : 0;
    bool recomputes =
        rp_recompute_has_ops(l->schedule->recompute) && stage->layer_end > stage->layer_begin;
    uint64_t rebuilt = rp_lower_scaled(largest_of(stage, w->sizes->rebuilt_bytes), sequences);
    put(w, RP_BUFFER_TAPE, gpu, recomputes && tape > input ? tape - input : rebuilt,
        unit->compute_first, unit->compute_last);
    uint64_t temporary = largest_of(stage, w->sizes->temporary_bytes);
    put(w, RP_BUFFER_TEMPORARY, gpu, rp_lower_scaled(temporary, sequences), unit->compute_last,
        unit->compute_last);
}

rp_status rp_lower_add_sharded_buffers(const rp_lowering *l, rp_program *program)
{
    const rp_sharded *s = l->sharded;
    writer w = {.s = s,
                .sizes = &l->config->sizes,
                .program = program,
                .tensor = s->sharding->forward_reduces != 0,
                .gathers = s->sharding->forward_gathers != 0,
                .layers = l->config->grain == RP_GRAIN_LAYER};
    size_t most = (size_t)s->gpus * (5 + 5 * (size_t)l->schedule->iteration_count);
    most += (size_t)l->unit_count * 9 + 2 * (size_t)l->trip_count;
    RP_TRY(rp_arena_alloc_raw(program->arena, most, sizeof(rp_buffer), &program->buffers));
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        put_resident(&w, gpu);
        put_steps(&w, gpu);
        for (uint32_t i = 0; i < s->per_gpu; i++) {
            const rp_lower_unit *unit = rp_sharded_unit_at(s, gpu, i);
            put_gathered(&w, gpu, i);
            if (rp_sharded_is_backward(s, unit)) {
                put_backward(&w, gpu, unit);
                put_gradients(&w, gpu, i);
            } else {
                put_forward(&w, gpu, unit);
            }
        }
    }
    rp_lower_put_trips(l, program);
    return RP_OK;
}
