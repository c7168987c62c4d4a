#include "sim/rppredict/run.h"

#include "common/base/crew.h"
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/published.h"
#include "common/roofline/roofline.h"
#include "sim/run/seqlen.h"

#include <math.h>
#include <string.h>

/* Iterations of a run. In each iteration stages meet GPUs in another order, so many are needed; the
 * steps of data-parallel systems are all alike. */
#define ITERATIONS 16u
#define DATA_PARALLEL_ITERATIONS 2u
#define NEED_COLUMNS 160u /* length of the text of a need */

typedef struct run_inputs {
    const rp_platform *platform;
    rp_model model;
    rp_costs costs;
    rp_partition partition;
    rp_resolved run;
    rp_arena *arena;
} run_inputs;

/* Chooses the partition: RoundPipe's planner; for other systems the published partition if the
 * paper lists it, and otherwise an even partition. The paper lists partitions for its own
 * simulation of pipelines, whose times they balance, and none for Megatron's runs. For the longest
 * sequences of these the assumption is that they balanced the resource that they ran out of, the
 * bytes of parameters. */
static rp_status choose_partition(run_inputs *in, bool longest)
{
    const rp_schedule_type *schedule = in->run.schedule;
    uint32_t gpus = in->run.gpus;
    if (longest && schedule->traits.placement == RP_PLACEMENT_RESIDENT) {
        return rp_partition_balanced(&in->model, gpus, in->arena, &in->partition);
    }
    if (schedule->separate_backward) {
        in->run.planned = true;
        return rpsim_run_plan(&in->run, in->platform, in->arena, &in->partition, NULL, NULL);
    }
    bool found = false;
    const char *name = schedule->published_as != NULL ? schedule->published_as : schedule->name;
    RP_TRY(rp_partition_published(name, in->model.name, in->arena, &in->partition, &found));
    return found
               ? RP_OK
               : rp_partition_even(schedule, &in->costs, gpus, 0, in->arena, &in->partition, NULL);
}

static rp_status prepare(const rpsim_question *q, run_inputs *in)
{
    const rp_costs *table = q->run.costs;
    RP_TRY(rp_model_load(q->model, in->arena, &in->model));
    in->run = q->run;
    if (q->longest) {
        in->run.decided.seq_len = RPSIM_SEQLEN_STEP;
    }
    uint32_t microbatches = rp_resolved_microbatches(&in->run);
    uint32_t sequences = in->run.global_batch / microbatches; /* used only for the roofline */
    if (table != NULL && table->layers != in->model.layers) {
        rp_log_error("{costs}: %s has %u layers, model %s %u; valid is a table of the same model",
                     table->name, table->layers, in->model.name, in->model.layers);
        return RP_INPUT;
    }
    const rp_roof roof = {in->platform, {in->run.decided.dtype, RP_ACCUMULATION_USUAL}, NULL};
    if (table != NULL) {
        RP_TRY(rp_costs_for_run(table, &in->model, &roof, in->arena, &in->costs, NULL));
    } else {
        RP_TRY(rp_find_costs(&in->model, &roof, sequences > 0 ? sequences : 1,
                             in->run.decided.seq_len, in->arena, &in->costs, NULL));
    }
    in->run.model = &in->model;
    in->run.costs = &in->costs;
    in->run.recompute = in->run.schedule->default_recompute;
    in->run.decided.round = RP_ROUND_ALL;
    if (in->run.decided.iterations == 0) {
        bool alike = rp_is_data_parallel(&in->run.schedule->traits);
        in->run.decided.iterations = alike ? DATA_PARALLEL_ITERATIONS : ITERATIONS;
    }
    RP_TRY(choose_partition(in, q->longest));
    in->run.partition = &in->partition;
    return RP_OK;
}

static rp_status longest(run_inputs *in, rpsim_answer *answer)
{
    rpsim_result result;
    rpsim_seqlen found;
    RP_TRY(rpsim_seqlen_search(&in->run, in->platform, 0, in->arena, &found, &result, NULL));
    rpsim_seqlen_warn(&found, NULL);
    answer->seq_len = found.tokens;
    answer->host_known = result.memory.host_bytes != 0;
    rpsim_result_fini(&result);
    answer->fits = answer->seq_len != 0;
    answer->tokens_per_s = NAN;
    return RP_OK;
}

/* Draws the inputs. Answers run in parallel, so each uses a single thread. A run that does not fit
 * has no speed, and therefore no interval. */
static rp_status draw(const run_inputs *in, const rpsim_question *q, const rpsim_result *result,
                      rpsim_answer *answer)
{
    rpsim_intervals intervals;
    const rpsim_interval_run run = {.program = result->program,
                                    .platform = in->platform,
                                    .resolved = &in->run,
                                    .period_ps = result->period_ps};
    if (q->draws == 0 || !answer->fits) {
        return RP_OK;
    }
    RP_TRY(rpsim_intervals_make(&run, q->draws, 0, 1, false, in->arena, &intervals));
    for (uint32_t k = 0; k < q->draws; k++) {
        answer->draws[k] = answer->tokens_per_s * intervals.speeds[k];
    }
    return RP_OK;
}

static rp_status throughput(run_inputs *in, const rpsim_question *q, rpsim_answer *answer)
{
    const rp_resolved *w = &in->run;
    uint32_t slices = w->sequence_slices != 0 ? w->sequence_slices : 1;
    rpsim_result result;
    RP_TRY(rpsim_hardware_case_run(w, in->platform, RPSIM_WITHOUT_STEP, &result, NULL));
    answer->seq_len = w->decided.seq_len;
    answer->tokens_per_s =
        (double)w->global_batch * w->decided.seq_len / slices / (result.period_ps * 1e-12);
    answer->beats_peak = rpsim_result_beats_peak(&result);
    answer->fits = result.memory.known && result.memory.fits;
    answer->host_known = result.memory.host_bytes != 0;
    if (result.memory.known && !result.memory.fits) {
        rpsim_memory_say_need(&result.memory.need, NEED_COLUMNS, answer->need, sizeof answer->need);
    }
    rp_status status = draw(in, q, &result, answer);
    rpsim_result_fini(&result);
    return status;
}

rp_status rpsim_read_published(const char *folder, const char *name, rp_arena *arena,
                               rp_csv *table_out)
{
    const char *path = NULL;
    RP_TRY(rp_arena_print(arena, &path, "%s/%s", folder, name));
    return rp_csv_read_file(path, arena, table_out);
}

typedef struct rows {
    const rp_csv *table;
    rpsim_predict_row predict;
    void *context;
} rows;

static rp_status predict_one(void *context, uint32_t job)
{
    const rows *r = context;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_log_set_place(r->table->name, r->table->lines[job]);
    rp_status status = r->predict(r->context, job, arena);
    rp_log_set_place(NULL, 0);
    rp_arena_destroy(arena);
    return status;
}

rp_status rpsim_predict_rows(const rp_csv *table, rpsim_predict_row predict, void *context)
{
    rows r = {table, predict, context};
    return rp_crew_run(0, table->rows, predict_one, &r);
}

typedef struct asked {
    const rp_platform *platform;
    const rpsim_question *questions;
    rpsim_answer *answers;
} asked;

static bool same_question(const rpsim_question *a, const rpsim_question *b)
{
    return strcmp(a->framework, b->framework) == 0 && strcmp(a->model, b->model) == 0 &&
           a->longest == b->longest && a->draws == b->draws &&
           memcmp(&a->run, &b->run, sizeof a->run) == 0;
}

/* @return the index of the first question that equals this question: published tables share cells
 */
static uint32_t first_asked(const rpsim_question *questions, uint32_t job)
{
    uint32_t first = 0;
    while (!same_question(&questions[first], &questions[job])) {
        first++;
    }
    return first;
}

static rp_status answer_one(void *context, uint32_t job)
{
    const asked *a = context;
    const rpsim_question *q = &a->questions[job];
    run_inputs in = {.platform = a->platform};
    if (first_asked(a->questions, job) != job) {
        return RP_OK;
    }
    rp_progress("predicting", 0, 0, q->model);
    RP_TRY(rp_arena_create(&in.arena));
    rp_log_set_place(q->file, q->line);
    rp_status status = prepare(q, &in);
    if (status == RP_OK) {
        status = q->longest ? longest(&in, &a->answers[job]) : throughput(&in, q, &a->answers[job]);
    }
    rp_log_set_place(NULL, 0);
    rp_arena_destroy(in.arena);
    return status;
}

rp_status rpsim_answer_all(const rp_platform *platform, const rpsim_question *questions,
                           uint32_t count, rpsim_answer *answers_out)
{
    asked a = {platform, questions, answers_out};
    if (count > 0) {
        memset(answers_out, 0, count * sizeof *answers_out);
    }
    RP_TRY(rp_crew_run(0, count, answer_one, &a));
    for (uint32_t i = 0; i < count; i++) {
        answers_out[i] = answers_out[first_asked(questions, i)];
    }
    return RP_OK;
}
