#include "sim/study.h"

#include "common/log.h"
#include "common/planner.h"
#include "common/text.h"

#include <string.h>

#define DEFAULT_MODEL "qwen3-1.7b"
#define DEFAULT_PLATFORM "rtx4090x8"

/* Enough for a steady state (cli.md: at least 16). */
#define STEADY_ITERATIONS 16

/* ---- inputs -----------------------------------------------------------------------------------
 */

/* What all schedules of one model share. */
typedef struct inputs {
    const char *model_name;
    const char *platform_name;
    uint32_t platform_gpus;
    const rp_costs *costs;
    uint64_t hidden;       /* 0 when unknown */
    const rp_model *model; /* NULL when unknown */
    const rp_platform *platform;
    uint64_t memory_limit; /* the planner's */
} inputs;

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

static rp_status missing_table(const char *name, rp_arena *arena)
{
    rp_text valid = {0};
    rp_status status = list_text("costs", arena, &valid);
    if (status == RP_OK) {
        rp_log_error("--costs: stage fidelity needs a cost table and there is no %s; valid values "
                     "are %s, or a file",
                     name, valid.bytes != NULL ? valid.bytes : "");
        status = RP_USAGE;
    }
    rp_text_fini(&valid);
    return status;
}

/* MODEL@GPU, the table that model and platform imply. */
static rp_status implied_costs(const char *model, const char *gpu, rp_arena *arena,
                               const char **name_out)
{
    RP_TRY(rp_arena_print(arena, name_out, "%s@%s", model, gpu));
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_data_list("costs", arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names[i], *name_out) == 0) {
            return RP_OK;
        }
    }
    return missing_table(*name_out, arena);
}

static rp_status check_sizes(const rpsim_options *o, const rp_costs *costs)
{
    if (o->microbatch_size != 0 && o->microbatch_size != costs->microbatch_size) {
        rp_log_error("--microbatch-size: cost table %s was measured with %u sequences per "
                     "microbatch and stage fidelity does not rescale; valid is %u",
                     costs->name, costs->microbatch_size, costs->microbatch_size);
        return RP_USAGE;
    }
    if (o->seq_len != 0 && o->seq_len != costs->seq_len) {
        rp_log_error("--seq-len: cost table %s was measured with sequences of %u tokens and stage "
                     "fidelity does not rescale; valid is %u",
                     costs->name, costs->seq_len, costs->seq_len);
        return RP_USAGE;
    }
    return RP_OK;
}

/* Hardware fidelity rescales costs, and needs the model for that and for the bytes that move. */
static rp_status check_hardware(const rpsim_options *o, const inputs *in)
{
    if (in->model == NULL) {
        rp_log_error("--model: hardware fidelity needs to know the model; valid is --model "
                     "NAME|FILE beside --costs");
        return RP_USAGE;
    }
    if (o->round_given && o->round != RP_ROUND_ALL) {
        rp_log_error("--round: at hardware fidelity a call is one round; valid is all");
        return RP_USAGE;
    }
    if (o->gpus > in->platform_gpus) {
        rp_log_error("--gpus: %s has %u GPUs; valid at hardware fidelity are 1 to %u",
                     in->platform->name, in->platform_gpus, in->platform_gpus);
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status load_model(const char *name, rp_arena *arena, inputs *in)
{
    rp_model *model = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *model, &model));
    RP_TRY(rp_model_load(name, arena, model));
    in->model = model;
    in->model_name = model->name;
    in->hidden = model->hidden;
    if (in->costs != NULL && in->costs->layers != model->layers) {
        rp_log_error(
            "--costs: table %s has %u layers, model %s has %u; valid is a table of the same "
            "model",
            in->costs->name, in->costs->layers, model->name, model->layers);
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status load_costs(const char *name, rp_arena *arena, inputs *in)
{
    rp_costs *costs = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *costs, &costs));
    RP_TRY(rp_costs_load(name, arena, costs));
    in->costs = costs;
    return RP_OK;
}

static rp_status load_inputs(const rpsim_options *o, const char *model, rp_arena *arena, inputs *in)
{
    *in = (inputs){0};
    rp_platform *platform = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *platform, &platform));
    RP_TRY(rp_platform_load(o->platform != NULL ? o->platform : DEFAULT_PLATFORM, arena, platform));
    in->platform = platform;
    in->platform_gpus = platform->gpus;
    in->memory_limit = rp_plan_default_limit(platform);
    bool platform_used = o->platform != NULL || o->costs == NULL || o->hardware;
    in->platform_name = platform_used ? platform->name : NULL;
    if (o->costs != NULL) {
        RP_TRY(load_costs(o->costs, arena, in));
    }
    if (model != NULL) {
        RP_TRY(load_model(model, arena, in));
    } else {
        size_t length = strcspn(in->costs->name, "@");
        RP_TRY(rp_arena_copy_text(arena, in->costs->name, length, &in->model_name));
    }
    if (o->costs == NULL) {
        const char *name = NULL;
        RP_TRY(implied_costs(in->model_name, platform->gpu, arena, &name));
        RP_TRY(load_costs(name, arena, in));
        RP_TRY(load_model(model, arena, in)); /* again: now the layer counts can be compared */
    }
    return o->hardware ? check_hardware(o, in) : check_sizes(o, in->costs);
}

/* ---- partitions -------------------------------------------------------------------------------
 */

static rp_status published_partition(const rp_schedule_type *schedule, const inputs *in,
                                     rp_arena *arena, rp_partition *partition_out, bool *found_out)
{
    return rp_partition_published(schedule->name, in->model_name, arena, partition_out, found_out);
}

/* Whether the schedule's rule takes this partition with these sizes. Says nothing, but in a
 * capture, and captures do not nest. */
static bool is_allowed(const rp_schedule_type *schedule, const rp_schedule_config *config,
                       const rp_partition *partition, bool captured)
{
    char message[16];
    rp_schedule_config trial = *config;
    trial.partition = partition;
    if (captured) {
        return rp_schedule_check(schedule, &trial) == RP_OK;
    }
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rp_schedule_check(schedule, &trial);
    rp_log_capture_end();
    return status == RP_OK;
}

/* The planner is RoundPipe's: its plans have backward stages of their own. Other schedules get the
 * even partition. */
static rp_status auto_partition(const rp_schedule_type *schedule, const inputs *in, uint32_t gpus,
                                rp_arena *arena, rp_partition *partition_out)
{
    if (!schedule->separate_backward) {
        return rp_partition_even(schedule, in->costs, gpus, 0, arena, partition_out);
    }
    rp_plan_input input;
    rp_plan plan;
    RP_TRY(rp_plan_input_from_costs(in->costs, in->model, arena, &input));
    input.min_stages = gpus;
    input.memory_limit = in->model != NULL ? in->memory_limit : RP_PLAN_UNLIMITED;
    RP_TRY(rp_plan_make(&input, arena, &plan));
    if (plan.limit_raised) {
        rp_log_warning("--partition auto: 0.6 of the GPU memory do not hold the largest layer of "
                       "%s twice; planned with %llu bytes",
                       in->model_name, (unsigned long long)plan.effective_memory_limit);
    }
    return rp_plan_partition(&plan, in->costs->layers, arena, partition_out);
}

static bool is_list(const char *text)
{
    return strcmp(text, "paper") != 0 && strcmp(text, "even") != 0 && strcmp(text, "auto") != 0;
}

static rp_status choose_partition(const rpsim_options *o, const rp_schedule_type *schedule,
                                  const inputs *in, const rp_schedule_config *config, bool captured,
                                  rp_arena *arena, rp_partition *partition_out)
{
    const char *text = o->partition;
    bool found = false;
    if (text != NULL && is_list(text)) {
        if (strpbrk(text, "0123456789") == NULL) {
            rp_log_error("--partition: '%s' is not valid; valid values are paper, even, auto, and "
                         "lists such as 3,3,4 or 2,2|0,2,2",
                         text);
            return RP_USAGE;
        }
        return rp_partition_parse("--partition", text, arena, partition_out);
    }
    bool planned = text == NULL && o->config_paper && o->stages == 0;
    if (planned || (text != NULL && strcmp(text, "auto") == 0)) {
        return auto_partition(schedule, in, config->gpus, arena, partition_out);
    }
    bool paper = text != NULL && strcmp(text, "paper") == 0;
    if (paper || (text == NULL && o->stages == 0)) {
        RP_TRY(published_partition(schedule, in, arena, partition_out, &found));
    }
    if (paper && !found) {
        rp_log_error("--partition: the paper lists none for %s with %s; valid values are even, "
                     "auto, and lists such as 3,3,4 or 2,2|0,2,2",
                     schedule->name, in->model_name);
        return RP_USAGE;
    }
    if (paper || (found && is_allowed(schedule, config, partition_out, captured))) {
        return RP_OK;
    }
    return rp_partition_even(schedule, in->costs, config->gpus, o->stages, arena, partition_out);
}

/* ---- rows -------------------------------------------------------------------------------------
 */

static rp_schedule_config make_config(const rpsim_options *o, const inputs *in,
                                      rp_recompute recompute)
{
    const rp_costs *costs = in->costs;
    rp_schedule_config config = {
        .gpus = o->gpus != 0 ? o->gpus : in->platform_gpus,
        .iterations = o->iterations,
        .round_start = o->round_start,
        .asynchronous = o->asynchronous,
        .recompute = recompute,
        .layers = costs->layers,
        .costs = costs,
        .boundary_bytes = 2 * in->hidden * costs->microbatch_size * costs->seq_len,
    };
    config.microbatches = o->microbatches != 0 ? o->microbatches : 2 * config.gpus;
    config.round = o->round_given ? o->round : config.gpus;
    if (config.iterations == 0) {
        config.iterations = o->asynchronous ? STEADY_ITERATIONS : 1;
    }
    return config;
}

/* At hardware fidelity a step has calls, sizes of its own and, by default, enough iterations for a
 * steady state; each call is one round of a rotation that never resets. */
static rp_status set_workload(const rpsim_options *o, rp_arena *arena, rpsim_row *row)
{
    rpsim_workload *w = &row->workload;
    uint32_t size = o->microbatch_size != 0 ? o->microbatch_size : row->costs->microbatch_size;
    *w = (rpsim_workload){.microbatches = row->config.microbatches, .calls = 1};
    w->seq_len = o->seq_len != 0 ? o->seq_len : row->costs->seq_len;
    if (!o->hardware) {
        w->global_batch = w->microbatches * size;
        return RP_OK;
    }
    row->hardware = true;
    if (o->config_paper) {
        RP_TRY(rpsim_workload_published(row->schedule->name, row->model_name, o->optimizer_given,
                                        row->config.asynchronous, w, &row->config.asynchronous));
    }
    w->microbatches = o->microbatches != 0 ? o->microbatches : w->microbatches;
    w->calls = o->accumulate != 0 ? o->accumulate : w->calls;
    uint64_t units = (uint64_t)w->calls * w->microbatches;
    if (units > RP_MAX_MICROBATCHES || units * size > UINT32_MAX) {
        rp_log_error("--accumulate: %u calls of %u microbatches; valid are up to %u microbatches "
                     "per step",
                     w->calls, w->microbatches, RP_MAX_MICROBATCHES);
        return RP_USAGE;
    }
    if (o->global_batch != 0 || w->global_batch == 0) {
        w->global_batch = o->global_batch != 0 ? o->global_batch : (uint32_t)units * size;
    }
    row->config.microbatches = (uint32_t)units;
    row->config.round = w->microbatches;
    row->config.round_start = RP_ROUND_START_ROTATE;
    row->config.iterations = o->iterations != 0 ? o->iterations : STEADY_ITERATIONS;
    uint32_t *unused = NULL; /* splits, or says how large the batch must be */
    return rpsim_workload_split(w, arena, &unused);
}

static rp_status check_round(const rpsim_options *o, const rp_schedule_type *schedule)
{
    if (schedule->rounds || (!o->round_given && !o->round_start_given) || o->schedule_count > 1) {
        return RP_OK;
    }
    rp_log_error("%s: %s has no rounds; valid with schedules that have them (roundpipe)",
                 o->round_given ? "--round" : "--round-start", schedule->name);
    return RP_USAGE;
}

/* Gives the row its partition and checks that the schedule's rule allows it. */
static rp_status fit_row(const rpsim_options *o, const inputs *in, bool captured, rp_arena *arena,
                         rpsim_row *row)
{
    rp_partition *partition = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *partition, &partition));
    RP_TRY(check_round(o, row->schedule));
    RP_TRY(set_workload(o, arena, row));
    RP_TRY(choose_partition(o, row->schedule, in, &row->config, captured, arena, partition));
    row->config.partition = partition;
    RP_TRY(rp_schedule_check(row->schedule, &row->config));
    return rp_partition_text(partition, arena, &row->partition_text);
}

/* The cause is the last line: is_allowed may have left one before it. */
static void warn_left_out(const rp_schedule_type *schedule, char *messages)
{
    size_t length = strlen(messages);
    if (length > 0 && messages[length - 1] == '\n') {
        messages[length - 1] = '\0';
    }
    const char *newline = strrchr(messages, '\n');
    rp_log_warning("%s left out: %s", schedule->name, newline != NULL ? newline + 1 : messages);
}

/* Adds one row; with --schedule all, one that its rule does not allow is skipped. */
static rp_status add_row(rpsim_study *study, const rp_schedule_type *schedule, const inputs *in,
                         rp_recompute recompute)
{
    const rpsim_options *o = study->options;
    rpsim_row row = {.schedule_name = schedule->name,
                     .schedule = schedule,
                     .model_name = in->model_name,
                     .platform_name = in->platform_name,
                     .model = in->model,
                     .platform = in->platform,
                     .costs = in->costs};
    row.config = make_config(o, in, recompute);
    if (o->all_schedules) {
        char messages[2048];
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = fit_row(o, in, true, study->arena, &row);
        rp_log_capture_end();
        if (status == RP_USAGE) {
            warn_left_out(schedule, messages);
            return RP_OK;
        }
    }
    RP_TRY(fit_row(o, in, false, study->arena, &row)); /* aloud: bad input is for all schedules */
    study->rows[study->row_count++] = row;
    return RP_OK;
}

static rp_status add_schedule(rpsim_study *study, const char *name, const inputs *in)
{
    const rpsim_options *o = study->options;
    const rp_schedule_type *schedule = rp_schedule_find(name);
    if (o->recompute_count != 0) {
        for (uint32_t i = 0; i < o->recompute_count; i++) {
            RP_TRY(add_row(study, schedule, in, o->recomputes[i]));
        }
        return RP_OK;
    }
    if (o->all_schedules) { /* fair: both sides have the same freedom, whichever it is */
        uint32_t before = study->row_count;
        RP_TRY(add_row(study, schedule, in, RP_RECOMPUTE_WAIT));
        bool left_out = study->row_count == before; /* one warning is enough */
        return left_out ? RP_OK : add_row(study, schedule, in, RP_RECOMPUTE_EARLY);
    }
    return add_row(study, schedule, in, schedule->default_recompute);
}

static rp_status program_partition(const rp_program *program, rp_arena *arena,
                                   rp_partition *partition)
{
    partition->forward_count = program->forward_count;
    RP_TRY(rp_arena_alloc(arena, program->forward_count, sizeof(uint32_t),
                          &partition->forward_layers));
    for (uint32_t i = 0; i < program->forward_count; i++) {
        const rp_stage *stage = &program->stages[program->forward_chain[i]];
        partition->forward_layers[i] = stage->layer_end - stage->layer_begin;
    }
    if (!rp_program_has_separate_backward(program)) {
        return RP_OK;
    }
    partition->backward_count = program->backward_count;
    RP_TRY(rp_arena_alloc(arena, program->backward_count, sizeof(uint32_t),
                          &partition->backward_layers));
    for (uint32_t j = 0; j < program->backward_count; j++) {
        const rp_stage *stage = &program->stages[program->backward_chain[j]];
        partition->backward_layers[j] = stage->layer_end - stage->layer_begin;
    }
    return RP_OK;
}

static rp_status read_program(const char *path, rp_program **program_out)
{
    rp_text text = {0};
    rp_status status = rp_text_read_file(path, SIZE_MAX, &text);
    if (status == RP_OK) {
        status =
            rp_program_read(path, text.bytes != NULL ? text.bytes : "", text.length, program_out);
    }
    rp_text_fini(&text);
    /* A file that breaks a rule is bad input, not a failed run. */
    return status == RP_INVALID_PROGRAM ? RP_INPUT : status;
}

static rp_status program_workload(const rpsim_options *o, const rp_program *program, rpsim_row *row)
{
    const rp_costs *costs = row->costs;
    uint64_t batch = (uint64_t)program->microbatch_count * costs->microbatch_size;
    if (program->sequences != NULL) {
        batch = 0;
        for (uint32_t m = 0; m < program->microbatch_count; m++) {
            batch += program->sequences[m];
        }
    }
    if (batch > UINT32_MAX) {
        rp_log_error("--program-in: %llu sequences per step; valid are up to %u",
                     (unsigned long long)batch, UINT32_MAX);
        return RP_INPUT;
    }
    row->workload = (rpsim_workload){.global_batch = (uint32_t)batch,
                                     .calls = 1,
                                     .microbatches = program->microbatch_count,
                                     .seq_len = o->seq_len != 0 ? o->seq_len : costs->seq_len};
    return RP_OK;
}

static rp_status add_program(rpsim_study *study, const inputs *in)
{
    rp_arena *arena = study->arena;
    rp_program *program = NULL;
    RP_TRY(read_program(study->options->program_in, &program));
    rpsim_row *row = &study->rows[study->row_count++];
    *row = (rpsim_row){.schedule = rp_schedule_find(program->schedule),
                       .model_name = in->model_name,
                       .platform_name = in->platform_name,
                       .costs = in->costs,
                       .model = in->model,
                       .platform = in->platform,
                       .hardware = study->options->hardware,
                       .from_program = true,
                       .given = program};
    RP_TRY(program_workload(study->options, program, row));
    /* A copy: the program may go as soon as it has run. */
    RP_TRY(rp_arena_copy_text(arena, program->schedule, strlen(program->schedule),
                              &row->schedule_name));
    rp_partition *partition = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *partition, &partition));
    RP_TRY(program_partition(program, arena, partition));
    row->config = (rp_schedule_config){.gpus = program->gpu_count,
                                       .microbatches = program->microbatch_count,
                                       .iterations = program->iteration_count,
                                       .asynchronous = program->asynchronous,
                                       .recompute = program->recompute,
                                       .layers = program->layer_count,
                                       .partition = partition,
                                       .costs = in->costs};
    return rp_partition_text(partition, arena, &row->partition_text);
}

static rp_status add_model(rpsim_study *study, const char *model)
{
    const rpsim_options *o = study->options;
    inputs in;
    RP_TRY(load_inputs(o, model, study->arena, &in));
    if (o->program_in != NULL) {
        return add_program(study, &in);
    }
    for (uint32_t i = 0; i < o->schedule_count; i++) {
        RP_TRY(add_schedule(study, o->schedules[i], &in));
    }
    return RP_OK;
}

rp_status rpsim_study_prepare(const rpsim_options *options, rp_arena *arena, rpsim_study *study_out)
{
    *study_out = (rpsim_study){.arena = arena, .options = options};
    uint32_t models = options->model_count != 0 ? options->model_count : 1;
    size_t capacity = (size_t)models * (options->schedule_count + 1) * RP_RECOMPUTE_COUNT;
    RP_TRY(rp_arena_alloc(arena, capacity, sizeof(rpsim_row), &study_out->rows));
    if (options->model_count == 0) {
        RP_TRY(add_model(study_out, options->costs != NULL ? NULL : DEFAULT_MODEL));
    }
    for (uint32_t i = 0; i < options->model_count; i++) {
        RP_TRY(add_model(study_out, options->models[i]));
    }
    if (study_out->row_count == 0) {
        rp_log_error("--schedule: no schedule allows these sizes; see the warnings for valid ones");
        return RP_USAGE;
    }
    return RP_OK;
}

/* ---- running ----------------------------------------------------------------------------------
 */

static bool keeps_timeline(const rpsim_options *o)
{
    return o->trace_out != NULL || o->gantt_out != NULL || o->program_out != NULL || o->db_ops;
}

static rp_status run_row(rpsim_row *row)
{
    if (row->given == NULL && row->hardware) {
        return rpsim_hardware_case_run(row->schedule, &row->config, &row->workload, row->model,
                                       row->platform, &row->result);
    }
    if (row->given == NULL) {
        return rpsim_case_run(row->schedule, &row->config, &row->result);
    }
    rp_status status =
        row->hardware
            ? rpsim_hardware_program_run(row->given, row->costs, row->model, row->platform,
                                         row->workload.seq_len, &row->result)
            : rpsim_program_run(row->given, row->costs, &row->result);
    row->given = status == RP_OK ? NULL : row->given;
    return status;
}

rp_status rpsim_study_run(rpsim_study *study)
{
    const rpsim_options *o = study->options;
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_row *row = &study->rows[i];
        RP_TRY(run_row(row));
        row->ops = row->result.program->op_count;
        if (o->db != NULL) {
            row->program_hash = rp_program_hash(row->result.program);
        }
        if (!keeps_timeline(o)) {
            rpsim_result_fini(&row->result);
        }
    }
    return RP_OK;
}

rp_status rpsim_study_check(rpsim_study *study)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_row *row = &study->rows[i];
        rp_program *program = row->given;
        if (program == NULL) {
            RP_TRY(row->hardware ? rpsim_hardware_lower(row->schedule, &row->config, &row->workload,
                                                        row->model, &program)
                                 : rp_schedule_build(row->schedule, &row->config, &program));
            rp_status status = rp_program_check(program);
            if (status != RP_OK) {
                rp_program_destroy(program);
                return status;
            }
        }
        row->ops = program->op_count;
        row->program_hash = rp_program_hash(program);
        if (program != row->given) {
            rp_program_destroy(program);
        }
    }
    return RP_OK;
}

void rpsim_study_fini(rpsim_study *study)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_result_fini(&study->rows[i].result);
        rp_program_destroy(study->rows[i].given);
        study->rows[i].given = NULL;
    }
}
