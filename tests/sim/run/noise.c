/* Monte Carlo over compute times: the factors' distribution, closed forms, seeds and threads. Every
 * statistical bound is five standard errors wide. */
#include "sim/run/noise.h"
#include "common/schedule/build.h"
#include "sim/study/replicas.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(noise, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* A GPU, a stage, no recompute: 2 * microbatches compute ops in a row. */
typedef struct chain {
    uint32_t layers;
    rp_partition partition;
    int64_t fwd_ps;
    int64_t bwd_ps;
    rp_costs costs;
    rp_schedule_config config;
} chain;

static void make_chain(chain *c, uint32_t microbatches, int64_t fwd_ps, int64_t bwd_ps)
{
    *c = (chain){.layers = 1, .fwd_ps = fwd_ps, .bwd_ps = bwd_ps};
    c->partition = (rp_partition){.forward_count = 1, .forward_layers = &c->layers};
    c->costs = (rp_costs){.name = "test",
                          .layers = 1,
                          .fwd_ps = &c->fwd_ps,
                          .bwd_ps = &c->bwd_ps,
                          .bwd_input_ps = &c->bwd_ps,
                          .microbatch_size = 1,
                          .seq_len = 1};
    c->config = (rp_schedule_config){.gpus = 1,
                                     .microbatches = microbatches,
                                     .iterations = 1,
                                     .recompute = RP_RECOMPUTE_NONE,
                                     .layers = 1,
                                     .partition = &c->partition,
                                     .costs = &c->costs};
}

static void replicate(const rp_schedule_config *config, const char *schedule,
                      const rpsim_noise *noise, double *ps)
{
    rp_status status = rpsim_case_replicate(rp_schedule_find(schedule), config, noise, ps);
    cr_assert(eq(int, status, RP_OK));
}

static double mean_of(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum / (double)count;
}

static double moment_of(const double *values, size_t count, int order)
{
    double mean = mean_of(values, count);
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double d = values[i] - mean;
        sum += order == 2 ? d * d : d * d * d * d;
    }
    return sum / (double)count;
}

/* Mean and variance, each within five standard errors; the variance's comes from the fourth moment.
 */
static void check_moments(const double *values, size_t count, double mean, double variance)
{
    double m2 = moment_of(values, count, 2);
    double m4 = moment_of(values, count, 4);
    double mean_error = sqrt(variance / (double)count);
    double variance_error = sqrt((m4 - m2 * m2) / (double)count);
    cr_expect(le(dbl, fabs(mean_of(values, count) - mean), 5 * mean_error), "%g for %g",
              mean_of(values, count), mean);
    cr_expect(le(dbl, fabs(m2 - variance), 5 * variance_error), "variance %g for %g", m2, variance);
}

/* exp(sigma Z - sigma^2 / 2) has mean 1 and variance exp(sigma^2) - 1 = CV^2. */
Test(noise, factors_have_the_mean_and_the_variance_asked_for)
{
    static const double cvs[] = {0.01, 0.1, 0.5, 1.0};
    chain c;
    make_chain(&c, 100000, 1000, 2000);
    rp_program *program = NULL;
    cr_assert(
        eq(int, rp_schedule_build(rp_schedule_find("gpipe"), &c.config, &program, NULL), RP_OK));
    double *factors = malloc(program->op_count * sizeof *factors);
    for (size_t i = 0; i < sizeof cvs / sizeof cvs[0]; i++) {
        rpsim_noise noise = {.cv = cvs[i], .replicas = 1, .seed = 7};
        cr_assert(eq(int, rpsim_noise_draw(&noise, 0, program, factors), RP_OK));
        uint32_t computes = 0; /* first: the program's only compute queue */
        while (computes < program->op_count &&
               rp_op_kind_class((rp_op_kind)program->ops[computes].kind) == RP_CLASS_COMPUTE) {
            computes++;
        }
        cr_assert(eq(u32, computes, 200000));
        check_moments(factors, computes, 1, cvs[i] * cvs[i]);
        for (uint32_t k = computes; k < program->op_count; k++) {
            cr_expect(eq(dbl, factors[k], 1.0));
        }
    }
    free(factors);
    rp_program_destroy(program);
}

/* A chain's time is the sum of its ops: means and variances, (CV t)^2, add. */
Test(noise, chain_of_equal_ops)
{
    enum { REPLICAS = 4000, MICROBATCHES = 50 };
    double *ps = malloc(REPLICAS * sizeof *ps);
    chain c;
    make_chain(&c, MICROBATCHES, 3000000, 3000000);
    double ops = 2.0 * MICROBATCHES;
    for (int i = 1; i <= 3; i++) {
        double cv = 0.1 * i;
        rpsim_noise noise = {.cv = cv, .replicas = REPLICAS, .seed = (uint64_t)i};
        replicate(&c.config, "gpipe", &noise, ps);
        check_moments(ps, REPLICAS, ops * 3e6, ops * cv * cv * 9e12);
    }
    free(ps);
}

/* With a CV of 0 every replica of any configuration equals the run without noise, to the
 * picosecond. */
Test(noise, none_is_the_run_itself)
{
    rp_random random = {2027};
    rp_random_case *c = malloc(sizeof *c);
    for (uint32_t i = 0; i < 150; i++) {
        rp_random_case_draw(&random, 400, c);
        c->config.iterations = i % 3 == 0 ? 17 : 1 + i % 2;
        c->config.asynchronous = i % 2 == 0;
        rpsim_result result;
        cr_assert(eq(int, rpsim_case_run(c->schedule, &c->config, &result, NULL), RP_OK));
        double expected =
            isnan(result.period_ps) ? (double)result.metrics.makespan_ps : result.period_ps;
        rpsim_noise noise = {.cv = 0, .replicas = 3, .seed = i};
        double ps[3];
        cr_assert(eq(int, rpsim_case_replicate(c->schedule, &c->config, &noise, ps), RP_OK));
        for (int k = 0; k < 3; k++) {
            cr_assert(eq(dbl, ps[k], expected), "case %u", i);
        }
        rpsim_result_fini(&result);
    }
    free(c);
}

Test(noise, seeds_and_threads)
{
    enum { REPLICAS = 64 };
    static const uint32_t threads[] = {2, 7, 0, 1};
    double first[REPLICAS];
    double other[REPLICAS];
    rp_random random = {11};
    rp_random_case *c = malloc(sizeof *c);
    do {
        rp_random_case_draw(&random, 2000, c);
    } while (c->empty_units || c->config.microbatches < 8);
    c->config.iterations = 1;
    rpsim_noise noise = {.cv = 0.2, .replicas = REPLICAS, .seed = 42, .threads = 1};
    replicate(&c->config, c->schedule->name, &noise, first);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        noise.threads = threads[i];
        replicate(&c->config, c->schedule->name, &noise, other);
        cr_expect(eq(int, memcmp(first, other, sizeof first), 0), "%u threads", threads[i]);
    }
    /* Fewer replicas are a prefix of more. */
    noise.replicas = 5;
    replicate(&c->config, c->schedule->name, &noise, other);
    cr_expect(eq(int, memcmp(first, other, 5 * sizeof first[0]), 0));
    noise.replicas = REPLICAS;
    static const uint64_t seeds[] = {0, 1, 43, UINT64_C(42) + (UINT64_C(1) << 32)};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        noise.seed = seeds[i];
        replicate(&c->config, c->schedule->name, &noise, other);
        cr_expect(ne(int, memcmp(first, other, sizeof first), 0), "seed %zu", i);
    }
    for (int i = 0; i < REPLICAS; i++) { /* all replicas differ */
        for (int k = 0; k < i; k++) {
            cr_expect(ne(dbl, first[i], first[k]));
        }
    }
    free(c);
}

/* Order statistics of a short list, by hand: position (n - 1) q. */
Test(noise, quantiles_and_beats)
{
    static const double values[] = {5, 1, 3, 2, 4};
    rpsim_quantiles q;
    cr_assert(eq(int, rpsim_noise_quantiles(values, 5, &q), RP_OK));
    cr_expect(epsilon_eq(dbl, q.p05, 1.2, 1e-12));
    cr_expect(epsilon_eq(dbl, q.median, 3.0, 1e-12));
    cr_expect(epsilon_eq(dbl, q.p95, 4.8, 1e-12));
    cr_assert(eq(int, rpsim_noise_quantiles(values, 1, &q), RP_OK));
    cr_expect(q.p05 == 5 && q.median == 5 && q.p95 == 5);
    static const double others[] = {6, 1, 2, 2, 5}; /* loses, ties, wins, ties, loses */
    cr_expect(eq(dbl, rpsim_noise_beats(values, 1, values, 1, 5), 0.5));
    cr_expect(eq(dbl, rpsim_noise_beats(values, 1, others, 1, 5), 0.6));
    cr_expect(eq(dbl, rpsim_noise_beats(others, 1, values, 1, 5), 0.4));
    /* Half the work in the same time is slower, unless the other takes more than twice as long. */
    cr_expect(eq(dbl, rpsim_noise_beats(values, 1, values, 2, 5), 0.0));
    cr_expect(eq(dbl, rpsim_noise_beats(values, 3, others, 1, 5), 1.0));
}

Test(noise, spread_grows_with_the_cv)
{
    enum { REPLICAS = 400 };
    double ps[REPLICAS];
    double before = -1;
    chain c;
    make_chain(&c, 16, 5000000, 9000000);
    static const double cvs[] = {0, 0.02, 0.1, 0.4, 1, 2};
    for (size_t i = 0; i < sizeof cvs / sizeof cvs[0]; i++) {
        rpsim_noise noise = {.cv = cvs[i], .replicas = REPLICAS, .seed = 5};
        rpsim_quantiles q;
        replicate(&c.config, "1f1b", &noise, ps);
        cr_assert(eq(int, rpsim_noise_quantiles(ps, REPLICAS, &q), RP_OK));
        cr_expect(q.p05 <= q.median && q.median <= q.p95);
        cr_expect(gt(dbl, q.p95 - q.p05, before), "CV %g", cvs[i]);
        before = q.p95 - q.p05;
    }
}

static json_t *run(const char *line)
{
    return rp_test_rpsim_rows("", line);
}

/* Both fidelities, every schedule: CV 0 has no spread, and gives the period. */
Test(noise, command_line_without_spread)
{
    static const char *const fidelities[] = {"stage", "hardware --intervals off"};
    for (size_t f = 0; f < 2; f++) {
        char line[256];
        snprintf(line, sizeof line,
                 "--fidelity %s --schedule all --gpus 4 --microbatches 8 --jitter 0 --replicas 2 "
                 "--format json",
                 fidelities[f]);
        json_t *rows = run(line);
        size_t count = json_array_size(rows);
        cr_assert(ge(sz, count, 8));
        for (size_t i = 0; i < count; i++) {
            const json_t *row = json_array_get(rows, i);
            double period = rp_test_json_number(row, "iteration_ms");
            static const char *const keys[] = {"iteration_p05_ms", "iteration_median_ms",
                                               "iteration_p95_ms"};
            for (size_t k = 0; k < 3; k++) {
                /* Interpolating between equal values rounds. */
                cr_expect(epsilon_eq(dbl, rp_test_json_number(row, keys[k]), period, 1e-9),
                          "row %zu", i);
            }
            cr_expect(eq(dbl, rp_test_json_number(row, "replicas"), 2.0));
        }
        json_decref(rows);
    }
}

/* P equal stages, no hops: only a slow GPU's M ops in a row do not overlap, so GPipe takes (M f + P
 * - 1)(F + B) wherever the slow GPU is. Other factors stay. */
Test(noise, slow_gpu_in_a_pipeline_of_equal_stages)
{
    enum { GPUS = 5, MICROBATCHES = 7, LAYERS = 5 };
    uint32_t layers[GPUS] = {1, 1, 1, 1, 1};
    int64_t fwd_ps[LAYERS] = {4000, 4000, 4000, 4000, 4000};
    int64_t bwd_ps[LAYERS] = {9000, 9000, 9000, 9000, 9000};
    rp_partition partition = {.forward_count = GPUS, .forward_layers = layers};
    chain c;
    make_chain(&c, MICROBATCHES, 0, 0);
    c.costs.layers = LAYERS;
    c.costs.fwd_ps = fwd_ps;
    c.costs.bwd_ps = c.costs.bwd_input_ps = bwd_ps;
    c.config.gpus = GPUS;
    c.config.layers = LAYERS;
    c.config.partition = &partition;
    static const double slow[] = {1, 1.25, 3};
    for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
        for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++) {
            rpsim_noise noise = {.replicas = 1, .slow_gpu = gpu, .slow_factor = slow[i]};
            double ps = 0;
            replicate(&c.config, "gpipe", &noise, &ps);
            cr_expect(eq(dbl, ps, (MICROBATCHES * slow[i] + GPUS - 1) * 13000));
        }
    }
}

Test(noise, slow_gpu_leaves_the_other_draws)
{
    enum { SLOW = 2 };
    uint32_t layers[3] = {1, 1, 1};
    int64_t ps[3] = {4000, 4000, 4000};
    rp_partition partition = {.forward_count = 3, .forward_layers = layers};
    chain c;
    make_chain(&c, 6, 0, 0);
    c.costs.layers = c.config.layers = c.config.gpus = 3;
    c.costs.fwd_ps = c.costs.bwd_ps = c.costs.bwd_input_ps = ps;
    c.config.partition = &partition;
    rp_program *program = NULL;
    cr_assert(
        eq(int, rp_schedule_build(rp_schedule_find("1f1b"), &c.config, &program, NULL), RP_OK));
    double *even = malloc(program->op_count * sizeof *even);
    double *uneven = malloc(program->op_count * sizeof *uneven);
    rpsim_noise noise = {.cv = 0.3, .replicas = 1, .seed = 11};
    cr_assert(eq(int, rpsim_noise_draw(&noise, 0, program, even), RP_OK));
    noise.slow_gpu = SLOW;
    noise.slow_factor = 1.5;
    cr_assert(eq(int, rpsim_noise_draw(&noise, 0, program, uneven), RP_OK));
    uint32_t slower = 0;
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            bool compute = rp_op_kind_class((rp_op_kind)program->ops[i].kind) == RP_CLASS_COMPUTE;
            bool hit = compute && queue->gpu == SLOW;
            slower += hit ? 1 : 0;
            cr_expect(eq(dbl, uneven[i], hit ? even[i] * 1.5 : even[i]));
        }
    }
    cr_expect(eq(u32, slower, 12)); /* six forwards, six backwards */
    free(uneven);
    free(even);
    rp_program_destroy(program);
}

Test(noise, command_line_with_a_slow_gpu)
{
    json_t *rows = run("--fidelity hardware --schedule 1f1b,roundpipe --gpus 2 --jitter 0 "
                       "--replicas 1 --slow-gpu 1*2 --format json");
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        cr_expect(eq(dbl, rp_test_json_number(row, "slow_gpu"), 1.0));
        cr_expect(eq(dbl, rp_test_json_number(row, "slow_factor"), 2.0));
        cr_expect(gt(dbl, rp_test_json_number(row, "iteration_median_ms"),
                     rp_test_json_number(row, "iteration_ms")));
    }
    json_decref(rows);
}

/* Matrix of `beats`: a pair's probabilities sum to 1, no schedule is compared with itself, the
 * default is 100 replicas. */
Test(noise, command_line_matrix)
{
    json_t *rows =
        run("--fidelity stage --schedule all --gpus 4 --jitter 0.3 --seed 9 --format json");
    size_t count = json_array_size(rows);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *beats = json_object_get(row, "beats");
        cr_assert(eq(sz, json_object_size(beats), count - 1));
        cr_expect(eq(dbl, rp_test_json_number(row, "replicas"), 100.0));
        cr_expect(eq(dbl, rp_test_json_number(row, "jitter_cv"), 0.3));
        for (size_t k = 0; k < count; k++) {
            char mine[24];
            char others[24];
            snprintf(mine, sizeof mine, "%zu", i);
            snprintf(others, sizeof others, "%zu", k);
            if (k != i) {
                const json_t *back = json_object_get(json_array_get(rows, k), "beats");
                double sum = rp_test_json_number(beats, others) + rp_test_json_number(back, mine);
                cr_expect(epsilon_eq(dbl, sum, 1.0, 1e-12));
            }
        }
    }
    json_decref(rows);
}

Test(noise, command_line_refusals)
{
    static const struct {
        const char *line;
        const char *message;
    } bad[] = {
        {"--schedule 1f1b --jitter 2.1", "valid values are numbers from 0 to 2"},
        {"--schedule 1f1b --jitter -0.1", "valid values are numbers from 0 to 2"},
        {"--schedule 1f1b --jitter nan", "valid values are numbers from 0 to 2"},
        {"--schedule 1f1b --jitter 0.1 --replicas 0", "integers from 1 to 100000"},
        {"--schedule 1f1b --jitter 0.1 --replicas 100001", "integers from 1 to 100000"},
        {"--schedule 1f1b --replicas 10", "valid only with --jitter"},
        {"--schedule 1f1b --slow-gpu 0*2", "valid only with --jitter"},
        {"--schedule 1f1b --jitter 0 --slow-gpu 2", "valid values are N*FACTOR"},
        {"--schedule 1f1b --jitter 0 --slow-gpu *2", "valid values are N*FACTOR"},
        {"--schedule 1f1b --jitter 0 --slow-gpu 0*0.9", "FACTOR from 1 to 100"},
        {"--schedule 1f1b --jitter 0 --slow-gpu 0*101", "FACTOR from 1 to 100"},
        {"--schedule 1f1b --jitter 0 --slow-gpu 12345678901234567890*2", "N*FACTOR"},
        {"--schedule 1f1b --jitter 0 --slow-gpu 8*2", "valid are GPUs 0 to 7"},
        {"--schedule 1f1b --jitter 0.1 --fidelity stage --format kv",
         "valid with --jitter are table, json, csv"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim(bad[i].line);
        cr_expect(eq(int, outcome.status, 2), "%s", bad[i].line);
        cr_expect(ne(ptr, strstr(outcome.messages, bad[i].message), NULL), "%s: %s", bad[i].line,
                  outcome.messages);
    }
}
