/* A follower watches a run and ends it between two iterations. The run leaves the state of a
 * shorter program, bit for bit, so that a checkpoint made there goes on as if nothing had happened.
 */
#include "exec/host/driver.h"
#include "exec/run/runs.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/gpu_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_LEN RP_TEST_GPU_SEQ_LEN
#define STEPS 4u

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_gpu_end(arena);
}

TestSuite(exec_follow, .init = begin, .fini = end, .timeout = 120);

typedef struct ending {
    uint32_t most;  /* largest number of iterations that may begin */
    uint32_t asked; /* iterations for which begins() has been called */
    uint32_t told;  /* iterations for which ended() has been called */
    bool out_of_order;
    double losses[STEPS];
    double norms[STEPS];
} ending;

static bool begins(void *context, uint32_t iteration)
{
    ending *e = context;
    e->out_of_order |= iteration != e->asked;
    e->asked++;
    return iteration < e->most;
}

static void ended(void *context, uint32_t iteration, double loss, double norm)
{
    ending *e = context;
    e->out_of_order |= iteration != e->told || iteration >= e->asked;
    e->norms[e->told] = norm;
    e->losses[e->told++] = loss;
}

/* True if two runs have equal state, as far as a checkpoint holds it: steps, scaler, weights. */
static bool same_state(const rp_test_run *a, const rp_test_run *b)
{
    uint64_t working = a->state.offsets[a->model.layer_count] * rp_dtype_bytes(a->model.dtype);
    return a->state.step == b->state.step && a->state.skipped == b->state.skipped &&
           memcmp(&a->state.scaler, &b->state.scaler, sizeof a->state.scaler) == 0 &&
           memcmp(a->state.working, b->state.working, working) == 0;
}

static void compare(const rp_model *config, rp_resolved work, rp_test_twist twist, uint32_t most)
{
    rp_test_run shorter;
    rp_test_run stopped;
    ending e = {.most = most};
    work.decided.iterations = most;
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, &work, &twist, &shorter), RP_OK));
    work.decided.iterations = STEPS;
    twist.follower = (rpexec_follower){.context = &e, .begins = begins, .ended = ended};
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, &work, &twist, &stopped), RP_OK));
    const char *mode = work.decided.asynchronous ? "async" : "sync";
    const char *name = work.schedule->name;
    cr_expect(eq(u32, stopped.iterations_run, most));
    cr_expect(eq(u32, e.told, most), "%s %s: iterations that were told", name, mode);
    cr_expect(not(e.out_of_order), "%s %s", name, mode);
    cr_expect(memcmp(e.losses, shorter.losses, most * sizeof(double)) == 0, "%s %s: losses told",
              name, mode);
    cr_expect(memcmp(e.norms, shorter.norms, most * sizeof(double)) == 0, "%s %s: norms told", name,
              mode);
    cr_expect(rp_test_same(&stopped, &shorter, most), "%s %s after %u: other bits", name, mode,
              most);
    cr_expect(same_state(&stopped, &shorter), "%s %s after %u: another state", name, mode, most);
}

typedef void (*trial)(const rp_model *config, rp_resolved work, rp_test_twist twist, uint32_t most);

/* Tries every schedule that runs, sync and async; without RP_LONG a seventh, from `first` on.
 */
static void all_schedules(const rp_test_twist *twist, trial try, uint32_t first)
{
    bool all = getenv("RP_LONG") != NULL;
    rp_model config = rp_test_small_decoder(8, true, true);
    for (uint32_t i = 0; i < 2 * rp_schedule_count; i++) {
        const rp_schedule_type *schedule = rp_schedules[i / 2];
        const char *why = NULL;
        config.heads = rp_cuts_layers(&schedule->traits) ? 4 : 2; /* a head for each rank */
        cr_assert(eq(int, rpexec_runs(schedule, i % 2 == 1, arena, &why), RP_OK));
        if (why == NULL && (all || i % 7 == first)) {
            rp_resolved work = rp_test_work(schedule->name, 2, 4, STEPS);
            work.decided.asynchronous = i % 2 == 1;
            try(&config, work, *twist, 1 + i / 2 % (STEPS - 1));
        }
    }
}

Test(exec_follow, all_schedules_end_between_iterations)
{
    const rp_test_twist twist = {.delay_seed = 7, .delay_us = 100};
    all_schedules(&twist, compare, 0);
}

Test(exec_follow, with_a_scaled_loss_too)
{
    const rp_test_twist twist = {.dtype = RP_DTYPE_F16};
    all_schedules(&twist, compare, 1);
}

Test(exec_follow, a_run_that_is_not_ended_is_told_to_its_end)
{
    rp_model config = rp_test_small_decoder(4, true, true);
    const rp_resolved work = rp_test_work("roundpipe", 2, 4, STEPS);
    compare(&config, work, (rp_test_twist){0}, STEPS);
}

/* A program that runs twice equals a program of twice its length that runs without a break. */
static void twice(const rp_model *config, rp_resolved work, rp_test_twist twist, uint32_t most)
{
    (void)most;
    rp_test_run once;
    rp_test_run again;
    work.decided.iterations = STEPS;
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, &work, &twist, &once), RP_OK));
    work.decided.iterations = STEPS / 2;
    twist.again = 1;
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, &work, &twist, &again), RP_OK));
    const char *mode = work.decided.asynchronous ? "async" : "sync";
    cr_expect(rp_test_same(&again, &once, STEPS), "%s %s: other bits", work.schedule->name, mode);
    cr_expect(same_state(&again, &once), "%s %s: another state", work.schedule->name, mode);
}

Test(exec_follow, programs_run_again)
{
    const rp_test_twist twist = {.delay_seed = 3, .delay_us = 100};
    all_schedules(&twist, twice, 2);
}

Test(exec_follow, programs_run_again_with_a_scaled_loss)
{
    const rp_test_twist twist = {.dtype = RP_DTYPE_F16};
    all_schedules(&twist, twice, 3);
}

Test(exec_follow, programs_run_again_on_gpus)
{
    const emulated_machine machine = {.devices = 2, .seed = 5, .delay_us = 100};
    const rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine),
                                 .devices = {.stage_bytes = 1000}};
    all_schedules(&twist, twice, 4);
}

/* ---- the end of the loss scale --------------------------------------------------------------- */

/* A final norm whose output is beyond 65504 overflows in fp16 and in no other type. The scale is 4.
 */
static void overflow(void *context, rp_arena *in, rp_test_run *run)
{
    float *norm = run->state.master + rp_test_offset_of(run, "model.norm.weight");
    (void)context;
    (void)in;
    for (uint32_t i = 0; i < run->model.config->hidden; i++) {
        norm[i] = 6e4f;
    }
    for (uint32_t layer = 0; layer < run->model.layer_count; layer++) {
        rpexec_state_refresh(&run->state, layer);
    }
    run->state.scaler = (rpexec_scaler){.scale = 4, .next = 4};
}

static bool always(void *context, uint32_t iteration)
{
    (void)context;
    (void)iteration;
    return true;
}

/* The scale is halved from 4 to 2 and 1, as in PyTorch's GradScaler: the run ends with the third
 * step, or with a fourth step that had begun. With the asynchronous optimizer on the host the scale
 * is a step older. */
static void exhaust(const rp_model *config, rp_resolved work, rp_test_twist twist, uint32_t most)
{
    rp_test_run run;
    rp_test_run wide;
    const char *mode = work.decided.asynchronous ? "async" : "sync";
    const char *name = work.schedule->name;
    bool late =
        work.decided.asynchronous && work.schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    uint32_t last = late ? 4 : 3;
    (void)most;
    twist.prepare = overflow;
    twist.follower = (rpexec_follower){.begins = always};
    work.decided.iterations = 7;
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, &work, &twist, &run), RP_OK));
    cr_expect(eq(u64, run.state.exhausted, last), "%s %s", name, mode);
    cr_expect(run.iterations_run == last || run.iterations_run == last + 1, "%s %s: %u", name, mode,
              run.iterations_run);
    cr_expect(eq(u64, run.state.step, 0), "%s %s", name, mode);
    cr_expect(isnan(run.losses[0]) && !signbit(run.losses[0]), "%s %s", name, mode);
    twist.dtype = RP_DTYPE_BF16;
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, &work, &twist, &wide), RP_OK));
    cr_expect(eq(u64, wide.state.exhausted, 0), "%s %s", name, mode);
    cr_expect(eq(u32, wide.iterations_run, 7), "%s %s", name, mode);
}

Test(exec_follow, a_run_ends_when_no_smaller_scale_is_left)
{
    const rp_test_twist twist = {.dtype = RP_DTYPE_F16};
    all_schedules(&twist, exhaust, 5);
}

Test(exec_follow, gpus_end_when_no_smaller_scale_is_left)
{
    const emulated_machine machine = {.devices = 2, .peers = true, .seed = 3, .delay_us = 100};
    const rp_test_twist twist = {.dtype = RP_DTYPE_F16,
                                 .driver_type = rp_fake_cuda_driver(&machine)};
    rp_model config = rp_test_small_decoder(6, true, true);
    config.heads = 4;
    exhaust(&config, rp_test_work("1f1b", 2, 4, STEPS), twist, 0);
    exhaust(&config, rp_test_work("fsdp", 2, 4, STEPS), twist, 0);
}

/* ---- weights stay ---------------------------------------------------------------------------- */

static uint32_t transfers;

static rp_status count_transfer(rpexec_driver *driver, void *to, const void *from, uint64_t bytes)
{
    transfers++;
    return rpexec_host_driver.transfer(driver, to, from, bytes);
}

/* Weights and moments are uploaded once and downloaded once, however often the program runs. */
Test(exec_follow, resident_weights_stay)
{
    static const char *const names[] = {"1f1b", "zero2", "fsdp", "megatron-tp"};
    rpexec_driver_type driver = rpexec_host_driver;
    rp_model config = rp_test_small_decoder(6, true, true);
    config.heads = 4;
    driver.transfer = count_transfer;
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const rp_resolved work = rp_test_work(names[i], 2, 4, 1);
        uint32_t counts[2];
        for (uint32_t again = 0; again < 2; again++) {
            const rp_test_twist twist = {.driver_type = &driver, .again = 2 * again};
            rp_test_run run;
            transfers = 0;
            cr_assert(
                eq(int, rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
            counts[again] = transfers;
        }
        cr_expect(counts[0] > 0, "%s", names[i]);
        cr_expect(eq(u32, counts[1], counts[0]), "%s", names[i]);
    }
}

Test(exec_follow, gpus_end_between_iterations)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zero2", "megatron-tp"};
    rp_model config = rp_test_small_decoder(6, true, true);
    config.heads = 4;
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const emulated_machine machine = {.devices = 2, .peers = true, .seed = i, .delay_us = 200};
        const rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine)};
        compare(&config, rp_test_work(names[i], 2, 4, STEPS), twist, 1 + i % (STEPS - 1));
    }
}
