/* The GPU driver (exec/gpu) on a machine made of threads (tests/support/fake/cuda.h): every
 * schedule gives the same bits as the host backend, however late the streams are. */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"
#include "exec/gpu/turn.h"
#include "exec/run/rank_collective.h"
#include "exec/run/runs.h"
#include "exec/state/shard.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/gpu_case.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEQ_LEN RP_TEST_GPU_SEQ_LEN
#define STEPS 3u

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_gpu_end(arena);
}

TestSuite(exec_gpu, .init = begin, .fini = end, .timeout = 120);

/* Each schedule runs on one number of GPUs; with RP_LONG on 1, 2 and 4. */
Test(exec_gpu, all_schedules_give_the_bits_of_the_host_backend)
{
    bool all = getenv("RP_LONG") != NULL;
    rp_model config = rp_test_small_decoder(8, true, true);
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const char *why = NULL;
        config.heads = rp_cuts_layers(&rp_schedules[i]->traits) ? 4 : 2; /* a head for each rank */
        cr_assert(eq(int, rpexec_runs(rp_schedules[i], false, arena, &why), RP_OK));
        for (uint32_t gpus = 1; why == NULL && gpus <= 4; gpus *= 2) {
            if (!all && gpus != 1u << i % 3) {
                continue;
            }
            rp_resolved work = rp_test_work(rp_schedules[i]->name, gpus, 2 * gpus, STEPS);
            const emulated_machine machine = {.devices = 4, .peers = i % 2 == 0, .seed = i};
            rp_test_gpu_compare(arena, &config, &work, &machine, (rp_test_twist){0});
        }
    }
}

/* Streams stop for a while, and threads submit late: a missing wait between streams, or between
 * streams and the host, sooner or later shows as other bits. RP_LONG tries all cases. */
Test(exec_gpu, late_streams_change_nothing)
{
    static const char *const names[] = {"roundpipe", "1f1b",          "zbv",  "roundpipe-overlap",
                                        "zero2",     "zero-infinity", "fsdp", "interleaved-1f1b"};
    rp_model config = rp_test_small_decoder(6, true, true);
    for (uint32_t i = 0; i < 16; i += getenv("RP_LONG") != NULL ? 1 : 3) {
        rp_resolved work = rp_test_work(names[i % 8], 3, 6, 2);
        const emulated_machine machine = {
            .devices = 3, .green = i % 3 == 0, .peers = i % 2 == 0, .seed = i, .delay_us = 1500};
        rp_test_twist twist = {.dtype = i < 8 ? RP_DTYPE_F16 : RP_DTYPE_F32,
                               .delay_seed = i,
                               .delay_us = i % 4 == 0 ? 300 : 0,
                               .devices = {.is_virtual = i % 3 == 0,
                                           .transport = i % 5 == 0 ? RPEXEC_TRANSPORT_STAGED : 0}};
        work.decided.asynchronous = i % 8 == 0;
        work.decided.layer_grain = i == 8 || i == 3;
        work.decided.accumulate = i % 8 == 0 || i % 8 == 3 ? 2 : 1;
        work.peer_gpus = i % 8 == 1 || i % 8 == 7 ? UINT32_MAX : 0;
        rp_test_gpu_compare(arena, &config, &work, &machine, twist);
    }
}

/* A tied table on two GPUs, with peer access and without. */
Test(exec_gpu, tied_tables_are_summed_between_gpus)
{
    static const rp_dtype dtypes[] = {RP_DTYPE_F32, RP_DTYPE_BF16, RP_DTYPE_F16};
    rp_model config = rp_test_small_decoder(4, true, false);
    for (uint32_t i = 0; i < 6; i++) {
        rp_resolved work = rp_test_work("1f1b", 2, 4, STEPS);
        const emulated_machine machine = {
            .devices = 2, .peers = i < 3, .seed = 11 + i, .delay_us = 800};
        work.peer_gpus = UINT32_MAX;
        rp_test_gpu_compare(arena, &config, &work, &machine,
                            (rp_test_twist){.dtype = dtypes[i % 3]});
    }
}

/* Number of parts of the shares that all ranks sum, `chunk` elements at a time. */
static uint32_t parts_of(const rp_test_run *run, uint64_t chunk)
{
    const rp_program *p = run->program;
    uint32_t parts = 0;
    for (uint32_t op = 0; op < p->op_count; op++) {
        const rpexec_job *job = &run->plan.jobs[run->plan.tasks[op].job];
        if (p->ops[op].kind == RP_OP_REDUCE_SCATTER) {
            rpexec_pieces walk =
                rpexec_pieces_of(&run->model, job->begin, job->end, p->gpu_count, job->gpu);
            while (rpexec_pieces_next(&walk)) {
                parts += (uint32_t)((walk.share + chunk - 1) / chunk);
            }
        }
    }
    return parts;
}

/* Each part is fetched from 7 ranks, added 8 times and rounded. In a model of this size a GPU sums
 * a whole share as a single part, the host in four parts; the bits are the same. */
Test(exec_gpu, a_share_of_a_sum_is_few_launches)
{
    const emulated_machine machine = {.devices = 8, .peers = true};
    rp_model config = rp_test_decoder(2, false, true);
    rp_resolved work = rp_test_work("fsdp", 8, 8, 1);
    rp_test_run runs[2];
    uint32_t copies[2], parts[2];
    config.hidden = 256;
    config.intermediate = 2560;
    config.attention_parameters = (uint64_t)2 * 256 * 8 * (4 + 2);
    config.mlp_parameters = (uint64_t)3 * 256 * 2560;
    for (int i = 0; i < 2; i++) {
        rpexec_driver_type type = *rp_fake_cuda_driver(&machine);
        cr_assert(eq(u64, type.chunk, RPEXEC_GPU_CHUNK));
        type.chunk = i == 0 ? type.chunk : RPEXEC_HOST_CHUNK;
        const rp_test_twist twist = {.driver_type = &type, .observe = true};
        cr_assert(
            eq(int, rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &runs[i]), RP_OK));
        parts[i] = parts_of(&runs[i], type.chunk);
        copies[i] = emulator_counted(EMULATED_COPIES);
        cr_expect(eq(u32, emulator_counted(EMULATED_SUMS), 9 * parts[i]));
    }
    cr_expect(eq(u32, copies[1] - copies[0], 7 * (parts[1] - parts[0])));
    cr_expect(gt(u32, parts[1], 2 * parts[0]), "%u parts, and %u", parts[0], parts[1]);
    cr_expect(rp_test_same(&runs[0], &runs[1], 1));
    rp_test_forget(&runs[0]);
    rp_test_forget(&runs[1]);
}

Test(exec_gpu, experts_and_adapters_too)
{
    rp_model config = rp_test_small_decoder(4, false, true);
    const emulated_machine machine = {.devices = 2, .peers = true, .seed = 5, .delay_us = 500};
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
    config.experts = 4;
    config.active_experts = 2;
    rp_test_gpu_compare(arena, &config, &work, &machine, (rp_test_twist){0});
    config = rp_test_small_decoder(4, true, true);
    rp_model_set_lora_rank(&config, 2);
    rp_test_gpu_compare(arena, &config, &work, &machine, (rp_test_twist){.dtype = RP_DTYPE_BF16});
}

static rpexec_pinning pinning;

static void look_at_pinning(rpexec_devices *devices)
{
    pinning = rpexec_gpu_pinning(devices);
    rpexec_gpu_detach(devices);
}

/* Memory is pinned piece by piece, and no copy crosses the end of a piece (the fake would refuse
 * it). After the first piece that cannot be pinned, the rest of the run's memory stays pageable:
 * there is no second try, since a call that fails may keep some memory pinned. */
Test(exec_gpu, memory_is_pinned_in_pieces)
{
    const uint64_t piece = 4096;
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
    rp_test_run plain, run;
    rpexec_pinning all = {0};
    cr_assert(eq(int, rp_test_execute(arena, &config, SEQ_LEN, &work, NULL, &plain), RP_OK));
    for (uint32_t i = 0; i < 3; i++) {
        char messages[2048];
        const emulated_machine machine = {.devices = 2, .most_pinned = i * 2 * piece};
        rpexec_driver_type type = *rp_fake_cuda_driver(&machine);
        type.detach = look_at_pinning;
        const rp_test_twist twist = {.driver_type = &type, .devices = {.pin_bytes = piece}};
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_assert(eq(int, status, RP_OK), "%s", messages);
        cr_expect(rp_test_same(&run, &plain, work.decided.iterations), "other bits");
        all = i == 0 ? pinning : all;
        cr_expect(eq(u64, pinning.pinned_bytes, i == 0 ? all.pinned_bytes : i * 2 * piece));
        /* Arrays lie elsewhere in each run, and so may take a page more or less. */
        uint64_t sum = pinning.pinned_bytes + pinning.pageable_bytes;
        cr_expect(ge(u64, sum + 2 * piece, all.pinned_bytes));
        cr_expect(le(u64, sum, all.pinned_bytes + 2 * piece));
        cr_expect(eq(int, pinning.pageable_bytes != 0, i != 0));
        cr_expect(eq(u32, emulator_counted(EMULATED_REFUSED_PINS), i == 0 ? 0 : 1));
        cr_expect(eq(int,
                     strstr(messages, " MiB are pinned, copies of the rest are slower") != NULL,
                     i != 0));
    }
}

/* A copy is cut at the beginning and at the end of pinned memory, and also in memory that only
 * shares a page with it. */
Test(exec_gpu, copies_are_cut_where_pinning_changes)
{
    static unsigned char host[8 * 4096];
    const rpexec_devices d = {
        .config = {.pin_bytes = 4096},
        .asked = {{.memory = host + 12288, .bytes = 8192}, {.memory = host + 4096, .bytes = 4096}},
        .asked_count = 2};
    cr_expect(eq(u64, rpexec_gpu_pinned_together(&d, host, 100), 100));
    cr_expect(eq(u64, rpexec_gpu_pinned_together(&d, host + 4000, 9000), 96));
    cr_expect(eq(u64, rpexec_gpu_pinned_together(&d, host + 4096, 9000), 4096));
    cr_expect(eq(u64, rpexec_gpu_pinned_together(&d, host + 8192, 9000), 4096));
    cr_expect(eq(u64, rpexec_gpu_pinned_together(&d, host + 12289, 9000), 4095));
    cr_expect(eq(u64, rpexec_gpu_pinned_together(&d, host + 20480, 9000), 9000));
}

/* Copies of host memory that cannot be pinned are slower, but not wrong. */
Test(exec_gpu, pageable_memory_works)
{
    char messages[2048];
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
    const emulated_machine machine = {.devices = 2, .unpinnable = true};
    rp_log_capture_begin(messages, sizeof messages);
    rp_test_gpu_compare(arena, &config, &work, &machine, (rp_test_twist){0});
    rp_log_capture_end();
    cr_expect(strstr(messages, "cudaHostRegister") != NULL, "%s", messages);
}

/* Virtual GPUs share a device that cannot be split, and a message says so. */
Test(exec_gpu, virtual_gpus_without_green_contexts)
{
    char messages[2048];
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("roundpipe", 4, 5, 2);
    const emulated_machine machine = {.devices = 1};
    rp_log_capture_begin(messages, sizeof messages);
    rp_test_gpu_compare(arena, &config, &work, &machine,
                        (rp_test_twist){.devices = {.is_virtual = true}});
    rp_log_capture_end();
    cr_expect(strstr(messages, "not split into green contexts (the fake does not split)") != NULL,
              "%s", messages);
}

static rp_status attach(const emulated_machine *machine, uint32_t gpus, bool is_virtual,
                        char messages[static 2048])
{
    const rpexec_driver_type *type = rp_fake_cuda_driver(machine);
    const rpexec_devices_config config = {.gpus = gpus, .is_virtual = is_virtual};
    rpexec_devices *devices = NULL;
    uint64_t bytes = 0;
    messages[0] = '\0';
    rp_log_capture_begin(messages, 2048);
    rp_status status = type->attach(&config, &devices, &bytes);
    rp_log_capture_end();
    type->detach(devices);
    return status;
}

Test(exec_gpu, machines_without_enough_devices_are_refused)
{
    char messages[2048];
    const emulated_machine none = {.devices = 0};
    const emulated_machine two = {.devices = 2};
    cr_expect(eq(int, attach(&none, 1, false, messages), RP_USAGE));
    cr_expect(strstr(messages, "no device: cudaGetDeviceCount: ") != NULL &&
                  strstr(messages, " (driver and runtime are of threads)") != NULL,
              "%s", messages);
    cr_expect(eq(int, attach(&none, 2, true, messages), RP_USAGE));
    cr_expect(eq(int, attach(&two, 3, false, messages), RP_USAGE));
    cr_expect(strstr(messages, "--gpus: 3 GPUs, and this machine has 2; valid are 1 to 2, or "
                               "--virtual-gpus 3") != NULL,
              "%s", messages);
    cr_expect(eq(int, attach(&two, 2, false, messages), RP_OK), "%s", messages);
    cr_expect(eq(str, messages, (char *)""));
    cr_expect(eq(int, attach(&two, 8, true, messages), RP_OK), "%s", messages);
}

static uint64_t free_bytes(uint32_t gpus, bool is_virtual, bool graphs)
{
    const emulated_machine machine = {.devices = 4, .green = true};
    const rpexec_driver_type *type = rp_fake_cuda_driver(&machine);
    const rpexec_devices_config config = {.gpus = gpus, .is_virtual = is_virtual, .graphs = graphs};
    rpexec_devices *devices = NULL;
    uint64_t bytes = 0;
    (void)unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    cr_assert(eq(int, type->attach(&config, &devices, &bytes), RP_OK));
    type->detach(devices);
    return bytes;
}

/* Estimates for contexts, modules and cuBLAS are subtracted from the fake's 8 GiB. */
Test(exec_gpu, memory_is_kept_outside_the_arenas)
{
    const uint64_t mib = UINT64_C(1) << 20;
    cr_expect(eq(u64, free_bytes(4, false, false), (8192 - 1024) * mib));
    cr_expect(eq(u64, free_bytes(4, false, true), (8192 - 1024 - 512) * mib));
    cr_expect(eq(u64, free_bytes(4, true, false), (8192 - 1024 - 4 * 192) * mib / 4));
    cr_expect(eq(u64, free_bytes(8, true, true), (8192 - 1024 - 8 * 192 - 512) * mib / 8));
}

/* With two virtual GPUs each is as large as with eight, and no contexts are made for the other six.
 */
Test(exec_gpu, green_contexts_are_as_many_as_gpus)
{
    (void)free_bytes(2, true, false);
    cr_expect(eq(u32, emulator_counted(EMULATED_GREENS), 2));
    cr_expect(eq(str, getenv("CUDA_DEVICE_MAX_CONNECTIONS"), (char *)"8"));
    (void)free_bytes(2, false, false);
    cr_expect(eq(u32, emulator_counted(EMULATED_GREENS), 0));
    cr_expect(eq(str, getenv("CUDA_DEVICE_MAX_CONNECTIONS"), (char *)"32"));
}

Test(exec_gpu, full_memory_says_what_to_lower)
{
    char messages[2048];
    rp_test_run run;
    rp_model config = rp_test_small_decoder(2, false, false);
    rp_resolved work = rp_test_work("gpipe", 2, 2, 1);
    const emulated_machine machine = {.devices = 2, .most_bytes = 2000};
    rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine),
                           .devices = {.graphs = true}};
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_TOOL));
    cr_expect(strstr(messages, "out of memory; lower --gpu-memory-mb (by default a device's "
                               "free memory but for 1536 MiB), --microbatch-size or --seq-len, or "
                               "leave out --graphs") != NULL,
              "%s", messages);
}

/* Patched drivers may have broken peer access: copies in some direction are wrong or never end.
 * This function lets a copy that hangs go on. */
static void let_go_on(void *context, uint32_t iteration, double loss, double norm)
{
    (void)context;
    (void)iteration;
    (void)loss;
    (void)norm;
    emulator_unstick();
}

Test(exec_gpu, peers_that_cannot_copy_are_found_out)
{
    static const char *const names[] = {"1f1b", "fsdp", "roundpipe"};
    static const char *const what[] = {"come out wrong", "do not end"};
    rp_model config = rp_test_small_decoder(3, true, false);
    for (uint32_t i = 0; i < 6; i++) {
        char messages[2048];
        rp_resolved work = rp_test_work(names[i % 3], 3, 6, 1);
        const emulated_machine machine = {.devices = 3,
                                          .peers = true,
                                          .peer_copies =
                                              i < 3 ? EMULATED_PEERS_SPOIL : EMULATED_PEERS_HANG};
        work.peer_gpus = i % 3 == 0 ? UINT32_MAX : 0;
        (void)unsetenv("NCCL_P2P_DISABLE");
        rp_log_capture_begin(messages, sizeof messages);
        rp_test_gpu_compare(
            arena, &config, &work, &machine,
            (rp_test_twist){.devices = {.peer_wait_ms = 200}, .follower = {.ended = let_go_on}});
        rp_log_capture_end();
        cr_expect(strstr(messages, "peer access: copies between GPU 0 and GPU 1 ") != NULL &&
                      strstr(messages, what[i / 3]) != NULL &&
                      strstr(messages, "of 2 more pairs of GPUs") != NULL,
                  "%s", messages);
        cr_expect(eq(str, getenv("NCCL_P2P_DISABLE"), (char *)"1"));
    }
}

static uint32_t copies_of_attach(const emulated_machine *machine)
{
    char messages[2048];
    cr_assert(eq(int, attach(machine, 2, false, messages), RP_OK), "%s", messages);
    return emulator_counted(EMULATED_COPIES);
}

/* Any copy may fail: the run ends with the error text of the failed call, and all resources are
 * given back. */
Test(exec_gpu, a_failing_call_ends_the_run)
{
    static const char *const names[] = {"roundpipe", "1f1b", "fsdp"};
    rp_model config = rp_test_small_decoder(4, true, true);
    for (uint32_t i = 0; i < 12; i++) {
        char messages[4096] = "";
        rp_test_run run;
        rp_resolved work = rp_test_work(names[i % 3], 2, 4, 2);
        emulated_machine machine = {.devices = 2, .seed = i, .delay_us = 200, .peers = i % 2 == 0};
        machine.fail_at = copies_of_attach(&machine) + 1 + 9 * i;
        rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine)};
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_TOOL), "%s, copy %u: %s", names[i % 3], 1 + 9 * i, messages);
        cr_expect(strstr(messages, "cudaMemcpyAsync: an illegal memory access") != NULL, "%s",
                  messages);
    }
}

static void *unstick_later(void *context)
{
    (void)context;
    const struct timespec time = {.tv_sec = 3};
    nanosleep(&time, NULL);
    emulator_unstick();
    return NULL;
}

/* A device hangs: the watchdog names the ops that wait for each other, and the run ends. */
Test(exec_gpu, a_hanging_device_is_given_up)
{
    char messages[4096] = "";
    pthread_t thread;
    rp_test_run run;
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
    const emulated_machine machine = {.devices = 2, .stick_at = 60};
    rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine), .watchdog_s = 1};
    cr_assert(eq(int, pthread_create(&thread, NULL, unstick_later, NULL), 0));
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_BROKEN), "%s", messages);
    cr_expect(strstr(messages, "nothing has ended for 1 s") != NULL, "%s", messages);
    cr_expect(strstr(messages, "waits for its GPU: it is enqueued") != NULL, "%s", messages);
    cr_assert(eq(int, pthread_join(thread, NULL), 0));
}

static rpexec_driver *opened;
static uint32_t asked;
static uint32_t asked_locked;

static rp_status open_noted(const rpexec_driver_config *config, rpexec_perform perform,
                            void *context, rpexec_driver **driver_out)
{
    rp_status status = rpexec_gpu_driver.open(config, perform, context, driver_out);
    opened = *driver_out;
    return status;
}

/* Counts how often the driver's lock cannot be had within a second. Other threads hold it only for
 * moments, so the lock is then held by this thread. */
static void note_asked(void)
{
    struct timespec until;
    if (opened == NULL || asked_locked != 0) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    asked++;
    if (pthread_mutex_timedlock(&opened->lock, &until) == 0) {
        pthread_mutex_unlock(&opened->lock);
    } else {
        asked_locked++;
    }
}

static void *unstick_soon(void *context)
{
    (void)context;
    const struct timespec time = {.tv_sec = 1, .tv_nsec = 300000000};
    nanosleep(&time, NULL);
    emulator_unstick();
    return NULL;
}

/* While the watchdog asks the device, it must not hold the lock for which threads that enqueue
 * would wait. */
Test(exec_gpu, the_watchdog_asks_without_the_lock)
{
    pthread_t thread;
    rp_test_run run;
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
    const emulated_machine machine = {.devices = 2, .stick_at = 60, .asked = note_asked};
    rpexec_driver_type type = *rp_fake_cuda_driver(&machine);
    type.open = open_noted;
    rp_test_twist twist = {.driver_type = &type, .watchdog_s = 20};
    opened = NULL;
    cr_assert(eq(int, pthread_create(&thread, NULL, unstick_soon, NULL), 0));
    cr_expect(eq(int, rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
    cr_expect(gt(u32, asked, 0));
    cr_expect(eq(u32, asked_locked, 0), "%u of %u questions", asked_locked, asked);
    cr_assert(eq(int, pthread_join(thread, NULL), 0));
}

/* An op fails by itself, as in the executor's tests. */
Test(exec_gpu, a_failing_op_ends_the_run)
{
    static const rp_op_kind kinds[] = {RP_OP_FORWARD, RP_OP_UPLOAD_PARAMS, RP_OP_COLLECT,
                                       RP_OP_REFRESH};
    rp_model config = rp_test_small_decoder(4, true, true);
    for (size_t i = 0; i < 4; i++) {
        char messages[4096] = "";
        rp_test_run run;
        rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
        const emulated_machine machine = {.devices = 2, .green = true};
        rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine),
                               .devices = {.is_virtual = true},
                               .fails = true,
                               .fail_kind = kinds[i]};
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status = rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_TOOL), "%s", messages);
        cr_expect(strstr(messages, " failed (") != NULL, "%s", messages);
    }
}

/* The timeline's events keep the program's order. On a single GPU the events have that GPU's clock.
 * Between GPUs they have the host's clock, relative to which a GPU's clock is known to slack_ps
 * (generous, for a loaded machine). */
Test(exec_gpu, the_timeline_keeps_the_programs_order)
{
    rp_model config = rp_test_small_decoder(6, true, true);
    rp_test_run run;
    rp_resolved work = rp_test_work("roundpipe", 3, 4, 2);
    const emulated_machine machine = {.devices = 3, .delay_us = 500, .seed = 3};
    rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine), .observe = true};
    cr_assert(eq(int, rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
    const rp_program *p = run.program;
    const int64_t slack_ps = INT64_C(20) * 1000000000;
    for (uint32_t op = 0; op < p->op_count; op++) {
        const rp_queue *queue = &p->queues[run.plan.order.queue_of[op]];
        cr_assert(ge(i64, run.timeline->start_ps[op], 0));
        cr_assert(ge(i64, run.timeline->end_ps[op], run.timeline->start_ps[op]));
        for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
            uint32_t before = rp_wait_op(p->waits[w]);
            const rp_queue *other = &p->queues[run.plan.order.queue_of[before]];
            bool on_gpus = rp_queue_kind_on_gpu((rp_queue_kind)queue->kind) &&
                           rp_queue_kind_on_gpu((rp_queue_kind)other->kind);
            bool same = on_gpus && queue->gpu == other->gpu;
            /* CUDA gives milliseconds as a float: errors here are a few nanoseconds at most. */
            cr_expect(ge(i64, run.timeline->start_ps[op] + (same ? 1000000 : slack_ps),
                         run.timeline->end_ps[before]),
                      "op %u before %u", op, before);
        }
    }
    rp_test_forget(&run);
}

typedef struct waiter {
    rpexec_gpu_turn turn;
    bool had_it;
} waiter;

static void *take_once(void *context)
{
    waiter *w = context;
    rpexec_gpu_turn_take(&w->turn);
    w->had_it = true;
    rpexec_gpu_turn_give(&w->turn);
    return NULL;
}

/* A thread that gives its turn back and asks for it again at once comes after the threads that
 * wait. */
Test(exec_gpu, turns_go_to_those_who_have_asked_first)
{
    const struct timespec pause = {.tv_nsec = 100000};
    for (uint32_t i = 0; i < 20; i++) {
        waiter w = {.had_it = false};
        pthread_t thread;
        rpexec_gpu_turn_init(&w.turn);
        rpexec_gpu_turn_take(&w.turn);
        cr_assert(eq(int, pthread_create(&thread, NULL, take_once, &w), 0));
        while (rpexec_gpu_turn_count(&w.turn) < 2) {
            nanosleep(&pause, NULL);
        }
        cr_expect(not(w.had_it));
        rpexec_gpu_turn_give(&w.turn);
        rpexec_gpu_turn_take(&w.turn);
        cr_expect(w.had_it, "whoever had the turn has it again");
        rpexec_gpu_turn_give(&w.turn);
        pthread_join(thread, NULL);
        rpexec_gpu_turn_destroy(&w.turn);
    }
}
