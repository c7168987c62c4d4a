/* Copies of a pipeline (schedules.md 17): they add up gradients, as a whole or in buckets while the
 * backward goes on, and share the state that ZeRO shards (Rajbhandari et al., SC 2020).
 *
 * A queue has the collectives in the order in which all copies come to them. Weights are gathered a
 * unit ahead of the compute (ZeRO-3), before the gradients of the running unit are reduced, so that
 * the next unit does not wait for these. */
#include "common/lower/lower_internal.h"

typedef struct rp_lower_bucket {
    uint64_t bytes;  /* bytes of its gradients */
    rp_handle from;  /* the op that computes the first of its gradients */
    rp_handle ready; /* the op that computes the last */
    uint32_t count;  /* number of successive reductions: a layer may have more than a bucket */
    rp_lower_family family;
    rp_handle reduce;
} rp_lower_bucket;

static const rp_layout *layout_of(const rp_lowering *l)
{
    return &l->schedule->traits.layout;
}

static const rp_op *unit_op(const rp_lowering *l, const rp_lower_unit *unit)
{
    return &l->schedule->ops[unit->last];
}

/* Number of GPUs that have the same parameters of a family; a shared expert is the same on few
 * GPUs. */
static uint32_t copies_of(const rp_lowering *l, rp_lower_family family)
{
    return family == RP_LOWER_EXPERTS ? rp_layout_replicas(layout_of(l))
                                      : rp_layout_data(layout_of(l));
}

static uint32_t queue_of(const rp_lowering *l, rp_lower_family family, uint32_t gpu)
{
    return (family == RP_LOWER_EXPERTS ? l->replica_queues : l->data_queues) + gpu;
}

/* @return whether the copies have collectives for a family. */
static bool is_shared(const rp_lowering *l, rp_lower_family family)
{
    return family == RP_LOWER_EXPERTS ? l->replica_queues != 0 : l->data_queues != 0;
}

uint64_t rp_lower_share(const rp_lowering *l, rp_lower_family family, uint32_t stage,
                        uint64_t bytes)
{
    uint64_t copies = copies_of(l, family);
    return rp_layout_zero(layout_of(l)) >= stage ? (bytes + copies - 1) / copies : bytes;
}

uint64_t rp_lower_reduced(const rp_lowering *l, uint64_t gradient_bytes)
{
    uint32_t each = layout_of(l)->gradient_bytes;
    return each != 0 ? gradient_bytes / rp_dtype_bytes(l->config->sizes.dtype) * each
                     : gradient_bytes;
}

bool rp_lower_keeps_gradients(const rp_lowering *l)
{
    return rp_layout_zero(layout_of(l)) < 2 || !layout_of(l)->reduces_each;
}

/* ---- which gradients are reduced ------------------------------------------------------------- */

static bool has_weight_gradients(const rp_lowering *l, const rp_lower_job *job)
{
    rp_op_kind kind = (rp_op_kind)unit_op(l, &l->units[job->first_unit])->kind;
    return (rp_op_kinds[kind].tensors & RP_TENSOR_PARAM_GRADIENT) != 0;
}

rp_status rp_lower_find_reductions(rp_lowering *l)
{
    const rp_program *p = l->schedule;
    rp_lower_job **last = NULL; /* [iteration][stage] the job with its last gradients */
    if (l->data_queues == 0 && l->replica_queues == 0) {
        return RP_OK;
    }
    RP_TRY(
        rp_arena_alloc(l->arena, (size_t)p->iteration_count * p->stage_count, sizeof *last, &last));
    for (uint32_t k = 0; k < l->job_count; k++) {
        rp_lower_job *job = &l->jobs[k];
        if (!has_weight_gradients(l, job)) {
            continue;
        }
        rp_lower_job **before = &last[(size_t)job->iteration * p->stage_count + job->stage];
        if (*before != NULL) {
            (*before)->reduces = layout_of(l)->reduces_each;
        }
        job->reduces = true;
        *before = job;
    }
    return RP_OK;
}

bool rp_lower_is_split(const rp_lowering *l, const rp_lower_unit *unit)
{
    return l->jobs[unit->job].reduces && layout_of(l)->reduction_bucket != 0;
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* The op of a unit that computes the gradients of a layer; layers are numbered as in sizes. */
static rp_handle gradients_of(const rp_lower_unit *unit, uint32_t layer)
{
    const rp_lower_part *ops = unit->split_count != 0 ? unit->splits : unit->parts;
    uint32_t count = unit->split_count != 0 ? unit->split_count : unit->part_count;
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].layer <= layer) { /* layers descend */
            return ops[i].last;
        }
    }
    return unit->compute_last; /* also gradients of the embedding */
}

/* Fills buckets from the last layer down, in the order of the gradients. A bucket is full when it
 * has `reduction_bucket` bytes. */
static void fill_buckets(const rp_lowering *l, rp_lower_family family, rp_lower_unit *unit)
{
    const rp_sizes *sizes = &l->config->sizes;
    uint64_t most = layout_of(l)->reduction_bucket;
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t bytes = 0;
    rp_lower_layers(l, l->jobs[unit->job].stage, true, &begin, &end);
    for (uint32_t layer = end; layer-- > begin;) {
        rp_lower_bucket *bucket = &unit->buckets[unit->bucket_count];
        bucket->from = bytes == 0 ? gradients_of(unit, layer) : bucket->from;
        bytes += rp_lower_reduced(
            l, rp_lower_of_family(l, family, sizes->gradient_bytes[layer],
                                  rp_lower_at(sizes->expert_gradient_bytes, layer)));
        if (bytes != 0 && (layer == begin || (most != 0 && bytes >= most))) {
            uint64_t count = most != 0 && bytes >= most ? bytes / most : 1;
            bucket->bytes = bytes;
            bucket->family = family;
            bucket->ready = gradients_of(unit, layer);
            bucket->count = count < UINT16_MAX ? (uint32_t)count : UINT16_MAX;
            unit->bucket_count++;
            bytes = 0;
        }
    }
}

static rp_status find_buckets(rp_lowering *l, rp_lower_unit *unit)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    rp_lower_layers(l, l->jobs[unit->job].stage, true, &begin, &end);
    RP_TRY(rp_arena_alloc(l->arena, RP_LOWER_FAMILIES * (size_t)(end - begin),
                          sizeof *unit->buckets, &unit->buckets));
    for (rp_lower_family f = RP_LOWER_DENSE; f < RP_LOWER_FAMILIES; f++) {
        if (is_shared(l, f)) {
            fill_buckets(l, f, unit);
        }
    }
    return RP_OK;
}

static rp_status add_reductions(rp_lowering *l, rp_lower_unit *unit)
{
    const rp_lower_job *job = &l->jobs[unit->job];
    bool scatters = rp_layout_zero(layout_of(l)) > 0;
    rp_op_kind kind = scatters ? RP_OP_REDUCE_SCATTER : RP_OP_ALL_REDUCE;
    size_t update = (size_t)job->iteration * l->schedule->gpu_count + job->gpu;
    RP_TRY(find_buckets(l, unit));
    for (uint32_t i = 0; i < unit->bucket_count; i++) {
        rp_lower_bucket *bucket = &unit->buckets[i];
        uint64_t bytes = rp_lower_ring_bytes(bucket->bytes, copies_of(l, bucket->family));
        uint32_t count = bucket->count > 1 ? bucket->count : 0;
        RP_TRY(rp_lower_add_collective(l, queue_of(l, bucket->family, job->gpu), kind,
                                       unit_op(l, unit), count, scatters ? bytes : 2 * bytes,
                                       &bucket->reduce));
        RP_TRY(rp_assembly_wait(l->assembly, bucket->reduce, bucket->ready, false));
        if (layout_of(l)->reduction_bucket == 0 && unit->reduce != RP_NO_HANDLE) {
            RP_TRY(rp_assembly_wait(l->assembly, bucket->reduce, unit->reduce, true));
        } /* the backward is over then */
        RP_TRY(rp_assembly_wait(l->assembly, l->update[update], bucket->reduce, true));
    }
    return RP_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* A weight part uses no weights: it multiplies gradients and inputs. */
static bool uses_weights(const rp_lowering *l, const rp_lower_unit *unit)
{
    return rp_layout_zero(layout_of(l)) == 3 && !rp_lower_is_weight(l, unit);
}

static uint64_t weight_bytes(const rp_lowering *l, rp_lower_family family, uint32_t stage)
{
    const rp_sizes *sizes = &l->config->sizes;
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t bytes = 0;
    rp_lower_layers(l, stage, true, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        bytes += rp_lower_of_family(l, family, sizes->weight_bytes[layer],
                                    rp_lower_at(sizes->expert_weight_bytes, layer));
    }
    return bytes;
}

/* Adds the gather of a unit's weights. Gathered weights belong to at most two units at a time: the
 * gather waits for the end of the unit second before. */
static rp_status add_gather(rp_lowering *l, rp_lower_family family, rp_lower_unit *unit,
                            const rp_lower_unit *second_before)
{
    const rp_lower_job *job = &l->jobs[unit->job];
    rp_handle *gather = &unit->gather[family];
    uint64_t all = weight_bytes(l, family, job->stage);
    uint64_t bytes = rp_lower_ring_bytes(all, copies_of(l, family));
    if (!is_shared(l, family) || all == 0) {
        return RP_OK;
    }
    RP_TRY(rp_lower_add_collective(l, queue_of(l, family, job->gpu), RP_OP_ALL_GATHER,
                                   unit_op(l, unit), 0, bytes, gather));
    RP_TRY(rp_assembly_wait(l->assembly, unit->compute_first, *gather, false));
    return second_before != NULL
               ? rp_assembly_wait(l->assembly, *gather, second_before->compute_last, true)
               : RP_OK;
}

/* Adds the gather of the weights that the copies have stepped; sharded weights are instead gathered
 * at their use. */
static rp_status add_update_gather(rp_lowering *l, rp_lower_family family, uint32_t gpu,
                                   const rp_lower_job *job)
{
    size_t index = (size_t)job->iteration * l->schedule->gpu_count + gpu;
    rp_handle *updated = &l->updated[rp_lower_family_index(l, job->iteration, gpu, family)];
    uint32_t zero = rp_layout_zero(layout_of(l));
    uint64_t trained = l->trained_bytes[rp_lower_family_index(l, 0, gpu, family)];
    const rp_op like = {.stage = job->stage, .iteration = job->iteration};
    if (zero == 0 || zero == 3 || !is_shared(l, family) || trained == 0) {
        return RP_OK;
    }
    uint64_t bytes = rp_lower_ring_bytes(trained, copies_of(l, family));
    RP_TRY(rp_lower_add_collective(l, queue_of(l, family, gpu), RP_OP_ALL_GATHER, &like, 0, bytes,
                                   updated));
    return rp_assembly_wait(l->assembly, *updated, l->update[index], true);
}

/* ---- in the order of a GPU's queue ----------------------------------------------------------- */

typedef struct copies_walk {
    rp_lowering *l;
    uint32_t gpu;
    uint32_t next;                   /* first job whose weights have not been gathered */
    const rp_lower_unit *used[2];    /* the last two units with gathered weights, oldest first */
    const rp_lower_unit *reduced[2]; /* the last two with reduced gradients, oldest first */
} copies_walk;

/* Gathers for the next unit of the iteration that uses weights. */
static rp_status gather_ahead(copies_walk *w, uint16_t iteration)
{
    rp_lowering *l = w->l;
    while (w->next < l->job_begin[w->gpu + 1] && l->jobs[w->next].iteration == iteration) {
        rp_lower_unit *unit = &l->units[l->jobs[w->next++].first_unit];
        if (uses_weights(l, unit)) {
            RP_TRY(add_gather(l, RP_LOWER_DENSE, unit, w->used[0]));
            RP_TRY(add_gather(l, RP_LOWER_EXPERTS, unit, w->used[0]));
            w->used[0] = w->used[1];
            w->used[1] = unit;
            return RP_OK;
        }
    }
    return RP_OK;
}

/* Adds the reductions of a unit. Gradients that are not kept exist for at most two units at a
 * time. */
static rp_status reduce(copies_walk *w, rp_lower_unit *unit)
{
    RP_TRY(add_reductions(w->l, unit));
    const rp_lower_unit *before = w->reduced[0];
    w->reduced[0] = w->reduced[1];
    w->reduced[1] = unit;
    if (rp_lower_keeps_gradients(w->l) || before == NULL) {
        return RP_OK;
    }
    for (uint32_t i = 0; i < before->bucket_count; i++) {
        RP_TRY(
            rp_assembly_wait(w->l->assembly, unit->compute_first, before->buckets[i].reduce, true));
    }
    return RP_OK;
}

rp_status rp_lower_add_copies(rp_lowering *l, uint32_t gpu)
{
    copies_walk w = {.l = l, .gpu = gpu, .next = l->job_begin[gpu]};
    bool shards = rp_layout_zero(layout_of(l)) == 3;
    bool meet = l->data_queues != 0 || l->replica_queues != 0;
    for (uint32_t k = w.next; meet && k < l->job_begin[gpu + 1]; k++) {
        const rp_lower_job *job = &l->jobs[k];
        rp_lower_unit *unit = &l->units[job->first_unit];
        bool first = k == l->job_begin[gpu] || job[-1].iteration != job->iteration;
        bool last = k + 1 == l->job_begin[gpu + 1] || job[1].iteration != job->iteration;
        RP_TRY(shards && first ? gather_ahead(&w, job->iteration) : RP_OK);
        RP_TRY(uses_weights(l, unit) ? gather_ahead(&w, job->iteration) : RP_OK);
        RP_TRY(job->reduces ? reduce(&w, unit) : RP_OK);
        for (rp_lower_family f = RP_LOWER_DENSE; last && f < RP_LOWER_FAMILIES; f++) {
            RP_TRY(add_update_gather(l, f, gpu, job));
        }
    }
    return RP_OK;
}

/* ---- buffers --------------------------------------------------------------------------------- */

size_t rp_lower_copies_buffers(const rp_lowering *l)
{
    size_t most = 0;
    for (uint32_t u = 0; u < l->unit_count; u++) {
        most += RP_LOWER_FAMILIES + (size_t)l->units[u].bucket_count;
    }
    return rp_layout_zero(layout_of(l)) >= 2 ? most : 0;
}

void rp_lower_put_copies(const rp_lowering *l, rp_program *program, const rp_lower_unit *unit)
{
    const rp_lower_job *job = &l->jobs[unit->job];
    for (rp_lower_family f = RP_LOWER_DENSE; f < RP_LOWER_FAMILIES; f++) {
        if (unit->gather[f] != RP_NO_HANDLE) {
            rp_lower_put(l, program, RP_BUFFER_WEIGHT, job->gpu, weight_bytes(l, f, job->stage),
                         unit->gather[f], unit->compute_last);
        }
    }
    for (uint32_t i = 0; !rp_lower_keeps_gradients(l) && i < unit->bucket_count; i++) {
        const rp_lower_bucket *bucket = &unit->buckets[i];
        rp_lower_put(l, program, RP_BUFFER_GRADIENT, job->gpu, bucket->bytes, bucket->from,
                     bucket->reduce);
    }
}
