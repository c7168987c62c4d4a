/* The optimizer on the GPU: bytes, order and step times in closed form. In a pass Adam moves 28 B
 * per parameter: it reads an fp16 gradient (2) and fp32 master, m and v (12), and writes the last
 * three (12) and the fp16 weight (2). */
#include "common/lower/lower.h"
#include "common/schedule/build.h"
#include "sim/engine/hardware_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

#define LAYERS 8u
#define FORWARD_PS INT64_C(3000000)
#define BACKWARD_PS INT64_C(7000000)
#define STEPS 3u

static rp_arena *arena;
static uint64_t weights[LAYERS + 2];
static uint64_t gradients[LAYERS + 2];
static uint64_t parameters[LAYERS + 2];
static rp_costs table;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_test_equal_costs(arena, LAYERS, FORWARD_PS, BACKWARD_PS, &table);
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(lower_updates, .init = begin, .fini = end, .timeout = 60);

/* 100 parameters per layer; `table_parameters` in embedding and head. */
static void set_parameters(uint64_t table_parameters)
{
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        parameters[i] = i == 0 || i == LAYERS + 1 ? table_parameters : 100;
        weights[i] = gradients[i] = 2 * parameters[i];
    }
}

/* Only compute and updates take time: boundaries have no bytes. */
static rp_program *make(const char *name, uint32_t gpus, uint32_t microbatches, bool asynchronous,
                        bool tied)
{
    const rp_schedule_type *schedule = rp_schedule_find(name);
    rp_partition partition;
    rp_program *compute = NULL;
    rp_program *program = NULL;
    uint32_t *sequences = NULL;
    cr_assert(
        eq(int, rp_partition_even(schedule, &table, gpus, 0, arena, &partition, NULL), RP_OK));
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = STEPS,
                                 .round = microbatches,
                                 .asynchronous = asynchronous,
                                 .recompute = RP_RECOMPUTE_NONE,
                                 .layers = LAYERS,
                                 .partition = &partition,
                                 .costs = &table};
    cr_assert(eq(int, rp_schedule_build(schedule, &config, &compute, NULL), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, microbatches, sizeof(uint32_t), &sequences), RP_OK));
    for (uint32_t m = 0; m < microbatches; m++) {
        sequences[m] = 1;
    }
    rp_lower_config lower = {.call_microbatches = microbatches,
                             .piece_bytes = RP_PIECE_BYTES,
                             .sizes = {.layers = LAYERS,
                                       .dtype = RP_DTYPE_F16,
                                       .weight_bytes = weights,
                                       .gradient_bytes = gradients,
                                       .parameters = parameters,
                                       .tied_head = tied}};
    cr_assert(eq(int, rp_lower(compute, &lower, sequences, &program, NULL), RP_OK), "%s", name);
    rp_program_destroy(compute);
    cr_assert(eq(int, rp_program_check(program), RP_OK), "%s", name);
    return program;
}

/* A run's picoseconds if GPU memory moves a byte in `ps_per_byte`. */
static int64_t run(const rp_program *program, double ps_per_byte)
{
    static const rp_machine machine = {
        .upload_Bps = 1e12, .download_Bps = 1e12, .host_Bps = 1e12, .collective_Bps = 1e12};
    rp_stage_times times;
    rp_timeline *timeline = NULL;
    cr_assert(eq(int, rp_stage_times_compute(program, &table, arena, &times, NULL), RP_OK));
    rpsim_compute_costs costs = {
        .ps = times.ps, .stage_count = program->stage_count, .memory_ps_per_byte = ps_per_byte};
    cr_assert(
        eq(int, rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs.class_of),
           RP_OK));
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline, NULL), RP_OK));
    int64_t last = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        last = timeline->end_ps[i] > last ? timeline->end_ps[i] : last;
    }
    rp_timeline_destroy(timeline);
    return last;
}

/* Bytes of a GPU's updates per step; all steps must be equal. */
static uint64_t updated(const rp_program *p, uint32_t gpu)
{
    uint64_t bytes[STEPS] = {0};
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            bool here = p->queues[q].gpu == gpu && p->ops[i].kind == RP_OP_UPDATE;
            bytes[p->ops[i].iteration] += here ? p->op_bytes[i] : 0;
        }
    }
    for (uint32_t i = 1; i < STEPS; i++) {
        cr_expect(eq(u64, bytes[i], bytes[0]));
    }
    return bytes[0];
}

/* A pipeline's GPU updates its own weights, a data-parallel GPU its share of all. */
Test(lower_updates, bytes)
{
    set_parameters(500);
    rp_program *p = make("1f1b", 4, 4, false, false);
    const uint64_t held[] = {500 + 200, 200, 200, 200 + 500};
    for (uint32_t gpu = 0; gpu < 4; gpu++) {
        cr_expect(eq(u64, updated(p, gpu), 28 * held[gpu]), "GPU %u", gpu);
    }
    rp_program_destroy(p);
    p = make("interleaved-1f1b", 2, 4, false, false); /* 8 stages, odd ones on GPU 1 */
    cr_expect(eq(u64, updated(p, 0), 28 * (500 + 400)));
    cr_expect(eq(u64, updated(p, 1), 28 * (400 + 500)));
    rp_program_destroy(p);
    static const char *const sharded[] = {"zero2", "zero3", "fsdp", "megatron-tp"};
    for (size_t i = 0; i < 4; i++) {
        p = make(sharded[i], 4, 4, false, false);
        for (uint32_t gpu = 0; gpu < 4; gpu++) {
            cr_expect(eq(u64, updated(p, gpu), 28 * (1000 + 800) / 4), "%s", sharded[i]);
        }
        rp_program_destroy(p);
    }
}

/* A tied head's table is a single parameter if embedding and head are on the same GPU, else a copy
 * each. */
Test(lower_updates, tied_heads)
{
    set_parameters(500);
    rp_program *p = make("gpipe", 1, 2, false, true);
    cr_expect(eq(u64, updated(p, 0), 28 * (500 + 800)));
    rp_program_destroy(p);
    p = make("gpipe", 2, 2, false, true);
    cr_expect(eq(u64, updated(p, 0), 28 * (500 + 400)));
    cr_expect(eq(u64, updated(p, 1), 28 * (400 + 500)));
    rp_program_destroy(p);
    p = make("fsdp", 2, 2, false, true);
    cr_expect(eq(u64, updated(p, 0), 28 * (500 + 800) / 2));
    rp_program_destroy(p);
}

Test(lower_updates, none_where_the_host_steps)
{
    static const char *const names[] = {"mobius", "zero-offload", "zero-infinity", "fsdp-offload"};
    set_parameters(500);
    for (size_t i = 0; i < 4; i++) {
        rp_program *p = make(names[i], 2, 2, false, false);
        cr_expect(eq(u64, updated(p, 0), 0), "%s", names[i]);
        rp_program_destroy(p);
    }
}

/* GPipe without recompute, P equal stages: (M + P - 1) (F + B) until GPU 0's last backward. GPU p
 * ends its own p B earlier, and updates meanwhile. */
Test(lower_updates, step_of_a_pipeline)
{
    const uint32_t gpus = 4;
    const uint32_t microbatches = 6;
    const int64_t stage_f = LAYERS / gpus * FORWARD_PS;
    const int64_t stage_b = LAYERS / gpus * BACKWARD_PS;
    const double ps_per_byte = 1000;
    uint32_t slowest_seen[4] = {0};
    for (uint64_t head = 0; head <= 3000; head += 500) {
        set_parameters(head);
        parameters[0] = weights[0] = gradients[0] = 0;
        rp_program *p = make("gpipe", gpus, microbatches, false, false);
        int64_t latest = 0;
        uint32_t slowest = 0;
        for (uint32_t gpu = 0; gpu < gpus; gpu++) {
            int64_t update_ps = 28 * (200 + (gpu + 1 == gpus ? (int64_t)head : 0)) * 1000;
            int64_t after = update_ps - gpu * stage_b;
            slowest = after > latest ? gpu : slowest;
            latest = after > latest ? after : latest;
        }
        slowest_seen[slowest]++;
        int64_t step = (microbatches + gpus - 1) * (stage_f + stage_b) + latest;
        cr_expect(eq(i64, run(p, ps_per_byte), STEPS * step), "head of %d", (int)head);
        cr_expect(eq(i64, run(p, 0), STEPS * (step - latest)), "no updates");
        rp_program_destroy(p);
    }
    cr_expect(gt(u32, slowest_seen[0], 0));
    cr_expect(gt(u32, slowest_seen[3], 0));
}

/* A single GPU hides no update, with or without a barrier. */
Test(lower_updates, step_of_one_gpu)
{
    set_parameters(500);
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        rp_program *p = make("1f1b", 1, 5, asynchronous != 0, false);
        int64_t step = 5 * LAYERS * (FORWARD_PS + BACKWARD_PS) + 28 * 1800 * 40;
        cr_expect(eq(i64, run(p, 40), STEPS * step));
        rp_program_destroy(p);
    }
}

/* Data parallel: shards step after the last reduction. */
Test(lower_updates, step_of_zero2)
{
    set_parameters(500);
    const uint32_t gpus = 4;
    rp_program *p = make("zero2", gpus, 2 * gpus, false, false);
    int64_t without = run(p, 0);
    cr_expect(eq(i64, run(p, 1000), without + STEPS * 28 * 1800 / gpus * 1000));
    rp_program_destroy(p);
}
