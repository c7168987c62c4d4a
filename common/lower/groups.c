/* Collectives of a layout (schedules.md 16). A GPU of the program stands for a tensor group times a
 * data group of GPUs that do the same work, so a collective of these GPUs is a single op. */
#include "common/base/log.h"
#include "common/lower/lower_internal.h"

/* All-reduces of a boundary tensor that a layer has in each direction (Megatron-LM, arXiv
 * 1909.08053, section 3); a recompute has those of the forward again. */
static const rp_sharding tensor_reduces = {.forward_reduces = 2, .backward_reduces = 2};

static const rp_layout *layout_of(const rp_lowering *l)
{
    return &l->schedule->traits.layout;
}

/* Groups of several GPUs, and the first of their queues. */
typedef struct group_axis {
    rp_queue_kind kind;
    uint32_t gpus;
    uint32_t *queues;
} group_axis;

#define AXES 4

static void list_axes(rp_lowering *l, group_axis axes[static AXES])
{
    const rp_layout *layout = layout_of(l);
    bool experts = rp_layout_expert(layout) > 1;
    axes[0] = (group_axis){RP_QUEUE_TENSOR, rp_layout_tensor(layout), &l->tensor_queues};
    axes[1] = (group_axis){RP_QUEUE_DATA, rp_layout_data(layout), &l->data_queues};
    axes[2] = (group_axis){RP_QUEUE_EXPERT, rp_layout_expert(layout), &l->expert_queues};
    axes[3] = (group_axis){RP_QUEUE_REPLICA, experts ? rp_layout_replicas(layout) : 1,
                           &l->replica_queues};
}

uint32_t rp_lower_group_queues(rp_lowering *l)
{
    group_axis axes[AXES];
    uint32_t count = 0;
    if (rp_server_copies(&l->schedule->traits) > 1) {
        return 1;
    }
    list_axes(l, axes);
    for (int i = 0; i < AXES; i++) {
        count += axes[i].gpus > 1 ? l->schedule->gpu_count : 0;
    }
    return count;
}

void rp_lower_set_group_queues(rp_lowering *l, uint32_t first, rp_queue *queues)
{
    group_axis axes[AXES];
    if (rp_server_copies(&l->schedule->traits) > 1) {
        l->network_queue = first;
        queues[first] = (rp_queue){.kind = RP_QUEUE_NETWORK};
        return;
    }
    list_axes(l, axes);
    for (int i = 0; i < AXES; i++) {
        *axes[i].queues = axes[i].gpus > 1 ? first : 0;
        for (uint32_t gpu = 0; axes[i].gpus > 1 && gpu < l->schedule->gpu_count; gpu++) {
            queues[first++] = (rp_queue){.gpu = (uint16_t)gpu, .kind = (uint16_t)axes[i].kind};
        }
    }
}

rp_status rp_lower_add_collective(rp_lowering *l, uint32_t queue, rp_op_kind kind,
                                  const rp_op *like, uint32_t count, uint64_t bytes,
                                  rp_handle *handle_out)
{
    rp_op op = {.microbatch = like->microbatch,
                .stage = like->stage,
                .iteration = like->iteration,
                .kind = (uint8_t)kind,
                .part = (uint16_t)count};
    return rp_assembly_add(l->assembly, queue, &op, bytes, handle_out);
}

/* @return whether the GPUs of a tensor group have whole boundary tensors and send them in parts. */
static bool scatters(const rp_lowering *l)
{
    return l->schedule->traits.scatter_gather && rp_layout_tensor(layout_of(l)) > 1 &&
           !layout_of(l)->sequence_parallel;
}

uint64_t rp_lower_sent_bytes(const rp_lowering *l)
{
    uint64_t boundary = l->config->sizes.boundary_bytes;
    uint32_t ranks = rp_layout_tensor(layout_of(l));
    return scatters(l) ? (boundary + ranks - 1) / ranks : boundary;
}

/* Transfers of a unit's tokens to the experts of its mixtures and back, called ways. */
typedef struct dispatches {
    uint32_t ways;
    uint64_t bytes;    /* bytes that leave a GPU for the others that share the experts */
    uint64_t gathered; /* bytes of a way through each GPU of a group that shares each expert */
    uint32_t unsummed; /* sums of a tensor group that these ways replace */
} dispatches;

/* Each way occurs once in the forward, in the backward and in the recompute: (E - 1) / E of k
 * copies of each token leave the GPU (Lepikhin et al., GShard, 2020, section 3.2). GPUs of a tensor
 * group send a part of the tokens each. If they share each expert, they gather the tokens that all
 * of them have received, and scatter sums before the tokens go back (Megatron Core's all-to-all
 * dispatcher). */
static dispatches count_dispatches(const rp_lowering *l, const rp_lower_unit *unit)
{
    const rp_op *op = &l->schedule->ops[unit->last];
    const rp_stage *stage = &l->schedule->stages[op->stage];
    const rp_sizes *sizes = &l->config->sizes;
    uint32_t tensor = rp_layout_tensor(layout_of(l));
    uint32_t sharing = rp_layout_expert_tensor(layout_of(l));
    uint32_t each = rp_lower_recomputes(l, unit) ? 4 : 2;
    dispatches sent = {0};
    for (uint32_t layer = stage->layer_begin + 1;
         l->expert_queues != 0 && layer <= stage->layer_end; layer++) {
        uint64_t tokens = rp_lower_scaled(rp_lower_at(sizes->dispatch_bytes, layer),
                                          l->sequences[op->microbatch]);
        bool alone = tokens != 0 && tensor > 1 && !sizes->shared_experts[layer];
        sent.bytes += each * rp_lower_ring_bytes(tokens, rp_layout_expert(layout_of(l)));
        sent.gathered += each / 2 * rp_lower_ring_bytes(tokens * sharing, sharing);
        sent.ways += tokens != 0 ? each : 0;
        sent.unsummed += alone ? each / 2 : 0;
    }
    return sent;
}

/* Sums of a unit over its tensor group, or with shared tokens the scatters and gathers in their
 * place: around each matrix that GPUs share a gather comes before and a scatter behind (Korthikanti
 * et al., 2022, section 4.2.2), and so in the backward. The embedding has a scatter behind it, the
 * head a gather before it; their backwards have the other collective each. */
typedef struct group_calls {
    uint32_t sums;
    uint32_t scatters;
    uint32_t gathers;
} group_calls;

static group_calls count_calls(const rp_lowering *l, const rp_lower_unit *unit,
                               const dispatches *sent)
{
    const rp_op *op = &l->schedule->ops[unit->last];
    const rp_stage *stage = &l->schedule->stages[op->stage];
    const rp_lower_job *job = &l->jobs[unit->job];
    uint32_t first = l->producers.forward_position[op->stage] == 0 ? 1 : 0;
    uint32_t head = (stage->roles & RP_STAGE_HEAD) != 0 ? 1 : 0;
    uint32_t layers = (stage->layer_end - stage->layer_begin) *
                          rp_sharding_reduces(&tensor_reduces, job->backward,
                                              rp_lower_recomputes(l, unit) ? l->schedule->recompute
                                                                           : RP_RECOMPUTE_NONE) -
                      sent->unsummed;
    if (layout_of(l)->sequence_parallel) {
        return (group_calls){.scatters = layers + (job->backward ? head : first),
                             .gathers = layers + (job->backward ? first : head)};
    }
    return (group_calls){.sums = layers + (job->backward ? head : first)};
}

static rp_status check_calls(const rp_lowering *l, const rp_lower_unit *unit, const char *setting,
                             uint32_t count)
{
    const rp_stage *stage = &l->schedule->stages[l->schedule->ops[unit->last].stage];
    if (count > UINT16_MAX) {
        return rp_refuse_setting(l->reason, RP_USAGE, setting,
                                 "a stage of %u layers has %u collectives; valid are stages with "
                                 "up to %u",
                                 stage->layer_end - stage->layer_begin, count, UINT16_MAX);
    }
    return RP_OK;
}

/* Adds the dispatches of a unit behind the collectives of its tensor group. */
static rp_status add_dispatches(rp_lowering *l, rp_lower_unit *unit, const dispatches *sent)
{
    const rp_op *op = &l->schedule->ops[unit->last];
    rp_handle before = unit->reduce;
    RP_TRY(check_calls(l, unit, "expert_parallel", sent->ways));
    if (sent->ways == 0) {
        return RP_OK;
    }
    RP_TRY(rp_lower_add_collective(l, l->expert_queues + l->jobs[unit->job].gpu, RP_OP_ALL_TO_ALL,
                                   op, sent->ways, sent->bytes, &unit->reduce));
    RP_TRY(rp_assembly_wait(l->assembly, unit->reduce, unit->compute_last, false));
    return before != RP_NO_HANDLE ? rp_assembly_wait(l->assembly, unit->reduce, before, true)
                                  : RP_OK;
}

/* Adds collectives of a tensor group: of the whole boundary tensor, of which each GPU has a part if
 * they share tokens, and of tokens for experts. */
static rp_status add_calls(rp_lowering *l, rp_lower_unit *unit, rp_op_kind kind, uint32_t count,
                           const dispatches *sent)
{
    const rp_op *op = &l->schedule->ops[unit->last];
    uint32_t ranks = rp_layout_tensor(layout_of(l));
    uint64_t boundary = l->config->sizes.boundary_bytes * rp_layout_sequence(layout_of(l)) *
                        l->sequences[op->microbatch];
    bool sums = rp_op_kind_passes(kind) > 1;
    uint64_t bytes = count * rp_lower_ring_bytes(boundary, ranks) * rp_op_kind_passes(kind) +
                     (sums ? 0 : sent->gathered);
    count += sent->gathered != 0 && !sums ? sent->ways / 2 : 0;
    RP_TRY(check_calls(l, unit, "tensor_parallel", count));
    if (count == 0) {
        return RP_OK;
    }
    if (sums && unit->received && scatters(l)) { /* gathers the tensor that it received in parts */
        bytes += rp_lower_ring_bytes(boundary, ranks);
    }
    RP_TRY(rp_lower_add_collective(l, l->tensor_queues + l->jobs[unit->job].gpu, kind, op, count,
                                   bytes, &unit->reduce));
    return rp_assembly_wait(l->assembly, unit->reduce, unit->compute_last, false);
}

rp_status rp_lower_add_tensor_reduce(rp_lowering *l, rp_lower_unit *unit)
{
    unit->reduce = RP_NO_HANDLE;
    if (rp_lower_is_weight(l, unit)) {
        return RP_OK;
    }
    const dispatches sent = count_dispatches(l, unit);
    if (l->tensor_queues != 0) {
        group_calls calls = count_calls(l, unit, &sent);
        RP_TRY(add_calls(l, unit, RP_OP_ALL_REDUCE, calls.sums, &sent));
        RP_TRY(add_calls(l, unit, RP_OP_REDUCE_SCATTER, calls.scatters, &sent));
        RP_TRY(add_calls(l, unit, RP_OP_ALL_GATHER, calls.gathers, &sent));
    }
    return add_dispatches(l, unit, &sent);
}
