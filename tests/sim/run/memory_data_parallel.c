/* Memory of data-parallel and tensor-parallel systems against sim/model.md section 4, summed by
 * hand for a small model. */
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/lower/lower.h"
#include "common/schedule/build.h"
#include "common/schedule/schedule_type.h"
#include "sim/run/memory/memory.h"
#include "sim/run/seqlen.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define LAYERS 6u
#define GPUS 4u
#define EACH 2u /* sequences of a microbatch */

#define LAYER_WEIGHTS UINT64_C(4000)
#define EMBEDDING_WEIGHTS UINT64_C(50000)
#define HEAD_WEIGHTS UINT64_C(70000)
#define ALL_WEIGHTS (LAYERS * LAYER_WEIGHTS + EMBEDDING_WEIGHTS + HEAD_WEIGHTS)
/* All is trained: gradients are as large as weights, an optimizer three times as large. */
#define BOUNDARY UINT64_C(1000)
#define TAPE UINT64_C(30000)
#define HEAD_TAPE UINT64_C(200)
#define TEMPORARY UINT64_C(5000)
#define LOGITS UINT64_C(900000)

/* sim/model.md section 4: DeepSpeed's bucket; weights gathered by ZeRO-Infinity. */
#define ZERO_BUCKETS UINT64_C(1000000000)
#define INFINITY_BUCKETS UINT64_C(1000000000)
#define INFINITY_LIVE UINT64_C(2000000000)

static rp_arena *arena;

typedef struct fixture {
    uint64_t weights[LAYERS + 2];
    uint64_t gradients[LAYERS + 2];
    uint64_t optimizer[LAYERS + 2];
    uint64_t parameters[LAYERS + 2];
    uint64_t tapes[LAYERS + 2];
    uint64_t temporaries[LAYERS + 2];
    uint64_t boundary;
    uint64_t logits;
    rp_dtype dtype;
    bool fp32_gradients;
    rp_layout layout;
    bool tied;
    uint32_t each; /* microbatches per GPU */
    rp_recompute recompute;
    rp_grain grain;
    const char *partition;
} fixture;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(memory_sharded, .init = begin, .fini = end, .timeout = 120);

static fixture make(void)
{
    fixture f = {.boundary = BOUNDARY,
                 .logits = LOGITS,
                 .each = 1,
                 .recompute = RP_RECOMPUTE_WAIT,
                 .grain = RP_GRAIN_LAYER,
                 .partition = "1,1,1,1,1,1"};
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        bool block = i != 0 && i != LAYERS + 1;
        f.weights[i] = block ? LAYER_WEIGHTS : i == 0 ? EMBEDDING_WEIGHTS : HEAD_WEIGHTS;
        f.gradients[i] = f.weights[i];
        f.optimizer[i] = 3 * f.weights[i];
        f.parameters[i] = f.weights[i] / 2;
        f.tapes[i] = block ? TAPE : i == 0 ? 0 : HEAD_TAPE;
        f.temporaries[i] = block ? TEMPORARY : 0;
    }
    return f;
}

static rp_program *lower(fixture *f, const char *name)
{
    const rp_schedule_type *type = rp_schedule_find(name);
    rp_program *schedule = NULL;
    rp_program *program = NULL;
    rp_partition partition;
    uint32_t sequences[64];
    for (uint32_t m = 0; m < 64; m++) {
        sequences[m] = EACH;
    }
    cr_assert(eq(int, rp_partition_parse("test", f->partition, arena, &partition, NULL), RP_OK));
    rp_schedule_config config = {.gpus = GPUS,
                                 .microbatches = GPUS * f->each,
                                 .iterations = 2,
                                 .round = GPUS * f->each,
                                 .recompute = f->recompute,
                                 .layers = LAYERS,
                                 .partition = &partition};
    rp_lower_config lower = {.sizes = {.layers = LAYERS,
                                       .weight_bytes = f->weights,
                                       .gradient_bytes = f->gradients,
                                       .parameters = f->parameters,
                                       .boundary_bytes = f->boundary,
                                       .tape_input_bytes = f->boundary,
                                       .input_bytes = 8,
                                       .tape_bytes = f->tapes,
                                       .temporary_bytes = f->temporaries,
                                       .optimizer_bytes = f->optimizer,
                                       .logits_bytes = f->logits,
                                       .logits_chunk_bytes = UINT64_MAX,
                                       .unfused_loss = true,
                                       .dtype = f->dtype,
                                       .fp32_gradients = f->fp32_gradients,
                                       .tied_head = f->tied},
                             .call_microbatches = GPUS * f->each,
                             .grain = f->grain,
                             .piece_bytes = RP_PIECE_BYTES};
    cr_assert(eq(int, rp_schedule_build(type, &config, &schedule, NULL), RP_OK), "%s", name);
    schedule->traits.layout = f->layout;
    cr_assert(eq(int, rp_lower(schedule, &lower, sequences, &program, NULL), RP_OK), "%s", name);
    cr_assert(eq(int, rp_program_check(program), RP_OK), "%s", name);
    rp_program_destroy(schedule);
    return program;
}

static rp_timeline *simulate(const rp_program *program, double link_Bps)
{
    size_t entries = (size_t)program->stage_count * RP_OP_KIND_COUNT;
    rpsim_compute_costs costs = {.stage_count = program->stage_count, .update_ps = 1000};
    cr_assert(eq(int, rp_arena_alloc(arena, entries, sizeof(int64_t), &costs.ps), RP_OK));
    cr_assert(
        eq(int, rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs.class_of),
           RP_OK));
    for (size_t i = 0; i < entries; i++) {
        costs.ps[i] = (int64_t)(1000000000 + 7700000 * (i % 13));
    }
    entries = (LAYERS + 1) * (size_t)RP_OP_KIND_COUNT;
    cr_assert(eq(int, rp_arena_alloc(arena, entries, sizeof(int64_t), &costs.layer_ps), RP_OK));
    costs.layer_count = LAYERS + 1;
    for (size_t i = 0; i < entries; i++) {
        costs.layer_ps[i] = (int64_t)(500000000 + 3300000 * (i % 11));
    }
    rp_machine machine = {.upload_Bps = link_Bps,
                          .download_Bps = link_Bps,
                          .host_Bps = 1e14,
                          .collective_Bps = link_Bps,
                          .collect_Bps = 1e14};
    cr_assert(eq(int, rp_machine_fold(&machine, &program->traits.layout, GPUS, NULL), RP_OK));
    rp_timeline *timeline = NULL;
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline, NULL), RP_OK));
    return timeline;
}

static rpsim_memory measure(fixture *f, const char *name)
{
    rpsim_memory memory;
    rpsim_memory_limits limits = {0};
    rp_program *program = lower(f, name);
    rp_timeline *timeline = simulate(program, 1e14);
    cr_assert(eq(int, rpsim_memory_measure(timeline, &limits, arena, &memory), RP_OK));
    cr_assert(memory.known, "%s", name);
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
    return memory;
}

/* Each GPU's peak, which must be equal. */
static uint64_t peak(fixture *f, const char *name)
{
    rpsim_memory memory = measure(f, name);
    for (uint32_t gpu = 1; gpu < GPUS; gpu++) {
        cr_expect(eq(u64, memory.peak_gpu_bytes[gpu], memory.peak_gpu_bytes[0]), "%s", name);
    }
    return memory.peak_gpu_bytes[0];
}

/* All layers' inputs wait, with the loss's logits and the head's tape. */
#define HEAD_PEAK (EACH * (LAYERS * BOUNDARY + LOGITS + HEAD_TAPE))
/* The last layer recomputed: its tape includes its input, which already waits. */
#define BACKWARD_PEAK (EACH * (LAYERS * BOUNDARY + TAPE - BOUNDARY + TEMPORARY))

Test(memory_sharded, zero2)
{
    fixture f = make();
    uint64_t resident = ALL_WEIGHTS + (1 + 3) * ALL_WEIGHTS / GPUS + ZERO_BUCKETS;
    cr_expect(eq(u64, peak(&f, "zero2"), resident + HEAD_PEAK));
    f.logits = 0;
    cr_expect(eq(u64, peak(&f, "zero2"), resident + BACKWARD_PEAK));
}

/* Stage grain: with three stages of two layers only stage inputs wait, and a backward has both
 * layers' tapes. For layer grain the cut does not matter. */
Test(memory_sharded, grain)
{
    fixture f = make();
    uint64_t resident = ALL_WEIGHTS + (1 + 3) * ALL_WEIGHTS / GPUS + ZERO_BUCKETS;
    f.partition = "2,2,2,0,0,0";
    f.logits = 0;
    cr_expect(eq(u64, peak(&f, "zero2"), resident + BACKWARD_PEAK));
    f.grain = RP_GRAIN_STAGE;
    uint64_t waiting = 3 * BOUNDARY;
    uint64_t tapes = 2 * TAPE - BOUNDARY;
    cr_expect(eq(u64, peak(&f, "zero2"), resident + EACH * (waiting + tapes + TEMPORARY)));
}

/* The host has gradients and optimizer, except for a buffer of the largest tensor (DeepSpeed
 * 0.17.5, stage_1_and_2.py, temp_grad_buffer_for_gpu_offload). */
Test(memory_sharded, zero_offload)
{
    fixture f = make();
    uint64_t resident = ALL_WEIGHTS + HEAD_WEIGHTS + ZERO_BUCKETS;
    cr_expect(eq(u64, peak(&f, "zero-offload"), resident + HEAD_PEAK));
}

/* A small model is gathered whole. A large model keeps 2 GB, and adds a larger layer while it runs,
 * the head until its backward is done. */
Test(memory_sharded, zero_infinity)
{
    fixture f = make();
    uint64_t few = INFINITY_BUCKETS + HEAD_PEAK;
    cr_expect(eq(u64, peak(&f, "zero-infinity"), ALL_WEIGHTS + few));
    for (uint32_t i = 1; i <= LAYERS; i++) {
        f.weights[i] = f.gradients[i] = INFINITY_LIVE / 2;
    }
    cr_expect(eq(u64, peak(&f, "zero-infinity"), INFINITY_LIVE + few));
    f.weights[LAYERS] = f.gradients[LAYERS] = 3 * INFINITY_LIVE;
    cr_expect(eq(u64, peak(&f, "zero-infinity"), 4 * INFINITY_LIVE + few));
    f.weights[LAYERS + 1] = f.gradients[LAYERS + 1] = 2 * INFINITY_LIVE;
    cr_expect(eq(u64, peak(&f, "zero-infinity"), 6 * INFINITY_LIVE + few));
    f.weights[0] = f.gradients[0] = 7 * INFINITY_LIVE;
    cr_expect(
        eq(u64, peak(&f, "zero-infinity"), 8 * INFINITY_LIVE + INFINITY_BUCKETS + EACH * BOUNDARY));
}

/* So large that states outweigh the unchanged activations. */
static void enlarge(fixture *f, uint64_t factor)
{
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        f->weights[i] *= factor;
        f->gradients[i] *= factor;
        f->optimizer[i] *= factor;
    }
}

/* DeepSpeed 0.17.5, stage_1_and_2.py, step(): a list of averaged gradients is made flat (a copy),
 * then fp32 (another); the bucket is freed (_release_ipg_buffers). Long sequences peak earlier. In
 * fp32 .to() copies nothing. */
Test(memory_sharded, zero2_step)
{
    fixture f = make();
    f.dtype = RP_DTYPE_BF16;
    enlarge(&f, 100000);
    const uint64_t all = 100000 * ALL_WEIGHTS;
    const uint64_t states = all + (1 + 3) * all / GPUS;
    cr_expect(eq(u64, peak(&f, "zero2"), states + (1 + 2) * all / GPUS));
    f.logits = 3 * all / GPUS; /* two sequences: twice that */
    cr_expect(eq(u64, peak(&f, "zero2"),
                 states + ZERO_BUCKETS + EACH * (LAYERS * BOUNDARY + f.logits + HEAD_TAPE)));
    f.logits = LOGITS;
    f.dtype = RP_DTYPE_F32;
    cr_expect(eq(u64, peak(&f, "zero2"), states + all / GPUS));
}

/* DeepSpeed 0.17.5, stage3.py: shards of weights, gradients and states. Gathered weights are freed
 * before the step (_partition_all_parameters), the bucket is not. A sub-group of 1e9 parameters has
 * a flat copy and an fp32 copy (_prepare_fp32_grad_for_sub_group). */
Test(memory_sharded, zero3)
{
    fixture f = make();
    f.dtype = RP_DTYPE_BF16;
    uint64_t few = ZERO_BUCKETS + HEAD_PEAK;
    cr_expect(eq(u64, peak(&f, "zero3"), (1 + 1 + 3) * ALL_WEIGHTS / GPUS + ALL_WEIGHTS + few));
    uint64_t root = EMBEDDING_WEIGHTS + HEAD_WEIGHTS;
    for (uint64_t layer = 200000000; layer <= 2000000000; layer *= 10) {
        for (uint32_t i = 1; i <= LAYERS; i++) {
            f.weights[i] = f.gradients[i] = layer;
            f.optimizer[i] = 3 * layer;
        }
        uint64_t all = LAYERS * layer + root;
        uint64_t group = all / GPUS < INFINITY_LIVE ? all / GPUS : INFINITY_LIVE;
        uint64_t live = all < INFINITY_LIVE ? all : INFINITY_LIVE;
        uint64_t step = ZERO_BUCKETS + (1 + 2) * group;
        uint64_t most = live + few > step ? live + few : step;
        cr_expect(eq(u64, peak(&f, "zero3"), (1 + 1 + 3) * all / GPUS + most), "%ld", (long)layer);
    }
    uint64_t all = LAYERS * f.weights[1] + root;
    for (uint32_t i = 0; i < LAYERS + 2; i++) { /* all but 44 bytes frozen */
        f.gradients[i] = i == LAYERS ? 44 : 0;
        f.optimizer[i] = 3 * f.gradients[i];
    }
    cr_expect(eq(u64, peak(&f, "zero3"), all / GPUS + 44 + INFINITY_LIVE + few));
}

/* Frozen weights: resident adapters, and gathered weights. */
Test(memory_sharded, zero_infinity_with_adapters)
{
    fixture f = make();
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        bool block = i != 0 && i != LAYERS + 1;
        f.gradients[i] = block ? 44 : 0;
        f.weights[i] = block ? INFINITY_LIVE / 2 : f.weights[i];
    }
    cr_expect(eq(u64, peak(&f, "zero-infinity"),
                 INFINITY_LIVE + 44 * LAYERS + INFINITY_BUCKETS + HEAD_PEAK));
}

/* Optimizer shard and root unit: the last block is freed before the logits exist, and the
 * backward's first block is gathered after the loss. */
Test(memory_sharded, fsdp)
{
    fixture f = make();
    uint64_t optimizer = 3 * ALL_WEIGHTS / GPUS;
    uint64_t root = EMBEDDING_WEIGHTS + HEAD_WEIGHTS;
    cr_expect(eq(u64, peak(&f, "fsdp"), optimizer + root + HEAD_PEAK));
    f.tied = true;
    cr_expect(eq(u64, peak(&f, "fsdp"),
                 optimizer - 3 * EMBEDDING_WEIGHTS / GPUS + HEAD_WEIGHTS + HEAD_PEAK));
}

/* With shards on the host only the root unit lies beside the logits. */
Test(memory_sharded, fsdp_offload)
{
    fixture f = make();
    uint64_t root = EMBEDDING_WEIGHTS + HEAD_WEIGHTS;
    cr_expect(eq(u64, peak(&f, "fsdp-offload"), root + HEAD_PEAK));
}

/* Without activations the last unit's backward has the peak: whole weights and gradients of root
 * unit and layer, and shards of all other layers' gradients. With two microbatches all layers'
 * gradients wait for the second. */
Test(memory_sharded, fsdp_gradients)
{
    fixture f = make();
    uint64_t root = EMBEDDING_WEIGHTS + HEAD_WEIGHTS;
    uint64_t optimizer = 3 * ALL_WEIGHTS / GPUS;
    uint64_t others = (LAYERS - 1) * LAYER_WEIGHTS / GPUS;
    f.logits = 0;
    f.boundary = 0;
    memset(f.tapes, 0, sizeof f.tapes);
    memset(f.temporaries, 0, sizeof f.temporaries);
    cr_expect(eq(u64, peak(&f, "fsdp"), optimizer + 2 * root + 2 * LAYER_WEIGHTS + others));
    f.each = 2; /* two backwards: all gradients wait, another is gathered */
    uint64_t waiting = optimizer + 2 * root + LAYERS * LAYER_WEIGHTS;
    cr_expect(ge(u64, peak(&f, "fsdp"), waiting + LAYER_WEIGHTS));
    cr_expect(le(u64, peak(&f, "fsdp"), waiting + 2 * LAYER_WEIGHTS));
}

/* Everything is split over ranks except layer inputs and norms: 20 h per token and the head's. */
Test(memory_sharded, megatron_tp)
{
    fixture f = make();
    uint64_t state = 5 * ALL_WEIGHTS / GPUS;
    uint64_t inputs = GPUS * LAYERS * BOUNDARY;
    uint64_t head = EACH * (inputs + LOGITS + GPUS * HEAD_TAPE);
    cr_expect(eq(u64, peak(&f, "megatron-tp"), state + head));
    f.logits = 0;
    uint64_t norms = (GPUS - 1) * 10 * BOUNDARY;
    uint64_t backward = EACH * (inputs + TAPE + norms - GPUS * BOUNDARY + TEMPORARY);
    cr_expect(eq(u64, peak(&f, "megatron-tp"), state + backward));
}

/* Megatron-LM (megatron-core 0.19.2): bf16 forces fp32 gradients (training/arguments.py), always 4
 * B in place of 2. fp16 gradients are copied to fp32 for the step (optimizer/optimizer.py,
 * _copy_model_grads_to_main_grads), 4 B more while only the state is there. */
Test(memory_sharded, megatron_gradients)
{
    fixture f = make();
    f.fp32_gradients = true;
    uint64_t own = ALL_WEIGHTS / GPUS;
    f.dtype = RP_DTYPE_BF16;
    uint64_t head = EACH * (GPUS * LAYERS * BOUNDARY + LOGITS + GPUS * HEAD_TAPE);
    cr_expect(eq(u64, peak(&f, "megatron-tp"), 6 * own + head));
    f.dtype = RP_DTYPE_F16;
    cr_expect(eq(u64, peak(&f, "megatron-tp"), 5 * own + head));
    f.logits = 0;
    f.boundary = 0;
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        f.tapes[i] = 0;
        f.temporaries[i] = 0;
    }
    cr_expect(eq(u64, peak(&f, "megatron-tp"), (5 + 2) * own));
    f.partition = "2,2,1,1";
    f.grain = RP_GRAIN_STAGE;
    rpsim_memory memory = measure(&f, "megatron-pp");
    cr_expect(eq(u64, memory.peak_gpu_bytes[1], 7 * 2 * LAYER_WEIGHTS));
    cr_expect(eq(u64, memory.peak_gpu_bytes[2], 7 * LAYER_WEIGHTS));
    cr_expect(eq(u64, memory.peak_gpu_bytes[3], 7 * (LAYER_WEIGHTS + HEAD_WEIGHTS)));
    f.dtype = RP_DTYPE_BF16;
    memory = measure(&f, "megatron-pp");
    cr_expect(eq(u64, memory.peak_gpu_bytes[2], 6 * LAYER_WEIGHTS));
    f.layout.data_parallel = 2; /* reduced in bf16: copied, only shares if these are stepped */
    memory = measure(&f, "megatron-pp");
    cr_expect(eq(u64, memory.peak_gpu_bytes[2], 7 * LAYER_WEIGHTS));
    f.layout.zero = 1;
    memory = measure(&f, "megatron-pp");
    cr_expect(eq(u64, memory.peak_gpu_bytes[2], (2 + 3 / 2.0 + 2 / 2.0) * LAYER_WEIGHTS));
    f.layout.gradient_bytes = sizeof(float); /* reduced and kept in fp32: no copy */
    memory = measure(&f, "megatron-pp");
    cr_expect(eq(u64, memory.peak_gpu_bytes[2], (1 + 2 + 3 / 2.0) * LAYER_WEIGHTS));
}

/* Without recompute all layers' tapes wait; layers in the same stage change nothing. */
Test(memory_sharded, without_recompute_and_with_large_stages)
{
    fixture f = make();
    uint64_t resident = ALL_WEIGHTS + ALL_WEIGHTS + ZERO_BUCKETS;
    f.partition = "4,2";
    cr_expect(eq(u64, peak(&f, "zero2"), resident + HEAD_PEAK));
    f.logits = 0;
    cr_expect(eq(u64, peak(&f, "zero2"), resident + BACKWARD_PEAK));
    f.recompute = RP_RECOMPUTE_NONE;
    cr_expect(eq(u64, peak(&f, "zero2"), resident + EACH * (LAYERS * TAPE + TEMPORARY)));
}

/* Megatron's pipeline: 1F1B's last stage runs each backward right after its forward, so logits and
 * recomputed layers are never together. */
Test(memory_sharded, megatron_pp_logits)
{
    fixture f = make();
    f.partition = "2,2,1,1";
    f.each = 2;
    f.grain = RP_GRAIN_STAGE;
    rp_program *program = lower(&f, "megatron-pp");
    uint32_t logits = 0;
    for (uint32_t b = 0; b < program->buffer_count; b++) {
        const rp_buffer *buffer = &program->buffers[b];
        if (buffer->kind == RP_BUFFER_LOGITS) {
            cr_expect(eq(u64, buffer->bytes, EACH * LOGITS));
            cr_expect(eq(u32, buffer->place, GPUS - 1));
            cr_expect(eq(u32, buffer->alloc_op, buffer->free_op));
            cr_expect(eq(u8, program->ops[buffer->free_op].kind, RP_OP_FORWARD));
            logits++;
        }
    }
    cr_expect(eq(u32, logits, 2 * GPUS * f.each)); /* two steps */
    rp_program_destroy(program);
    program = lower(&f, "gpipe"); /* all forwards first: logits wait */
    for (uint32_t b = 0; b < program->buffer_count; b++) {
        const rp_buffer *buffer = &program->buffers[b];
        bool waits = program->ops[buffer->free_op].kind == RP_OP_RECOMPUTE;
        bool last = program->ops[buffer->alloc_op].microbatch == GPUS * f.each - 1;
        cr_expect(buffer->kind != RP_BUFFER_LOGITS || waits || last);
    }
    rp_program_destroy(program);
}

static const char *const systems[] = {"fsdp-offload",  "zero2", "zero3",       "zero-offload",
                                      "zero-infinity", "fsdp",  "megatron-tp", "megatron-pp"};

/* Never less than all live bytes at any time; and links move only arriving bytes, never the
 * resident. */
Test(memory_sharded, peaks_bound_every_instant)
{
    static const double links[] = {1e8, 1e11};
    for (size_t k = 0; k < 2 * sizeof systems / sizeof systems[0]; k++) {
        fixture f = make();
        const char *name = systems[k / 2];
        f.partition = strcmp(name, "megatron-pp") == 0 ? "2,2,1,1" : "1,2,0,1,2";
        f.each = 2;
        rp_program *program = lower(&f, name);
        rp_timeline *timeline = simulate(program, links[k % 2]);
        rpsim_memory memory;
        rpsim_memory_limits limits = {.gpu_fixed_bytes = 77};
        cr_assert(eq(int, rpsim_memory_measure(timeline, &limits, arena, &memory), RP_OK));
        for (uint32_t op = 0; op < program->op_count; op++) {
            uint64_t lives[GPUS] = {77, 77, 77, 77};
            int64_t now_ps = timeline->start_ps[op];
            for (uint32_t b = 0; b < program->buffer_count; b++) {
                const rp_buffer *buffer = &program->buffers[b];
                bool there = buffer->place < GPUS &&
                             timeline->start_ps[buffer->alloc_op] <= now_ps &&
                             timeline->end_ps[buffer->free_op] > now_ps;
                lives[there ? buffer->place : 0] += there ? buffer->bytes : 0;
            }
            for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
                cr_expect(le(u64, lives[gpu], memory.peak_gpu_bytes[gpu]), "%s", name);
            }
        }
        rp_timeline_destroy(timeline);
        rp_program_destroy(program);
    }
}

/* ---- real models ----------------------------------------------------------------------------- */

typedef struct machine {
    rp_model model;
    rp_costs costs;
    rp_platform platform;
    rp_partition partition;
    rp_resolved run;
} machine;

static void load(const char *name, machine *m)
{
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", arena, &m->model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, &m->costs), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &m->platform), RP_OK));
    bool pipeline = strcmp(name, "megatron-pp") == 0;
    const char *list =
        pipeline ? "7,7,7,7" : "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1";
    cr_assert(eq(int, rp_partition_parse("test", list, arena, &m->partition, NULL), RP_OK));
    m->run = rp_test_hand_run(name, &m->model, &m->costs, &m->partition, 4, 4);
    m->run.decided.iterations = 2;
    m->run.recompute = RP_RECOMPUTE_WAIT;
}

static rpsim_memory memory_at(machine *m, uint32_t seq_len)
{
    rpsim_result result;
    rpsim_memory memory;
    m->run.decided.seq_len = seq_len;
    cr_assert(eq(int, rpsim_hardware_case_run(&m->run, &m->platform, 0, &result, NULL), RP_OK));
    cr_assert(eq(int, rpsim_memory_copy(&result.memory, arena, &memory), RP_OK));
    rpsim_result_fini(&result);
    return memory;
}

/* More tokens need more memory, and always more than none: NCCL, context. */
Test(memory_sharded, grows_with_the_sequence)
{
    for (size_t k = 0; k < sizeof systems / sizeof systems[0]; k++) {
        machine m;
        load(systems[k], &m);
        uint64_t before = 1350000000;
        for (uint32_t seq_len = 1024; seq_len <= 16384; seq_len *= 2) {
            rpsim_memory memory = memory_at(&m, seq_len);
            cr_expect(gt(u64, memory.peak_gpu_bytes[3], before), "%s", systems[k]);
            before = memory.peak_gpu_bytes[3];
        }
    }
}

Test(memory_sharded, longest_sequence_is_the_longest)
{
    for (size_t k = 0; k < sizeof systems / sizeof systems[0]; k++) {
        machine m;
        rpsim_result result;
        rpsim_seqlen found = {0};
        load(systems[k], &m);
        cr_assert(eq(int, rpsim_seqlen_search(&m.run, &m.platform, 0, arena, &found, &result, NULL),
                     RP_OK));
        rpsim_result_fini(&result);
        uint32_t longest = found.tokens;
        cr_expect(gt(u32, longest, 0), "%s", systems[k]);
        cr_expect(memory_at(&m, longest).fits, "%s", systems[k]);
        rpsim_memory over = memory_at(&m, longest + 1024);
        cr_expect(not(over.fits), "%s", systems[k]);
        cr_expect(ne(ptr, strstr(over.oom_reason, "more than the usable"), NULL));
    }
}

/* In slices each GPU has the tokens, and so the memory, of shorter whole sequences; time grows only
 * by attention. */
Test(memory_sharded, slices_of_a_sequence)
{
    machine m;
    load("megatron-tp", &m);
    rpsim_memory whole = memory_at(&m, 4096);
    m.run.sequence_slices = 4;
    rpsim_memory sliced = memory_at(&m, 4 * 4096);
    cr_expect(eq(u64, sliced.peak_gpu_bytes[0], whole.peak_gpu_bytes[0]));
}
