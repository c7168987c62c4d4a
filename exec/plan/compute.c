/* The planner's compute ops: the tensors that each stage reads, keeps and leaves. */
#include "common/base/reason.h"
#include "exec/plan/plan_internal.h"

#define NO RPEXEC_NO_TENSOR

/* Finds the inputs that were uploaded for an op; otherwise it takes the output of a stage on its
 * GPU. */
static void find_inputs(rpexec_planner *p, uint32_t op, rpexec_plan_record *r)
{
    const rp_program *program = p->program;
    const rp_op *o = &program->ops[op];
    for (uint32_t w = program->ops[op].wait_begin; w < program->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(program->waits[w]);
        const rpexec_task *from = &p->plan->tasks[target];
        const rp_op_row *kind = &rp_op_kinds[program->ops[target].kind];
        if (rp_wait_is_control(program->waits[w]) ||
            rpexec_plan_gpu_of(p, target) != rpexec_plan_gpu_of(p, op)) {
            continue;
        }
        if (kind->way == RP_WAY_UP && kind->tensors == RP_TENSOR_ACTIVATION) {
            r->input = from->output;
            r->ids = from->ids;
            r->labels = from->labels;
        } else if (kind->way == RP_WAY_UP && kind->tensors == RP_TENSOR_GRADIENT) {
            r->d_output = from->output;
        } else if (kind->way == RP_WAY_IN) {
            r->input = from->output != NO ? from->output : r->input;
            r->d_output = from->d_output != NO ? from->d_output : r->d_output;
        }
    }
    uint32_t forward = p->producers.forward_position[o->stage];
    if (rp_op_kind_is_forward(o->kind) && forward != RP_NO_OP && forward > 0 && r->input == NO) {
        r->input = rpexec_plan_record_of(p, o, program->forward_chain[forward - 1])->output;
    }
    uint32_t backward = p->producers.backward_position[o->stage];
    if (rp_op_kind_is_backward((rp_op_kind)o->kind) && backward > 0 && r->d_output == NO) {
        r->d_output = rpexec_plan_record_of(p, o, program->backward_chain[backward - 1])->d_input;
    }
}

static bool has_head(const rpexec_task *task, const rpexec_model *model)
{
    return task->end == model->layer_count && task->begin < task->end;
}

static bool in_body(const rpexec_task *task, const rpexec_model *model)
{
    return task->begin + 1 < task->end || !has_head(task, model);
}

static bool has_blocks(const rpexec_task *task, const rpexec_model *model)
{
    uint32_t begin = task->begin == 0 ? 1 : task->begin;
    uint32_t end = has_head(task, model) ? task->end - 1 : task->end;
    return begin < end;
}

/* The layers that an op works on. */
static void set_layers(const rp_op *op, const rpexec_job *job, rpexec_task *task)
{
    task->begin = job->begin;
    task->end = job->end;
    uint32_t layer = rp_op_layer(op);
    if (layer != 0) {
        task->begin = layer == 1 ? job->begin : layer;
        task->end = layer + 1;
    }
}

static rpexec_plan_layer *layer_of(const rpexec_planner *p, const rp_op *op, uint32_t layer)
{
    size_t row = (size_t)op->iteration * p->plan->model->layer_count + layer;
    return &p->layers[row * p->program->microbatch_count + op->microbatch];
}

/* A forward that goes layer by layer passes its output from layer to layer; its backward takes the
 * inputs that stayed on the GPU or were uploaded. */
static uint32_t input_of(const rpexec_planner *p, const rp_op *op, const rpexec_plan_record *r,
                         const rpexec_task *task)
{
    bool first = task->begin == p->plan->jobs[task->job].begin;
    bool forward =
        rp_op_kind_is_forward(op->kind) && p->producers.forward_position[op->stage] != RP_NO_OP;
    if (rp_op_layer(op) == 0 || first) {
        return r->input;
    }
    if (forward) {
        return r->output;
    }
    return p->offload ? r->input : layer_of(p, op, rp_op_layer(op))->input;
}

/* Activations with which separate backward stages begin, in the order of their chain: outputs of
 * layers inside of the op's range. If ops go layer by layer, only the embedding's output is
 * inside. */
static void plan_saves(rpexec_planner *p, uint32_t op, rpexec_task *task)
{
    const rp_program *program = p->program;
    const rp_op *o = &program->ops[op];
    task->save_begin = task->save_end = p->plan->save_count;
    if (!rp_program_has_separate_backward(program) ||
        p->producers.forward_position[o->stage] == RP_NO_OP) {
        return;
    }
    for (uint32_t j = 0; j < program->backward_count; j++) {
        uint32_t begin = 0;
        uint32_t end = 0;
        rpexec_plan_layers(p, program->backward_chain[j], &begin, &end);
        if (begin < end && begin > task->begin && begin < task->end) {
            p->plan->saves[p->plan->save_count++] =
                (rpexec_save){.layer = begin - 1,
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
    const rpexec_model *model = rpexec_plan_model(p->plan, rpexec_plan_gpu_of(p, op));
    rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    const rp_stage *stage = &p->program->stages[o->stage];
    bool head = has_head(task, model);
    bool recompute = rp_op_kind_is_recompute(o->kind);
    task->runs_layers =
        (recompute || (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0) && in_body(task, model);
    task->runs_head = !recompute && head && job->backward;
    task->keep = task->runs_layers && job->backward && (recompute || !r->recomputes);
    uint64_t tokens = rpexec_plan_tokens(p, o);
    if (task->runs_layers) {
        uint64_t tape = rpexec_stage_tape_bytes(model, task->begin, task->end, tokens, task->keep);
        task->tape = rpexec_plan_new_value(p, job->gpu, tape, op);
        r->tape = task->keep ? task->tape : NO;
        if (rp_op_layer(o) != 0) {
            rpexec_plan_layer *layer = layer_of(p, o, rp_op_layer(o));
            layer->tape = r->tape;
            layer->input = recompute ? layer->input : task->input;
        }
        if (!recompute || head) {
            r->output = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
        }
        plan_saves(p, op, task);
    }
    if (task->runs_head) {
        r->head_gradient = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
    }
    /* A recompute does not touch the forward's output: it may still be on its way to the next
     * stage, and layers write their outputs in steps. */
    task->body = recompute && !head ? NO : r->output;
    rpexec_plan_use(p, task->body, op);
}

/* Tapes that the input part has kept layer by layer. */
static void plan_parts(rpexec_planner *p, uint32_t op, rpexec_task *task)
{
    const rp_op *o = &p->program->ops[op];
    task->part_begin = p->plan->part_count;
    for (uint32_t layer = task->begin == 0 ? 1 : task->begin; layer < task->end; layer++) {
        const rpexec_plan_layer *kept = layer_of(p, o, layer);
        if (kept->tape != NO) { /* the head has none */
            p->plan->parts[p->plan->part_count++] =
                (rpexec_part){.begin = layer == 1 ? task->begin : layer,
                              .end = layer + 1,
                              .tape = kept->tape,
                              .weight_tape = kept->weight_tape};
            rpexec_plan_use(p, kept->tape, op);
            rpexec_plan_use(p, kept->weight_tape, op);
        }
    }
    task->part_end = p->plan->part_count;
}

static rp_status plan_backward(rpexec_planner *p, uint32_t op, rpexec_plan_record *r)
{
    const rp_op *o = &p->program->ops[op];
    const rpexec_model *model = rpexec_plan_model(p->plan, rpexec_plan_gpu_of(p, op));
    rpexec_task *task = &p->plan->tasks[op];
    const rpexec_job *job = &p->plan->jobs[task->job];
    uint64_t tokens = rpexec_plan_tokens(p, o);
    bool head = has_head(task, model);
    if (has_blocks(task, model) && r->tape == NO) {
        char name[RP_OP_NAME_SIZE];
        rp_op_name(o, name);
        return rp_refuse(p->reason, RP_USAGE,
                         "{recompute}: %s needs what its forward computed, and that is gone; valid "
                         "with weights in host memory are wait and early",
                         name);
    }
    if (head && r->head_gradient == NO) { /* the forward was another job's: the head runs here */
        task->runs_head = true;
        r->head_gradient = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
        if (in_body(task, model)) {
            rpexec_plan_use(p, r->output, op);
            task->body = r->output;
        }
    }
    if (rp_op_kind_is_weight_part(o->kind) && r->layered) {
        plan_parts(p, op, task);
        return RP_OK;
    }
    task->tape = r->tape;
    rpexec_plan_use(p, r->tape, op);
    if (rp_op_kind_leaves_weights(o->kind)) {
        uint64_t bytes = rpexec_stage_weight_tape_bytes(model, task->begin, task->end, tokens);
        r->weight_tape = rpexec_plan_new_value(p, job->gpu, bytes, op);
        if (rp_op_layer(o) != 0) {
            layer_of(p, o, rp_op_layer(o))->weight_tape = r->weight_tape;
        }
    }
    task->weight_tape = rp_op_kind_is_full_backward(o->kind) ? NO : r->weight_tape;
    rpexec_plan_use(p, task->weight_tape, op);
    if (rp_op_kind_is_weight_part(o->kind)) {
        return RP_OK;
    }
    task->d_output = r->d_output;
    rpexec_plan_use(p, r->d_output, op);
    if (task->begin != 0) {
        r->d_input = rpexec_plan_new_value(p, job->gpu, rpexec_plan_boundary_bytes(p, o), op);
        task->output = r->d_input;
    }
    if (task->begin != job->begin) { /* the layer below goes on */
        r->d_output = r->d_input;
        r->layered = true;
    }
    return RP_OK;
}

rp_status rpexec_plan_compute(rpexec_planner *p, uint32_t op)
{
    const rp_op *o = &p->program->ops[op];
    rpexec_task *task = &p->plan->tasks[op];
    rpexec_job *job = &p->plan->jobs[task->job];
    rpexec_plan_record *r = rpexec_plan_record_of(p, o, o->stage);
    set_layers(o, job, task);
    find_inputs(p, op, r);
    task->input = input_of(p, o, r, task);
    /* A rank's forwards may be other jobs, whose stages have no gradients yet. */
    bool adds = rp_op_kind_is_backward((rp_op_kind)o->kind) || has_head(task, p->plan->model);
    bool needs = p->plan->sharded != NULL ? adds : job->backward;
    if (needs && job->gradients == NO) {
        job->gradients = rpexec_plan_new_value(p, job->gpu, rpexec_plan_gradient_bytes(p, job), op);
        task->clears = true;
    }
    if (rp_op_kind_is_backward((rp_op_kind)o->kind)) {
        RP_TRY(plan_backward(p, op, r));
    } else {
        plan_forward(p, op, r);
    }
    uint64_t bytes = rpexec_stage_scratch_bytes(rpexec_plan_model(p->plan, job->gpu), task->begin,
                                                task->end, rpexec_plan_tokens(p, o));
    task->scratch = rpexec_plan_new_value(p, job->gpu, bytes, op);
    rpexec_plan_exchange(p, op, r);
    task->ids = task->begin == 0 ? r->ids : NO;
    task->labels = has_head(task, p->plan->model) ? r->labels : NO;
    task->head_gradient = has_head(task, p->plan->model) ? r->head_gradient : NO;
    rpexec_plan_use(p, task->input, op);
    rpexec_plan_use(p, task->ids, op);
    rpexec_plan_use(p, task->labels, op);
    rpexec_plan_use(p, task->head_gradient, op);
    rpexec_plan_use(p, job->weights, op);
    rpexec_plan_use(p, job->root, op);
    rpexec_plan_use(p, job->gradients, op);
    return RP_OK;
}
