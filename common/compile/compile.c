#include "common/compile/compile.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/inputs/stacks/sizes.h"
#include "common/inputs/types/stored.h"
#include "common/roofline/roofline.h"
#include "common/schedule/build.h"
#include "common/schedule/even.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Bytes per logit of an unfused fp32 cross-entropy at its peak, the backward of log-softmax
 * (sim/model.md section 4): its fp32 result and the gradients of result and input; the fp32 copy of
 * the logits is already freed. The 16-bit logits are still allocated if the loop over the batches
 * keeps the model's output. */
#define UNFUSED_LOGIT_BYTES 14u
#define UNFUSED_LOGIT_DROPPED_BYTES 12u /* FSDP and Megatron's pipeline free the 16-bit logits */
#define UNFUSED_LOGIT_TENSOR_BYTES 8u   /* Megatron's loss over a vocabulary that is split */

/* True for Megatron-LM's pipeline and tensor parallelism. */
static bool is_megatron(const rp_traits *traits)
{
    bool pipeline = traits->placement == RP_PLACEMENT_RESIDENT && traits->unfused_loss;
    return pipeline || rp_cuts_layers(traits);
}

static uint64_t logit_bytes(const rp_traits *traits)
{
    if (rp_cuts_layers(traits) || rp_layout_tensor(&traits->layout) > 1) {
        return UNFUSED_LOGIT_TENSOR_BYTES;
    }
    bool dropped = traits->placement == RP_PLACEMENT_RESIDENT || traits->sharding.keeps_root;
    return dropped ? UNFUSED_LOGIT_DROPPED_BYTES : UNFUSED_LOGIT_BYTES;
}

rp_types rp_compile_types(const rp_traits *traits, rp_dtype dtype)
{
    rp_types types = traits->types;
    bool host = traits->placement == RP_PLACEMENT_OFFLOAD || traits->sharding.host_optimizer;
    if (types.master == RP_MASTER_BF16 && dtype == RP_DTYPE_BF16 && !host) {
        types.master = RP_MASTER_NONE;
    }
    return types;
}

double rp_compile_step_passes(const rp_traits *traits, rp_dtype dtype, double step_bytes)
{
    const rp_types types = rp_compile_types(traits, dtype);
    double many = 1u << 20; /* parameters: as those of a large tensor */
    double states = (double)rp_states_bytes((rp_states)types.states, (uint64_t)many) / many;
    double update = rp_step_bytes_of(&types, states).update;
    return (update + (step_bytes - RP_GPU_ADAM_BYTES)) / update;
}

rp_status rp_compile_sizes(const rp_traits *traits, const rp_model *model, uint32_t seq_len,
                           rp_dtype dtype, rp_arena *arena, rp_sizes *sizes_out)
{
    const rp_types types = rp_compile_types(traits, dtype);
    RP_TRY(rp_sizes_of_types(model, seq_len, dtype, &types, arena, sizes_out));
    sizes_out->fp32_gradients = is_megatron(traits) && types.master == RP_MASTER_F32;
    if (model->fused_loss) { /* logits and their gradient, of a whole microbatch */
        sizes_out->logits_bytes = 2 * rp_dtype_bytes(dtype) * seq_len * (uint64_t)model->vocab;
        sizes_out->logits_chunk_bytes = UINT64_MAX;
        sizes_out->unfused_loss = true;
    } else if (traits->unfused_loss) { /* the whole microbatch at once */
        sizes_out->logits_bytes = logit_bytes(traits) * seq_len * model->vocab;
        sizes_out->logits_chunk_bytes = UINT64_MAX;
        sizes_out->unfused_loss = true;
    }
    return RP_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static rp_status check_rounds(const rp_resolved *config, rp_reason *reason)
{
    const char *name = config->schedule->name;
    uint32_t all = rp_resolved_microbatches(config);
    uint32_t round = rp_resolved_round(config);
    if (round < config->decided.microbatches && !config->schedule->rounds) {
        return rp_refuse(
            reason, RP_USAGE,
            "{round}: %s has no rounds; valid with schedules that have them (roundpipe)", name);
    }
    if (config->decided.accumulate > 1 && config->decided.microbatches % round != 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{round}: calls of %u microbatches are no whole rounds of %u; valid with "
                         "{accumulate} are divisors of {microbatches}, and all",
                         config->decided.microbatches, round);
    }
    if (config->schedule->traits.overlapping_rounds && all % round != 0) {
        return rp_refuse(
            reason, RP_USAGE,
            "{round}: %u microbatches of a step are no whole rounds of %u, and %s makes "
            "all rounds equal; valid are divisors of that number, and all",
            all, round, name);
    }
    return RP_OK;
}

rp_status rp_compile_check_grain(const rp_schedule_type *schedule, rp_recompute recompute,
                                 bool layer_grain, bool recompute_given, bool *idle_out,
                                 rp_reason *reason)
{
    *idle_out = false;
    if (!layer_grain || rp_recompute_has_ops(recompute)) {
        return RP_OK;
    }
    if (recompute == RP_RECOMPUTE_SELECTIVE) {
        return rp_refuse(reason, RP_USAGE,
                         "{grain}: backwards run parts of each layer again, never a layer; valid "
                         "are {recompute} wait and early");
    }
    if (!recompute_given) {
        *idle_out = true;
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE,
                     "{grain}: %s recomputes nothing here; valid are {recompute} wait and early",
                     schedule->name);
}

void rp_compile_warn_of_grain(const rp_schedule_type *schedule)
{
    rp_log_warning("{grain}: %s recomputes nothing unless {recompute} wait or early says so; "
                   "layer changes nothing",
                   schedule->name);
}

rp_status rp_compile_check_recompute(const rp_schedule_type *schedule, rp_recompute recompute,
                                     const rp_stack *stack, rp_reason *reason)
{
    if (recompute == RP_RECOMPUTE_SELECTIVE && rp_stack_again(stack) == 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{recompute}: software of stack %s recomputes whole layers or nothing; "
                         "valid are none, wait and early, and stacks with the key selective",
                         stack->name);
    }
    if (schedule == NULL || rp_recompute_has_ops(recompute) || !schedule->separate_backward) {
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE,
                     "{recompute}: a backward of %s runs on another GPU than its forward and finds "
                     "nothing there but the stage's input; valid on hardware are wait and early",
                     schedule->name);
}

rp_status rp_compile_check_offload(const rp_schedule_type *schedule, bool offload_activations,
                                   rp_reason *reason)
{
    if (!offload_activations) {
        return RP_OK;
    }
    if (rp_cuts_layers(&schedule->traits)) {
        return rp_refuse(reason, RP_USAGE,
                         "{offload_activations}: %s is slices of microbatches, which stay; valid "
                         "with {tensor_parallel} of other pipelines (megatron-pp)",
                         schedule->name);
    }
    if (schedule->traits.placement == RP_PLACEMENT_OFFLOAD) {
        return rp_refuse(reason, RP_USAGE,
                         "{offload_activations}: %s has its saved inputs in host memory already; "
                         "valid with pipelines whose weights stay on their GPUs (megatron-pp, "
                         "1f1b, zbv and others), fsdp and zero",
                         schedule->name);
    }
    return RP_OK;
}

/* ---- reductions ------------------------------------------------------------------------------ */

rp_status rp_compile_check_reductions(const rp_schedule_type *schedule, const rp_layout *layout,
                                      const rp_reductions *reductions, rp_reason *reason)
{
    const rp_sharding *sharding = &schedule->traits.sharding;
    bool fsdp = sharding->keeps_root && !sharding->host_gradients;
    bool copies = schedule->traits.placement == RP_PLACEMENT_RESIDENT && rp_layout_data(layout) > 1;
    if (fsdp || copies || (!reductions->each_given && !reductions->dtype_given)) {
        return RP_OK;
    }
    return rp_refuse_setting(reason, RP_USAGE,
                             reductions->each_given ? "reduce_each" : "reduce_dtype",
                             "%s reduces gradients in one way alone, or none; valid with fsdp, and "
                             "with pipelines that have {data_parallel} 2 or more",
                             schedule->name);
}

void rp_compile_set_reductions(const rp_reductions *reductions, rp_dtype dtype, rp_traits *traits)
{
    uint32_t bytes = (uint32_t)rp_dtype_bytes(reductions->dtype);
    bool converts = reductions->dtype_given && bytes != rp_dtype_bytes(dtype);
    rp_layout *layout = &traits->layout;
    if (rp_layout_data(layout) > 1) { /* a copy may hold only its share of the gradients */
        layout->reduces_each =
            reductions->each_given ? reductions->each_microbatch : layout->zero >= 2;
        layout->gradient_bytes = converts ? bytes : 0;
        return;
    }
    if (traits->placement == RP_PLACEMENT_RESIDENT) {
        return;
    }
    if (reductions->each_given) {
        traits->sharding.reductions = reductions->each_microbatch ? 1 : 0;
    }
    if (converts) {
        traits->sharding.reduce_bytes = bytes;
    }
}

void rp_compile_set_software(const rp_costs *costs, rp_traits *traits)
{
    rp_sharding *sharding = &traits->sharding;
    const rp_stack *stack = costs != NULL ? costs->stack : NULL;
    if (stack != NULL && stack->gpu_adds && !stack->of_schedule && sharding->host_collects) {
        sharding->gpu_adds = true;
        sharding->overlap = sharding->forward_gathers > 0;
    }
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Checks the options for copies of a pipeline that do more than add up gradients. */
static rp_status check_copies(const rp_layout *layout, bool asynchronous, rp_reason *reason)
{
    if ((layout->zero != 0 || layout->reduction_bucket != 0) && rp_layout_data(layout) == 1) {
        return rp_refuse_setting(reason, RP_USAGE, layout->zero != 0 ? "zero" : "bucket_mb",
                                 "one copy has nobody to share with; valid with {data_parallel} 2 "
                                 "and more");
    }
    if (layout->zero != 0 && asynchronous) {
        return rp_refuse(
            reason, RP_USAGE,
            "{zero}: shares of weights are gathered when all copies have stepped; valid "
            "with {optimizer} sync");
    }
    return RP_OK;
}

/* Checks experts in tensor groups, whose GPUs share each expert or hold whole experts. Each GPU
 * sends its part of the tokens to the experts, as in Megatron Core, which then refuses to train
 * without sequence parallelism. */
static rp_status check_cut_experts(const rp_layout *layout, rp_reason *reason)
{
    uint32_t tensor = rp_layout_tensor(layout);
    uint32_t given = layout->expert_tensor_parallel;
    bool apart = layout->axes == RP_AXES_TPD || layout->axes == RP_AXES_DPT;
    if (given > 1 && given != tensor) {
        return rp_refuse(
            reason, RP_USAGE,
            "{expert_tensor_parallel}: %u of %u GPUs that share each layer; valid are all "
            "of them (%u), and 1",
            given, tensor, tensor);
    }
    if (tensor > 1 && !layout->sequence_parallel) {
        return rp_refuse(reason, RP_USAGE,
                         "{expert_parallel}: with {tensor_parallel} each GPU sends its part of the "
                         "tokens to the experts; valid with {sequence_parallel}");
    }
    if (given == 1 && tensor > 1 && rp_layout_data(layout) > 1 && apart) {
        return rp_refuse(
            reason, RP_USAGE,
            "{expert_tensor_parallel}: whole experts are spread over tensor groups and "
            "copies, between which {axes} %s has pipelines; valid are tdp, dtp, ptd and "
            "pdt",
            rp_axes_text((rp_axes)layout->axes));
    }
    return RP_OK;
}

/* Experts are shared by copies, or by all GPUs of a stage: each has the dense layers or its part of
 * them, a part of the experts, and its own tokens. */
static rp_status check_experts(const rp_layout *layout, const rp_model *model, rp_reason *reason)
{
    uint32_t shares = rp_layout_expert(layout);
    if (shares == 1) {
        if (layout->expert_tensor_parallel != 0) {
            return rp_refuse(reason, RP_USAGE,
                             "{expert_tensor_parallel}: experts are not spread; valid with "
                             "{expert_parallel} 2 and more");
        }
        return RP_OK;
    }
    uint32_t most = rp_layout_gpus(layout) / rp_layout_expert_tensor(layout);
    bool mixture = model->experts > 1;
    if (mixture && most % shares == 0) {
        return check_cut_experts(layout, reason);
    }
    if (!mixture) {
        return rp_refuse(reason, RP_USAGE,
                         "{expert_parallel}: %s has no experts; valid are mixtures of experts "
                         "(qwen3-30b-a3b, for example)",
                         model->name);
    }
    if (rp_layout_expert_tensor(layout) != rp_layout_tensor(layout)) {
        return rp_refuse(reason, RP_USAGE,
                         "{expert_parallel}: %u copies of %u GPUs per layer are no whole groups of "
                         "%u; valid are divisors of their product",
                         rp_layout_data(layout), rp_layout_tensor(layout), shares);
    }
    return rp_refuse(reason, RP_USAGE,
                     "{expert_parallel}: %u copies are no whole groups of %u; valid are divisors "
                     "of {data_parallel}",
                     rp_layout_data(layout), shares);
}

static rp_status check_sequence(const rp_layout *layout, uint32_t seq_len, rp_reason *reason)
{
    if (!layout->sequence_parallel ||
        (rp_layout_tensor(layout) > 1 && seq_len % rp_layout_tensor(layout) == 0)) {
        return RP_OK;
    }
    if (rp_layout_tensor(layout) == 1) {
        return rp_refuse(reason, RP_USAGE,
                         "{sequence_parallel}: one GPU per layer shares no tokens; valid with "
                         "{tensor_parallel} 2 and more");
    }
    return rp_refuse(reason, RP_USAGE,
                     "{sequence_parallel}: %u GPUs cannot share %u tokens of a sequence equally; "
                     "valid are multiples of %u",
                     rp_layout_tensor(layout), seq_len, rp_layout_tensor(layout));
}

/* True for a layout that has copies and no other property. */
static bool is_plain(const rp_layout *layout)
{
    return rp_layout_tensor(layout) == 1 && rp_layout_expert(layout) == 1 &&
           layout->axes == RP_AXES_TDP && layout->zero == 0 && !layout->reduces_each &&
           layout->gradient_bytes == 0 && layout->reduction_bucket == 0 &&
           layout->collectives == RP_COLLECTIVES_RING;
}

rp_status rp_compile_check_layout(const rp_schedule_type *schedule, const rp_layout *layout,
                                  const rp_model *model, uint32_t seq_len, bool asynchronous,
                                  rp_reason *reason)
{
    bool tensor = rp_layout_tensor(layout) > 1;
    RP_TRY(check_experts(layout, model, reason));
    RP_TRY(check_copies(layout, asynchronous, reason));
    RP_TRY(check_sequence(layout, seq_len, reason));
    bool servers = schedule->traits.placement == RP_PLACEMENT_OFFLOAD && is_plain(layout);
    if (rp_layout_gpus(layout) == 1 || schedule->traits.placement == RP_PLACEMENT_RESIDENT ||
        servers) {
        return RP_OK;
    }
    bool sharded = rp_is_data_parallel(&schedule->traits);
    return rp_refuse_setting(
        reason, RP_USAGE, tensor ? "tensor_parallel" : "data_parallel",
        "%s %s; valid with pipelines whose weights stay on their GPUs (megatron-pp, 1f1b, zbv and "
        "others)",
        schedule->name,
        sharded ? "already spreads one model over all GPUs"
                : "keeps weights in host memory, where whole copies alone are modelled");
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Sets what a selective recompute by the software of the run's times does not keep. */
static rp_status set_rebuilt(const rp_resolved *config, const rp_model *rank, rp_arena *arena,
                             rp_sizes *sizes)
{
    const rp_stack *stack = config->costs != NULL ? config->costs->stack : NULL;
    RP_TRY(rp_arena_alloc(arena, rank->layers + 2, sizeof(uint64_t), &sizes->rebuilt_bytes));
    for (uint32_t i = 1; i <= rank->layers; i++) {
        sizes->rebuilt_bytes[i] =
            rp_again_rebuilt_bytes(rank, i - 1, config->decided.seq_len, config->decided.dtype,
                                   stack, sizes->tape_bytes[i]);
    }
    return RP_OK;
}

static rp_status lower(const rp_resolved *config, const rp_program *schedule, rp_arena *arena,
                       rp_program **program_out, rp_reason *reason)
{
    uint32_t *sequences = NULL;
    uint32_t microbatches = rp_resolved_microbatches(config);
    uint32_t round = rp_resolved_round(config);
    rp_lower_config lowering = {
        .call_microbatches = round,
        .call_rounds = (config->decided.microbatches - 1) / round + 1,
        .piece_bytes =
            config->decided.piece_bytes != 0 ? config->decided.piece_bytes : RP_PIECE_BYTES,
        .grain = config->decided.layer_grain ? RP_GRAIN_LAYER : RP_GRAIN_STAGE,
        .offload_activations = config->decided.offload_activations,
        .peer_gpus = config->peer_gpus,
        .peer_groups = config->peer_groups};
    rp_model rank;
    RP_TRY(rp_model_cut(config->model, &schedule->traits.layout, arena, &rank, reason));
    RP_TRY(rp_compile_sizes(&schedule->traits, &rank, config->decided.seq_len,
                            config->decided.dtype, arena, &lowering.sizes));
    const rp_stack *stack = config->costs != NULL ? config->costs->stack : NULL;
    if (stack != NULL && !stack->of_schedule) {
        rp_stack_set_sizes(stack, &rank, config->decided.seq_len, &lowering.sizes);
    }
    RP_TRY(rp_arena_alloc(arena, microbatches, sizeof *sequences, &sequences));
    if (schedule->recompute == RP_RECOMPUTE_SELECTIVE) {
        RP_TRY(set_rebuilt(config, &rank, arena, &lowering.sizes));
    }
    for (uint32_t i = 0; i < microbatches; i++) {
        sequences[i] = rp_resolved_sequences(config, i);
    }
    return rp_lower(schedule, &lowering, sequences, program_out, reason);
}

rp_status rp_compile_lower(const rp_resolved *config, const rp_program *schedule,
                           rp_program **program_out)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = lower(config, schedule, arena, program_out, NULL);
    rp_arena_destroy(arena);
    return status;
}

static rp_status build(const rp_resolved *config, rp_arena *arena, rp_program **program_out,
                       rp_reason *reason)
{
    rp_partition even;
    rp_program *schedule = NULL;
    rp_schedule_config building = rp_resolved_view(config);
    if (building.partition == NULL) {
        RP_TRY(rp_partition_even(config->schedule, config->costs, config->gpus, 0, arena, &even,
                                 reason));
        building.partition = &even;
    }
    RP_TRY(rp_compile_check_offload(config->schedule, config->decided.offload_activations, reason));
    RP_TRY(rp_compile_check_reductions(config->schedule, &config->decided.layout,
                                       &config->decided.reductions, reason));
    RP_TRY(rp_compile_check_layout(config->schedule, &config->decided.layout, config->model,
                                   config->decided.seq_len, config->decided.asynchronous, reason));
    RP_TRY(rp_host_memory_allow(rp_schedule_footprint(&building, true, config->decided.layer_grain),
                                config->schedule->name, RP_FOOTPRINT_VALID, reason));
    RP_TRY(rp_schedule_build(config->schedule, &building, &schedule, reason));
    schedule->ranks = config->ranks;
    schedule->traits.layout = config->decided.layout;
    schedule->traits.types = config->decided.types;
    rp_compile_set_reductions(&config->decided.reductions, config->decided.dtype,
                              &schedule->traits);
    rp_compile_set_software(config->costs, &schedule->traits);
    rp_status status = lower(config, schedule, arena, program_out, reason);
    rp_program_destroy(schedule);
    return status;
}

rp_status rp_compile(const rp_resolved *config, rp_program **program_out, rp_reason *reason)
{
    rp_arena *arena = NULL;
    RP_TRY(check_rounds(config, reason));
    RP_TRY(rp_arena_create(&arena));
    rp_status status = build(config, arena, program_out, reason);
    rp_arena_destroy(arena);
    return status;
}
