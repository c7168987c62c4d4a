/* Dispatch by a single host: counts against sim/model.md, closed forms, invariants. */
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/schedule/schedule_type.h"
#include "sim/engine/hardware_engine.h"
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/random_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(dispatch, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

/* A step of RoundPipe on a machine whose links take almost no time. */
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
    cr_assert(eq(int, rp_partition_parse("test", partition, rp_test_arena, &list, NULL), RP_OK));
    rp_resolved run = rp_test_hand_run("roundpipe", &b->model, &table, &list, gpus, microbatches);
    run.decided.iterations = iterations;
    run.decided.asynchronous = true;
    run.recompute = RP_RECOMPUTE_EARLY;
    cr_assert(eq(int, rpsim_hardware_lower(&run, &platform, &b->program, NULL), RP_OK));
    cr_assert(
        eq(int,
           rpsim_hardware_inputs(b->program, &table, &b->model, &platform, run.decided.seq_len,
                                 rp_test_arena, &b->costs, &b->machine, NULL),
           RP_OK));
}

static void run(bench *b)
{
    rp_timeline_destroy(b->timeline);
    cr_assert(
        eq(int, rpsim_hardware_run(b->program, &b->costs, &b->machine, &b->timeline, NULL), RP_OK));
}

static void fini(bench *b)
{
    rp_timeline_destroy(b->timeline);
    rp_program_destroy(b->program);
}

static void free_links(bench *b)
{
    b->machine.upload_Bps = b->machine.download_Bps = b->machine.host_Bps = 1e15;
    b->machine.adam_Bps = b->machine.refresh_Bps = 0;
    b->machine.object_ps = 0;
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

/* Modules and trained tensors of a layer of Hugging Face's implementation with PEFT's adapters on
 * all linear layers; of gpt-oss four experts run (sim/model.md section 10). */
Test(dispatch, counts_of_the_moe_models)
{
    rp_stage stage = {.layer_begin = 3, .layer_end = 4, .roles = RP_STAGE_FORWARD_LAYERS};
    rp_program program = {.stage_count = 1, .stages = &stage};
    rp_model model;
    rpsim_dispatch_counts c;
    cr_assert(eq(int, rp_model_load("qwen3-235b-lora", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpsim_dispatch_count(&program, &model, 1024, rp_test_arena, &c), RP_OK));
    cr_expect(eq(u32, c.modules[0], 4543));
    cr_expect(eq(u32, c.layer_modules, 4543));
    cr_expect(eq(u32, c.layer_tensors, 778));
    cr_expect(eq(u32, c.launches[RP_OP_BACKWARD] / 100, 64));
    cr_expect(c.routing);
    cr_assert(eq(int, rp_model_load("gpt-oss-20b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpsim_dispatch_count(&program, &model, 1024, rp_test_arena, &c), RP_OK));
    cr_expect(eq(u32, c.modules[0], 11));
    cr_expect(eq(u32, c.launches[RP_OP_FORWARD], 40 + 4 * 13 + 1));
    cr_expect(eq(u32, c.layer_tensors, 4 + 4 + 1 + 2 + 2 + 2 + 2));
    cr_assert(eq(int, rp_model_load("qwen3-32b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpsim_dispatch_count(&program, &model, 1024, rp_test_arena, &c), RP_OK));
    cr_expect(not(c.routing));
    cr_expect(eq(u32, c.layer_tensors, 11));
}

/* A queue that never fills, and cloning and tensors that take no time, do not change a single step,
 * to the bit. */
Test(dispatch, without_limits_it_is_as_if_it_were_not_there)
{
    for (uint32_t gpus = 1; gpus <= 8; gpus++) {
        bench b;
        make(&b, "qwen3-1.7b", QWEN_1_7B, gpus, 6, 1);
        b.machine.module_ps = b.machine.object_ps = 0;
        b.costs.dispatch.queue_depth = UINT32_MAX;
        run(&b);
        uint64_t with = rp_timeline_hash(b.timeline);
        b.costs.dispatch.queue_depth = 0;
        run(&b);
        cr_expect(eq(u64, rp_timeline_hash(b.timeline), with), "%u GPUs", gpus);
        fini(&b);
    }
}

/* If only cloning takes time, a step takes all of it on any number of GPUs, as there is a single
 * host. */
Test(dispatch, the_host_is_serial)
{
    for (uint32_t gpus = 1; gpus <= 8; gpus++) {
        bench b;
        make(&b, "qwen3-1.7b", QWEN_1_7B, gpus, 4, 2);
        free_links(&b);
        every_compute_op(&b, 0, 1);
        b.machine.module_ps = INT64_C(100000000);
        int64_t cloning = 0;
        for (uint32_t s = 0; s < b.program->stage_count; s++) { /* each stage is a job per step */
            cloning += 2 * b.machine.module_ps * b.costs.dispatch.modules[s];
        }
        uint32_t last = b.program->backward_chain[b.program->backward_count - 1];
        cloning -= b.machine.module_ps * (b.costs.dispatch.modules[last] / 4); /* after all ops */
        run(&b);
        int64_t rest = last_end(&b) - cloning;
        cr_expect(ge(i64, rest, 0), "%u GPUs", gpus);
        cr_expect(le(i64, rest, cloning / 1000), "%u GPUs: %ld of %ld", gpus, (long)rest,
                  (long)cloning);
        fini(&b);
    }
}

/* The first op of a kind and stage on the only GPU. */
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

/* Two of a compute op's 6 chunks may be in flight: the last is issued when 4 are done, and only
 * then the next job's weights. */
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

/* A quarter of a job's cloning comes as its kernels are issued, before the next job's. With two
 * jobs on a GPU whose ops take no time, the second begins after 4/4 and 3/4. */
Test(dispatch, giving_clones_up_takes_its_time)
{
    bench b;
    make(&b, "qwen3-1.7b", QWEN_1_7B, 1, 1, 1);
    free_links(&b);
    every_compute_op(&b, 0, 1);
    b.machine.module_ps = INT64_C(1000000000);
    run(&b);
    int64_t first = b.costs.dispatch.modules[b.program->forward_chain[0]];
    int64_t second = b.costs.dispatch.modules[b.program->forward_chain[1]];
    uint32_t op = find(b.program, RP_OP_UPLOAD_PARAMS, b.program->forward_chain[1], 0);
    int64_t expected = b.machine.module_ps * (first + second - second / 4);
    cr_expect(le(i64, llabs(b.timeline->start_ps[op] - expected), INT64_C(100000000)), "%ld %ld",
              (long)b.timeline->start_ps[op], (long)expected);
    fini(&b);
}

/* A step's first job is handed out when its layers are refreshed. Then the process walks twice
 * through all modules, and clones. */
Test(dispatch, a_call_begins_after_the_refresh)
{
    bench b;
    make(&b, "qwen3-1.7b", QWEN_1_7B, 2, 2, 2);
    free_links(&b);
    every_compute_op(&b, 0, 1);
    b.machine.module_ps = INT64_C(1000000);
    b.machine.object_ps = INT64_C(10000000);
    b.machine.refresh_Bps = 1e9; /* the slowest of all */
    run(&b);
    uint32_t stage = b.program->forward_chain[0];
    int64_t modules = b.costs.dispatch.modules[stage];
    int64_t held = b.machine.module_ps * (modules - modules / 4) +
                   2 * 28 * b.machine.object_ps * b.costs.dispatch.layer_modules;
    uint32_t checked = 0;
    for (uint32_t i = 0; i < b.program->op_count; i++) {
        const rp_op *op = &b.program->ops[i];
        int64_t refreshed = 0;
        for (uint32_t w = op->wait_begin; w < op[1].wait_begin; w++) {
            uint32_t target = rp_wait_op(b.program->waits[w]);
            bool refresh = b.program->ops[target].kind == RP_OP_REFRESH;
            refreshed = refresh ? b.timeline->end_ps[target] : refreshed;
        }
        if (op->kind == RP_OP_UPLOAD_PARAMS && op->stage == stage && refreshed > 0) {
            cr_expect(eq(i64, b.timeline->start_ps[i], refreshed + held));
            checked++;
        }
    }
    cr_expect(eq(u32, checked, 1));
    fini(&b);
}

/* Refresh and collection of a layer go through its modules and tensors, Adam through all layers'
 * tensors; then come the bytes. */
Test(dispatch, host_ops_take_time_for_each_object)
{
    bench b;
    make(&b, "qwen3-235b-lora", "24,24,24,22|0,24,24,24,22", 4, 2, 2);
    b.machine.object_ps = INT64_C(5000000);
    run(&b);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < b.program->op_count; i++) {
        const rp_op *op = &b.program->ops[i];
        if (rp_op_kind_class((rp_op_kind)op->kind) != RP_CLASS_HOST) {
            continue;
        }
        bool of_layer = op->microbatch >= 1 && op->microbatch <= 94;
        int64_t objects = op->kind == RP_OP_OPTIMIZER ? 94 * 778 : of_layer ? 4543 + 778 : 0;
        double bytes_s =
            (double)b.program->op_bytes[i] / rp_machine_host_Bps(&b.machine, (rp_op_kind)op->kind);
        int64_t expected = objects * b.machine.object_ps + (int64_t)(1e12 * bytes_s);
        int64_t taken = b.timeline->end_ps[i] - b.timeline->start_ps[i];
        cr_assert(le(i64, llabs(taken - expected), 2), "%u: %ld %ld", i, (long)taken,
                  (long)expected);
        seen++;
    }
    cr_expect(eq(u32, seen, 2 * (96 + 96 + 1)));
    fini(&b);
}

/* A host that waits for routing issues the last chunk when all others are done. */
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

static int64_t start_of(const bench *b, rp_op_kind kind, uint32_t stage, uint32_t microbatch)
{
    return b->timeline->start_ps[find(b->program, kind, stage, microbatch)];
}

/* A recompute reuses its forward's counts, so the host does not wait for it. The queue has room for
 * a whole stage's ops of a single chunk, so the next stage's upload begins as soon as memory is
 * free: with the first recompute. The host waits for forwards, so an upload begins with the last
 * forward before it. */
Test(dispatch, recompute_does_not_wait_for_routing)
{
    for (uint32_t routing = 0; routing < 2; routing++) {
        bench b;
        make(&b, "qwen3-1.7b", QWEN_1_7B, 1, 2, 1);
        free_links(&b);
        b.machine.module_ps = 0;
        b.costs.dispatch.queue_depth = 1024;
        b.costs.dispatch.routing = routing == 1;
        every_compute_op(&b, INT64_C(6000000000), 100);
        run(&b);
        const uint16_t *chain = b.program->backward_chain;
        int64_t free_ps = start_of(&b, RP_OP_UPLOAD_PARAMS, chain[2], 0) -
                          start_of(&b, RP_OP_RECOMPUTE, chain[1], 0);
        int64_t held_ps = start_of(&b, RP_OP_UPLOAD_PARAMS, chain[1], 0) -
                          start_of(&b, RP_OP_FORWARD, chain[0], routing);
        /* Links without limits take some nanoseconds. */
        cr_expect(le(i64, llabs(free_ps), INT64_C(10000000)), "%ld", (long)free_ps);
        cr_expect(le(i64, llabs(held_ps), INT64_C(10000000)), "%ld", (long)held_ps);
        fini(&b);
    }
}

/* Nobody launches while a job is cloned: a GPU stops within an op when it has run all issued
 * chunks. GPU 0 runs the first job's op when that clone is done, as the second job's longer clone
 * begins. */
Test(dispatch, cloning_stops_every_gpu)
{
    bench b;
    make(&b, "qwen3-1.7b", QWEN_1_7B, 2, 1, 1);
    free_links(&b);
    const int64_t op_ps = INT64_C(6000000000);
    b.costs.dispatch.queue_depth = 1024;
    every_compute_op(&b, op_ps, 3 * 1024);
    int64_t clone_ps = INT64_C(10000000000);
    int64_t modules = b.costs.dispatch.modules[0] - b.costs.dispatch.modules[0] / 4;
    b.machine.module_ps = clone_ps / modules;
    clone_ps = b.machine.module_ps * modules;
    run(&b);
    uint32_t op = find(b.program, RP_OP_FORWARD, 0, 0);
    int64_t held = b.timeline->held_ps[op];
    int64_t taken = b.timeline->end_ps[op] - b.timeline->start_ps[op];
    cr_expect(eq(i64, taken - held, op_ps));
    /* The op's upload takes some nanoseconds of links without limits. */
    int64_t expected = clone_ps - op_ps / 3;
    cr_expect(le(i64, llabs(held - expected), INT64_C(10000000)), "%ld %ld", (long)held,
              (long)expected);
    fini(&b);
}

/* An op always takes its time plus its hold; clones never overlap; a slower host never makes these
 * steps shorter. */
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
