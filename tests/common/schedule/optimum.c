/* Bounds and schedules around the exact optimum of small instances
 * (tests/reference/slow_optimum.h): bound <= optimum <= every schedule's makespan. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/small_instance.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 4u

/* Sanitized builds are ten times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CASES 36u
#else
#define CASES (getenv("RP_LONG") != NULL ? 400u : 120u)
#endif
/* Instances with more states are left out; there are almost none. */
#define MOST_STATES UINT64_C(60000)

TestSuite(optimum, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

static rp_partition ones(uint32_t stages)
{
    rp_partition partition = {.forward_count = stages};
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_arena, stages, sizeof(uint32_t), &partition.forward_layers),
                 RP_OK));
    for (uint32_t s = 0; s < stages; s++) {
        partition.forward_layers[s] = 1;
    }
    return partition;
}

/* ---- the search itself ----------------------------------------------------------------------- */

/* Equal stages, one per GPU: (M + N - 1)(F + B), and with split backwards 3 M + N - 1 (the last GPU
 * cannot begin before N - 1, schedules.md 2 reaches it). */
Test(optimum, closed_forms)
{
    for (uint32_t n = 1; n <= 3; n++) {
        for (uint32_t m = n; m <= 4; m++) {
            rp_costs costs;
            slow_instance instance;
            rp_partition partition = ones(n);
            rp_test_equal_costs(rp_test_arena, n, 1, 2, &costs);
            rp_schedule_config config = {
                .gpus = n, .microbatches = m, .partition = &partition, .costs = &costs};
            cr_assert(rp_test_pipeline_instance(&config, false, RP_TEST_FIXED, &instance));
            cr_expect(eq(i64, slow_optimum(&instance, 100, MOST_STATES), 3 * (m + n - 1)));
            cr_assert(rp_test_pipeline_instance(&config, true, RP_TEST_FIXED, &instance));
            cr_expect(eq(i64, slow_optimum(&instance, 100, MOST_STATES), 3 * m + n - 1));
            cr_assert(rp_test_pipeline_instance(&config, false, RP_TEST_ANY_GPU, &instance));
            cr_expect(eq(i64, slow_optimum(&instance, 100, MOST_STATES), 3 * (m + n - 1)));
        }
    }
}

/* Two machines, chains of an op on each: Johnson's rule gives the least makespan (S. M. Johnson
 * 1954). Three jobs (3,2), (1,4), (2,1): order 2, 1, 3, makespan 8. */
Test(optimum, johnson)
{
    static const int64_t times[3][2] = {{3, 2}, {1, 4}, {2, 1}};
    slow_instance instance = {.gpus = 2};
    for (int j = 0; j < 3; j++) {
        for (int k = 0; k < 2; k++) {
            slow_job *job = &instance.jobs[instance.job_count++];
            *job = (slow_job){.work = times[j][k], .count = 1, .gpu = k, .with = -1};
            job->after_count = k;
            job->after[0] = instance.job_count - 2;
        }
    }
    cr_expect(eq(i64, slow_optimum(&instance, 100, MOST_STATES), 8));
}

/* P || Cmax: 5, 4, 3, 3, 3 on two machines: 9 (Graham's LPT gives 10). */
Test(optimum, parallel_machines)
{
    static const int64_t times[] = {5, 4, 3, 3, 3};
    slow_instance instance = {.gpus = 2};
    for (int j = 0; j < 5; j++) {
        instance.jobs[instance.job_count++] =
            (slow_job){.work = times[j], .count = 1, .gpu = SLOW_ANY_GPU, .with = -1};
    }
    cr_expect(eq(i64, slow_optimum(&instance, 100, MOST_STATES), 9));
}

/* ---- bound <= optimum <= schedules ----------------------------------------------------------- */

static void draw_costs(rp_random *random, rp_costs *costs)
{
    rp_test_equal_costs(rp_test_arena, rp_random_between(random, 1, MOST_LAYERS), 0, 0, costs);
    for (uint32_t i = 0; i < costs->layers; i++) {
        costs->fwd_ps[i] = rp_random_between(random, 1, 6);
        costs->bwd_input_ps[i] = rp_random_between(random, 1, 6);
        costs->bwd_ps[i] = costs->bwd_input_ps[i] + rp_random_between(random, 0, 6);
    }
    costs->head_fwd_ps = rp_random_between(random, 0, 1) * rp_random_between(random, 0, 40);
    costs->head_bwd_ps = rp_random_between(random, 0, 1) * rp_random_between(random, 0, 8);
    costs->hop_ps = rp_random_between(random, 0, 1) * rp_random_between(random, 0, 3);
}

/* Least makespan of the named schedules that allow the sizes, and the bounds of any of them. */
static int64_t best_of(const char *const *names, size_t count, const rp_schedule_config *config,
                       rpsim_bounds *bounds)
{
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        char message[1024];
        rpsim_result result;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rpsim_case_run(rp_schedule_find(names[i]), config, &result, NULL);
        rp_log_capture_end();
        if (status == RP_OK) {
            best = result.metrics.makespan_ps < best ? result.metrics.makespan_ps : best;
            *bounds = result.bounds;
            rpsim_result_fini(&result);
        }
    }
    cr_assert(lt(i64, best, INT64_MAX), "none of the schedules allows these sizes");
    return best;
}

typedef struct tally {
    uint32_t solved;
    uint32_t left_out;
    uint32_t tight; /* the bound is the optimum */
} tally;

static void check(const slow_instance *instance, int64_t known, int64_t bound, tally *t,
                  const char *what, uint32_t number)
{
    int64_t optimum = slow_optimum(instance, known, MOST_STATES);
    if (optimum < 0) {
        t->left_out++;
        return;
    }
    t->solved++;
    t->tight += bound == optimum;
    cr_expect(le(i64, bound, optimum), "%s, case %u", what, number);
}

static void draw_config(rp_random *random, const rp_costs *costs, rp_schedule_config *config)
{
    *config = (rp_schedule_config){.gpus = rp_random_between(random, 1, 3),
                                   .microbatches = rp_random_between(random, 1, 4),
                                   .iterations = 1,
                                   .recompute = (rp_recompute)rp_random_between(random, 0, 2),
                                   .layers = costs->layers,
                                   .costs = costs};
}

static void expect_tally(const tally *t, const char *what, uint32_t least, uint32_t tight)
{
    cr_log_info("%s: %u solved, bound tight in %u, %u too large", what, t->solved, t->tight,
                t->left_out);
    cr_expect(gt(u32, t->solved, least), "%s", what);
    cr_expect(gt(u32, t->tight, tight), "%s", what);
    cr_expect(lt(u32, t->left_out, t->solved / 10 + 1), "%s", what);
}

/* Stage s on GPU s: beats every order of a pipeline. */
Test(optimum, pipelines_with_their_placement)
{
    static const char *const whole[] = {"gpipe", "1f1b", "eager-1f1b"};
    static const char *const split[] = {"zb-h1", "zb-h2"};
    rp_random random = {3};
    tally t[2] = {{0}};
    const uint32_t cases = CASES;
    for (uint32_t i = 0; i < cases; i++) {
        rp_costs costs;
        rp_schedule_config config;
        slow_instance instance;
        rpsim_bounds bounds;
        draw_costs(&random, &costs);
        draw_config(&random, &costs, &config);
        config.gpus = costs.layers < 3 ? costs.layers : 3;
        config.microbatches += config.gpus > 1;
        rp_partition partition;
        cr_assert(eq(int,
                     rp_partition_even(rp_schedule_find("1f1b"), &costs, config.gpus, 0,
                                       rp_test_arena, &partition, NULL),
                     RP_OK));
        config.partition = &partition;
        for (int k = 0; k < 2; k++) {
            config.microbatches = k == 1 && config.microbatches > 4 ? 4 : config.microbatches;
            int64_t known = best_of(k == 0 ? whole : split, k == 0 ? 3 : 2, &config, &bounds);
            cr_assert(rp_test_pipeline_instance(&config, k == 1, RP_TEST_FIXED, &instance));
            check(&instance, known, rpsim_bounds_best(&bounds), &t[k], "placed", i);
        }
    }
    expect_tally(&t[0], "pipelines, F and B", cases * 3 / 4, cases / 3);
    expect_tally(&t[1], "pipelines, F, I and W", cases * 3 / 4, cases / 3);
}

/* Each layer on any GPU: beats every cut and placement. Recompute is waiting or none, as early
 * recompute of a longer stage can begin before its layers'. */
Test(optimum, pipelines_with_any_placement)
{
    static const char *const names[] = {"gpipe", "1f1b", "looped-bfs"};
    rp_random random = {4};
    tally t = {0};
    const uint32_t cases = CASES;
    for (uint32_t i = 0; i < cases; i++) {
        rp_costs costs;
        rp_schedule_config config;
        slow_instance instance;
        rpsim_bounds bounds;
        draw_costs(&random, &costs);
        draw_config(&random, &costs, &config);
        costs.head_fwd_ps = costs.head_bwd_ps = 0; /* the head, too, may be on any GPU */
        config.recompute = i % 2 == 0 ? RP_RECOMPUTE_NONE : RP_RECOMPUTE_WAIT;
        config.gpus = costs.layers < config.gpus ? costs.layers : config.gpus;
        config.microbatches = config.microbatches < config.gpus ? config.gpus : config.microbatches;
        rp_partition even;
        rp_partition finest = ones(costs.layers);
        cr_assert(eq(int,
                     rp_partition_even(rp_schedule_find("1f1b"), &costs, config.gpus, 0,
                                       rp_test_arena, &even, NULL),
                     RP_OK));
        config.partition = &even;
        int64_t known = best_of(names, 3, &config, &bounds);
        config.partition = &finest;
        cr_assert(rp_test_pipeline_instance(&config, false, RP_TEST_ANY_GPU, &instance));
        check(&instance, known, rpsim_bounds_of_class(&bounds, RPSIM_BOUND_CLASS_SAME), &t,
              "same semantics", i);
    }
    expect_tally(&t, "pipelines, any GPU", cases * 3 / 4, cases / 3);
}

/* Each microbatch's layer on any GPU: beats everything that does the same work. */
Test(optimum, any_schedule_of_the_work)
{
    static const char *const names[] = {"gpipe", "1f1b"};
    rp_random random = {5};
    tally t = {0};
    const uint32_t cases = CASES;
    for (uint32_t i = 0; i < cases; i++) {
        rp_costs costs;
        rp_schedule_config config;
        slow_instance instance;
        rpsim_bounds bounds;
        draw_costs(&random, &costs);
        draw_config(&random, &costs, &config);
        costs.head_fwd_ps = costs.head_bwd_ps = 0;
        config.recompute = RP_RECOMPUTE_NONE;
        config.microbatches = config.microbatches < config.gpus ? config.gpus : config.microbatches;
        rp_partition even;
        rp_partition finest = ones(costs.layers);
        cr_assert(eq(int,
                     rp_partition_even(rp_schedule_find("1f1b"), &costs, config.gpus, 0,
                                       rp_test_arena, &even, NULL),
                     RP_OK));
        config.partition = &even;
        int64_t known = best_of(names, 2, &config, &bounds);
        config.partition = &finest;
        if (config.microbatches * costs.layers <= 8 &&
            rp_test_pipeline_instance(&config, false, RP_TEST_ANY_BATCH, &instance)) {
            check(&instance, known, rpsim_bounds_of_class(&bounds, RPSIM_BOUND_CLASS_ANY), &t,
                  "same work", i);
        }
    }
    expect_tally(&t, "any schedule of the work", cases / 3, cases / 4);
}

/* ---- RoundPipe ------------------------------------------------------------------------------- */

/* Parts of `layers` between cuts; bit i of `cuts` is a cut after layer i. */
static uint32_t compose(uint32_t layers, uint32_t cuts, uint32_t *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0, length = 0; i < layers; i++) {
        length++;
        if (i + 1 == layers || (cuts >> i & 1) != 0) {
            out[count++] = length;
            length = 0;
        }
    }
    return count;
}

/* Both schedules on every partition of a tiny model: all cuts of forwards and backwards, with the
 * head alone, fused with layers, or with layers that it recomputes. */
static void check_partitions(rp_schedule_config *config, uint32_t number, tally *t)
{
    static const char *const names[] = {"roundpipe", "roundpipe-overlap"};
    uint32_t layers = config->layers;
    int64_t same = -1;
    for (uint32_t head = 0; head <= layers; head++) {
        for (uint32_t code = 0; code < UINT32_C(2) << layers; code++) {
            uint32_t forward[MOST_LAYERS + 1] = {0};
            uint32_t backward[MOST_LAYERS + 2] = {head};
            bool fused = (code & 1) != 0 && head > 0;
            uint32_t rest = layers - head;
            uint32_t covered = fused ? rest : layers;
            uint32_t forwards = compose(covered, code >> 1, forward);
            uint32_t backwards = 1 + compose(rest, code >> 1, backward + 1);
            rp_partition partition = {forwards + (forwards == 0), forward, backwards, backward};
            slow_instance instance;
            rpsim_bounds bounds;
            config->partition = &partition;
            if ((code & 1) != 0 && !fused) {
                continue;
            }
            int64_t known = best_of(names, 2, config, &bounds);
            int64_t bound = rpsim_bounds_of_class(&bounds, RPSIM_BOUND_CLASS_SAME);
            cr_expect(eq(i64, bound, same < 0 ? bound : same));
            same = bound;
            int64_t any = rpsim_bounds_of_class(&bounds, RPSIM_BOUND_CLASS_ANY);
            cr_assert(rp_test_roundpipe_instance(config, &instance));
            check(&instance, known, any > bound ? any : bound, t, "roundpipe", number);
        }
    }
}

Test(optimum, roundpipe_with_any_partition_and_placement)
{
    rp_random random = {6};
    tally t = {0};
    const uint32_t cases = CASES;
    for (uint32_t i = 0; i < cases / 6; i++) {
        rp_costs costs;
        rp_schedule_config config;
        draw_costs(&random, &costs);
        costs.layers = costs.layers < 3 ? costs.layers : 3;
        draw_config(&random, &costs, &config);
        /* A single round, or two as equal as in roundpipe-overlap. */
        config.round = i % 2 == 0 ? config.microbatches : (config.microbatches + 1) / 2;
        check_partitions(&config, i, &t);
    }
    expect_tally(&t, "roundpipe", 3 * cases, cases / 2);
}

/* ---- distances of the schedules -------------------------------------------------------------- */

typedef struct distance {
    const char *schedule;
    const char *from; /* the optimum's name */
    bool split;
    uint32_t count;
    double sum, most;
} distance;

static void measure(const rp_schedule_config *config, distance *d)
{
    char message[1024];
    rpsim_result result;
    slow_instance instance;
    const rp_schedule_type *schedule = rp_schedule_find(d->schedule);
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpsim_case_run(schedule, config, &result, NULL);
    rp_log_capture_end();
    if (status != RP_OK) {
        return;
    }
    cr_assert(schedule->separate_backward
                  ? rp_test_roundpipe_instance(config, &instance)
                  : rp_test_pipeline_instance(config, d->split, RP_TEST_FIXED, &instance));
    int64_t known = result.metrics.makespan_ps;
    int64_t optimum = slow_optimum(&instance, known, MOST_STATES);
    rpsim_result_fini(&result);
    if (optimum > 0) {
        double percent = 100.0 * ((double)known / (double)optimum - 1.0);
        d->count++;
        d->sum += percent;
        d->most = percent > d->most ? percent : d->most;
    }
}

/* 3 GPUs, 4 microbatches, even partitions, random layers; printed with --verbose. */
Test(optimum, distances)
{
    distance distances[] = {
        {.schedule = "gpipe", .from = "F and B, placed"},
        {.schedule = "1f1b", .from = "F and B, placed"},
        {.schedule = "1f1b", .from = "F, I and W, placed", .split = true},
        {.schedule = "zb-h1", .from = "F, I and W, placed", .split = true},
        {.schedule = "roundpipe", .from = "jobs on any GPU"},
        {.schedule = "roundpipe-overlap", .from = "jobs on any GPU"},
    };
    rp_random random = {7};
    for (uint32_t i = 0; i < 60; i++) {
        rp_costs costs;
        do {
            draw_costs(&random, &costs);
        } while (costs.layers < 3);
        for (size_t k = 0; k < sizeof distances / sizeof distances[0]; k++) {
            rp_partition partition;
            const rp_schedule_type *schedule = rp_schedule_find(distances[k].schedule);
            cr_assert(eq(int,
                         rp_partition_even(schedule, &costs, 3, 0, rp_test_arena, &partition, NULL),
                         RP_OK));
            rp_schedule_config config = {.gpus = 3,
                                         .microbatches = 4,
                                         .iterations = 1,
                                         .round = 2,
                                         .recompute = RP_RECOMPUTE_WAIT,
                                         .layers = costs.layers,
                                         .partition = &partition,
                                         .costs = &costs};
            measure(&config, &distances[k]);
        }
    }
    for (size_t k = 0; k < sizeof distances / sizeof distances[0]; k++) {
        const distance *d = &distances[k];
        cr_log_info("%-18s above the optimum of %-20s mean %6.2f %%, most %6.2f %%, %u cases",
                    d->schedule, d->from, d->sum / d->count, d->most, d->count);
        cr_expect(gt(u32, d->count, 50), "%s", d->schedule);
    }
    /* Splitting backwards can only help, as in zb-h1. */
    cr_expect(ge(dbl, distances[2].sum, distances[1].sum));
    cr_expect(le(dbl, distances[3].sum, distances[2].sum));
}
