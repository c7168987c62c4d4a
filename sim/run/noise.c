#include "sim/run/noise.h"

#include "common/base/crew.h"
#include "common/base/hash.h"
#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Bytes per op in a thread: factor, start and end of the op, and the engine's notes. */
#define REPLICA_OP_BYTES 64.0

/* State that the threads share. */
typedef struct crew {
    const rpsim_noise *noise;
    const rp_program *program;
    rpsim_replica_run run;
    const void *context;
    void *messages; /* log target of the caller */
    double *values;
    _Atomic uint32_t next; /* next replica to run */
    _Atomic int status;    /* status of the first failure; the other threads stop */
} crew;

/* ---- factors --------------------------------------------------------------------------------- */

static uint32_t fmix32(uint32_t x)
{
    x = (x ^ x >> 16) * UINT32_C(0x85ebca6b);
    x = (x ^ x >> 13) * UINT32_C(0xc2b2ae35);
    return x ^ x >> 16;
}

static uint32_t seed_of(uint64_t seed, uint32_t replica)
{
    uint64_t hash = rp_splitmix64(seed);
    return fmix32((replica + (uint32_t)hash) ^ (uint32_t)(hash >> 32));
}

static void slow_down(const rpsim_noise *noise, const rp_program *program, double *factors)
{
    for (uint32_t q = 0; noise->slow_factor != 0 && q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        for (uint32_t i = queue->op_begin; queue->gpu == noise->slow_gpu && i < queue->op_end;
             i++) {
            if (rp_op_kind_class((rp_op_kind)program->ops[i].kind) == RP_CLASS_COMPUTE) {
                factors[i] *= noise->slow_factor;
            }
        }
    }
}

static void draw(const rpsim_noise *noise, uint32_t replica, const rp_program *program,
                 gsl_rng *generator, double *factors)
{
    double variance = log1p(noise->cv * noise->cv);
    double sigma = sqrt(variance);
    gsl_rng_set(generator, seed_of(noise->seed, replica));
    for (uint32_t i = 0; i < program->op_count; i++) {
        bool compute = rp_op_kind_class((rp_op_kind)program->ops[i].kind) == RP_CLASS_COMPUTE;
        factors[i] = compute ? gsl_ran_lognormal(generator, -0.5 * variance, sigma) : 1.0;
    }
    slow_down(noise, program, factors);
}

/* Makes a generator whose state lies in our memory: if gsl_rng_alloc() finds no memory, GSL's
 * handler ends the program. */
static rp_status make_generator(gsl_rng *generator_out)
{
    *generator_out = (gsl_rng){.type = gsl_rng_mt19937};
    return rp_mem_resize(&generator_out->state, gsl_rng_mt19937->size);
}

rp_status rpsim_noise_draw(const rpsim_noise *noise, uint32_t replica, const rp_program *program,
                           double *factors_out)
{
    gsl_rng generator;
    RP_TRY(make_generator(&generator));
    draw(noise, replica, program, &generator, factors_out);
    rp_mem_release(&generator.state);
    return RP_OK;
}

rp_status rpsim_noise_strata(uint64_t seed, uint32_t coordinate, uint32_t count, double *strata_out)
{
    gsl_rng generator;
    RP_TRY(make_generator(&generator));
    gsl_rng_set(&generator, seed_of(seed, coordinate));
    for (uint32_t i = 0; i < count; i++) {
        strata_out[i] = (i + 0.5) / count;
    }
    gsl_ran_shuffle(&generator, strata_out, count, sizeof *strata_out);
    rp_mem_release(&generator.state);
    return RP_OK;
}

/* ---- replicas -------------------------------------------------------------------------------- */

static rp_status run_replicas(crew *c, gsl_rng *generator, double *factors)
{
    while (atomic_load(&c->status) == RP_OK) {
        uint32_t replica = atomic_fetch_add(&c->next, 1);
        if (replica >= c->noise->replicas) {
            break;
        }
        draw(c->noise, replica, c->program, generator, factors);
        RP_TRY(c->run(c->context, factors, &c->values[replica]));
    }
    return RP_OK;
}

static rp_status work_in(crew *c, rp_arena *arena)
{
    double *factors = NULL;
    gsl_rng generator;
    RP_TRY(rp_arena_alloc(arena, c->program->op_count, sizeof *factors, &factors));
    RP_TRY(make_generator(&generator));
    rp_status status = run_replicas(c, &generator, factors);
    rp_mem_release(&generator.state);
    return status;
}

static void *work(void *argument)
{
    crew *c = argument;
    rp_arena *arena = NULL;
    rp_status status = rp_arena_create(&arena);
    if (status == RP_OK) {
        status = work_in(c, arena);
    }
    rp_arena_destroy(arena);
    int none = RP_OK;
    if (status != RP_OK) {
        atomic_compare_exchange_strong(&c->status, &none, (int)status);
    }
    return NULL;
}

static void *work_beside(void *argument)
{
    crew *c = argument;
    rp_log_follow(c->messages);
    return work(c);
}

rp_status rpsim_noise_run(const rpsim_noise *noise, const rp_program *program,
                          rpsim_replica_run run, const void *context, double *values_out)
{
    crew c = {.noise = noise,
              .program = program,
              .run = run,
              .context = context,
              .messages = rp_log_destination(),
              .values = values_out};
    pthread_t threads[RP_CREW_MAX_THREADS];
    uint32_t wanted = rp_crew_threads(noise->threads, noise->replicas);
    RP_TRY(rp_host_memory_allow(REPLICA_OP_BYTES * program->op_count * wanted,
                                rp_log_spell("{jitter}").text,
                                "fewer {replicas}, {microbatches} or {iterations}", NULL));
    uint32_t started = 0;
    /* A thread that cannot be started costs time and nothing else: the caller's thread does the
     * rest. */
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work_beside, &c) == 0) {
        started++;
    }
    work(&c);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    return (rp_status)atomic_load(&c.status);
}

/* ---- statistics ------------------------------------------------------------------------------ */

static rp_status sort(const double *values, uint32_t count, rp_arena *arena, double **sorted_out)
{
    RP_TRY(rp_arena_alloc(arena, count, sizeof **sorted_out, sorted_out));
    memcpy(*sorted_out, values, count * sizeof **sorted_out);
    gsl_sort(*sorted_out, 1, count);
    return RP_OK;
}

rp_status rpsim_noise_quantiles(const double *values, uint32_t count,
                                rpsim_quantiles *quantiles_out)
{
    rp_arena *arena = NULL;
    double *sorted = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = sort(values, count, arena, &sorted);
    if (status == RP_OK) {
        *quantiles_out =
            (rpsim_quantiles){.p05 = gsl_stats_quantile_from_sorted_data(sorted, 1, count, 0.05),
                              .median = gsl_stats_quantile_from_sorted_data(sorted, 1, count, 0.5),
                              .p95 = gsl_stats_quantile_from_sorted_data(sorted, 1, count, 0.95)};
    }
    rp_arena_destroy(arena);
    return status;
}

/* GSL puts the first value at probability 0 and the last value at 1. */
static double quantile_of_strata(const double *sorted, uint32_t count, double probability)
{
    double place = count > 1 ? (probability * count - 0.5) / (count - 1.0) : 0;
    double within = place < 0 ? 0 : place > 1 ? 1 : place;
    return gsl_stats_quantile_from_sorted_data(sorted, 1, count, within);
}

rp_status rpsim_noise_interval(const double *values, uint32_t count, rpsim_interval *interval_out)
{
    rp_arena *arena = NULL;
    double *sorted = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = sort(values, count, arena, &sorted);
    if (status == RP_OK) {
        *interval_out = (rpsim_interval){.p10 = quantile_of_strata(sorted, count, 0.1),
                                         .p50 = quantile_of_strata(sorted, count, 0.5),
                                         .p90 = quantile_of_strata(sorted, count, 0.9)};
    }
    rp_arena_destroy(arena);
    return status;
}

double rpsim_noise_beats(const double *a, double work_a, const double *b, double work_b,
                         uint32_t count)
{
    bool same = work_a == work_b; /* without scaling nothing is rounded, and ties stay ties */
    uint64_t halves = 0;
    for (uint32_t i = 0; i < count; i++) {
        double left = same ? a[i] : a[i] * work_b;
        double right = same ? b[i] : b[i] * work_a;
        halves += (left < right ? 2u : 0u) + (left == right ? 1u : 0u);
    }
    return 0.5 * (double)halves / count;
}
