/* --attention: the choice of the library for attention's forward (exec/gpu/attention.c), on a
 * machine of threads. */
#include "common/base/log.h"
#include "exec/gpu/driver.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/fake/cuda.h"
#include "tests/support/gpu_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_gpu_end(arena);
}

TestSuite(exec_attention, .init = begin, .fini = end, .timeout = 120);

/* Report and counts of a run, taken before its devices are given back. */
static struct {
    char by[32];
    char why[160];
    double own_s;
    double cudnn_s;
    uint32_t plans, trials, planned;
} last;

static void detach(rpexec_devices *devices)
{
    rpexec_attention_report report;
    memset(&last, 0, sizeof last);
    if (devices != NULL) {
        rpexec_gpu_driver.attention(devices, &report);
        snprintf(last.by, sizeof last.by, "%s", report.by);
        snprintf(last.why, sizeof last.why, "%s", report.why != NULL ? report.why : "");
        last.own_s = report.own_s;
        last.cudnn_s = report.cudnn_s;
        last.plans = emulator_counted(EMULATED_PLANS);
        last.trials = emulator_counted(EMULATED_TRIALS);
        last.planned = emulator_counted(EMULATED_PLANNED);
    }
    rpexec_gpu_detach(devices);
}

static rp_status run(rp_fake_cudnn cudnn, bool on_first, rpexec_attention_by by, uint32_t gpus,
                     char messages[static 2048])
{
    const emulated_machine machine = {.devices = (int)gpus, .peers = true};
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("1f1b", gpus, 4, 2);
    rpexec_driver_type type = *rp_fake_cuda_driver(&machine);
    rp_test_run got;
    const rp_test_twist twist = {.driver_type = &type, .devices = {.attention = by}};
    rp_fake_give_cudnn(cudnn, on_first);
    type.detach = detach;
    messages[0] = '\0';
    rp_log_capture_begin(messages, 2048);
    rp_status status = rp_test_execute(arena, &config, RP_TEST_GPU_SEQ_LEN, &work, &twist, &got);
    rp_log_capture_end();
    return status;
}

Test(exec_attention, it_is_chosen_for_all_gpus_by_what_all_of_them_find)
{
    enum { OWN = RPEXEC_ATTENTION_OWN, AUTO = RPEXEC_ATTENTION_AUTO };
    enum { CUDNN = RPEXEC_ATTENTION_CUDNN };
    static const struct {
        rp_fake_cudnn cudnn;
        int by;
        uint32_t gpus;
        rp_status status;
        const char *used; /* if the status is RP_OK */
        const char *why;  /* in the report, or in the reason of the refusal */
        uint32_t trials;
        bool timed;
        bool on_first;
    } cases[] = {
        {RP_FAKE_CUDNN_FASTER, OWN, 2, RP_OK, "own", "", 0, false, false},
        {RP_FAKE_CUDNN_FASTER, AUTO, 2, RP_OK, "cudnn 9.99.0", "", 2, true, false},
        {RP_FAKE_CUDNN_FASTER, AUTO, 1, RP_OK, "cudnn 9.99.0", "", 1, true, false},
        {RP_FAKE_CUDNN_FASTER, CUDNN, 2, RP_OK, "cudnn 9.99.0", "", 2, true, false},
        {RP_FAKE_CUDNN_SLOWER, AUTO, 1, RP_OK, "own", "cuDNN is not faster", 1, true, false},
        {RP_FAKE_CUDNN_SLOWER, CUDNN, 1, RP_OK, "cudnn 9.99.0", "", 1, true, false},
        /* The first GPU's times decide. */
        {RP_FAKE_CUDNN_SLOWER, AUTO, 2, RP_OK, "cudnn 9.99.0", "", 2, true, false},
        /* A failure on the last GPU decides for all GPUs. */
        {RP_FAKE_CUDNN_DIFFERS, AUTO, 2, RP_OK, "own", "our own by 1.5 times", 2, true, false},
        {RP_FAKE_CUDNN_DIFFERS, CUDNN, 2, RP_USAGE, "", "our own by 1.5 times", 2, true, false},
        {RP_FAKE_CUDNN_DIFFERS, AUTO, 2, RP_OK, "own", "our own by 1.5 times", 2, true, true},
        {RP_FAKE_CUDNN_NAN, AUTO, 2, RP_OK, "own", "our own by nan times", 2, true, true},
        {RP_FAKE_CUDNN_RESTLESS, AUTO, 2, RP_OK, "own", "differ in bits", 2, true, true},
        {RP_FAKE_CUDNN_SLOWER, AUTO, 2, RP_OK, "own", "cuDNN is not faster", 2, true, true},
        {RP_FAKE_CUDNN_RESTLESS, AUTO, 3, RP_OK, "own", "differ in bits", 3, true, false},
        {RP_FAKE_CUDNN_RESTLESS, CUDNN, 2, RP_USAGE, "", "differ in bits", 2, true, false},
        {RP_FAKE_CUDNN_NAN, AUTO, 3, RP_OK, "own", "our own by nan times", 3, true, false},
        {RP_FAKE_CUDNN_NAN, CUDNN, 1, RP_USAGE, "", "our own by nan times", 1, true, false},
        {RP_FAKE_CUDNN_NO_SHAPE, AUTO, 2, RP_OK, "own", "no engine for this shape", 1, false,
         false},
        {RP_FAKE_CUDNN_NO_SHAPE, CUDNN, 2, RP_USAGE, "",
         "--attention cudnn: the fake has no engine for this shape; valid here are own and auto", 1,
         false, false},
        {RP_FAKE_CUDNN_FAILS, AUTO, 2, RP_OK, "own", "the fake's trial has failed", 2, false,
         false},
        {RP_FAKE_CUDNN_FAILS, CUDNN, 2, RP_USAGE, "", "the fake's trial has failed", 2, false,
         false},
        {RP_FAKE_CUDNN_ABSENT, AUTO, 2, RP_OK, "own", "the fake has no cuDNN", 0, false, false},
        {RP_FAKE_CUDNN_ABSENT, OWN, 2, RP_OK, "own", "", 0, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char messages[2048];
        rp_status status = run(cases[i].cudnn, cases[i].on_first, (rpexec_attention_by)cases[i].by,
                               cases[i].gpus, messages);
        cr_expect(eq(int, status, cases[i].status), "case %zu: %s", i, messages);
        bool by_cudnn = status == RP_OK && strcmp(cases[i].used, "own") != 0;
        const char *said = status == RP_OK ? last.why : messages;
        cr_expect(status != RP_OK || strcmp(last.by, cases[i].used) == 0, "case %zu: %s", i,
                  last.by);
        bool right = cases[i].why[0] == '\0' ? said[0] == '\0' : strstr(said, cases[i].why) != NULL;
        cr_expect(right, "case %zu: %s", i, said);
        cr_expect(eq(u32, last.trials, cases[i].trials), "case %zu", i);
        cr_expect(status != RP_OK || last.planned == (by_cudnn ? cases[i].gpus : 0),
                  "case %zu: %u lanes", i, last.planned);
        cr_expect(eq(int, !isnan(last.own_s) && !isnan(last.cudnn_s), cases[i].timed), "case %zu",
                  i);
    }
}

Test(exec_attention, what_can_be_refused_is_refused_before_there_is_a_program)
{
    const emulated_machine machine = {.devices = 1};
    const rpexec_driver_type *type = rp_fake_cuda_driver(&machine);
    const rpexec_devices_config config = {.gpus = 1, .attention = RPEXEC_ATTENTION_CUDNN};
    rpexec_devices *devices = NULL;
    uint64_t bytes = 0;
    char messages[2048] = "";
    rp_log_capture_begin(messages, sizeof messages);
    cr_expect(eq(int, type->attach(&config, &devices, &bytes), RP_USAGE));
    rp_log_capture_end();
    cr_expect(strstr(messages, "--attention cudnn: the fake has no cuDNN; valid here are own and "
                               "auto") != NULL,
              "%s", messages);
}

static rpexec_devices *held;

static rp_status attach_held(const rpexec_devices_config *config, rpexec_devices **devices_out,
                             uint64_t *bytes_out)
{
    (void)config;
    *devices_out = held;
    *bytes_out = 0;
    return RP_OK;
}

static void keep_held(rpexec_devices *devices)
{
    (void)devices;
}

/* Lanes that are opened again for more tokens get plans without another trial: the chosen library
 * stays. */
Test(exec_attention, later_programs_keep_the_choice)
{
    rp_model config = rp_test_small_decoder(4, true, true);
    const emulated_machine machine = {.devices = 2, .peers = true};
    const rpexec_driver_type *type = rp_fake_cuda_driver(&machine);
    rp_fake_give_cudnn(RP_FAKE_CUDNN_FASTER, false);
    const rpexec_devices_config devices_config = {.gpus = 2, .attention = RPEXEC_ATTENTION_AUTO};
    rpexec_attention_report report;
    uint64_t bytes = 0;
    cr_assert(eq(int, type->attach(&devices_config, &held, &bytes), RP_OK));
    for (uint32_t sequences = 1; sequences <= 3; sequences++) {
        rp_resolved work = rp_test_work("1f1b", 2, 4, 2);
        rp_test_run got;
        uint32_t plans = emulator_counted(EMULATED_PLANS);
        work.decided.microbatch_size = sequences;
        rpexec_driver_type kept = *type;
        kept.attach = attach_held;
        kept.detach = keep_held;
        const rp_test_twist twist = {.driver_type = &kept};
        cr_assert(eq(int, rp_test_execute(arena, &config, RP_TEST_GPU_SEQ_LEN, &work, &twist, &got),
                     RP_OK));
        cr_expect(eq(u32, emulator_counted(EMULATED_PLANS), plans + 2));
        cr_expect(eq(u32, emulator_counted(EMULATED_TRIALS), 2));
        cr_expect(eq(u32, emulator_counted(EMULATED_PLANNED), 2));
    }
    type->attention(held, &report);
    cr_expect(eq(str, (char *)report.by, "cudnn 9.99.0"));
    cr_expect(eq(dbl, report.own_s, 2e-3));
    cr_expect(eq(dbl, report.cudnn_s, 1e-3));
    type->detach(held);
}

/* Each size of microbatch has its own plan, and the trial is of the largest size. */
Test(exec_attention, every_size_of_microbatch_has_a_plan)
{
    static const uint32_t sequences[] = {1, 3, 1, 2};
    rp_model config = rp_test_small_decoder(4, true, true);
    const emulated_machine machine = {.devices = 2, .peers = true};
    rpexec_driver_type type = *rp_fake_cuda_driver(&machine);
    rp_resolved work = rp_test_work("1f1b", 2, 4, 2);
    rp_test_run got;
    const rp_test_twist twist = {.driver_type = &type,
                                 .devices = {.attention = RPEXEC_ATTENTION_CUDNN}};
    rp_fake_give_cudnn(RP_FAKE_CUDNN_FASTER, false);
    work.sequences = sequences;
    type.detach = detach;
    cr_assert(
        eq(int, rp_test_execute(arena, &config, RP_TEST_GPU_SEQ_LEN, &work, &twist, &got), RP_OK));
    cr_expect(eq(str, last.by, "cudnn 9.99.0"));
    cr_expect(eq(u32, last.plans, 2 * 3));
    cr_expect(eq(u32, last.trials, 2));
}
