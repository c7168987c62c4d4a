/* Recompute grain layer: bytes moved, times and memory, against closed forms and a recurrence; its
 * savings against stage grain, and their limits. */
#include "common/base/log.h"
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
#define HEAD_FORWARD_PS INT64_C(500000000)
#define HEAD_BACKWARD_PS INT64_C(700000000)

TestSuite(grain, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

/* Tapes and temporaries that can be told apart. */
static void set_memory(rp_test_bench *b, uint64_t tape, uint64_t temporary)
{
    uint64_t **const arrays[] = {&b->lower.sizes.tape_bytes, &b->lower.sizes.temporary_bytes};
    const uint64_t base[] = {tape, temporary};
    for (size_t a = 0; a < 2; a++) {
        cr_assert(eq(int,
                     rp_arena_alloc(rp_test_tool_arena(), LAYERS + 2, sizeof(uint64_t), arrays[a]),
                     RP_OK));
        for (uint32_t i = 0; i < LAYERS + 2; i++) {
            (*arrays[a])[i] = base[a] == 0 ? 0 : base[a] + 13 * i;
        }
    }
}

typedef struct setting {
    const char *schedule;
    const char *partition; /* NULL: even */
    uint32_t gpus;
    uint32_t microbatches;
    rp_recompute recompute;
    uint64_t boundary;
    uint64_t weight;
    uint64_t tape;
    uint64_t temporary;
} setting;

static void make(rp_test_bench *b, const setting *s, rp_grain grain)
{
    rp_test_bench_make(b, s->schedule, s->microbatches, 1, false);
    rp_arena *arena = rp_test_tool_arena();
    rp_partition *partition = &b->c->partition;
    b->c->costs.head_fwd_ps = HEAD_FORWARD_PS;
    b->c->costs.head_bwd_ps = HEAD_BACKWARD_PS;
    rp_status status =
        s->partition != NULL
            ? rp_partition_parse("test", s->partition, arena, partition, NULL)
            : rp_partition_even(b->c->schedule, &b->c->costs, s->gpus, 0, arena, partition, NULL);
    cr_assert(eq(int, status, RP_OK));
    b->c->config.gpus = s->gpus;
    b->c->config.recompute = s->recompute;
    b->c->config.round = s->microbatches;
    rp_test_bench_sizes(b, s->boundary, s->weight);
    set_memory(b, s->tape, s->temporary);
    b->lower.grain = grain;
    rp_test_bench_lower(b);
    cr_assert(eq(int, rp_program_check(b->program), RP_OK), "%s %s", s->schedule, s->partition);
}

static uint64_t moved(const rp_program *p, rp_op_kind kind)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        bytes += p->ops[i].kind == kind ? p->op_bytes[i] : 0;
    }
    return bytes;
}

static rpsim_memory measure(const rp_test_bench *b)
{
    rpsim_memory memory;
    rpsim_memory_limits limits = {0};
    cr_assert(
        eq(int, rpsim_memory_measure(b->timeline, &limits, rp_test_tool_arena(), &memory), RP_OK));
    cr_assert(memory.known);
    return memory;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* executor.md 1.3: the forward saves every layer's input. Per microbatch, with weights in host
 * memory, the output of each of `layers` recomputed layers goes down once. Up go token ids, twice
 * (for the first forward stage and the first layer's recompute), labels, and a boundary for each
 * other forward stage, each other recomputed layer, and the head's stage, which at layer grain
 * begins with the head. */
Test(grain, transferred_bytes_equal_the_formula)
{
    static const struct {
        setting of;
        uint32_t layers;
        uint32_t forward;
        uint32_t backward;
    } cases[] = {
        {{"roundpipe", "4,4,4,4|0,4,4,4,4", 4, 5, RP_RECOMPUTE_EARLY, 800, 10, 0, 0}, 16, 4, 5},
        {{"roundpipe", "2,7,7|0,5,5,6", 3, 4, RP_RECOMPUTE_WAIT, 800, 10, 0, 0}, 16, 3, 4},
        {{"roundpipe", "6,10|5,6,5", 2, 3, RP_RECOMPUTE_EARLY, 800, 10, 0, 0}, 16, 2, 3},
        {{"roundpipe", "5,5|6,5,5", 2, 3, RP_RECOMPUTE_EARLY, 800, 10, 0, 0}, 10, 2, 3},
        {{"roundpipe", "1,1,1,1|12,2,1,1", 4, 4, RP_RECOMPUTE_EARLY, 800, 10, 0, 0}, 4, 4, 4},
        /* The embedding's backward has its own stage: its output counts too. */
        {{"roundpipe", "2,7,7|0,5,5,6,0", 3, 4, RP_RECOMPUTE_WAIT, 800, 10, 0, 0}, 17, 3, 5},
        {{"roundpipe", "0,8,8|0,5,5,6,0", 3, 4, RP_RECOMPUTE_WAIT, 800, 10, 0, 0}, 17, 3, 5},
        {{"roundpipe", "1,9|6,10,0", 3, 4, RP_RECOMPUTE_WAIT, 800, 10, 0, 0}, 11, 2, 3},
        {{"mobius", "2,2,2,2,2,2,2,2", 4, 4, RP_RECOMPUTE_WAIT, 800, 10, 0, 0}, 16, 8, 8},
        {{"mobius", "5,5,6,0", 4, 4, RP_RECOMPUTE_WAIT, 800, 10, 0, 0}, 16, 4, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_bench b;
        const setting *s = &cases[i].of;
        uint64_t ids = s->boundary / 8;
        make(&b, s, RP_GRAIN_LAYER);
        uint64_t down = cases[i].layers * s->boundary;
        uint64_t up = 3 * ids;
        up += (cases[i].forward - 1 + cases[i].layers - 1 + 1) * s->boundary;
        uint64_t gradients = (cases[i].backward - 1) * s->boundary;
        uint32_t m = s->microbatches;
        cr_expect(eq(u64, moved(b.program, RP_OP_DOWNLOAD_ACT), m * down), "case %zu", i);
        cr_expect(eq(u64, moved(b.program, RP_OP_UPLOAD_ACT), m * up), "case %zu", i);
        cr_expect(eq(u64, moved(b.program, RP_OP_UPLOAD_GRAD), m * gradients), "case %zu", i);
        cr_expect(eq(u64, moved(b.program, RP_OP_DOWNLOAD_GRAD), m * gradients), "case %zu", i);
        rp_test_bench_run(&b);
        rp_test_bench_fini(&b);
    }
}

/* ---- form ------------------------------------------------------------------------------------ */

static void drop_wait(rp_program *p, uint32_t op, uint32_t wait)
{
    memmove(&p->waits[wait], &p->waits[wait + 1], (p->wait_count - wait - 1) * sizeof(rp_wait));
    p->wait_count--;
    for (uint32_t i = op + 1; i <= p->op_count; i++) {
        p->ops[i].wait_begin--;
    }
}

static bool moves_input(const rp_op *op)
{
    return rp_op_layer(op) != 0 && (op->kind == RP_OP_UPLOAD_ACT || op->kind == RP_OP_DOWNLOAD_ACT);
}

/* Follows each layer's input from the forward through host memory to the recompute; removing any
 * link of these chains must be noticed. */
static uint32_t count_links(const char *partition)
{
    const setting s = {"roundpipe", partition, 6, 1, RP_RECOMPUTE_EARLY, 800, 10, 0, 0};
    rp_test_bench b;
    make(&b, &s, RP_GRAIN_LAYER);
    uint32_t ops = b.program->op_count;
    rp_test_bench_fini(&b);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < ops; i++) {
        make(&b, &s, RP_GRAIN_LAYER);
        rp_program *p = b.program;
        uint32_t w = p->ops[i].wait_begin;
        while (w < p->ops[i + 1].wait_begin && rp_wait_is_control(p->waits[w])) {
            w++;
        }
        if (moves_input(&p->ops[i]) && w < p->ops[i + 1].wait_begin) {
            char message[512];
            drop_wait(p, i, w);
            rp_log_capture_begin(message, sizeof message);
            cr_expect(eq(int, rp_program_check(p), RP_INVALID_PROGRAM), "op %u", i);
            rp_log_capture_end();
            cr_expect(ne(ptr, strstr(message, "must come after"), NULL), "%s", message);
            refused++;
        }
        rp_test_bench_fini(&b);
    }
    return refused;
}

Test(grain, a_missing_link_of_a_layer_input_is_refused)
{
    /* Down: within stages; up: all but the first's. */
    cr_expect(eq(u32, count_links("3,6,7|4,6,6"), 13 + 15 + 1));
    /* With the embedding's own stage its output also goes down and up. */
    cr_expect(eq(u32, count_links("3,6,7|4,6,6,0"), 14 + 16 + 1));
}

/* ---- times ----------------------------------------------------------------------------------- */

static int64_t makespan_of(const setting *s, rp_grain grain)
{
    rp_test_bench b;
    make(&b, s, grain);
    rp_test_bench_run(&b);
    int64_t ps = rp_metrics_makespan_ps(b.timeline);
    rp_test_bench_fini(&b);
    return ps;
}

/* With resident weights nothing more moves, and a unit takes as long. If recompute need not wait
 * for the gradient, only the topmost layer gains: the time is in between. */
Test(grain, resident_pipelines_take_as_long)
{
    uint32_t pipelines = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        if (rp_schedules[i]->traits.placement != RP_PLACEMENT_RESIDENT) {
            continue;
        }
        setting s = {rp_schedules[i]->name, NULL, 4, 8, RP_RECOMPUTE_WAIT, 30000000, 0, 0, 0};
        cr_expect(eq(i64, makespan_of(&s, RP_GRAIN_LAYER), makespan_of(&s, RP_GRAIN_STAGE)), "%s",
                  s.schedule);
        s.boundary = 0;
        int64_t wait = makespan_of(&s, RP_GRAIN_STAGE);
        s.recompute = RP_RECOMPUTE_EARLY;
        int64_t early = makespan_of(&s, RP_GRAIN_STAGE);
        int64_t layer = makespan_of(&s, RP_GRAIN_LAYER);
        cr_expect(ge(i64, layer, early), "%s", s.schedule);
        bool ordered_by_times = rp_schedules[i]->prepare != NULL; /* each mode has its own order */
        cr_expect(ordered_by_times || layer <= wait, "%s", s.schedule);
        pipelines++;
    }
    cr_expect(ge(u32, pipelines, 10));
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A microbatch on a GPU, all layers in a forward and a backward stage: executor.md 1.3 as a
 * recurrence. A boundary takes `boundary` to copy, ids an eighth. */
static int64_t chain_ps(int64_t boundary)
{
    int64_t forward[LAYERS + 1];
    int64_t down[LAYERS + 1] = {0}; /* [l] end of the download of layer l's output */
    forward[0] = boundary / 8;      /* the ids have arrived */
    for (uint32_t l = 1; l <= LAYERS; l++) {
        /* Layer l's input is on its way down; that of the layer before must have arrived. */
        forward[l] = later(forward[l - 1], l > 2 ? down[l - 2] : 0) + FORWARD_PS;
        down[l] = later(forward[l], down[l - 1]) + boundary;
    }
    int64_t head = down[LAYERS] + boundary + boundary / 8; /* input and labels have arrived */
    head += HEAD_FORWARD_PS + HEAD_BACKWARD_PS;
    int64_t gradient_down = head + boundary;
    int64_t upload = gradient_down + boundary; /* the gradient has come up */
    int64_t done[LAYERS + 2];                  /* [l] backward of layer l */
    for (uint32_t l = LAYERS + 1; l-- > 1;) {
        int64_t gate = l + 2 <= LAYERS ? done[l + 2] : head;
        upload = later(upload, gate) + (l == 1 ? boundary / 8 : boundary);
        done[l] = later(upload, l == LAYERS ? 0 : done[l + 1]) + FORWARD_PS + BACKWARD_PS;
    }
    return done[1];
}

Test(grain, one_microbatch_takes_as_long_as_its_chain)
{
    static const uint64_t boundaries[] = {1600000, 8000000, 40000000, 80000000, 400000000};
    for (size_t i = 0; i < sizeof boundaries / sizeof boundaries[0]; i++) {
        setting s = {"roundpipe", "16|0,16", 1, 1, RP_RECOMPUTE_EARLY, 0, 0, 0, 0};
        s.boundary = boundaries[i];
        int64_t copy_ps = (int64_t)(boundaries[i] / 20) * 1000; /* at 20 GB/s */
        cr_expect(eq(i64, makespan_of(&s, RP_GRAIN_LAYER), chain_ps(copy_ps)), "%ld ps", copy_ps);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* GPipe on a GPU: M microbatches' inputs wait. Stage grain: an input each, then a stage's tape.
 * Layer grain: an input per layer, then a layer's tape without the input inside. The running
 * microbatch drops inputs as layers finish, and the head's tape first. */
static uint64_t gpipe_peak(const setting *s, const rp_sizes *sizes, rp_grain grain)
{
    uint64_t m = s->microbatches;
    uint64_t b = s->boundary;
    const uint64_t *tape = sizes->tape_bytes;
    uint64_t head = tape[LAYERS + 1];
    uint64_t states = (LAYERS + 2) * 2 * s->weight + m * sizes->input_bytes;
    if (grain == RP_GRAIN_STAGE) {
        uint64_t sum = 0;
        for (uint32_t l = 0; l <= LAYERS; l++) {
            sum += tape[l];
        }
        return states + m * head + sum + sizes->temporary_bytes[LAYERS + 1];
    }
    uint64_t peak = m * ((LAYERS - 1) * b + head) + sizes->temporary_bytes[LAYERS + 1];
    for (uint32_t l = LAYERS; l >= 1; l--) {
        uint64_t waiting = m * (LAYERS - 1) * b - (LAYERS - l) * b + (m - 1) * head;
        uint64_t layer = l == 1 ? tape[0] + tape[1] : tape[l] - b;
        peak = largest(peak, waiting + layer + sizes->temporary_bytes[l]);
    }
    return states + peak;
}

Test(grain, resident_peak_equals_the_formula)
{
    uint32_t smaller = 0;
    uint32_t larger = 0;
    for (uint32_t m = 1; m <= 32; m *= 2) {
        setting s = {"gpipe", "16", 1, m, RP_RECOMPUTE_WAIT, 8000, 10, 100000, 7000};
        uint64_t peaks[2];
        for (int grain = RP_GRAIN_STAGE; grain <= RP_GRAIN_LAYER; grain++) {
            rp_test_bench b;
            make(&b, &s, (rp_grain)grain);
            rp_test_bench_run(&b);
            peaks[grain] = measure(&b).peak_gpu_bytes[0];
            cr_expect(eq(u64, peaks[grain], gpipe_peak(&s, &b.lower.sizes, (rp_grain)grain)),
                      "%u microbatches, grain %d", m, grain);
            rp_test_bench_fini(&b);
        }
        smaller += peaks[RP_GRAIN_LAYER] < peaks[RP_GRAIN_STAGE] ? 1 : 0;
        larger += peaks[RP_GRAIN_LAYER] > peaks[RP_GRAIN_STAGE] ? 1 : 0;
    }
    cr_expect(gt(u32, smaller, 2)); /* few microbatches wait */
    cr_expect(gt(u32, larger, 0));  /* many: the layers' inputs outweigh the tape */
}

static uint32_t most_alive(const rp_timeline *t, uint32_t gpu, rp_buffer_kind kind)
{
    const rp_program *p = t->program;
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        int64_t now_ps = t->start_ps[p->buffers[i].alloc_op];
        uint32_t count = 0;
        for (uint32_t k = 0; k < p->buffer_count; k++) {
            const rp_buffer *buffer = &p->buffers[k];
            bool here = buffer->place == gpu && buffer->kind == kind;
            count += here && t->start_ps[buffer->alloc_op] <= now_ps &&
                             t->end_ps[buffer->free_op] > now_ps
                         ? 1
                         : 0;
        }
        most = count > most ? count : most;
    }
    return most;
}

/* Weights in host memory: with any link a GPU has a single layer's tape, two boundaries that came
 * up, a boundary going down, and the running layer's input and output. At the end of the forwards
 * the host has a boundary per microbatch and recomputed layer, except for the first, whose input is
 * token ids, and another for the head. */
Test(grain, offloaded_residency)
{
    static const double links[] = {1e9, 1e10, 1e11, 1e13, 1e15};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        const setting s = {"roundpipe", "5,5,6|0,4,6,6", 3,    5, RP_RECOMPUTE_EARLY, 8000000,
                           1000,        100000000,       70000};
        rp_test_bench b;
        make(&b, &s, RP_GRAIN_LAYER);
        b.machine.upload_Bps = b.machine.download_Bps = links[i];
        rp_test_bench_run(&b);
        for (uint32_t gpu = 0; gpu < s.gpus; gpu++) {
            cr_expect(le(u32, most_alive(b.timeline, gpu, RP_BUFFER_ACTIVATION), 5));
            cr_expect(eq(u32, most_alive(b.timeline, gpu, RP_BUFFER_TAPE), 1));
        }
        uint64_t kept = LAYERS * s.boundary * s.microbatches;
        uint64_t host = measure(&b).peak_host_bytes;
        cr_expect(le(u64, host, kept + s.gpus * 2 * s.boundary)); /* and gradients on their way */
        cr_expect(ge(u64, host, kept / 2));
        rp_test_bench_fini(&b);
    }
}

/* With few microbatches in flight and tapes of twenty boundaries (a decoder layer has 17 and more)
 * layer grain never needs more. Split backwards keep all tapes for the second part: they gain
 * nothing, and hold a layer's input twice. */
Test(grain, needs_no_more_memory)
{
    uint32_t checked = 0;
    uint32_t gains = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *type = rp_schedules[i];
        if (type->traits.placement == RP_PLACEMENT_SHARDED || type->splits_backward) {
            continue;
        }
        const setting s = {type->name, NULL, 4, 8, RP_RECOMPUTE_WAIT, 8000, 0, 160000, 96000};
        rpsim_memory of[2];
        for (int grain = RP_GRAIN_STAGE; grain <= RP_GRAIN_LAYER; grain++) {
            rp_test_bench b;
            make(&b, &s, (rp_grain)grain);
            rp_test_bench_run(&b);
            of[grain] = measure(&b);
            rp_test_bench_fini(&b);
        }
        for (uint32_t gpu = 0; gpu < s.gpus; gpu++) {
            uint64_t layer = of[RP_GRAIN_LAYER].peak_gpu_bytes[gpu];
            uint64_t stage = of[RP_GRAIN_STAGE].peak_gpu_bytes[gpu];
            cr_expect(le(u64, layer, stage), "%s, GPU %u", type->name, gpu);
            gains += layer < stage ? 1 : 0;
            checked++;
        }
    }
    cr_expect(ge(u32, checked, 4 * 8));
    cr_expect(gt(u32, gains, checked / 2));
}
