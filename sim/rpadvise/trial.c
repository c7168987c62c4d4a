#include "sim/rpadvise/trial.h"

#include "common/base/crew.h"
#include "common/base/log.h"
#include "sim/engine/clock.h"
#include "sim/study/columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_EVERY 16

/* ---- one trial ------------------------------------------------------------------------------- */

static uint64_t largest(const uint64_t *values, uint32_t count)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

static rpadvise_shortage shortage_of(const rpsim_memory *memory)
{
    if (memory->fits) {
        return RPADVISE_SHORT_OF_NOTHING;
    }
    return rpsim_memory_host_fits(memory) ? RPADVISE_SHORT_OF_GPU : RPADVISE_SHORT_OF_HOST;
}

/* Sets the cause: the largest part of the GPUs' time that is no forward, backward or update. */
static void explain(const rpsim_row *row, rpadvise_outcome *out)
{
    static const char *const words[RPSIM_SHARE_COUNT] = {
#define WORDS(name, key, words) [RPSIM_SHARE_##name] = words,
        RPSIM_SHARE_LIST(WORDS)
#undef WORDS
    };
    const rpsim_explanation *e = &row->explained->explanation;
    int64_t share[RPSIM_SHARE_COUNT];
    memcpy(share, e->share_ps, sizeof share);
    share[RPSIM_SHARE_FILL] += share[RPSIM_SHARE_DRAIN];
    share[RPSIM_SHARE_DRAIN] = 0;
    share[RPSIM_SHARE_FORWARD] = share[RPSIM_SHARE_BACKWARD] = share[RPSIM_SHARE_UPDATE] = 0;
    int most = 0;
    for (int i = 0; i < RPSIM_SHARE_COUNT; i++) {
        most = share[i] > share[most] ? i : most;
    }
    double all_ps = (double)e->makespan_ps * e->gpus;
    const char *what = most == RPSIM_SHARE_FILL ? "fill and drain" : words[most];
    (void)snprintf(out->cause, sizeof out->cause, "%.0f %% of its time %s",
                   all_ps > 0 ? 100 * (double)share[most] / all_ps : 0, what);
}

/* Sets the work of a step. Updates are left out, because they take as long for any number of
 * microbatches. With resident weights each GPU does its part of every microbatch, and a step ends
 * no sooner than the GPU with the most work. */
static void set_work(const rpsim_row *row, const rpadvise_manner *manner, rpadvise_outcome *out)
{
    const rp_metrics *m = &row->result.metrics;
    bool resident = row->run.schedule->traits.placement == RP_PLACEMENT_RESIDENT;
    double steps = manner->period_only ? row->run.decided.iterations : 1;
    out->work_s = 1e-12 * (double)m->passes_ps / row->run.gpus / steps;
    out->least_s = resident ? 1e-12 * (double)m->fullest_ps / steps : out->work_s;
}

static void describe(const rpsim_row *row, const rpadvise_manner *manner, rpadvise_outcome *out)
{
    const rpsim_memory *memory = &row->memory;
    const rpsim_memory_limits limits =
        rpsim_memory_limits_of(row->platform, &row->run.schedule->traits, rpsim_row_gpus(row));
    double speed = rpsim_row_tokens_per_s(row);
    *out = (rpadvise_outcome){
        .ran = true,
        .fits = memory->known && memory->fits && speed > 0,
        .short_of = shortage_of(memory),
        .tokens_per_s = speed > 0 ? speed : 0,
        .period_s = 1e-12 * row->result.period_ps,
        .gpu_bytes = largest(memory->peak_gpu_bytes, memory->gpu_count),
        .gpu_limit_bytes = limits.gpu_bytes,
        .host_bytes = memory->peak_host_bytes,
        .host_limit_bytes = memory->host_bytes,
        .batch = rpsim_row_global_batch(row),
        .seq_len = row->run.decided.seq_len,
        .real_share = rpsim_row_real_share(row),
        .ops = row->ops,
    };
    set_work(row, manner, out);
    (void)snprintf(out->cause, sizeof out->cause, "%s", memory->oom_reason);
    if (row->explained != NULL) {
        explain(row, out);
    }
    if (strlen(row->partition_text) < sizeof out->partition) {
        (void)snprintf(out->partition, sizeof out->partition, "%s", row->partition_text);
    }
}

static void refuse(const char *cause, rpadvise_outcome *out)
{
    *out = (rpadvise_outcome){0};
    (void)snprintf(out->cause, sizeof out->cause, "%.*s", (int)sizeof out->cause - 1, cause);
}

static rp_status run_study(const rpsim_setup *work, const rpadvise_candidate *candidate,
                           const rpadvise_manner *manner, rp_arena *arena, rpsim_study *study_out,
                           rp_reason *reason)
{
    rpsim_setup *setup = NULL;
    *study_out = (rpsim_study){.arena = arena};
    RP_TRY(rpadvise_candidate_setup(work, candidate, manner, arena, &setup, reason));
    RP_TRY(rpsim_study_prepare(setup, arena, study_out, reason));
    for (uint32_t i = 0; i < study_out->row_count && manner->period_only; i++) {
        study_out->rows[i].without = RPSIM_WITHOUT_STEP | RPSIM_WITHOUT_CHECK;
    }
    return rpsim_study_run(study_out, reason);
}

/* Runs a study without warnings: those about inputs were given when the inputs were checked. */
static rp_status run_quietly(const rpsim_setup *work, const rpadvise_candidate *candidate,
                             const rpadvise_manner *manner, rp_arena *arena, rpsim_study *study_out,
                             rp_reason *reason)
{
    bool before = rp_log_mute_warnings(true);
    rp_status status = run_study(work, candidate, manner, arena, study_out, reason);
    rp_log_mute_warnings(before);
    return status;
}

static void set_systems(const rpadvise_systems *systems, const rpsim_row *row,
                        rpadvise_outcome *out)
{
    const char *why = NULL;
    for (uint32_t i = 0; i < systems->name_count && i < 32; i++) {
        out->systems |= rpadvise_runs(systems, systems->names[i], row, &why) ? 1u << i : 0;
    }
}

/* Refuses a run that the requested system cannot be told to do. */
static void restrict_to(const rpadvise_bench *bench, const rpsim_row *row, rpadvise_outcome *out)
{
    const char *why = NULL;
    if (bench->runnable != NULL && !rpadvise_runs(bench->systems, bench->runnable, row, &why)) {
        *out = (rpadvise_outcome){0};
        (void)snprintf(out->cause, sizeof out->cause, "%s: %s", bench->runnable, why);
    }
}

static rp_status run_trial(const rpadvise_bench *bench, rpadvise_trial *trial)
{
    const char *name = trial->candidate.schedule->name;
    if (bench->runnable != NULL &&
        rpadvise_systems_rule(bench->systems, bench->runnable, name) == NULL) {
        trial->outcome = (rpadvise_outcome){0}; /* this cause comes before any refusal of rpsim */
        (void)snprintf(trial->outcome.cause, sizeof trial->outcome.cause,
                       "%s: it has no such schedule", bench->runnable);
        return RP_OK;
    }
    rp_reason reason = {0};
    rp_arena *arena = NULL;
    rpsim_study study = {0};
    const rpsim_setup *work = trial->work != NULL ? trial->work : bench->work;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = run_quietly(work, &trial->candidate, &trial->manner, arena, &study, &reason);
    if (status == RP_OK) {
        describe(&study.rows[0], &trial->manner, &trial->outcome);
        set_systems(bench->systems, &study.rows[0], &trial->outcome);
        restrict_to(bench, &study.rows[0], &trial->outcome);
    } else if (status == RP_USAGE || status == RP_INPUT) {
        refuse(reason.text[0] != '\0' ? reason.text : rp_status_text(status), &trial->outcome);
        status = RP_OK;
    }
    rpsim_study_fini(&study);
    rp_arena_destroy(arena);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

typedef struct batch {
    rpadvise_bench *bench;
    rpadvise_trial *trials;
    uint32_t count;
    const char *what;
    atomic_uint done;
} batch;

static void show(const batch *b, uint32_t done)
{
    if (b->bench->progress && (done % PROGRESS_EVERY == 0 || done == b->count)) {
        (void)fprintf(stderr, "\r\033[Krpadvise: %s, %u of %u; %" PRIu64 " simulations, %.0f s",
                      b->what, done, b->count, b->bench->spent + done,
                      rpsim_clock_s() - b->bench->begin_s);
    }
}

static rp_status run_job(void *context, uint32_t job)
{
    batch *b = context;
    RP_TRY(run_trial(b->bench, &b->trials[job]));
    show(b, atomic_fetch_add(&b->done, 1) + 1);
    return RP_OK;
}

rp_status rpadvise_try(rpadvise_bench *bench, rpadvise_trial *trials, uint32_t count,
                       const char *what)
{
    batch b = {.bench = bench, .trials = trials, .count = count, .what = what};
    if (count == 0) {
        return RP_OK;
    }
    RP_TRY(rp_crew_run(0, count, run_job, &b));
    bench->spent += count;
    return RP_OK;
}

rp_status rpadvise_study(const rpadvise_bench *bench, const rpadvise_candidate *candidate,
                         const rpadvise_manner *manner, rp_arena *arena, rpsim_study *study_out)
{
    rpadvise_manner reported = *manner;
    reported.reported = true;
    return run_quietly(bench->work, candidate, &reported, arena, study_out, NULL);
}

void rpadvise_bench_end(const rpadvise_bench *bench)
{
    if (bench->progress) {
        (void)fprintf(stderr, "\r\033[K");
    }
}
