/* Lower bounds at stage fidelity: never above any schedule of their class, and equal to closed
 * forms. */
#include "common/base/log.h"
#include "sim/run/run_bounds.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define MAX_LAYERS 24u

/* Sanitized builds are ten times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CASES 120u
#else
#define CASES 400u
#endif

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(bounds, .init = begin, .fini = end, .timeout = 300);

/* ---- random costs and shapes ----------------------------------------------------------------- */

static int64_t draw_ps(rp_random *random, uint32_t kind)
{
    if (kind == 0 && rp_random_between(random, 0, 4) == 0) {
        return 0;
    }
    return kind == 1 ? 100 : (int64_t)rp_random_between(random, 1, 1000);
}

/* Equal layers, layers of all lengths, or layers some of which take no time. */
static void draw_costs(rp_random *random, rp_costs *costs)
{
    uint32_t kind = rp_random_between(random, 0, 2);
    rp_test_equal_costs(arena, rp_random_between(random, 1, MAX_LAYERS), 0, 0, costs);
    for (uint32_t i = 0; i < costs->layers; i++) {
        costs->fwd_ps[i] = draw_ps(random, kind);
        costs->bwd_ps[i] = kind == 1 ? 200 : 2 * draw_ps(random, kind);
        costs->bwd_input_ps[i] = costs->bwd_ps[i] / rp_random_between(random, 1, 3);
    }
    costs->head_fwd_ps = rp_random_between(random, 0, 1) * draw_ps(random, kind) * 3;
    costs->head_bwd_ps = rp_random_between(random, 0, 1) * draw_ps(random, kind) * 5;
    costs->hop_ps = rp_random_between(random, 0, 2) * 40;
    costs->overlap_saving = rp_random_between(random, 0, 2) * 0.25;
}

static void check_terms(const rpsim_bounds *bounds, int64_t makespan_ps, const char *text)
{
    static const char *const keys[] = {
#define BOUND_KEY(name, key, of_class, words) key,
        RPSIM_BOUND_LIST(BOUND_KEY)
#undef BOUND_KEY
    };
    for (int t = 0; t < RPSIM_BOUND_COUNT; t++) {
        cr_expect(le(i64, bounds->ps[t], makespan_ps), "%s: %s", keys[t], text);
    }
    for (int c = 0; c < RPSIM_BOUND_CLASS_COUNT; c++) {
        cr_expect(le(i64, rpsim_bounds_of_class(bounds, (rpsim_bound_class)c),
                     rpsim_bounds_best(bounds)));
    }
}

Test(bounds, no_schedule_beats_them)
{
    rp_random random = {20};
    uint32_t runs[64] = {0};
    uint32_t ramps = 0;
    cr_assert(lt(u32, rp_schedule_count, 64));
    for (uint32_t i = 0; i < CASES; i++) {
        rp_costs costs;
        draw_costs(&random, &costs);
        uint32_t gpus = rp_random_between(&random, 1, 9);
        uint32_t microbatches = rp_random_between(&random, 1, 4) * gpus;
        if (rp_random_between(&random, 0, 2) == 0) {
            microbatches = rp_random_between(&random, 1, 2 * gpus);
        }
        rp_recompute recompute = (rp_recompute)rp_random_between(&random, 0, 2);
        for (uint32_t s = 0; s < rp_schedule_count; s++) {
            char message[1024];
            char text[256];
            rpsim_result result;
            rp_log_capture_begin(message, sizeof message);
            rp_status status =
                rp_test_run_even(rp_schedules[s], &costs, gpus, microbatches,
                                 rp_random_between(&random, 1, 3), recompute, arena, &result);
            rp_log_capture_end();
            if (status != RP_OK) {
                continue;
            }
            runs[s]++;
            ramps += result.bounds.ps[RPSIM_BOUND_RAMP] > result.bounds.ps[RPSIM_BOUND_WORK];
            snprintf(text, sizeof text, "case %u, %s, %u GPUs, %u microbatches, recompute %s", i,
                     rp_schedules[s]->name, gpus, microbatches, rp_recompute_text(recompute));
            check_terms(&result.bounds, result.metrics.makespan_ps, text);
            cr_expect(eq(i64, rpsim_bounds_best(&result.bounds), result.metrics.lower_bound_ps));
            rpsim_result_fini(&result);
        }
    }
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        cr_expect(gt(u32, runs[s], CASES / 15), "%s", rp_schedules[s]->name);
    }
    cr_expect(gt(u32, ramps, CASES), "the ramp hardly ever matters: %u", ramps);
}

/* ---- a bound for all schedules of a class ---------------------------------------------------- */

static void draw_layers(rp_random *random, uint32_t layers, uint32_t stages, uint32_t *out)
{
    memset(out, 0, stages * sizeof *out);
    for (uint32_t i = 0; i < layers; i++) {
        out[rp_random_between(random, 0, stages - 1)]++;
    }
}

typedef struct drawn_partition {
    rp_partition partition;
    uint32_t forward[MAX_LAYERS + 1];
    uint32_t backward[MAX_LAYERS + 2];
} drawn_partition;

/* With a head stage that is fused, recomputed, or the head alone. */
static void draw_partition(rp_random *random, uint32_t layers, drawn_partition *d)
{
    uint32_t head = rp_random_between(random, 0, layers);
    bool fused = head > 0 && head < layers && rp_random_between(random, 0, 1) == 1;
    uint32_t forwards = rp_random_between(random, 1, MAX_LAYERS);
    uint32_t backwards = rp_random_between(random, 1, MAX_LAYERS);
    draw_layers(random, fused ? layers - head : layers, forwards, d->forward);
    draw_layers(random, layers - head, backwards, d->backward + 1);
    d->backward[0] = head;
    d->partition = (rp_partition){forwards, d->forward, backwards + 1, d->backward};
}

static rp_status run(const char *name, const rp_costs *costs, const rp_partition *partition,
                     uint32_t gpus, uint32_t microbatches, uint32_t round, rp_recompute recompute,
                     rpsim_result *result)
{
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = 1,
                                 .round = round,
                                 .recompute = recompute,
                                 .layers = costs->layers,
                                 .partition = partition,
                                 .costs = costs};
    return rpsim_case_run(rp_schedule_find(name), &config, result, NULL);
}

/* A single bound lies below both schedules with any partition, fused or not. */
Test(bounds, same_semantics_bounds_every_partition)
{
    static const char *const names[] = {"roundpipe", "roundpipe-overlap"};
    rp_random random = {8};
    uint32_t fused = 0;
    for (uint32_t i = 0; i < CASES; i++) {
        rp_costs costs;
        draw_costs(&random, &costs);
        uint32_t gpus = rp_random_between(&random, 1, 9);
        uint32_t microbatches = rp_random_between(&random, 1, 12);
        uint32_t round = rp_random_between(&random, 1, microbatches);
        rp_recompute recompute = (rp_recompute)rp_random_between(&random, 0, 2);
        int64_t bound = -1;
        for (uint32_t k = 0; k < 16; k++) {
            char text[64];
            drawn_partition d;
            rpsim_result result;
            draw_partition(&random, costs.layers, &d);
            uint32_t covered = 0;
            for (uint32_t s = 0; s < d.partition.forward_count; s++) {
                covered += d.forward[s];
            }
            fused += covered < costs.layers;
            cr_assert(eq(int,
                         run(names[k % 2], &costs, &d.partition, gpus, microbatches, round,
                             recompute, &result),
                         RP_OK));
            int64_t same = rpsim_bounds_of_class(&result.bounds, RPSIM_BOUND_CLASS_SAME);
            cr_expect(gt(i64, same, 0));
            cr_expect(eq(i64, same, bound < 0 ? same : bound), "it depends on the partition");
            snprintf(text, sizeof text, "case %u, partition %u", i, k);
            check_terms(&result.bounds, result.metrics.makespan_ps, text);
            bound = same;
            rpsim_result_fini(&result);
        }
    }
    cr_expect(gt(u32, fused, CASES));
}

/* Pipelines: every cut into stages, also empty, and every order with a GPU per layer. */
Test(bounds, same_semantics_bounds_every_pipeline)
{
    static const char *const names[] = {"gpipe", "1f1b", "eager-1f1b", "looped-bfs"};
    rp_random random = {13};
    for (uint32_t i = 0; i < CASES; i++) {
        rp_costs costs;
        draw_costs(&random, &costs);
        uint32_t gpus = rp_random_between(&random, 1, 8);
        uint32_t microbatches = rp_random_between(&random, gpus, 24);
        rp_recompute recompute = (rp_recompute)rp_random_between(&random, 0, 2);
        int64_t bound = -1;
        for (uint32_t k = 0; k < 12; k++) {
            char text[64];
            uint32_t layers[MAX_LAYERS];
            uint32_t stages = k % 4 == 3 ? 2 * gpus : gpus;
            rp_partition partition = {.forward_count = stages, .forward_layers = layers};
            rpsim_result result;
            draw_layers(&random, costs.layers, stages, layers);
            cr_assert(
                eq(int,
                   run(names[k % 4], &costs, &partition, gpus, microbatches, 0, recompute, &result),
                   RP_OK));
            int64_t same = rpsim_bounds_of_class(&result.bounds, RPSIM_BOUND_CLASS_SAME);
            cr_expect(eq(i64, same, bound < 0 ? same : bound), "it depends on the partition");
            snprintf(text, sizeof text, "case %u, %s", i, names[k % 4]);
            check_terms(&result.bounds, result.metrics.makespan_ps, text);
            bound = same;
            rpsim_result_fini(&result);
        }
    }
}

/* ---- closed forms without loss --------------------------------------------------------------- */

/* A layer per GPU: (M + N - 1)(F + R + B) with hops there and back. GPipe and 1F1B reach it without
 * hops (schedules.md 1), so no partition and no order is better. */
Test(bounds, a_pipeline_of_equal_layers_is_optimal)
{
    for (uint32_t n = 1; n <= 9; n++) {
        for (uint32_t m = n; m <= 3 * n; m++) {
            for (int recompute = 0; recompute < 2; recompute++) {
                rp_costs costs;
                rpsim_result result;
                rp_test_equal_costs(arena, n, 7, 17, &costs);
                rp_recompute mode = recompute ? RP_RECOMPUTE_WAIT : RP_RECOMPUTE_NONE;
                cr_assert(eq(int,
                             rp_test_run_even(rp_schedule_find("1f1b"), &costs, n, m, 1, mode,
                                              arena, &result),
                             RP_OK));
                int64_t closed = (m + n - 1) * (24 + (recompute ? INT64_C(7) : 0));
                cr_expect(eq(i64, result.metrics.makespan_ps, closed));
                cr_expect(eq(i64, result.bounds.ps[RPSIM_BOUND_RAMP], closed), "%u GPUs, m %u", n,
                          m);
                cr_expect(eq(i64, result.bounds.ps[RPSIM_BOUND_OPS], closed));
                rpsim_result_fini(&result);
            }
        }
    }
}

/* Split backwards, F = I = W = 1: the last GPU begins at N - 1 at the earliest and has 3 M to do;
 * ZB-H1 needs 3 M + N - 1 (schedules.md 2). A weight part may come last, so there is no drain. */
Test(bounds, zero_bubble_of_equal_layers_is_optimal)
{
    for (uint32_t n = 2; n <= 8; n++) {
        rp_costs costs;
        rpsim_result result;
        rp_test_equal_costs(arena, n, 1, 2, &costs);
        cr_assert(eq(int,
                     rp_test_run_even(rp_schedule_find("zb-h1"), &costs, n, 2 * n, 1,
                                      RP_RECOMPUTE_NONE, arena, &result),
                     RP_OK));
        cr_expect(eq(i64, result.metrics.makespan_ps, 6 * n + n - 1));
        cr_expect(eq(i64, result.bounds.ps[RPSIM_BOUND_RAMP], 6 * n + n - 1));
        rpsim_result_fini(&result);
    }
}

/* RoundPipe in a round, stages of a layer of time t, as many GPUs as microbatches, N dividing the
 * stages. GPUs are full except for a fill and a drain of a stage per place: (M S / N + N - 1) t
 * with S = 2 L stages, exactly the area with these ramps. */
Test(bounds, roundpipe_of_equal_stages_is_optimal)
{
    for (uint32_t n = 1; n <= 8; n++) {
        uint32_t ones[MAX_LAYERS + 1];
        uint32_t layers = 2 * n;
        rp_costs costs;
        rpsim_result result;
        rp_test_equal_costs(arena, layers, 100, 100, &costs);
        ones[0] = 0; /* the head alone takes a place, but no time */
        for (uint32_t i = 1; i <= layers; i++) {
            ones[i] = 1;
        }
        rp_partition partition = {layers, ones + 1, layers, ones + 1};
        cr_assert(eq(int, run("roundpipe", &costs, &partition, n, n, n, RP_RECOMPUTE_NONE, &result),
                     RP_OK));
        int64_t closed = INT64_C(100) * (2 * layers + n - 1);
        cr_expect(eq(i64, result.metrics.makespan_ps, closed), "%u GPUs", n);
        cr_expect(eq(i64, result.bounds.ps[RPSIM_BOUND_RAMP], closed), "%u GPUs", n);
        rpsim_result_fini(&result);
    }
}

/* On a single GPU: the work. A microbatch without hops: its chain. */
Test(bounds, work_and_chain_are_exact)
{
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        rp_costs costs;
        rpsim_result result;
        rp_test_equal_costs(arena, 6, 5, 11, &costs);
        costs.head_fwd_ps = 3;
        costs.head_bwd_ps = 4;
        cr_assert(eq(
            int,
            rp_test_run_even(rp_schedules[s], &costs, 1, 4, 2, RP_RECOMPUTE_NONE, arena, &result),
            RP_OK));
        cr_expect(eq(i64, result.bounds.ps[RPSIM_BOUND_WORK], result.metrics.makespan_ps));
        rpsim_result_fini(&result);
    }
    static const char *const names[] = {"1f1b", "looped-bfs", "roundpipe"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int recompute = 0; recompute < 2; recompute++) {
            rp_costs costs;
            rpsim_result result;
            rp_test_equal_costs(arena, 6, 5, 11, &costs);
            costs.head_fwd_ps = 3;
            costs.head_bwd_ps = 4;
            rp_recompute mode = recompute ? RP_RECOMPUTE_WAIT : RP_RECOMPUTE_NONE;
            cr_assert(eq(
                int,
                rp_test_run_even(rp_schedule_find(names[i]), &costs, 3, 1, 1, mode, arena, &result),
                RP_OK));
            cr_expect(eq(i64, result.bounds.ps[RPSIM_BOUND_CHAIN], result.metrics.makespan_ps),
                      "%s", names[i]);
            rpsim_result_fini(&result);
        }
    }
}

/* Nine microbatches of a layer on eight GPUs: some GPU runs two of the nine longest ops. */
Test(bounds, pigeons)
{
    rp_costs costs;
    rp_test_equal_costs(arena, 1, 10, 100, &costs);
    rpsim_bound_size size = {&costs, 9};
    rpsim_bound_work work = {.gpus = 8, .sizes = &size, .size_count = 1, .busy_ps = 990};
    rpsim_bounds bounds = {{0}};
    cr_assert(eq(int, rpsim_bounds_of_work(&work, &bounds), RP_OK));
    cr_expect(eq(i64, bounds.ps[RPSIM_BOUND_WORK], 200)); /* the work gives only 124 */
    cr_expect(eq(i64, bounds.ps[RPSIM_BOUND_CHAIN], 110));
    cr_expect(eq(i64, bounds.ps[RPSIM_BOUND_RAMP], 0)); /* rounds are unknown */
}

/* The published case of schedules.md 7: at a single microbatch the makespan of 717.387 ms is below
 * the physical critical path, so bounds must use the published edges. */
Test(bounds, published_edges)
{
    rp_costs *costs = NULL;
    rp_partition partition;
    bool found = false;
    rpsim_result result;
    cr_assert(eq(int, rp_arena_alloc(arena, 1, sizeof *costs, &costs), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, costs), RP_OK));
    cr_assert(eq(int, rp_partition_published("roundpipe", "qwen3-1.7b", arena, &partition, &found),
                 RP_OK));
    cr_assert(found);
    cr_assert(
        eq(int, run("roundpipe", costs, &partition, 8, 1, 8, RP_RECOMPUTE_EARLY, &result), RP_OK));
    cr_expect(le(i64, rpsim_bounds_best(&result.bounds), INT64_C(717387000000)));
    check_terms(&result.bounds, result.metrics.makespan_ps, "one microbatch");
    rpsim_result_fini(&result);
}
