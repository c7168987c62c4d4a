/* The lowering of data-parallel systems: collectives, shards and the host's part of the step.
 *
 * All ranks run the same units in the same order, so the i-th units of all ranks belong together. A
 * collective begins when all ranks have come to it: each rank's part has the waits of every rank's
 * part. */
#include "common/lower/data_parallel_internal.h"

/* Bytes of a stage's layers below `limit`. */
static uint64_t stage_bytes_below(const rp_sharded *s, uint32_t stage, const uint64_t *per_layer,
                                  uint32_t limit)
{
    /* A pipeline's stage holds both directions: the first stage with the embedding, the last with
     * the head. */
    const rp_program *p = s->l->schedule;
    const rp_stage *of = &p->stages[stage];
    uint32_t begin = of->layer_begin + (p->forward_chain[0] == stage ? 0 : 1);
    uint32_t end = of->layer_end + 1 + ((of->roles & RP_STAGE_HEAD) != 0 ? 1 : 0);
    uint64_t bytes = 0;
    for (uint32_t layer = begin; layer < end && layer < limit; layer++) {
        bytes += per_layer[layer];
    }
    return bytes;
}

static uint64_t stage_bytes(const rp_sharded *s, uint32_t stage, const uint64_t *per_layer)
{
    return stage_bytes_below(s, stage, per_layer, UINT32_MAX);
}

/* Bytes that pass through each GPU: (n - 1) / n of all. */
static uint64_t collective_bytes(const rp_sharded *s, uint64_t bytes)
{
    return bytes * (s->ranks - 1) / s->ranks;
}

static rp_status add(const rp_sharded *s, uint32_t gpu, uint32_t queue, rp_op_kind kind,
                     const rp_op *like, uint64_t bytes, rp_handle *handle_out)
{
    rp_op op = {.microbatch = like->microbatch,
                .stage = like->stage,
                .iteration = like->iteration,
                .kind = (uint8_t)kind};
    return rp_assembly_add(s->l->assembly, gpu * RP_LOWER_QUEUES_PER_GPU + queue, &op, bytes,
                           handle_out);
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* Bytes that a gather of a stage's weights gathers. If the root (embedding, final norm and head) is
 * kept, it is gathered with the first stage. */
static uint64_t gathered_bytes(const rp_sharded *s, const rp_op *op, bool backward)
{
    const rp_program *p = s->l->schedule;
    const rp_sizes *sizes = &s->l->config->sizes;
    uint32_t limit = backward ? s->kept_from : UINT32_MAX;
    uint64_t bytes = stage_bytes_below(s, op->stage, sizes->weight_bytes, limit);
    bytes -=
        sizes->scale_bytes != NULL ? stage_bytes_below(s, op->stage, sizes->scale_bytes, limit) : 0;
    if (!s->sharding->keeps_root) {
        return bytes;
    }
    uint64_t head = sizes->weight_bytes[sizes->layers + 1];
    bool first = p->forward_chain[0] == op->stage;
    bool last = (p->stages[op->stage].roles & RP_STAGE_HEAD) != 0;
    bytes -= first ? sizes->weight_bytes[0] : 0;
    bytes -= last ? head : 0;
    return bytes + (first && !backward ? sizes->weight_bytes[0] + head : 0);
}

static rp_status add_gather(const rp_sharded *s, uint32_t gpu, uint32_t index)
{
    const rp_lower_unit *unit = rp_sharded_unit_at(s, gpu, index);
    rp_sharded_unit *extra = rp_sharded_extra_at(s, gpu, index);
    const rp_op *op = rp_sharded_op_of(s, unit);
    bool backward = rp_sharded_is_backward(s, unit);
    *extra =
        (rp_sharded_unit){RP_NO_HANDLE, RP_NO_HANDLE, RP_NO_HANDLE, RP_NO_HANDLE, RP_NO_HANDLE};
    uint32_t gathers = backward ? s->sharding->backward_gathers : s->sharding->forward_gathers;
    if (gathers == 0) {
        return RP_OK;
    }
    uint64_t weights = gathered_bytes(s, op, backward);
    if (weights == 0 && s->sharding->reuse_distance != 0) {
        return RP_OK; /* all weights are still there from the forward */
    }
    if (s->sharding->host_weights) {
        RP_TRY(add(s, gpu, RP_LOWER_PARAMS, RP_OP_UPLOAD_PARAMS, op, weights / s->ranks,
                   &extra->shard_up));
    }
    return add(s, gpu, RP_LOWER_PEER, RP_OP_ALL_GATHER, op, gathers * collective_bytes(s, weights),
               &extra->gather);
}

/* Bytes of a shard's gradients that go to the host, or with gpu_adds both ways. */
static uint64_t host_bytes(const rp_sharded *s, const rp_op *op, uint64_t gradients)
{
    if (!s->sharding->gpu_adds) {
        return gradients;
    }
    uint64_t fp32 = gradients / rp_dtype_bytes(s->l->config->sizes.dtype) * sizeof(float);
    uint64_t sums = rp_sharded_is_first_microbatch(s, op) ? gradients : 2 * gradients;
    return sums + (rp_sharded_is_last_microbatch(s, op) ? fp32 : 0);
}

static rp_status add_reduction(const rp_sharded *s, uint32_t gpu, const rp_op *op,
                               rp_sharded_unit *extra)
{
    uint32_t volumes = s->sharding->reductions;
    if (volumes == 0 && !rp_sharded_is_last_microbatch(s, op)) {
        return RP_OK; /* gradients accumulate on the GPU */
    }
    const rp_sizes *sizes = &s->l->config->sizes;
    uint64_t gradients = stage_bytes(s, op->stage, sizes->gradient_bytes);
    if (s->sharding->reduce_bytes != 0) {
        gradients = gradients / rp_dtype_bytes(sizes->dtype) * s->sharding->reduce_bytes;
    }
    rp_op_kind kind = volumes == 2 ? RP_OP_ALL_REDUCE : RP_OP_REDUCE_SCATTER;
    RP_TRY(add(s, gpu, RP_LOWER_PEER, kind, op,
               (volumes == 0 ? 1 : volumes) * collective_bytes(s, gradients), &extra->reduce));
    if (!s->sharding->host_gradients) {
        return RP_OK;
    }
    return add(s, gpu, RP_LOWER_DOWNLOAD, RP_OP_DOWNLOAD_PARAM_GRAD, op,
               host_bytes(s, op, gradients / s->ranks), &extra->shard_down);
}

/* Tensor parallel: adds the sums of the ranks inside a unit as a single collective after it. Its
 * bytes are those of the microbatch that all ranks work on: every rank's sequences together. */
static rp_status add_activation_reduces(const rp_sharded *s, uint32_t gpu, const rp_op *op,
                                        bool backward, rp_sharded_unit *extra)
{
    const rp_program *p = s->l->schedule;
    uint64_t reduces = rp_program_stage_reduces(p, s->sharding, op->stage, backward, p->recompute);
    uint64_t sequences = (uint64_t)s->ranks * s->l->sequences[op->microbatch];
    uint64_t bytes = s->l->config->sizes.boundary_bytes * sequences;
    return add(s, gpu, RP_LOWER_PEER, RP_OP_ALL_REDUCE, op,
               2 * reduces * collective_bytes(s, bytes), &extra->reduce);
}

static rp_status add_units(const rp_sharded *s, uint32_t begin, uint32_t end)
{
    /* Reductions with every microbatch delay the next gather, which is therefore issued before them
     * (BACKWARD_PRE and BACKWARD_POST of PyTorch's FSDP). */
    bool prefetch = s->sharding->overlap && s->sharding->reductions != 0;
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        for (uint32_t i = begin; i < end; i++) {
            rp_lower_unit *unit = rp_sharded_unit_at(s, gpu, i);
            rp_sharded_unit *extra = rp_sharded_extra_at(s, gpu, i);
            const rp_op *op = rp_sharded_op_of(s, unit);
            bool backward = rp_sharded_is_backward(s, unit);
            if (!prefetch || i == begin) {
                RP_TRY(add_gather(s, gpu, i));
            }
            RP_TRY(rp_lower_find_parts(s->l, unit));
            RP_TRY(
                rp_lower_add_compute(s->l, gpu * RP_LOWER_QUEUES_PER_GPU + RP_LOWER_COMPUTE, unit));
            if (prefetch && i + 1 < end) {
                RP_TRY(add_gather(s, gpu, i + 1));
            }
            if (s->sharding->forward_reduces != 0) {
                RP_TRY(add_activation_reduces(s, gpu, op, backward, extra));
            } else if (backward) {
                RP_TRY(add_reduction(s, gpu, op, extra));
            }
        }
    }
    return RP_OK;
}

/* Adds the host's collection of a stage's gradients of a microbatch per GPU, with all ranks' shards
 * together. */
static rp_status add_collects(const rp_sharded *s, uint32_t begin, uint32_t end)
{
    bool collects = s->sharding->host_collects && !s->sharding->gpu_adds;
    for (uint32_t i = begin; collects && i < end; i++) {
        rp_sharded_unit *first = rp_sharded_extra_at(s, 0, i);
        if (first->shard_down == RP_NO_HANDLE) {
            continue;
        }
        const rp_op *op = rp_sharded_op_of(s, rp_sharded_unit_at(s, 0, i));
        rp_op collect = {.kind = RP_OP_COLLECT, .iteration = op->iteration};
        uint64_t bytes = stage_bytes(s, op->stage, s->l->config->sizes.gradient_bytes);
        RP_TRY(rp_assembly_add(s->l->assembly, s->l->host_queue, &collect, bytes, &first->collect));
        for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
            rp_sharded_unit *extra = rp_sharded_extra_at(s, gpu, i);
            extra->collect = first->collect;
            RP_TRY(rp_assembly_wait(s->l->assembly, first->collect, extra->shard_down, false));
        }
    }
    return RP_OK;
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Lets all ranks meet: a collective waits for the same unit of every rank. */
static rp_status meet(const rp_sharded *s, rp_handle collective, uint32_t index)
{
    for (uint32_t gpu = 0; gpu < s->gpus && collective != RP_NO_HANDLE; gpu++) {
        RP_TRY(rp_assembly_wait(s->l->assembly, collective,
                                rp_sharded_unit_at(s, gpu, index)->compute_last, true));
    }
    return RP_OK;
}

static rp_status connect_gather(const rp_sharded *s, uint32_t gpu, uint32_t index)
{
    rp_assembly *a = s->l->assembly;
    const rp_sharded_unit *extra = rp_sharded_extra_at(s, gpu, index);
    /* No gather runs ahead into the other direction. A forward's root waits for the computation
     * before it (_root_pre_forward of PyTorch's FSDP), and a backward begins only after the loss,
     * which training loops read. */
    bool backward = rp_sharded_is_backward(s, rp_sharded_unit_at(s, gpu, index));
    bool turns =
        index > 0 && backward != rp_sharded_is_backward(s, rp_sharded_unit_at(s, gpu, index - 1));
    uint32_t ahead = s->sharding->overlap && !turns ? 2 : 1;
    RP_TRY(rp_assembly_wait(a, rp_sharded_unit_at(s, gpu, index)->compute_first, extra->gather,
                            false));
    if (index >= ahead) {
        RP_TRY(meet(s, extra->gather, index - ahead));
        RP_TRY(rp_assembly_wait(a, extra->shard_up,
                                rp_sharded_unit_at(s, gpu, index - ahead)->compute_last, true));
    }
    for (uint32_t other = 0; other < s->gpus; other++) { /* a gather needs all shards */
        RP_TRY(rp_assembly_wait(a, extra->gather, rp_sharded_extra_at(s, other, index)->shard_up,
                                other != gpu));
    }
    return RP_OK;
}

static rp_status connect_reduction(const rp_sharded *s, uint32_t gpu, uint32_t index)
{
    rp_assembly *a = s->l->assembly;
    const rp_sharded_unit *extra = rp_sharded_extra_at(s, gpu, index);
    RP_TRY(
        rp_assembly_wait(a, extra->reduce, rp_sharded_unit_at(s, gpu, index)->compute_last, false));
    RP_TRY(meet(s, extra->reduce, index));
    RP_TRY(rp_assembly_wait(a, extra->shard_down, extra->reduce, false));
    if (s->sharding->overlap || index + 1 == s->per_gpu) {
        return RP_OK;
    }
    /* Nothing overlaps: the next unit comes after all ops of this unit. */
    rp_handle next = rp_sharded_unit_at(s, gpu, index + 1)->compute_first;
    rp_handle next_gather = rp_sharded_extra_at(s, gpu, index + 1)->gather;
    rp_handle done = extra->collect != RP_NO_HANDLE      ? extra->collect
                     : extra->shard_down != RP_NO_HANDLE ? extra->shard_down
                                                         : extra->reduce;
    RP_TRY(rp_assembly_wait(a, next_gather, done, true));
    RP_TRY(rp_assembly_wait(a, rp_sharded_extra_at(s, gpu, index + 1)->shard_up, done, true));
    return rp_assembly_wait(a, next, done, true);
}

static rp_status connect_units(const rp_sharded *s)
{
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        for (uint32_t i = 0; i < s->per_gpu; i++) {
            RP_TRY(connect_gather(s, gpu, i));
            RP_TRY(connect_reduction(s, gpu, i));
        }
    }
    return RP_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

static uint64_t all_parameters(const rp_sharded *s)
{
    uint64_t parameters = 0;
    for (uint32_t i = 0; i < s->l->config->sizes.layers + 2; i++) {
        parameters += s->l->config->sizes.parameters[i];
    }
    return parameters;
}

static uint64_t all_weights(const rp_sharded *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->l->config->sizes.layers + 2; i++) {
        bytes += s->l->config->sizes.weight_bytes[i];
    }
    return bytes;
}

/* ZeRO-Offload: each GPU uploads its shard of the new weights, and all GPUs gather them. */
static rp_status add_refresh(const rp_sharded *s, uint32_t iteration)
{
    rp_assembly *a = s->l->assembly;
    uint64_t weights = all_weights(s);
    rp_op like = {.iteration = (uint16_t)iteration};
    rp_handle *ups = &s->uploaded[(size_t)iteration * s->gpus];
    rp_handle *gathers = &s->refreshed[(size_t)iteration * s->gpus];
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        RP_TRY(add(s, gpu, RP_LOWER_PARAMS, RP_OP_UPLOAD_PARAMS, &like, weights / s->ranks,
                   &ups[gpu]));
        RP_TRY(rp_assembly_wait(a, ups[gpu], s->steps[iteration], true));
        RP_TRY(add(s, gpu, RP_LOWER_PEER, RP_OP_ALL_GATHER, &like, collective_bytes(s, weights),
                   &gathers[gpu]));
    }
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        for (uint32_t other = 0; other < s->gpus; other++) {
            RP_TRY(rp_assembly_wait(a, gathers[gpu], ups[other], other != gpu));
        }
    }
    return RP_OK;
}

/* Number of trained parameters; the table of a tied head counts once. */
static uint64_t trained_parameters(const rp_sharded *s)
{
    const rp_sizes *sizes = &s->l->config->sizes;
    uint64_t bytes = 0;
    for (uint32_t i = sizes->tied_head ? 1 : 0; i < sizes->layers + 2; i++) {
        bytes += sizes->gradient_bytes[i];
    }
    return bytes / rp_dtype_bytes(sizes->dtype);
}

/* Adds the steps: each GPU steps its shard when its last gradients are there. */
static rp_status add_updates(const rp_sharded *s, uint32_t iteration)
{
    uint32_t last = (iteration + 1) * s->per_iteration - 1;
    rp_op like = {.stage = rp_sharded_op_of(s, rp_sharded_unit_at(s, 0, last))->stage,
                  .iteration = (uint16_t)iteration};
    uint64_t bytes =
        rp_lower_traffic(rp_lower_step_bytes(s->l).update, trained_parameters(s)) / s->ranks;
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        rp_handle *update = &s->updates[(size_t)iteration * s->gpus + gpu];
        RP_TRY(add(s, gpu, RP_LOWER_COMPUTE, RP_OP_UPDATE, &like, bytes, update));
        RP_TRY(rp_assembly_wait(s->l->assembly, *update, rp_sharded_extra_at(s, gpu, last)->reduce,
                                true));
        RP_TRY(rp_assembly_wait(s->l->assembly, s->steps[iteration], *update, true));
    }
    return RP_OK;
}

/* Adds the gather by which every GPU receives the weights that the others have stepped; the step
 * ends with it. */
static rp_status add_update_gathers(const rp_sharded *s, uint32_t iteration)
{
    uint64_t weights = 0; /* bytes of trained weights */
    for (uint32_t i = 0; i < s->l->config->sizes.layers + 2; i++) {
        weights += s->l->config->sizes.gradient_bytes[i];
    }
    rp_op like = {.iteration = (uint16_t)iteration};
    const rp_handle *updates = &s->updates[(size_t)iteration * s->gpus];
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        rp_handle gather = RP_NO_HANDLE;
        RP_TRY(add(s, gpu, RP_LOWER_PEER, RP_OP_ALL_GATHER, &like, collective_bytes(s, weights),
                   &gather));
        for (uint32_t other = 0; other < s->gpus; other++) {
            RP_TRY(rp_assembly_wait(s->l->assembly, gather, updates[other], true));
        }
        RP_TRY(rp_assembly_wait(s->l->assembly, s->steps[iteration], gather, true));
    }
    return RP_OK;
}

static rp_status add_step(const rp_sharded *s, uint32_t iteration)
{
    double each = s->sharding->host_optimizer ? rp_lower_step_bytes(s->l).adam : 0;
    each += s->sharding->host_collects && s->sharding->host_weights ? RP_ZERO3_STEP_BYTES : 0;
    uint64_t bytes = rp_lower_traffic(each, all_parameters(s));
    rp_op adam = {.kind = RP_OP_OPTIMIZER, .iteration = (uint16_t)iteration};
    RP_TRY(rp_assembly_add(s->l->assembly, s->l->host_queue, &adam, bytes, &s->steps[iteration]));
    if (!s->sharding->host_optimizer) {
        RP_TRY(add_updates(s, iteration));
        bool whole = s->sharding->forward_gathers == 0 && s->sharding->forward_reduces == 0;
        return whole ? add_update_gathers(s, iteration) : RP_OK;
    }
    return s->sharding->gather_after_step ? add_refresh(s, iteration) : RP_OK;
}

/* The step comes after all ops of its iteration, and the next iteration after the step.
 */
static rp_status connect_step(const rp_sharded *s, uint32_t iteration)
{
    rp_assembly *a = s->l->assembly;
    uint32_t last = (iteration + 1) * s->per_iteration - 1;
    for (uint32_t gpu = 0; gpu < s->gpus; gpu++) {
        const rp_sharded_unit *extra = rp_sharded_extra_at(s, gpu, last);
        RP_TRY(rp_assembly_wait(a, s->steps[iteration],
                                rp_sharded_unit_at(s, gpu, last)->compute_last, true));
        RP_TRY(rp_assembly_wait(a, s->steps[iteration], extra->reduce, true));
        RP_TRY(rp_assembly_wait(a, s->steps[iteration], extra->shard_down, true));
        if (last + 1 == s->per_gpu) {
            continue;
        }
        rp_handle ready = s->sharding->gather_after_step
                              ? s->refreshed[(size_t)iteration * s->gpus + gpu]
                              : s->steps[iteration];
        const rp_sharded_unit *next = rp_sharded_extra_at(s, gpu, last + 1);
        RP_TRY(
            rp_assembly_wait(a, rp_sharded_unit_at(s, gpu, last + 1)->compute_first, ready, true));
        RP_TRY(rp_assembly_wait(a, next->gather, s->steps[iteration], true));
        RP_TRY(rp_assembly_wait(a, next->shard_up, s->steps[iteration], true));
    }
    return RP_OK;
}

/* Adds iteration after iteration, because a queue has its ops in the order in which they run. */
static rp_status add_all(rp_sharded *s)
{
    uint32_t iterations = s->l->schedule->iteration_count;
    for (uint32_t i = 0; i < iterations; i++) {
        uint32_t begin = i * s->per_iteration;
        RP_TRY(add_units(s, begin, begin + s->per_iteration));
        RP_TRY(add_collects(s, begin, begin + s->per_iteration));
        RP_TRY(add_step(s, i));
    }
    RP_TRY(connect_units(s));
    for (uint32_t i = 0; i < iterations; i++) {
        RP_TRY(connect_step(s, i));
    }
    return RP_OK;
}

rp_status rp_lower_sharded(rp_lowering *l)
{
    rp_sharded *s = NULL;
    RP_TRY(rp_arena_alloc(l->arena, 1, sizeof *s, &s));
    *s = (rp_sharded){.l = l,
                      .sharding = &l->schedule->traits.sharding,
                      .gpus = l->schedule->gpu_count,
                      .ranks = rp_program_ranks(l->schedule),
                      .per_gpu = l->unit_count / l->schedule->gpu_count};
    const rp_sizes *sizes = &l->config->sizes;
    s->kept_from = rp_sharding_kept_from(s->sharding, l->schedule->recompute, sizes->weight_bytes,
                                         sizes->layers, rp_dtype_bytes(sizes->dtype));
    size_t iterations = l->schedule->iteration_count;
    s->per_iteration = s->per_gpu / l->schedule->iteration_count;
    RP_TRY(rp_arena_alloc(l->arena, l->unit_count, sizeof(rp_sharded_unit), &s->extra));
    RP_TRY(rp_arena_alloc(l->arena, iterations, sizeof(rp_handle), &s->steps));
    RP_TRY(rp_arena_alloc(l->arena, iterations * s->gpus, sizeof(rp_handle), &s->updates));
    RP_TRY(rp_arena_alloc(l->arena, iterations * s->gpus, sizeof(rp_handle), &s->uploaded));
    RP_TRY(rp_arena_alloc(l->arena, iterations * s->gpus, sizeof(rp_handle), &s->refreshed));
    l->sharded = s;
    return add_all(s);
}
