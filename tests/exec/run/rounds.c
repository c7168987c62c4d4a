/* Rounds and calls of a step: RoundPipe's two readings (a round is a call, as in the library, or
 * has as many microbatches as there are GPUs, as in the paper), several calls, overlapping calls,
 * and microbatches of different sizes (executor.md 1.1, 1.5; section 3, 5). */
#include "common/base/log.h"
#include "exec/host/lane.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define LAYERS 7u
#define SEQ_LEN 5u
#define STEPS 2u

TestSuite(exec_rounds, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

static rp_resolved work_of(const char *schedule, uint32_t gpus, uint32_t calls,
                           uint32_t microbatches)
{
    rp_resolved work = rp_test_work(schedule, gpus, microbatches, STEPS);
    work.decided.accumulate = calls;
    return work;
}

static void compare(const rp_model *config, const rp_resolved *work, const char *what)
{
    rp_test_run run;
    rp_test_run plain;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, NULL, &run), RP_OK),
              "%s", what);
    cr_assert(eq(int, rp_test_single(rp_test_arena, config, SEQ_LEN, work, &plain), RP_OK));
    cr_expect(rp_test_same(&run, &plain, STEPS),
              "%s: %s on %u GPUs, %u calls of %u microbatches in rounds of %u, %s", what,
              work->schedule->name, work->gpus, work->decided.accumulate,
              work->decided.microbatches, work->decided.round,
              work->decided.asynchronous ? "async" : "sync");
}

/* Rounds of N microbatches or fewer (the paper) and of a whole call (the library); a shorter last
 * round, more GPUs than stages, a single microbatch. */
Test(exec_rounds, round_sizes_train_as_plain_loops_do)
{
    static const struct {
        uint32_t gpus, calls, microbatches, round;
    } cases[] = {
        {3, 1, 6, 3}, {3, 1, 7, 3},  {2, 1, 8, 2}, {4, 1, 9, 4},  {3, 1, 6, 6},
        {2, 1, 5, 1}, {3, 2, 6, 3},  {2, 3, 4, 2}, {8, 1, 3, 1},  {8, 1, 9, 8},
        {3, 1, 1, 1}, {12, 2, 1, 0}, {1, 3, 4, 2}, {12, 1, 4, 2}, {12, 2, 5, 0},
    };
    rp_model config = rp_test_decoder(LAYERS, true, true);
    rp_partition short_one;
    cr_assert(eq(int, rp_partition_parse("test", "5|2,5", rp_test_arena, &short_one, NULL), RP_OK));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t asynchronous = 0; asynchronous < 2; asynchronous++) {
            rp_resolved work =
                work_of("roundpipe", cases[i].gpus, cases[i].calls, cases[i].microbatches);
            work.decided.round = cases[i].round;
            work.decided.asynchronous = asynchronous != 0;
            work.decided.layer_grain = i % 2 == 0;
            work.partition = cases[i].gpus == 12 ? &short_one : NULL;
            compare(&config, &work, "rounds");
        }
    }
}

/* A stage on a GPU must not wait for a loss that is computed later on the same GPU, if there are
 * more stages than GPUs. */
Test(exec_rounds, calls_of_many_stages_follow_each_other)
{
    rp_model config = rp_test_decoder(LAYERS, false, true);
    rp_partition partition;
    cr_assert(
        eq(int, rp_partition_parse("test", "2,2|3,2,1,1", rp_test_arena, &partition, NULL), RP_OK));
    for (uint32_t gpus = 1; gpus <= 3; gpus++) {
        rp_resolved work = work_of("roundpipe", gpus, 3, 4);
        work.partition = &partition;
        work.decided.asynchronous = gpus == 2;
        compare(&config, &work, "many stages");
    }
}

/* The last call has the rest of the microbatches, and microbatches differ in size. */
Test(exec_rounds, calls_and_microbatches_of_different_sizes)
{
    static const uint32_t sequences[] = {2, 1, 3, 1, 1, 2, 4, 1, 2, 1};
    static const char *const names[] = {"roundpipe", "1f1b", "zbv"};
    rp_model config = rp_test_decoder(LAYERS, true, false);
    for (uint32_t i = 0; i < 9; i++) {
        rp_resolved work = work_of(names[i % 3], 1 + i / 3, 3, 4);
        work.last_microbatches = 2;
        work.sequences = sequences;
        work.decided.layer_grain = i % 2 == 0 && work.recompute != RP_RECOMPUTE_NONE;
        compare(&config, &work, "sizes");
    }
}

/* ---- overlapping calls ----------------------------------------------------------------------- */

/* @return the gradients of the microbatches of a single call, with the loss scaled as for the whole
 * step */
static const float *gradients_of(const rp_model *config, const rp_test_run *whole,
                                 const rp_resolved *work, uint32_t call)
{
    rp_test_run run;
    rpexec_lane lane;
    rp_resolved first = *work;
    uint32_t sequences[16];
    uint64_t tokens =
        (uint64_t)call * work->decided.microbatches * work->decided.microbatch_size * SEQ_LEN;
    const rpexec_batch batch = {.ids = whole->batches[0].ids + tokens,
                                .labels = whole->batches[0].labels + tokens,
                                .valid_tokens = whole->batches[0].valid_tokens};
    first.decided.accumulate = 1;
    first.decided.iterations = 0; /* no more than the initial state */
    cr_assert(eq(int, rp_test_single(rp_test_arena, config, SEQ_LEN, &first, &run), RP_OK));
    cr_assert(eq(int,
                 rpexec_host_lane_create(&run.model, work->decided.microbatch_size * SEQ_LEN,
                                         rp_test_arena, &lane),
                 RP_OK));
    for (uint32_t i = 0; i < work->decided.microbatches; i++) {
        sequences[i] = work->decided.microbatch_size;
    }
    double loss = 0;
    rpexec_single s = {.model = &run.model,
                       .state = &run.state,
                       .adam = rpexec_adam_defaults(),
                       .microbatches = work->decided.microbatches,
                       .sequences = sequences,
                       .iterations = 1,
                       .batches = &batch,
                       .operators = rpexec_host_operators[run.model.dtype],
                       .lane = &lane,
                       .losses = &loss};
    cr_assert(eq(int, rpexec_single_run(&s), RP_OK));
    return run.state.gradients;
}

/* RoundPipe with overlapping rounds: the gradients of each call are summed by themselves, then the
 * sums are added in the order of calls, in fp32. */
Test(exec_rounds, overlapping_calls_are_summed_one_after_the_other)
{
    rp_model config = rp_test_decoder(LAYERS, false, true);
    for (uint32_t calls = 2; calls <= 4; calls++) {
        rp_test_run run;
        rp_test_run ascending;
        rp_resolved work = work_of("roundpipe-overlap", 3, calls, 4);
        rp_resolved plain = work_of("roundpipe", 3, calls, 4);
        work.decided.iterations = plain.decided.iterations = 1;
        work.decided.microbatch_size = plain.decided.microbatch_size = 2;
        work.decided.layer_grain = calls == 3;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run), RP_OK));
        cr_assert(
            eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &plain, &ascending), RP_OK));
        const float *sums[4];
        for (uint32_t c = 0; c < calls; c++) {
            sums[c] = gradients_of(&config, &run, &work, c);
        }
        uint64_t different = 0;
        uint64_t rounded = 0;
        double squares = 0;
        double errors = 0;
        uint64_t count = run.state.offsets[run.model.layer_count];
        for (uint64_t i = 0; i < count; i++) {
            float sum = sums[0][i];
            for (uint32_t c = 1; c < calls; c++) {
                sum += sums[c][i];
            }
            float value = run.state.gradients[i];
            double error = (double)value - (double)ascending.state.gradients[i];
            different += memcmp(&sum, &value, sizeof sum) != 0 ? 1 : 0;
            rounded += error != 0 ? 1 : 0;
            squares += (double)value * (double)value;
            errors += error * error;
        }
        cr_expect(eq(u64, different, 0), "%u calls", calls);
        cr_expect(gt(u64, rounded, 0), "the order does not matter here");
        cr_expect(lt(dbl, sqrt(errors / squares), 1e-6), "%u calls", calls);
    }
}

Test(exec_rounds, overlapping_calls_train_as_loops_in_their_order)
{
    static const struct {
        uint32_t gpus, calls, microbatches, round;
    } cases[] = {{2, 2, 4, 0}, {3, 4, 3, 0}, {3, 1, 9, 3},
                 {2, 2, 6, 3}, {4, 3, 4, 2}, {1, 3, 2, 1}};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t asynchronous = 0; asynchronous < 2; asynchronous++) {
            rp_resolved work =
                work_of("roundpipe-overlap", cases[i].gpus, cases[i].calls, cases[i].microbatches);
            rp_test_twist twist = {.delay_seed = i, .delay_us = 200};
            rp_test_run run;
            rp_test_run plain;
            work.decided.round = cases[i].round;
            work.decided.iterations = 3;
            work.decided.asynchronous = asynchronous != 0;
            cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run),
                         RP_OK));
            cr_assert(
                eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &work, &plain), RP_OK));
            cr_expect(rp_test_same(&run, &plain, 3), "case %zu", i);
        }
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

Test(exec_rounds, rounds_that_do_not_fit_are_refused)
{
    static const struct {
        const char *schedule;
        uint32_t calls, microbatches, round;
        const char *message;
    } cases[] = {{"mobius", 1, 4, 2, "has no rounds"},
                 {"1f1b", 1, 4, 2, "has no rounds"},
                 {"roundpipe", 2, 6, 4, "divisors of --microbatches"},
                 {"roundpipe-overlap", 1, 8, 3, "makes all rounds equal"}};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[1024] = "";
        rp_test_run run;
        rp_resolved work = work_of(cases[i].schedule, 2, cases[i].calls, cases[i].microbatches);
        work.decided.round = cases[i].round;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE));
        cr_expect(strstr(message, cases[i].message) != NULL, "%s", message);
    }
}
