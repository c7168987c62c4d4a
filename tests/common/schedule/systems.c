/* Data-parallel and tensor-parallel systems and Mobius at hardware fidelity, against the volumes
 * and sums of sim/model.md section 3. */
#include "common/base/log.h"
#include "common/lower/lower.h"
#include "common/schedule/build.h"
#include "sim/engine/hardware_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
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
    rp_test_end(arena);
}

TestSuite(systems, .init = begin, .fini = end, .timeout = 120);

#define BOUNDARY UINT64_C(3000000)
#define STEPS 2u

/* STEPS steps of a system on `gpus` GPUs, with `each` microbatches of two sequences per GPU, `call`
 * of all of them per call. */
static rp_program *make_calls(const char *name, uint32_t gpus, uint32_t each, uint32_t call)
{
    const rp_schedule_type *schedule = rp_schedule_find(name);
    rp_partition partition;
    rp_program *compute = NULL;
    rp_program *program = NULL;
    uint32_t *sequences = NULL;
    uint32_t microbatches = gpus * each;
    cr_assert(
        eq(int, rp_partition_even(schedule, &table, gpus, 0, arena, &partition, NULL), RP_OK));
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = STEPS,
                                 .round = call,
                                 .call_microbatches = call,
                                 .recompute = RP_RECOMPUTE_WAIT,
                                 .layers = LAYERS,
                                 .partition = &partition,
                                 .costs = &table};
    cr_assert(eq(int, rp_schedule_build(schedule, &config, &compute, NULL), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, microbatches, sizeof(uint32_t), &sequences), RP_OK));
    for (uint32_t m = 0; m < microbatches; m++) {
        sequences[m] = 2;
    }
    rp_lower_config lower = {.call_microbatches = call,
                             .piece_bytes = RP_PIECE_BYTES,
                             .sizes = {.layers = LAYERS,
                                       .dtype = RP_DTYPE_F16,
                                       .weight_bytes = weights,
                                       .gradient_bytes = gradients,
                                       .parameters = parameters,
                                       .boundary_bytes = BOUNDARY,
                                       .input_bytes = 8}};
    cr_assert(eq(int, rp_lower(compute, &lower, sequences, &program, NULL), RP_OK), "%s", name);
    rp_program_destroy(compute);
    cr_assert(eq(int, rp_program_check(program), RP_OK), "%s", name);
    return program;
}

static rp_program *make(const char *name, uint32_t gpus, uint32_t each)
{
    return make_calls(name, gpus, each, gpus * each);
}

static const rp_machine machine = {.upload_Bps = 20e9,
                                   .download_Bps = 20e9,
                                   .host_Bps = 90e9,
                                   .collective_Bps = 2.5e9,
                                   .collect_Bps = 12e9};

static int64_t run_on(const rp_program *program, const rp_machine *on)
{
    rp_stage_times times;
    rp_timeline *timeline = NULL;
    cr_assert(eq(int, rp_stage_times_compute(program, &table, arena, &times, NULL), RP_OK));
    rpsim_compute_costs costs = {.ps = times.ps, .stage_count = program->stage_count};
    cr_assert(
        eq(int, rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs.class_of),
           RP_OK));
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, on, &timeline, NULL), RP_OK));
    int64_t last = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        last = timeline->end_ps[i] > last ? timeline->end_ps[i] : last;
    }
    rp_timeline_destroy(timeline);
    return last;
}

static int64_t run(const rp_program *program)
{
    return run_on(program, &machine);
}

static uint64_t sum_of(const uint64_t *values, uint32_t begin_at, uint32_t end_at)
{
    uint64_t total = 0;
    for (uint32_t i = begin_at; i < end_at; i++) {
        total += values[i];
    }
    return total;
}

static uint64_t sum(const uint64_t *values)
{
    return sum_of(values, 0, LAYERS + 2);
}

static uint64_t moved(const rp_program *program, rp_op_kind kind)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        bytes += program->ops[i].kind == kind ? program->op_bytes[i] : 0;
    }
    return bytes;
}

/* FSDP's bytes per microbatch: it gathers blocks for forward and backward, and the root (embedding
 * and head) once, as it is not resharded after the forward. */
static uint64_t fsdp_gathered(void)
{
    return 2 * sum(weights) - weights[0] - weights[LAYERS + 1];
}

/* Bytes that ZeRO-3 gathers for a backward with recompute, by DeepSpeed's rule in the layers' order
 * of use: when a layer's forward ends, the next layers are counted up to 1e9 parameters
 * (stage3_max_reuse_distance, its default); layers met again stay
 * (PartitionedParameterCoordinator.__params_to_release). */
static uint64_t gathered_again(void)
{
    uint32_t order[3 * LAYERS + 4];
    uint32_t count = 0;
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        order[count++] = i;
    }
    for (uint32_t i = LAYERS + 2; i-- > 0;) {
        order[count++] = i;
        if (i != 0 && i != LAYERS + 1) {
            order[count++] = i;
        }
    }
    uint64_t bytes = sum(weights);
    for (uint32_t layer = 0; layer < LAYERS + 2; layer++) {
        uint64_t traversed = 0;
        for (uint32_t at = layer + 1; at < count && traversed < 1000000000; at++) {
            if (order[at] == layer) {
                bytes -= weights[layer];
                break;
            }
            traversed += weights[order[at]] / 2;
        }
    }
    return bytes;
}

/* A microbatch's compute with recompute. */
static double compute_s(void)
{
    return 1e-12 * (LAYERS * (2 * 700000000.0 + 1500000000.0) + 900000000.0 + 1700000000.0);
}

/* Collectives carry (n - 1) / n of the bytes through each GPU, rounded per stage. */
static double volume(uint32_t gpus, uint64_t bytes)
{
    return (double)(gpus - 1) / gpus * (double)bytes;
}

Test(systems, volumes)
{
    for (uint32_t n = 2; n <= 8; n += 3) {
        const uint32_t each = 3;
        const double ranks = (double)n * STEPS;             /* all ranks and steps */
        const double slack = 100.0 * LAYERS * each * ranks; /* bytes lost in rounding */
        rp_program *p = make("zero2", n, each);
        double expected = ranks * each * 2 * volume(n, sum(gradients));
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_REDUCE), expected, slack));
        expected = ranks * volume(n, sum(gradients)); /* trained weights, once per step */
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        rp_program_destroy(p);
        p = make("fsdp", n, each);
        expected = ranks * each * volume(n, fsdp_gathered());
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        expected = ranks * volume(n, sum(gradients));
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_REDUCE_SCATTER), expected, slack));
        rp_program_destroy(p);
        uint64_t gathered = sum(weights) + gathered_again(); /* forward and backward */
        p = make("zero3", n, each);
        expected = ranks * each * volume(n, gathered);
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        expected = ranks * each * volume(n, sum(gradients));
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_REDUCE_SCATTER), expected, slack));
        rp_program_destroy(p);
        p = make("zero-infinity", n, each);
        expected = ranks * each * volume(n, gathered);
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        expected = ranks * each * (double)gathered / n;
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_UPLOAD_PARAMS), expected, slack));
        expected = ranks * each * (double)sum(gradients) / n;
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_DOWNLOAD_PARAM_GRAD), expected, slack));
        /* Adam; isinf and isnan of 2-byte gradients, a product of and a copy from 4 bytes. */
        cr_expect(eq(u64, moved(p, RP_OP_OPTIMIZER), STEPS * (32 + 16 + 8 + 8) * sum(parameters)));
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

/* Models from a size with all weights kept to a size with only the head's. */
Test(systems, zero_infinity_keeps_what_it_soon_needs)
{
    uint64_t before = 0;
    uint64_t small = sum(weights);
    uint64_t head = weights[LAYERS + 1];
    for (uint32_t factor = 1; factor <= 64; factor *= 2) {
        rp_program *p = make("zero-infinity", 4, 1);
        uint64_t again = gathered_again();
        double expected = STEPS * 4.0 * volume(4, sum(weights) + again);
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, 1e-6 * expected),
                  "times %u", factor);
        rp_program_destroy(p);
        cr_expect(ge(u64, again, before));
        before = again;
        for (uint32_t i = 0; i < LAYERS + 2; i++) {
            weights[i] *= 2;
        }
    }
    cr_expect(eq(u64, before, 64 * (small - head)), "none but the head stays");
}

/* Nothing overlaps in ZeRO-2 and tensor parallelism: a step is the sum of its parts. */
Test(systems, steps_are_sums)
{
    for (uint32_t n = 2; n <= 8; n += 2) {
        const uint32_t each = 4;
        rp_program *p = make("zero2", n, each);
        double step = each * (compute_s() + 2 * volume(n, sum(gradients)) / 2.5e9);
        step += volume(n, sum(gradients)) / 2.5e9; /* gather of trained weights */
        cr_expect(epsilon_eq(dbl, 1e-12 * (double)run(p), STEPS * step, 1e-6 * step), "n %u", n);
        rp_program_destroy(p);
        p = make("megatron-tp", n, each);
        double reduces = (6 * LAYERS + 2) * 2 * volume(n, BOUNDARY * 2 * n) / 2.5e9;
        step = each * (compute_s() + reduces);
        cr_expect(epsilon_eq(dbl, 1e-12 * (double)run(p), STEPS * step, 1e-6 * step), "n %u", n);
        rp_program_destroy(p);
    }
}

/* FSDP gathers during compute: between the larger and the sum of both. */
Test(systems, fsdp_overlaps)
{
    const uint32_t n = 8;
    const uint32_t each = 6;
    rp_program *p = make("fsdp", n, each);
    double gathers = each * volume(n, fsdp_gathered()) / 2.5e9;
    double compute = each * compute_s();
    double reduce = volume(n, sum(gradients)) / 2.5e9;
    double step = 1e-12 * (double)run(p) / STEPS;
    cr_expect(ge(dbl, step, (gathers > compute ? gathers : compute) * 0.999));
    cr_expect(le(dbl, step, gathers + compute + reduce));
    cr_expect(lt(dbl, step, 0.97 * (gathers + compute + reduce)), "nothing overlaps");
    rp_program_destroy(p);
}

/* ---- FSDP with offload ----------------------------------------------------------------------- */

/* A unit (a stage's forward or backward of a microbatch) in seconds. */
typedef struct unit_times {
    double up;
    double gather;
    double compute;
    double reduce;
    double down;
} unit_times;

static double seconds(double bytes, double rate)
{
    return bytes / rate;
}

static unit_times unit_of(const rp_program *p, uint32_t s, bool backward, const rp_machine *on)
{
    const rp_stage *stage = &p->stages[s];
    double n = p->gpu_count;
    double layers = stage->layer_end - stage->layer_begin;
    bool head = stage->layer_end == LAYERS;
    double gathered = (double)(sum_of(weights, stage->layer_begin + 1, stage->layer_end + 1));
    double reduced = (double)(sum_of(gradients, stage->layer_begin + 1, stage->layer_end + 1));
    gathered += s == 0 && !backward ? (double)(weights[0] + weights[LAYERS + 1]) : 0;
    reduced += s == 0 ? (double)gradients[0] : 0;
    reduced += head ? (double)gradients[LAYERS + 1] : 0;
    double forward_ps = 700000000.0 * layers + (head && !backward ? 900000000.0 : 0);
    double backward_ps = backward ? 1500000000.0 * layers + (head ? 1700000000.0 : 0) : 0;
    return (unit_times){.up = seconds(gathered / n, on->upload_Bps),
                        .gather = seconds(gathered * (n - 1) / n, on->collective_Bps),
                        .compute = 1e-12 * (forward_ps + backward_ps),
                        .reduce = seconds(reduced * (n - 1) / n, on->collective_Bps),
                        .down = seconds(reduced / n, on->download_Bps)};
}

/* Times of a step that do not depend on its bottleneck: sums over all units of a microbatch, and
 * over the backward units. */
typedef struct step_times {
    unit_times all;
    unit_times backward;
    unit_times first; /* forward of stage 0 */
    unit_times end;   /* forward of the last stage */
    unit_times turn;  /* backward of the last stage: the first backward unit */
    unit_times last;  /* backward of stage 0 */
} step_times;

static void add_unit_times(unit_times *to, unit_times u)
{
    to->up += u.up;
    to->gather += u.gather;
    to->compute += u.compute;
    to->reduce += u.reduce;
}

static step_times times_of(const rp_program *p, const rp_machine *on)
{
    step_times t = {.first = unit_of(p, 0, false, on), .last = unit_of(p, 0, true, on)};
    t.end = unit_of(p, p->forward_count - 1, false, on);
    t.turn = unit_of(p, p->forward_count - 1, true, on);
    for (uint32_t s = 0; s < p->forward_count; s++) {
        unit_times backward = unit_of(p, s, true, on);
        add_unit_times(&t.all, unit_of(p, s, false, on));
        add_unit_times(&t.all, backward);
        add_unit_times(&t.backward, backward);
    }
    return t;
}

/* A step by bottleneck. Gathers run ahead of the compute, except from one direction to the other
 * and in the last microbatch's backward, which reduces a stage's gradients before it gathers the
 * next stage. Then the last shard goes down and Adam runs. */
Test(systems, fsdp_offload_step_times)
{
    const uint32_t n = 4;
    const uint32_t each = 3;
    rp_program *p = make("fsdp-offload", n, each);
    double adam = 32.0 * (double)sum(parameters) / 90e9;

    rp_machine on = machine; /* the GPUs */
    on.upload_Bps = on.download_Bps = on.collective_Bps = 4e12;
    step_times t = times_of(p, &on);
    double turns = t.first.up + t.first.gather + t.turn.up + t.turn.gather;
    double step = each * turns + each * t.all.compute + t.backward.reduce + t.backward.gather -
                  t.turn.gather + t.last.down + adam;
    cr_expect(epsilon_eq(dbl, 1e-12 * (double)run_on(p, &on), STEPS * step, 1e-6 * step), "GPUs");

    on.collective_Bps = 1e9; /* the collectives */
    t = times_of(p, &on);
    turns = each * (t.first.up + t.end.compute + t.turn.up) + (each - 1) * t.last.compute;
    step =
        turns + each * t.all.gather + t.backward.reduce + t.backward.compute + t.last.down + adam;
    cr_expect(epsilon_eq(dbl, 1e-12 * (double)run_on(p, &on), STEPS * step, 1e-6 * step), "bus");

    on.collective_Bps = 4e12; /* the shards going up */
    on.upload_Bps = 1e8;
    t = times_of(p, &on);
    turns = each * (t.end.gather + t.end.compute + t.last.gather + t.last.compute);
    step = each * t.all.up + turns + t.last.reduce + t.last.down + adam;
    cr_expect(epsilon_eq(dbl, 1e-12 * (double)run_on(p, &on), STEPS * step, 1e-6 * step), "link");
    rp_program_destroy(p);
}

/* Shards go up with each gather of a stage, and down once per step, without conversion. */
Test(systems, fsdp_offload_volumes)
{
    for (uint32_t n = 1; n <= 8; n += 7) {
        const uint32_t each = 3;
        rp_program *p = make("fsdp-offload", n, each);
        double slack = 100.0 * LAYERS * each * n * STEPS;
        double expected = (double)STEPS * each * (double)fsdp_gathered();
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_UPLOAD_PARAMS), expected, slack));
        expected *= n - 1;
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_ALL_GATHER), expected, slack));
        expected = (double)STEPS * (double)sum(gradients);
        cr_expect(epsilon_eq(dbl, (double)moved(p, RP_OP_DOWNLOAD_PARAM_GRAD), expected, slack));
        cr_expect(eq(u64, moved(p, RP_OP_OPTIMIZER), STEPS * 32 * sum(parameters)));
        cr_expect(eq(u64, moved(p, RP_OP_COLLECT), 0));
        rp_program_destroy(p);
    }
}

/* Mobius moves a stage's weights once per pass, not per GPU and microbatch. */
Test(systems, mobius_uploads_weights_twice)
{
    rp_program *p = make("mobius", 2, 4);
    cr_expect(eq(u64, moved(p, RP_OP_UPLOAD_PARAMS), STEPS * 2 * sum(weights)));
    cr_expect(eq(u64, moved(p, RP_OP_DOWNLOAD_PARAM_GRAD), STEPS * sum(gradients)));
    cr_expect(gt(i64, run(p), 0));
    rp_program_destroy(p);
}

/* 20 microbatches in calls of 7 are three calls, the last of 6. In each, weights come up and
 * gradients go down; in all but the first, gradients come up before. The optimizer runs once. */
Test(systems, mobius_flushes_between_calls)
{
    rp_program *p = make_calls("mobius", 2, 10, 7);
    cr_expect(eq(u64, moved(p, RP_OP_UPLOAD_PARAMS), STEPS * 3 * 2 * sum(weights)));
    cr_expect(eq(u64, moved(p, RP_OP_UPLOAD_PARAM_GRAD), STEPS * 2 * sum(gradients)));
    cr_expect(eq(u64, moved(p, RP_OP_DOWNLOAD_PARAM_GRAD), STEPS * 3 * sum(gradients)));
    cr_expect(eq(u64, moved(p, RP_OP_OPTIMIZER), STEPS * 32 * sum(parameters)));
    rp_program *one = make("mobius", 2, 10);
    cr_expect(gt(i64, run(p), run(one)));
    rp_program_destroy(one);
    rp_program_destroy(p);
}

Test(systems, one_gpu_has_no_collectives)
{
    static const char *const names[] = {"zero2", "zero-offload", "zero-infinity",
                                        "fsdp",  "fsdp-offload", "megatron-tp"};
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

Test(systems, no_deadlock)
{
    static const char *const names[] = {"zero2",        "zero-offload", "zero-infinity", "fsdp",
                                        "fsdp-offload", "megatron-tp",  "megatron-pp",   "mobius"};
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
