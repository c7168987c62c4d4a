/* Pipelines without a flush: PipeDream and PipeDream-2BW against a slow reference without
 * iterations or programs, their steady state, and 1F1B. */
#include "common/schedule/build.h"
#include "sim/run/case.h"
#include "tests/support/assertions.h"
#include "tests/support/stage_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(endless, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

#define MOST_GPUS 8

static const char *const names[] = {"pipedream", "pipedream-2bw"};

/* Hash of a schedule's synchronous program on 4 GPUs, without its number of versions, then 1. */
static uint64_t flushed_hash(const rp_schedule_type *schedule)
{
    rp_test_stage_case d;
    rp_program *program = NULL;
    rp_test_stage_case_make(4, 1, 9, (slow_split){1, 1, 1}, rp_test_arena, &d);
    d.config.iterations = 3;
    cr_assert(eq(int, rp_schedule_build(schedule, &d.config, &program, NULL), RP_OK));
    program->traits.versions = RP_VERSIONS_ONE;
    uint64_t hash = rp_program_hash(program);
    rp_program_destroy(program);
    return hash;
}

/* With flushes a schedule of several versions is the schedule named in the registry (Narayanan et
 * al., SOSP 2019, section 3.2: 1F1B). Schedules without such an entry differ. */
Test(endless, flushed_is_the_schedule_that_is_said)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *schedule = rp_schedules[i];
        bool endless = schedule->traits.versions != RP_VERSIONS_ONE;
        cr_expect(eq(int, schedule->flushed != NULL, endless), "%s", schedule->name);
        if (schedule->flushed != NULL) {
            cr_expect(eq(u64, flushed_hash(schedule), flushed_hash(schedule->flushed)), "%s",
                      schedule->name);
            cr_expect(ne(u64, flushed_hash(schedule), flushed_hash(rp_schedule_find("gpipe"))));
            found++;
        }
    }
    cr_expect(eq(u32, found, 2));
}

/* Whole backwards. */
static void draw(rp_random *random, bool hops, rp_test_stage_case *d)
{
    uint32_t gpus = rp_random_between(random, 1, MOST_GPUS);
    uint32_t microbatches = gpus + rp_random_between(random, 0, 7);
    rp_test_stage_case_make(gpus, 1, microbatches, (slow_split){1, 1, 1}, rp_test_arena, d);
    rp_test_stage_case_draw(random, false, d);
    d->config.iterations = 24;
    d->config.asynchronous = true;
    d->costs.hop_ps = hops ? d->costs.hop_ps : 0;
}

/* The reference runs 1F1B over iterations * microbatches microbatches. */
Test(endless, is_one_stream)
{
    rp_random random = {20191027};
    for (uint32_t number = 0; number < 100; number++) {
        rp_test_stage_case d;
        draw(&random, true, &d);
        rpsim_result result;
        slow_rows rows;
        uint32_t all = d.config.microbatches * d.config.iterations;
        cr_assert(eq(int,
                     rpsim_case_run(rp_schedule_find(names[number % 2]), &d.config, &result, NULL),
                     RP_OK));
        cr_assert(slow_rows_make("1f1b", (int)d.config.gpus, (int)all, 1, &rows));
        slow_rows_run(&rows, d.stages, d.costs.hop_ps, 0);
        for (uint32_t g = 0; g < d.config.gpus; g++) {
            const rp_queue *queue = &result.program->queues[g];
            cr_assert(eq(u32, queue->op_end - queue->op_begin, (uint32_t)rows.counts[g]));
            for (int i = 0; i < rows.counts[g]; i++) {
                const slow_cell *want = &rows.cells[g][i];
                uint32_t at = queue->op_begin + (uint32_t)i;
                const rp_op *op = &result.program->ops[at];
                uint32_t microbatch = op->iteration * d.config.microbatches + op->microbatch;
                cr_assert(eq(u32, microbatch, (uint32_t)want->microbatch), "%u: %d", number, i);
                cr_assert(eq(chr, rp_op_kind_text((rp_op_kind)op->kind)[0], want->type));
                cr_assert(eq(i64, result.timeline->start_ps[at], want->start), "%u: %d", number, i);
                cr_assert(eq(i64, result.timeline->end_ps[at], want->end), "%u: %d", number, i);
            }
        }
        slow_rows_free(&rows);
        rpsim_result_fini(&result);
    }
}

/* schedules.md 1: without hops a microbatch takes the slowest rank's forward, recompute and
 * backward, whatever other ranks take. */
Test(endless, period_of_the_slowest_rank)
{
    rp_random random = {20210718};
    for (uint32_t number = 0; number < 150; number++) {
        rp_test_stage_case d;
        draw(&random, false, &d);
        d.config.recompute = (rp_recompute)(number % RP_RECOMPUTE_COUNT);
        d.config.iterations = 64;
        bool recomputes = rp_recompute_has_ops(d.config.recompute);
        int64_t longest = 0;
        uint32_t slowest = 0;
        for (uint32_t s = 0; s < d.config.gpus; s++) {
            int64_t time =
                (recomputes ? 2 : 1) * d.stages[s].forward + d.stages[s].input + d.stages[s].weight;
            slowest = time > longest ? s : slowest;
            longest = time > longest ? time : longest;
        }
        rpsim_result result;
        cr_assert(eq(int,
                     rpsim_case_run(rp_schedule_find(names[number % 2]), &d.config, &result, NULL),
                     RP_OK));
        int64_t ends[2] = {0, 0}; /* on the slowest rank, of iterations 32 and 56 */
        const rp_queue *queue = &result.program->queues[slowest];
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            const rp_op *op = &result.program->ops[i];
            if (op->kind == RP_OP_BACKWARD && (op->iteration == 32 || op->iteration == 56)) {
                ends[op->iteration == 56] = result.timeline->end_ps[i];
            }
        }
        cr_expect(eq(i64, ends[1] - ends[0], 24 * d.config.microbatches * longest), "%u", number);
        rpsim_result_fini(&result);
    }
}

/* Equal stages without hops: microbatch k of the stream ends after k + N - 1 times a stage's
 * forward and backward, so a period takes M of them, from two iterations on. */
Test(endless, period_of_few_iterations)
{
    for (uint32_t iterations = 1; iterations < 20; iterations++) {
        rp_test_stage_case d;
        rp_test_stage_case_make(4, 1, 6, (slow_split){1000, 700, 1300}, rp_test_arena, &d);
        d.costs.hop_ps = 0;
        d.config.iterations = iterations;
        d.config.asynchronous = true;
        rpsim_result result;
        cr_assert(eq(int, rpsim_case_run(rp_schedule_find("pipedream"), &d.config, &result, NULL),
                     RP_OK));
        cr_expect(eq(i64, result.metrics.makespan_ps, (6 + 3) * INT64_C(3000)));
        if (iterations == 1) {
            cr_expect(isnan(result.period_ps), "nothing says when the next one would be done");
        } else {
            cr_expect(eq(dbl, result.period_ps, 6 * 3000.0), "%u iterations", iterations);
        }
        rpsim_result_fini(&result);
    }
}

/* Most microbatches and most of their steps between forward and backward at a time; they determine
 * the weight versions. */
static void count_in_flight(const rp_program *program, uint32_t gpu, uint32_t *microbatches,
                            uint32_t *steps)
{
    uint32_t open[64] = {0};
    uint32_t live = 0;
    *microbatches = 0;
    *steps = 0;
    const rp_queue *queue = &program->queues[gpu];
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        const rp_op *op = &program->ops[i];
        bool forward = op->kind == RP_OP_FORWARD;
        live += forward ? 1u : -1u;
        open[op->iteration] += forward ? 1u : -1u;
        uint32_t now = 0;
        for (uint32_t k = 0; k < program->iteration_count; k++) {
            now += open[k] != 0 ? 1 : 0;
        }
        *microbatches = live > *microbatches ? live : *microbatches;
        *steps = now > *steps ? now : *steps;
    }
}

Test(endless, versions_in_flight)
{
    rp_random random = {33};
    bool two_needed = false;
    for (uint32_t number = 0; number < 60; number++) {
        rp_test_stage_case d;
        draw(&random, true, &d);
        rp_program *program = NULL;
        cr_assert(eq(
            int, rp_schedule_build(rp_schedule_find(names[number % 2]), &d.config, &program, NULL),
            RP_OK));
        for (uint32_t g = 0; g < d.config.gpus; g++) {
            uint32_t microbatches = 0;
            uint32_t steps = 0;
            count_in_flight(program, g, &microbatches, &steps);
            cr_expect(eq(u32, microbatches, d.config.gpus - g));
            cr_expect(le(u32, steps, 2));
            two_needed |= steps == 2;
        }
        rp_program_destroy(program);
    }
    cr_expect(two_needed);
}

Test(endless, flushed_it_is_1f1b)
{
    rp_random random = {44};
    for (uint32_t number = 0; number < 20; number++) {
        rp_test_stage_case d;
        draw(&random, true, &d);
        d.config.asynchronous = false;
        rp_program *flushed = NULL;
        rp_program *plain = NULL;
        cr_assert(eq(
            int, rp_schedule_build(rp_schedule_find(names[number % 2]), &d.config, &flushed, NULL),
            RP_OK));
        cr_assert(
            eq(int, rp_schedule_build(rp_schedule_find("1f1b"), &d.config, &plain, NULL), RP_OK));
        cr_assert(eq(u32, flushed->op_count, plain->op_count));
        cr_expect(eq(int, memcmp(flushed->ops, plain->ops, plain->op_count * sizeof(rp_op)), 0));
        rp_program_destroy(flushed);
        rp_program_destroy(plain);
    }
}
