#include "sim/study/study.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/planner/planner.h"
#include "common/roofline/roofline.h"
#include "common/schedule/build.h"
#include "sim/run/seqlen.h"
#include "sim/study/explain_report.h"
#include "sim/study/ranking.h"
#include "sim/study/session.h"
#include "sim/study/study_internal.h"
#include "sim/study/tune_row.h"

#include <string.h>

#define DEFAULT_MODEL "qwen3-1.7b"

/* ---- rows ------------------------------------------------------------------------------------ */

static rp_status check_round(const rpsim_setup *o, const rp_schedule_type *schedule,
                             rp_reason *reason)
{
    if (schedule->traits.overlapping_rounds && o->run.round_start_given && o->schedule_count == 1) {
        return rp_refuse(reason, RP_USAGE,
                         "{round_start}: %s places rounds by time; valid with roundpipe",
                         schedule->name);
    }
    if (schedule->rounds || (!o->run.round_given && !o->run.round_start_given) ||
        o->schedule_count > 1) {
        return RP_OK;
    }
    return rp_refuse_setting(reason, RP_USAGE, o->run.round_given ? "round" : "round_start",
                             "%s has no rounds; valid with schedules that have them (roundpipe)",
                             schedule->name);
}

/* @param schedule NULL: the program is given */
static rp_status check_recompute(const rpsim_setup *o, const rpsim_inputs *in,
                                 const rp_schedule_type *schedule, rp_recompute recompute,
                                 rp_reason *reason)
{
    if (o->run.hardware) {
        return rp_compile_check_recompute(schedule, recompute, in->costs->stack, reason);
    }
    return recompute != RP_RECOMPUTE_SELECTIVE
               ? RP_OK
               : rp_refuse(reason, RP_USAGE,
                           "{recompute}: stage fidelity knows no parts of layers; valid for "
                           "selective is {fidelity} hardware");
}

static rp_run_inputs inputs_of(const rpsim_study *study, const rpsim_inputs *in)
{
    return (rp_run_inputs){.platform = in->platform,
                           .costs = in->costs,
                           .model = in->model,
                           .recorded_name = in->recorded_name,
                           .orders = study->orders,
                           .usual_iterations = study->setup->one_iteration ? 1 : 0};
}

/* Facts to warn of if a row is not left out. */
typedef struct notes {
    bool idle_grain;       /* --grain layer changes nothing */
    uint64_t raised_bytes; /* GPU memory to which the limit was raised for a plan; 0: it was not
                              raised */
} notes;

static void give_warnings(const rpsim_row *row, const notes *n)
{
    if (n->idle_grain) {
        rp_compile_warn_of_grain(row->run.schedule);
    }
    rpsim_warn_of_plan(row->model_name, n->raised_bytes);
}

/* Settles the row's run and gives it its partition, or the partition that a search begins with. */
static rp_status fit_row(const rpsim_study *study, const rpsim_setup *o, const rpsim_inputs *in,
                         rp_recompute recompute, rpsim_row *row, notes *notes_out,
                         rp_reason *reason)
{
    const rp_run *run = &o->run;
    const rp_schedule_type *schedule = row->run.schedule;
    const rp_run_inputs inputs = inputs_of(study, in);
    rp_partition *partition = NULL;
    RP_TRY(rp_arena_alloc(study->arena, 1, sizeof *partition, &partition));
    RP_TRY(check_round(o, schedule, reason));
    RP_TRY(rpsim_study_check_layout(o, in, schedule, study->arena, reason));
    RP_TRY(rp_compile_check_reductions(schedule, &run->layout, &run->reductions, reason));
    RP_TRY(rp_compile_check_offload(schedule, run->offload_activations, reason));
    RP_TRY(rp_compile_check_grain(schedule, recompute,
                                  run->layer_grain && !run->offload_activations,
                                  run->recompute_count != 0, &notes_out->idle_grain, reason));
    RP_TRY(check_recompute(o, in, schedule, recompute, reason));
    RP_TRY(rp_resolve(run, &inputs, schedule, recompute, &row->run, reason));
    RP_TRY(rpsim_inputs_partition(o, in, &row->run, study->arena, partition,
                                  &notes_out->raised_bytes, reason));
    row->run.partition = partition;
    return RP_OK;
}

/* Checks that the schedule's rule allows the row's sizes. */
static rp_status check_row(rpsim_row *row, rp_arena *arena, rp_reason *reason)
{
    const rp_schedule_config view = rp_resolved_view(&row->run);
    RP_TRY(rp_schedule_check(row->run.schedule, &view, reason));
    RP_TRY(rpsim_study_check_heads(row, reason));
    return rp_partition_text(row->run.partition, arena, &row->partition_text);
}

static rpsim_row make_row(const rp_schedule_type *schedule, const rpsim_inputs *in)
{
    return (rpsim_row){.run = {.schedule = schedule},
                       .schedule_name = schedule->name,
                       .model_name = in->model_name,
                       .recorded_name = in->recorded_name,
                       .platform_name = in->platform_name,
                       .platform = in->platform,
                       .compared = in->compared};
}

/* Adds a row; with --schedule all, a row that its schedule's rule does not allow is left out. */
static rp_status add_row(rpsim_study *study, const rpsim_setup *o, const rpsim_inputs *in,
                         const rp_schedule_type *schedule, rp_recompute recompute,
                         rp_reason *reason)
{
    rp_reason own = {0};
    notes n = {0};
    rpsim_row row = make_row(schedule, in);
    bool tuned = rp_run_is_tuned(&o->run);
    rp_status status = fit_row(study, o, in, recompute, &row, &n, &own);
    if (status == RP_OK && (o->all_schedules || !tuned)) {
        status = check_row(&row, study->arena, &own);
    }
    if (status == RP_USAGE && own.status == status && o->all_schedules) {
        return rpsim_study_refuse(study, row.schedule_name, row.model_name, own.text, true);
    }
    give_warnings(&row, &n);
    if (status != RP_OK) { /* bad input concerns all schedules */
        return rp_reason_give(&own, status, reason);
    }
    if (tuned) {
        RP_TRY(rpsim_tune_row(o, in, study->arena, &row));
        RP_TRY(check_row(&row, study->arena, reason));
    }
    RP_TRY(rpsim_row_set_error(study, &row));
    study->rows[study->row_count++] = row;
    return RP_OK;
}

static rp_status add_schedule(rpsim_study *study, const rp_schedule_type *schedule,
                              const rpsim_inputs *in, rp_reason *reason)
{
    const rpsim_setup *o = study->setup;
    const char *name = schedule->name;
    const char *why = NULL;
    if (schedule->flushed != NULL && o->all_schedules && !o->run.asynchronous) {
        RP_TRY(rp_arena_print(study->arena, &why,
                              "flushed after every step it is %s; valid with %s async",
                              schedule->flushed->name, rp_log_spell("{optimizer}").text));
        return rpsim_study_refuse(study, name, in->model_name, why, false);
    }
    const char *only_sync = rp_traits_only_synchronous(&schedule->traits);
    if (only_sync != NULL && o->all_schedules && o->run.asynchronous && o->run.hardware) {
        RP_TRY(rp_arena_print(study->arena, &why, "%s; valid with %s sync", only_sync,
                              rp_log_spell("{optimizer}").text));
        return rpsim_study_refuse(study, name, in->model_name, why, false);
    }
    if (schedule->published_as != NULL && o->all_schedules && !o->run.hardware) {
        RP_TRY(rp_arena_print(study->arena, &why,
                              "it differs from %s only in what it moves, which stage fidelity does "
                              "not model; valid with %s hardware",
                              schedule->published_as, rp_log_spell("{fidelity}").text));
        return rpsim_study_refuse(study, name, in->model_name, why, false);
    }
    if (rp_is_data_parallel(&schedule->traits) && !o->run.hardware) {
        if (o->all_schedules) {
            return rpsim_study_refuse(
                study, name, in->model_name,
                rp_log_spell("stage fidelity knows no collectives, they would "
                             "come out free; valid with {fidelity} hardware")
                    .text,
                false);
        }
        return rp_refuse(
            reason, RP_USAGE,
            "{schedule}: %s lives on collectives, which stage fidelity does not know; valid "
            "is {fidelity} hardware",
            schedule->name);
    }
    if (o->run.recompute_count != 0) {
        for (uint32_t i = 0; i < o->run.recompute_count; i++) {
            RP_TRY(add_row(study, o, in, schedule, o->run.recomputes[i], reason));
        }
        return RP_OK;
    }
    if (o->all_schedules) { /* so that all compared schedules have the same freedom */
        uint32_t before = study->row_count;
        RP_TRY(add_row(study, o, in, schedule, RP_RECOMPUTE_WAIT, reason));
        bool left_out = study->row_count == before; /* a single warning is enough */
        return left_out ? RP_OK : add_row(study, o, in, schedule, RP_RECOMPUTE_EARLY, reason);
    }
    return add_row(study, o, in, schedule, schedule->default_recompute, reason);
}

static rp_status read_sidecar(const char *path, rp_arena *arena, const rpsim_sidecar **sidecar_out)
{
    rpsim_sidecar *sidecar = NULL;
    rp_text text = {0};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *sidecar, &sidecar));
    rp_status status = rp_text_read_file(path, SIZE_MAX, &text);
    if (status == RP_OK) {
        status = rpsim_sidecar_read(path, text.bytes != NULL ? text.bytes : "", text.length, arena,
                                    sidecar);
    }
    rp_text_fini(&text);
    *sidecar_out = sidecar;
    return status;
}

static rp_status read_orders(rpsim_study *study)
{
    const rpsim_setup *o = study->setup;
    const char *path = o->torch_csv_in;
    rp_arena *arena = study->arena;
    rp_torch_csv *csv = NULL;
    rp_text text = {0};
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *csv, &csv));
    rp_status status = rp_text_read_file(path, SIZE_MAX, &text);
    if (status == RP_OK) {
        status =
            rp_torch_csv_parse(path, text.bytes != NULL ? text.bytes : "", text.length, arena, csv);
    }
    rp_text_fini(&text);
    RP_TRY(status);
    study->orders = csv;
    if (o->torch_sidecar == NULL) {
        return rp_torch_csv_check(csv, arena);
    }
    RP_TRY(read_sidecar(o->torch_sidecar, arena, &study->sidecar));
    rpsim_sidecar_apply(study->sidecar, csv);
    if (csv->separate && !o->multi_rank_stages) {
        rp_log_error_at(study->sidecar->name, 0,
                        "the stages of %s have forward and backward apart and may run on several "
                        "ranks; valid with {allow_multi_rank_stages}",
                        path);
        return RP_USAGE;
    }
    RP_TRY(rp_torch_csv_check(csv, arena));
    return rpsim_sidecar_check(study->sidecar, csv, arena);
}

/* Adds the row of --torch-csv-in. Its sizes are the file's; an even partition has as many stages as
 * the file. */
static rp_status add_orders(rpsim_study *study, const rpsim_inputs *in, rp_recompute recompute,
                            rp_reason *reason)
{
    rpsim_setup sized = *study->setup;
    const rp_torch_csv *orders = study->orders;
    sized.run.gpus = orders->rank_count;
    sized.run.nodes = 0; /* already contained in the platform */
    sized.run.microbatches = orders->microbatch_count;
    sized.run.stages = orders->stage_count;
    if (sized.run.hardware && sized.run.gpus > in->platform_gpus) {
        return rp_refuse(reason, RP_INPUT,
                         "%s: %u ranks, and %s has %u GPUs; valid at hardware fidelity are 1 to %u "
                         "ranks",
                         orders->name, sized.run.gpus, in->platform->name, in->platform_gpus,
                         in->platform_gpus);
    }
    const rp_schedule_type *schedule = NULL;
    RP_TRY(rpsim_sidecar_schedule(study->sidecar, study->arena, &schedule));
    if (study->sidecar != NULL) {
        sized.run.stages = 0;
        recompute = study->sidecar->recompute;
        RP_TRY(rp_partition_text(&study->sidecar->partition, study->arena, &sized.run.partition));
    }
    return add_row(study, &sized, in, schedule, recompute, reason);
}

static rp_status check_sequences(const rpsim_setup *o, const rpsim_row *row, rp_reason *reason)
{
    uint32_t size = row->run.decided.microbatch_size;
    return size == 0 || o->run.microbatch_size == 0 || o->run.microbatch_size == size
               ? RP_OK
               : rp_refuse(reason, RP_USAGE,
                           "{microbatch_size}: the microbatches of %s have %u sequences; valid is "
                           "%u",
                           o->program_in, size, size);
}

/* Sets a row's run from its program. */
static rp_status set_program(const rpsim_setup *o, const rpsim_inputs *in,
                             const rp_program *program, rpsim_row *row, rp_reason *reason)
{
    const rp_costs *costs = in->costs;
    uint64_t gpus = (uint64_t)program->gpu_count * rp_layout_gpus(&program->traits.layout);
    if (o->run.hardware && gpus > row->platform->gpus) {
        return rp_refuse(
            reason, RP_INPUT,
            "{program_in}: %s has %llu GPUs, and %s has %u; valid at hardware fidelity "
            "are platforms with as many",
            o->program_in, (unsigned long long)gpus, row->platform_name, row->platform->gpus);
    }
    uint64_t batch = (uint64_t)program->microbatch_count * costs->microbatch_size;
    if (program->sequences != NULL) {
        batch = 0;
        for (uint32_t m = 0; m < program->microbatch_count; m++) {
            batch += program->sequences[m];
        }
    }
    if (batch > UINT32_MAX) {
        return rp_refuse(reason, RP_INPUT,
                         "{program_in}: %llu sequences per step; valid are up to %u",
                         (unsigned long long)batch, UINT32_MAX);
    }
    RP_TRY(check_recompute(o, in, NULL, program->recompute, reason));
    row->run = rp_resolved_of_program(program, 1);
    RP_TRY(check_sequences(o, row, reason));
    row->run.model = in->model;
    row->run.costs = costs;
    row->run.stage = !o->run.hardware;
    row->run.decided.seq_len = o->run.seq_len != 0 ? o->run.seq_len : costs->seq_len;
    row->run.global_batch = (uint32_t)batch;
    return RP_OK;
}

/* @param program owned by the study from here on */
static rp_status add_program(rpsim_study *study, const rpsim_inputs *in, rp_program *program,
                             rp_reason *reason)
{
    rp_arena *arena = study->arena;
    rpsim_row *row = &study->rows[study->row_count++];
    *row = (rpsim_row){.model_name = in->model_name,
                       .recorded_name = in->recorded_name,
                       .platform_name = in->platform_name,
                       .platform = in->platform,
                       .compared = in->compared,
                       .from_program = true,
                       .given = program};
    RP_TRY(set_program(study->setup, in, program, row, reason));
    /* A copy, because the program may be destroyed as soon as it has run. */
    RP_TRY(rp_arena_copy_text(arena, program->schedule, strlen(program->schedule),
                              &row->schedule_name));
    rp_partition *partition = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *partition, &partition));
    RP_TRY(rp_partition_of_program(program, arena, partition));
    row->run.partition = partition;
    RP_TRY(rpsim_row_set_error(study, row));
    return rp_partition_text(partition, arena, &row->partition_text);
}

static rp_status add_model(rpsim_study *study, const char *model, rp_reason *reason)
{
    const rpsim_setup *o = study->setup;
    rpsim_inputs in;
    rpsim_inputs own;
    if (o->program_in != NULL) {
        rp_program *program = NULL;
        RP_TRY(rp_program_read_file(o->program_in, &program));
        rp_status status = rpsim_inputs_load(o, model, program, study->arena, &in, reason);
        if (status == RP_OK) {
            status = rpsim_inputs_of_schedule(o, &in, &program->traits, program, study->arena, &own,
                                              reason);
        }
        if (status != RP_OK) {
            rp_program_destroy(program);
            return status;
        }
        return add_program(study, &own, program, reason);
    }
    RP_TRY(rpsim_inputs_load(o, model, NULL, study->arena, &in, reason));
    if (study->orders != NULL && o->run.recompute_count == 0) {
        return add_orders(study, &in, rp_torch_csv_schedule.default_recompute, reason);
    }
    for (uint32_t i = 0; study->orders != NULL && i < o->run.recompute_count; i++) {
        RP_TRY(add_orders(study, &in, o->run.recomputes[i], reason));
    }
    for (uint32_t i = 0; i < o->schedule_count; i++) {
        RP_TRY(rpsim_inputs_of_schedule(o, &in, &o->schedules[i]->traits, NULL, study->arena, &own,
                                        reason));
        RP_TRY(add_schedule(study, o->schedules[i], &own, reason));
    }
    return RP_OK;
}

static rp_status check_slow_gpu(const rpsim_study *study, rp_reason *reason)
{
    const rpsim_setup *o = study->setup;
    for (uint32_t i = 0; o->slow_factor != 0 && i < study->row_count; i++) {
        uint32_t gpus = study->rows[i].run.gpus;
        if (o->slow_gpu >= gpus) {
            return rp_refuse(reason, RP_USAGE,
                             "{slow_gpu}: %s runs on %u GPUs; valid are GPUs 0 to %u",
                             study->rows[i].schedule_name, gpus, gpus - 1);
        }
    }
    return RP_OK;
}

rp_status rpsim_study_prepare(const rpsim_setup *setup, rp_arena *arena, rpsim_study *study_out,
                              rp_reason *reason)
{
    *study_out = (rpsim_study){.arena = arena, .setup = setup};
    uint32_t models = setup->model_count != 0 ? setup->model_count : 1;
    size_t capacity = (size_t)models * (setup->schedule_count + 1) * RP_RECOMPUTE_COUNT;
    RP_TRY(rp_arena_alloc(arena, capacity, sizeof(rpsim_row), &study_out->rows));
    capacity = (size_t)models * (setup->schedule_count + 1);
    RP_TRY(rp_arena_alloc(arena, capacity, sizeof(rpsim_refusal), &study_out->refusals));
    if (setup->torch_csv_in != NULL) {
        RP_TRY(read_orders(study_out));
    }
    if (setup->model_count == 0) {
        RP_TRY(add_model(study_out, setup->costs != NULL ? NULL : DEFAULT_MODEL, reason));
    }
    for (uint32_t i = 0; i < setup->model_count; i++) {
        RP_TRY(add_model(study_out, setup->models[i], reason));
    }
    RP_TRY(check_slow_gpu(study_out, reason));
    if (study_out->row_count == 0) {
        return setup->quiet ? RP_USAGE
                            : rp_refuse(reason, RP_USAGE,
                                        "{schedule}: no schedule allows these sizes; see "
                                        "the warnings for valid ones");
    }
    return RP_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Parts of a row's run that its results do not need. Noise, a slow GPU and whoever reads programs
 * and timelines need all ranks. */
static unsigned unneeded(const rpsim_setup *o, const rpsim_row *row)
{
    bool all = o->keep || o->hashes || o->explain || o->jitter_given || o->slow_factor != 0;
    return row->without | (all ? 0 : RPSIM_WITHOUT_EQUAL_RANKS);
}

/* Runs a row. Rows that keep their programs cannot share them. */
static rp_status run_row(const rpsim_setup *o, rp_arena *arena, rpsim_row *row,
                         rpsim_seqlen *found_out, rp_reason *reason)
{
    if (row->given == NULL && !row->run.stage && o->run.max_seqlen) {
        RP_TRY(rpsim_seqlen_search(&row->run, row->platform, unneeded(o, row), arena, found_out,
                                   &row->result, reason));
        row->max_seqlen = found_out->tokens;
        return rp_partition_text(row->run.partition, arena, &row->partition_text);
    }
    if (row->given == NULL && !row->run.stage) {
        return rpsim_hardware_case_run(&row->run, row->platform, unneeded(o, row), &row->result,
                                       reason);
    }
    if (row->given == NULL) {
        const rp_schedule_config view = rp_resolved_view(&row->run);
        rpsim_kept *kept = o->keep ? NULL : rpsim_session_programs(o->session);
        return rpsim_case_run_kept(kept, row->run.schedule, &view, &row->result, reason);
    }
    rp_status status =
        row->run.stage
            ? rpsim_program_run(row->given, row->run.costs, &row->result, reason)
            : rpsim_hardware_program_run(row->given, row->run.costs, row->run.model, row->platform,
                                         row->run.decided.seq_len, &row->result, reason);
    row->given = status == RP_OK ? NULL : row->given;
    return status;
}

/* Runs a row; with --schedule all, a schedule that cannot run is refused and the others go on. */
static rp_status run_or_refuse(rpsim_study *study, rpsim_row *row, bool *refused_out,
                               rp_reason *reason)
{
    const rpsim_setup *o = study->setup;
    rpsim_seqlen found = {0};
    rp_reason own = {0};
    rp_status status = run_row(o, study->arena, row, &found, &own);
    *refused_out =
        o->all_schedules && own.status == status && (status == RP_USAGE || status == RP_INPUT);
    if (*refused_out) {
        return rpsim_study_refuse(study, row->schedule_name, row->model_name, own.text, true);
    }
    rpsim_seqlen_warn(&found, o->all_schedules ? row->schedule_name : NULL);
    return rp_reason_give(&own, status, reason);
}

/* Ops of a program in which all ranks have their own. */
static uint64_t ops_of_all(const rp_program *p)
{
    uint64_t equal = rp_program_ranks(p) / p->gpu_count;
    uint64_t ops = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        uint64_t of_queue = p->queues[q].op_end - p->queues[q].op_begin;
        ops += rp_queue_kind_on_gpu((rp_queue_kind)p->queues[q].kind) ? equal * of_queue : of_queue;
    }
    return ops;
}

static rp_status finish_row(const rpsim_study *study, rpsim_row *row, rp_reason *reason)
{
    const rpsim_setup *o = study->setup;
    RP_TRY(rpsim_row_replicate(study, row));
    RP_TRY(rpsim_row_draw(study, row));
    if (o->explain) {
        RP_TRY(rpsim_row_explain(row, study->arena, reason));
    }
    row->ops = ops_of_all(row->result.program);
    RP_TRY(rpsim_row_set_ideal(study, row, reason));
    rpsim_row_doubt_costs(study, row);
    RP_TRY(rpsim_memory_copy(&row->result.memory, study->arena, &row->memory));
    if (o->hashes) {
        uint64_t known = row->result.program_hash;
        row->program_hash = known != 0 ? known : rp_program_hash(row->result.program);
    }
    if (!o->keep) {
        rpsim_result_fini(&row->result);
    }
    return RP_OK;
}

rp_status rpsim_study_run(rpsim_study *study, rp_reason *reason)
{
    uint32_t kept = 0;
    uint32_t count = study->row_count;
    for (uint32_t i = 0; i < count; i++) {
        bool refused = false;
        rp_progress(study->setup->what, i + 1, count, study->rows[i].schedule_name);
        RP_TRY(run_or_refuse(study, &study->rows[i], &refused, reason));
        if (refused) {
            continue;
        }
        RP_TRY(finish_row(study, &study->rows[i], reason));
        rpsim_row row = study->rows[i];
        study->rows[i] = study->rows[kept];
        study->rows[kept++] = row;
    }
    study->row_count = kept;
    if (kept == 0 && study->setup->quiet) {
        return RP_INPUT;
    }
    if (kept == 0) {
        return rp_refuse(reason, RP_INPUT, "{schedule}: no schedule can run; the last cause: %s",
                         study->refusals[study->refusal_count - 1].reason);
    }
    if (study->setup->all_schedules) {
        rpsim_study_rank(study);
    }
    return RP_OK;
}

rp_status rpsim_study_check(rpsim_study *study)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        rpsim_row *row = &study->rows[i];
        rp_program *program = row->given;
        if (program == NULL) {
            const rp_schedule_config view = rp_resolved_view(&row->run);
            RP_TRY(row->run.stage ? rp_schedule_build(row->run.schedule, &view, &program, NULL)
                                  : rpsim_hardware_lower(&row->run, row->platform, &program, NULL));
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
