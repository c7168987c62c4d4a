#include "sim/study/tune_row.h"

#include "common/base/log.h"
#include "common/schedule/build.h"

#include <math.h>

#define MAX_REFERENCES 3u
#define MAX_ROUNDS 16u

/* Added to the time of a run that does not fit, so that it is worse than every run that fits:
 * twelve days in picoseconds. */
#define OVERFLOW_PS 1e18

/* ---- objectives ------------------------------------------------------------------------------ */

static rp_status run_stage(const rp_program *program, const rp_schedule_config *config,
                           rp_arena *scratch, double *ps_out)
{
    rp_stage_times times;
    rp_metrics metrics;
    rp_timeline *timeline = NULL;
    RP_TRY(rp_stage_times_compute(program, config->costs, scratch, &times, NULL));
    RP_TRY(rpsim_stage_run(program, &times, &timeline, &metrics, NULL));
    double period = config->asynchronous ? rp_metrics_period_ps(timeline) : NAN;
    *ps_out = isnan(period) ? (double)rp_metrics_makespan_ps(timeline) : period;
    rp_timeline_destroy(timeline);
    return RP_OK;
}

/* The objective at stage fidelity. A synchronous run has a single iteration, since all are equal.
 * The program is not validated: the search yields only partitions that the schedule's rule allows,
 * and the report's run checks the winner. */
static rp_status stage_objective(const void *context, const rp_schedule_config *config,
                                 double *ps_out)
{
    const rpsim_row *row = context;
    rp_schedule_config wanted = *config;
    wanted.iterations = config->asynchronous ? config->iterations : 1;
    rp_arena *scratch = NULL;
    rp_program *program = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = rp_schedule_build(row->run.schedule, &wanted, &program, NULL);
    if (status == RP_OK) {
        status = run_stage(program, &wanted, scratch, ps_out);
    }
    rp_program_destroy(program);
    rp_arena_destroy(scratch);
    return status;
}

static rp_status hardware_objective(const void *context, const rp_schedule_config *config,
                                    double *ps_out)
{
    const rpsim_row *row = context;
    rp_resolved run = row->run;
    rpsim_result result;
    run.partition = config->partition;
    /* not validated, as at stage fidelity */
    RP_TRY(rpsim_hardware_case_run(&run, row->platform, RPSIM_WITHOUT_STEP | RPSIM_WITHOUT_CHECK,
                                   &result, NULL));
    double period = result.period_ps;
    *ps_out = isnan(period) ? (double)result.metrics.makespan_ps : period;
    *ps_out += result.memory.known && !result.memory.fits ? OVERFLOW_PS : 0;
    rpsim_result_fini(&result);
    return RP_OK;
}

/* ---- the space ------------------------------------------------------------------------------- */

typedef struct space {
    const rpsim_setup *setup;
    const rpsim_inputs *inputs;
    rp_arena *arena;
    rpsim_row *row;
    rp_schedule_config view; /* view of the row's run, without a partition */
    rpsim_tune_point references[MAX_REFERENCES];
    rp_round_start starts[2];
    rpsim_tune_input in;
} space;

static uint32_t largest(const uint32_t *layers, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = layers[i] > most ? layers[i] : most;
    }
    return most;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void widen(const rp_partition *p, uint32_t layers, rpsim_tune_input *in)
{
    uint32_t forward = 0;
    for (uint32_t i = 0; i < p->forward_count; i++) {
        forward += p->forward_layers[i];
    }
    in->max_forward = max_u32(in->max_forward, largest(p->forward_layers, p->forward_count));
    bool fused = forward < layers;
    if (fused) {
        in->max_fused = max_u32(in->max_fused, p->backward_layers[0]);
    }
    uint32_t skip = fused ? 1 : 0;
    in->max_backward =
        max_u32(in->max_backward, largest(p->backward_layers + skip, p->backward_count - skip));
}

/* Adds the reference of --partition `text`, unless the schedule's rule does not allow it. */
static rp_status add_reference(space *s, const char *text, bool bounds)
{
    const rpsim_row *row = s->row;
    rpsim_setup setup = *s->setup;
    setup.run.partition = text;
    rp_resolved run = row->run; /* the search goes on from it, planned or not */
    rpsim_tune_point *point = &s->references[s->in.reference_count];
    uint64_t raised = 0;
    RP_TRY(rpsim_inputs_partition(&setup, s->inputs, &run, s->arena, &point->partition, &raised,
                                  NULL));
    rpsim_warn_of_plan(row->model_name, raised);
    if (!rp_partition_is_allowed(row->run.schedule, &s->view, &point->partition)) {
        return RP_OK;
    }
    point->round = row->run.decided.round;
    point->round_start = row->run.decided.round_start;
    s->in.reference_count++;
    if (row->run.schedule->separate_backward && bounds) {
        widen(&point->partition, row->run.layers, &s->in);
    }
    return RP_OK;
}

static bool counts_hold(const rpsim_tune_input *in, uint32_t stages)
{
    for (uint32_t i = 0; i < in->stage_count_count; i++) {
        if (in->stage_counts[i] == stages) {
            return true;
        }
    }
    return false;
}

/* Chooses the numbers of stages: those of the references, and if a GPU may have several stages,
 * every multiple of the GPUs up to a stage per layer. */
static rp_status choose_counts(space *s)
{
    const rpsim_row *row = s->row;
    uint32_t gpus = row->run.gpus;
    uint32_t layers = row->run.layers;
    uint32_t multiples = row->run.schedule->many_stages ? (layers - 1) / gpus + 1 : 0;
    uint32_t *counts = NULL;
    RP_TRY(rp_arena_alloc(s->arena, MAX_REFERENCES + multiples, sizeof *counts, &counts));
    s->in.stage_counts = counts;
    for (uint32_t i = 0; i < s->in.reference_count; i++) {
        uint32_t count = s->references[i].partition.forward_count;
        if (!counts_hold(&s->in, count)) {
            counts[s->in.stage_count_count++] = count;
        }
    }
    for (uint32_t k = 1; k <= multiples && k * gpus <= RP_MAX_STAGES; k++) {
        rp_partition trial = {.forward_count = k * gpus};
        RP_TRY(rp_arena_alloc(s->arena, k * gpus, sizeof(uint32_t), &trial.forward_layers));
        trial.forward_layers[0] = layers;
        if (!counts_hold(&s->in, k * gpus) &&
            rp_partition_is_allowed(row->run.schedule, &s->view, &trial)) {
            counts[s->in.stage_count_count++] = k * gpus;
        }
    }
    return RP_OK;
}

/* Chooses the rounds: the current round and larger rounds. If these are few and each makes a
 * difference, all of them, otherwise the least round for every smaller number of rounds. */
static rp_status choose_rounds(space *s)
{
    const rpsim_row *row = s->row;
    uint32_t microbatches = rp_resolved_microbatches(&row->run);
    uint32_t round = row->run.decided.round;
    bool fixed = !row->run.schedule->rounds || !row->run.stage || s->setup->run.round_given ||
                 round == RP_ROUND_ALL || round >= microbatches;
    bool each = !row->run.schedule->traits.overlapping_rounds && microbatches <= round + MAX_ROUNDS;
    uint32_t last = fixed ? round : microbatches;
    uint32_t *rounds = NULL;
    RP_TRY(rp_arena_alloc(s->arena, MAX_ROUNDS + 1, sizeof *rounds, &rounds));
    s->in.rounds = rounds;
    rounds[s->in.round_count++] = round;
    for (uint32_t next = round + 1; next <= last && s->in.round_count <= MAX_ROUNDS; next++) {
        uint32_t count = (microbatches - 1) / next + 1;
        if (each || next == (microbatches - 1) / count + 1) {
            rounds[s->in.round_count++] = next;
        }
    }
    rounds[s->in.round_count - 1] = s->in.round_count > 1 ? last : round; /* all in one, always */
    bool start_fixed = !row->run.schedule->rounds || !row->run.stage ||
                       s->setup->run.round_start_given ||
                       row->run.schedule->traits.overlapping_rounds;
    s->in.starts = s->starts;
    s->starts[s->in.start_count++] = row->run.decided.round_start;
    if (!start_fixed) {
        bool free_first = row->run.decided.round_start == RP_ROUND_START_FREE_FIRST;
        s->starts[s->in.start_count++] =
            free_first ? RP_ROUND_START_ROTATE : RP_ROUND_START_FREE_FIRST;
    }
    return RP_OK;
}

/* The number of evaluations by the cost of each, so that every search takes about the same time. */
static uint32_t default_budget(const space *s)
{
    const rpsim_row *row = s->row;
    const rp_partition *p = &s->references[0].partition;
    bool separate = row->run.schedule->separate_backward;
    uint64_t stages = p->forward_count + (separate ? p->backward_count : p->forward_count);
    bool steady = !row->run.stage || row->run.decided.asynchronous;
    uint64_t one = stages * rp_resolved_microbatches(&row->run);
    uint64_t units = one * (steady ? row->run.decided.iterations : 1);
    uint64_t planning = one * row->run.schedule->planning_runs; /* the same at either fidelity */
    uint64_t ratio = RPSIM_TUNE_UNITS / RPSIM_TUNE_UNITS_HARDWARE;
    units += !row->run.stage ? planning / ratio : planning;
    uint64_t budget = (!row->run.stage ? RPSIM_TUNE_UNITS_HARDWARE : RPSIM_TUNE_UNITS) / units;
    budget = budget < RPSIM_TUNE_LEAST_BUDGET ? RPSIM_TUNE_LEAST_BUDGET : budget;
    return (uint32_t)(budget > RPSIM_TUNE_LARGEST_BUDGET ? RPSIM_TUNE_LARGEST_BUDGET : budget);
}

static rp_status prepare(space *s)
{
    const rpsim_row *row = s->row;
    const rpsim_setup *o = s->setup;
    s->in = (rpsim_tune_input){
        .config = &s->view,
        .separate_backward = row->run.schedule->separate_backward,
        .references = s->references,
        .objective = !row->run.stage ? hardware_objective : stage_objective,
        .context = row,
        .seed = o->seed,
    };
    RP_TRY(add_reference(s, NULL, true));
    RP_TRY(add_reference(s, "even", false));
    RP_TRY(add_reference(s, "auto", true));
    if (s->in.reference_count == 0) { /* tells the reason */
        return rp_schedule_check(row->run.schedule, &s->view, NULL);
    }
    s->in.budget = o->run.tune_budget != 0 ? o->run.tune_budget : default_budget(s);
    s->in.max_forward = max_u32(s->in.max_forward, 1);
    s->in.max_backward = max_u32(s->in.max_backward, 1);
    if (!row->run.schedule->separate_backward) {
        RP_TRY(choose_counts(s));
    }
    return choose_rounds(s);
}

rp_status rpsim_tune_row(const rpsim_setup *setup, const rpsim_inputs *inputs, rp_arena *arena,
                         rpsim_row *row)
{
    space s = {.setup = setup,
               .inputs = inputs,
               .arena = arena,
               .row = row,
               .view = rp_resolved_view(&row->run)};
    rpsim_tune_result result;
    RP_TRY(prepare(&s));
    if (rp_is_data_parallel(
            &row->run.schedule->traits)) { /* its time does not depend on the partition */
        s.in.budget = 0;
    }
    RP_TRY(rpsim_tune(&s.in, arena, &result));
    rp_partition *partition = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *partition, &partition));
    *partition = result.point.partition;
    row->run.partition = partition;
    row->run.planned = false;
    row->tune_evaluations = result.evaluations;
    row->tune_exact = result.exact;
    row->run.decided.round = result.point.round;
    row->run.decided.round_start = result.point.round_start;
    return RP_OK;
}
