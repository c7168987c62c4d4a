/* The planner of tensor parallelism and of copies of a pipeline. Every rank of a tensor group has a
 * slice of all layers (exec/model/tensor_parallel.h). All ranks work on the same tokens, from as
 * many microbatches as there are ranks; an op is named after its rank's microbatch. Ranks sum
 * activations inside of their compute ops; the program's ALL_REDUCE ops follow these and stand only
 * for the volume. Copies sum gradients in ALL_REDUCE ops of their own. */
#include "common/base/reason.h"
#include "common/lower/lower.h"
#include "common/schedule/schedule_type.h"
#include "exec/operators/collective.h"
#include "exec/plan/plan_internal.h"

#define NO RPEXEC_NO_TENSOR

rp_status rpexec_plan_slices(rpexec_planner *p)
{
    uint32_t gpus = p->program->gpu_count;
    uint32_t ranks = p->plan->tensor;
    RP_TRY(rp_arena_alloc(p->arena, gpus, sizeof *p->plan->slices, &p->plan->slices));
    for (uint32_t i = 0; i < gpus; i++) {
        RP_TRY(
            rpexec_slice_create(p->plan->model, ranks, i % ranks, p->arena, &p->plan->slices[i]));
    }
    return RP_OK;
}

/* The compute op whose unit an ALL_REDUCE comes after. */
static uint32_t unit_of(const rpexec_planner *p, uint32_t op)
{
    const rp_program *program = p->program;
    for (uint32_t w = program->ops[op].wait_begin; w < program->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(program->waits[w]);
        rp_op_kind kind = program->ops[target].kind;
        bool unit = rp_op_kind_is_forward(kind) || rp_op_kind_is_full_backward(kind);
        if (unit && !rp_wait_is_control(program->waits[w])) {
            return target;
        }
    }
    return RP_NO_OP;
}

rp_status rpexec_plan_activation_reduces(rpexec_planner *p, uint32_t op)
{
    const rp_program *program = p->program;
    const rp_op *o = &program->ops[op];
    const rp_sharding *sharding = &program->traits.sharding;
    uint32_t unit = unit_of(p, op);
    if (unit == RP_NO_OP) {
        return rpexec_plan_refuse_stray(p, op);
    }
    bool backward = rp_op_kind_is_backward(program->ops[unit].kind);
    uint64_t reduces =
        rp_program_stage_reduces(program, sharding, o->stage, backward, program->recompute);
    return rpexec_plan_check_bytes(p, op, p->plan->tensor, 2 * reduces,
                                   rpexec_plan_boundary_bytes(p, o));
}

/* Scratch for sums of up to `count` values of any type. */
static uint32_t new_scratch(rpexec_planner *p, uint32_t gpu, uint64_t count, uint32_t ranks,
                            uint32_t op)
{
    uint64_t share = count / ranks + RPEXEC_SHARE_ELEMENTS;
    return rpexec_plan_new_value(
        p, gpu, rpexec_collective_scratch(share, p->limits.chunk, RP_DTYPE_F32), op);
}

/* The longest gradient that ranks sum, with all parts of its tensor. @param of_parts only tensors
 * that have several parts */
static uint64_t longest_sum(const rpexec_slice *s, bool of_parts)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->model.block.tensor_count; i++) {
        const rpexec_tensor *t = &s->model.block.tensors[i];
        uint32_t parts = rpexec_slice_sums(s, i);
        uint64_t count = of_parts && parts == 1 ? 0 : parts * t->rows * t->columns;
        most = count > most ? count : most;
    }
    return most;
}

void rpexec_plan_exchange(rpexec_planner *p, uint32_t op, rpexec_plan_record *r)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    uint32_t gpu = rpexec_plan_gpu_of(p, op);
    uint32_t ranks = p->plan->tensor;
    if (p->plan->slices == NULL || ranks == 1) {
        return;
    }
    if (rp_op_kind_is_update(o->kind)) {
        const rpexec_slice *s = &p->plan->slices[gpu];
        uint64_t bytes = longest_sum(s, true) * rp_dtype_bytes(s->model.dtype);
        task->exchange = new_scratch(p, gpu, longest_sum(s, false), ranks, op);
        task->scratch = rpexec_plan_new_value(p, gpu, bytes, op);
        return;
    }
    uint64_t tokens = rpexec_plan_tokens(p, o);
    task->exchange = new_scratch(p, gpu, rpexec_exchange_count(p->plan->model, tokens), ranks, op);
    if (task->runs_head) {
        uint64_t bytes = rpexec_statistics_bytes(p->plan->model, ranks, tokens);
        task->statistics = rpexec_plan_new_value(p, gpu, bytes, op);
    }
    if (task->begin == 0 && task->runs_layers && r->recomputes) {
        if (rp_op_kind_is_forward(o->kind)) {
            r->embedded = rpexec_plan_new_value(p, gpu, rpexec_plan_boundary_bytes(p, o), op);
        } else {
            rpexec_plan_use(p, r->embedded, op);
        }
        task->embedded = r->embedded;
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

static rpexec_job *job_of(const rpexec_planner *p, uint32_t gpu, uint32_t stage)
{
    for (uint32_t i = 0; i < p->plan->job_count; i++) {
        rpexec_job *job = &p->plan->jobs[i];
        if (job->gpu == gpu && job->stage == stage) {
            return job;
        }
    }
    return NULL;
}

rp_status rpexec_plan_gradient_reduce(rpexec_planner *p, uint32_t op)
{
    uint32_t gpu = rpexec_plan_gpu_of(p, op);
    rpexec_task *task = &p->plan->tasks[op];
    rpexec_job *job = job_of(p, gpu, p->program->ops[op].stage);
    if (job == NULL) {
        return rpexec_plan_refuse_stray(p, op);
    }
    if (p->plan->tensor == 1) { /* otherwise the program counts padding that slices have not */
        RP_TRY(rpexec_plan_check_bytes(p, op, p->plan->data * p->plan->servers, 2,
                                       rpexec_plan_counted_bytes(p, job->begin, job->end, true)));
    }
    uint64_t values = rpexec_model_trained(rpexec_plan_model(p->plan, gpu), job->begin, job->end);
    task->job = (uint32_t)(job - p->plan->jobs);
    task->exchange = new_scratch(p, gpu, values, p->plan->data, op);
    rpexec_plan_use(p, job->gradients, op);
    return RP_OK;
}

rp_status rpexec_plan_check_copies(const rpexec_planner *p)
{
    const rp_program *program = p->program;
    uint64_t sums = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        bool data = program->queues[p->plan->order.queue_of[i]].kind == RP_QUEUE_DATA;
        sums += data ? 1 : 0;
    }
    uint64_t trained = 0; /* stages without gradients have nothing to sum */
    for (uint32_t i = 0; i < p->plan->job_count; i++) {
        const rpexec_job *job = &p->plan->jobs[i];
        trained += rpexec_plan_counted_bytes(p, job->begin, job->end, true) != 0 ? 1 : 0;
    }
    bool copies = p->plan->data * p->plan->servers > 1 && p->plan->resident;
    if (copies && sums != trained * program->iteration_count) {
        return rp_refuse(
            p->reason, RP_INPUT,
            "copies of %s do not sum the gradients of every stage in every step; valid "
            "are programs as rpsim and rpexec lower them",
            program->schedule);
    }
    return RP_OK;
}
