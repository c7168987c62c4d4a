/* Data-parallel and tensor-parallel systems and Mobius at hardware fidelity, against the volumes
 * and sums of shared/design/prediction.md section 3. */
#include "common/log.h"
#include "common/lower.h"
#include "sim/hardware_engine.h"
#include "tests/support/synthetic.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#define LAYERS 6u

static rp_arena *arena;
static uint64_t weights[LAYERS + 2];
static uint64_t gradients[LAYERS + 2];
static uint64_t parameters[LAYERS + 2];
static rp_costs table;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_test_equal_costs(arena, LAYERS, 700000000, 1500000000, &table);
    table.head_fwd_ps = 900000000;
    table.head_bwd_ps = 1700000000;
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        weights[i] = 80000000 + 1000000 * i;
        gradients[i] = 64000000 + 2000000 * i;
        parameters[i] = 40000000;
    }
}

static void end(void)
{
    rp_arena_destroy(arena);
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}

TestSuite(systems, .init = begin, .fini = end, .timeout = 120);

#define BOUNDARY UINT64_C(3000000)
#define STEPS 2u

/* One system on `gpus` GPUs, `each` microbatches of two sequences per GPU; STEPS steps. */
static rp_program *make(const char *name, uint32_t gpus, uint32_t each)
{
    const rp_schedule_type *schedule = rp_schedule_find(name);
    rp_partition partition;
    rp_program *compute = NULL;
    rp_program *program = NULL;
    uint32_t *sequences = NULL;
    uint32_t microbatches = gpus * each;
    cr_assert(eq(int, rp_partition_even(schedule, &table, gpus, 0, arena, &partition), RP_OK));
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = STEPS,
                                 .round = microbatches,
                                 .recompute = RP_RECOMPUTE_WAIT,
                                 .layers = LAYERS,
                                 .partition = &partition,
                                 .costs = &table};
    cr_assert(eq(int, rp_schedule_build(schedule, &config, &compute), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, microbatches, sizeof(uint32_t), &sequences), RP_OK));
    for (uint32_t m = 0; m < microbatches; m++) {
        sequences[m] = 2;
    }
    rp_lower_config lower = {.placement = schedule->placement,
                             .sharding = schedule->sharding,
                             .call_microbatches = microbatches,
                             .piece_bytes = RP_PIECE_BYTES,
                             .sizes = {.layers = LAYERS,
                                       .weight_bytes = weights,
                                       .gradient_bytes = gradients,
                                       .parameters = parameters,
                                       .boundary_bytes = BOUNDARY,
                                       .input_bytes = 8}};
    cr_assert(eq(int, rp_lower(compute, &lower, sequences, &program), RP_OK), "%s", name);
    rp_program_destroy(compute);
    cr_assert(eq(int, rp_program_check(program), RP_OK), "%s", name);
    return program;
}

static const rpsim_machine machine = {.upload_Bps = 20e9,
                                      .download_Bps = 20e9,
                                      .host_Bps = 90e9,
                                      .collective_Bps = 2.5e9,
                                      .collect_Bps = 12e9};

static int64_t run(const rp_program *program)
{
    rp_stage_times times;
    rp_timeline *timeline = NULL;
    cr_assert(eq(int, rp_stage_times_compute(program, &table, arena, &times), RP_OK));
    rpsim_compute_costs costs = {.ps = times.ps, .stage_count = program->stage_count};
    cr_assert(
        eq(int, rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs.class_of),
           RP_OK));
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline), RP_OK));
    int64_t last = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        last = timeline->end_ps[i] > last ? timeline->end_ps[i] : last;
    }
    rp_timeline_destroy(timeline);
    return last;
}

static uint64_t sum(const uint64_t *values)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        total += values[i];
    }
    return total;
}

static uint64_t moved(const rp_program *program, rp_op_kind kind)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        bytes += program->ops[i].kind == kind ? program->op_bytes[i] : 0;
    }
    return bytes;
}

/* Compute of one microbatch: with recompute. */
static double compute_s(void)
{
    return 1e-12 * (LAYERS * (2 * 700000000.0 + 1500000000.0) + 900000000.0 + 1700000000.0);
}

/* Collectives carry (n - 1) / n of the bytes through each GPU; rounding is per stage. */
static double volume(uint32_t gpus, uint64_t bytes)
{
    return (double)(gpus - 1) / gpus * (double)bytes;
}

Test(systems, volumes)
{
    for (uint32_t n = 2; n <= 8; n += 3) {
        const uint32_t each = 3;
        const double ranks = (double)n * STEPS;             /* all ranks and steps */
        const double slack = 100.0 * LAYERS * each * ranks; /* bytes lost to whole numbers */
        rp_program *p = make("zero2", n, each);
        double expected = ranks * each * 2 * volume(n, sum(gradients));
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_REDUCE), expected, slack));
        cr_expect(eq(u64, moved(p, RP_OP_ALL_GATHER), 0));
        rp_program_destroy(p);
        p = make("fsdp", n, each);
        expected = ranks * each * 2 * volume(n, sum(weights));
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        expected = ranks * volume(n, sum(gradients));
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_REDUCE_SCATTER), expected, slack));
        rp_program_destroy(p);
        p = make("zero-infinity", n, each);
        expected = ranks * each * 2 * volume(n, sum(weights));
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        expected = ranks * each * 2 * (double)sum(weights) / n; /* forward and backward */
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_UPLOAD_PARAMS), expected, slack));
        expected = ranks * each * (double)sum(gradients) / n;
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_DOWNLOAD_PARAM_GRAD), expected, slack));
        cr_expect(eq(u64, moved(p, RP_OP_OPTIMIZER), STEPS * 32 * sum(parameters)));
        rp_program_destroy(p);
        p = make("zero-offload", n, each);
        expected = ranks * volume(n, sum(weights)); /* once per step */
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        rp_program_destroy(p);
        p = make("megatron-tp", n, each);
        expected = ranks * each * (6 * LAYERS + 2) * 2 * volume(n, BOUNDARY * 2 * n);
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_REDUCE), expected, slack));
        rp_program_destroy(p);
    }
}

/* Nothing overlaps in ZeRO-2 and tensor parallelism: a step is the sum of its parts. */
Test(systems, steps_are_sums)
{
    for (uint32_t n = 2; n <= 8; n += 2) {
        const uint32_t each = 4;
        rp_program *p = make("zero2", n, each);
        double step = each * (compute_s() + 2 * volume(n, sum(gradients)) / 2.5e9);
        cr_expect(epsilon_eq(dbl, 1e-12 * (double)run(p), STEPS * step, 1e-6 * step), "n %u", n);
        rp_program_destroy(p);
        p = make("megatron-tp", n, each);
        double reduces = (6 * LAYERS + 2) * 2 * volume(n, BOUNDARY * 2 * n) / 2.5e9;
        step = each * (compute_s() + reduces);
        cr_expect(epsilon_eq(dbl, 1e-12 * (double)run(p), STEPS * step, 1e-6 * step), "n %u", n);
        rp_program_destroy(p);
    }
}

/* FSDP gathers while it computes: between the larger and the sum of both. */
Test(systems, fsdp_overlaps)
{
    const uint32_t n = 8;
    const uint32_t each = 6;
    rp_program *p = make("fsdp", n, each);
    double gathers = each * 2 * volume(n, sum(weights)) / 2.5e9;
    double compute = each * compute_s();
    double reduce = volume(n, sum(gradients)) / 2.5e9;
    double step = 1e-12 * (double)run(p) / STEPS;
    cr_expect(ge(dbl, step, (gathers > compute ? gathers : compute) * 0.999));
    cr_expect(le(dbl, step, gathers + compute + reduce));
    cr_expect(lt(dbl, step, 0.97 * (gathers + compute + reduce)), "nothing overlaps");
    rp_program_destroy(p);
}

/* Mobius moves a stage's weights once per pass, not once per GPU and microbatch. */
Test(systems, mobius_uploads_weights_twice)
{
    rp_program *p = make("mobius", 2, 4);
    cr_expect(eq(u64, moved(p, RP_OP_UPLOAD_PARAMS), STEPS * 2 * sum(weights)));
    cr_expect(eq(u64, moved(p, RP_OP_DOWNLOAD_PARAM_GRAD), STEPS * sum(gradients)));
    cr_expect(gt(i64, run(p), 0));
    rp_program_destroy(p);
}

/* Alone there is nobody to talk to. */
Test(systems, one_gpu_has_no_collectives)
{
    static const char *const names[] = {"zero2", "zero-offload", "zero-infinity", "fsdp",
                                        "megatron-tp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rp_program *p = make(names[i], 1, 3);
        cr_expect(eq(u64,
                     moved(p, RP_OP_ALL_GATHER) + moved(p, RP_OP_ALL_REDUCE) +
                         moved(p, RP_OP_REDUCE_SCATTER),
                     0),
                  "%s", names[i]);
        cr_expect(gt(i64, run(p), 0));
        rp_program_destroy(p);
    }
}

/* Every system, many sizes: valid programs that end. */
Test(systems, no_deadlock)
{
    static const char *const names[] = {"zero2",       "zero-offload", "zero-infinity", "fsdp",
                                        "megatron-tp", "megatron-pp",  "mobius"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (uint32_t n = 1; n <= 5; n++) {
            for (uint32_t each = 1; each <= 3; each++) {
                rp_program *p = make(names[i], n, each);
                cr_expect(gt(i64, run(p), 0), "%s, %u GPUs", names[i], n);
                rp_program_destroy(p);
            }
        }
    }
}
