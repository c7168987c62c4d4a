/* The planner of data-parallel systems: the tensors that each rank keeps, gathers, reduces and
 * moves. */
#include "common/base/reason.h"
#include "exec/plan/plan_internal.h"
#include "exec/state/shard.h"

#include <string.h>

#define NO RPEXEC_NO_TENSOR
#define NO_JOB UINT32_MAX

/* State of the planner, apart from the plan, on its way through a run's ops. */
struct rpexec_sharding_plan {
    const rp_sharding *sharding;
    uint32_t *whole; /* [iteration][stage][microbatch, or GPU] gradients before their reduction */
    uint32_t *roots; /* [iteration][microbatch] embedding and head on its GPU */
    uint32_t *kept;  /* [iteration][stage][microbatch] weights that its forward has gathered */
    uint32_t *collected; /* [stage] the last step whose gradients the host has, from 1 on */
};

static uint32_t layer_count(const rpexec_planner *p)
{
    return p->plan->model->layer_count;
}

static bool is_root(const rpexec_planner *p, uint32_t layer)
{
    return p->sharding->sharding->keeps_root && (layer == 0 || layer + 1 == layer_count(p));
}

static bool gathers(const rpexec_planner *p)
{
    return p->sharding->sharding->forward_gathers != 0;
}

rpexec_home *rpexec_plan_home(const rpexec_plan *plan, uint32_t gpu, uint32_t stage)
{
    return &plan->sharded->homes[(size_t)gpu * plan->program->stage_count + stage];
}

uint32_t *rpexec_plan_shard_gradients(const rpexec_plan *plan, const rp_op *op, uint32_t gpu,
                                      uint32_t stage)
{
    size_t row = (size_t)op->iteration * plan->program->gpu_count + gpu;
    return &plan->sharded->gradients[row * plan->program->stage_count + stage];
}

/* The tensor in which gradients add up to their reduction: of a microbatch if each has a reduction,
 * otherwise of a GPU's whole step. */
static uint32_t *whole_of(const rpexec_planner *p, const rp_op *op, uint32_t gpu)
{
    size_t row = (size_t)op->iteration * p->program->stage_count + op->stage;
    uint32_t column = p->sharding->sharding->reductions != 0 ? op->microbatch : gpu;
    return &p->sharding->whole[row * p->program->microbatch_count + column];
}

static uint32_t *kept_of(const rpexec_planner *p, const rp_op *op)
{
    size_t row = (size_t)op->iteration * p->program->stage_count + op->stage;
    return &p->sharding->kept[row * p->program->microbatch_count + op->microbatch];
}

static uint32_t *root_of(const rpexec_planner *p, const rp_op *op)
{
    size_t row = (size_t)op->iteration * p->program->microbatch_count;
    return &p->sharding->roots[row + op->microbatch];
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint64_t shard_values(const rpexec_planner *p, uint32_t gpu, uint32_t begin, uint32_t end)
{
    return rpexec_shard_values(p->plan->model, begin, end, p->program->gpu_count, gpu);
}

static uint64_t shard_bytes(const rpexec_planner *p, uint32_t gpu, uint32_t begin, uint32_t end)
{
    return shard_values(p, gpu, begin, end) * rp_dtype_bytes(p->plan->model->dtype);
}

/* Trained values, of which gradients are kept. */
static uint64_t trained_values(const rpexec_planner *p, uint32_t gpu, const rpexec_job *layers)
{
    return rpexec_shard_trained(p->plan->model, layers->begin, layers->end, p->program->gpu_count,
                                gpu);
}

static uint64_t layer_bytes(const rpexec_planner *p, uint32_t begin, uint32_t end)
{
    const rpexec_job layers = {.begin = begin, .end = end};
    return rpexec_plan_job_bytes(p, &layers);
}

static uint64_t root_bytes(const rpexec_planner *p)
{
    return layer_bytes(p, 0, 1) + layer_bytes(p, layer_count(p) - 1, layer_count(p));
}

void rpexec_plan_body(const rpexec_plan *plan, const rpexec_job *job, uint32_t *begin_out,
                      uint32_t *end_out)
{
    bool apart = plan->sharded->sharding->keeps_root;
    *begin_out = job->begin + (apart && job->begin == 0 ? 1 : 0);
    *end_out = job->end - (apart && job->end == plan->model->layer_count ? 1 : 0);
    *end_out = *end_out < job->kept_from ? *end_out : job->kept_from;
}

rp_status rpexec_plan_check_bytes(const rpexec_planner *p, uint32_t op, uint32_t ranks,
                                  uint64_t volumes, uint64_t whole)
{
    uint64_t right = volumes * (whole * (ranks - 1) / ranks);
    if (p->program->op_bytes[op] == right) {
        return RP_OK;
    }
    char name[RP_OP_NAME_SIZE];
    rp_op_name(&p->program->ops[op], name);
    return rp_refuse(
        p->reason, RP_USAGE,
        "%s moves %llu bytes, the model needs %llu; valid are programs lowered for this "
        "model",
        name, (unsigned long long)p->program->op_bytes[op], (unsigned long long)right);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* The op of a kind on the same GPU whose result `op` takes: its data wait. */
static uint32_t taken(const rpexec_planner *p, uint32_t op, rp_op_kind kind)
{
    const rp_program *program = p->program;
    for (uint32_t w = program->ops[op].wait_begin; w < program->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(program->waits[w]);
        if (!rp_wait_is_control(program->waits[w]) && program->ops[target].kind == kind) {
            return target;
        }
    }
    return RP_NO_OP;
}

static bool same_unit(const rp_op *a, const rp_op *b)
{
    bool forward = rp_op_kind_is_forward(a->kind);
    return a->stage == b->stage && a->microbatch == b->microbatch && a->iteration == b->iteration &&
           forward == rp_op_kind_is_forward(b->kind);
}

/* A job is a stage's forward or backward of a microbatch, with the weights that are gathered for
 * it. */
static void find_compute_jobs(rpexec_planner *p, const rp_queue *compute)
{
    uint32_t kept_from =
        rp_sharding_kept_from(p->sharding->sharding, p->program->recompute, p->sizes.weight_bytes,
                              layer_count(p) - 2, rp_dtype_bytes(p->plan->model->dtype));
    uint32_t job = NO_JOB;
    uint32_t last = RP_NO_OP;
    for (uint32_t op = compute->op_begin; op < compute->op_end; op++) {
        const rp_op *o = &p->program->ops[op];
        if (!rp_op_kind_is_pass((rp_op_kind)o->kind)) {
            continue; /* of all stages */
        }
        if (last == RP_NO_OP || !same_unit(&p->program->ops[last], o)) {
            job = rpexec_plan_new_job(p, o->stage, compute->gpu);
            p->plan->jobs[job].backward = true; /* the forward may keep its tape */
            p->plan->jobs[job].kept_from =
                rp_op_kind_is_forward(o->kind) ? layer_count(p) : kept_from;
            if (!gathers(p)) {
                p->plan->jobs[job].weights =
                    rpexec_plan_home(p->plan, compute->gpu, o->stage)->weights;
            }
        }
        last = op;
        p->plan->tasks[op].job = job;
        uint32_t gather = taken(p, op, RP_OP_ALL_GATHER);
        if (gather != RP_NO_OP) {
            p->plan->tasks[gather].job = job;
            /* If embedding and head are kept apart, they come with the first stage's forward. */
            bool root = rp_op_kind_is_forward(o->kind) && p->sharding->sharding->keeps_root &&
                        p->plan->jobs[job].begin == 0;
            p->plan->tasks[gather].moves_root = root;
            uint32_t up = taken(p, gather, RP_OP_UPLOAD_PARAMS);
            if (up != RP_NO_OP) {
                p->plan->tasks[up].job = job;
                p->plan->tasks[up].moves_root = root;
            }
        }
    }
}

/* Reductions belong to the job whose gradients they take, and so on along the chain. */
static rp_status find_gradient_jobs(rpexec_planner *p)
{
    static const struct {
        rp_op_kind kind, from;
    } links[] = {{RP_OP_ALL_REDUCE, RP_OP_BACKWARD},
                 {RP_OP_REDUCE_SCATTER, RP_OP_BACKWARD},
                 {RP_OP_DOWNLOAD_PARAM_GRAD, RP_OP_REDUCE_SCATTER},
                 {RP_OP_COLLECT, RP_OP_DOWNLOAD_PARAM_GRAD}};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        for (uint32_t op = 0; op < p->program->op_count; op++) {
            if (p->program->ops[op].kind != links[i].kind) {
                continue;
            }
            uint32_t from = taken(p, op, links[i].from);
            if (from == RP_NO_OP || p->plan->tasks[from].job == NO_JOB) {
                return rp_refuse(p->reason, RP_USAGE,
                                 "op %u (%s) takes the result of no %s; valid are programs as the "
                                 "lowering of data-parallel systems makes them",
                                 op, rp_op_kind_text(links[i].kind),
                                 rp_op_kind_text(links[i].from));
            }
            p->plan->tasks[op].job = p->plan->tasks[from].job;
        }
    }
    return RP_OK;
}

/* Makes the tensors that every rank has all the time. */
static void make_homes(rpexec_planner *p)
{
    const rp_sharding *sharding = p->sharding->sharding;
    for (uint32_t gpu = 0; gpu < p->program->gpu_count; gpu++) {
        for (uint32_t stage = 0; stage < p->program->stage_count; stage++) {
            rpexec_home *home = rpexec_plan_home(p->plan, gpu, stage);
            rpexec_job layers = {.stage = stage};
            rpexec_plan_layers(p, stage, &layers.begin, &layers.end);
            *home = (rpexec_home){layers.begin, layers.end, NO, NO};
            uint64_t shard = shard_bytes(p, gpu, layers.begin, layers.end);
            if (!sharding->host_weights) {
                uint64_t bytes = gathers(p) ? shard : rpexec_plan_job_bytes(p, &layers);
                home->weights = rpexec_plan_new_value(p, gpu, bytes, RP_NO_OP);
            }
            if (!sharding->host_optimizer) {
                uint64_t values = trained_values(p, gpu, &layers);
                uint64_t arrays = p->plan->model->dtype == RP_DTYPE_F32 ? 2 : 3;
                home->moments =
                    rpexec_plan_new_value(p, gpu, arrays * values * sizeof(float), RP_NO_OP);
            }
        }
    }
}

rp_status rpexec_plan_sharded_jobs(rpexec_planner *p, rp_arena *scratch)
{
    const rp_program *program = p->program;
    size_t rows = (size_t)program->iteration_count * program->stage_count;
    size_t whole = rows * program->microbatch_count;
    size_t roots = (size_t)program->iteration_count * program->microbatch_count;
    size_t shards = rows * program->gpu_count;
    rpexec_sharded *sharded = NULL;
    RP_TRY(rp_arena_alloc(scratch, 1, sizeof *p->sharding, &p->sharding));
    RP_TRY(rp_arena_alloc(scratch, whole, sizeof(uint32_t), &p->sharding->whole));
    RP_TRY(rp_arena_alloc(scratch, roots, sizeof(uint32_t), &p->sharding->roots));
    RP_TRY(rp_arena_alloc(scratch, whole, sizeof(uint32_t), &p->sharding->kept));
    RP_TRY(
        rp_arena_alloc(scratch, program->stage_count, sizeof(uint32_t), &p->sharding->collected));
    RP_TRY(rp_arena_alloc(p->arena, 1, sizeof *sharded, &sharded));
    RP_TRY(rp_arena_alloc(p->arena, (size_t)program->gpu_count * program->stage_count,
                          sizeof(rpexec_home), &sharded->homes));
    RP_TRY(rp_arena_alloc(p->arena, shards, sizeof(uint32_t), &sharded->gradients));
    memset(p->sharding->whole, 0xff, whole * sizeof(uint32_t)); /* RPEXEC_NO_TENSOR */
    memset(p->sharding->roots, 0xff, roots * sizeof(uint32_t));
    memset(p->sharding->kept, 0xff, whole * sizeof(uint32_t));
    memset(sharded->gradients, 0xff, shards * sizeof(uint32_t));
    p->sharding->sharding = sharded->sharding = &program->traits.sharding;
    p->plan->sharded = sharded;
    make_homes(p);
    for (uint32_t q = 0; q < program->queue_count; q++) {
        if (program->queues[q].kind == RP_QUEUE_COMPUTE) {
            find_compute_jobs(p, &program->queues[q]);
        }
    }
    return find_gradient_jobs(p);
}

/* ---- ops ------------------------------------------------------------------------------------- */

rp_status rpexec_plan_sharded_compute(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_job *job = &p->plan->jobs[p->plan->tasks[op].job];
    uint32_t *whole = whole_of(p, o, job->gpu);
    bool root = is_root(p, job->begin) || is_root(p, job->end - 1);
    job->gradients = *whole;
    job->root = root ? *root_of(p, o) : NO;
    if (job->weights == NO && job->kept_from <= job->begin) {
        job->weights = *kept_of(p, o);
    }
    if (job->weights == NO || (root && job->root == NO)) {
        return rpexec_plan_refuse_stray(p, op);
    }
    RP_TRY(rpexec_plan_compute(p, op));
    *whole = job->gradients;
    return RP_OK;
}

/* The rank's own shares are uploaded, to be gathered; without a job, the shares of all new
 * weights. */
rp_status rpexec_plan_sharded_upload(rpexec_planner *p, uint32_t op)
{
    rpexec_task *task = &p->plan->tasks[op];
    uint32_t gpu = rpexec_plan_gpu_of(p, op);
    uint32_t head = layer_count(p) - 1;
    uint32_t begin = 0;
    uint32_t end = layer_count(p);
    if (task->job != NO_JOB) {
        rpexec_plan_body(p->plan, &p->plan->jobs[task->job], &begin, &end);
    }
    uint64_t root = shard_bytes(p, gpu, 0, 1) + shard_bytes(p, gpu, head, head + 1);
    uint64_t bytes = shard_bytes(p, gpu, begin, end) + (task->moves_root ? root : 0);
    task->output = rpexec_plan_new_value(p, gpu, bytes, op);
    return RP_OK;
}

rp_status rpexec_plan_sharded_gather(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    uint32_t up = taken(p, op, RP_OP_UPLOAD_PARAMS);
    task->input = up == RP_NO_OP ? NO : p->plan->tasks[up].output;
    rpexec_plan_use(p, task->input, op);
    bool from_host = p->sharding->sharding->host_weights;
    if ((task->job == NO_JOB && gathers(p)) || (from_host && task->input == NO)) {
        return rpexec_plan_refuse_stray(p, op);
    }
    if (task->job == NO_JOB) { /* all new weights, to their permanent tensors */
        uint64_t bytes = rpexec_plan_counted_bytes(p, 0, layer_count(p), task->input == NO);
        return rpexec_plan_check_bytes(p, op, p->program->gpu_count, 1, bytes);
    }
    rpexec_job *job = &p->plan->jobs[task->job];
    uint32_t begin = 0;
    uint32_t end = 0;
    rpexec_plan_body(p->plan, job, &begin, &end);
    uint32_t head = layer_count(p) - 1;
    uint64_t bytes = rpexec_plan_counted_bytes(p, begin, end, false);
    if (job->kept_from < job->end) { /* the others come to their old place */
        job->weights = *kept_of(p, o);
        rpexec_plan_use(p, job->weights, op);
    } else {
        job->weights = rpexec_plan_new_value(p, job->gpu, layer_bytes(p, begin, end), op);
        *kept_of(p, o) = job->weights;
    }
    if (task->moves_root) {
        *root_of(p, o) = job->root = rpexec_plan_new_value(p, job->gpu, root_bytes(p), op);
        bytes += rpexec_plan_counted_bytes(p, 0, 1, false) +
                 rpexec_plan_counted_bytes(p, head, head + 1, false);
    }
    return rpexec_plan_check_bytes(p, op, p->program->gpu_count, 1, bytes);
}

/* Sums all ranks' gradients; the rank's shares of the sum are added to the step's shares, or wait
 * for their download to the host. */
rp_status rpexec_plan_sharded_reduction(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    uint64_t longest =
        rpexec_longest_share(p->plan->model, job->begin, job->end, p->program->gpu_count);
    uint64_t shard = trained_values(p, job->gpu, job) * rp_dtype_bytes(p->plan->model->dtype);
    uint32_t *kept = rpexec_plan_shard_gradients(p->plan, o, job->gpu, job->stage);
    task->input = *whole_of(p, o, job->gpu);
    if (task->input == NO) {
        return rpexec_plan_refuse_stray(p, op);
    }
    rpexec_plan_use(p, task->input, op);
    uint64_t scratch = rpexec_collective_scratch(longest, p->limits.chunk, p->plan->model->dtype);
    task->scratch = rpexec_plan_new_value(p, job->gpu, scratch, op);
    if (p->sharding->sharding->host_gradients || *kept == NO) {
        *kept = rpexec_plan_new_value(p, job->gpu, shard, op);
        task->clears = true;
    } else {
        rpexec_plan_use(p, *kept, op);
    }
    task->output = *kept;
    return rpexec_plan_check_bytes(p, op, p->program->gpu_count, rp_op_kind_passes(o->kind),
                                   rpexec_plan_counted_bytes(p, job->begin, job->end, true));
}

rp_status rpexec_plan_sharded_download(rpexec_planner *p, uint32_t op)
{
    rpexec_task *task = &p->plan->tasks[op];
    task->input = p->plan->tasks[taken(p, op, RP_OP_REDUCE_SCATTER)].output;
    rpexec_plan_use(p, task->input, op);
    return RP_OK;
}

rp_status rpexec_plan_sharded_update(rpexec_planner *p, uint32_t op)
{
    uint32_t gpu = rpexec_plan_gpu_of(p, op);
    for (uint32_t stage = 0; stage < p->program->stage_count; stage++) {
        uint32_t kept = *rpexec_plan_shard_gradients(p->plan, &p->program->ops[op], gpu, stage);
        if (kept == NO || p->sharding->sharding->host_optimizer) {
            return rpexec_plan_refuse_stray(p, op);
        }
        rpexec_plan_use(p, kept, op);
    }
    return RP_OK;
}

/* The first COLLECT of a stage in a step overwrites the gradients of the previous step. */
rp_status rpexec_plan_sharded_collect(rpexec_planner *p, uint32_t op)
{
    rpexec_task *task = &p->plan->tasks[op];
    uint32_t *last = &p->sharding->collected[p->plan->jobs[task->job].stage];
    uint32_t step = p->program->ops[op].iteration + 1u;
    task->clears = *last != step;
    *last = step;
    return RP_OK;
}
