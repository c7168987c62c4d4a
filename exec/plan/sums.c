/* The planner's fp32 sums, without which a 16-bit type would round a gradient once per
 * microbatch. */
#include "exec/plan/plan_internal.h"

#define NO RPEXEC_NO_TENSOR

/* Ops of a compute queue that add to the same gradients with no step between them. */
typedef struct series {
    uint32_t first, last; /* ops */
    uint32_t value;       /* the sums; NO: they are not needed */
    uint32_t updates;     /* steps of the queue before it */
    bool needed;
} series;

typedef struct search {
    uint32_t *last_of; /* [value] the last series of these gradients, + 1 */
    uint32_t *of_op;   /* [op] number of its series + 1; 0: it adds to none */
    series *all;
    uint32_t count;
} search;

static bool adds(const rpexec_planner *p, uint32_t op)
{
    const rpexec_task *task = &p->plan->tasks[op];
    uint8_t kind = p->program->ops[op].kind;
    return (rp_op_kind_is_backward(kind) || task->runs_head) &&
           p->plan->jobs[task->job].gradients != NO;
}

/* True if a single op adds to a tensor twice, or to gradients that have come from the host. */
static bool adds_again(const rpexec_planner *p, uint32_t op)
{
    const rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    uint64_t tokens = rpexec_plan_tokens(p, &p->program->ops[op]);
    uint64_t chunk = rpexec_loss_chunk(rpexec_plan_model(p->plan, job->gpu), tokens);
    return job->accumulates || (task->runs_head && chunk < tokens);
}

static void find(const rpexec_planner *p, const rp_queue *queue, search *s)
{
    const rp_op *ops = p->program->ops;
    uint32_t updates = 0;
    for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
        updates += rp_op_kind_is_update(ops[op].kind) ? 1 : 0;
        if (!adds(p, op)) {
            continue;
        }
        uint32_t *number = &s->last_of[p->plan->jobs[p->plan->tasks[op].job].gradients];
        if (*number == 0 || s->all[*number - 1].updates != updates) {
            s->all[s->count++] = (series){.first = op, .value = NO, .updates = updates};
            *number = s->count;
        }
        series *one = &s->all[*number - 1];
        one->last = op;
        one->needed |= ops[op].microbatch != ops[one->first].microbatch || adds_again(p, op);
        s->of_op[op] = *number;
    }
}

static void give(rpexec_planner *p, uint32_t op, series *one)
{
    rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    const rpexec_model *model = rpexec_plan_model(p->plan, job->gpu);
    if (!one->needed) {
        return;
    }
    if (one->value == NO) {
        uint64_t values = rpexec_model_trained(model, job->begin, job->end);
        one->value = rpexec_plan_new_value(p, job->gpu, values * sizeof(float), op);
    }
    rpexec_plan_use(p, one->value, op);
    task->sums = one->value;
    task->begins_sums = op == one->first;
    task->ends_sums = op == one->last;
}

rp_status rpexec_plan_sums(rpexec_planner *p, rp_arena *scratch)
{
    const rp_program *program = p->program;
    search s = {0};
    if (p->plan->model->dtype == RP_DTYPE_F32) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(scratch, p->plan->value_count, sizeof(uint32_t), &s.last_of));
    RP_TRY(rp_arena_alloc(scratch, program->op_count, sizeof(uint32_t), &s.of_op));
    RP_TRY(rp_arena_alloc(scratch, program->op_count, sizeof(series), &s.all));
    for (uint32_t q = 0; q < program->queue_count; q++) {
        if (program->queues[q].kind == RP_QUEUE_COMPUTE) {
            find(p, &program->queues[q], &s);
        }
    }
    for (uint32_t i = 0; i < program->op_count; i++) {
        uint32_t op = p->plan->order.ops[i];
        if (s.of_op[op] != 0) {
            give(p, op, &s.all[s.of_op[op] - 1]);
        }
    }
    for (uint32_t i = 0; i < p->plan->job_count && p->offload; i++) {
        const rpexec_job *job = &p->plan->jobs[i];
        uint32_t *most = &p->plan->job_microbatches;
        if (job->backward && job->first_microbatch != 0) {
            *most = *most == 0 || job->first_microbatch < *most ? job->first_microbatch : *most;
        }
    }
    return RP_OK;
}
