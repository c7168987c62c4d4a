/* The search behind --partition tuned: space and optimum against enumerations without shared code,
 * determinism, and its use in rpsim. */
#include "sim/run/case.h"
#include "sim/tune/tune_internal.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/run_tool.h"
#include "tests/support/synthetic.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Sanitized builds are ten times slower, so only release builds test long searches' results. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LONG_SEARCH 4000u
#else
#define LONG_SEARCH 20000u
#endif

#define SHORT_SEARCH 4000u /* more than a space of 5 layers has */

#define PUBLISHED RP_SOURCE_ROOT "/paper-figures/published/pipeline_bubbles.csv"

TestSuite(tune, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* ---- an instance ----------------------------------------------------------------------------- */

enum { MOST_LAYERS = 16 };

typedef struct instance {
    const rp_schedule_type *schedule;
    rp_costs costs;
    uint32_t forward[MOST_LAYERS];
    uint32_t backward[MOST_LAYERS + 1];
    rpsim_tune_point reference;
    rp_schedule_config config;
    rpsim_tune_input in;
} instance;

static const uint32_t two_rounds[] = {2, 4};
static const rp_round_start two_starts[] = {RP_ROUND_START_FREE_FIRST, RP_ROUND_START_ROTATE};

static rp_status makespan(const void *context, const rp_schedule_config *config, double *ps_out)
{
    const instance *c = context;
    rpsim_result result;
    RP_TRY(rpsim_case_run(c->schedule, config, &result, NULL));
    *ps_out = (double)result.metrics.makespan_ps;
    rpsim_result_fini(&result);
    return RP_OK;
}

/* Random layer times on 3 GPUs, 4 microbatches; the reference has a stage per layer. */
static void make(instance *c, const char *schedule, uint32_t layers, uint64_t seed)
{
    rp_random random = {seed};
    *c = (instance){.schedule = rp_schedule_find(schedule)};
    rp_test_equal_costs(rp_test_tool_arena(), layers, 0, 0, &c->costs);
    for (uint32_t i = 0; i < layers; i++) {
        c->costs.fwd_ps[i] = rp_random_between(&random, 1, 9);
        c->costs.bwd_ps[i] = rp_random_between(&random, 2, 20);
        c->forward[i] = 1;
        c->backward[i + 1] = 1;
    }
    c->costs.head_fwd_ps = rp_random_between(&random, 0, 9);
    c->costs.head_bwd_ps = rp_random_between(&random, 1, 19);
    c->costs.hop_ps = rp_random_between(&random, 0, 3);
    c->reference = (rpsim_tune_point){.partition = {layers, c->forward, layers + 1, c->backward},
                                      .round = two_rounds[0]};
    c->config = (rp_schedule_config){.gpus = 3,
                                     .microbatches = 4,
                                     .iterations = 1,
                                     .recompute = RP_RECOMPUTE_EARLY,
                                     .layers = layers,
                                     .costs = &c->costs};
    c->in = (rpsim_tune_input){.config = &c->config,
                               .separate_backward = true,
                               .references = &c->reference,
                               .reference_count = 1,
                               .max_forward = 3,
                               .max_backward = 2,
                               .max_fused = 2,
                               .rounds = two_rounds,
                               .round_count = 2,
                               .starts = two_starts,
                               .start_count = 2,
                               .objective = makespan,
                               .context = c,
                               .budget = UINT32_MAX,
                               .seed = seed};
}

/* A pipeline of 3 or 6 stages, any layers per stage. */
static void make_pipeline(instance *c, uint32_t layers, uint64_t seed)
{
    static const uint32_t counts[] = {3, 6};
    make(c, "looped-bfs", layers, seed);
    memset(c->forward, 0, sizeof c->forward);
    c->forward[0] = layers;
    c->reference.partition = (rp_partition){3, c->forward, 0, NULL};
    c->in.separate_backward = false;
    c->in.stage_counts = counts;
    c->in.stage_count_count = 2;
    c->in.round_count = 1;
    c->in.start_count = 1;
}

/* ---- the same spaces, enumerated ------------------------------------------------------------- */

/* A bit pattern stands for a composition of `layers`: a set bit ends a part. */
static bool composition(uint32_t bits, uint32_t layers, uint32_t most, uint32_t *parts,
                        uint32_t *count)
{
    uint32_t part = 0;
    *count = 0;
    for (uint32_t i = 0; i < layers; i++) {
        part++;
        if (i + 1 == layers || (bits >> i & 1) != 0) {
            if (part > most) {
                return false;
            }
            parts[(*count)++] = part;
            part = 0;
        }
    }
    return true;
}

static uint32_t patterns(uint32_t layers)
{
    return layers == 0 ? 1 : UINT32_C(1) << (layers - 1);
}

typedef struct slow_best {
    uint64_t points;
    double best_ps;
} slow_best;

static void slow_point(const instance *c, const rp_partition *p, slow_best *best)
{
    for (uint32_t r = 0; r < c->in.round_count; r++) {
        for (uint32_t k = 0; k < c->in.start_count; k++) {
            rp_schedule_config config = c->config;
            double ps = NAN;
            config.partition = p;
            config.round = c->in.rounds[r];
            config.round_start = c->in.starts[k];
            cr_assert(eq(int, makespan(c, &config, &ps), RP_OK));
            best->points++;
            best->best_ps = fmin(best->best_ps, ps);
        }
    }
}

static slow_best slow_separate(const instance *c)
{
    slow_best best = {.best_ps = INFINITY};
    uint32_t layers = c->config.layers;
    uint32_t forward[MOST_LAYERS + 1];
    uint32_t backward[MOST_LAYERS + 1];
    rp_partition p = {.forward_layers = forward, .backward_layers = backward};
    for (uint32_t fused = 0; fused < 2; fused++) {
        uint32_t most = fused != 0 ? c->in.max_fused : c->in.max_backward;
        for (uint32_t head = fused; head <= most; head++) {
            uint32_t run = fused != 0 ? layers - head : layers;
            for (uint32_t f = 0; f < patterns(run); f++) {
                for (uint32_t b = 0; b < patterns(layers - head); b++) {
                    if (composition(f, run, c->in.max_forward, forward, &p.forward_count) &&
                        composition(b, layers - head, c->in.max_backward, backward + 1,
                                    &p.backward_count)) {
                        backward[0] = head;
                        p.backward_count++;
                        slow_point(c, &p, &best);
                    }
                }
            }
        }
    }
    return best;
}

static slow_best slow_pipeline(const instance *c)
{
    slow_best best = {.best_ps = INFINITY};
    for (uint32_t i = 0; i < c->in.stage_count_count; i++) {
        uint32_t layers[MOST_LAYERS] = {0};
        uint32_t stages = c->in.stage_counts[i];
        rp_partition p = {stages, layers, 0, NULL};
        for (bool more = true; more;) { /* counts through all digits 0 .. layers */
            uint32_t sum = 0;
            for (uint32_t s = 0; s < stages; s++) {
                sum += layers[s];
            }
            if (sum == c->config.layers) {
                slow_point(c, &p, &best);
            }
            uint32_t digit = 0;
            while (digit < stages && layers[digit] == c->config.layers) {
                layers[digit++] = 0;
            }
            more = digit < stages;
            layers[more ? digit : 0] += more ? 1 : 0;
        }
    }
    return best;
}

static rpsim_tune_result tune(const instance *c)
{
    rpsim_tune_result result;
    cr_assert(eq(int, rpsim_tune(&c->in, rp_test_tool_arena(), &result), RP_OK));
    return result;
}

static void check_exact(const instance *c, slow_best slow)
{
    rpsim_tune_result result = tune(c);
    cr_expect(result.exact);
    cr_expect(eq(u64, rpsim_tune_space(&c->in), slow.points));
    cr_expect(eq(u64, result.evaluations, slow.points + 1));
    cr_expect(eq(dbl, result.objective_ps, slow.best_ps));
}

Test(tune, small_spaces_are_searched_exactly)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        instance c;
        make(&c, "roundpipe", 6, seed);
        check_exact(&c, slow_separate(&c));
        make(&c, "roundpipe-overlap", 5, seed);
        check_exact(&c, slow_separate(&c));
        make_pipeline(&c, 5, seed);
        check_exact(&c, slow_pipeline(&c));
    }
}

/* ---- the metaheuristic ----------------------------------------------------------------------- */

static bool same(const rpsim_tune_result *a, const rpsim_tune_result *b)
{
    const rp_partition *p = &a->point.partition;
    const rp_partition *q = &b->point.partition;
    return a->objective_ps == b->objective_ps && a->evaluations == b->evaluations &&
           a->point.round == b->point.round && a->point.round_start == b->point.round_start &&
           p->forward_count == q->forward_count && p->backward_count == q->backward_count &&
           memcmp(p->forward_layers, q->forward_layers, p->forward_count * sizeof(uint32_t)) == 0 &&
           memcmp(p->backward_layers, q->backward_layers, p->backward_count * sizeof(uint32_t)) ==
               0;
}

Test(tune, a_third_of_the_space_suffices_to_find_the_optimum)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        instance c;
        make(&c, "roundpipe", 6, seed);
        double best_ps = tune(&c).objective_ps;
        c.in.budget = (uint32_t)(rpsim_tune_space(&c.in) / 3);
        rpsim_tune_result result = tune(&c);
        cr_expect(not(result.exact));
        cr_expect(le(u64, result.evaluations, c.in.budget + 1));
        cr_expect(eq(dbl, result.objective_ps, best_ps), "seed %llu", (unsigned long long)seed);
    }
}

Test(tune, the_point_has_the_objective_it_is_said_to_have)
{
    for (uint32_t budget = 0; budget <= 4000; budget += 1000) {
        instance c;
        make(&c, "roundpipe", 12, budget);
        c.in.budget = budget;
        rpsim_tune_result result = tune(&c);
        rp_schedule_config config = c.config;
        config.partition = &result.point.partition;
        config.round = result.point.round;
        config.round_start = result.point.round_start;
        double ps = NAN;
        cr_assert(eq(int, makespan(&c, &config, &ps), RP_OK));
        cr_expect(eq(dbl, ps, result.objective_ps));
    }
}

/* Enumerated, with a budget beyond the space, and searched: plainly not as long, with fewer
 * numbers of threads. */
Test(tune, threads_do_not_matter)
{
    static const uint32_t layers[] = {5, 12};
    bool full = getenv("RP_LONG") != NULL;
    for (size_t i = 0; i < 2; i++) {
        instance c;
        make(&c, "roundpipe", layers[i], 9);
        c.in.budget = full ? LONG_SEARCH : SHORT_SEARCH;
        c.in.threads = 1;
        rpsim_tune_result one = tune(&c);
        cr_expect(one.exact == (i == 0));
        for (uint32_t threads = 2; threads <= 7; threads += full ? 1 : 5) {
            c.in.threads = threads;
            rpsim_tune_result many = tune(&c);
            cr_expect(same(&one, &many), "%u threads", threads);
        }
        c.in.threads = 0;
        rpsim_tune_result all = tune(&c);
        cr_expect(same(&one, &all));
    }
}

Test(tune, never_worse_than_a_reference_outside_the_space)
{
    instance c;
    make(&c, "roundpipe", 6, 3);
    c.forward[0] = 6; /* larger than max_forward */
    c.reference.partition.forward_count = 1;
    double reference_ps = NAN;
    rp_schedule_config config = c.config;
    config.partition = &c.reference.partition;
    config.round = c.reference.round;
    cr_assert(eq(int, makespan(&c, &config, &reference_ps), RP_OK));
    for (uint32_t budget = 0; budget < 40; budget++) {
        c.in.budget = budget;
        cr_expect(le(dbl, tune(&c).objective_ps, reference_ps));
    }
}

static rp_status refuse_tenth(const void *context, const rp_schedule_config *config, double *ps_out)
{
    (void)config;
    *ps_out = 1;
    uint32_t before = atomic_fetch_add((_Atomic uint32_t *)context, 1);
    if (before > 9) { /* time to see the other thread's failure */
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return before == 9 ? RP_NO_MEMORY : RP_OK;
}

Test(tune, a_failing_objective_ends_the_search)
{
    static const uint32_t budgets[] = {20000, UINT32_MAX}; /* a tenth is ample */
    for (size_t i = 0; i < 2; i++) {
        instance c;
        rpsim_tune_result result;
        static _Atomic uint32_t calls;
        atomic_store(&calls, 0);
        make(&c, "roundpipe", 6, 1);
        c.in.budget = budgets[i];
        c.in.objective = refuse_tenth;
        c.in.context = (const void *)&calls;
        cr_expect(eq(int, rpsim_tune(&c.in, rp_test_tool_arena(), &result), RP_NO_MEMORY));
        cr_expect(lt(u32, atomic_load(&calls), 2000));
    }
}

/* Every move stays in the space or fails, and reaches every point: a random walk meets all of a
 * small space. */
Test(tune, moves_stay_in_the_space_and_reach_all_of_it)
{
    instance c;
    make(&c, "roundpipe", 5, 1);
    uint32_t seen[4096] = {0};
    uint32_t count = 0;
    rpsim_tune_random random = rpsim_tune_random_make(1, 0);
    rpsim_tune_candidate at;
    rpsim_tune_candidate trial;
    cr_assert(eq(int, rpsim_tune_candidate_init(&c.in, rp_test_tool_arena(), &at), RP_OK));
    cr_assert(eq(int, rpsim_tune_candidate_init(&c.in, rp_test_tool_arena(), &trial), RP_OK));
    rpsim_tune_candidate from = {c.reference.partition, 0, 0};
    rpsim_tune_candidate_copy(&from, &at);
    for (uint32_t step = 0; step < 200000; step++) {
        rpsim_tune_candidate_copy(&at, &trial);
        if (!rpsim_tune_move(&c.in, &random, &trial)) {
            continue;
        }
        rpsim_tune_candidate_copy(&trial, &at);
        cr_assert(rpsim_tune_holds(&c.in, &at.partition));
        uint32_t hash = 5 * (at.round * 2 + at.start) + 4; /* base 5; 4 ends a list */
        for (uint32_t i = 0; i < at.partition.forward_count; i++) {
            hash = hash * 5 + at.partition.forward_layers[i];
        }
        hash = hash * 5 + 4;
        for (uint32_t i = 0; i < at.partition.backward_count; i++) {
            hash = hash * 5 + at.partition.backward_layers[i];
        }
        uint32_t k = 0;
        while (k < count && seen[k] != hash) {
            k++;
        }
        cr_assert(lt(u32, k, 4096));
        seen[k] = hash;
        count += k == count ? 1 : 0;
    }
    cr_expect(eq(u64, count, slow_separate(&c).points));
}

/* ---- rpsim ----------------------------------------------------------------------------------- */

static double number_of(const char *line, const char *key)
{
    json_t *rows = rp_test_rpsim_json(line);
    double value = rp_test_json_number(json_array_get(rows, 0), key);
    json_decref(rows);
    return value;
}

static const char *command(const char *schedule, const char *partition, const char *rest)
{
    static char line[256];
    snprintf(line, sizeof line, "--schedule %s --partition %s %s", schedule, partition, rest);
    return line;
}

static void check_not_worse(const char *schedule, const char *rest, const char *key)
{
    static const char *const others[] = {"auto", "even"};
    char tuned_rest[200];
    snprintf(tuned_rest, sizeof tuned_rest, "--tune-budget 300 %s", rest);
    double tuned = number_of(command(schedule, "tuned", tuned_rest), key);
    for (size_t i = 0; i < 2; i++) {
        double other = number_of(command(schedule, others[i], rest), key);
        cr_expect(le(dbl, tuned, other), "%s %s %s", schedule, others[i], rest);
    }
}

/* A plain run has a third of the schedules. */
Test(tune, every_schedule_is_at_least_as_good_as_without)
{
    bool all = getenv("RP_LONG") != NULL;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *schedule = rp_schedules[i];
        if (rp_is_data_parallel(&schedule->traits) || (!all && i % 3 != 0)) {
            continue;
        }
        const char *recompute = schedule->splits_backward ? "--recompute none" : "";
        char rest[100];
        snprintf(rest, sizeof rest, "--gpus 4 --microbatches 16 %s", recompute);
        check_not_worse(schedule->name, rest, "makespan_ms");
        snprintf(rest, sizeof rest, "--gpus 4 --microbatches 8 --optimizer async %s", recompute);
        check_not_worse(schedule->name, rest, "iteration_ms");
    }
}

/* RoundPipe's published makespans at 8 GPUs, 16 microbatches; the bound is all the work, spread
 * evenly. A plain run has the fourth of five models. */
Test(tune, roundpipe_gets_below_the_published_makespans)
{
    rp_csv published = rp_test_tool_table(PUBLISHED, rp_test_tool_read(PUBLISHED), ',');
    uint32_t models = 0;
    for (uint32_t i = 0; i < published.rows; i++) {
        if (strcmp(rp_test_tool_cell(&published, i, "schedule"), "roundpipe") != 0) {
            continue;
        }
        if (models++ != 3 && getenv("RP_LONG") == NULL) {
            continue;
        }
        const char *model = rp_test_tool_cell(&published, i, "model");
        double published_ms = strtod(rp_test_tool_cell(&published, i, "makespan_ms"), NULL);
        double bubble_pct = strtod(rp_test_tool_cell(&published, i, "bubble_pct"), NULL);
        char rest[100];
        snprintf(rest, sizeof rest, "--tune-budget %u --model %s", LONG_SEARCH, model);
        double tuned_ms = number_of(command("roundpipe", "tuned", rest), "makespan_ms");
        cr_expect(lt(dbl, tuned_ms, published_ms), "%s", model);
        double own_ms = number_of(command("roundpipe-overlap", "tuned", rest), "makespan_ms");
        double closed = (published_ms - own_ms) / (published_ms * bubble_pct / 100);
        cr_expect(gt(dbl, closed, 1.0 / 3), "%s: %g of the gap", model, closed);
    }
    cr_expect(eq(u32, models, 5));
}

Test(tune, the_seed_decides)
{
    const char *line = "--schedule roundpipe --partition tuned --tune-budget 500 --seed 3 "
                       "--fidelity stage --format csv";
    rp_csv first = rp_test_tool_table("first", rp_test_rpsim_well(line).output, ',');
    rp_csv second = rp_test_tool_table("second", rp_test_rpsim_well(line).output, ',');
    cr_expect(eq(str, (char *)rp_test_tool_cell(&first, 0, "partition"),
                 (char *)rp_test_tool_cell(&second, 0, "partition")));
    cr_expect(eq(str, (char *)rp_test_tool_cell(&first, 0, "seed"), "3"));
}

Test(tune, the_table_says_what_was_found)
{
    rp_test_outcome run = rp_test_rpsim_well("--schedule 1f1b --gpus 2 --fidelity stage "
                                             "--partition tuned --tune-budget 29");
    cr_expect(ne(ptr, (void *)strstr(run.output, "1f1b tuned: "), NULL));
    cr_expect(ne(ptr, (void *)strstr(run.output, "; optimal, the best of 32 simulations"), NULL),
              "29 ways to cut 28 layers in two, and three references: %s", run.output);
    run = rp_test_rpsim_well("--schedule 1f1b --gpus 2 --fidelity stage --partition even");
    cr_expect(eq(ptr, (void *)strstr(run.output, "tuned"), NULL));
}

Test(tune, what_options_fix_stays)
{
    json_t *rows =
        rp_test_rpsim_json("--schedule roundpipe --partition tuned --round 11 --tune-budget 100");
    cr_expect(eq(dbl, rp_test_json_number(json_array_get(rows, 0), "round"), 11));
    json_decref(rows);
}

Test(tune, works_at_hardware_fidelity)
{
    static const char *const names[] = {"roundpipe", "roundpipe-overlap", "1f1b"};
    for (size_t i = 0; i < 3; i++) {
        double best = INFINITY;
        double tuned = NAN;
        static const char *const partitions[] = {"even", "auto", "tuned --tune-budget 20"};
        for (size_t k = 0; k < 3; k++) {
            char line[200];
            snprintf(line, sizeof line,
                     "--schedule %s --iterations 16 --gpus 4 --microbatches 8 --format csv "
                     "--partition %s",
                     names[i], partitions[k]);
            rp_csv table = rp_test_tool_table("run", rp_test_rpsim_well(line).output, ',');
            tuned = strtod(rp_test_tool_cell(&table, 0, "iteration_ms"), NULL);
            best = k < 2 ? fmin(best, tuned) : best;
        }
        cr_expect(le(dbl, tuned, best), "%s", names[i]);
    }
}
