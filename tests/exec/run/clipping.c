/* Clipping by the norm of all gradients: the norm is the same, bit for bit, wherever gradients are
 * stored, and the steps are those of plain loops (executor.md 1.8). tests/checks/test_recipes.py
 * compares with PyTorch's numbers. */
#include "common/base/log.h"
#include "exec/plan/plan.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define SEQ_LEN 17u
#define LAYERS 6u
#define STEPS 3u

TestSuite(exec_clipping, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 240);

/* A recipe that clips every step, with weight decay on matrices only. */
static rpexec_adam recipe(void)
{
    rpexec_adam adam = rpexec_adam_defaults();
    adam.clip_norm = 0.5;
    adam.weight_decay = 0.1;
    adam.decoupled = adam.decays_matrices = true;
    adam.course = RPEXEC_RATE_LINEAR;
    adam.steps = 10;
    adam.warmup = 1;
    return adam;
}

static void run_both(const rp_model *config, const rp_resolved *work, rp_test_twist *twist,
                     rp_test_run *run, rp_test_run *plain)
{
    rp_resolved single = *work;
    single.decided.asynchronous &= work->schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, twist, run), RP_OK));
    cr_assert(
        eq(int, rp_test_single_from(rp_test_arena, config, SEQ_LEN, &single, twist, plain), RP_OK));
    cr_expect(plain->norms[0] > recipe().clip_norm && isfinite(plain->norms[STEPS - 1]), "%g",
              plain->norms[0]);
}

static void expect_same(const rp_model *config, const rp_resolved *work, rp_test_twist *twist)
{
    rp_test_run run;
    rp_test_run plain;
    run_both(config, work, twist, &run, &plain);
    cr_expect(rp_test_same(&run, &plain, STEPS), "%s on %u GPUs, %s, %s: %.17g and %.17g",
              work->schedule->name, work->gpus, rp_dtype_text(twist->dtype),
              work->decided.asynchronous ? "async" : "sync", run.norms[STEPS - 1],
              plain.norms[STEPS - 1]);
}

Test(exec_clipping, pipelines_clip_as_plain_loops)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zbv", "gpipe", "interleaved-1f1b"};
    const rpexec_adam adam = recipe();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (uint32_t gpus = 1; gpus <= 4; gpus *= 2) {
            rp_model config = rp_test_decoder(LAYERS, i % 2 == 0, true);
            rp_test_twist twist = {.adam = &adam, .drops_gradients = false};
            rp_resolved work = rp_test_work(names[i], gpus, 4, STEPS);
            work.decided.asynchronous = (gpus + i) % 2 == 1;
            expect_same(&config, &work, &twist);
        }
    }
}

/* Split steps, adapters, and 16 bits with a loss scale. */
Test(exec_clipping, so_do_other_kinds_of_runs)
{
    const rpexec_adam adam = recipe();
    static const char *const names[] = {"roundpipe", "1f1b"};
    for (size_t i = 0; i < 4; i++) {
        rp_model config = rp_test_decoder(LAYERS, false, false);
        rp_test_twist twist = {.adam = &adam, .dtype = i < 2 ? RP_DTYPE_F16 : RP_DTYPE_F32};
        rp_resolved work = rp_test_work(names[i % 2], 2, 4, STEPS);
        work.decided.accumulate = i == 2 ? 2 : 1;
        if (i == 3) {
            rp_model_set_lora_rank(&config, 3);
            twist.adam = NULL; /* the first gradients of adapters are small: compares only norms */
            rp_test_run run;
            rp_test_run plain;
            cr_assert(eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run),
                         RP_OK));
            cr_assert(
                eq(int, rp_test_single_from(rp_test_arena, &config, SEQ_LEN, &work, &twist, &plain),
                   RP_OK));
            cr_expect(plain.norms[0] > 0 && rp_test_same(&run, &plain, STEPS));
            continue;
        }
        expect_same(&config, &work, &twist);
    }
}

/* Ranks sum in another order, so results are equal but for rounding, whichever part of a layer a
 * rank has. */
Test(exec_clipping, ranks_clip_alike)
{
    static const char *const names[] = {"zero2", "zero3", "fsdp", "zero-offload", "megatron-tp"};
    const rpexec_adam adam = recipe();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (uint32_t gpus = 1; gpus <= 4; gpus *= 2) {
            rp_model config = rp_test_decoder(LAYERS, gpus != 2, true);
            rp_test_twist twist = {.adam = &adam};
            rp_resolved work = rp_test_work(names[i], gpus, 4, STEPS);
            rp_test_run run;
            rp_test_run plain;
            run_both(&config, &work, &twist, &run, &plain);
            for (uint32_t t = 0; t < STEPS; t++) {
                cr_expect(fabs(run.norms[t] - plain.norms[t]) <= 2e-6 * plain.norms[t],
                          "%s on %u GPUs: %.9g, not %.9g", names[i], gpus, run.norms[t],
                          plain.norms[t]);
            }
        }
    }
}

/* Numbers of every size: the sum is exact, so that no order and no cut changes it. */
Test(exec_clipping, squares_add_up_in_any_order)
{
    enum { COUNT = 16 * 64 + 5 };
    static float values[COUNT];
    rpexec_squares whole = {0};
    rpexec_squares parts = {0};
    long double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        values[i] = ldexpf(1 + (float)(i % 7) / 8, i % 250 - 148) * (i % 2 == 0 ? 1 : -1);
        sum += (long double)values[i] * (long double)values[i];
    }
    rpexec_squares_add(RP_DTYPE_F32, COUNT, values, &whole);
    for (int i = 63; i >= 0; i--) { /* backwards, each into its own sum */
        rpexec_squares part = {0};
        rpexec_squares_add(RP_DTYPE_F32, i == 63 ? 16 + 5 : 16, values + 16 * i, &part);
        rpexec_squares_merge(&part, &parts);
    }
    cr_expect(eq(dbl, rpexec_squares_root(&whole), rpexec_squares_root(&parts)));
    double root = (double)sqrtl(sum);
    cr_expect(fabs(rpexec_squares_root(&whole) - root) <= 4e-16 * root, "%.17g, not %.17g",
              rpexec_squares_root(&whole), root);
    values[COUNT - 1] = INFINITY;
    rpexec_squares_add(RP_DTYPE_F32, COUNT, values, &whole);
    cr_expect(isnan(rpexec_squares_root(&whole)));
}
