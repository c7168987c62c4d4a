/* Offloaded activations: times and memory against a recurrence over pieces of layers, bytes moved
 * against sums, and all schedules with and without them. */
#include "common/schedule/build.h"
#include "common/timeline/metrics.h"
#include "sim/run/memory/memory.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <string.h>

#define LAYERS RP_TEST_BENCH_LAYERS
#define FORWARD_PS INT64_C(1000000000) /* of a layer, rp_test_bench_make */
#define BACKWARD_PS INT64_C(2000000000)
#define PS_PER_BYTE 50 /* a link of 20 GB/s */
#define BOUNDARY 800000u
#define TAPE 9000000u
#define MOST 8u /* microbatches */

TestSuite(kept, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

typedef struct setting {
    const char *schedule;
    uint32_t gpus;
    uint32_t microbatches;
    rp_recompute recompute;
    rp_grain grain;
    bool offload;
    uint64_t tape;
    bool sharded; /* each layer is a stage, and its input is part of its tape */
} setting;

/* Tapes that can be told apart; that of the embedding is empty. */
static uint64_t tape_of(const setting *s, uint32_t layer)
{
    return layer == 0 ? 0 : s->tape + 1000 * layer;
}

static void make(rp_test_bench *b, const setting *s)
{
    rp_test_bench_make(b, s->schedule, s->microbatches, 1, false);
    rp_arena *arena = rp_test_tool_arena();
    rp_status status =
        rp_partition_even(b->c->schedule, &b->c->costs, s->gpus, 0, arena, &b->c->partition, NULL);
    cr_assert(eq(int, status, RP_OK));
    b->c->config.gpus = s->gpus;
    b->c->config.recompute = s->recompute;
    b->c->config.round = s->microbatches;
    rp_test_bench_sizes(b, BOUNDARY, 0);
    b->lower.sizes.input_bytes = 0; /* token ids and labels are there at once */
    cr_assert(eq(int,
                 rp_arena_alloc(arena, LAYERS + 2, sizeof(uint64_t), &b->lower.sizes.tape_bytes),
                 RP_OK));
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        b->lower.sizes.tape_bytes[i] = tape_of(s, i);
    }
    b->lower.grain = s->grain;
    b->lower.offload_activations = s->offload;
    b->machine.collective_Bps = 1e9;
    rp_test_bench_lower(b);
    cr_assert(eq(int, rp_program_check(b->program), RP_OK), "%s", s->schedule);
    rp_test_bench_run(b);
}

static rpsim_memory measure(const rp_test_bench *b)
{
    rpsim_memory memory;
    rpsim_memory_limits limits = {0};
    cr_assert(
        eq(int, rpsim_memory_measure(b->timeline, &limits, rp_test_tool_arena(), &memory), RP_OK));
    return memory;
}

/* ---- a GPU, piece by piece ------------------------------------------------------------------- */

typedef struct life {
    bool host;
    int64_t begin_ps;
    int64_t end_ps;
    uint64_t bytes;
} life;

typedef struct by_hand {
    life lives[8 * MOST * (LAYERS + 2)];
    size_t count;
    int64_t made_ps[MOST][LAYERS + 2]; /* begin of a layer's forward */
    int64_t down_ps[MOST][LAYERS + 2]; /* end of its tape's way down; -1: it stays */
    int64_t downs[2];                  /* ends of the last two ways down, oldest first */
    int64_t users[2];                  /* ends of the last two backwards whose tape came up */
    int64_t up_ps;                     /* end of the last way up */
    int64_t units[2];                  /* ends of the last two units */
    int64_t now_ps;
} by_hand;

static void live(by_hand *h, bool host, int64_t begin_ps, int64_t end_ps, uint64_t bytes)
{
    h->lives[h->count++] = (life){host, begin_ps, end_ps, bytes};
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void end_unit(by_hand *h)
{
    h->units[0] = h->units[1];
    h->units[1] = h->now_ps;
}

static void forward(by_hand *h, const setting *s, uint32_t m, bool backward_next)
{
    for (uint32_t l = 1; l <= LAYERS; l++) {
        bool leaves = !(backward_next && l == LAYERS);
        int64_t begin_ps = leaves ? later(h->now_ps, h->downs[0]) : h->now_ps;
        h->made_ps[m][l] = begin_ps;
        h->now_ps = begin_ps + FORWARD_PS;
        h->down_ps[m][l] = -1;
        if (leaves) {
            int64_t go_ps = later(h->now_ps, h->downs[1]);
            int64_t end_ps = go_ps + (int64_t)tape_of(s, l) * PS_PER_BYTE;
            h->down_ps[m][l] = end_ps;
            h->downs[0] = h->downs[1];
            h->downs[1] = end_ps;
            uint64_t input = l == 1 || s->sharded ? 0 : BOUNDARY;
            live(h, false, begin_ps, end_ps, tape_of(s, l) - input);
            if (input > 0) { /* its input, since the layer before has begun */
                live(h, false, h->made_ps[m][l - 1], end_ps, BOUNDARY);
            }
            h->lives[h->count++] = (life){true, go_ps, 0, tape_of(s, l)}; /* until it comes up */
        }
        if (s->sharded || l == LAYERS) {
            end_unit(h);
        }
    }
    if (s->sharded) { /* the head's tape counts with the last layer's forward */
        live(h, false, h->made_ps[m][LAYERS], h->now_ps, tape_of(s, LAYERS + 1));
    }
    h->made_ps[m][LAYERS + 1] = h->now_ps; /* the head takes no time */
}

static life *on_host(by_hand *h, uint64_t bytes, int64_t down_ps, const setting *s)
{
    for (size_t i = 0; i < h->count; i++) {
        life *found = &h->lives[i];
        if (found->host && found->end_ps == 0 && found->bytes == bytes &&
            found->begin_ps + (int64_t)bytes * PS_PER_BYTE == down_ps) {
            return found;
        }
    }
    cr_assert(false, "%s", s->schedule);
    return NULL;
}

static void backward(by_hand *h, const setting *s, uint32_t m)
{
    live(h, false, h->made_ps[m][LAYERS + 1], h->now_ps, tape_of(s, LAYERS + 1));
    for (uint32_t l = LAYERS; l >= 1; l--) {
        uint64_t tape = tape_of(s, l);
        bool left = h->down_ps[m][l] >= 0;
        int64_t here_ps = h->made_ps[m][l];
        if (left) {
            here_ps = later(later(h->up_ps, h->down_ps[m][l]), later(h->users[0], h->units[0]));
            h->up_ps = here_ps + (int64_t)tape * PS_PER_BYTE;
            on_host(h, tape, h->down_ps[m][l], s)->end_ps = h->up_ps;
            h->now_ps = later(h->now_ps, h->up_ps);
        }
        h->now_ps += BACKWARD_PS;
        if (left) {
            h->users[0] = h->users[1];
            h->users[1] = h->now_ps;
            live(h, false, here_ps, h->now_ps, tape);
        } else {
            uint64_t input = s->sharded ? 0 : BOUNDARY;
            live(h, false, here_ps, h->now_ps, tape - input);
            live(h, false, h->made_ps[m][l - 1], h->now_ps, input);
        }
        if (s->sharded || l == 1) {
            end_unit(h);
        }
    }
}

static uint64_t peak_of(const by_hand *h, bool host)
{
    uint64_t peak = 0;
    for (size_t i = 0; i < h->count; i++) {
        uint64_t bytes = 0;
        for (size_t k = 0; k < h->count; k++) {
            const life *other = &h->lives[k];
            bool there = other->begin_ps <= h->lives[i].begin_ps &&
                         other->end_ps > h->lives[i].begin_ps && other->host == host;
            bytes += there ? other->bytes : 0;
        }
        peak = bytes > peak ? bytes : peak;
    }
    return peak;
}

/* A GPU runs all layers: GPipe's backwards come after all forwards, those of 1F1B directly, and
 * those of each rank of FSDP, whose collectives take no time here. Links are slower or faster than
 * a layer. */
Test(kept, one_gpu_takes_the_time_and_memory_of_the_recurrence)
{
    static const char *const names[] = {"gpipe", "1f1b", "fsdp"};
    static const uint64_t tapes[] = {1000000, 9000000, 19000000, 21000000, 45000000, 90000000};
    for (size_t i = 0; i < 3 * sizeof tapes / sizeof tapes[0]; i++) {
        bool gpipe = i % 3 == 0;
        setting s = {names[i % 3], 1,         4, RP_RECOMPUTE_NONE, RP_GRAIN_LAYER, true,
                     tapes[i / 3], i % 3 == 2};
        by_hand h = {.count = 0};
        for (uint32_t m = 0; m < s.microbatches; m++) {
            forward(&h, &s, m, !gpipe);
            if (!gpipe) {
                backward(&h, &s, m);
            }
        }
        for (uint32_t m = 0; gpipe && m < s.microbatches; m++) {
            backward(&h, &s, m);
        }
        uint32_t ranks = s.sharded ? 2 : 1;
        s.gpus *= ranks;
        s.microbatches *= ranks;
        rp_test_bench b;
        make(&b, &s);
        rpsim_memory memory = measure(&b);
        cr_expect(eq(i64, rp_metrics_makespan_ps(b.timeline), h.now_ps), "%zu", i);
        cr_expect(eq(u64, memory.peak_host_bytes, ranks * peak_of(&h, true)), "%zu", i);
        cr_expect(eq(u64, memory.peak_gpu_bytes[0], peak_of(&h, false)), "%zu", i);
        rp_test_bench_fini(&b);
    }
}

/* ---- all pipelines --------------------------------------------------------------------------- */

static uint64_t moved(const rp_program *p, rp_op_kind kind)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        bytes += p->ops[i].kind == kind ? p->op_bytes[i] : 0;
    }
    return bytes;
}

/* Bytes that a forward op saves and the next op does not need, by the ops of a layer each. */
static uint64_t leaving(const setting *s, const rp_program *p, uint32_t op)
{
    const rp_op *o = &p->ops[op];
    const rp_stage *stage = &p->stages[o->stage];
    bool single = stage->layer_end == stage->layer_begin + 1; /* needs no op of a layer */
    uint32_t layer = rp_op_layer(o) == 0 && single ? stage->layer_end : rp_op_layer(o);
    if (!rp_op_kind_is_forward((rp_op_kind)o->kind) || layer > LAYERS) {
        return 0;
    }
    const rp_op *next = o + 1;
    next += rp_op_kind_is_forward((rp_op_kind)next->kind) && rp_op_layer(next) > LAYERS ? 1 : 0;
    bool stays = layer == stage->layer_end && next->stage == o->stage &&
                 next->microbatch == o->microbatch &&
                 !rp_op_kind_is_forward((rp_op_kind)next->kind);
    uint64_t input = layer == 1 ? 0 : BOUNDARY;
    return stays ? 0 : s->recompute == RP_RECOMPUTE_NONE ? tape_of(s, layer) : input;
}

static uint64_t all_leaving(const setting *s, const rp_program *p)
{
    uint64_t bytes = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        uint32_t end = p->queues[q].kind == RP_QUEUE_COMPUTE ? p->queues[q].op_end : 0;
        for (uint32_t i = p->queues[q].op_begin; i + 1 < end; i++) {
            bytes += leaving(s, p, i);
        }
    }
    return bytes;
}

/* Every data-parallel system moves what its layers save, except for the last layer's. */
Test(kept, data_parallel_systems_move_what_they_save)
{
    uint32_t checked = 0;
    for (uint32_t i = 0; i < 3 * rp_schedule_count; i++) {
        const rp_schedule_type *type = rp_schedules[i / 3];
        if (!rp_is_data_parallel(&type->traits) || rp_cuts_layers(&type->traits)) {
            continue;
        }
        setting s = {type->name,     4,    MOST,     (rp_recompute)(i % 3),
                     RP_GRAIN_LAYER, true, 20000000, false};
        rp_test_bench b;
        make(&b, &s);
        uint64_t each = 0;
        for (uint32_t l = 1; l < LAYERS; l++) {
            each += s.recompute == RP_RECOMPUTE_NONE ? tape_of(&s, l) : BOUNDARY;
        }
        cr_expect(eq(u64, moved(b.program, RP_OP_DOWNLOAD_SAVED), MOST * each), "%s", type->name);
        cr_expect(eq(u64, moved(b.program, RP_OP_UPLOAD_SAVED), MOST * each), "%s", type->name);
        rp_test_bench_fini(&b);
        checked++;
    }
    cr_expect(ge(u32, checked, 3 * 5));
}

/* What leaves comes back, and is on the host meanwhile; a GPU needs no more memory, and with
 * several microbatches waiting less. Split backwards keep what has come back for their weight part.
 * With links that take no time nothing takes longer. */
Test(kept, all_pipelines_move_what_they_save)
{
    uint32_t checked = 0;
    uint32_t gains = 0;
    for (uint32_t i = 0; i < 3 * rp_schedule_count; i++) {
        const rp_schedule_type *type = rp_schedules[i / 3];
        if (type->traits.placement != RP_PLACEMENT_RESIDENT) {
            continue;
        }
        setting s = {type->name,     4,    MOST,     (rp_recompute)(i % 3),
                     RP_GRAIN_LAYER, true, 20000000, false};
        rp_test_bench offloaded;
        rp_test_bench kept;
        make(&offloaded, &s);
        s.offload = false;
        make(&kept, &s);
        uint64_t down = moved(offloaded.program, RP_OP_DOWNLOAD_SAVED);
        cr_expect(eq(u64, down, all_leaving(&s, offloaded.program)), "%s", type->name);
        cr_expect(eq(u64, down, moved(offloaded.program, RP_OP_UPLOAD_SAVED)), "%s", type->name);
        rp_test_bench *const both[] = {&offloaded, &kept};
        for (size_t k = 0; k < 2; k++) {
            both[k]->machine.upload_Bps = both[k]->machine.download_Bps = 1e17;
            rp_test_bench_run(both[k]);
        }
        cr_expect(eq(i64, rp_metrics_makespan_ps(offloaded.timeline) / 1000000,
                     rp_metrics_makespan_ps(kept.timeline) / 1000000),
                  "%s", type->name); /* to the microsecond: an upload takes some picoseconds */
        rpsim_memory with = measure(&offloaded);
        rpsim_memory without = measure(&kept);
        cr_expect(ge(u64, with.peak_host_bytes, without.peak_host_bytes));
        cr_expect(le(u64, with.peak_host_bytes, without.peak_host_bytes + down));
        for (uint32_t gpu = 0; gpu < s.gpus && !type->splits_backward; gpu++) {
            cr_expect(le(u64, with.peak_gpu_bytes[gpu], without.peak_gpu_bytes[gpu]), "%s, GPU %u",
                      type->name, gpu);
            gains += with.peak_gpu_bytes[gpu] < without.peak_gpu_bytes[gpu] ? 1 : 0;
        }
        checked++;
        rp_test_bench_fini(&offloaded);
        rp_test_bench_fini(&kept);
    }
    cr_expect(ge(u32, checked, 3 * 10));
    cr_expect(ge(u32, gains, 3 * 10));
}

/* At grain stage a tape leaves as a whole. GPipe on a GPU has M - 1 on the host, because the first
 * comes back during the last forward, and when the first backward begins three on the GPU: it needs
 * one, the last forward's leaves, and the next comes. */
Test(kept, a_stage_leaves_as_a_whole)
{
    setting s = {"gpipe", 1, 4, RP_RECOMPUTE_NONE, RP_GRAIN_STAGE, true, 1000000, false};
    rp_test_bench b;
    make(&b, &s);
    uint64_t stage = 0;
    for (uint32_t l = 1; l <= LAYERS; l++) {
        stage += tape_of(&s, l);
    }
    uint64_t heads = s.microbatches * tape_of(&s, LAYERS + 1);
    rpsim_memory memory = measure(&b);
    cr_expect(eq(u64, moved(b.program, RP_OP_DOWNLOAD_SAVED), s.microbatches * stage));
    cr_expect(eq(u64, memory.peak_host_bytes, (s.microbatches - 1) * stage));
    cr_expect(eq(u64, memory.peak_gpu_bytes[0], 3 * stage + heads));
    rp_test_bench_fini(&b);
}

Test(kept, weights_in_host_memory_are_refused)
{
    rp_test_bench b;
    rp_program *schedule = NULL;
    rp_program *program = NULL;
    rp_reason reason;
    const uint32_t sequences[] = {1, 1};
    rp_test_bench_make(&b, "roundpipe", 2, 1, false);
    rp_test_bench_sizes(&b, BOUNDARY, 0);
    b.lower.offload_activations = true;
    cr_assert(eq(int, rp_schedule_build(b.c->schedule, &b.c->config, &schedule, NULL), RP_OK));
    cr_expect(eq(int, rp_lower(schedule, &b.lower, sequences, &program, &reason), RP_USAGE));
    cr_expect(ne(ptr, strstr(reason.text, "weights on GPUs"), NULL), "%s", reason.text);
    rp_program_destroy(schedule);
    rp_test_bench_fini(&b);
}
