/* Copies between GPUs that do not reach each other (exec/gpu/copies.c), on the machine of threads.
 */
#include "exec/gpu/gpu_internal.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/gpu_case.h"

#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_gpu_end(arena);
}

TestSuite(exec_gpu_copies, .init = begin, .fini = end, .timeout = 120);

/* Boundary tensors and weights go over the host piece by piece. */
Test(exec_gpu_copies, copies_over_the_host_wait_for_their_halves)
{
    static const char *const names[] = {"1f1b", "fsdp"};
    rp_model config = rp_test_small_decoder(2, false, false);
    for (uint32_t i = 0; i < 10; i++) {
        rp_resolved work = rp_test_work(names[i % 2], 2, 4, 1);
        const emulated_machine machine = {
            .devices = 2, .seed = 31 + i, .delay_us = i % 2 == 0 ? 1200 : 150, .often = true};
        work.peer_gpus = i % 2 == 0 ? UINT32_MAX : 0;
        rp_test_gpu_compare(arena, &config, &work, &machine,
                            (rp_test_twist){.devices = {.stage_bytes = i < 2 ? 52 : 60}});
    }
}

/* A SEND ends when its last piece has been uploaded, whichever half of the staging buffer that
 * piece is in: there are 4, 5, 2 or 3 pieces. Only the streams that upload are late, so that an op
 * that does not wait for them is early. */
Test(exec_gpu_copies, copies_over_the_host_end_with_their_last_piece)
{
    static const uint64_t stage_bytes[] = {60, 52, 120, 80};
    rp_model config = rp_test_small_decoder(2, false, false);
    for (uint32_t i = 0; i < 8; i++) {
        rp_resolved work = rp_test_work("1f1b", 2, 4, 1);
        const emulated_machine machine = {
            .devices = 2, .seed = 71 + i, .delay_us = 3000, .often = true, .late_beside = true};
        work.peer_gpus = UINT32_MAX;
        rp_test_gpu_compare(arena, &config, &work, &machine,
                            (rp_test_twist){.devices = {.stage_bytes = stage_bytes[i % 4]}});
    }
}

/* ---- queues without a program ---------------------------------------------------------------- */

#define GPUS 3u
#define QUEUES 5u
#define PIECE 64u
#define BYTES (PIECE + 7) /* more bytes would fill the fake's short queues */

/* A copy in the queue of GPU `index`. */
typedef struct way {
    uint32_t index;
    uint32_t other;
    bool sends;
} way;

/* All copies are from or to GPU 2. */
static const way ways[QUEUES] = {
    {0, 2, true}, {1, 2, true}, {1, 2, false}, {0, 2, true}, {0, 2, false}};

typedef struct bench {
    const rpexec_driver_type *type;
    rpexec_devices *devices;
    rpexec_driver driver;
    rpexec_gpu_queue queues[QUEUES];
    unsigned char *from[QUEUES]; /* [BYTES] on the GPU that sends */
    unsigned char *to[QUEUES];
    void *ends[QUEUES]; /* events after the copies */
} bench;

static uint32_t sender(uint32_t i)
{
    return ways[i].sends ? ways[i].index : ways[i].other;
}

static uint32_t receiver(uint32_t i)
{
    return ways[i].sends ? ways[i].other : ways[i].index;
}

static unsigned char *take_on(const bench *b, uint32_t gpu, int byte)
{
    void *memory = NULL;
    cr_assert(eq(int, b->devices->calls->enter(&b->devices->gpus[gpu].part), 0));
    cr_assert(eq(int, b->devices->calls->memory_take(BYTES, &memory), 0));
    memset(memory, byte, BYTES);
    return memory;
}

static void open_bench(uint32_t stick_at, bench *b)
{
    const emulated_machine machine = {.devices = GPUS, .stick_at = stick_at};
    const rpexec_devices_config config = {.gpus = GPUS, .stage_bytes = PIECE};
    uint64_t bytes = 0;
    *b = (bench){.type = rp_fake_cuda_driver(&machine)};
    cr_assert(eq(int, b->type->attach(&config, &b->devices, &bytes), RP_OK));
    b->driver = (rpexec_driver){.arena = arena, .devices = b->devices, .calls = b->devices->calls};
    pthread_mutex_init(&b->driver.lock, NULL);
    pthread_cond_init(&b->driver.moved, NULL);
    for (uint32_t i = 0; i < QUEUES; i++) {
        rpexec_gpu_queue *q = &b->queues[i];
        *q = (rpexec_gpu_queue){
            .driver = &b->driver, .index = ways[i].index, .gpu = &b->devices->gpus[ways[i].index]};
        b->from[i] = take_on(b, sender(i), (int)i + 1);
        b->to[i] = take_on(b, receiver(i), 0);
        cr_assert(eq(int, b->driver.calls->enter(&q->gpu->part), 0));
        cr_assert(eq(int, b->driver.calls->stream_create(&q->gpu->part, &q->stream), 0));
        cr_assert(eq(int, b->driver.calls->event_create(&b->ends[i]), 0));
        cr_assert(eq(int, rpexec_gpu_open_stage(q), RP_OK));
    }
}

static void start_copy(bench *b, uint32_t i)
{
    rpexec_gpu_queue *q = &b->queues[i];
    cr_assert(eq(int, b->driver.calls->enter(&q->gpu->part), 0));
    rpexec_gpu_copy_between(q, receiver(i), b->to[i], sender(i), b->from[i], BYTES);
    cr_assert(eq(int, b->driver.calls->event_record(b->ends[i], q->stream), 0));
    cr_assert(eq(int, b->driver.status, RP_OK));
}

/* True if the copy ends within 10 s, far longer than it takes. */
static bool ends(const bench *b, uint32_t i)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (uint32_t k = 0; k < 10000; k++) {
        if (b->driver.calls->event_query(b->ends[i]) == 0) {
            return memcmp(b->from[i], b->to[i], BYTES) == 0;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

static void close_bench(bench *b)
{
    const rpexec_cuda_calls *c = b->driver.calls;
    for (uint32_t i = 0; i < QUEUES; i++) {
        (void)c->stream_synchronize(b->queues[i].stream);
        rpexec_gpu_close_stage(&b->queues[i]);
        (void)c->stream_destroy(b->queues[i].stream);
        (void)c->event_destroy(b->ends[i]);
        (void)c->memory_give(b->from[i]);
        (void)c->memory_give(b->to[i]);
    }
    pthread_cond_destroy(&b->driver.moved);
    pthread_mutex_destroy(&b->driver.lock);
    b->type->detach(b->devices);
}

/* The first copy never arrives at GPU 2. Copies of the other queues to and from that GPU do arrive.
 */
Test(exec_gpu_copies, queues_do_not_wait_for_each_others_copies)
{
    bench b;
    open_bench(2, &b);
    start_copy(&b, 0);
    bool well = true;
    for (uint32_t i = 1; well && i < QUEUES; i++) {
        start_copy(&b, i);
        well = ends(&b, i);
        cr_expect(well, "copy %u does not arrive beside one that hangs", i);
    }
    cr_expect(ne(int, b.driver.calls->event_query(b.ends[0]), 0));
    emulator_unstick();
    cr_expect(ends(&b, 0));
    close_bench(&b);
}
