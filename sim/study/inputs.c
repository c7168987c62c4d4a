/* Inputs that the runs of a model share: platform, model, cost table, partitions. */
#include "common/compile/compile.h"
#include "common/inputs/data.h"
#include "sim/study/session.h"
#include "sim/study/study_internal.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/inputs/load/models.h"
#include "common/planner/planner.h"
#include "common/roofline/roofline.h"
#include "sim/run/run_plan.h"
#include "sim/run/seqlen.h"
#include "sim/study/explain_report.h"

#include <string.h>

#define MAX_ADAPTERS 1e15 /* the same limit as in a model's file */

static rp_status list_text(const char *kind, rp_arena *arena, rp_text *text)
{
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_data_list(kind, arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(rp_text_print(text, "%s%s", i == 0 ? "" : ", ", names[i]));
    }
    return RP_OK;
}

static rp_status missing_table(const char *name, rp_arena *arena, rp_reason *reason)
{
    rp_text valid = {0};
    rp_status status = list_text("costs", arena, &valid);
    if (status == RP_OK) {
        status =
            rp_refuse(reason, RP_USAGE,
                      "{costs}: stage fidelity needs a cost table and there is no %s; valid values "
                      "are %s, or a file",
                      name, valid.bytes != NULL ? valid.bytes : "");
    }
    rp_text_fini(&valid);
    return status;
}

static rp_status load_costs(const rpsim_setup *o, const char *name, rp_arena *arena,
                            rpsim_inputs *in, rp_reason *reason)
{
    rp_costs *costs = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *costs, &costs));
    RP_TRY(rpsim_session_costs(o->session, name, &o->changes, arena, costs, reason));
    in->costs = costs;
    return RP_OK;
}

/* Finds the table that model and platform imply, MODEL@GPU. */
static rp_status implied_costs(const char *model, const char *gpu, rp_arena *arena,
                               const char **name_out, bool *found_out)
{
    const char *path = NULL;
    RP_TRY(rp_arena_print(arena, name_out, "%s@%s", model, gpu));
    return rp_data_find(&rp_data_costs, *name_out, arena, &path, found_out);
}

/* Computes a table for the run's sizes, which hardware fidelity uses if no table was measured. */
static rp_status computed_costs(const rpsim_setup *o, const rp_layout *layout, rp_arithmetic asked,
                                rp_arena *arena, rpsim_inputs *in, rp_reason *reason)
{
    rp_costs *costs = NULL;
    const char *name = NULL;
    bool found = false;
    if (rp_changes_any(&o->changes, &rp_costs_schema)) { /* the changes are of a table in a file */
        RP_TRY(implied_costs(in->recorded_name, in->platform->gpu, arena, &name, &found));
        if (!found) {
            return rp_refuse(
                reason, RP_USAGE,
                "{set}: there is no table %s whose times could change, they are computed; "
                "valid are changes of the platform, or {costs} NAME|FILE",
                name);
        }
        return load_costs(o, name, arena, in, reason);
    }
    uint32_t sequences =
        o->run.microbatch_size != 0 ? o->run.microbatch_size : RP_DEFAULT_SEQUENCES;
    uint32_t seq_len = o->run.seq_len != 0 ? o->run.seq_len : RP_DEFAULT_SEQ_LEN;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *costs, &costs));
    const rp_roof roof = {in->platform, asked, in->stack};
    uint32_t tensor = rp_layout_tensor(layout);
    bool cut =
        tensor * rp_layout_expert(layout) > 1 &&
        (in->model->recorded == NULL || in->stack != NULL); /* a rank has shapes of its own */
    if (cut && (!o->all_schedules || in->model->heads % tensor == 0)) {
        rp_model rank;
        RP_TRY(rp_model_cut(in->model, layout, arena, &rank, reason));
        RP_TRY(rp_roofline_costs(&rank, &roof, sequences, seq_len, arena, costs, reason));
        costs->tensor_parallel = rp_layout_tensor(layout);
    } else {
        RP_TRY(rp_find_costs(in->model, &roof, sequences, seq_len, arena, costs, reason));
    }
    in->costs = costs;
    return RP_OK;
}

static rp_status check_sizes(const rpsim_setup *o, const rp_costs *costs, rp_reason *reason)
{
    if (o->run.microbatch_size != 0 && o->run.microbatch_size != costs->microbatch_size) {
        return rp_refuse(reason, RP_USAGE,
                         "{microbatch_size}: cost table %s was measured with %u sequences per "
                         "microbatch and stage fidelity does not rescale; valid is %u",
                         costs->name, costs->microbatch_size, costs->microbatch_size);
    }
    if (o->run.seq_len != 0 && o->run.seq_len != costs->seq_len) {
        return rp_refuse(
            reason, RP_USAGE,
            "{seq_len}: cost table %s was measured with sequences of %u tokens and stage "
            "fidelity does not rescale; valid is %u",
            costs->name, costs->seq_len, costs->seq_len);
    }
    return RP_OK;
}

/* Determines the arithmetic of the run. A program has a type of its own; if no option names a type,
 * a given table does. */
static rp_status asked_arithmetic(const rpsim_setup *o, const rp_program *program,
                                  const rp_costs *given, rp_arithmetic *asked_out,
                                  rp_reason *reason)
{
    bool says = given != NULL && given->arithmetic.accumulation != RP_ACCUMULATION_USUAL;
    *asked_out = (rp_arithmetic){.dtype = program != NULL               ? program->dtype
                                          : says && !o->run.dtype_given ? given->arithmetic.dtype
                                                                        : o->run.dtype,
                                 .accumulation = o->run.accumulation};
    if (!rp_arithmetic_exists(*asked_out)) {
        return rp_refuse(
            reason, RP_USAGE,
            "{accumulation}: products of %s add up in fp32; valid are fp32, and runs in "
            "fp16",
            rp_dtype_text(asked_out->dtype));
    }
    return RP_OK;
}

/* Converts the table's times to the run's arithmetic. A table that does not say its arithmetic is
 * taken as it is, with a warning if another arithmetic would give other times. */
static rp_status set_arithmetic(const rpsim_setup *o, rp_arithmetic asked, rp_arena *arena,
                                rpsim_inputs *in, rp_reason *reason)
{
    const rp_costs *table = in->costs;
    const rp_roof roof = {in->platform, asked, NULL};
    const rp_roof half = {in->platform, {RP_DTYPE_F16, RP_ACCUMULATION_F16}, NULL};
    rp_costs *costs = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *costs, &costs));
    RP_TRY(rp_costs_for_run(table, in->model, &roof, arena, costs, reason));
    in->costs = costs;
    bool matters = asked.dtype == RP_DTYPE_F32 ||
                   rp_peak_flops_per_s(&(const rp_roof){in->platform, costs->arithmetic, NULL}) !=
                       rp_peak_flops_per_s(&half);
    bool given = o->run.dtype_given || o->run.accumulation != RP_ACCUMULATION_USUAL;
    if (table->arithmetic.accumulation == RP_ACCUMULATION_USUAL && given && matters && !o->quiet) {
        rp_log_warning("{costs}: %s does not say what it was measured in: taken as %s; its keys "
                       "dtype and accumulation say it",
                       table->name, rp_arithmetic_text(costs->arithmetic));
    }
    return RP_OK;
}

static bool beats_peak(const rpsim_row *row)
{
    return row->run.costs->kind == RP_MEASURED && rpsim_result_beats_peak(&row->result);
}

void rpsim_row_doubt_costs(const rpsim_study *study, const rpsim_row *row)
{
    const rp_costs *costs = row->run.costs;
    bool said = study->setup->quiet;
    for (const rpsim_row *r = study->rows; r < row && !said; r++) {
        said = r->run.costs == costs && beats_peak(r);
    }
    if (!said && beats_peak(row)) {
        rp_log_warning("cost table %s: the GPUs of %s would compute at %.0f %% of their peak of "
                       "%.4g TFLOP/s (%s); check the table's times, microbatch_size, seq_len, "
                       "dtype and accumulation, and whether it is of this GPU",
                       costs->name, row->platform->name, 100 * row->result.busy_share,
                       1e-12 * row->result.peak_flops_per_s, rp_arithmetic_text(costs->arithmetic));
    }
}

/* Warns of host work that is not modelled: adapters of experts are thousands of modules per layer,
 * and only the dispatcher of RoundPipe's library is modelled. */
static void warn_of_host_work(const rpsim_setup *o, const rpsim_inputs *in)
{
    const rp_model *m = in->model;
    bool many = !o->quiet && o->run.hardware && m != NULL && m->lora_rank != 0 && m->experts > 1 &&
                !m->expert_bias;
    for (uint32_t i = 0; many && i < o->schedule_count; i++) {
        if (!o->schedules[i]->traits.one_dispatcher) {
            rp_log_warning("{model}: the host's work for the modules of %s's experts is in the "
                           "times of roundpipe only; others are at most as fast as is said here",
                           m->name);
            return;
        }
    }
}

/* Hardware fidelity rescales costs, and needs the model for that and for the bytes that move. */
static rp_status check_hardware(const rpsim_setup *o, const rpsim_inputs *in, rp_reason *reason)
{
    if (in->model == NULL) {
        return rp_refuse(reason, RP_USAGE,
                         "{model}: hardware fidelity needs to know the model; valid is {model} "
                         "NAME|FILE beside {costs}");
    }
    if (o->run.round_given && o->run.round != RP_ROUND_ALL) {
        return rp_refuse(reason, RP_USAGE,
                         "{round}: at hardware fidelity a call is one round; valid is all");
    }
    if (o->run.round_start_given && o->run.round_start != RP_ROUND_START_ROTATE) {
        return rp_refuse(reason, RP_USAGE,
                         "{round_start}: at hardware fidelity a rotation never resets; valid is "
                         "rotate");
    }
    if (o->run.max_seqlen && in->costs->arithmetic.dtype == RP_DTYPE_F32) {
        return rp_refuse(
            reason, RP_USAGE,
            "{max_seqlen}: what RoundPipe's library allocates is known for 16 bits; valid "
            "are {dtype} fp16 and bf16");
    }
    if (o->run.nodes == 0 && o->run.gpus > in->platform_gpus) {
        return rp_refuse(reason, RP_USAGE,
                         "{gpus}: %s has %u GPUs; valid at hardware fidelity are 1 to %u, "
                         "or a platform file with more",
                         in->platform->name, in->platform_gpus, in->platform_gpus);
    }
    return RP_OK;
}

/* Names a model with adapters. If a model file with this rank exists, its name is taken, since
 * tables and published runs are found by it. */
static rp_status name_adapters(rp_arena *arena, rp_model *model)
{
    size_t length = strlen(model->name);
    size_t end = strlen("-lora");
    bool named = length > end && strcmp(model->name + length - end, "-lora") == 0;
    const char *name = NULL;
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_print(arena, &name, "%s%s", model->name, named ? "" : "-lora"));
    RP_TRY(rp_data_list("models", arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        rp_model file;
        if (strcmp(names[i], name) == 0) {
            RP_TRY(rp_model_load(name, arena, &file));
            if (file.lora_rank == model->lora_rank) {
                model->name = model->recorded = name;
                return RP_OK;
            }
        }
    }
    model->recorded = NULL; /* times of full training do not apply */
    return rp_arena_print(arena, &model->name, "%s-%u", name, model->lora_rank);
}

/* Gives the model adapters, as lora_rank in a model's file does. */
static rp_status give_adapters(const rpsim_setup *o, rp_arena *arena, rp_model *model,
                               rp_reason *reason)
{
    if (o->lora_rank == 0) {
        return RP_OK;
    }
    if (model->plain_mlp || model->linear_bias || model->layer_norm) {
        return rp_refuse(
            reason, RP_USAGE,
            "{lora_rank}: %s has a plain MLP, biases or LayerNorm, whose adapters nobody "
            "has described; valid with models of the other families",
            model->name);
    }
    double widths = 4 * (model->hidden + (double)model->heads * model->head_dim) +
                    3 * ((double)model->hidden + model->intermediate) * model->experts;
    if (model->layers * widths * o->lora_rank > MAX_ADAPTERS) {
        return rp_refuse(
            reason, RP_USAGE,
            "{lora_rank}: adapters of rank %u for %s have up to %.3g parameters; valid are "
            "up to %.0g",
            o->lora_rank, model->name, model->layers * widths * o->lora_rank, MAX_ADAPTERS);
    }
    if (model->kinds != NULL) { /* a copy: the session's model is shared with other runs */
        const rp_model *kinds = model->kinds;
        RP_TRY(rp_arena_alloc(arena, model->kind_count, sizeof *kinds, &model->kinds));
        memcpy(model->kinds, kinds, model->kind_count * sizeof *kinds);
    }
    rp_model_set_lora_rank(model, o->lora_rank);
    return name_adapters(arena, model);
}

/* Stores the weights that adapters leave frozen as the run, or the program, has them. */
static rp_status set_types(const rpsim_setup *o, const rp_program *program, rp_model *model,
                           rp_reason *reason)
{
    const rp_types *types = program != NULL ? &program->traits.types : &o->run.types;
    model->frozen = (rp_frozen)types->frozen;
    model->fp8_products = o->run.fp8_products;
    return rpsim_setup_check_frozen(model->frozen, model->name, model->lora_rank != 0, reason);
}

static rp_status load_model(const rpsim_setup *o, const char *name, const rp_program *program,
                            rp_arena *arena, rpsim_inputs *in, rp_reason *reason)
{
    rp_model *model = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *model, &model));
    RP_TRY(o->assume != NULL ? rp_model_load_as(name, o->assume, arena, model)
                             : rpsim_session_model(o->session, name, arena, model));
    RP_TRY(give_adapters(o, arena, model, reason));
    RP_TRY(set_types(o, program, model, reason));
    if (o->run.seq_len != 0) {
        rp_model_set_seq_len(model, o->run.seq_len);
    }
    if (o->documents != NULL || o->padding > 0) {
        RP_TRY(rp_documents_load(o->documents, o->padding, arena, &model->documents, reason));
    }
    in->model = model;
    in->model_name = model->name;
    in->recorded_name = model->recorded != NULL ? model->recorded : "";
    in->hidden = model->hidden;
    return RP_OK;
}

static rp_status check_layers(const rpsim_inputs *in, rp_reason *reason)
{
    if (in->model != NULL && in->costs->layers != in->model->layers) {
        return rp_refuse(
            reason, RP_USAGE,
            "{costs}: table %s has %u layers, model %s has %u; valid is a table of the same "
            "model",
            in->costs->name, in->costs->layers, in->model->name, in->model->layers);
    }
    return RP_OK;
}

/* Loads or computes the cost table of the run. A lowered program has a type and a layout of its
 * own. */
static rp_status load_costs_of_run(const rpsim_setup *o, const rp_program *program, rp_arena *arena,
                                   rpsim_inputs *in, rp_reason *reason)
{
    rp_arithmetic asked;
    bool lowered = program != NULL && program->op_bytes != NULL;
    RP_TRY(asked_arithmetic(o, lowered ? program : NULL, in->costs, &asked, reason));
    if (o->costs == NULL && o->run.hardware) {
        RP_TRY(computed_costs(o, program != NULL ? &program->traits.layout : &o->run.layout, asked,
                              arena, in, reason));
    } else if (o->costs == NULL) {
        const char *name = NULL;
        bool found = false;
        RP_TRY(implied_costs(in->recorded_name, in->platform->gpu, arena, &name, &found));
        if (!found) {
            RP_TRY(rp_arena_print(arena, &name, "%s@%s", in->model_name, in->platform->gpu));
            return missing_table(name, arena, reason);
        }
        RP_TRY(load_costs(o, name, arena, in, reason));
    }
    RP_TRY(check_layers(in, reason));
    return o->run.hardware && in->model != NULL ? set_arithmetic(o, asked, arena, in, reason)
                                                : RP_OK;
}

rp_status rpsim_inputs_load(const rpsim_setup *o, const char *model, const rp_program *program,
                            rp_arena *arena, rpsim_inputs *in, rp_reason *reason)
{
    *in = (rpsim_inputs){0};
    rp_platform *platform = NULL;
    rp_changes changes;
    RP_TRY(rpsim_setup_all_changes(o, arena, &changes, reason));
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *platform, &platform));
    RP_TRY(rpsim_session_platform(o->session,
                                  o->platform != NULL ? o->platform : RPSIM_DEFAULT_PLATFORM,
                                  &changes, arena, platform, reason));
    if (o->run.nodes != 0) {
        RP_TRY(rp_platform_set_nodes(platform, o->run.nodes, o->run.gpus, reason));
    }
    RP_TRY(rpsim_setup_check_power(o, platform, reason));
    in->platform = platform;
    if (o->stack != NULL) {
        rp_stack *stack = NULL;
        RP_TRY(rp_arena_alloc(arena, 1, sizeof *stack, &stack));
        RP_TRY(rp_stack_load_changed(o->stack, &changes, arena, stack, reason));
        in->stack = stack;
    }
    RP_TRY(rpsim_setup_check_products(o, platform, in->stack, reason));
    in->platform_gpus = rp_platform_usual_gpus(platform);
    in->memory_limit = rp_plan_default_limit(platform);
    bool platform_used = o->platform != NULL || o->costs == NULL || o->run.hardware ||
                         rp_changes_any(&changes, &rp_platform_schema);
    in->platform_name = platform_used ? platform->name : NULL;
    if (o->costs != NULL) {
        RP_TRY(load_costs(o, o->costs, arena, in, reason));
    }
    if (model != NULL) {
        RP_TRY(load_model(o, model, program, arena, in, reason));
    } else if (o->lora_rank != 0) {
        return rp_refuse(reason, RP_USAGE,
                         "{lora_rank}: the model is not known; valid is {model} NAME|FILE beside "
                         "{costs}");
    } else {
        size_t length = strcspn(in->costs->name, "@ "); /* changes follow a blank */
        RP_TRY(rp_arena_copy_text(arena, in->costs->name, length, &in->model_name));
        in->recorded_name = in->model_name;
    }
    RP_TRY(load_costs_of_run(o, program, arena, in, reason));
    in->compared = in->costs;
    warn_of_host_work(o, in);
    return o->run.hardware ? check_hardware(o, in, reason) : check_sizes(o, in->costs, reason);
}

/* Models whose files give their software (host_launch_us) have been measured in it. */
static bool leaves_software_open(const rpsim_setup *o, const rpsim_inputs *in)
{
    bool asked = o->stack != NULL || o->costs != NULL || o->run.config_paper || !o->run.hardware;
    return !asked && in->model != NULL && in->model->host_launch_us <= 0 &&
           in->costs->kind == RP_ASSUMED && in->costs->stack == NULL;
}

/* @return the software in which layers of such systems run where no table gives their times; NULL:
 * it is left open. A program's name decides nothing: DeepSpeed has buckets, FSDP has none. */
static const char *software_of(const rp_traits *traits)
{
    if (!rp_is_data_parallel(traits) || rp_cuts_layers(traits)) {
        return NULL;
    }
    return traits->sharding.bucket_bytes > 0 ? "deepspeed" : "torch";
}

rp_status rpsim_inputs_of_schedule(const rpsim_setup *o, const rpsim_inputs *in,
                                   const rp_traits *traits, const rp_program *program,
                                   rp_arena *arena, rpsim_inputs *own_out, rp_reason *reason)
{
    *own_out = *in;
    const char *name = software_of(traits);
    if (name == NULL || !leaves_software_open(o, in)) {
        return RP_OK;
    }
    rp_stack *stack = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *stack, &stack));
    RP_TRY(rp_stack_load(name, arena, stack));
    stack->of_schedule = true;
    own_out->stack = stack;
    return load_costs_of_run(o, program, arena, own_out, reason);
}

/* ---- partitions ------------------------------------------------------------------------------ */

/* Makes the partition of `auto`. The planner is RoundPipe's, whose plans have separate backward
 * stages, so other schedules get the even partition. */
static rp_status auto_partition(const rpsim_inputs *in, const rp_resolved *run, rp_arena *arena,
                                rp_partition *partition_out, uint64_t *raised_out,
                                rp_reason *reason)
{
    if (!run->schedule->separate_backward) {
        return rp_partition_even(run->schedule, in->costs, run->gpus, 0, arena, partition_out,
                                 reason);
    }
    if (!run->stage) {
        return rpsim_run_plan(run, in->platform, arena, partition_out, raised_out, reason);
    }
    uint64_t limit = in->model != NULL ? in->memory_limit : RP_PLAN_UNLIMITED;
    return rpsim_table_plan(in->costs, in->model, limit, run->gpus, arena, partition_out,
                            raised_out, reason);
}

void rpsim_warn_of_plan(const char *model_name, uint64_t raised_bytes)
{
    if (raised_bytes != 0) {
        rp_log_warning("{partition} auto: 0.6 of the GPU memory do not hold the largest layer of "
                       "%s twice; planned with %llu bytes",
                       model_name, (unsigned long long)raised_bytes);
    }
}

/* Gives the weights by which a stack splits the layers over stages, as the times of a table: the
 * parameters of products, or the same for each layer and none for the head. */
static rp_status split_weights(const rpsim_inputs *in, rp_arena *arena, rp_costs *weights_out)
{
    const rp_model *m = in->model;
    rp_costs weights = *in->costs;
    bool parameters = strcmp(in->stack->split, "parameters") == 0;
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &weights.fwd_ps));
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &weights.bwd_ps));
    weights.bwd_input_ps = weights.bwd_ps;
    for (uint32_t i = 0; i < m->layers; i++) {
        const rp_model *layer = rp_model_of_layer(m, i);
        weights.fwd_ps[i] = 0;
        weights.bwd_ps[i] = parameters ? (int64_t)rp_model_held_layer(layer) : 1;
    }
    weights.head_fwd_ps = 0;
    weights.head_bwd_ps = parameters ? (int64_t)m->vocab * m->hidden : 0;
    *weights_out = weights;
    return RP_OK;
}

rp_status rpsim_inputs_partition(const rpsim_setup *o, const rpsim_inputs *in, rp_resolved *run,
                                 rp_arena *arena, rp_partition *partition_out, uint64_t *raised_out,
                                 rp_reason *reason)
{
    *raised_out = 0;
    const rp_schedule_type *schedule = run->schedule;
    rp_schedule_config view = rp_resolved_view(run);
    rp_costs weights;
    if (in->stack != NULL && in->stack->split != NULL && in->model != NULL &&
        strcmp(in->stack->split, "times") != 0) {
        RP_TRY(split_weights(in, arena, &weights));
        view.costs = &weights;
    }
    const char *text =
        rp_run_is_tuned(&o->run) ? NULL : o->run.partition; /* the start of the search */
    run->planned = false;
    bool planned =
        text == NULL && o->run.config_paper && o->run.stages == 0 && schedule->separate_backward;
    if (planned || (text != NULL && strcmp(text, "auto") == 0)) {
        run->planned = schedule->separate_backward;
        return auto_partition(in, run, arena, partition_out, raised_out, reason);
    }
    return rpsim_session_partition(o->session, text, RP_PARTITION_WORDS ", auto, tuned",
                                   in->recorded_name, o->run.stages, schedule, &view, arena,
                                   partition_out, reason);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The pipeline's GPUs are the total divided among copies and tensor groups. */
rp_status rpsim_study_check_layout(const rpsim_setup *o, const rpsim_inputs *in,
                                   const rp_schedule_type *schedule, rp_arena *arena,
                                   rp_reason *reason)
{
    const rp_layout *layout = &o->run.layout;
    uint32_t gpus = o->run.gpus != 0 && o->run.nodes == 0 ? o->run.gpus : in->platform_gpus;
    uint32_t each = rp_layout_gpus(layout);
    rp_model unused;
    RP_TRY(rp_compile_check_layout(schedule, layout, in->model,
                                   o->run.seq_len != 0 ? o->run.seq_len : in->costs->seq_len,
                                   o->run.asynchronous, reason));
    if (each == 1) {
        return RP_OK;
    }
    if (gpus % each != 0) {
        return rp_refuse_setting(reason, RP_USAGE,
                                 o->run.layout.tensor_parallel != 0 ? "tensor_parallel"
                                                                    : "data_parallel",
                                 "%u copies x %u GPUs per layer do not divide %u GPUs; valid are "
                                 "numbers whose product does",
                                 rp_layout_data(layout), rp_layout_tensor(layout), gpus);
    }
    /* With weights in host memory each copy has a host of its own. */
    uint32_t nodes = in->platform->nodes != 0 ? in->platform->nodes : 1;
    bool offload = schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    if (offload && nodes != rp_layout_data(layout)) {
        return rp_refuse(
            reason, RP_USAGE,
            "{data_parallel}: %u copies of %s, each with its weights in the memory of a "
            "server, on %u server%s; valid with it are as many copies as {nodes}",
            rp_layout_data(layout), schedule->name, nodes, nodes == 1 ? "" : "s");
    }
    return rp_model_cut(in->model, layout, arena, &unused, reason);
}

/* Tensor parallelism gives every GPU the same number of attention heads. */
rp_status rpsim_study_check_heads(const rpsim_row *row, rp_reason *reason)
{
    bool splits = !row->run.stage && rp_cuts_layers(&row->run.schedule->traits);
    if (!splits || row->run.model->heads % row->run.gpus == 0) {
        return RP_OK;
    }
    return rp_refuse(
        reason, RP_USAGE,
        "{gpus}: %s splits the %u attention heads of %s, %u GPUs cannot have equal parts; "
        "valid are divisors of %u",
        row->run.schedule->name, row->run.model->heads, row->model_name, row->run.gpus,
        row->run.model->heads);
}
