/* The executor against training in plain loops (exec/run/single.h): the same bits for any schedule,
 * number of GPUs, recompute mode and optimizer (executor.md section 3, 1, 2 and 9). */
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define SEQ_LEN 17u
#define STEPS 3u

TestSuite(exec_runs, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

/* RP_LONG tries all pairs of two lists of cases. A plain run tries each case with some of the other
 * list: those whose numbers add up to a multiple of `step`. */
static bool tries(size_t a, size_t b, size_t step)
{
    return getenv("RP_LONG") != NULL || (a + b) % step == 0;
}

static rp_resolved work_of(const char *schedule, uint32_t gpus, uint32_t microbatches)
{
    rp_resolved work = rp_test_work(schedule, gpus, microbatches, STEPS);
    work.decided.microbatch_size = 2;
    return work;
}

static void compare(const rp_model *config, const rp_resolved *work)
{
    rp_test_run reference;
    rp_test_run run;
    cr_assert(eq(int, rp_test_single(rp_test_arena, config, SEQ_LEN, work, &reference), RP_OK));
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, NULL, &run), RP_OK));
    for (uint32_t i = 0; i < STEPS; i++) {
        cr_expect(eq(dbl, run.losses[i], reference.losses[i]), "%s, %u GPUs, iteration %u",
                  work->schedule->name, work->gpus, i);
    }
    cr_expect(rp_test_same(&run, &reference, STEPS), "%s, %u GPUs, %s: other bits",
              work->schedule->name, work->gpus, work->decided.asynchronous ? "async" : "sync");
}

Test(exec_runs, roundpipe_trains_as_plain_loops_do)
{
    rp_model config = rp_test_decoder(16, true, true);
    static const uint32_t gpus[] = {1, 2, 3, 5, 8}; /* executor.md section 3, 2 */
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        for (size_t asynchronous = 0; asynchronous < 2; asynchronous++) {
            rp_resolved work = work_of("roundpipe", gpus[i], gpus[i] + 1);
            work.decided.asynchronous = asynchronous != 0;
            if (tries(i, asynchronous, 2)) {
                compare(&config, &work);
            }
        }
    }
}

/* Looped BFS and Mobius go through the microbatches of a backward in descending order. In a single
 * step only the roundings of the sums differ. */
Test(exec_runs, descending_backwards_give_equal_sums)
{
    static const char *const names[] = {"looped-bfs", "mobius"};
    rp_model config = rp_test_decoder(8, false, true);
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t gpus = 1; gpus <= 4; gpus++) {
            rp_test_run reference;
            rp_test_run run;
            rp_resolved work = work_of(names[i], gpus, 2 * gpus);
            work.decided.iterations = 1;
            if (!tries(i, gpus, 2)) {
                continue;
            }
            cr_assert(
                eq(int, rp_test_single(rp_test_arena, &config, SEQ_LEN, &work, &reference), RP_OK));
            cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run),
                         RP_OK));
            cr_expect(eq(dbl, run.losses[0], reference.losses[0]), "%s", names[i]);
            double error = rp_test_distance(&run, &reference);
            cr_expect(error <= 1e-5, "%s on %u GPUs: %g", names[i], gpus, error);
            cr_expect(error > 0, "%s: the order does not matter here", names[i]);
        }
    }
}

/* 5: the gradients of the first call are uploaded again and added to. */
Test(exec_runs, a_step_split_into_calls_is_one_step)
{
    rp_model config = rp_test_decoder(7, true, false);
    for (uint32_t calls = 2; calls <= 3; calls++) {
        for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
            rp_resolved work = work_of("roundpipe", 3, 4);
            work.decided.accumulate = calls;
            work.decided.asynchronous = asynchronous != 0;
            compare(&config, &work);
        }
    }
}

Test(exec_runs, recompute_modes_train_alike)
{
    static const rp_recompute modes[] = {RP_RECOMPUTE_NONE, RP_RECOMPUTE_WAIT, RP_RECOMPUTE_EARLY};
    rp_model config = rp_test_decoder(8, true, true);
    for (size_t i = 0; i < 3; i++) {
        rp_resolved work = work_of("1f1b", 4, 6);
        work.recompute = modes[i];
        compare(&config, &work);
        work = work_of("roundpipe", 4, 6);
        work.recompute = i == 0 ? RP_RECOMPUTE_WAIT : modes[i];
        compare(&config, &work);
    }
}

Test(exec_runs, pipelines_train_as_plain_loops_do)
{
    static const char *const names[] = {
        "gpipe", "1f1b", "interleaved-1f1b", "eager-1f1b", "zb-h1", "zb-h2",
        "zb1p",  "zbv",  "dualpipev",        "v-half",     "v-min",
    };
    rp_model config = rp_test_decoder(8, true, true);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t k = 0; k < 3; k++) {
            rp_resolved work = work_of(names[i], 1u << k, 2u << k);
            if (tries(i, k, 3)) {
                compare(&config, &work);
            }
        }
    }
}
