/* Collectives of a layout (schedules.md 16). A GPU of the program stands for a tensor group times a
 * data group of GPUs that do the same, so it has one op where all of them meet. */
#include "common/base/log.h"
#include "common/lower/lower_internal.h"

/* All-reduces of a boundary tensor that a layer has in each direction (Megatron-LM, arXiv
 * 1909.08053, section 3); a recompute has those of the forward again. */
static const rp_sharding tensor_reduces = {.forward_reduces = 2, .backward_reduces = 2};

static const rp_layout *layout_of(const rp_lowering *l)
{
    return &l->schedule->traits.layout;
}

/* Bytes of an all-reduce that pass through each GPU of a ring of `ranks`. */
static uint64_t all_reduce_bytes(uint64_t bytes, uint32_t ranks)
{
    return 2 * (bytes * (ranks - 1) / ranks);
}

uint32_t rp_lower_group_queues(const rp_lowering *l)
{
    uint32_t axes = (rp_layout_tensor(layout_of(l)) > 1 ? 1 : 0) +
                    (rp_layout_data(layout_of(l)) > 1 ? 1 : 0);
    return axes * l->schedule->gpu_count;
}

void rp_lower_set_group_queues(rp_lowering *l, uint32_t first, rp_queue *queues)
{
    uint32_t gpus = l->schedule->gpu_count;
    uint32_t next = first;
    if (rp_layout_tensor(layout_of(l)) > 1) {
        l->tensor_queues = next;
        next += gpus;
    }
    l->data_queues = rp_layout_data(layout_of(l)) > 1 ? next : 0;
    for (uint32_t gpu = 0; gpu < gpus; gpu++) {
        if (l->tensor_queues != 0) {
            queues[l->tensor_queues + gpu] =
                (rp_queue){.gpu = (uint16_t)gpu, .kind = RP_QUEUE_TENSOR};
        }
        if (l->data_queues != 0) {
            queues[l->data_queues + gpu] = (rp_queue){.gpu = (uint16_t)gpu, .kind = RP_QUEUE_DATA};
        }
    }
}

static rp_status add_all_reduce(rp_lowering *l, uint32_t queue, const rp_op *like, uint32_t count,
                                uint64_t bytes, rp_handle *handle_out)
{
    rp_op op = {.microbatch = like->microbatch,
                .stage = like->stage,
                .iteration = like->iteration,
                .kind = RP_OP_ALL_REDUCE,
                .layer = (uint16_t)count};
    return rp_assembly_add(l->assembly, queue, &op, bytes, handle_out);
}

rp_status rp_lower_add_tensor_reduce(rp_lowering *l, rp_lower_unit *unit)
{
    unit->reduce = RP_NO_HANDLE;
    if (l->tensor_queues == 0 || rp_lower_is_weight(l, unit)) {
        return RP_OK;
    }
    const rp_op *op = &l->schedule->ops[unit->last];
    const rp_stage *stage = &l->schedule->stages[op->stage];
    const rp_lower_job *job = &l->jobs[unit->job];
    bool first = l->producers.forward_position[op->stage] == 0;
    bool head = (stage->roles & RP_STAGE_HEAD) != 0;
    bool recomputes = l->schedule->ops[unit->first].kind == RP_OP_RECOMPUTE;
    uint32_t count = (stage->layer_end - stage->layer_begin) *
                     rp_sharding_reduces(&tensor_reduces, job->backward,
                                         recomputes ? l->schedule->recompute : RP_RECOMPUTE_NONE);
    count += job->backward ? (head ? 1 : 0) : (first ? 1 : 0); /* of head and embedding */
    if (count > UINT16_MAX) {
        rp_log_error("--tensor-parallel: a stage of %u layers has %u all-reduces; valid are stages "
                     "with up to %u",
                     stage->layer_end - stage->layer_begin, count, UINT16_MAX);
        return RP_USAGE;
    }
    if (count == 0) {
        return RP_OK;
    }
    uint64_t boundary = l->config->sizes.boundary_bytes * l->sequences[op->microbatch];
    uint64_t bytes = count * all_reduce_bytes(boundary, rp_layout_tensor(layout_of(l)));
    RP_TRY(add_all_reduce(l, l->tensor_queues + job->gpu, op, count, bytes, &unit->reduce));
    return rp_assembly_wait(l->assembly, unit->reduce, unit->compute_last, false);
}

/* ---- copies -----------------------------------------------------------------------------------
 */

static bool has_weight_gradients(const rp_lowering *l, const rp_lower_unit *unit)
{
    rp_op_kind kind = (rp_op_kind)l->schedule->ops[unit->last].kind;
    return (rp_op_kinds[kind].tensors & RP_TENSOR_PARAM_GRADIENT) != 0;
}

static uint64_t gradient_bytes(const rp_lowering *l, uint32_t stage)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t bytes = 0;
    rp_lower_layers(l, stage, true, &begin, &end);
    for (uint32_t layer = begin; layer < end; layer++) {
        bytes += l->config->sizes.gradient_bytes[layer];
    }
    return bytes;
}

rp_status rp_lower_add_data_reduces(rp_lowering *l, uint32_t gpu)
{
    const rp_program *p = l->schedule;
    uint32_t *last = NULL; /* [iteration][stage] the job with its last gradients */
    size_t count = (size_t)p->iteration_count * p->stage_count;
    if (l->data_queues == 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(l->arena, count, sizeof *last, &last));
    for (uint32_t k = l->job_begin[gpu]; k < l->job_begin[gpu + 1]; k++) {
        const rp_lower_job *job = &l->jobs[k];
        if (has_weight_gradients(l, &l->units[job->first_unit])) {
            last[(size_t)job->iteration * p->stage_count + job->stage] = k + 1;
        }
    }
    for (uint32_t k = l->job_begin[gpu]; k < l->job_begin[gpu + 1]; k++) {
        const rp_lower_job *job = &l->jobs[k];
        const rp_lower_unit *unit = &l->units[job->first_unit];
        rp_handle reduce;
        if (last[(size_t)job->iteration * p->stage_count + job->stage] != k + 1) {
            continue;
        }
        uint64_t bytes =
            all_reduce_bytes(gradient_bytes(l, job->stage), rp_layout_data(layout_of(l)));
        RP_TRY(add_all_reduce(l, l->data_queues + gpu, &p->ops[unit->last], 0, bytes, &reduce));
        RP_TRY(rp_assembly_wait(l->assembly, reduce, unit->compute_last, false));
        RP_TRY(rp_assembly_wait(l->assembly,
                                l->update[(size_t)job->iteration * p->gpu_count + gpu], reduce,
                                true));
    }
    return RP_OK;
}
