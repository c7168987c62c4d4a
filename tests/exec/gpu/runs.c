/* Graphs of a single queue (exec/gpu/graphs.h) on the machine of threads: runs that count as the
 * same, work that stays outside of graphs, the order of the work, the largest number of graphs, and
 * failures. */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/fake/cuda_internal.h"
#include "tests/support/gpu_case.h"

#include <criterion/criterion.h>
#include <string.h>

#define SEQ_LEN 7u

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_gpu_end(arena);
}

TestSuite(exec_gpu_runs, .init = begin, .fini = end, .timeout = 120);

/* The fake has rules of its own for captures, the same as CUDA's. */
Test(exec_gpu_runs, what_is_not_permitted_makes_a_capture_invalid)
{
    const emulated_machine machine = {.devices = 1};
    const rpexec_cuda_part part = {.device = 0};
    void *stream = NULL;
    void *event = NULL;
    void *captured = NULL;
    (void)rp_fake_cuda_driver(&machine);
    *emulator_here() = part;
    cr_assert(eq(int, emulator_stream_create(&part, &stream), 0));
    cr_assert(eq(int, emulator_event_create(&event), 0));
    cr_assert(eq(int, emulator_event_record(event, stream), 0));
    for (int i = 0; i < 5; i++) {
        cr_assert(eq(int, emulator_capture_begin(stream), 0));
        int error = i == 0   ? emulator_stream_synchronize(stream)
                    : i == 1 ? emulator_event_record(event, stream)
                    : i == 2 ? emulator_stream_wait(stream, event)
                    : i == 3 ? emulator_event_synchronize(event)
                             : 0;
        cr_expect(eq(int, error, i < 4 ? cudaErrorStreamCaptureUnsupported : 0), "call %d", i);
        error = emulator_capture_end(stream, &captured);
        cr_expect(eq(int, error, i < 4 ? cudaErrorStreamCaptureInvalidated : 0), "call %d", i);
    }
    (void)emulator_captured_destroy(captured);
    cr_expect(ne(int, emulator_capture_end(stream, &captured), 0), "a capture has ended twice");
    cr_expect(eq(int, emulator_stream_synchronize(stream), 0));
    (void)emulator_event_destroy(event);
    (void)emulator_stream_destroy(stream);
}

/* ---- graphs of a single queue ---------------------------------------------------------------- */

/* A queue without a program. */
typedef struct bench {
    const rpexec_driver_type *type;
    rpexec_devices *devices;
    rpexec_model model;
    rpexec_plan plan;
    rpexec_driver driver;
    rpexec_gpu gpu;
    rpexec_gpu_graphs *graphs;
    rpexec_lane *lane; /* lane of the noting operators */
    void *stream;
    float *values; /* [4096] on the GPU */
    float *host;   /* [16] pinned */
} bench;

static void open_bench(emulated_graph_call fails, bench *b)
{
    static rp_model config;
    const emulated_machine machine = {.devices = 1, .graphs = fails};
    const rpexec_devices_config devices = {.gpus = 1, .graphs = true};
    uint64_t bytes = 0;
    rpexec_lane *lane = NULL;
    void *memory = NULL;
    config = rp_test_small_decoder(2, true, false);
    *b = (bench){.type = rp_fake_cuda_driver(&machine)};
    cr_assert(eq(int, b->type->attach(&devices, &b->devices, &bytes), RP_OK));
    cr_assert(
        eq(int, rpexec_model_create(&config, SEQ_LEN, RP_DTYPE_F32, arena, &b->model), RP_OK));
    const rpexec_cuda_calls *c = b->devices->calls;
    const rpexec_cuda_lane_shape shape = {.model = &b->model, .tokens = SEQ_LEN};
    b->gpu = b->devices->gpus[0];
    cr_assert(eq(int, c->enter(&b->gpu.part), 0));
    cr_assert(eq(int, c->stream_create(&b->gpu.part, &b->stream), 0));
    cr_assert(eq(int, c->lane_open(&b->gpu.part, &shape, b->stream, arena, &lane), RP_OK));
    b->gpu.arena_bytes = 4096 * sizeof(float);
    cr_assert(eq(int, c->memory_take(b->gpu.arena_bytes, &memory), 0));
    b->gpu.arena = memory;
    b->values = memory;
    cr_assert(eq(int, c->host_take(16 * sizeof(float), &memory), 0));
    b->host = memory;
    for (uint32_t i = 0; i < 4096; i++) {
        b->values[i] = 1;
    }
    b->plan.model = &b->model;
    b->driver = (rpexec_driver){.devices = b->devices, .calls = c, .config.plan = &b->plan};
    pthread_mutex_init(&b->driver.lock, NULL);
    pthread_cond_init(&b->driver.moved, NULL);
    cr_assert(eq(int, rpexec_gpu_graphs_open(c, arena, &b->graphs), RP_OK));
    rpexec_gpu_graphs_begin(b->graphs, &b->driver, &b->gpu, lane, b->stream);
    b->lane = rpexec_gpu_graphs_lane(b->graphs);
}

static void close_bench(bench *b)
{
    const rpexec_cuda_calls *c = b->devices->calls;
    cr_expect(eq(int, b->driver.status, RP_OK), "%s",
              b->driver.failed_call != NULL ? b->driver.failed_call : "");
    cr_expect(eq(int, c->stream_synchronize(b->stream), 0));
    rpexec_gpu_graphs_clear(b->graphs);
    (void)c->stream_destroy(b->stream);
    (void)c->memory_give(b->gpu.arena);
    (void)c->host_give(b->host);
    pthread_cond_destroy(&b->driver.moved);
    pthread_mutex_destroy(&b->driver.lock);
    b->type->detach(b->devices);
}

/* An op of two operators, each of which multiplies the `count` values from `at` on. */
static void two(const bench *b, uint32_t at, uint64_t count, float factor, float other)
{
    rpexec_noting_operators.scale(b->lane, count, factor, b->values + at);
    rpexec_noting_operators.scale(b->lane, count, other, b->values + at);
    rpexec_gpu_graphs_flush(b->graphs);
}

static float value_at(const bench *b, uint32_t at)
{
    cr_assert(eq(int, b->devices->calls->stream_synchronize(b->stream), 0));
    return b->values[at];
}

Test(exec_gpu_runs, any_difference_is_another_run)
{
    bench b;
    open_bench(EMULATED_ALL_WORK, &b);
    for (uint32_t i = 0; i < 4; i++) { /* launched by itself, captured, launched twice more */
        two(&b, 0, 3, 2, 0.25f);
    }
    cr_expect(eq(u32, emulator_counted(EMULATED_CAPTURES), 1));
    cr_expect(eq(u32, emulator_counted(EMULATED_GRAPHS), 3));
    cr_expect(eq(flt, value_at(&b, 2), 0.0625f));
    cr_expect(eq(flt, value_at(&b, 3), 1));
    two(&b, 0, 4, 2, 0.25f);  /* other sizes */
    two(&b, 1, 3, 2, 0.25f);  /* other addresses */
    two(&b, 0, 3, 4, 0.25f);  /* other scalars */
    two(&b, 0, 3, 0.25f, 2);  /* another order */
    two(&b, 0, 3, 2, -0.25f); /* other signs */
    rpexec_noting_operators.scale(b.lane, 3, 2, b.values);
    rpexec_noting_operators.scale(b.lane, 3, 0.25f, b.values + 8); /* another last argument */
    rpexec_gpu_graphs_flush(b.graphs);
    cr_expect(eq(flt, value_at(&b, 8), 0.25f));
    two(&b, 0, 3, 0.5f, 1);
    rpexec_noting_operators.scale(b.lane, 3, 2, b.values);
    rpexec_noting_operators.scale(b.lane, 3, 0.25f, b.values);
    rpexec_noting_operators.zero(b.lane, 1, b.values + 2); /* an operator more */
    rpexec_gpu_graphs_flush(b.graphs);
    rpexec_noting_operators.scale(b.lane, 3, 2, b.values); /* an operator fewer */
    rpexec_gpu_graphs_flush(b.graphs);
    cr_expect(eq(u32, emulator_counted(EMULATED_GRAPHS), 3));
    cr_expect(eq(flt, value_at(&b, 0), -0.0078125f));
    cr_expect(eq(flt, value_at(&b, 1), -0.00390625f));
    cr_expect(eq(flt, value_at(&b, 2), 0));
    cr_expect(eq(flt, value_at(&b, 3), 0.25f));
    two(&b, 0, 3, 2, 0.25f);
    cr_expect(eq(u32, emulator_counted(EMULATED_GRAPHS), 4));
    close_bench(&b);
}

/* Operators on the host's memory, and steps of Adam, are launched by themselves, in their order. */
Test(exec_gpu_runs, what_does_not_repeat_stays_outside)
{
    bench b;
    open_bench(EMULATED_ALL_WORK, &b);
    const rpexec_adam adam = rpexec_adam_defaults();
    const rpexec_update update = {.master = b.values + 64,
                                  .gradients = b.values + 80,
                                  .m = b.values + 96,
                                  .v = b.values + 112,
                                  .scale = 1,
                                  .count = 4};
    b.host[0] = 3;
    for (uint32_t i = 1; i <= 5; i++) {
        rpexec_noting_operators.zero(b.lane, 2, b.values);
        rpexec_noting_operators.add(b.lane, 2, b.values, b.values, b.values + 2);
        rpexec_noting_operators.copy(b.lane, 1, b.host, b.values);
        const rpexec_adam_factors factors = rpexec_adam_factors_of(&adam, i);
        rpexec_noting_operators.adam(b.lane, &factors, &update);
        rpexec_noting_operators.scale(b.lane, 2, 2, b.values);
        rpexec_noting_operators.add(b.lane, 2, b.values, b.values, b.values + 2);
        rpexec_squares sum = {0};
        rpexec_noting_operators.squares(b.lane, 2, b.values + 2, &sum);
        cr_expect(eq(flt, b.values[2], 12), "%u: the sum of squares comes too early", i);
        cr_expect(eq(flt, b.values[0], 6));
    }
    cr_expect(eq(u32, emulator_counted(EMULATED_CAPTURES), 2));
    cr_expect(eq(u32, emulator_counted(EMULATED_GRAPHS), 8));
    cr_expect(eq(u32, emulator_counted(EMULATED_OPERATORS), 4 + 10));
    close_bench(&b);
}

/* Runs that are too long for a graph become two graphs, and no operator gets lost. */
Test(exec_gpu_runs, runs_may_be_long)
{
    bench b;
    open_bench(EMULATED_ALL_WORK, &b);
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < 3000; i++) {
            rpexec_noting_operators.add(b.lane, 1, b.values, b.values + i + 1, b.values);
            rpexec_noting_operators.scale(b.lane, 1, 1, b.values);
        }
        rpexec_gpu_graphs_flush(b.graphs);
    }
    cr_expect(eq(flt, value_at(&b, 0), 1 + 4 * 3000));
    cr_expect(eq(u32, emulator_counted(EMULATED_CAPTURES), 2));
    cr_expect(eq(u32, emulator_counted(EMULATED_GRAPHS), 6));
    close_bench(&b);
}

/* Each call of the driver in the queue for an op comes after the operators that the op has had so
 * far. */
Test(exec_gpu_runs, operators_come_before_what_is_done_after_them)
{
    bench b;
    rp_op op = {.kind = RP_OP_UPDATE};
    uint32_t queue_of = 0;
    rp_program program = {.gpu_count = 1, .ops = &op};
    rpexec_sharded sharded = {0};
    uint64_t moved = 0;
    open_bench(EMULATED_ALL_WORK, &b);
    rpexec_gpu_queue queue = {
        .driver = &b.driver, .gpu = &b.gpu, .stream = b.stream, .graphs = b.graphs};
    const rpexec_collective_array array = {
        .from = b.values + 64, .to = b.values + 128, .count = 16};
    const rpexec_collective gather = {
        .kind = RPEXEC_ALL_GATHER, .dtype = RP_DTYPE_F32, .arrays = &array, .array_count = 1};
    b.plan.program = &program;
    b.plan.order.queue_of = &queue_of;
    b.plan.sharded = &sharded;
    b.plan.tensor = b.plan.data = 1;
    b.driver.queues = &queue;
    b.driver.arena = arena;
    cr_assert(eq(int, rpexec_gpu_open_meetings(&b.driver), RP_OK));
    for (uint32_t i = 0; i < 4; i++) {
        float right = (float)(i + 2);
        for (uint32_t k = 0; k < 4; k++) {
            rpexec_noting_operators.add(b.lane, 1, b.values + 16 * k, b.values + 4000,
                                        b.values + 16 * k);
            if (k == 0) {
                const float *read = b.type->read(&b.driver, 0, b.values, sizeof *read);
                cr_assert(read != NULL);
                cr_expect(eq(flt, *read, right), "read");
            } else if (k == 1) {
                b.type->copy(&b.driver, 0, b.values + 200, b.values + 16, sizeof(float));
                cr_expect(eq(flt, value_at(&b, 200), right), "copied");
            } else if (k == 2) {
                b.type->aside(&b.driver, 0, true);
                cr_expect(eq(flt, value_at(&b, 32), right), "set aside");
                b.type->aside(&b.driver, 0, false);
            } else {
                b.values[64] = 0;
                rpexec_noting_operators.copy(b.lane, 1, b.values + 48, b.values + 64);
                cr_assert(eq(int, b.type->collective(&b.driver, 0, &gather, &moved), RP_OK));
                cr_expect(eq(flt, value_at(&b, 128), right), "gathered");
            }
        }
    }
    rpexec_gpu_close_meetings(&b.driver);
    close_bench(&b);
}

/* There are more runs than the driver remembers: the rest is launched operator by operator, and
 * graphs that are not used go. */
Test(exec_gpu_runs, there_are_only_so_many)
{
    bench b;
    rpexec_lane *lane = NULL;
    open_bench(EMULATED_ALL_WORK, &b);
    const rpexec_cuda_lane_shape shape = {.model = &b.model, .tokens = SEQ_LEN};
    cr_assert(
        eq(int, b.devices->calls->lane_open(&b.gpu.part, &shape, b.stream, arena, &lane), RP_OK));
    for (uint32_t k = 0; k < 3; k++) {
        for (uint32_t i = 0; i < 3000; i++) {
            two(&b, i, 1, 4, 0.5f);
        }
    }
    cr_expect(eq(u32, emulator_counted(EMULATED_CAPTURES), 2048));
    cr_expect(eq(flt, value_at(&b, 0), 8));
    cr_expect(eq(flt, value_at(&b, 2999), 8));
    for (uint32_t program = 0; program < 2; program++) {
        rpexec_gpu_graphs_begin(b.graphs, &b.driver, &b.gpu, lane, b.stream);
        for (uint32_t k = 0; k < 3; k++) {
            two(&b, 0, 1, 4, 0.5f); /* belongs to the first program: its graph stays */
            two(&b, 3500, 1, 4, 0.5f);
        }
        cr_expect(eq(u32, emulator_counted(EMULATED_CAPTURES), program == 0 ? 2048 : 2049));
    }
    cr_expect(eq(u32, emulator_counted(EMULATED_LEFT), 2 + 5), "what was not used has not gone");
    cr_expect(eq(flt, value_at(&b, 3500), 64));
    close_bench(&b);
}

Test(exec_gpu_runs, there_is_one_warning)
{
    static const struct {
        emulated_graph_call fails;
        const char *text;
    } trials[] = {
        {EMULATED_BEGIN_FAILS, "--graphs: cudaStreamBeginCapture: operation not permitted"},
        {EMULATED_LAUNCH_FAILS, "--graphs: cudaStreamEndCapture: operation failed due"},
        {EMULATED_END_FAILS, "--graphs: cudaStreamEndCapture: operation failed due"},
        {EMULATED_MAKE_FAILS, "--graphs: cudaGraphInstantiate: invalid argument"}};
    for (size_t i = 0; i < 4; i++) {
        bench b;
        char messages[2048] = "";
        open_bench(trials[i].fails, &b);
        rp_log_capture_begin(messages, sizeof messages);
        for (uint32_t k = 0; k < 6; k++) {
            two(&b, k % 2, 1, 2, 2);
        }
        rp_log_capture_end();
        const char *found = strstr(messages, trials[i].text);
        cr_expect(found != NULL, "%s", messages);
        cr_expect(found == NULL || strstr(found + 1, "--graphs") == NULL, "%s", messages);
        cr_expect(eq(flt, value_at(&b, 0), 64));
        cr_expect(eq(flt, value_at(&b, 1), 64));
        cr_expect(eq(u32, emulator_counted(EMULATED_GRAPHS), 0));
        close_bench(&b);
    }
}
