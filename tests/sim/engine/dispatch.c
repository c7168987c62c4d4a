/* Dispatch by one host: counts against sim/model.md, closed forms, and what must not change. */
#include "common/schedule/schedule_type.h"
#include "sim/engine/hardware_engine.h"
#include "sim/run/hardware_case.h"
#include "tests/support/random_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

TestSuite(dispatch, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

/* One step of RoundPipe on a machine whose links take no time to speak of. */
typedef struct bench {
    rp_model model;
    rp_program *program;
    rpsim_compute_costs costs;
    rp_machine machine;
    rp_timeline *timeline;
} bench;

static void make(bench *b, const char *model, const char *partition, uint32_t gpus,
                 uint32_t microbatches, uint32_t iterations)
{
    rp_costs table;
    rp_platform platform;
    rp_partition list;
    *b = (bench){.timeline = NULL};
    const char *costs_name = NULL;
    cr_assert(eq(int, rp_arena_print(rp_test_arena, &costs_name, "%s@rtx4090", model), RP_OK));
    cr_assert(eq(int, rp_model_load(model, rp_test_arena, &b->model), RP_OK));
    cr_assert(eq(int, rp_costs_load(costs_name, rp_test_arena, &table), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", rp_test_arena, &platform), RP_OK));
    cr_assert(eq(int, rp_partition_parse("test", partition, rp_test_arena, &list), RP_OK));
    const rp_schedule_type *schedule = rp_schedule_find("roundpipe");
    rpsim_workload workload = {.dtype = RP_DTYPE_F16,
                               .global_batch = microbatches,
                               .calls = 1,
                               .microbatches = microbatches,
                               .seq_len = 2048};
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = iterations,
                                 .round = RP_ROUND_ALL,
                                 .round_start = RP_ROUND_START_ROTATE,
                                 .asynchronous = true,
                                 .recompute = RP_RECOMPUTE_EARLY,
                                 .layers = b->model.layers,
                                 .partition = &list,
                                 .costs = &table};
    cr_assert(eq(
        int, rpsim_hardware_lower(schedule, &config, &workload, &b->model, &platform, &b->program),
        RP_OK));
    cr_assert(eq(int,
                 rpsim_hardware_inputs(b->program, &table, &b->model, &platform, 2048,
                                       rp_test_arena, &b->costs, &b->machine),
                 RP_OK));
}

static void run(bench *b)
{
    rp_timeline_destroy(b->timeline);
    cr_assert(eq(int, rpsim_hardware_run(b->program, &b->costs, &b->machine, &b->timeline), RP_OK));
}

static void fini(bench *b)
{
    rp_timeline_destroy(b->timeline);
    rp_program_destroy(b->program);
}

static void free_links(bench *b)
{
    b->machine.upload_Bps = b->machine.download_Bps = b->machine.host_Bps = 1e15;
}

static void every_compute_op(bench *b, int64_t ps, uint32_t launches)
{
    for (uint32_t s = 0; s < b->costs.stage_count; s++) {
        for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
            b->costs.ps[s * RP_OP_KIND_COUNT + kind] = ps;
            b->costs.dispatch.launches[s * RP_OP_KIND_COUNT + kind] = launches;
        }
    }
}

static int64_t last_end(const bench *b)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < b->program->op_count; i++) {
        last = b->timeline->end_ps[i] > last ? b->timeline->end_ps[i] : last;
    }
    return last;
}

#define QWEN_1_7B "7,7,7|7,7,7,7"

/* sim/model.md section 2, term 5: "4900 modules per layer" and "800-6400 launches" of a MoE layer
 * and microbatch, forward and backward. */
Test(dispatch, counts_of_the_moe_models)
{
    rp_stage stage = {.layer_begin = 3, .layer_end = 4, .roles = RP_STAGE_FORWARD_LAYERS};
    rp_program program = {.stage_count = 1, .stages = &stage};
    rp_model model;
    rpsim_dispatch_counts c;
    cr_assert(eq(int, rp_model_load("qwen3-235b-lora", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpsim_dispatch_count(&program, &model, 1024, rp_test_arena, &c), RP_OK));
    cr_expect(eq(u32, c.modules[0] / 100, 49));
    cr_expect(eq(u32, c.launches[RP_OP_BACKWARD] / 100, 64));
    cr_expect(c.routing);
    cr_assert(eq(int, rp_model_load("gpt-oss-20b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpsim_dispatch_count(&program, &model, 1024, rp_test_arena, &c), RP_OK));
    cr_expect(le(u32, c.modules[0], 20u));
    cr_expect(ge(u32, c.launches[RP_OP_BACKWARD], 800u));
    cr_expect(le(u32, c.launches[RP_OP_BACKWARD], 1000u));
    cr_assert(eq(int, rp_model_load("qwen3-32b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpsim_dispatch_count(&program, &model, 1024, rp_test_arena, &c), RP_OK));
    cr_expect(not(c.routing));
}

/* A queue that never fills and cloning that takes no time change nothing, to the bit. */
Test(dispatch, without_limits_it_is_as_if_it_were_not_there)
{
    for (uint32_t gpus = 1; gpus <= 8; gpus++) {
        bench b;
        make(&b, "qwen3-1.7b", QWEN_1_7B, gpus, 6, 3);
        b.machine.module_ps = 0;
        b.costs.dispatch.queue_depth = UINT32_MAX;
        run(&b);
        uint64_t with = rp_timeline_hash(b.timeline);
        b.costs.dispatch.queue_depth = 0;
        run(&b);
        cr_expect(eq(u64, rp_timeline_hash(b.timeline), with), "%u GPUs", gpus);
        fini(&b);
    }
}

/* Where nothing but cloning takes time, a step takes all of it, on however many GPUs: one host. */
Test(dispatch, the_host_is_serial)
{
    for (uint32_t gpus = 1; gpus <= 8; gpus++) {
        bench b;
        make(&b, "qwen3-1.7b", QWEN_1_7B, gpus, 4, 2);
        free_links(&b);
        every_compute_op(&b, 0, 1);
        b.machine.module_ps = INT64_C(100000000);
        int64_t cloning = 0;
        for (uint32_t s = 0; s < b.program->stage_count; s++) { /* each stage is one job a step */
            cloning += 2 * b.machine.module_ps * b.costs.dispatch.modules[s];
        }
        run(&b);
        int64_t rest = last_end(&b) - cloning;
        cr_expect(ge(i64, rest, 0), "%u GPUs", gpus);
        cr_expect(le(i64, rest, cloning / 1000), "%u GPUs: %ld of %ld", gpus, (long)rest,
                  (long)cloning);
        fini(&b);
    }
}

/* The first op of each kind of a stage on the only GPU. */
static uint32_t find(const rp_program *p, rp_op_kind kind, uint32_t stage, uint32_t microbatch)
{
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (p->ops[i].kind == kind && p->ops[i].stage == stage &&
            p->ops[i].microbatch == microbatch) {
            return i;
        }
    }
    cr_assert(false, "no such op");
    return 0;
}

/* A compute op of 6 chunks, two of which may be in flight: its last one is issued when 4 are done,
 * and only then the weights of the next job. */
Test(dispatch, nothing_runs_ahead_of_a_full_queue)
{
    for (uint32_t depth = 512; depth <= 4096; depth *= 2) {
        bench b;
        make(&b, "qwen3-1.7b", QWEN_1_7B, 1, 1, 1);
        free_links(&b);
        b.machine.module_ps = 0;
        b.costs.dispatch.queue_depth = depth;
        const int64_t op_ps = INT64_C(6000000000);
        every_compute_op(&b, op_ps, 3 * 1024);
        run(&b);
        uint32_t first = find(b.program, RP_OP_FORWARD, 0, 0);
        uint32_t next = find(b.program, RP_OP_UPLOAD_PARAMS, 1, 0);
        int64_t chunks = 3 * 1024 / (depth / 2) + (3 * 1024 % (depth / 2) != 0 ? 1 : 0);
        int64_t ahead = chunks > 2 ? op_ps * (chunks - 2) / chunks : 0;
        int64_t waited = b.timeline->start_ps[next] - b.timeline->start_ps[first];
        if (ahead == 0) {
            cr_expect(le(i64, waited, 0), "depth %u", depth);
        } else {
            cr_expect(eq(i64, waited, ahead), "depth %u", depth);
        }
        fini(&b);
    }
}

/* Where the host waits for routing it has issued the last chunk when all others are done. */
Test(dispatch, routing_leaves_one_chunk_in_flight)
{
    bench b;
    make(&b, "qwen3-1.7b", QWEN_1_7B, 1, 1, 1);
    free_links(&b);
    b.machine.module_ps = 0;
    b.costs.dispatch.queue_depth = 1024;
    b.costs.dispatch.routing = true;
    every_compute_op(&b, INT64_C(6000000000), 3 * 1024);
    run(&b);
    uint32_t first = find(b.program, RP_OP_FORWARD, 0, 0);
    uint32_t next = find(b.program, RP_OP_UPLOAD_PARAMS, 1, 0);
    cr_expect(
        eq(i64, b.timeline->start_ps[next] - b.timeline->start_ps[first], INT64_C(5000000000)));
    fini(&b);
}

/* While a job is cloned nobody launches: a GPU in the middle of an op stops when it has run what
 * was issued. GPU 0 runs the first job's op from the time its clone is done; the second job's
 * clone, longer than that op, begins at the same time. */
Test(dispatch, cloning_stops_every_gpu)
{
    bench b;
    make(&b, "qwen3-1.7b", QWEN_1_7B, 2, 1, 1);
    free_links(&b);
    const int64_t op_ps = INT64_C(6000000000);
    b.costs.dispatch.queue_depth = 1024;
    every_compute_op(&b, op_ps, 3 * 1024);
    int64_t clone_ps = INT64_C(10000000000);
    b.machine.module_ps = clone_ps / b.costs.dispatch.modules[0];
    clone_ps = b.machine.module_ps * b.costs.dispatch.modules[0];
    run(&b);
    uint32_t op = find(b.program, RP_OP_FORWARD, 0, 0);
    int64_t held = b.timeline->held_ps[op];
    int64_t taken = b.timeline->end_ps[op] - b.timeline->start_ps[op];
    cr_expect(eq(i64, taken - held, op_ps));
    /* The upload before the op takes some nanoseconds of links without limits. */
    int64_t expected = clone_ps - op_ps / 3;
    cr_expect(le(i64, llabs(held - expected), INT64_C(10000000)), "%ld %ld", (long)held,
              (long)expected);
    fini(&b);
}

/* In every case an op takes its time and what it was held; cloning is done one after the
 * other; and a slower host never makes a step of these shorter. */
Test(dispatch, holds_account_for_all_that_ops_take_longer)
{
    rp_random random = {77};
    for (uint32_t i = 0; i < 60; i++) {
        bench b;
        bool moe = i % 2 == 0;
        make(&b, moe ? "qwen3-235b-lora" : "qwen3-1.7b",
             moe ? "24,24,24,22|0,24,24,24,22" : QWEN_1_7B, rp_random_between(&random, 1, 8),
             rp_random_between(&random, 1, 9), rp_random_between(&random, 1, 3));
        b.costs.dispatch.queue_depth = rp_random_between(&random, 1, 3000);
        b.machine.module_ps = rp_random_between(&random, 0, 60) * INT64_C(1000000);
        run(&b);
        int64_t cloning = 0;
        for (uint32_t s = 0; s < b.program->stage_count; s++) {
            cloning += b.machine.module_ps * b.costs.dispatch.modules[s];
        }
        cr_expect(ge(i64, last_end(&b), cloning * (int64_t)b.program->iteration_count));
        for (uint32_t q = 0; q < b.program->queue_count; q++) {
            const rp_queue *queue = &b.program->queues[q];
            for (uint32_t op = queue->op_begin;
                 queue->kind == RP_QUEUE_COMPUTE && op < queue->op_end; op++) {
                int64_t taken = b.timeline->end_ps[op] - b.timeline->start_ps[op];
                cr_assert(eq(i64, taken - b.timeline->held_ps[op],
                             rpsim_compute_ps(&b.costs, &b.program->ops[op])));
            }
        }
        uint64_t hash = rp_timeline_hash(b.timeline);
        run(&b);
        cr_expect(eq(u64, rp_timeline_hash(b.timeline), hash));
        fini(&b);
    }
}
