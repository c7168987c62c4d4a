/* The engine against the independent slow reference (tests/reference/), which shares no code with
 * it, on random configurations: every metric is equal to the picosecond. */
#include "common/base/log.h"
#include "common/schedule/build.h"
#include "sim/run/case.h"
#include "tests/support/assertions.h"
#include "tests/support/random_case.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Sanitized builds are ten times slower; the acceptance's 10,000 run in the release build. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONFIGURATIONS (getenv("RP_LONG") != NULL ? 1500u : 600u)
#else
#define CONFIGURATIONS 12000u
#endif

/* Counts awkward cases; a test that never meets them proves little. */
typedef struct coverage {
    uint32_t no_ops;
    uint32_t no_forwards;
    uint32_t no_backwards;
    uint32_t many_gpus;
    uint32_t many_microbatches;
    uint32_t empty_stages;
    uint32_t fused;
    uint32_t iterations;
} coverage;

static void cover_gpus(const rp_program *program, coverage *covered)
{
    bool no_ops = false;
    bool no_forwards = false;
    bool no_backwards = false;
    for (uint32_t gpu = 0; gpu < program->gpu_count; gpu++) {
        const rp_queue *queue = &program->queues[gpu];
        uint32_t forwards = 0;
        uint32_t backwards = 0;
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            forwards += program->ops[i].kind == RP_OP_FORWARD ? 1 : 0;
            backwards += program->ops[i].kind == RP_OP_BACKWARD ? 1 : 0;
        }
        no_ops = no_ops || queue->op_end == queue->op_begin;
        no_forwards = no_forwards || (forwards == 0 && backwards > 0);
        no_backwards = no_backwards || (forwards > 0 && backwards == 0);
    }
    covered->no_ops += no_ops ? 1 : 0;
    covered->no_forwards += no_forwards ? 1 : 0;
    covered->no_backwards += no_backwards ? 1 : 0;
}

static void cover(const rp_random_case *c, const rp_program *program, coverage *covered)
{
    cover_gpus(program, covered);
    covered->many_gpus += c->config.gpus > 48 ? 1 : 0;
    covered->many_microbatches += c->config.microbatches > 384 ? 1 : 0;
    covered->empty_stages += c->empty_units ? 1 : 0;
    covered->fused += c->partition.backward_count != 0 && c->backward[0] != 0 ? 1 : 0;
    covered->iterations += c->config.iterations > 1 ? 1 : 0;
}

/* Runs all iterations of the program, like the reference. */
static void run_engine(const rp_random_case *c, const char *text, rp_program **program_out,
                       rp_timeline **timeline_out, rp_metrics *metrics_out)
{
    rp_arena *arena = NULL;
    rp_stage_times times;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rp_schedule_build(c->schedule, &c->config, program_out, NULL), RP_OK), "%s",
              text);
    rp_producers producers;
    cr_assert(eq(int, rp_program_check(*program_out), RP_OK), "%s", text);
    cr_assert(eq(int, rp_program_check_but_cycles(*program_out, arena, &producers), RP_OK));
    cr_assert(eq(int, rp_stage_times_compute(*program_out, &c->costs, arena, &times, NULL), RP_OK));
    cr_assert(
        eq(int, rpsim_stage_run(*program_out, &times, timeline_out, metrics_out, NULL), RP_OK),
        "%s", text);
    cr_assert(
        eq(int,
           rp_metrics_measure(*timeline_out, c->schedule->separate_backward, metrics_out, NULL),
           RP_OK),
        "%s", text);
    if (c->config.iterations == 1) {
        cr_assert(
            eq(int, rpsim_lower_bound(&producers, &times, &metrics_out->lower_bound_ps), RP_OK));
    }
    rp_arena_destroy(arena);
}

static void compare(const rp_metrics *m, const slow_result *slow, const char *text)
{
    const struct {
        const char *name;
        int64_t engine;
        int64_t reference;
    } pairs[] = {
        {"makespan", m->makespan_ps, slow->makespan_ps},
        {"busy", m->busy_ps, slow->busy_ps},
        {"bubble", m->bubble_ps, slow->bubble_ps},
        {"fill", m->fill_ps, slow->fill_ps},
        {"switch", m->switch_ps, slow->switch_ps},
        {"drain", m->drain_ps, slow->drain_ps},
        {"intra", m->intra_ps, slow->intra_ps},
        {"comm total", m->comm_total_ps, slow->comm_total_ps},
        {"comm exposed", m->comm_exposed_ps, slow->comm_exposed_ps},
        {"lower bound", m->lower_bound_ps, slow->lower_bound_ps},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        cr_assert(eq(i64, pairs[i].engine, pairs[i].reference), "%s of %s", pairs[i].name, text);
    }
}

static void compare_period(const rp_random_case *c, const rp_timeline *timeline,
                           const slow_result *slow, const char *text)
{
    uint32_t n = c->config.iterations;
    double period = rp_metrics_period_ps(timeline);
    if (n == 1) {
        bool as_long = c->config.asynchronous ? isnan(period) : period == (double)slow->makespan_ps;
        cr_assert(as_long, "%s: the period of one iteration is %g", text, period);
        return;
    }
    int64_t span = slow->iteration_end_ps[n - 1] - slow->iteration_end_ps[n / 2 - 1];
    double expected = (double)span / (double)(n - n / 2);
    cr_assert(ieee_ulp_eq(dbl, period, expected, 4), "period of %s", text);
}

/* Only the program's barrier waits for empty ops that end after the makespan. Both are right
 * (cli.md defines the makespan), so such cases run asynchronously or alone. */
static void avoid_empty_barriers(rp_random_case *c)
{
    if (c->config.iterations > 1 && c->empty_units && !c->config.asynchronous) {
        c->config.asynchronous = true;
        c->slow.async = true;
    }
}

static void one(rp_random *random, uint32_t number, rp_random_case *c, coverage *covered)
{
    /* Every fortieth is large, so that 64 GPUs with 512 microbatches occur. */
    rp_random_case_draw(random, number % 40 == 0 ? 200000 : 6000, c);
    avoid_empty_barriers(c);
    char text[512];
    char described[400];
    rp_random_case_print(c, described, sizeof described);
    snprintf(text, sizeof text, "configuration %u: %s", number, described);
    slow_result slow = {0};
    cr_assert(slow_run(&c->slow, &slow), "the reference refuses %s", text);
    rp_program *program = NULL;
    rp_timeline *timeline = NULL;
    rp_metrics metrics = {0};
    run_engine(c, text, &program, &timeline, &metrics);
    compare(&metrics, &slow, text);
    compare_period(c, timeline, &slow, text);
    cover(c, program, covered);
    free(slow.iteration_end_ps);
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
}

static void run_half(uint64_t seed)
{
    const uint32_t count = CONFIGURATIONS;
    rp_random random = {seed};
    coverage covered = {0};
    rp_random_case *c = malloc(sizeof *c);
    for (uint32_t i = 0; i < count / 2; i++) {
        one(&random, i, c, &covered);
    }
    free(c);
    cr_log_info("without ops %u, without forwards %u, without backwards %u, > 48 GPUs %u, > 384 "
                "microbatches %u, empty stages %u, fused %u, several iterations %u",
                covered.no_ops, covered.no_forwards, covered.no_backwards, covered.many_gpus,
                covered.many_microbatches, covered.empty_stages, covered.fused, covered.iterations);
    cr_assert(gt(u32, covered.no_ops, count / 200));
    cr_assert(gt(u32, covered.no_forwards, count / 200));
    cr_assert(gt(u32, covered.no_backwards, count / 200));
    cr_assert(gt(u32, covered.many_gpus, count / 200));
    cr_assert(gt(u32, covered.many_microbatches, 0));
    cr_assert(gt(u32, covered.empty_stages, count / 10));
    cr_assert(gt(u32, covered.fused, count / 200));
    cr_assert(gt(u32, covered.iterations, count / 50));
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}

/* Two halves, so that both cores work. */
Test(reference, random_configurations_a, .timeout = 500)
{
    run_half(20261120);
}

Test(reference, random_configurations_b, .timeout = 500)
{
    run_half(2604027085);
}
