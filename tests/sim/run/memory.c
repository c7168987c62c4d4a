/* Memory: buffers of lowered programs and bytes over time, against closed forms, a slow
 * recomputation and executor.md section 3. */
#include "sim/run/memory/memory.h"
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/lower/lower.h"
#include "common/program/program.h"
#include "common/schedule/build.h"
#include "common/schedule/schedule_type.h"
#include "sim/run/seqlen.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define LAYERS 16
#define GPUS 4

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(memory, .init = begin, .fini = end, .timeout = 120);

/* Sizes that sums can be told apart by, and costs that take time. */
typedef struct fixture {
    uint64_t weights[LAYERS + 2];
    uint64_t gradients[LAYERS + 2];
    uint64_t parameters[LAYERS + 2];
    uint64_t tapes[LAYERS + 2];
    uint64_t temporaries[LAYERS + 2];
    uint64_t optimizer[LAYERS + 2];
    uint32_t sequences[64];
    rp_lower_config lower;
    rp_schedule_config config;
    rp_partition partition;
} fixture;

static void make(fixture *f, const char *partition, uint32_t microbatches, rp_recompute recompute)
{
    memset(f, 0, sizeof *f);
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        f->weights[i] = 1000003 + 100 * i;
        f->gradients[i] = 2000003 + 100 * i;
        f->parameters[i] = 500 + i;
        f->optimizer[i] = 5000011 + 10 * i;
        f->tapes[i] = 10000019 + 1000 * i;
        f->temporaries[i] = 0;
    }
    for (uint32_t m = 0; m < 64; m++) {
        f->sequences[m] = 1;
    }
    cr_assert(eq(int, rp_partition_parse("test", partition, arena, &f->partition, NULL), RP_OK));
    f->lower = (rp_lower_config){.sizes = {.layers = LAYERS,
                                           .weight_bytes = f->weights,
                                           .gradient_bytes = f->gradients,
                                           .parameters = f->parameters,
                                           .boundary_bytes = 0,
                                           .input_bytes = 0,
                                           .tape_bytes = f->tapes,
                                           .temporary_bytes = f->temporaries,
                                           .optimizer_bytes = f->optimizer},
                                 .call_microbatches = microbatches,
                                 .piece_bytes = 700000};
    f->config = (rp_schedule_config){.gpus = GPUS,
                                     .microbatches = microbatches,
                                     .iterations = 2,
                                     .round = microbatches,
                                     .round_start = RP_ROUND_START_ROTATE,
                                     .recompute = recompute,
                                     .layers = LAYERS,
                                     .partition = &f->partition};
}

/* RoundPipe: two calls of `microbatches` each. */
static void make_roundpipe(fixture *f, const char *partition, uint32_t microbatches)
{
    make(f, partition, 2 * microbatches, RP_RECOMPUTE_EARLY);
    f->lower.call_microbatches = microbatches;
    f->lower.sizes.boundary_bytes = 3000017;
    f->lower.sizes.input_bytes = 4001;
    f->lower.sizes.logits_bytes = 900;
    f->lower.sizes.logits_chunk_bytes = 700;
    f->config.round = microbatches;
    f->config.asynchronous = true;
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        f->temporaries[i] = 70001 + i;
    }
    for (uint32_t m = 0; m < 64; m++) {
        f->sequences[m] = 1 + m % 2;
    }
}

static rp_program *lower_type(const fixture *f, const rp_schedule_type *type)
{
    rp_program *schedule = NULL;
    rp_program *program = NULL;
    cr_assert(eq(int, rp_schedule_build(type, &f->config, &schedule, NULL), RP_OK));
    cr_assert(eq(int, rp_lower(schedule, &f->lower, f->sequences, &program, NULL), RP_OK));
    cr_assert(eq(int, rp_program_check(program), RP_OK));
    rp_program_destroy(schedule);
    return program;
}

static rp_program *lower(const fixture *f, const char *name)
{
    return lower_type(f, rp_schedule_find(name));
}

static rp_timeline *simulate(const rp_program *program, double link_Bps)
{
    rpsim_compute_costs costs = {.stage_count = program->stage_count};
    size_t entries = (size_t)program->stage_count * RP_OP_KIND_COUNT;
    cr_assert(eq(int, rp_arena_alloc(arena, entries, sizeof(int64_t), &costs.ps), RP_OK));
    cr_assert(
        eq(int, rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs.class_of),
           RP_OK));
    for (size_t i = 0; i < entries; i++) {
        costs.ps[i] = (int64_t)(1000000 + 77000 * (i % 13));
    }
    entries = (LAYERS + 1) * (size_t)RP_OP_KIND_COUNT;
    cr_assert(eq(int, rp_arena_alloc(arena, entries, sizeof(int64_t), &costs.layer_ps), RP_OK));
    costs.layer_count = LAYERS + 1;
    for (size_t i = 0; i < entries; i++) {
        costs.layer_ps[i] = (int64_t)(300000 + 33000 * (i % 11));
    }
    rp_machine machine = {.upload_Bps = link_Bps, .download_Bps = link_Bps, .host_Bps = 1e12};
    rp_timeline *timeline = NULL;
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline, NULL), RP_OK));
    return timeline;
}

static rpsim_memory measure(const rp_timeline *timeline, uint64_t gpu_bytes, uint64_t fixed)
{
    rpsim_memory memory;
    rpsim_memory_limits limits = {.gpu_bytes = gpu_bytes, .gpu_fixed_bytes = fixed};
    cr_assert(eq(int, rpsim_memory_measure(timeline, &limits, arena, &memory), RP_OK));
    cr_assert(memory.known);
    return memory;
}

static bool lives(const rp_timeline *timeline, const rp_buffer *buffer, int64_t time_ps)
{
    return timeline->start_ps[buffer->alloc_op] <= time_ps &&
           timeline->end_ps[buffer->free_op] > time_ps;
}

/* 1F1B without recompute: rank r of P always holds its layers' weights, gradients and optimizer, at
 * most the tapes of P - r microbatches (the schedule's published property), and a tape per deferred
 * weight part. */
static void check_resident(const rp_schedule_type *type, bool asynchronous,
                           const uint32_t versions[GPUS], uint32_t deferred)
{
    fixture f;
    make(&f, "3,4,5,4", 8, RP_RECOMPUTE_NONE);
    f.config.asynchronous = asynchronous;
    rp_program *program = lower_type(&f, type);
    rp_timeline *timeline = simulate(program, 1e12);
    rpsim_memory memory = measure(timeline, 0, 12345);
    uint32_t layer = 0;
    for (uint32_t r = 0; r < GPUS; r++) {
        uint32_t layers = f.partition.forward_layers[r] + (r == 0 ? 1 : 0);
        uint64_t state = 0;
        uint64_t tape = 0;
        for (uint32_t k = 0; k < layers + (r + 1 == GPUS ? 1 : 0); k++, layer++) {
            state += versions[r] * f.weights[layer] + f.gradients[layer] + f.optimizer[layer];
            tape += f.tapes[layer];
        }
        cr_expect(eq(u64, memory.peak_gpu_bytes[r], 12345 + state + (GPUS - r + deferred) * tape),
                  "%s, rank %u", type->name, r);
    }
    cr_expect(eq(u32, layer, LAYERS + 2));
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
}

Test(memory, resident_1f1b_closed_form)
{
    static const uint32_t one[GPUS] = {1, 1, 1, 1};
    check_resident(rp_schedule_find("1f1b"), false, one, 0);
    check_resident(rp_schedule_find("1f1b"), true, one, 0);
}

/* A tape stays until the weight part: each step of delay keeps another. */
Test(memory, deferred_weight_parts_keep_tapes)
{
    static const uint32_t one[GPUS] = {1, 1, 1, 1};
    for (rp_test_lag = 0; rp_test_lag <= 4; rp_test_lag++) {
        check_resident(&rp_test_lagging, false, one, rp_test_lag);
    }
}

/* PipeDream keeps a weight version per microbatch in flight (SOSP 2019, section 3.3), 2BW two (ICML
 * 2021, section 3.1); with flushes a single version. */
Test(memory, weight_versions)
{
    static const uint32_t one[GPUS] = {1, 1, 1, 1};
    static const uint32_t two[GPUS] = {2, 2, 2, 2};
    static const uint32_t stashed[GPUS] = {4, 3, 2, 1};
    check_resident(rp_schedule_find("pipedream"), true, stashed, 0);
    check_resident(rp_schedule_find("pipedream-2bw"), true, two, 0);
    check_resident(rp_schedule_find("pipedream"), false, one, 0);
    check_resident(rp_schedule_find("pipedream-2bw"), false, one, 0);
}

/* With recompute only stage inputs wait, and a single tape lives at a time. GPipe keeps all M
 * inputs, 1F1B P - r, and an input that comes in advance. */
Test(memory, inputs_kept_with_recompute)
{
    static const char *const names[] = {"gpipe", "1f1b"};
    for (size_t i = 0; i < 2; i++) {
        fixture f;
        make(&f, "4,4,4,4", 8, RP_RECOMPUTE_WAIT);
        f.lower.sizes.boundary_bytes = 3000017;
        rp_program *program = lower(&f, names[i]);
        rp_timeline *timeline = simulate(program, 1e15);
        for (uint32_t r = 1; r < GPUS; r++) {
            uint32_t most = 0;
            for (uint32_t op = 0; op < program->op_count; op++) {
                uint32_t count = 0;
                for (uint32_t b = 0; b < program->buffer_count; b++) {
                    const rp_buffer *buffer = &program->buffers[b];
                    bool input = buffer->place == r && buffer->kind == RP_BUFFER_ACTIVATION &&
                                 program->ops[buffer->alloc_op].kind == RP_OP_UPLOAD_ACT;
                    count += input && lives(timeline, buffer, timeline->start_ps[op]) ? 1 : 0;
                }
                most = count > most ? count : most;
            }
            uint32_t kept = i == 0 ? 8 : GPUS - r; /* and an input in advance */
            cr_expect(ge(u32, most, kept), "%s, rank %u", names[i], r);
            cr_expect(le(u32, most, kept + 1), "%s, rank %u", names[i], r);
        }
        rp_timeline_destroy(timeline);
        rp_program_destroy(program);
    }
}

/* Peaks by definition: all live bytes at each buffer's start. */
static void compare_with_slow(const rp_timeline *timeline)
{
    const rp_program *p = timeline->program;
    rpsim_memory memory = measure(timeline, 0, 77);
    uint64_t slow[GPUS + 1] = {77, 77, 77, 77, 0};
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        uint64_t sums[GPUS + 1] = {77, 77, 77, 77, 0};
        int64_t now_ps = timeline->start_ps[p->buffers[b].alloc_op];
        for (uint32_t k = 0; k < p->buffer_count; k++) {
            const rp_buffer *buffer = &p->buffers[k];
            uint32_t place = buffer->place == RP_PLACE_HOST ? GPUS : buffer->place;
            sums[place] += lives(timeline, buffer, now_ps) ? buffer->bytes : 0;
        }
        for (uint32_t i = 0; i <= GPUS; i++) {
            slow[i] = sums[i] > slow[i] ? sums[i] : slow[i];
        }
    }
    for (uint32_t i = 0; i < GPUS; i++) {
        cr_expect(eq(u64, memory.peak_gpu_bytes[i], slow[i]));
    }
    cr_expect(eq(u64, memory.peak_host_bytes, slow[GPUS]));
}

Test(memory, peaks_equal_a_slow_recomputation)
{
    static const double links[] = {1e10, 1e12, 1e14};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        fixture f;
        make_roundpipe(&f, "2,7,7|0,5,5,6", 3);
        for (int grain = RP_GRAIN_STAGE; grain <= RP_GRAIN_LAYER; grain++) {
            f.lower.grain = (rp_grain)grain;
            rp_program *program = lower(&f, "roundpipe");
            rp_timeline *timeline = simulate(program, links[i]);
            compare_with_slow(timeline);
            rp_timeline_destroy(timeline);
            rp_program_destroy(program);
        }
        static const char *const pipelines[] = {"gpipe", "1f1b", "interleaved-1f1b"};
        for (size_t k = 0; k < 3; k++) {
            make(&f, k == 2 ? "2,2,2,2,2,2,2,2" : "4,4,4,4", 8, RP_RECOMPUTE_WAIT);
            f.lower.sizes.boundary_bytes = 3000017;
            rp_program *program = lower(&f, pipelines[k]);
            rp_timeline *timeline = simulate(program, links[i]);
            compare_with_slow(timeline);
            rp_timeline_destroy(timeline);
            rp_program_destroy(program);
        }
    }
}

static bool is_input(const rp_program *p, const rp_buffer *buffer)
{
    return p->ops[buffer->alloc_op].kind == RP_OP_UPLOAD_ACT;
}

static bool is_output(const rp_program *p, const rp_buffer *buffer)
{
    uint8_t kind = p->ops[buffer->free_op].kind;
    return kind == RP_OP_DOWNLOAD_ACT || kind == RP_OP_DOWNLOAD_GRAD;
}

static bool is_weight(const rp_program *p, const rp_buffer *buffer)
{
    (void)p;
    return buffer->kind == RP_BUFFER_WEIGHT;
}

static bool is_tape(const rp_program *p, const rp_buffer *buffer)
{
    (void)p;
    return buffer->kind == RP_BUFFER_TAPE;
}

static uint32_t most_alive(const rp_timeline *timeline, uint32_t gpu,
                           bool (*counts)(const rp_program *, const rp_buffer *))
{
    const rp_program *p = timeline->program;
    uint32_t most = 0;
    for (uint32_t b = 0; b < p->buffer_count; b++) {
        uint32_t count = 0;
        int64_t now_ps = timeline->start_ps[p->buffers[b].alloc_op];
        for (uint32_t k = 0; k < p->buffer_count; k++) {
            const rp_buffer *buffer = &p->buffers[k];
            bool here = buffer->place == gpu && counts(p, buffer);
            count += here && lives(timeline, buffer, now_ps) ? 1 : 0;
        }
        most = count > most ? count : most;
    }
    return most;
}

/* executor.md section 3, property 21: weights of two stages, two inputs, two outputs in flight,
 * whatever the links. Backward stages begin where forward stages do, without further outputs. */
Test(memory, roundpipe_residency)
{
    static const double links[] = {1e9, 1e11, 1e12, 1e13, 1e15};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        fixture f;
        make_roundpipe(&f, "4,4,4,4|0,4,4,4,4", 5);
        rp_program *program = lower(&f, "roundpipe");
        rp_timeline *timeline = simulate(program, links[i]);
        for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
            cr_expect(le(u32, most_alive(timeline, gpu, is_weight), 2));
            cr_expect(le(u32, most_alive(timeline, gpu, is_input), 2));
            cr_expect(le(u32, most_alive(timeline, gpu, is_output), 2));
            cr_expect(eq(u32, most_alive(timeline, gpu, is_tape), 1));
        }
        cr_expect(eq(u32, most_alive(timeline, 0, is_weight), 2));
        rp_timeline_destroy(timeline);
        rp_program_destroy(program);
    }
}

/* Exactly the needed bytes fit, a byte less does not; the reason names buffer, time and bytes. */
Test(memory, oom_reason)
{
    fixture f;
    make_roundpipe(&f, "4,4,4,4|0,4,4,4,4", 5);
    rp_program *program = lower(&f, "roundpipe");
    rp_timeline *timeline = simulate(program, 1e12);
    rpsim_memory memory = measure(timeline, 0, 5000);
    cr_expect(memory.fits);
    cr_expect(eq(str, memory.oom_reason, ""));
    uint64_t peak = 0;
    for (uint32_t i = 0; i < GPUS; i++) {
        peak = memory.peak_gpu_bytes[i] > peak ? memory.peak_gpu_bytes[i] : peak;
    }
    memory = measure(timeline, peak, 5000);
    cr_expect(memory.fits);
    memory = measure(timeline, peak - 1, 5000);
    cr_expect(not(memory.fits));
    cr_expect(ne(ptr, strstr(memory.oom_reason, "GPU "), NULL), "%s", memory.oom_reason);
    cr_expect(ne(ptr, strstr(memory.oom_reason, " ms: "), NULL), "%s", memory.oom_reason);
    cr_expect(ne(ptr, strstr(memory.oom_reason, " of stage "), NULL), "%s", memory.oom_reason);
    cr_expect(ne(ptr, strstr(memory.oom_reason, ", 1 more than the usable "), NULL), "%s",
              memory.oom_reason);
    memory = measure(timeline, 4999, 5000);
    cr_expect(ne(ptr, strstr(memory.oom_reason, "at 0.000 ms: what is always there"), NULL), "%s",
              memory.oom_reason);
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
}

Test(memory, lifetimes_without_order_are_refused)
{
    fixture f;
    make_roundpipe(&f, "4,4,4,4|0,4,4,4,4", 5);
    rp_program *program = lower(&f, "roundpipe");
    uint32_t refused = 0;
    for (uint32_t b = 0; b < program->buffer_count; b++) {
        rp_buffer *buffer = &program->buffers[b];
        rp_buffer before = *buffer;
        if (before.alloc_op == before.free_op) {
            continue;
        }
        char message[256];
        buffer->alloc_op = before.free_op;
        buffer->free_op = before.alloc_op;
        rp_log_capture_begin(message, sizeof message);
        cr_expect(eq(int, rp_program_check(program), RP_INVALID_PROGRAM), "buffer %u", b);
        rp_log_capture_end();
        cr_expect(ne(ptr, strstr(message, "freed before it is allocated"), NULL), "%s", message);
        *buffer = before;
        refused++;
    }
    cr_expect(gt(u32, refused, 100));
    cr_expect(eq(int, rp_program_check(program), RP_OK));
    rp_program_destroy(program);
}

/* True if `to` cannot begin before `from` has, by queue order and waits, in a plain search. */
static bool is_reachable(const rp_program *p, uint32_t from, uint32_t to, bool *seen,
                         uint32_t *stack)
{
    uint32_t depth = 0;
    memset(seen, 0, p->op_count * sizeof *seen);
    stack[depth++] = to;
    seen[to] = true;
    while (depth > 0 && !seen[from]) {
        uint32_t op = stack[--depth];
        uint32_t before = op > p->queues[rp_program_queue_of(p, op)].op_begin ? op - 1 : op;
        for (uint32_t w = p->ops[op].wait_begin; w <= p->ops[op + 1].wait_begin; w++) {
            bool last = w == p->ops[op + 1].wait_begin;
            uint32_t next = last ? before : rp_wait_op(p->waits[w]);
            if (!seen[next]) {
                seen[next] = true;
                stack[depth++] = next;
            }
        }
    }
    return seen[from];
}

/* The lifetime rule is sufficient: every accepted pair of ops has this order. */
Test(memory, accepted_lifetimes_have_an_order)
{
    fixture f;
    make_roundpipe(&f, "4,4,4,4|0,4,4,4,4", 3);
    rp_program *program = lower(&f, "roundpipe");
    bool *seen = NULL;
    uint32_t *stack = NULL;
    uint64_t state = 1;
    uint32_t accepted = 0;
    uint32_t refused = 0;
    cr_assert(eq(int, rp_arena_alloc(arena, program->op_count, sizeof *seen, &seen), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, program->op_count, sizeof *stack, &stack), RP_OK));
    for (uint32_t i = 0; i < 1000; i++) {
        char message[256];
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t from = (uint32_t)(state >> 33) % program->op_count;
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t to = (uint32_t)(state >> 33) % program->op_count;
        program->buffers[0].alloc_op = from;
        program->buffers[0].free_op = to;
        rp_log_capture_begin(message, sizeof message);
        bool fine = rp_program_check(program) == RP_OK;
        rp_log_capture_end();
        bool ordered = is_reachable(program, from, to, seen, stack);
        cr_expect(ordered || !fine, "ops %u to %u", from, to);
        accepted += fine ? 1 : 0;
        refused += ordered ? 0 : 1;
    }
    cr_expect(gt(u32, accepted, 50));
    cr_expect(gt(u32, refused, 50));
    rp_program_destroy(program);
}

/* ---- real models ----------------------------------------------------------------------------- */

typedef struct machine {
    rp_model model;
    rp_costs costs;
    rp_platform platform;
    rp_partition partition;
    rp_resolved run;
} machine;

static void load(machine *m)
{
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", arena, &m->model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", arena, &m->costs), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", arena, &m->platform), RP_OK));
    cr_assert(eq(int, rp_partition_parse("test", "7,7,7,7|0,7,7,7,7", arena, &m->partition, NULL),
                 RP_OK));
    m->run = rp_test_hand_run("roundpipe", &m->model, &m->costs, &m->partition, 4, 5);
    m->run.decided.iterations = 2;
    m->run.decided.asynchronous = true;
    m->run.recompute = RP_RECOMPUTE_EARLY;
}

static rpsim_result run_at(machine *m, uint32_t seq_len)
{
    rpsim_result result;
    m->run.decided.seq_len = seq_len;
    cr_assert(eq(int, rpsim_hardware_case_run(&m->run, &m->platform, 0, &result, NULL), RP_OK));
    return result;
}

/* 20 B per parameter on the host (executor.md 1.6: 32.0 GiB for 1.7B), and the tied head's slot. */
Test(memory, host_bytes_of_a_model)
{
    machine m;
    rp_sizes sizes;
    load(&m);
    cr_assert(eq(int, rp_sizes_of_model(&m.model, 2048, RP_DTYPE_F16, arena, &sizes), RP_OK));
    uint64_t slot = 2 * m.model.embedding_parameters;
    cr_expect(eq(u64, rp_sizes_host_bytes(&sizes, 1), 20 * m.model.total_parameters + slot));
    cr_expect(eq(u64, rp_sizes_host_bytes(&sizes, 4), 26 * m.model.total_parameters + 4 * slot));
}

Test(memory, grows_with_the_sequence)
{
    machine m;
    load(&m);
    uint64_t before[4] = {0};
    for (uint32_t seq_len = 1024; seq_len <= 65536; seq_len *= 2) {
        rpsim_result result = run_at(&m, seq_len);
        for (uint32_t i = 0; i < 4; i++) {
            cr_expect(gt(u64, result.memory.peak_gpu_bytes[i], before[i]));
            before[i] = result.memory.peak_gpu_bytes[i];
        }
        rpsim_result_fini(&result);
    }
}

/* The length found fits, the next does not; layer grain reaches further. Counts the program's
 * buffers, not the library's. */
Test(memory, longest_sequence)
{
    machine m;
    load(&m);
    rpsim_seqlen longest[2] = {0};
    rp_schedule_type schedule = *rp_schedule_find("roundpipe");
    schedule.library_memory = false;
    m.run.schedule = &schedule;
    for (uint32_t grain = 0; grain < 2; grain++) {
        rpsim_result result;
        m.run.decided.layer_grain = grain == 1;
        cr_assert(eq(
            int, rpsim_seqlen_search(&m.run, &m.platform, 0, arena, &longest[grain], &result, NULL),
            RP_OK));
        cr_expect(result.memory.fits);
        cr_expect(eq(u32, m.run.decided.seq_len, longest[grain].tokens));
        rpsim_result_fini(&result);
        result = run_at(&m, longest[grain].tokens);
        cr_expect(result.memory.fits);
        rpsim_result_fini(&result);
        result = run_at(&m, longest[grain].tokens + 1024);
        cr_expect(not(result.memory.fits));
        rpsim_result_fini(&result);
    }
    cr_expect(gt(u32, longest[1].tokens, longest[0].tokens));
    m.platform.usable_memory_gb = 0.9; /* no step fits */
    rpsim_seqlen none = {.tokens = 1};
    rpsim_result result;
    cr_assert(
        eq(int, rpsim_seqlen_search(&m.run, &m.platform, 0, arena, &none, &result, NULL), RP_OK));
    cr_expect(eq(u32, none.tokens, 0));
    cr_expect(not(result.memory.fits));
    rpsim_result_fini(&result);
}
