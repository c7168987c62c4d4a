/* Tensor parallelism in the GPU driver, on a machine made of threads: ranks meet in the middle of
 * ops that their streams have begun, and the result has the host backend's bits. */
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

TestSuite(exec_gpu_slices, .init = begin, .fini = end, .timeout = 120);

/* Four ranks share two kv heads. */
static rp_model decoder_of(uint32_t number)
{
    rp_model m = rp_test_small_decoder(3, number % 2 == 0, number % 3 != 0);
    m.heads = 4;
    m.kv_heads = 2;
    if (number % 5 == 1) {
        m.experts = 4;
        m.active_experts = 2;
    }
    if (number % 5 == 2) {
        rp_model_set_lora_rank(&m, 2);
    }
    return m;
}

static rp_resolved work_of(uint32_t number)
{
    uint32_t gpus = number % 4 == 3 ? 4 : 2;
    rp_resolved work = rp_test_work("megatron-tp", gpus, 2 * gpus, 2 + number % 2 * 2);
    work.decided.layer_grain = number % 3 == 1;
    work.recompute = number % 3 == 2 ? RP_RECOMPUTE_NONE : RP_RECOMPUTE_WAIT;
    return work;
}

/* Devices with peer access and without, parts of a device, streams and threads that are late, and
 * copies over the host in small pieces. */
Test(exec_gpu_slices, late_streams_change_nothing)
{
    for (uint32_t i = 0; i < 12; i++) {
        rp_model config = decoder_of(i);
        rp_resolved work = work_of(i);
        const emulated_machine machine = {
            .devices = 4, .green = i % 3 == 0, .peers = i % 2 == 0, .seed = i, .delay_us = 700};
        const rp_test_twist twist = {
            .dtype = (rp_dtype)(i % 3),
            .delay_seed = i,
            .delay_us = i % 4 == 0 ? 300 : 0,
            .devices = {.is_virtual = i % 3 == 0,
                        .graphs = i % 4 == 1,
                        .transport = i % 5 == 0 ? RPEXEC_TRANSPORT_STAGED : RPEXEC_TRANSPORT_AUTO,
                        .stage_bytes = 100}};
        rp_test_gpu_compare(arena, &config, &work, &machine, twist);
    }
}

/* NCCL sums inside of an op by a single group of calls for all ranks, after all their streams have
 * come to that op. */
Test(exec_gpu_slices, nccl_sums_inside_of_ops)
{
    for (uint32_t i = 0; i < 8; i++) {
        rp_model config = decoder_of(i);
        rp_resolved work = work_of(i);
        const emulated_machine machine = {.devices = 4,
                                          .peers = i % 2 == 1,
                                          .seed = 30 + i,
                                          .delay_us = i % 4 == 3 ? 0 : 500,
                                          .nccl = true};
        const rp_test_twist twist = {
            .dtype = (rp_dtype)(i % 3),
            .delay_seed = i,
            .delay_us = i % 2 == 0 ? 200 : 0,
            .devices = {.graphs = i % 4 > 1,
                        .transport = i < 4 ? RPEXEC_TRANSPORT_NCCL : RPEXEC_TRANSPORT_AUTO,
                        .collectives = true}};
        rp_test_gpu_compare(arena, &config, &work, &machine, twist);
        cr_expect(gt(u32, emulator_counted(EMULATED_KERNELS), 0));
    }
}

/* Two copies of a pipeline of two stages, with tensor-parallel ranks and without: by copies, and by
 * NCCL with a communicator for each group. In the last cases sends go by NCCL as well, with a
 * further communicator of all GPUs. */
Test(exec_gpu_slices, layouts_give_the_bits_of_the_host)
{
    static const char *const names[] = {"1f1b", "zbv", "gpipe"};
    for (uint32_t i = 0; i < 6; i++) {
        rp_model config = decoder_of(3 * i);
        rp_resolved work = rp_test_work(names[i % 3], 2, 4, 2);
        work.decided.layout = (rp_layout){.tensor_parallel = 1 + i % 2, .data_parallel = 2};
        work.peer_gpus = UINT32_MAX;
        const emulated_machine machine = {.devices = 8,
                                          .peers = i % 2 == 1,
                                          .seed = 60 + i,
                                          .delay_us = i == 3 ? 0 : 500,
                                          .nccl = i > 1};
        const rp_test_twist twist = {
            .dtype = (rp_dtype)(i % 3),
            .delay_seed = i,
            .delay_us = i % 2 == 0 ? 200 : 0,
            .devices = {.graphs = i % 4 == 1,
                        .transport = i > 3 ? RPEXEC_TRANSPORT_NCCL : RPEXEC_TRANSPORT_AUTO,
                        .collectives = true}};
        rp_test_gpu_compare(arena, &config, &work, &machine, twist);
        cr_expect(eq(int, emulator_counted(EMULATED_KERNELS) > 0, i > 1), "%u", i);
    }
}

/* A rank fails while the other ranks' streams have begun the same op and wait inside of it. */
Test(exec_gpu_slices, failures_end_the_run)
{
    static const rp_op_kind kinds[] = {RP_OP_FORWARD, RP_OP_BACKWARD, RP_OP_UPDATE};
    for (uint32_t i = 0; i < 6; i++) {
        char messages[4096] = "";
        rp_test_run run;
        rp_model config = decoder_of(0);
        rp_resolved work = work_of(i % 2 == 0 ? 0 : 3);
        const emulated_machine machine = {.devices = 4, .peers = true, .seed = i, .nccl = i > 2};
        const rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine),
                                     .devices = {.collectives = i > 2},
                                     .fails = true,
                                     .fail_kind = kinds[i % 3]};
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status =
            rp_test_execute(arena, &config, RP_TEST_GPU_SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_TOOL), "%s", rp_op_kind_text(kinds[i % 3]));
        cr_expect(strstr(messages, "failed (GPU 0, stage ") != NULL, "%s", messages);
    }
}
