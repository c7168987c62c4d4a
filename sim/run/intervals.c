#include "sim/run/intervals.h"

#include "common/base/crew.h"
#include "common/base/host_limits.h"
#include "common/base/log.h"

#include <math.h>
#include <string.h>

/* Bytes per op in a simulation: start and end of the op, and the engine's notes. */
#define DRAW_OP_BYTES 64.0
#define MOST_KEYS 7

/* Properties of a run that decide which inputs it uses. */
enum {
    HAS_TRANSFERS = 1,
    HAS_SENDS = 2,
    HAS_COLLECTIVES = 4,
    HAS_HOST_OPS = 8,
    HAS_HOST_COLLECTION = 16, /* the host collects gradients at a rate of its own */
    HAS_OTHER_LENGTH = 32,    /* the run's sequence length differs from the cost table's */
    HAS_DISPATCH = 64,
    HAS_EXPERTS = 128,
    HAS_STACK = 256,
};

/* A key of the platform. */
typedef struct key {
    const char *name;
    size_t offset;
    bool kind_only; /* the key only tells the origin of the value; another key is multiplied */
} key;

#define KEY(member)                                                                                \
    {                                                                                              \
#member, offsetof(rp_platform, member), false                                              \
    }
#define KIND_ONLY(member)                                                                          \
    {                                                                                              \
#member, offsetof(rp_platform, member), true                                               \
    }

/* Keys that an input multiplies; the input's kind is that of the first key with a value. */
typedef struct input_row {
    unsigned needs; /* HAS_*: the input is used if the run has any of these; 0: always */
    key keys[MOST_KEYS];
} input_row;

/* link_efficiency also applies to NVLink, so the link's nominal rate is multiplied instead,
 * together with the rates of switches and root ports, which are as effective as the link. */
static const input_row rows[RPSIM_INPUT_COUNT] = {
    [RPSIM_INPUT_ATTENTION] = {HAS_OTHER_LENGTH,
                               {KEY(attention_fwd_tflops), KEY(attention_bwd_tflops)}},
    [RPSIM_INPUT_MEMORY] = {0, {KEY(memory_effective_gb_per_s)}},
    [RPSIM_INPUT_LINK] = {HAS_TRANSFERS,
                          {KEY(link_effective_gb_per_s), KIND_ONLY(link_efficiency),
                           KEY(link_gb_per_s), KEY(upload_gb_per_s), KEY(download_gb_per_s),
                           KEY(switch_gb_per_s), KEY(root_gb_per_s)}},
    [RPSIM_INPUT_PEER] = {HAS_SENDS, {KEY(peer_gb_per_s)}},
    [RPSIM_INPUT_COLLECTIVE] = {HAS_COLLECTIVES, {KEY(collective_gb_per_s)}},
    [RPSIM_INPUT_NETWORK] = {HAS_TRANSFERS | HAS_SENDS | HAS_COLLECTIVES, {KEY(network_gb_per_s)}},
    [RPSIM_INPUT_HOST] = {HAS_HOST_OPS,
                          {KEY(host_optimizer_gb_per_s), KEY(optimizer_thread_gb_per_s),
                           KEY(host_adam_gb_per_s), KEY(host_refresh_gb_per_s),
                           KEY(host_collect_gb_per_s), KEY(host_dram_gb_per_s)}},
    [RPSIM_INPUT_ZERO_GRADIENT] = {HAS_HOST_COLLECTION, {KEY(zero_gradient_gb_per_s)}},
    [RPSIM_INPUT_DISPATCH] = {HAS_DISPATCH,
                              {KEY(dispatch_us_per_module), KEY(optimizer_us_per_object)}},
    [RPSIM_INPUT_LAUNCH] = {HAS_EXPERTS, {KEY(launch_overhead_us)}},
    [RPSIM_INPUT_HOST_SPEED] = {HAS_STACK, {KEY(host_speed)}},
};

static double *member(rp_platform *platform, const key *k)
{
    return (double *)(void *)((char *)platform + k->offset);
}

static double value(const rp_platform *platform, const key *k)
{
    double number = 0;
    memcpy(&number, (const char *)platform + k->offset, sizeof number);
    return number;
}

/* ---- which inputs ---------------------------------------------------------------------------- */

static unsigned thing_of_kind(const rp_program *program, rp_op_kind kind)
{
    switch (rp_op_kind_class(kind)) {
    case RP_CLASS_TRANSFER:
        return rp_op_kind_sends(kind) ? HAS_SENDS : HAS_TRANSFERS;
    case RP_CLASS_COLLECTIVE:
        return HAS_COLLECTIVES;
    case RP_CLASS_HOST:
        return rp_op_kind_collects(kind) && rp_is_data_parallel(&program->traits)
                   ? HAS_HOST_COLLECTION
                   : HAS_HOST_OPS;
    case RP_CLASS_COMPUTE:
        break;
    }
    return 0;
}

static unsigned things_of(const rpsim_interval_run *run)
{
    const rp_program *p = run->program;
    const rp_resolved *w = run->resolved;
    unsigned things = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        things |= thing_of_kind(p, (rp_op_kind)p->ops[i].kind);
    }
    bool other = w->decided.seq_len != run->resolved->costs->seq_len || w->sequence_slices > 1;
    things |= other ? HAS_OTHER_LENGTH : 0;
    things |= p->traits.one_dispatcher && run->platform->launch_queue_depth > 0 ? HAS_DISPATCH : 0;
    things |= run->resolved->model->experts > 1 ? HAS_EXPERTS : 0;
    things |= run->resolved->costs->stack != NULL ? HAS_STACK : 0;
    return things;
}

/* The kind of the cost table: a table measured on another GPU than the platform's counts as
 * assumed. */
static rp_provenance kind_of_table(const rpsim_interval_run *run)
{
    const char *gpu = strchr(run->resolved->costs->name, '@');
    size_t length = gpu != NULL ? strcspn(gpu + 1, " ") : 0;
    bool other = gpu != NULL && (strlen(run->platform->gpu) != length ||
                                 strncmp(gpu + 1, run->platform->gpu, length) != 0);
    return run->resolved->costs->kind == RP_MEASURED && other ? RP_ASSUMED
                                                              : run->resolved->costs->kind;
}

static bool uses(const rpsim_interval_run *run, unsigned things, rpsim_input_id id,
                 rp_provenance *kind_out)
{
    const input_row *row = &rows[id];
    bool stack = (things & HAS_STACK) != 0;
    if (id == RPSIM_INPUT_LAYERS || id == RPSIM_INPUT_HEAD || id == RPSIM_INPUT_STACK) {
        *kind_out = kind_of_table(run);
        return stack == (id == RPSIM_INPUT_STACK);
    }
    if (id == RPSIM_INPUT_RUN) { /* a moved table: the model was not checked on this GPU either */
        *kind_out = kind_of_table(run) == RP_MOVED ? RP_MOVED : RP_ASSUMED;
        return true;
    }
    if (row->needs != 0 && (row->needs & things) == 0) {
        return false;
    }
    for (int i = 0; i < MOST_KEYS && row->keys[i].name != NULL; i++) {
        if (value(run->platform, &row->keys[i]) > 0) {
            *kind_out = rp_platform_provenance(run->platform, row->keys[i].name);
            return true;
        }
    }
    return false;
}

static rp_status list_inputs(const rpsim_interval_run *run, rpsim_intervals *out)
{
    rpsim_ranges ranges;
    unsigned things = things_of(run);
    RP_TRY(rpsim_ranges_load(&ranges));
    for (int id = 0; id < RPSIM_INPUT_COUNT; id++) {
        rp_provenance kind;
        if (!uses(run, things, (rpsim_input_id)id, &kind)) {
            continue;
        }
        const rpsim_range *range = &ranges.of[id][kind];
        if (!(range->low > 0)) {
            rp_log_error("{intervals}: ranges.csv has no range for %s, %s; valid are a row for "
                         "it, and {intervals} off",
                         rpsim_input_names[id], rp_provenance_text(kind));
            return RP_INPUT;
        }
        out->inputs[out->input_count++] = (rpsim_input){
            .id = (rpsim_input_id)id, .kind = kind, .range = *range, .at_low = NAN, .at_high = NAN};
    }
    return RP_OK;
}

/* ---- one draw -------------------------------------------------------------------------------- */

typedef struct scene {
    const rpsim_interval_run *run;
    const rpsim_intervals *out;
    double *factors; /* [jobs][RPSIM_INPUT_COUNT] */
    double *speeds;  /* [jobs] */
} scene;

static int64_t scale_ps(int64_t ps, double factor)
{
    return (int64_t)((double)ps * factor + 0.5);
}

static rp_status scale_table(const rp_costs *table, double layers, double head, rp_arena *arena,
                             rp_costs *costs)
{
    *costs = *table;
    costs->head_fwd_ps = scale_ps(table->head_fwd_ps, head);
    costs->head_bwd_ps = scale_ps(table->head_bwd_ps, head);
    RP_TRY(rp_arena_alloc(arena, table->layers, sizeof(int64_t), &costs->fwd_ps));
    RP_TRY(rp_arena_alloc(arena, table->layers, sizeof(int64_t), &costs->bwd_ps));
    RP_TRY(rp_arena_alloc(arena, table->layers, sizeof(int64_t), &costs->bwd_input_ps));
    for (uint32_t i = 0; i < table->layers; i++) {
        costs->fwd_ps[i] = scale_ps(table->fwd_ps[i], layers);
        costs->bwd_ps[i] = scale_ps(table->bwd_ps[i], layers);
        costs->bwd_input_ps[i] = scale_ps(table->bwd_input_ps[i], layers);
    }
    return RP_OK;
}

static rp_platform scale_platform(const rp_platform *platform, const double *factors)
{
    rp_platform scaled = *platform;
    for (int id = 0; id < RPSIM_INPUT_COUNT; id++) {
        for (int i = 0; i < MOST_KEYS && rows[id].keys[i].name != NULL; i++) {
            if (!rows[id].keys[i].kind_only) {
                *member(&scaled, &rows[id].keys[i]) *= factors[id];
            }
        }
    }
    return scaled;
}

static rp_status simulate(const rpsim_interval_run *run, const double *factors, rp_arena *arena,
                          double *speed_out)
{
    rp_costs costs;
    double period_ps = 0;
    rp_platform platform = scale_platform(run->platform, factors);
    double stack = factors[RPSIM_INPUT_STACK];
    RP_TRY(scale_table(run->resolved->costs, stack * factors[RPSIM_INPUT_LAYERS],
                       stack * factors[RPSIM_INPUT_HEAD], arena, &costs));
    RP_TRY(rpsim_hardware_period(run->program, &costs, &platform, run->resolved, arena, &period_ps,
                                 NULL));
    *speed_out = run->period_ps / period_ps * factors[RPSIM_INPUT_RUN];
    return RP_OK;
}

static rp_status simulate_job(void *context, uint32_t job)
{
    const scene *s = context;
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status =
        simulate(s->run, &s->factors[(size_t)job * RPSIM_INPUT_COUNT], arena, &s->speeds[job]);
    rp_arena_destroy(arena);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Fills the factors of all simulations: first the draws, then each input by itself at both ends. */
static rp_status draw_factors(const scene *s, uint64_t seed, uint32_t jobs, rp_arena *arena)
{
    const rpsim_intervals *out = s->out;
    double *strata = NULL;
    RP_TRY(rp_arena_alloc(arena, out->draws, sizeof *strata, &strata));
    for (size_t i = 0; i < (size_t)jobs * RPSIM_INPUT_COUNT; i++) {
        s->factors[i] = 1;
    }
    for (uint32_t i = 0; i < out->input_count; i++) {
        const rpsim_input *input = &out->inputs[i];
        RP_TRY(rpsim_noise_strata(seed, (uint32_t)input->id, out->draws, strata));
        for (uint32_t k = 0; k < out->draws; k++) {
            s->factors[(size_t)k * RPSIM_INPUT_COUNT + input->id] =
                rpsim_range_factor(&input->range, strata[k]);
        }
        if (jobs > out->draws) {
            size_t low = out->draws + 2 * (size_t)i;
            s->factors[low * RPSIM_INPUT_COUNT + input->id] = input->range.low;
            s->factors[(low + 1) * RPSIM_INPUT_COUNT + input->id] = input->range.high;
        }
    }
    return RP_OK;
}

static rp_status simulate_all(const rpsim_interval_run *run, uint64_t seed, uint32_t threads,
                              uint32_t jobs, rp_arena *arena, rpsim_intervals *out)
{
    scene s = {.run = run, .out = out};
    RP_TRY(rp_arena_alloc(arena, jobs, sizeof *s.speeds, &s.speeds));
    RP_TRY(rp_arena_alloc(arena, (size_t)jobs * RPSIM_INPUT_COUNT, sizeof *s.factors, &s.factors));
    RP_TRY(draw_factors(&s, seed, jobs, arena));
    RP_TRY(rp_host_memory_allow(DRAW_OP_BYTES * run->program->op_count *
                                    rp_crew_threads(threads, jobs),
                                rp_log_spell("{intervals}").text,
                                "{intervals} off, fewer {microbatches} or {iterations}", NULL));
    RP_TRY(rp_crew_run(threads, jobs, simulate_job, &s));
    out->speeds = s.speeds;
    for (uint32_t i = 0; jobs > out->draws && i < out->input_count; i++) {
        rpsim_input *input = &out->inputs[i];
        input->at_low = s.speeds[out->draws + 2 * i];
        input->at_high = s.speeds[out->draws + 2 * i + 1];
        input->matters_pct = 100 * fabs(input->at_high - input->at_low);
    }
    return rpsim_noise_interval(out->speeds, out->draws, &out->speed);
}

rp_status rpsim_intervals_make(const rpsim_interval_run *run, uint32_t draws, uint64_t seed,
                               uint32_t threads, bool alone, rp_arena *arena,
                               rpsim_intervals *intervals_out)
{
    *intervals_out = (rpsim_intervals){.draws = draws};
    RP_TRY(list_inputs(run, intervals_out));
    uint32_t jobs = draws + (alone ? 2 * intervals_out->input_count : 0);
    return simulate_all(run, seed, threads, jobs, arena, intervals_out);
}

double rpsim_intervals_beats(const rpsim_intervals *a, double scale_a, const rpsim_intervals *b,
                             double scale_b)
{
    uint32_t halves = 0;
    for (uint32_t k = 0; k < a->draws; k++) {
        double left = a->speeds[k] * scale_a;
        double right = b->speeds[k] * scale_b;
        halves += left > right ? 2u : left == right ? 1u : 0u;
    }
    return 0.5 * halves / a->draws;
}
