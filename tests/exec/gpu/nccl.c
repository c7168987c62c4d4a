/* The GPU driver with NCCL, which exec/cuda/emulator/machine plays with threads that really wait
 * for each other: the transport of each exchange, the same training as with copies, and the end of
 * runs that fail. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/gpu_case.h"

#include <criterion/criterion.h>
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

TestSuite(exec_nccl, .init = begin, .fini = end, .timeout = 120);

static const char *const sharded[] = {"zero2",        "zero3",         "fsdp",
                                      "zero-offload", "zero-infinity", "fsdp-offload"};

/* ---- the same training ----------------------------------------------------------------------- */

/* Like rp_test_gpu_compare, and graphs must be launched if and only if the run asks for them. */
static void compare(const rp_model *config, const rp_resolved *work,
                    const emulated_machine *machine, const rp_test_twist *twist)
{
    rp_test_gpu_compare(arena, config, work, machine, *twist);
    bool launched = emulator_counted(EMULATED_GRAPHS) > 0; /* counted since the driver was made */
    cr_expect(launched == twist->devices.graphs, "%s, %u GPUs", work->schedule->name, work->gpus);
}

/* Shares of equal and of different lengths, each storage type, and random delays everywhere: sums
 * in the order of the ranks have the bits of the host backend. */
Test(exec_nccl, collectives_give_the_bits_of_the_ranks_own)
{
    for (uint32_t i = 0; i < 20; i++) {
        rp_model config = rp_test_small_decoder(3, i % 2 == 0, i % 3 == 0);
        uint32_t gpus = 1 + (i + i / 5) % 4; /* also 1 rank: all that 1 GPU can try */
        bool graphs = i % 4 > 1;
        rp_resolved work = rp_test_work(sharded[i % 5], gpus, 2 * gpus, graphs ? 4 : 2);
        const emulated_machine machine = {.devices = 4,
                                          .peers = i % 2 == 1,
                                          .seed = 50 + i,
                                          .delay_us = i % 4 == 3 ? 0 : 600,
                                          .nccl = true};
        const rp_test_twist twist = {
            .dtype = (rp_dtype)(i % 3),
            .delay_seed = i,
            .delay_us = i % 2 == 0 ? 200 : 0,
            .devices = {.graphs = graphs,
                        .transport = i < 10 ? RPEXEC_TRANSPORT_NCCL : RPEXEC_TRANSPORT_AUTO,
                        .collectives = true}};
        compare(&config, &work, &machine, &twist);
        cr_expect(eq(int, emulator_counted(EMULATED_KERNELS) > 0, gpus > 1 || i < 10),
                  "%s, %u GPUs", work.schedule->name, gpus);
    }
}

/* Boundary tensors and the sum of a tied table, with peers and without. */
Test(exec_nccl, sends_give_the_bits_of_copies)
{
    static const char *const names[] = {"1f1b", "zbv", "gpipe", "interleaved-1f1b", "dualpipev"};
    for (uint32_t i = 0; i < 15; i++) {
        rp_model config = rp_test_small_decoder(6, i % 2 == 0, true);
        bool graphs = i % 4 > 1;
        rp_resolved work = rp_test_work(names[i % 5], 2 + i % 2, 6, graphs ? 4 : 2);
        const emulated_machine machine = {
            .devices = 3, .peers = i % 3 == 1, .seed = 80 + i, .delay_us = 700, .nccl = true};
        const rp_test_twist twist = {
            .dtype = (rp_dtype)(i % 3),
            .delay_seed = i,
            .delay_us = i % 3 == 0 ? 200 : 0,
            .devices = {.graphs = graphs, .transport = RPEXEC_TRANSPORT_NCCL}};
        work.peer_gpus = UINT32_MAX;
        compare(&config, &work, &machine, &twist);
        cr_expect(gt(u32, emulator_counted(EMULATED_KERNELS), 6 * 2), "%s is without NCCL",
                  names[i % 5]);
    }
}

/* A ring rounds its sum after every addition. Two ranks add once and get the same bits. With more
 * ranks the loss of the first step is the same, since no sum has entered it yet, and gradients
 * differ by roundings of the type. */
Test(exec_nccl, sums_of_a_ring_are_within_roundings)
{
    static const double unit[] = {0x1p-24, 0x1p-11, 0x1p-8}; /* fp32, fp16, bf16 */
    rp_model config = rp_test_small_decoder(3, true, true);
    cr_assert(RP_DTYPE_F32 == 0 && RP_DTYPE_F16 == 1 && RP_DTYPE_BF16 == 2);
    for (uint32_t i = 0; i < 15; i++) {
        rp_test_run plain;
        rp_test_run run;
        rp_dtype dtype = (rp_dtype)(i / 5);
        rp_resolved work = rp_test_work(sharded[i % 5], 4, 8, 1);
        const emulated_machine machine = {
            .devices = 4, .seed = i, .delay_us = 200, .nccl = true, .nccl_rounds = true};
        rp_test_twist twist = {.dtype = dtype};
        cr_assert(eq(int,
                     rp_test_execute(arena, &config, RP_TEST_GPU_SEQ_LEN, &work, &twist, &plain),
                     RP_OK));
        twist.devices.transport = RPEXEC_TRANSPORT_NCCL;
        twist.driver_type = rp_fake_cuda_driver(&machine);
        cr_assert(eq(int, rp_test_execute(arena, &config, RP_TEST_GPU_SEQ_LEN, &work, &twist, &run),
                     RP_OK));
        cr_expect(eq(dbl, run.losses[0], plain.losses[0]));
        double distance = rp_test_distance(&run, &plain);
        /* There are 3 roundings, each of a partial sum that may be several times the final sum. For
         * comparison, --check allows 2 sqrt(8) units of a whole tensor's rms; this is the worst
         * element. */
        cr_expect(le(dbl, distance, 3 * 4 * unit[dtype]), "%s: %g", sharded[i % 5], distance);
        cr_expect(gt(dbl, distance, 0), "%s: a ring would round", sharded[i % 5]);
        work = rp_test_work(sharded[i % 5], 2, 4, 1);
        rp_test_gpu_compare(arena, &config, &work, &machine, twist);
    }
}

/* ---- transports of the exchanges ------------------------------------------------------------- */

static rp_status attach(const emulated_machine *machine, const rpexec_devices_config *config,
                        char transport[static 64], char messages[static 2048])
{
    const rpexec_driver_type *type = rp_fake_cuda_driver(machine);
    rpexec_devices *devices = NULL;
    uint64_t bytes = 0;
    messages[0] = transport[0] = '\0';
    rp_log_capture_begin(messages, 2048);
    rp_status status = type->attach(config, &devices, &bytes);
    rp_log_capture_end();
    if (status == RP_OK) {
        strcpy(transport, type->transport(devices));
    }
    type->detach(devices);
    return status;
}

Test(exec_nccl, the_transport_is_chosen_by_what_there_is)
{
    static const emulated_machine full = {.devices = 4, .peers = true, .nccl = true};
    static const emulated_machine apart = {.devices = 4, .nccl = true};
    static const emulated_machine without = {.devices = 4, .peers = true};
    static const emulated_machine broken = {
        .devices = 4, .peers = true, .nccl = true, .nccl_refuses = true};
    const struct {
        const emulated_machine *machine;
        rpexec_devices_config config;
        rp_status status;
        const char *transport;
        const char *message; /* "": no message at all */
    } cases[] = {
        {&full, {.gpus = 4, .collectives = true}, RP_OK, "nccl 2.99.0", ""},
        {&full, {.gpus = 4}, RP_OK, "copy", ""},
        {&full, {.gpus = 1, .collectives = true}, RP_OK, "copy", ""},
        {&full, {.gpus = 4, .is_virtual = true, .collectives = true}, RP_OK, "copy", NULL},
        {&apart, {.gpus = 4}, RP_OK, "staged", ""},
        {&apart, {.gpus = 4, .collectives = true}, RP_OK, "nccl 2.99.0", ""},
        {&without,
         {.gpus = 4, .collectives = true},
         RP_OK,
         "copy",
         "collectives are copies and additions: the machine has no NCCL"},
        {&broken, {.gpus = 4, .collectives = true}, RP_OK, "copy", "NCCL makes no communicators"},
        {&full,
         {.gpus = 4, .transport = RPEXEC_TRANSPORT_COPY, .collectives = true},
         RP_OK,
         "copy",
         ""},
        {&full,
         {.gpus = 4, .transport = RPEXEC_TRANSPORT_STAGED, .collectives = true},
         RP_OK,
         "staged",
         ""},
        {&full, {.gpus = 4, .transport = RPEXEC_TRANSPORT_NCCL}, RP_OK, "nccl 2.99.0", ""},
        {&full, {.gpus = 1, .transport = RPEXEC_TRANSPORT_NCCL}, RP_OK, "nccl 2.99.0", ""},
        {&full,
         {.gpus = 2, .is_virtual = true, .transport = RPEXEC_TRANSPORT_NCCL},
         RP_USAGE,
         "",
         "virtual GPUs share a device, which NCCL takes once per communicator; valid are auto, "
         "copy and staged"},
        {&without,
         {.gpus = 2, .transport = RPEXEC_TRANSPORT_NCCL},
         RP_USAGE,
         "",
         "--transport nccl: the machine has no NCCL; valid here are auto, copy and staged"},
        {&broken,
         {.gpus = 2, .transport = RPEXEC_TRANSPORT_NCCL},
         RP_TOOL,
         "",
         "ncclCommInitAll: system error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char transport[64];
        char messages[2048];
        cr_expect(eq(int, attach(cases[i].machine, &cases[i].config, transport, messages),
                     cases[i].status),
                  "case %zu: %s", i, messages);
        cr_expect(eq(str, transport, (char *)cases[i].transport), "case %zu", i);
        cr_expect(cases[i].message == NULL ||
                      (*cases[i].message == '\0' ? *messages == '\0'
                                                 : strstr(messages, cases[i].message) != NULL),
                  "case %zu: %s", i, messages);
    }
}

/* With AUTO the SENDs of a pipeline stay copies. */
Test(exec_nccl, sends_are_copies_unless_forced)
{
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("1f1b", 2, 4, 2);
    const emulated_machine machine = {.devices = 2, .peers = true, .nccl = true};
    work.peer_gpus = UINT32_MAX;
    rp_test_gpu_compare(arena, &config, &work, &machine,
                        (rp_test_twist){.devices = {.collectives = true}});
    cr_expect(eq(u32, emulator_counted(EMULATED_KERNELS), 0));
}

/* ---- failures -------------------------------------------------------------------------------- */

static rp_status fail(const char *schedule, const emulated_machine *machine, rp_test_twist twist,
                      char messages[static 4096])
{
    rp_test_run run;
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work(schedule, 3, 6, 2);
    work.peer_gpus = rp_is_data_parallel(&work.schedule->traits) ? 0 : UINT32_MAX;
    twist.driver_type = rp_fake_cuda_driver(machine);
    twist.devices.transport = RPEXEC_TRANSPORT_NCCL;
    messages[0] = '\0';
    rp_log_capture_begin(messages, 4096);
    rp_status status = rp_test_execute(arena, &config, RP_TEST_GPU_SEQ_LEN, &work, &twist, &run);
    rp_log_capture_end();
    return status;
}

/* An op of a single rank, or a copy, fails while the others are about to meet that rank in NCCL. */
Test(exec_nccl, a_failure_in_one_rank_ends_the_run)
{
    static const rp_op_kind kinds[] = {RP_OP_ALL_GATHER, RP_OP_REDUCE_SCATTER, RP_OP_FORWARD,
                                       RP_OP_BACKWARD};
    char messages[4096];
    for (uint32_t i = 0; i < 8; i++) {
        const emulated_machine machine = {.devices = 3, .seed = i, .delay_us = 300, .nccl = true};
        const rp_test_twist twist = {.fails = true, .fail_kind = kinds[i % 4], .watchdog_s = 30};
        cr_expect(eq(int, fail("fsdp", &machine, twist, messages), RP_TOOL), "%s", messages);
        cr_expect(strstr(messages, " failed (") != NULL, "%s", messages);
    }
    for (uint32_t i = 0; i < 6; i++) {
        const emulated_machine machine = {
            .devices = 3, .seed = i, .delay_us = 300, .nccl = true, .fail_at = 3 + 5 * i};
        cr_expect(eq(int,
                     fail(i % 2 == 0 ? "zero-infinity" : "1f1b", &machine,
                          (rp_test_twist){.watchdog_s = 30}, messages),
                     RP_TOOL),
                  "%s", messages);
        cr_expect(strstr(messages, "cudaMemcpyAsync: an illegal memory access") != NULL, "%s",
                  messages);
    }
}

Test(exec_nccl, a_failing_call_ends_the_run)
{
    static const char *const names[] = {"zero2", "1f1b", "fsdp"};
    char messages[4096];
    for (uint32_t i = 0; i < 9; i++) {
        const emulated_machine machine = {.devices = 3,
                                          .seed = i,
                                          .delay_us = 200,
                                          .nccl = true,
                                          .nccl_fail_at = 1 + 2 * (i / 3)};
        cr_expect(eq(int, fail(names[i % 3], &machine, (rp_test_twist){.watchdog_s = 30}, messages),
                     RP_TOOL),
                  "%s: %s", names[i % 3], messages);
        cr_expect(strstr(messages, "ncclGroupEnd: system error") != NULL, "%s", messages);
    }
}

/* A kernel never begins, and the other ranks wait for it on their GPUs. Either NCCL reports the
 * error, or the watchdog gives up. In both cases every rank is let go, and all resources are given
 * back. */
Test(exec_nccl, a_gpu_that_never_comes_is_given_up)
{
    static const char *const names[] = {"fsdp", "1f1b"};
    char messages[4096];
    for (uint32_t i = 0; i < 4; i++) {
        bool says = i % 2 == 0;
        const emulated_machine machine = {.devices = 3,
                                          .seed = i,
                                          .delay_us = 200,
                                          .nccl = true,
                                          .nccl_lose_at = says ? 0 : 4 + i,
                                          .nccl_error_at = says ? 4 + i : 0};
        rp_status status =
            fail(names[i / 2], &machine, (rp_test_twist){.watchdog_s = says ? 60 : 1}, messages);
        cr_expect(eq(int, status, says ? RP_TOOL : RP_BROKEN), "%s: %s", names[i / 2], messages);
        cr_expect(strstr(messages, says ? "ncclCommGetAsyncError: remote error"
                                        : "nothing has ended for 1 s") != NULL,
                  "%s", messages);
        cr_expect(says || strstr(messages, "waits for its GPU: it is enqueued") != NULL, "%s",
                  messages);
    }
}
