/* The planner's compute ops: what each stage reads, keeps and leaves. */
#include "common/log.h"
#include "exec/plan_inside.h"

#define NO RPEXEC_NO_TENSOR

/* What came up for a compute op; otherwise it goes on where a stage on the same GPU ended. */
static void find_inputs(rpexec_planner *p, uint32_t op, rpexec_plan_record *r)
{
    const rp_program *program = p->program;
    const rp_op *o = &program->ops[op];
    for (uint32_t w = program->ops[op].wait_begin; w < program->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(program->waits[w]);
        const rpexec_task *from = &p->plan->tasks[target];
        uint8_t kind = program->ops[target].kind;
        if (rp_wait_is_control(program->waits[w]) ||
            rpexec_plan_gpu_of(p, target) != rpexec_plan_gpu_of(p, op)) {
            continue;
        }
        if (kind == RP_OP_UPLOAD_ACT) {
            r->input = from->output;
            r->ids = from->ids;
            r->labels = from->labels;
        } else if (kind == RP_OP_UPLOAD_GRAD) {
            r->d_output = from->output;
        }
    }
    uint32_t forward = p->producers.forward_position[o->stage];
    if (o->kind == RP_OP_FORWARD && forward != RP_NO_OP && forward > 0 && r->input == NO) {
        r->input = rpexec_plan_record_of(p, o, program->forward_chain[forward - 1])->output;
    }
    uint32_t backward = p->producers.backward_position[o->stage];
    if (rpexec_plan_is_backward(o->kind) && backward > 0 && r->d_output == NO) {
        r->d_output = rpexec_plan_record_of(p, o, program->backward_chain[backward - 1])->d_input;
    }
}

static bool in_body(const rpexec_job *job, const rpexec_model *model)
{
    return job->begin + 1 < job->end || job->end != model->layer_count;
}

static bool has_blocks(const rpexec_job *job, const rpexec_model *model)
{
    uint32_t begin = job->begin == 0 ? 1 : job->begin;
    uint32_t end = job->end == model->layer_count ? job->end - 1 : job->end;
    return begin < end;
}

/* Activations that backward stages of their own begin with, in the order of their chain. */
static void plan_saves(rpexec_planner *p, uint32_t op, rpexec_task *task)
{
    const rp_program *program = p->program;
    const rp_op *o = &program->ops[op];
    const rp_stage *stage = &program->stages[o->stage];
    task->save_begin = task->save_end = p->plan->save_count;
    if (!rp_program_has_separate_backward(program) ||
        p->producers.forward_position[o->stage] == RP_NO_OP) {
        return;
    }
    for (uint32_t j = 0; j < program->backward_count; j++) {
        const rp_stage *to = &program->stages[program->backward_chain[j]];
        if (to->layer_begin > stage->layer_begin && to->layer_begin < stage->layer_end &&
            to->layer_end > to->layer_begin) {
            /* Blocks are counted from 1 here, so this is the output of the block before. */
            p->plan->saves[p->plan->save_count++] =
                (rpexec_save){.layer = to->layer_begin,
                              .value = rpexec_plan_new_value(p, rpexec_plan_gpu_of(p, op),
                                                             rpexec_plan_boundary_bytes(p, o), op)};
        }
    }
    task->save_end = p->plan->save_count;
}

/* FORWARD and RECOMPUTE. */
static void plan_forward(rpexec_planner *p, uint32_t op, rpexec_plan_record *r)
{
    const rp_op *o = &p->program->ops[op];
    const rpexec_model *model = p->plan->model;
    rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    const rp_stage *stage = &p->program->stages[o->stage];
    bool head = (stage->roles & RP_STAGE_HEAD) != 0;
    bool recompute = o->kind == RP_OP_RECOMPUTE;
    task->runs_layers =
        (recompute || (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0) && in_body(job, model);
    task->runs_head = !recompute && head && job->backward;
    task->keep = task->runs_layers && job->backward && (recompute || !r->recomputes);
    uint64_t tokens = rpexec_plan_tokens(p, o);
    if (task->runs_layers) {
        uint64_t tape = rpexec_stage_tape_bytes(model, job->begin, job->end, tokens, task->keep);
        task->tape = rpexec_plan_new_value(p, job->gpu, tape, op);
        r->tape = task->keep ? task->tape : NO;
        if (!recompute || head) {
            r->output = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
        }
        plan_saves(p, op, task);
    }
    if (task->runs_head) {
        r->head_gradient = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
    }
    task->body = r->output;
    rpexec_plan_use(p, r->output, op);
}

static rp_status plan_backward(rpexec_planner *p, uint32_t op, rpexec_plan_record *r)
{
    const rp_op *o = &p->program->ops[op];
    const rpexec_model *model = p->plan->model;
    rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    uint64_t tokens = rpexec_plan_tokens(p, o);
    bool head = (p->program->stages[o->stage].roles & RP_STAGE_HEAD) != 0;
    if (has_blocks(job, model) && r->tape == NO) {
        char name[RP_OP_NAME_SIZE];
        rp_op_name(o, name);
        rp_log_error("--recompute: %s needs what its forward computed, and that is gone; valid "
                     "with weights in host memory are wait and early",
                     name);
        return RP_USAGE;
    }
    if (head && r->head_gradient == NO) { /* the forward was another job: the head runs here */
        task->runs_head = true;
        r->head_gradient = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
        rpexec_plan_use(p, r->output, op);
        task->body = r->output;
    }
    task->tape = r->tape;
    rpexec_plan_use(p, r->tape, op);
    if (o->kind == RP_OP_BACKWARD_INPUT) {
        uint64_t bytes = rpexec_stage_weight_tape_bytes(model, job->begin, job->end, tokens);
        r->weight_tape = rpexec_plan_new_value(p, job->gpu, bytes, op);
    }
    task->weight_tape = o->kind == RP_OP_BACKWARD ? NO : r->weight_tape;
    rpexec_plan_use(p, task->weight_tape, op);
    if (o->kind == RP_OP_BACKWARD_WEIGHT) {
        return RP_OK;
    }
    task->d_output = r->d_output;
    rpexec_plan_use(p, r->d_output, op);
    if (job->begin != 0) {
        r->d_input = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
    }
    task->output = r->d_input;
    return RP_OK;
}

rp_status rpexec_plan_compute(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    rpexec_job *job = &p->plan->jobs[task->job];
    rpexec_plan_record *r = rpexec_plan_record_of(p, o, o->stage);
    find_inputs(p, op, r);
    if (job->backward && job->gradients == NO) {
        job->gradients = rpexec_plan_new_value(p, job->gpu, rpexec_plan_job_bytes(p, job), op);
        task->clears = true;
    }
    if (rpexec_plan_is_backward(o->kind)) {
        RP_TRY(plan_backward(p, op, r));
    } else {
        plan_forward(p, op, r);
    }
    uint64_t bytes =
        rpexec_stage_scratch_bytes(p->plan->model, job->begin, job->end, rpexec_plan_tokens(p, o));
    task->scratch = rpexec_plan_new_value(p, job->gpu, bytes, op);
    task->input = r->input;
    task->ids = r->ids;
    task->labels = r->labels;
    task->head_gradient = r->head_gradient;
    rpexec_plan_use(p, r->input, op);
    rpexec_plan_use(p, r->ids, op);
    rpexec_plan_use(p, r->labels, op);
    rpexec_plan_use(p, r->head_gradient, op);
    rpexec_plan_use(p, job->weights, op);
    rpexec_plan_use(p, job->gradients, op);
    return RP_OK;
}
