/* Frozen weights cost the bytes of the run's type, wherever they lie: no master, gradient or state
 * (Hu et al., LoRA, 2021, section 4.2: "we do not need to store the optimizer states for the frozen
 * parameters"; peft loads a base in the run's type).
 * For every schedule, type and sharing of copies a frozen base adds to a GPU at most its stages or
 * share, and the weights gathered or uploaded at a time. */
#include "common/lower/lower.h"
#include "common/schedule/build.h"
#include "sim/engine/hardware_engine.h"
#include "sim/run/memory/memory.h"
#include "tests/support/assertions.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

#define LAYERS 16u
#define GPUS 4u
#define BASE UINT64_C(1000000000) /* frozen parameters of a layer */
#define ADAPTERS UINT64_C(3000)   /* trained parameters */

static rp_arena *arena;
static rp_costs table;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_test_equal_costs(arena, LAYERS, 700000000, 1500000000, &table);
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(frozen, .init = begin, .fini = end, .timeout = 300);

typedef struct run {
    const rp_schedule_type *schedule;
    rp_dtype dtype;
    rp_layout layout;
} run;

static uint64_t *filled(uint64_t of_block)
{
    uint64_t *values = NULL;
    cr_assert(eq(int, rp_arena_alloc(arena, LAYERS + 2, sizeof *values, &values), RP_OK));
    for (uint32_t i = 1; i <= LAYERS; i++) {
        values[i] = of_block;
    }
    return values;
}

static rp_program *lower(const run *r, uint64_t frozen)
{
    uint64_t v = rp_dtype_bytes(r->dtype);
    uint32_t sequences[2 * GPUS] = {1, 1, 1, 1, 1, 1, 1, 1};
    rp_partition partition;
    rp_program *compute = NULL;
    rp_program *program = NULL;
    cr_assert(
        eq(int, rp_partition_even(r->schedule, &table, GPUS, 0, arena, &partition, NULL), RP_OK));
    rp_schedule_config config = {.gpus = GPUS,
                                 .microbatches = 2 * GPUS,
                                 .iterations = 1,
                                 .round = 2 * GPUS,
                                 .call_microbatches = 2 * GPUS,
                                 .round_start = RP_ROUND_START_ROTATE,
                                 .recompute = RP_RECOMPUTE_WAIT,
                                 .layers = LAYERS,
                                 .partition = &partition,
                                 .costs = &table};
    rp_lower_config lowering = {.call_microbatches = 2 * GPUS,
                                .piece_bytes = RP_PIECE_BYTES,
                                .sizes = {.layers = LAYERS,
                                          .dtype = r->dtype,
                                          .weight_bytes = filled(v * (frozen + ADAPTERS)),
                                          .gradient_bytes = filled(v * ADAPTERS),
                                          .parameters = filled(ADAPTERS),
                                          .optimizer_bytes = filled(12 * ADAPTERS),
                                          .boundary_bytes = 8,
                                          .input_bytes = 8}};
    cr_assert(eq(int, rp_schedule_build(r->schedule, &config, &compute, NULL), RP_OK), "%s",
              r->schedule->name);
    compute->traits.layout = r->layout;
    cr_assert(eq(int, rp_lower(compute, &lowering, sequences, &program, NULL), RP_OK), "%s",
              r->schedule->name);
    rp_program_destroy(compute);
    return program;
}

static rpsim_memory measure(const rp_program *program)
{
    size_t entries = (size_t)program->stage_count * RP_OP_KIND_COUNT;
    rpsim_compute_costs costs = {.stage_count = program->stage_count, .update_ps = 1000};
    rpsim_memory_limits limits = {0};
    rp_timeline *timeline = NULL;
    rpsim_memory memory;
    uint32_t *classes = NULL;
    int64_t *ps = NULL;
    cr_assert(eq(int, rp_arena_alloc(arena, entries, sizeof *ps, &ps), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, program->microbatch_count, sizeof *classes, &classes),
                 RP_OK));
    for (size_t i = 0; i < entries; i++) {
        ps[i] = 1000000000;
    }
    costs.ps = ps;
    costs.class_of = classes;
    rp_machine machine = {.upload_Bps = 1e12,
                          .download_Bps = 1e12,
                          .host_Bps = 1e14,
                          .collective_Bps = 1e12,
                          .collect_Bps = 1e14};
    cr_assert(eq(int, rp_machine_fold(&machine, &program->traits.layout, GPUS, NULL), RP_OK));
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline, NULL), RP_OK));
    cr_assert(eq(int, rpsim_memory_measure(timeline, &limits, arena, &memory), RP_OK));
    rp_timeline_destroy(timeline);
    return memory;
}

/* Layers of the largest stage, and of all stages that a GPU runs. */
static void count_layers(const rp_program *p, uint32_t gpu, uint64_t *largest, uint64_t *own)
{
    bool seen[RP_MAX_STAGES] = {false};
    *largest = *own = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            bool runs = rp_op_kinds[p->ops[i].kind].op_class == RP_CLASS_COMPUTE;
            seen[p->ops[i].stage] |= runs && p->queues[q].gpu == gpu;
        }
    }
    for (uint32_t s = 0; s < p->stage_count; s++) {
        uint64_t layers = p->stages[s].layer_end - p->stages[s].layer_begin;
        *largest = layers > *largest ? layers : *largest;
        *own += seen[s] ? layers : 0;
    }
}

/* Bytes that a frozen base may take on a GPU (Rajbhandari et al., ZeRO, 2020, section 5: a share of
 * 1/n from stage 3 on). */
static uint64_t allowed(const rp_program *p, uint32_t gpu, uint64_t layer)
{
    const rp_sharding *s = &p->traits.sharding;
    uint64_t all = LAYERS * layer;
    uint64_t largest = 0;
    uint64_t own = 0;
    count_layers(p, gpu, &largest, &own);
    switch (p->traits.placement) {
    case RP_PLACEMENT_OFFLOAD:
        return 2 * largest * layer; /* the running stage, and the next */
    case RP_PLACEMENT_RESIDENT: {
        bool shared = rp_layout_zero(&p->traits.layout) == 3;
        uint64_t copies = rp_layout_data(&p->traits.layout);
        return own * layer / (shared ? copies : 1) + (shared ? 2 * largest * layer : 0);
    }
    case RP_PLACEMENT_SHARDED:
        break;
    }
    uint64_t kept = s->host_weights ? 0 : all / GPUS;
    if (rp_cuts_layers(&p->traits) || s->forward_gathers == 0) {
        return rp_cuts_layers(&p->traits) ? kept : all;
    }
    uint64_t shard_up = s->host_weights && s->live_bytes == 0 ? 2 * layer / GPUS : 0;
    return kept + shard_up + (s->live_bytes != 0 ? s->live_bytes + layer : 2 * layer);
}

static void expect_run(const run *r)
{
    uint64_t layer = rp_dtype_bytes(r->dtype) * BASE;
    uint64_t adapters =
        rp_dtype_bytes(r->dtype) * ADAPTERS * LAYERS; /* gathered with their layers */
    rp_program *with = lower(r, BASE);
    rp_program *without = lower(r, 0);
    rpsim_memory much = measure(with);
    rpsim_memory little = measure(without);
    for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
        cr_expect(le(u64, much.peak_gpu_bytes[gpu] - little.peak_gpu_bytes[gpu],
                     allowed(with, gpu, layer) + adapters),
                  "%s in %s, ZeRO %u", r->schedule->name, rp_dtype_text(r->dtype), r->layout.zero);
        cr_expect(gt(u64, much.peak_gpu_bytes[gpu], little.peak_gpu_bytes[gpu]), "%s",
                  r->schedule->name);
    }
    cr_expect(lt(u64, much.peak_host_bytes, BASE), "%s", r->schedule->name); /* boundary tensors */
    rp_program_destroy(without);
    rp_program_destroy(with);
}

Test(frozen, a_base_costs_its_type_and_no_more)
{
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        bool copies = rp_schedules[i]->traits.placement == RP_PLACEMENT_RESIDENT;
        for (rp_dtype dtype = 0; dtype < RP_DTYPE_COUNT; dtype++) {
            run r = {.schedule = rp_schedules[i], .dtype = dtype};
            expect_run(&r);
            for (uint32_t zero = 0; copies && zero <= 3; zero++) {
                r.layout = (rp_layout){.data_parallel = 2, .zero = zero, .reduces_each = zero >= 2};
                expect_run(&r);
            }
        }
    }
}

/* The host too has 2 or 4 bytes per frozen parameter, 20 or 24 per trained. */
Test(frozen, the_host_has_no_states_of_a_base)
{
    for (rp_dtype dtype = 0; dtype < RP_DTYPE_COUNT; dtype++) {
        uint64_t v = rp_dtype_bytes(dtype);
        rp_sizes sizes = {.layers = LAYERS,
                          .dtype = dtype,
                          .weight_bytes = filled(v * (BASE + ADAPTERS)),
                          .gradient_bytes = filled(v * ADAPTERS),
                          .parameters = filled(ADAPTERS)};
        cr_expect(
            eq(u64, rp_sizes_host_bytes(&sizes, 1), LAYERS * (v * BASE + (16 + 2 * v) * ADAPTERS)));
    }
}
