/* Copies and tensor groups of pipelines on the host backend: D x T x P emulated GPUs train as one
 * device does with the whole model and all of the microbatches. */
#include "common/program/expand.h"
#include "exec/host/lane.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define LAYERS 8u
#define SEQ_LEN 6u

TestSuite(exec_layouts, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

static const struct {
    uint32_t places, data, tensor;
} layouts[] = {{2, 2, 2}, {2, 3, 1}, {2, 1, 4}, {1, 2, 2}, {4, 2, 1}};

static const char *const schedules[] = {"1f1b",  "gpipe", "interleaved-1f1b",
                                        "zb-h1", "zbv",   "megatron-pp"};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Each number gives a decoder with other parts. Four ranks share four heads on two kv heads. */
static rp_model decoder_of(uint32_t number)
{
    rp_model m = rp_test_decoder(LAYERS, number % 2 == 0, number % 3 == 0);
    if (number % 5 == 4) {
        m.experts = 4;
        m.active_experts = 2;
        m.intermediate = 16;
    }
    if (number % 5 == 3) {
        rp_model_set_lora_rank(&m, 3);
        m.lora_alpha = 6;
    }
    return m;
}

static rp_resolved work_of(const char *schedule, uint32_t layout, uint32_t microbatches,
                           uint32_t iterations)
{
    rp_resolved work = rp_test_work(schedule, layouts[layout].places, microbatches, iterations);
    work.decided.layout = (rp_layout){.tensor_parallel = layouts[layout].tensor,
                                      .data_parallel = layouts[layout].data};
    return work;
}

static void run_both(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist,
                     rp_test_run *run, rp_test_run *plain)
{
    cr_assert(
        eq(int, rp_test_single_from(rp_test_arena, config, SEQ_LEN, work, twist, plain), RP_OK));
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, twist, run), RP_OK),
              "%s", work->schedule->name);
}

static void expect_losses(const rp_test_run *run, const rp_test_run *plain, uint32_t steps,
                          double most, const char *what)
{
    for (uint32_t i = 0; i < steps; i++) {
        double error = fabs(run->losses[i] - plain->losses[i]) / fabs(plain->losses[i]);
        cr_expect(error <= most, "%s: loss %u differs by %g", what, i, error);
        double norm = fabs(run->norms[i] / plain->norms[i] - 1);
        cr_expect(norm <= 10 * most, "%s: norm %u differs by %g", what, i, norm);
    }
}

/* Compares the gradients of a step, and the losses and norms of three steps. RP_LONG: every
 * schedule in every layout. */
Test(exec_layouts, copies_and_ranks_train_as_one_device_does)
{
    bool all = getenv("RP_LONG") != NULL;
    for (uint32_t number = 0; number < COUNT(layouts) * COUNT(schedules); number++) {
        uint32_t layout = number % COUNT(layouts);
        const char *schedule = schedules[number % COUNT(schedules)];
        rp_model config = decoder_of(number);
        if (!all && number % 3 != 0) {
            continue;
        }
        for (uint32_t iterations = 1; iterations <= 3; iterations += 2) {
            rp_test_run plain;
            rp_test_run run;
            rp_resolved work = work_of(schedule, layout, 4, iterations);
            work.decided.microbatch_size = 1 + number % 2;
            run_both(&config, &work, NULL, &run, &plain);
            expect_losses(&run, &plain, iterations, 1e-5, schedule);
            double distance = iterations == 1 ? rp_test_distance(&run, &plain) : 0;
            cr_expect(distance <= 1e-5, "%u, %s: gradients differ by %g", number, schedule,
                      distance);
            cr_expect(eq(u64, run.state.step, iterations));
            rp_test_arena_again();
        }
    }
}

/* All GPUs agree on a norm that counts no gradient twice, and late GPUs change no bit. */
Test(exec_layouts, clipped_and_late)
{
    rpexec_adam adam = rpexec_adam_defaults();
    adam.clip_norm = 0.5;
    for (uint32_t number = 0; number < 3; number++) {
        rp_model config = decoder_of(number);
        rp_resolved work = work_of(schedules[number], number, 4, 2);
        rp_test_run plain;
        rp_test_run run;
        rp_test_run late;
        rp_test_twist twist = {.adam = &adam};
        run_both(&config, &work, &twist, &run, &plain);
        expect_losses(&run, &plain, 2, 1e-5, "clipped");
        twist.delay_seed = number + 1;
        twist.delay_us = 300;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &late), RP_OK));
        cr_expect(rp_test_same(&run, &late, 2), "%u", number);
        rp_test_arena_again();
    }
}

/* Each copy rounds its sum once, and the sum of copies is rounded once more. */
Test(exec_layouts, sixteen_bits_differ_by_rounding)
{
    for (uint32_t number = 0; number < 4; number++) {
        rp_model config = rp_test_decoder(LAYERS, number % 2 == 0, true);
        const rp_test_twist twist = {.dtype = number < 2 ? RP_DTYPE_BF16 : RP_DTYPE_F16};
        double roundoff = number < 2 ? 0x1p-8 : 0x1p-11;
        rp_resolved work = work_of("1f1b", number % 2, 4, 1);
        rp_test_run plain;
        rp_test_run run;
        run_both(&config, &work, &twist, &run, &plain);
        double apart = 0;
        double whole = 0;
        for (uint64_t i = 0; i < rpexec_state_own(&run.state, 0, run.model.layer_count); i++) {
            double a = (double)run.state.gradients[i];
            double b = (double)plain.state.gradients[i];
            apart += (a - b) * (a - b);
            whole += b * b;
        }
        cr_expect(sqrt(apart / whole) <= 4 * roundoff, "%u: %g", number, sqrt(apart / whole));
        rp_test_arena_again();
    }
}

/* A ring of D copies carries in all 2 (D - 1) times the gradients' bytes; all other bytes are sent
 * within a copy. */
Test(exec_layouts, copies_exchange_their_gradients_once)
{
    rp_model config = rp_test_decoder(LAYERS, false, false);
    rp_resolved one = rp_test_work("1f1b", 2, 4, 2);
    rp_resolved three = work_of("1f1b", 1, 4, 2);
    rp_test_run of_one;
    rp_test_run of_three;
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &one, NULL, &of_one), RP_OK));
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &three, NULL, &of_three), RP_OK));
    uint64_t gradients = of_one.state.trained[of_one.model.layer_count] * sizeof(float);
    cr_expect(eq(u64, of_three.exchanged_bytes,
                 3 * of_one.exchanged_bytes + 2 * (uint64_t)(2 * (3 - 1)) * gradients));
}

/* The program of all GPUs obeys the rules of all programs. */
Test(exec_layouts, programs_of_all_gpus_are_valid)
{
    for (uint32_t i = 0; i < COUNT(schedules); i++) {
        rp_model config = rp_test_decoder(LAYERS, true, false);
        rpexec_model model;
        rp_costs costs;
        rp_program *folded = NULL;
        rp_program *whole = NULL;
        rp_resolved work = work_of(schedules[i], i % COUNT(layouts), 8, 2);
        uint32_t each = rp_layout_gpus(&work.decided.layout);
        cr_assert(eq(int,
                     rpexec_model_create(&config, SEQ_LEN, RP_DTYPE_F32, rp_test_arena, &model),
                     RP_OK));
        cr_assert(eq(int, rpexec_work_costs(&model, 1, rp_test_arena, &costs), RP_OK));
        cr_assert(eq(int, rpexec_work_program(&work, &model, &costs, &folded, NULL), RP_OK));
        cr_assert(eq(int, rp_program_expand(folded, 1, rp_test_arena, &whole), RP_OK));
        whole->traits.layout = folded->traits.layout; /* the rules of collectives need the layout */
        cr_expect(eq(int, rp_program_check(whole), RP_OK), "%s", schedules[i]);
        cr_expect(eq(u32, whole->gpu_count, folded->gpu_count * each));
        uint64_t sequences = 0;
        for (uint32_t m = 0; m < whole->microbatch_count; m++) {
            sequences += whole->sequences[m];
        }
        cr_expect(eq(u64, sequences, 8 * work.decided.layout.data_parallel));
        rp_program_destroy(folded);
        rp_test_arena_again();
    }
}
