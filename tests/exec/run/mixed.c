/* Training in bf16 and fp16: the same bits in every schedule that sums in the same order, close to
 * fp32, half the bytes; with fp16 also the scale of the loss, and steps that are skipped after an
 * overflow (executor.md section 3, 1 and 14; 1.8; 5.2). */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_LEN 17u
#define LAYERS 6u

TestSuite(exec_mixed, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 240);

static const rp_dtype halves[] = {RP_DTYPE_BF16, RP_DTYPE_F16};

static bool runs_all(void)
{
    return getenv("RP_LONG") != NULL;
}

static rp_resolved work_of(const char *schedule, uint32_t gpus, bool asynchronous)
{
    rp_resolved work = rp_test_work(schedule, gpus, 4, 3);
    work.decided.microbatch_size = 2;
    work.decided.asynchronous = asynchronous;
    return work;
}

/* Trains in plain loops. A run with resident weights is always synchronous. */
static void run_single(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist,
                       rp_test_run *run)
{
    rp_resolved plain = *work;
    plain.decided.asynchronous &= work->schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    cr_assert(
        eq(int, rp_test_single_from(rp_test_arena, config, SEQ_LEN, &plain, twist, run), RP_OK));
}

static bool same_scaler(const rpexec_state *a, const rpexec_state *b)
{
    return a->step == b->step && a->skipped == b->skipped && a->scaler.scale == b->scaler.scale &&
           a->scaler.next == b->scaler.next && a->scaler.clean == b->scaler.clean;
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void compare(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist)
{
    rp_test_run plain;
    rp_test_run run;
    /* This run goes first, since its driver limits OpenBLAS to a single thread; with more threads
     * large products are summed in another order. */
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, twist, &run), RP_OK));
    run_single(config, work, twist, &plain);
    cr_expect(rp_test_same(&run, &plain, work->decided.iterations) &&
                  same_scaler(&run.state, &plain.state),
              "%s on %u GPUs, %s, %s: other bits", work->schedule->name, work->gpus,
              rp_dtype_text(twist->dtype), work->decided.asynchronous ? "async" : "sync");
}

/* Sync and async; a plain run tries each schedule sync in one type and async in the other. */
Test(exec_mixed, schedules_train_alike)
{
    static const struct {
        const char *name;
        uint32_t gpus;
    } cases[] = {{"roundpipe", 1}, {"roundpipe", 3}, {"gpipe", 2},
                 {"1f1b", 3},      {"zbv", 2},       {"interleaved-1f1b", 2}};
    for (size_t d = 0; d < 2; d++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            bool offload = i < 2;
            /* With resident weights a tied table's sum is rounded once more. */
            rp_model config = rp_test_decoder(LAYERS, offload, true);
            rp_test_twist twist = {.dtype = halves[d], .delay_seed = i, .delay_us = 50};
            for (size_t asynchronous = 0; asynchronous < 2; asynchronous++) {
                rp_resolved work = work_of(cases[i].name, cases[i].gpus, asynchronous != 0);
                if (runs_all() || (d + i + asynchronous) % 2 == 0) {
                    compare(&config, &work, &twist);
                }
            }
        }
    }
}

/* The gradients of a step that is split into calls are uploaded and added to in 16 bits. */
Test(exec_mixed, split_steps_train_alike)
{
    rp_model config = rp_test_decoder(LAYERS, true, false);
    for (size_t d = 0; d < 2; d++) {
        rp_test_twist twist = {.dtype = halves[d]};
        rp_resolved work = work_of("roundpipe", 2, true);
        work.decided.accumulate = 2;
        work.decided.layer_grain = d == 0;
        compare(&config, &work, &twist);
    }
}

/* The head adds up two chunks of a single microbatch, in fp32 as well. */
Test(exec_mixed, chunks_of_the_loss_train_alike)
{
    rp_model config = rp_test_decoder(1, false, false);
    rp_test_twist twist = {.dtype = RP_DTYPE_BF16};
    rp_resolved work = work_of("roundpipe", 1, false);
    work.decided.iterations = work.decided.microbatches = 1;
    work.decided.microbatch_size = RPEXEC_LOSS_CHUNK_TOKENS / SEQ_LEN + 1;
    compare(&config, &work, &twist);
}

/* In 16 bits a chunk has as many tokens as the model is wide, within limits; in fp32 it has 512. */
Test(exec_mixed, chunks_are_as_long_as_the_model_is_wide)
{
    static const struct {
        uint32_t hidden;
        uint64_t tokens[2]; /* of 10,000: in fp32, in 16 bits */
    } cases[] = {{64, {512, 512}}, {768, {512, 768}}, {8192, {512, 4096}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rp_model config = {.hidden = cases[i].hidden};
        for (size_t d = 0; d < 2; d++) {
            const rpexec_model model = {.config = &config,
                                        .dtype = d == 0 ? RP_DTYPE_F32 : halves[0]};
            cr_expect(eq(u64, rpexec_loss_chunk(&model, 10000), cases[i].tokens[d]));
            cr_expect(eq(u64, rpexec_loss_chunk(&model, 100), 100));
        }
    }
}

Test(exec_mixed, long_chunks_of_the_loss_train_alike)
{
    rp_model config = rp_test_decoder(1, false, false);
    config.hidden = 768;
    rp_test_twist twist = {.dtype = RP_DTYPE_BF16};
    rp_resolved work = work_of("roundpipe", 1, false);
    work.decided.iterations = work.decided.microbatches = 1;
    work.decided.microbatch_size = config.hidden / SEQ_LEN + 1;
    compare(&config, &work, &twist);
}

/* Data-parallel systems sum over GPUs, so the order of the microbatches is different. */
Test(exec_mixed, data_parallel_systems_train_almost_alike)
{
    static const char *const names[] = {"zero2",        "zero3",         "fsdp",
                                        "zero-offload", "zero-infinity", "megatron-tp"};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rp_test_run plain;
        rp_test_run run;
        rp_test_twist twist = {.dtype = halves[i % 2]};
        rp_resolved work = work_of(names[i], 2, false);
        run_single(&config, &work, &twist, &plain);
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
        for (uint32_t t = 0; t < work.decided.iterations; t++) {
            cr_expect(fabs(run.losses[t] - plain.losses[t]) < 1e-3 * plain.losses[t], "%s: %g, %g",
                      names[i], run.losses[t], plain.losses[t]);
        }
        cr_expect(same_scaler(&run.state, &plain.state), "%s", names[i]);
    }
}

/* ---- close to fp32 --------------------------------------------------------------------------- */

/* Each tensor by itself: the root mean square of the error must be within the invariant's
 * tolerance, the errors of single elements within twice as much (the weights themselves have been
 * rounded), and the angle must be small. */
static void expect_close(const rp_test_run *run, const rp_test_run *right, double tolerance)
{
    for (uint32_t i = 0; i < right->model.layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(&right->model, i);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            const rpexec_tensor *t = &layer->tensors[k];
            uint64_t count = t->rows * t->columns;
            const float *a = run->state.gradients + run->state.offsets[i] + t->offset;
            const float *b = right->state.gradients + right->state.offsets[i] + t->offset;
            double aa = 0;
            double ab = 0;
            double bb = 0;
            for (uint64_t e = 0; e < count; e++) {
                aa += (double)a[e] * (double)a[e];
                ab += (double)a[e] * (double)b[e];
                bb += (double)b[e] * (double)b[e];
            }
            double rms = sqrt(bb / (double)count);
            double errors = 0;
            uint64_t wrong = 0;
            for (uint64_t e = 0; e < count; e++) {
                double error = fabs((double)a[e] - (double)b[e]);
                errors += error * error;
                wrong += error <= 2 * tolerance * (rms + fabs((double)b[e])) ? 0 : 1;
            }
            cr_expect(sqrt(errors / (double)count) <= tolerance * rms, "layer %u, %s: %g", i,
                      t->name, sqrt(errors / (double)count) / rms);
            cr_expect(eq(u64, wrong, 0), "layer %u, %s: %lu of %lu elements", i, t->name, wrong,
                      count);
            cr_expect(ab > 0.999 * sqrt(aa * bb), "layer %u, %s: cosine %g", i, t->name,
                      ab / sqrt(aa * bb));
        }
    }
}

Test(exec_mixed, losses_and_gradients_are_close_to_fp32)
{
    static const double tolerances[] = {2e-2, 5e-3};
    rp_model config = rp_test_decoder(2, false, true);
    rp_resolved work = work_of("roundpipe", 1, false);
    rp_test_twist twist = {.dtype = RP_DTYPE_F32};
    rp_test_run right;
    rp_test_run run;
    work.decided.iterations = 1;
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &right), RP_OK));
    for (size_t d = 0; d < 2; d++) {
        twist.dtype = halves[d];
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
        cr_expect(eq(u64, run.state.skipped, 0));
        cr_expect(fabs(run.losses[0] - right.losses[0]) <= tolerances[d] * right.losses[0]);
        expect_close(&run, &right, tolerances[d]);
    }
}

/* ---- half the bytes -------------------------------------------------------------------------- */

Test(exec_mixed, all_but_token_ids_halves)
{
    /* Ids and labels keep their size. They are uploaded for the embedding's forward; in RoundPipe
     * also for the head and for the embedding's backward. */
    static const struct {
        const char *name;
        uint32_t ids;
    } cases[] = {{"roundpipe", 3}, {"1f1b", 1}};
    rp_model config = rp_test_decoder(LAYERS, false, true);
    for (size_t i = 0; i < 2; i++) {
        rp_resolved work = work_of(cases[i].name, 2, false);
        rp_test_twist twist = {.dtype = RP_DTYPE_F32};
        rp_test_run wide;
        rp_test_run half;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &wide), RP_OK));
        twist.dtype = RP_DTYPE_BF16;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &half), RP_OK));
        cr_expect(eq(u64, 2 * half.downloaded_bytes, wide.downloaded_bytes));
        uint64_t tokens = (uint64_t)work.decided.iterations * work.decided.microbatches *
                          work.decided.microbatch_size * SEQ_LEN * sizeof(int32_t);
        cr_expect(eq(u64, 2 * half.uploaded_bytes - wide.uploaded_bytes, cases[i].ids * tokens));
        cr_expect(half.most_bytes < wide.most_bytes);
    }
}

/* ---- the scale of the loss ------------------------------------------------------------------- */

Test(exec_mixed, the_scale_halves_doubles_and_stays_in_its_range)
{
    rpexec_scaler s = rpexec_scaler_initial(RP_DTYPE_F16);
    cr_expect(eq(flt, s.scale, 65536.0f));
    cr_expect(eq(flt, s.next, 65536.0f));
    for (int i = 0; i < 1999; i++) {
        rpexec_scaler_step(&s, false);
    }
    cr_expect(eq(flt, s.scale, 65536.0f));
    rpexec_scaler_step(&s, true); /* the 1999 steps without overflow count for nothing */
    cr_expect(eq(flt, s.scale, 32768.0f));
    for (int i = 0; i < 2000; i++) {
        cr_expect(eq(flt, s.scale, 32768.0f));
        rpexec_scaler_step(&s, false);
    }
    cr_expect(eq(flt, s.scale, 65536.0f));
    cr_expect(eq(u32, s.clean, 0));
    for (int i = 0; i < 20 * 2000; i++) {
        rpexec_scaler_step(&s, false);
    }
    cr_expect(eq(flt, s.scale, 0x1p24f));
    for (int i = 0; i < 50; i++) {
        rpexec_scaler_step(&s, true);
    }
    cr_expect(eq(flt, s.scale, 1.0f));
    cr_expect(eq(flt, rpexec_scaler_initial(RP_DTYPE_BF16).scale, 1.0f));
}

Test(exec_mixed, overflows_are_found_wherever_they_are)
{
    enum { COUNT = 4096 + 33 };
    static uint16_t values[COUNT];
    static float to[COUNT];
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7e00, 0xfe01};
    static const size_t places[] = {0, 17, 4095, 4096, COUNT - 1};
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = i % 2 == 0 ? 0x7bff : 0x8001; /* the largest and the smallest value */
    }
    cr_expect(rpexec_all_finite(RP_DTYPE_F16, COUNT, values));
    cr_expect(rpexec_unscale(RP_DTYPE_F16, COUNT, values, 0x1p16f, false, to));
    cr_expect(eq(flt, to[COUNT - 1], 65504.0f * 0x1p-16f));
    cr_expect(eq(flt, to[1], -0x1p-24f * 0x1p-16f));
    for (size_t k = 0; k < 4 * 5; k++) {
        uint16_t good = values[places[k / 4]];
        values[places[k / 4]] = bad[k % 4];
        cr_expect(not(rpexec_all_finite(RP_DTYPE_F16, COUNT, values)));
        cr_expect(not(rpexec_unscale(RP_DTYPE_F16, COUNT, values, 8, false, to)));
        values[places[k / 4]] = good;
    }
}

/* Begins a run with this scale, and with the same tokens in every iteration. */
static void prepare(void *context, rp_arena *in, rp_test_run *run)
{
    (void)in;
    const float *scale = context;
    run->state.scaler = (rpexec_scaler){.scale = *scale, .next = *scale};
    for (uint32_t i = 1; i < run->iterations; i++) {
        run->batches[i] = run->batches[0];
    }
}

/* @return the smallest scale with which the first step overflows */
static float first_overflow(const rp_model *config, const rp_resolved *work)
{
    rp_resolved one = *work;
    one.decided.iterations = 1;
    for (float scale = 0x1p10f; scale <= 0x1p24f; scale *= 2) {
        rp_test_run run;
        rp_test_twist twist = {.dtype = RP_DTYPE_F16, .prepare = prepare, .context = &scale};
        run_single(config, &one, &twist, &run);
        if (run.state.skipped == 1) {
            return scale;
        }
    }
    cr_assert(false, "no scale overflows");
    return 0;
}

/* 14: an overflow changes no parameter, no moment and no step count; the scale halves, slots are
 * cleared, and the next step proceeds. The steps after it equal a run that begins with the halved
 * scale. With the asynchronous optimizer the second step still has the old scale. */
static void check_skips(const char *schedule, uint32_t gpus, bool asynchronous, float overflow)
{
    rp_model config = rp_test_decoder(LAYERS, false, true);
    rp_resolved work = work_of(schedule, gpus, asynchronous);
    bool late = asynchronous && work.schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    float half = overflow / 2;
    rp_test_twist twist = {.dtype = RP_DTYPE_F16, .prepare = prepare, .context = &overflow};
    rp_test_run untouched;
    rp_test_run skipped;
    rp_test_run run;
    rp_test_run fresh;
    uint64_t values;
    /* After overflows only, the state is unchanged. */
    work.decided.iterations = late ? 2 : 1;
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &skipped), RP_OK));
    cr_assert(eq(int, rpexec_state_create(&skipped.model, rp_test_arena, &untouched.state), RP_OK));
    rpexec_state_initialise(&untouched.state, 1, true);
    values = skipped.state.offsets[skipped.model.layer_count];
    cr_expect(eq(u64, skipped.state.step, 0), "%s", schedule);
    cr_expect(eq(u64, skipped.state.skipped, work.decided.iterations));
    cr_expect(eq(flt, skipped.state.scaler.scale, late ? overflow / 4 : half));
    cr_expect(eq(flt, skipped.state.scaler.next, half));
    cr_expect(memcmp(skipped.state.master, untouched.state.master, 4 * values) == 0);
    cr_expect(memcmp(skipped.state.working, untouched.state.working, 2 * values) == 0);
    cr_expect(memcmp(skipped.state.m, untouched.state.m, 4 * values) == 0);
    cr_expect(memcmp(skipped.state.v, untouched.state.v, 4 * values) == 0);
    /* The further step equals the first step of a run with half the scale. */
    work.decided.iterations++;
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
    cr_expect(eq(u64, run.state.step, 1), "%s", schedule);
    cr_expect(eq(u64, run.state.skipped, work.decided.iterations - 1));
    rp_resolved one = work;
    one.decided.iterations = 1;
    twist.context = &half;
    run_single(&config, &one, &twist, &fresh);
    cr_expect(eq(u64, fresh.state.step, 1));
    run.losses += work.decided.iterations - 1;
    run.norms += work.decided.iterations - 1;
    cr_expect(rp_test_same(&run, &fresh, 1), "%s on %u GPUs, %s: the step after an overflow",
              schedule, gpus, asynchronous ? "async" : "sync");
    /* Plain loops skip the same steps. */
    twist.context = &overflow;
    work.decided.iterations = 6;
    compare(&config, &work, &twist);
}

Test(exec_mixed, an_overflow_skips_the_step)
{
    static const struct {
        const char *name;
        uint32_t gpus;
    } cases[] = {{"roundpipe", 2}, {"1f1b", 3}, {"zbv", 2}};
    rp_model config = rp_test_decoder(LAYERS, false, true);
    rp_resolved work = work_of("roundpipe", 1, false);
    float overflow = first_overflow(&config, &work);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (runs_all() || i != 1) {
            check_skips(cases[i].name, cases[i].gpus, false, overflow);
        }
        if (runs_all() || i != 2) {
            check_skips(cases[i].name, cases[i].gpus, true, overflow);
        }
    }
}

/* Ranks of data-parallel systems agree as well, on GPUs and on the host. */
Test(exec_mixed, ranks_agree_on_skipping)
{
    static const char *const names[] = {"zero2",        "zero3",         "fsdp",
                                        "zero-offload", "zero-infinity", "megatron-tp"};
    rp_model config = rp_test_decoder(LAYERS, true, true);
    float scale = 0x1p24f;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rp_test_run run;
        rp_test_twist twist = {.dtype = RP_DTYPE_F16, .prepare = prepare, .context = &scale};
        rp_resolved work = work_of(names[i], 2, false);
        work.decided.iterations = 10;
        cr_assert(
            eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
        cr_expect(run.state.skipped > 0 && run.state.step > 0, "%s", names[i]);
        cr_expect(eq(u64, rpexec_state_iterations(&run.state), 10));
        cr_expect(eq(flt, run.state.scaler.scale, ldexpf(scale, -(int)run.state.skipped)));
        cr_expect(run.losses[9] < run.losses[0], "%s: %g after %g", names[i], run.losses[9],
                  run.losses[0]);
    }
}

/* bf16 has fp32's range: gradients are not scaled and not checked, and a NaN passes through. */
Test(exec_mixed, bf16_skips_nothing)
{
    static uint16_t nan = 0x7fc0;
    float to;
    cr_expect(not(rpexec_scaler_needed(RP_DTYPE_BF16)));
    cr_expect(rpexec_unscale(RP_DTYPE_BF16, 1, &nan, 1, false, &to));
    cr_expect(isnan(to));
}

/* A GPU that had to do work of the next step before it could agree would wait for ever. No schedule
 * of the executor is like that, so the test makes such a program. */
Test(exec_mixed, gpus_that_cannot_agree_are_refused)
{
    rp_model config = rp_test_decoder(LAYERS, false, true);
    rp_test_twist twist = {.dtype = RP_DTYPE_F16, .observe = true};
    rp_resolved work = work_of("1f1b", 2, false);
    rp_test_run run;
    rpexec_plan plan;
    char message[512] = "";
    cr_assert(
        eq(int, rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
    cr_assert(eq(int,
                 rpexec_plan_create(run.program, &run.model, &(rpexec_plan_limits){0},
                                    rp_test_arena, &plan, NULL),
                 RP_OK));
    for (uint32_t i = 0; i < run.program->op_count; i++) {
        if (run.program->ops[i].kind == RP_OP_BACKWARD && run.program->ops[i].iteration == 0) {
            run.program->ops[i].iteration = 1;
            break;
        }
    }
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpexec_plan_create(run.program, &run.model, &(rpexec_plan_limits){0},
                                          rp_test_arena, &plan, NULL);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_USAGE));
    cr_expect(strstr(message, "--dtype fp16: all GPUs agree") != NULL, "%s", message);
    cr_expect(strstr(message, "after work of another step") != NULL, "%s", message);
    rp_test_forget(&run);
}
