#include "exec/rpexec/program_in.h"

#include "common/base/log.h"
#include "common/schedule/even.h"
#include "common/schedule/orders/data_parallel.h"
#include "exec/plan/plan.h"

#include <inttypes.h>
#include <string.h>

static bool is_lowered(const rp_program *program)
{
    return program->op_bytes != NULL && program->sequences != NULL;
}

/* ---- settings of the program ----------------------------------------------------------------- */

/* Makes a schedule with all properties that a run needs beyond its program; a data-parallel system
 * also has its order. */
static rp_status make_schedule(const rp_program *program, rp_arena *arena,
                               const rp_schedule_type **schedule_out)
{
    rp_schedule_type *type = NULL;
    const char *name = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *type, &type));
    RP_TRY(rp_arena_copy_text(arena, program->schedule, strlen(program->schedule), &name));
    *type = (rp_schedule_type){
        .name = name,
        .summary = "",
        .source = "",
        .separate_backward = rp_program_has_separate_backward(program),
        .traits = program->traits,
        .order = rp_is_data_parallel(&program->traits) ? rp_data_parallel_order : NULL};
    *schedule_out = type;
    return RP_OK;
}

static rp_status check_options(const rpexec_options *o, const rp_program *program)
{
    uint64_t gpus = (uint64_t)program->gpu_count * rp_layout_gpus(&program->traits.layout);
    if (gpus > RPEXEC_MAX_GPUS) {
        rp_log_error("--program-in: %s has %" PRIu64 " GPUs; valid are up to %u", o->program_in,
                     gpus, RPEXEC_MAX_GPUS);
        return RP_INPUT;
    }
    bool fixed = o->run.microbatch_size != 0 || o->run.accumulate != 0 || o->run.layer_grain ||
                 o->run.round != RP_ROUND_ALL;
    if (is_lowered(program) && fixed) {
        rp_log_error("%s: %s is a lowered program, which fixes it; valid with compute schedules",
                     o->run.accumulate != 0        ? "--accumulate"
                     : o->run.microbatch_size != 0 ? "--microbatch-size"
                     : o->run.layer_grain          ? "--grain"
                                                   : "--round",
                     o->program_in);
        return RP_USAGE;
    }
    if (is_lowered(program) && o->run.dtype_given && o->run.dtype != program->dtype) {
        rp_log_error("--dtype: values of %s are %s; valid is that type, or a compute schedule",
                     o->program_in, rp_dtype_text(program->dtype));
        return RP_USAGE;
    }
    if (o->run.accumulate != 0 && program->microbatch_count % o->run.accumulate != 0) {
        rp_log_error("--accumulate: %s has %u microbatches, which are not %u equal calls; valid "
                     "are divisors of %u",
                     o->program_in, program->microbatch_count, o->run.accumulate,
                     program->microbatch_count);
        return RP_USAGE;
    }
    if (program->recompute == RP_RECOMPUTE_SELECTIVE) {
        rp_log_error("--program-in: %s recomputes selectively; valid are none, wait and early, as "
                     "for --recompute",
                     o->program_in);
        return RP_USAGE;
    }
    if (o->steps % program->iteration_count != 0) {
        rp_log_error("--steps: %s has %u iterations, of which %u steps are no multiple; valid are "
                     "multiples of %u",
                     o->program_in, program->iteration_count, o->steps, program->iteration_count);
        return RP_USAGE;
    }
    return RP_OK;
}

static void set_options(const rp_program *program, rpexec_options *o)
{
    uint32_t calls = o->run.accumulate != 0 ? o->run.accumulate : 1;
    o->run = rp_run_of_program(program, calls, &o->run);
    rp_run_decide(&o->run, o->schedule);
    o->steps = o->steps == 0 ? program->iteration_count : o->steps;
}

rp_status rpexec_program_in_read(rpexec_options *options, rp_arena *arena, rp_program **program_out)
{
    rp_program *program = NULL;
    RP_TRY(rp_program_read_file(options->program_in, &program));
    rp_status status = check_options(options, program);
    status = status == RP_OK ? make_schedule(program, arena, &options->schedule) : status;
    if (status != RP_OK) {
        rp_program_destroy(program);
        return status;
    }
    const char *obstacle = rpexec_work_obstacle(&program->traits, program->asynchronous);
    if (obstacle != NULL) {
        rp_log_error("--program-in: %s: %s; valid are programs with 'asynchronous no'",
                     options->schedule->name, obstacle);
        rp_program_destroy(program);
        return RP_USAGE;
    }
    obstacle = rpexec_types_obstacle(&program->traits);
    if (obstacle != NULL) {
        rp_log_error("--program-in: %s: %s; valid are programs of runs without --states, --master "
                     "and --frozen",
                     options->schedule->name, obstacle);
        rp_program_destroy(program);
        return RP_USAGE;
    }
    set_options(program, options);
    *program_out = program;
    return RP_OK;
}

/* ---- fit to the model ------------------------------------------------------------------------ */

/* True if an op's bytes fit the model. The plan (exec/plan/plan.h) checks the bytes of parameters,
 * since it knows their layers. */
static bool op_fits(const rp_program *p, const rp_sizes *sizes, uint32_t op)
{
    const rp_op *o = &p->ops[op];
    uint64_t bytes = p->op_bytes[op];
    const rp_op_row *kind = &rp_op_kinds[o->kind];
    bool input = kind->way == RP_WAY_UP && (kind->tensors & RP_TENSOR_ACTIVATION) != 0;
    bool refused = rp_op_kind_moves_saved((rp_op_kind)o->kind); /* by the plan */
    if (kind->way == RP_WAY_NONE || refused || rp_op_kind_moves_parameters((rp_op_kind)o->kind)) {
        return true;
    }
    uint64_t tensor = p->sequences[o->microbatch] * sizes->boundary_bytes;
    uint64_t ids = p->sequences[o->microbatch] * sizes->input_bytes;
    return bytes == tensor ||
           (input && (bytes == ids || bytes == 2 * ids || bytes == tensor + ids));
}

static rp_status check_bytes(const rpexec_options *o, const rpexec_model *model,
                             const rp_program *p, rp_arena *arena)
{
    rp_sizes sizes;
    RP_TRY(rp_sizes_of_model(model->config, model->seq_len, model->dtype, arena, &sizes));
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (!op_fits(p, &sizes, i)) {
            char name[RP_OP_NAME_SIZE];
            rp_op_name(&p->ops[i], name);
            rp_log_error("--program-in: op %u (%s) of %s moves %" PRIu64
                         " bytes, which no boundary of %s with --seq-len %u has; valid are "
                         "programs lowered for them (rpexec --program-out) and compute schedules "
                         "(rpsim --fidelity stage --program-out)",
                         i, name, o->program_in, p->op_bytes[i], model->config->name,
                         model->seq_len);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

/* Sets *same_out to true if the schedule, built and lowered here, gives the same program. */
static rp_status is_rebuilt(const rp_resolved *work, const rpexec_model *model, const rp_program *p,
                            rp_arena *arena, bool *same_out)
{
    rp_costs costs;
    rp_program *built = NULL;
    RP_TRY(rpexec_work_costs(model, work->decided.microbatch_size, arena, &costs));
    rp_status status = rpexec_work_program(work, model, &costs, &built, NULL);
    *same_out = status == RP_OK && rp_program_hash(built) == rp_program_hash(p);
    rp_program_destroy(built);
    return status == RP_NO_MEMORY ? status : RP_OK;
}

/* Ranks of data-parallel systems all do the same, and the program does not tell their shares: only
 * the schedule's own program is accepted. */
static rp_status check_sharded(const rpexec_options *o, const rpexec_model *model,
                               const rp_program *p, rp_arena *arena)
{
    rp_partition partition;
    RP_TRY(rp_partition_of_program(p, arena, &partition));
    for (uint32_t k = 0; k < 2 * p->microbatch_count; k++) {
        uint32_t calls = k / 2 + 1;
        bool same = false;
        rp_resolved work = rp_resolved_of_program(p, calls);
        work.schedule = o->schedule;
        work.decided.layer_grain = k % 2 == 1;
        work.decided.piece_bytes = o->run.piece_bytes;
        work.partition = &partition;
        if (p->microbatch_count % calls == 0) {
            RP_TRY(is_rebuilt(&work, model, p, arena, &same));
        }
        if (same) {
            return RP_OK;
        }
    }
    rp_log_error("--program-in: %s is not what %s gives for %s with --seq-len %u; valid for "
                 "data-parallel systems are programs that rpexec --program-out has written",
                 o->program_in, o->schedule->name, model->config->name, model->seq_len);
    return RP_INPUT;
}

rp_status rpexec_program_in_fit(const rpexec_options *o, const rpexec_model *model, rp_arena *arena,
                                rp_program **program)
{
    rp_program *p = *program;
    rp_program *lowered = NULL;
    if (p->layer_count != model->config->layers) {
        rp_log_error("--program-in: %s has %u layers, the model %s has %u; valid is a program of "
                     "as many layers",
                     o->program_in, p->layer_count, model->config->name, model->config->layers);
        return RP_INPUT;
    }
    if (is_lowered(p)) {
        RP_TRY(check_bytes(o, model, p, arena));
        return rp_is_data_parallel(&p->traits) ? check_sharded(o, model, p, arena) : RP_OK;
    }
    const rp_resolved work = rp_resolved_of_run(&o->run, o->schedule, model->config);
    RP_TRY(rpexec_work_lower(&work, model, p, &lowered));
    rp_program_destroy(p);
    *program = lowered;
    return RP_OK;
}

/* ---- needs of every op ----------------------------------------------------------------------- */

static bool lies_in(const rpexec_plan *plan, uint32_t value, uint32_t place)
{
    return value != RPEXEC_NO_TENSOR && plan->values[value].place == place;
}

/* True if a value is needed and is not on the op's GPU. */
static bool lacks(const rpexec_plan *plan, bool needed, uint32_t value, uint32_t gpu)
{
    return needed && !lies_in(plan, value, gpu);
}

static bool compute_has_all(const rpexec_plan *plan, const rp_op *op, const rpexec_task *task,
                            uint32_t gpu)
{
    const rpexec_job *job = &plan->jobs[task->job];
    bool embedding = task->begin == 0;
    bool head = task->end == plan->model->layer_count;
    bool body = task->end - task->begin > (head ? 1 : 0);
    bool backward = rp_op_kind_is_backward((rp_op_kind)op->kind);
    bool blocks = task->runs_layers || (backward && body);
    bool weight = rp_op_kind_is_weight_part(op->kind);
    uint32_t below = body ? task->body : task->input;
    if (task->begin < job->begin || task->end > job->end) {
        return false;
    }
    for (uint32_t i = task->part_begin; i < task->part_end; i++) {
        if (lacks(plan, true, plan->parts[i].weight_tape, gpu)) {
            return false;
        }
    }
    bool parts = task->part_end > task->part_begin;
    return !(lacks(plan, true, job->weights, gpu) ||
             lacks(plan, backward || task->runs_head, job->gradients, gpu) ||
             lacks(plan, blocks && !parts && !embedding, task->input, gpu) ||
             lacks(plan, task->runs_head, below, gpu) ||
             lacks(plan, backward && head, task->head_gradient, gpu) ||
             lacks(plan, backward && !head && !weight, task->d_output, gpu) ||
             lacks(plan, backward && body && !parts, task->tape, gpu) ||
             lacks(plan, weight && body && !parts, task->weight_tape, gpu));
}

static bool transfer_has_all(const rpexec_plan *plan, const rp_op *op, const rpexec_task *task,
                             uint32_t gpu)
{
    uint32_t host = plan->program->gpu_count;
    const rp_op_row *kind = &rp_op_kinds[op->kind];
    bool up = kind->way == RP_WAY_UP;
    bool down = kind->way == RP_WAY_DOWN;
    bool ids_only = (kind->tensors & RP_TENSOR_ACTIVATION) != 0 && task->output == RPEXEC_NO_TENSOR;
    if (rp_op_kind_moves_parameters((rp_op_kind)op->kind)) {
        return up || lies_in(plan, plan->jobs[task->job].gradients, gpu);
    }
    return (!up && !down) || (up && ids_only) ||
           (lies_in(plan, task->input, up ? host : gpu) &&
            lies_in(plan, task->output, up ? gpu : host));
}

static bool moves_parameters(const rp_op *op)
{
    return rp_op_kind_moves_parameters((rp_op_kind)op->kind);
}

/* Tensors go from op to op within a microbatch; tensors of parameters belong to all
 * microbatches. */
static bool keeps_microbatch(const rp_program *p, uint32_t op)
{
    const rp_op *o = &p->ops[op];
    for (uint32_t w = o->wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        const rp_op *from = &p->ops[rp_wait_op(p->waits[w])];
        bool follows = !rp_wait_is_control(p->waits[w]) && !moves_parameters(o) &&
                       !moves_parameters(from) &&
                       rp_op_kind_class((rp_op_kind)from->kind) != RP_CLASS_HOST;
        if (follows && (from->microbatch != o->microbatch || from->iteration != o->iteration)) {
            return false;
        }
    }
    return true;
}

static bool has_all(const rpexec_plan *plan, uint32_t op)
{
    const rp_op *o = &plan->program->ops[op];
    uint32_t gpu = plan->program->queues[plan->order.queue_of[op]].gpu;
    rp_op_kind kind = (rp_op_kind)o->kind;
    bool transfer = rp_op_kind_class(kind) == RP_CLASS_TRANSFER;
    if (!transfer && !rp_op_kind_is_pass(kind)) {
        return true;
    }
    bool given = transfer ? transfer_has_all(plan, o, &plan->tasks[op], gpu)
                          : compute_has_all(plan, o, &plan->tasks[op], gpu);
    return given && keeps_microbatch(plan->program, op);
}

rp_status rpexec_program_in_check(const rpexec_plan *plan)
{
    for (uint32_t i = 0; i < plan->program->op_count; i++) {
        if (!has_all(plan, i)) {
            char name[RP_OP_NAME_SIZE];
            rp_op_name(&plan->program->ops[i], name);
            rp_log_error("--program-in: nothing gives op %u (%s) what it works on; valid are "
                         "programs as rpsim and rpexec lower them",
                         i, name);
            return RP_INPUT;
        }
    }
    return RP_OK;
}
