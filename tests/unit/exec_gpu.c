/* The GPU driver (exec/gpu) on a machine made of threads (tests/support/fake_cuda.h): the same bits
 * as the host backend under every schedule, however late what streams do. */
#include "common/log.h"
#include "exec/runs.h"
#include "tests/support/exec_watch.h"
#include "tests/support/fake_cuda.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define SEQ_LEN 7u
#define STEPS 3u

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
    cr_expect(eq(u32, rp_fake_cuda_left(), 0), "something has not been given back");
}

TestSuite(exec_gpu, .init = begin, .fini = end, .timeout = 120);

/* Runs `work` on the host backend and on the fake machine, and compares all bits. */
static void compare(const rp_model *config, const rpexec_work *work, const rp_fake_cuda *machine,
                    rp_test_twist twist)
{
    rp_test_run plain;
    rp_test_run run;
    const rp_test_twist of_host = {.dtype = twist.dtype};
    twist.driver_type = rp_fake_cuda_driver(machine);
    twist.watchdog_s = 30;
    if (twist.devices.stage_bytes == 0) {
        twist.devices.stage_bytes = 1000; /* many pieces, with a rest */
    }
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, work, &of_host, &plain), RP_OK));
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, work, &twist, &run), RP_OK),
              "%s on %u GPUs", work->schedule->name, work->gpus);
    cr_expect(rp_test_same(&run, &plain, work->iterations), "%s, %u GPUs, %s: other bits",
              work->schedule->name, work->gpus, work->asynchronous ? "async" : "sync");
    cr_expect(eq(u64, run.uploaded_bytes, plain.uploaded_bytes));
    cr_expect(eq(u64, run.downloaded_bytes, plain.downloaded_bytes));
    cr_expect(eq(u64, run.exchanged_bytes, plain.exchanged_bytes));
}

Test(exec_gpu, all_schedules_give_the_bits_of_the_host_backend)
{
    rp_model config = rp_test_small_decoder(8, true, true);
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const char *why = NULL;
        cr_assert(eq(int, rpexec_runs(rp_schedules[i], false, arena, &why), RP_OK));
        for (uint32_t gpus = 1; why == NULL && gpus <= 4; gpus *= 2) {
            rpexec_work work = rp_test_work(rp_schedules[i]->name, gpus, 2 * gpus, STEPS);
            const rp_fake_cuda machine = {.devices = 4, .peers = i % 2 == 0, .seed = i};
            compare(&config, &work, &machine, (rp_test_twist){0});
        }
    }
}

/* Streams that stop for a while, and threads that submit late: whatever is missing of the waits
 * between streams, and between them and the host, shows sooner or later as other bits. */
Test(exec_gpu, late_streams_change_nothing)
{
    static const char *const names[] = {"roundpipe", "1f1b",          "zbv",  "roundpipe-overlap",
                                        "zero2",     "zero-infinity", "fsdp", "interleaved-1f1b"};
    rp_model config = rp_test_small_decoder(6, true, true);
    for (uint32_t i = 0; i < 16; i++) {
        rpexec_work work = rp_test_work(names[i % 8], 3, 6, 2);
        const rp_fake_cuda machine = {
            .devices = 3, .green = i % 3 == 0, .peers = i % 2 == 0, .seed = i, .delay_us = 1500};
        rp_test_twist twist = {.dtype = i < 8 ? RPEXEC_DTYPE_F16 : RPEXEC_DTYPE_F32,
                               .delay_seed = i,
                               .delay_us = i % 4 == 0 ? 300 : 0,
                               .devices = {.is_virtual = i % 3 == 0, .staged = i % 5 == 0}};
        work.asynchronous = i % 8 == 0;
        work.layer_grain = i == 8 || i == 3;
        work.calls = i % 8 == 0 || i % 8 == 3 ? 2 : 1;
        work.peer_gpus = i % 8 == 1 || i % 8 == 7 ? UINT32_MAX : 0;
        compare(&config, &work, &machine, twist);
    }
}

/* A tied table on two GPUs, which reach each other or do not. */
Test(exec_gpu, tied_tables_are_summed_between_gpus)
{
    static const rpexec_dtype dtypes[] = {RPEXEC_DTYPE_F32, RPEXEC_DTYPE_BF16, RPEXEC_DTYPE_F16};
    rp_model config = rp_test_small_decoder(4, true, false);
    for (uint32_t i = 0; i < 6; i++) {
        rpexec_work work = rp_test_work("1f1b", 2, 4, STEPS);
        const rp_fake_cuda machine = {
            .devices = 2, .peers = i < 3, .seed = 11 + i, .delay_us = 800};
        work.peer_gpus = UINT32_MAX;
        compare(&config, &work, &machine, (rp_test_twist){.dtype = dtypes[i % 3]});
    }
}

/* Boundary tensors and weights that go over the host piece by piece. */
Test(exec_gpu, copies_over_the_host_wait_for_their_halves)
{
    static const char *const names[] = {"1f1b", "fsdp"};
    rp_model config = rp_test_small_decoder(2, false, false);
    for (uint32_t i = 0; i < 10; i++) {
        rpexec_work work = rp_test_work(names[i % 2], 2, 4, 1);
        const rp_fake_cuda machine = {
            .devices = 2, .seed = 31 + i, .delay_us = i % 2 == 0 ? 1200 : 150, .often = true};
        work.peer_gpus = i % 2 == 0 ? UINT32_MAX : 0;
        compare(&config, &work, &machine,
                (rp_test_twist){.devices = {.stage_bytes = i < 2 ? 52 : 60}});
    }
}

Test(exec_gpu, experts_and_adapters_too)
{
    rp_model config = rp_test_small_decoder(4, false, true);
    const rp_fake_cuda machine = {.devices = 2, .peers = true, .seed = 5, .delay_us = 500};
    rpexec_work work = rp_test_work("roundpipe", 2, 4, 2);
    config.experts = 4;
    config.active_experts = 2;
    compare(&config, &work, &machine, (rp_test_twist){0});
    config = rp_test_small_decoder(4, true, true);
    rp_model_set_lora_rank(&config, 2);
    compare(&config, &work, &machine, (rp_test_twist){.dtype = RPEXEC_DTYPE_BF16});
}

/* Host memory that cannot be pinned makes copies slower, not wrong. */
Test(exec_gpu, pageable_memory_works)
{
    char messages[2048];
    rp_model config = rp_test_small_decoder(4, true, true);
    rpexec_work work = rp_test_work("roundpipe", 2, 4, 2);
    const rp_fake_cuda machine = {.devices = 2, .unpinnable = true};
    rp_log_capture_begin(messages, sizeof messages);
    compare(&config, &work, &machine, (rp_test_twist){0});
    rp_log_capture_end();
    cr_expect(strstr(messages, "cudaHostRegister") != NULL, "%s", messages);
}

/* Where a device cannot be split, virtual GPUs share it, and somebody says so. */
Test(exec_gpu, virtual_gpus_without_green_contexts)
{
    char messages[2048];
    rp_model config = rp_test_small_decoder(4, true, true);
    rpexec_work work = rp_test_work("roundpipe", 4, 5, 2);
    const rp_fake_cuda machine = {.devices = 1};
    rp_log_capture_begin(messages, sizeof messages);
    compare(&config, &work, &machine, (rp_test_twist){.devices = {.is_virtual = true}});
    rp_log_capture_end();
    cr_expect(strstr(messages, "not split into green contexts (the fake does not split)") != NULL,
              "%s", messages);
}

static rp_status attach(const rp_fake_cuda *machine, uint32_t gpus, bool is_virtual,
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
    const rp_fake_cuda none = {.devices = 0};
    const rp_fake_cuda two = {.devices = 2};
    cr_expect(eq(int, attach(&none, 1, false, messages), RP_USAGE));
    cr_expect(strstr(messages, "no device: cudaGetDeviceCount: ") != NULL, "%s", messages);
    cr_expect(eq(int, attach(&none, 2, true, messages), RP_USAGE));
    cr_expect(eq(int, attach(&two, 3, false, messages), RP_USAGE));
    cr_expect(strstr(messages, "--gpus: 3 GPUs, and this machine has 2; valid are 1 to 2, or "
                               "--virtual-gpus 3") != NULL,
              "%s", messages);
    cr_expect(eq(int, attach(&two, 2, false, messages), RP_OK), "%s", messages);
    cr_expect(eq(str, messages, (char *)""));
    cr_expect(eq(int, attach(&two, 8, true, messages), RP_OK), "%s", messages);
}

/* Whatever copy fails: the run ends with the call's text, and everything is given back. */
Test(exec_gpu, a_failing_call_ends_the_run)
{
    static const char *const names[] = {"roundpipe", "1f1b", "fsdp"};
    rp_model config = rp_test_small_decoder(4, true, true);
    for (uint32_t i = 0; i < 12; i++) {
        char messages[4096] = "";
        rp_test_run run;
        rpexec_work work = rp_test_work(names[i % 3], 2, 4, 2);
        const rp_fake_cuda machine = {
            .devices = 2, .fail_at = 1 + 9 * i, .seed = i, .delay_us = 200, .peers = i % 2 == 0};
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
    rp_fake_cuda_unstick();
    return NULL;
}

/* A device that hangs: the watchdog says who waits for whom, and the run ends. */
Test(exec_gpu, a_hanging_device_is_given_up)
{
    char messages[4096] = "";
    pthread_t thread;
    rp_test_run run;
    rp_model config = rp_test_small_decoder(4, true, true);
    rpexec_work work = rp_test_work("roundpipe", 2, 4, 2);
    const rp_fake_cuda machine = {.devices = 2, .stick_at = 60};
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

/* An op that fails by itself, as the executor's tests ask for. */
Test(exec_gpu, a_failing_op_ends_the_run)
{
    static const rp_op_kind kinds[] = {RP_OP_FORWARD, RP_OP_UPLOAD_PARAMS, RP_OP_COLLECT,
                                       RP_OP_REFRESH};
    rp_model config = rp_test_small_decoder(4, true, true);
    for (size_t i = 0; i < 4; i++) {
        char messages[4096] = "";
        rp_test_run run;
        rpexec_work work = rp_test_work("roundpipe", 2, 4, 2);
        const rp_fake_cuda machine = {.devices = 2, .green = true};
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

/* The timeline's events keep the program's order: on one GPU by its own clock, and with the others
 * by the host's, which a GPU's clock is known to this precision of (generous: a loaded machine). */
Test(exec_gpu, the_timeline_keeps_the_programs_order)
{
    rp_model config = rp_test_small_decoder(6, true, true);
    rp_test_run run;
    rpexec_work work = rp_test_work("roundpipe", 3, 4, 2);
    const rp_fake_cuda machine = {.devices = 3, .delay_us = 500, .seed = 3};
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
            /* A float of milliseconds: a few nanoseconds at most here. */
            cr_expect(ge(i64, run.timeline->start_ps[op] + (same ? 1000000 : slack_ps),
                         run.timeline->end_ps[before]),
                      "op %u before %u", op, before);
        }
    }
    rp_test_forget(&run);
}
