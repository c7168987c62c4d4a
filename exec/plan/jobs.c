/* The planner's jobs: the stages on each GPU over time, and the bytes that each parameter upload
 * moves. */
#include "common/base/reason.h"
#include "exec/plan/plan_internal.h"

#define NO RPEXEC_NO_TENSOR
#define NO_JOB UINT32_MAX

void rpexec_plan_layers(const rpexec_planner *p, uint32_t stage, uint32_t *begin_out,
                        uint32_t *end_out)
{
    const rp_program *program = p->program;
    const rp_stage *s = &program->stages[stage];
    bool forward = p->producers.forward_position[stage] != RP_NO_OP;
    bool first = forward ? p->producers.forward_position[stage] == 0
                         : p->producers.backward_position[stage] + 1 == program->backward_count;
    *begin_out = s->layer_begin + (first ? 0 : 1);
    *end_out = s->layer_end + 1 + ((s->roles & RP_STAGE_HEAD) != 0 ? 1 : 0);
}

uint64_t rpexec_plan_counted_bytes(const rpexec_planner *p, uint32_t begin, uint32_t end,
                                   bool trained)
{
    const uint64_t *of_layer = trained ? p->sizes.gradient_bytes : p->sizes.weight_bytes;
    uint64_t bytes = 0;
    for (uint32_t layer = begin; layer < end; layer++) {
        bytes += of_layer[layer];
    }
    return bytes;
}

uint64_t rpexec_plan_job_bytes(const rpexec_planner *p, const rpexec_job *job)
{
    const rpexec_model *model = rpexec_plan_model(p->plan, job->gpu);
    return rpexec_model_values(model, job->begin, job->end) * rp_dtype_bytes(p->plan->model->dtype);
}

uint64_t rpexec_plan_gradient_bytes(const rpexec_planner *p, const rpexec_job *job)
{
    const rpexec_model *model = rpexec_plan_model(p->plan, job->gpu);
    return rpexec_model_trained(model, job->begin, job->end) *
           rp_dtype_bytes(p->plan->model->dtype);
}

/* Adam's m and v; of 16-bit weights the fp32 masters, too. */
static uint64_t moment_bytes(const rpexec_planner *p, const rpexec_job *job)
{
    const rpexec_model *model = rpexec_plan_model(p->plan, job->gpu);
    uint64_t arrays = model->dtype == RP_DTYPE_F32 ? 2 : 3;
    return arrays * rpexec_model_trained(model, job->begin, job->end) * sizeof(float);
}

uint32_t rpexec_plan_new_job(rpexec_planner *p, uint32_t stage, uint32_t gpu)
{
    uint32_t job = p->plan->job_count++;
    p->plan->jobs[job] = (rpexec_job){.stage = stage,
                                      .gpu = gpu,
                                      .first_microbatch = UINT32_MAX,
                                      .weights = NO,
                                      .gradients = NO,
                                      .moments = NO,
                                      .root = NO};
    rpexec_plan_layers(p, stage, &p->plan->jobs[job].begin, &p->plan->jobs[job].end);
    return job;
}

/* The last op of `queue` that `op` waits for, plus 1; `from` if it waits for none. */
static uint32_t needed(const rp_program *p, uint32_t op, const rp_queue *queue, uint32_t from)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        if (target >= queue->op_begin && target < queue->op_end && target + 1 > from) {
            from = target + 1;
        }
    }
    return from;
}

/* Gives the uploads [from, to) of a job successive ranges of its array, the last with padding. */
static rp_status find_uploads(rpexec_planner *p, uint32_t number, uint32_t from, uint32_t to)
{
    const rpexec_job *job = &p->plan->jobs[number];
    uint64_t all = rpexec_plan_counted_bytes(p, job->begin, job->end, false);
    uint64_t at = 0;
    rpexec_task *last = NULL;
    for (uint32_t op = from; op < to; op++) {
        rpexec_task *task = &p->plan->tasks[op];
        task->job = number;
        if (rp_op_kind_uploads_weights(p->program->ops[op].kind)) {
            task->from_byte = at;
            task->to_byte = at += p->program->op_bytes[op];
            last = task;
        }
    }
    if (at != all) {
        return rp_refuse(p->reason, RP_USAGE,
                         "the program uploads %llu bytes for stage %u, which has %llu; valid are "
                         "programs lowered for this model",
                         (unsigned long long)at, job->stage, (unsigned long long)all);
    }
    if (last != NULL) {
        last->to_byte = rpexec_plan_job_bytes(p, job);
    }
    return RP_OK;
}

/* Offload: a job begins with the compute op that waits for parameters. Each upload moves the range
 * of the stage's array that follows the previous upload's. */
static rp_status find_jobs(rpexec_planner *p, const rp_queue *compute, const rp_queue *params)
{
    uint32_t next = params->op_begin;
    uint32_t job = NO_JOB;
    for (uint32_t op = compute->op_begin; op < compute->op_end; op++) {
        const rp_op *o = &p->program->ops[op];
        uint32_t end = needed(p->program, op, params, next);
        if (end > next) {
            job = rpexec_plan_new_job(p, o->stage, compute->gpu);
            RP_TRY(find_uploads(p, job, next, end));
            next = end;
        }
        if (job == NO_JOB || p->plan->jobs[job].stage != o->stage) { /* no upload for it */
            job = rpexec_plan_new_job(p, o->stage, compute->gpu);
            if (rpexec_plan_job_bytes(p, &p->plan->jobs[job]) != 0) {
                return rp_refuse(p->reason, RP_USAGE,
                                 "op %u computes before any weights are there; valid are programs "
                                 "whose first op of a job waits for its parameters",
                                 op);
            }
        }
        rpexec_job *j = &p->plan->jobs[job];
        p->plan->tasks[op].job = job;
        j->backward |= rp_op_kind_is_backward((rp_op_kind)o->kind);
        j->first_microbatch =
            o->microbatch < j->first_microbatch ? o->microbatch : j->first_microbatch;
    }
    return RP_OK;
}

/* Resident: all ops of a stage on a GPU are a single job, whose weights and gradients always
 * exist. */
static void find_resident(rpexec_planner *p, const rp_queue *compute, uint32_t *job_of_stage)
{
    for (uint32_t s = 0; s < p->program->stage_count; s++) {
        job_of_stage[s] = NO_JOB;
    }
    for (uint32_t op = compute->op_begin; op < compute->op_end; op++) {
        uint32_t stage = p->program->ops[op].stage;
        if (!rp_op_kind_is_pass((rp_op_kind)p->program->ops[op].kind)) {
            continue; /* of all jobs of the GPU */
        }
        if (job_of_stage[stage] == NO_JOB) {
            uint32_t job = job_of_stage[stage] = rpexec_plan_new_job(p, stage, compute->gpu);
            rpexec_job *j = &p->plan->jobs[job];
            j->backward = true;
            j->weights = rpexec_plan_new_value(p, j->gpu, rpexec_plan_job_bytes(p, j), RP_NO_OP);
            j->gradients =
                rpexec_plan_new_value(p, j->gpu, rpexec_plan_gradient_bytes(p, j), RP_NO_OP);
            j->moments = rpexec_plan_new_value(p, j->gpu, moment_bytes(p, j), RP_NO_OP);
        }
        p->plan->tasks[op].job = job_of_stage[stage];
    }
}

rp_status rpexec_plan_find_jobs(rpexec_planner *p, rp_arena *scratch)
{
    uint32_t *job_of_stage = NULL;
    RP_TRY(rp_arena_alloc(scratch, p->program->stage_count, sizeof(uint32_t), &job_of_stage));
    for (uint32_t q = 0; q < p->program->queue_count; q++) {
        const rp_queue *compute = &p->program->queues[q];
        if (compute->kind != RP_QUEUE_COMPUTE) {
            continue;
        }
        const rp_queue *params = NULL;
        for (uint32_t r = 0; r < p->program->queue_count; r++) {
            const rp_queue *other = &p->program->queues[r];
            params =
                other->kind == RP_QUEUE_PARAM_UPLOAD && other->gpu == compute->gpu ? other : params;
        }
        if (p->offload) {
            RP_TRY(find_jobs(p, compute, params));
        } else {
            find_resident(p, compute, job_of_stage);
        }
    }
    return RP_OK;
}

/* ---- gradients in host memory ---------------------------------------------------------------- */

void rpexec_plan_slot(rpexec_planner *p, uint32_t op)
{
    rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    if (job->accumulates || job->first_microbatch == 0) {
        return;
    }
    uint32_t *all = &p->plan->slot_microbatches;
    *all = *all == 0 || job->first_microbatch < *all ? job->first_microbatch : *all;
    task->output =
        rpexec_plan_new_value(p, p->program->gpu_count, rpexec_plan_gradient_bytes(p, job), op);
}

/* Inserts a slot in the order of calls, whatever the order of the waits is. */
static void insert_slot(rpexec_planner *p, uint32_t begin, rpexec_slot slot)
{
    const rpexec_job *jobs = p->plan->jobs;
    uint32_t at = p->plan->slot_count++;
    for (; at > begin; at--) {
        rpexec_slot *before = &p->plan->slots[at - 1];
        if (jobs[before->job].first_microbatch < jobs[slot.job].first_microbatch) {
            break;
        }
        p->plan->slots[at] = *before;
    }
    p->plan->slots[at] = slot;
}

rp_status rpexec_plan_collect(rpexec_planner *p, uint32_t op)
{
    const rp_program *program = p->program;
    rpexec_task *task = &p->plan->tasks[op];
    task->slot_begin = p->plan->slot_count;
    for (uint32_t w = program->ops[op].wait_begin; w < program->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(program->waits[w]);
        const rpexec_task *from = &p->plan->tasks[target];
        bool gradients = rp_op_kind_downloads_sums(program->ops[target].kind);
        if (gradients && !rp_wait_is_control(program->waits[w]) && from->output != NO) {
            insert_slot(p, task->slot_begin,
                        (rpexec_slot){.job = from->job, .value = from->output});
            rpexec_plan_use(p, from->output, op);
        }
    }
    task->slot_end = p->plan->slot_count;
    return RP_OK;
}
