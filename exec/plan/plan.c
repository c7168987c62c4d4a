#include "exec/plan/plan.h"

#include "common/base/reason.h"
#include "common/program/expand.h"
#include "common/schedule/schedule_type.h"
#include "exec/plan/plan_internal.h"
#include "exec/state/shard.h"

#define NO RPEXEC_NO_TENSOR
#define NO_JOB UINT32_MAX

/* ---- tensors --------------------------------------------------------------------------------- */

void rpexec_plan_use(rpexec_planner *p, uint32_t value, uint32_t op)
{
    if (value == NO) {
        return;
    }
    p->users[p->user_count++] = (rpexec_plan_user){.op = op, .next = p->first_user[value]};
    p->first_user[value] = p->user_count;
}

uint32_t rpexec_plan_new_value(rpexec_planner *p, uint32_t place, uint64_t bytes, uint32_t op)
{
    uint32_t value = p->plan->value_count++;
    p->plan->values[value] =
        (rpexec_value){.bytes = (bytes + 63) / 64 * 64, .place = place, .first_op = op};
    if (op != RP_NO_OP) {
        rpexec_plan_use(p, value, op);
    }
    return value;
}

uint32_t rpexec_plan_gpu_of(const rpexec_planner *p, uint32_t op)
{
    return p->program->queues[p->plan->order.queue_of[op]].gpu;
}

rpexec_plan_record *rpexec_plan_record_of(const rpexec_planner *p, const rp_op *op, uint32_t stage)
{
    size_t row = (size_t)op->iteration * p->program->stage_count + stage;
    return &p->records[row * p->program->microbatch_count + op->microbatch];
}

void rpexec_plan_microbatches(const rpexec_plan *plan, uint32_t microbatch, uint32_t *begin_out,
                              uint32_t *end_out)
{
    *begin_out = microbatch - microbatch % plan->tensor;
    *end_out = *begin_out + plan->tensor;
}

rpexec_plan_axis rpexec_plan_axis_of(const rpexec_plan *plan, rpexec_axis axis)
{
    uint32_t gpus = plan->program->gpu_count;
    uint32_t ranks = axis == RPEXEC_AXIS_TENSOR ? plan->tensor
                     : axis == RPEXEC_AXIS_DATA ? plan->data
                                                : gpus;
    return (rpexec_plan_axis){.groups = gpus / ranks, .ranks = ranks};
}

/* GPU (p D + d) T + t. */
uint32_t rpexec_plan_rank(const rpexec_plan *plan, rpexec_axis axis, uint32_t gpu,
                          uint32_t *group_out)
{
    uint32_t t = gpu % plan->tensor;
    uint32_t place = gpu / rpexec_plan_copies(plan);
    switch (axis) {
    case RPEXEC_AXIS_TENSOR:
        *group_out = gpu / plan->tensor;
        return t;
    case RPEXEC_AXIS_DATA:
        *group_out = place * plan->tensor + t;
        return rpexec_plan_copy(plan, gpu);
    case RPEXEC_AXIS_ALL:
    case RPEXEC_AXIS_COUNT:
        break;
    }
    *group_out = 0;
    return gpu;
}

uint32_t rpexec_plan_gpu(const rpexec_plan *plan, rpexec_axis axis, uint32_t group, uint32_t rank)
{
    uint32_t t = group % plan->tensor;
    switch (axis) {
    case RPEXEC_AXIS_TENSOR:
        return group * plan->tensor + rank;
    case RPEXEC_AXIS_DATA:
        return (group / plan->tensor * plan->data + rank) * plan->tensor + t;
    case RPEXEC_AXIS_ALL:
    case RPEXEC_AXIS_COUNT:
        break;
    }
    return rank;
}

uint32_t rpexec_plan_sequences(const rpexec_plan *plan, uint32_t microbatch)
{
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t sequences = 0;
    rpexec_plan_microbatches(plan, microbatch, &begin, &end);
    for (uint32_t i = begin; i < end; i++) {
        sequences += plan->program->sequences[i];
    }
    return sequences;
}

uint32_t rpexec_plan_most_sequences(const rpexec_plan *plan)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < plan->program->microbatch_count; i++) {
        uint32_t sequences = rpexec_plan_sequences(plan, i);
        most = sequences > most ? sequences : most;
    }
    return most;
}

uint32_t rpexec_plan_most_arrays(const rpexec_plan *plan)
{
    return plan->slices != NULL ? plan->model->block.tensor_count : rpexec_most_pieces(plan->model);
}

uint64_t rpexec_plan_tokens(const rpexec_planner *p, const rp_op *op)
{
    return (uint64_t)rpexec_plan_sequences(p->plan, op->microbatch) * p->plan->model->seq_len;
}

uint64_t rpexec_plan_boundary_bytes(const rpexec_planner *p, const rp_op *op)
{
    return rpexec_plan_tokens(p, op) * p->plan->model->config->hidden *
           rp_dtype_bytes(p->plan->model->dtype);
}

/* Only programs that were not lowered come here: rp_lower connects everything. */
rp_status rpexec_plan_refuse_stray(const rpexec_planner *p, uint32_t op)
{
    char name[RP_OP_NAME_SIZE];
    rp_op_name(&p->program->ops[op], name);
    return rp_refuse(p->reason, RP_INPUT,
                     "op %u (%s) moves what no op of its GPU gives or takes; valid are programs as "
                     "rpsim and rpexec lower them",
                     op, name);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static uint32_t taken(const rp_program *program, uint32_t op, rp_op_kind kind, rp_op_kind or_kind)
{
    for (uint32_t w = program->ops[op].wait_begin; w < program->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(program->waits[w]);
        uint8_t of_target = program->ops[target].kind;
        if (!rp_wait_is_control(program->waits[w]) &&
            (of_target == (uint8_t)kind || of_target == (uint8_t)or_kind)) {
            return target;
        }
    }
    return RP_NO_OP;
}

/* The op whose tensor `op` takes: its data wait of either kind, or the data wait of a tensor
 * group's sum that `op` waits for, since the sum follows the op with the summed tensor. */
static uint32_t source_of(const rpexec_planner *p, uint32_t op, rp_op_kind kind, rp_op_kind or_kind)
{
    uint32_t source = taken(p->program, op, kind, or_kind);
    uint32_t sum = taken(p->program, op, RP_OP_ALL_REDUCE, RP_OP_ALL_REDUCE);
    return source != RP_NO_OP || sum == RP_NO_OP ? source : taken(p->program, sum, kind, or_kind);
}

static rp_status plan_upload(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    uint64_t ids = rpexec_plan_tokens(p, o) * sizeof(int32_t);
    uint32_t from = source_of(p, op, RP_OP_DOWNLOAD_ACT, RP_OP_DOWNLOAD_GRAD);
    uint64_t rest = p->program->op_bytes[op];
    if (from != RP_NO_OP) {
        task->input = p->plan->tasks[from].output;
        rpexec_plan_use(p, task->input, op);
        task->output = rpexec_plan_new_value(p, rpexec_plan_gpu_of(p, op),
                                             rpexec_plan_boundary_bytes(p, o), op);
        rest -= rpexec_plan_boundary_bytes(p, o);
    } else {
        task->ids = rpexec_plan_new_value(p, rpexec_plan_gpu_of(p, op), ids, op);
        rest -= ids;
    }
    if (rest != 0) { /* the head's stage gets labels as well */
        task->labels = rpexec_plan_new_value(p, rpexec_plan_gpu_of(p, op), ids, op);
    }
    return RP_OK;
}

static rp_status plan_download(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    bool gradient = (rp_op_kinds[o->kind].tensors & RP_TENSOR_GRADIENT) != 0;
    uint32_t from = gradient ? source_of(p, op, RP_OP_BACKWARD, RP_OP_BACKWARD_INPUT)
                             : source_of(p, op, RP_OP_FORWARD, RP_OP_FORWARD);
    if (from == RP_NO_OP) {
        return rpexec_plan_refuse_stray(p, op);
    }
    const rpexec_task *source = &p->plan->tasks[from];
    task->input = gradient ? source->output : source->body;
    if (!gradient) { /* the inputs of backward stages come first, in the order of the chain */
        uint32_t number = p->downloads[from]++;
        if (number < source->save_end - source->save_begin) {
            task->input = p->plan->saves[source->save_begin + number].value;
        }
    }
    rpexec_plan_use(p, task->input, op);
    task->output =
        rpexec_plan_new_value(p, p->program->gpu_count, rpexec_plan_boundary_bytes(p, o), op);
    return RP_OK;
}

/* A boundary tensor goes straight into the memory of the GPU that receives it. */
static rp_status plan_send(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    uint32_t forward = source_of(p, op, RP_OP_FORWARD, RP_OP_FORWARD);
    uint32_t backward = source_of(p, op, RP_OP_BACKWARD, RP_OP_BACKWARD_INPUT);
    if (forward == RP_NO_OP && backward == RP_NO_OP) {
        return rpexec_plan_refuse_stray(p, op);
    }
    task->input =
        forward != RP_NO_OP ? p->plan->tasks[forward].body : p->plan->tasks[backward].output;
    task->sends_gradient = forward == RP_NO_OP;
    rpexec_plan_use(p, task->input, op);
    task->output = rpexec_plan_new_value(p, p->receivers[op], rpexec_plan_boundary_bytes(p, o), op);
    return RP_OK;
}

/* The tensor is there after its SEND. */
static rp_status plan_receive(rpexec_planner *p, uint32_t op)
{
    const rpexec_task *from = &p->plan->tasks[source_of(p, op, RP_OP_SEND, RP_OP_SEND)];
    rpexec_task *task = &p->plan->tasks[op];
    *(from->sends_gradient ? &task->d_output : &task->output) = from->output;
    rpexec_plan_use(p, from->output, op);
    return RP_OK;
}

static void find_receivers(rpexec_planner *p)
{
    for (uint32_t op = 0; op < p->program->op_count; op++) {
        if (rp_op_kind_receives(p->program->ops[op].kind)) {
            uint32_t send = source_of(p, op, RP_OP_SEND, RP_OP_SEND);
            p->receivers[send] = rpexec_plan_gpu_of(p, op); /* the validator has matched them */
        }
    }
}

static rp_status plan_parameters(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    const rpexec_task *task = &p->plan->tasks[op];
    if (task->job == NO_JOB) {
        return rpexec_plan_refuse_stray(p, op);
    }
    rpexec_job *job = &p->plan->jobs[task->job];
    job->accumulates |= rp_op_kind_uploads_sums(o->kind);
    bool weights = rp_op_kind_uploads_weights(o->kind);
    uint32_t *value = weights ? &job->weights : &job->gradients;
    if (*value == NO) {
        uint64_t bytes =
            weights ? rpexec_plan_job_bytes(p, job) : rpexec_plan_gradient_bytes(p, job);
        *value = rpexec_plan_new_value(p, job->gpu, bytes, op);
    } else {
        rpexec_plan_use(p, *value, op);
    }
    return RP_OK;
}

static rp_status plan_gradients(rpexec_planner *p, uint32_t op)
{
    rpexec_task *task = &p->plan->tasks[op];
    uint32_t from = source_of(p, op, RP_OP_BACKWARD, RP_OP_BACKWARD_WEIGHT);
    task->job = from == RP_NO_OP ? NO_JOB : p->plan->tasks[from].job;
    if (task->job == NO_JOB) {
        return rpexec_plan_refuse_stray(p, op);
    }
    rpexec_plan_use(p, p->plan->jobs[task->job].gradients, op);
    rpexec_plan_slot(p, op);
    return RP_OK;
}

/* ---- other ops ------------------------------------------------------------------------------- */

static rp_status plan_update(rpexec_planner *p, uint32_t op)
{
    rpexec_plan_exchange(p, op, NULL);
    return RP_OK;
}

/* Plans nothing: the op works on the host's permanent arrays. */
static rp_status plan_nothing(rpexec_planner *p, uint32_t op)
{
    (void)p;
    (void)op;
    return RP_OK;
}

static rp_status refuse(const rpexec_planner *p, uint32_t op)
{
    const char *kind = rp_op_kind_text((rp_op_kind)p->program->ops[op].kind);
    if (p->plan->sharded != NULL) {
        return rp_refuse(p->reason, RP_USAGE,
                         "%s has %s ops; valid are programs as the lowering of data-parallel "
                         "systems makes them",
                         p->program->schedule, kind);
    }
    return rp_refuse(p->reason, RP_USAGE,
                     "{schedule}: %s has %s ops, which the executor does not run yet; valid are "
                     "pipelines and schedules with weights in host memory",
                     p->program->schedule, kind);
}

/* Ranks that share layers sum their results; copies of the pipeline sum gradients. */
static rp_status plan_reduction(rpexec_planner *p, uint32_t op)
{
    rp_queue_kind kind = (rp_queue_kind)p->program->queues[p->plan->order.queue_of[op]].kind;
    if (kind == RP_QUEUE_DATA && p->plan->data * p->plan->servers > 1) {
        return rpexec_plan_gradient_reduce(p, op);
    }
    return p->plan->slices == NULL   ? refuse(p, op)
           : kind == RP_QUEUE_TENSOR ? RP_OK /* as the lowering has cut the model */
                                     : rpexec_plan_activation_reduces(p, op);
}

/* clang-format off */

/* X(op kind, its planner in pipelines, its planner in data-parallel systems); NULL: they do not
 * have it. */
#define PLANNERS(X)                                                                                \
    X(FORWARD, rpexec_plan_compute, rpexec_plan_sharded_compute)                                   \
    X(RECOMPUTE, rpexec_plan_compute, rpexec_plan_sharded_compute)                                 \
    X(BACKWARD, rpexec_plan_compute, rpexec_plan_sharded_compute)                                  \
    X(BACKWARD_INPUT, rpexec_plan_compute, NULL)                                                   \
    X(BACKWARD_WEIGHT, rpexec_plan_compute, NULL)                                                  \
    X(UPLOAD_PARAMS, plan_parameters, rpexec_plan_sharded_upload)                                  \
    X(UPLOAD_ACT, plan_upload, NULL)                                                               \
    X(UPLOAD_GRAD, plan_upload, NULL)                                                              \
    X(UPLOAD_PARAM_GRAD, plan_parameters, NULL)                                                    \
    X(DOWNLOAD_ACT, plan_download, NULL)                                                           \
    X(DOWNLOAD_GRAD, plan_download, NULL)                                                          \
    X(DOWNLOAD_PARAM_GRAD, plan_gradients, rpexec_plan_sharded_download)                           \
    X(SEND, plan_send, NULL)                                                                       \
    X(RECV, plan_receive, NULL)                                                                    \
    X(ALL_GATHER, NULL, rpexec_plan_sharded_gather)                                                \
    X(REDUCE_SCATTER, NULL, rpexec_plan_sharded_reduction)                                         \
    X(ALL_REDUCE, plan_reduction, rpexec_plan_sharded_reduction)                                   \
    X(OPTIMIZER, plan_nothing, plan_nothing)                                                       \
    X(REFRESH, plan_nothing, NULL)                                                                 \
    X(COLLECT, rpexec_plan_collect, rpexec_plan_sharded_collect)                                   \
    X(UPDATE, plan_update, rpexec_plan_sharded_update)                                             \
    X(NETWORK_REDUCE, plan_nothing, NULL)                                                          \
    X(ALL_TO_ALL, NULL, NULL)                                                                      \
    X(UPLOAD_SAVED, NULL, NULL)                                                                    \
    X(DOWNLOAD_SAVED, NULL, NULL)

/* clang-format on */

RP_OP_ROWS_CHECK(PLANNERS);

/* ---- all of it ------------------------------------------------------------------------------- */

static rp_status plan_op(rpexec_planner *p, uint32_t op)
{
#define PLANNER(kind, pipeline, sharded) [RP_OP_##kind] = {pipeline, sharded},
    static rpexec_plan_op *const planners[RP_OP_KIND_COUNT][2] = {PLANNERS(PLANNER)};
    uint8_t kind = p->program->ops[op].kind;
    rpexec_plan_op *plan = planners[kind][p->plan->sharded != NULL ? 1 : 0];
    return plan != NULL ? plan(p, op) : refuse(p, op);
}

/* Makes room for all ops that COLLECT ops wait for: the slots are at most as many. */
static rp_status allocate_slots(rpexec_planner *p)
{
    const rp_program *program = p->program;
    size_t count = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        bool collects = rp_op_kind_collects(program->ops[i].kind);
        count += collects ? program->ops[i + 1].wait_begin - program->ops[i].wait_begin : 0;
    }
    return rp_arena_alloc(p->arena, count, sizeof(rpexec_slot), &p->plan->slots);
}

/* Makes records of layers, only if an op computes a single layer. */
static rp_status allocate_layers(rpexec_planner *p, rp_arena *scratch)
{
    const rp_program *program = p->program;
    uint32_t alone = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        alone += rp_op_kind_is_pass(op->kind) && rp_op_layer(op) != 0 ? 1 : 0;
    }
    if (alone == 0) {
        return RP_OK;
    }
    size_t count =
        (size_t)program->iteration_count * p->plan->model->layer_count * program->microbatch_count;
    RP_TRY(rp_arena_alloc(p->arena, alone, sizeof(rpexec_part), &p->plan->parts));
    RP_TRY(rp_arena_alloc(scratch, count, sizeof(rpexec_plan_layer), &p->layers));
    for (size_t i = 0; i < count; i++) {
        p->layers[i] = (rpexec_plan_layer){NO, NO, NO};
    }
    return RP_OK;
}

static rp_status allocate(rpexec_planner *p, rp_arena *scratch)
{
    const rp_program *program = p->program;
    rpexec_plan *plan = p->plan;
    size_t ops = program->op_count;
    size_t records =
        (size_t)program->iteration_count * program->stage_count * program->microbatch_count;
    size_t saves = ops + (size_t)program->iteration_count * program->microbatch_count *
                             (program->forward_count + program->backward_count);
    p->most_values = (uint32_t)(8 * ops + saves + 3 * program->stage_count * program->gpu_count);
    RP_TRY(rp_arena_alloc(p->arena, ops, sizeof(rpexec_task), &plan->tasks));
    RP_TRY(rp_arena_alloc(p->arena, p->most_values, sizeof(rpexec_value), &plan->values));
    RP_TRY(rp_arena_alloc(p->arena, ops + (size_t)program->stage_count * program->gpu_count,
                          sizeof(rpexec_job), &plan->jobs));
    RP_TRY(rp_arena_alloc(p->arena, saves, sizeof(rpexec_save), &plan->saves));
    RP_TRY(rp_arena_alloc(p->arena, program->gpu_count + 1, sizeof(uint64_t), &plan->arena_bytes));
    RP_TRY(rp_arena_alloc(scratch, records, sizeof(rpexec_plan_record), &p->records));
    RP_TRY(rp_arena_alloc(scratch, p->most_values, sizeof(uint32_t), &p->first_user));
    RP_TRY(rp_arena_alloc(scratch, 21 * ops + p->most_values + program->wait_count,
                          sizeof(rpexec_plan_user), &p->users));
    RP_TRY(rp_arena_alloc(scratch, ops, sizeof(uint32_t), &p->downloads));
    RP_TRY(rp_arena_alloc(scratch, ops, sizeof(uint32_t), &p->receivers));
    RP_TRY(allocate_layers(p, scratch));
    RP_TRY(allocate_slots(p));
    for (size_t i = 0; i < records; i++) {
        p->records[i] = (rpexec_plan_record){NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, false, false};
    }
    for (size_t i = 0; i < ops; i++) {
        plan->tasks[i] = (rpexec_task){.job = NO_JOB,
                                       .input = NO,
                                       .output = NO,
                                       .body = NO,
                                       .d_output = NO,
                                       .ids = NO,
                                       .labels = NO,
                                       .tape = NO,
                                       .weight_tape = NO,
                                       .head_gradient = NO,
                                       .sums = NO,
                                       .scratch = NO,
                                       .embedded = NO,
                                       .statistics = NO,
                                       .exchange = NO};
    }
    return RP_OK;
}

static rp_status flatten_users(rpexec_planner *p)
{
    rpexec_plan *plan = p->plan;
    RP_TRY(rp_arena_alloc(p->arena, p->user_count, sizeof(uint32_t), &plan->users));
    uint32_t count = 0;
    for (uint32_t v = 0; v < plan->value_count; v++) {
        plan->values[v].user_begin = count;
        for (uint32_t u = p->first_user[v]; u != 0; u = p->users[u - 1].next) {
            plan->users[count++] = p->users[u - 1].op;
        }
        plan->values[v].user_end = count;
    }
    return RP_OK;
}

/* Refuses a partition whose forward runs only in the head's stage while another stage has the
 * embedding's backward: nobody has the embedding's output. */
static rp_status check_stages(const rp_program *program, rp_reason *reason)
{
    if (program->forward_count == 0 && program->backward_count > 1) {
        return rp_refuse(
            reason, RP_USAGE,
            "{partition}: the first backward stage has all layers and there is no forward "
            "stage, so that the others have nothing; valid is one backward stage, or "
            "forward stages");
    }
    return RP_OK;
}

static rp_status count_sizes(rpexec_planner *p, rp_arena *scratch)
{
    const rpexec_model *model = p->plan->model;
    rp_model counted = *model->config;
    rp_model_count(&counted);
    return rp_sizes_of_model(&counted, model->seq_len, model->dtype, scratch, &p->sizes);
}

static rp_status make(rpexec_planner *p, rp_arena *scratch)
{
    const rp_program *program = p->program;
    RP_TRY(count_sizes(p, scratch));
    RP_TRY(check_stages(program, p->reason));
    RP_TRY(rpexec_plan_check_scaling(p, scratch));
    RP_TRY(rp_producers_create(program, scratch, &p->producers));
    RP_TRY(rpexec_order_create(program, p->arena, &p->plan->order));
    RP_TRY(allocate(p, scratch));
    for (uint32_t i = 0; i < program->op_count; i++) {
        const rp_op *op = &program->ops[i];
        p->offload |= rp_op_kind_uploads_weights(op->kind);
        if (rp_op_kind_is_recompute(op->kind)) {
            rpexec_plan_record_of(p, op, op->stage)->recomputes = true;
        }
    }
    bool sharded = rp_is_data_parallel(&program->traits);
    if (rp_cuts_layers(&program->traits)) { /* cut layers stay on their GPUs */
        p->plan->tensor = program->gpu_count;
        sharded = false;
    }
    if (!sharded && (p->plan->tensor > 1 || rp_cuts_layers(&program->traits))) {
        RP_TRY(rpexec_plan_slices(p));
    }
    p->plan->resident = !p->offload && !sharded;
    find_receivers(p);
    RP_TRY(sharded ? rpexec_plan_sharded_jobs(p, scratch) : rpexec_plan_find_jobs(p, scratch));
    for (uint32_t i = 0; i < program->op_count; i++) {
        RP_TRY(plan_op(p, p->plan->order.ops[i]));
    }
    RP_TRY(rpexec_plan_check_copies(p));
    RP_TRY(rpexec_plan_sums(p, scratch));
    RP_TRY(flatten_users(p));
    return rpexec_plan_place(p->plan, p->limits.cap_bytes, scratch, p->reason);
}

/* Copies and tensor groups add up whole tensors in the executor. */
static rp_status check_layout(const rp_layout *layout, rp_reason *reason)
{
    rp_layout plain = *layout;
    plain.sequence_parallel = plain.reduces_each = false;
    plain.zero = plain.gradient_bytes = plain.expert_parallel = plain.axes = 0;
    plain.reduction_bucket = 0;
    const rp_traits here = {.placement = RP_PLACEMENT_RESIDENT, .layout = *layout};
    const rp_traits known = {.placement = RP_PLACEMENT_RESIDENT, .layout = plain};
    for (uint32_t i = 0; i < rp_trait_count; i++) {
        const rp_trait *row = &rp_trait_rows[i];
        if (rp_trait_get(&here, row) != rp_trait_get(&known, row)) {
            return rp_refuse(reason, RP_USAGE,
                             "the program's layout has '%s', which rpsim alone computes; valid are "
                             "tensor-parallel and data-parallel",
                             row->text);
        }
    }
    return RP_OK;
}

rp_status rpexec_plan_create(const rp_program *program, const rpexec_model *model,
                             const rpexec_plan_limits *limits, rp_arena *arena,
                             rpexec_plan *plan_out, rp_reason *reason)
{
    if (program->op_bytes == NULL || program->sequences == NULL) {
        return rp_refuse(reason, RP_USAGE,
                         "the program is a compute schedule; valid are lowered programs");
    }
    const rp_layout *layout = &program->traits.layout;
    RP_TRY(check_layout(layout, reason));
    rp_program *whole = NULL;
    rp_arena *scratch = NULL;
    bool resident = program->traits.placement == RP_PLACEMENT_RESIDENT;
    uint32_t servers = limits->servers != 0 ? limits->servers : 1;
    uint32_t copies = rp_layout_data(layout);
    if (!resident && copies > 1 && copies != servers) {
        return rp_refuse(
            reason, RP_USAGE,
            "copies of %s are %u servers, and this run has %u processes; valid is one for "
            "each server (mpirun)",
            program->schedule, copies, servers);
    }
    *plan_out = (rpexec_plan){.model = model,
                              .tensor = rp_layout_tensor(layout),
                              .data = resident && copies > 1 ? copies / servers : 1,
                              .servers = servers};
    if (resident && rp_layout_gpus(layout) > 1) {
        RP_TRY(rp_program_expand(program, servers, arena, &whole));
    }
    plan_out->program = whole != NULL ? whole : program;
    rpexec_planner p = {.plan = plan_out,
                        .program = plan_out->program,
                        .limits = *limits,
                        .arena = arena,
                        .reason = reason};
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = make(&p, scratch);
    rp_arena_destroy(scratch);
    return status;
}
