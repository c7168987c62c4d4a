/* The lowering: bytes, order, residency and form, against formulas written elsewhere. */
#include "common/lower/lower.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/schedule/build.h"
#include "common/schedule/schedule_type.h"
#include "sim/engine/hardware_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

#define MAX_LAYERS 40

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(lower, .init = begin, .fini = end, .timeout = 300);

/* A run's inputs; points into itself. */
typedef struct fixture {
    uint64_t weights[MAX_LAYERS + 2];
    uint64_t gradients[MAX_LAYERS + 2];
    uint64_t parameters[MAX_LAYERS + 2];
    uint32_t forward[16];
    uint32_t backward[16];
    uint32_t sequences[256];
    rp_partition partition;
    rp_lower_config lower;
    rp_schedule_config config;
} fixture;

static void spread(uint32_t layers, uint32_t stages, uint32_t *out)
{
    for (uint32_t s = 0; s < stages; s++) {
        out[s] = layers * (s + 1) / stages - layers * s / stages;
    }
}

/* RoundPipe with `forward` and `backward` stages; the first backward stage is the head alone. */
static void make(fixture *f, uint32_t gpus, uint32_t microbatches, uint32_t calls, uint32_t layers,
                 uint32_t forward, uint32_t backward)
{
    memset(f, 0, sizeof *f);
    for (uint32_t i = 0; i < layers + 2; i++) {
        f->weights[i] = 1000 + 37 * i;
        f->gradients[i] = 900 + 11 * i;
        f->parameters[i] = 500 + i;
    }
    for (uint32_t m = 0; m < calls * microbatches; m++) {
        f->sequences[m] = 1 + m % 3;
    }
    bool fused = forward == 0;
    spread(layers, forward, f->forward);
    f->backward[0] = fused ? layers : 0;
    if (!fused && backward > 1) {
        spread(layers, backward - 1, f->backward + 1);
    } else if (!fused) { /* a forward precedes the backward: nothing is fused */
        f->backward[0] = layers;
    }
    f->partition = (rp_partition){forward, f->forward, fused ? 1 : backward, f->backward};
    f->lower = (rp_lower_config){.sizes = {.layers = layers,
                                           .weight_bytes = f->weights,
                                           .gradient_bytes = f->gradients,
                                           .parameters = f->parameters,
                                           .boundary_bytes = 64,
                                           .input_bytes = 8},
                                 .call_microbatches = microbatches,
                                 .piece_bytes = 600};
    f->config = (rp_schedule_config){.gpus = gpus,
                                     .microbatches = calls * microbatches,
                                     .iterations = 3,
                                     .round = microbatches,
                                     .round_start = RP_ROUND_START_ROTATE,
                                     .asynchronous = true,
                                     .recompute = RP_RECOMPUTE_EARLY,
                                     .layers = layers,
                                     .partition = &f->partition};
}

static rp_program *lower_fixture(const fixture *f)
{
    rp_program *schedule = NULL;
    rp_program *program = NULL;
    const rp_schedule_type *type = rp_schedule_find("roundpipe");
    cr_assert(eq(int, rp_schedule_build(type, &f->config, &schedule, NULL), RP_OK));
    cr_assert(eq(int, rp_lower(schedule, &f->lower, f->sequences, &program, NULL), RP_OK));
    rp_program_destroy(schedule);
    return program;
}

static void make_costs(const rp_program *program, rpsim_compute_costs *costs)
{
    size_t entries = (size_t)program->stage_count * RP_OP_KIND_COUNT;
    *costs = (rpsim_compute_costs){.stage_count = program->stage_count};
    cr_assert(eq(int, rp_arena_alloc(arena, entries, sizeof(int64_t), &costs->ps), RP_OK));
    cr_assert(eq(
        int, rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs->class_of),
        RP_OK));
    for (size_t i = 0; i < entries; i++) {
        costs->ps[i] = (int64_t)(1000 + 77 * (i % 13));
    }
}

static uint64_t moved(const rp_program *program, const rp_op_kind *kinds, size_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        for (size_t k = 0; k < count; k++) {
            bytes += program->ops[i].kind == kinds[k] ? program->op_bytes[i] : 0;
        }
    }
    return bytes;
}

static uint64_t sum(const uint64_t *values, uint32_t begin_at, uint32_t end_at)
{
    uint64_t total = 0;
    for (uint32_t i = begin_at; i < end_at; i++) {
        total += values[i];
    }
    return total;
}

static void drop_wait(rp_program *p, uint32_t op, uint32_t wait)
{
    memmove(&p->waits[wait], &p->waits[wait + 1], (p->wait_count - wait - 1) * sizeof(rp_wait));
    p->wait_count--;
    for (uint32_t i = op + 1; i <= p->op_count; i++) {
        p->ops[i].wait_begin--;
    }
}

/* executor.md section 3, property 24, per iteration: up = 2 x weights of ordinary layers + weights
 * of fused layers, per call, + accumulated gradients + M x (inputs + saved inputs + gradients);
 * down = gradients per call + M x (outputs + input gradients + extra saved inputs). */
Test(lower, transferred_bytes_equal_the_formula)
{
    for (uint32_t calls = 1; calls <= 3; calls++) {
        fixture f;
        const uint32_t layers = 12;
        const uint32_t forward = 3;  /* 4 layers each: begin at 0, 4, 8 */
        const uint32_t backward = 6; /* the head, then 12 layers in 5: some begin inside a stage */
        make(&f, 4, 5, calls, layers, forward, backward);
        rp_program *p = lower_fixture(&f);
        uint64_t sequences = 0;
        for (uint32_t m = 0; m < p->microbatch_count; m++) {
            sequences += f.sequences[m];
        }
        /* The head has its own stage here; all other layers go up twice. */
        uint64_t weights = 2 * sum(f.weights, 0, layers + 1) + f.weights[layers + 1];
        uint64_t gradients = sum(f.gradients, 0, layers + 2);
        uint64_t up_params = calls * weights + (calls - 1) * gradients;
        uint64_t down_params = calls * gradients;
        const rp_op_kind params[] = {RP_OP_UPLOAD_PARAMS, RP_OP_UPLOAD_PARAM_GRAD};
        const rp_op_kind grads[] = {RP_OP_DOWNLOAD_PARAM_GRAD};
        cr_expect(eq(u64, moved(p, params, 2), 3 * up_params));
        cr_expect(eq(u64, moved(p, grads, 1), 3 * down_params));
        /* Inputs: ids for the first forward stage and the backward stage at layer 0, labels for the
         * head's; a boundary for each other stage; a gradient for each but the head's. */
        uint64_t up = sequences * (3 * 8 + (forward - 1 + backward - 1) * UINT64_C(64) +
                                   (backward - 1) * UINT64_C(64));
        const rp_op_kind ups[] = {RP_OP_UPLOAD_ACT, RP_OP_UPLOAD_GRAD};
        cr_expect(eq(u64, moved(p, ups, 2), 3 * up));
        /* Backward stages begin at 0, 2, 4, 7, 9 (12 layers in 5): 2, 7 and 9 lie inside. */
        uint64_t down = sequences * (forward + (backward - 1) + 3) * UINT64_C(64);
        const rp_op_kind downs[] = {RP_OP_DOWNLOAD_ACT, RP_OP_DOWNLOAD_GRAD};
        cr_expect(eq(u64, moved(p, downs, 2), 3 * down));
        rp_program_destroy(p);
    }
}

/* The embedding's backward stage follows a stage that reads the embedding's output, left in host
 * memory by the first forward stage. */
Test(lower, an_embedding_that_goes_back_alone)
{
    const uint32_t layers = 12;
    const uint32_t forward = 3;
    const uint32_t backward = 7; /* the head, 12 layers in 5, the embedding */
    fixture f;
    make(&f, 3, 5, 1, layers, forward, backward - 1); /* no stage reads its own GPU's output */
    f.backward[backward - 1] = 0;
    f.partition.backward_count = backward;
    f.config.iterations = 1;
    rp_program *p = lower_fixture(&f);
    uint64_t sequences = 0;
    for (uint32_t m = 0; m < p->microbatch_count; m++) {
        sequences += f.sequences[m];
    }
    /* Token ids for the first and last stage, labels; a boundary for each other forward stage and
     * the six backward stages above; a gradient for all but the first of these. */
    const rp_op_kind ups[] = {RP_OP_UPLOAD_ACT, RP_OP_UPLOAD_GRAD};
    cr_expect(eq(u64, moved(p, ups, 2), sequences * (3 * 8 + (2 + 6 + 6) * UINT64_C(64))));
    /* Outputs of forward stages, of the embedding and layers 3, 5 and 10, gradients. */
    const rp_op_kind downs[] = {RP_OP_DOWNLOAD_ACT, RP_OP_DOWNLOAD_GRAD};
    cr_expect(eq(u64, moved(p, downs, 2), sequences * (3 + 4 + 6) * UINT64_C(64)));
    uint32_t ops = p->op_count;
    uint32_t refused = 0;
    rp_program_destroy(p);
    for (uint32_t i = 0; i < ops; i++) {
        p = lower_fixture(&f);
        uint32_t w = p->ops[i].wait_begin;
        bool act = p->ops[i].kind == RP_OP_UPLOAD_ACT || p->ops[i].kind == RP_OP_DOWNLOAD_ACT;
        while (w < p->ops[i + 1].wait_begin && rp_wait_is_control(p->waits[w])) {
            w++;
        }
        if (act && w < p->ops[i + 1].wait_begin) {
            char message[512];
            drop_wait(p, i, w);
            rp_log_capture_begin(message, sizeof message);
            cr_expect(eq(int, rp_program_check(p), RP_INVALID_PROGRAM), "op %u", i);
            rp_log_capture_end();
            refused++;
        }
        rp_program_destroy(p);
    }
    /* Per microbatch: all downloads; all uploads except token ids. */
    cr_expect(eq(u32, refused, 5 * (3 + 4 + 2 + 6)));
}

/* Host work of a step, sim/model.md section 2, term 4: refresh 8, collect 10, Adam 32 B per
 * parameter. */
Test(lower, host_bytes)
{
    fixture f;
    make(&f, 2, 3, 2, 6, 2, 4);
    rp_program *p = lower_fixture(&f);
    uint64_t parameters = sum(f.parameters, 0, 8);
    const rp_op_kind kinds[] = {RP_OP_REFRESH, RP_OP_COLLECT, RP_OP_OPTIMIZER};
    const uint64_t bytes[] = {8, 10, 32};
    for (size_t i = 0; i < 3; i++) {
        cr_expect(eq(u64, moved(p, &kinds[i], 1), 3 * bytes[i] * parameters));
    }
    rp_program_destroy(p);
}

static bool waits_for(const rp_program *p, uint32_t op, rp_op_kind kind, uint32_t iteration,
                      uint32_t number)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        const rp_op *target = &p->ops[rp_wait_op(p->waits[w])];
        bool host = rp_op_kind_class(kind) == RP_CLASS_HOST;
        uint32_t of_target = host ? target->microbatch : target->stage;
        if (target->kind == kind && target->iteration == iteration && of_target == number) {
            return true;
        }
    }
    return false;
}

/* First uploads of jobs after step 1, and the number that wait for the last layer. */
static void count_fences(const rp_program *p, uint32_t *jobs_out, uint32_t *whole_out)
{
    *jobs_out = *whole_out = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            const rp_op *op = &p->ops[i];
            bool first = queue->kind == RP_QUEUE_PARAM_UPLOAD && op->iteration > 0 &&
                         (i == queue->op_begin || op[-1].stage != op->stage);
            bool whole =
                first && waits_for(p, i, RP_OP_REFRESH, op->iteration - 1u, p->layer_count + 1);
            *jobs_out += first ? 1 : 0;
            *whole_out += whole ? 1 : 0;
        }
    }
}

/* A process that steps synchronously: every job waits for the last layer's refresh, and the first
 * collection for the last backward stage's weights; not so in asynchronous steps or systems with
 * finer waits. */
Test(lower, one_process_steps_by_itself)
{
    for (uint32_t mode = 0; mode < 4; mode++) {
        fixture f;
        bool one = (mode & 1u) != 0;
        bool synchronous = (mode & 2u) != 0;
        make(&f, 3, 4, 2, 9, 3, 4);
        f.config.asynchronous = !synchronous;
        rp_program *schedule = NULL;
        rp_program *p = NULL;
        const rp_schedule_type *type = rp_schedule_find("roundpipe");
        cr_assert(eq(int, rp_schedule_build(type, &f.config, &schedule, NULL), RP_OK));
        schedule->traits.one_dispatcher = one;
        cr_assert(eq(int, rp_lower(schedule, &f.lower, f.sequences, &p, NULL), RP_OK));
        uint32_t jobs = 0;
        uint32_t whole = 0;
        count_fences(p, &jobs, &whole);
        uint32_t with_head = 2 * 2; /* the head's stage, two calls in each of two steps */
        cr_expect(eq(u32, jobs, 2 * 2 * 7));
        cr_expect(eq(u32, whole, one && synchronous ? jobs : with_head), "%u", mode);
        uint32_t after_jobs = 0;
        for (uint32_t i = 0; i < p->op_count; i++) {
            bool last_stage = p->ops[i].kind == RP_OP_COLLECT &&
                              waits_for(p, i, RP_OP_UPLOAD_PARAMS, p->ops[i].iteration,
                                        p->backward_chain[p->backward_count - 1]);
            if (last_stage) {
                cr_expect(eq(u32, p->ops[i].microbatch, p->layer_count + 1));
            }
            after_jobs += last_stage ? 1 : 0;
        }
        cr_expect(eq(u32, after_jobs, one && synchronous ? 3 : 0), "%u", mode);
        rp_program_destroy(schedule);
        rp_program_destroy(p);
    }
}

/* executor.md section 3, property 18: GPUs x microbatches x forward x backward stages, sync and
 * async, with a call and two. Also checks sizes of pieces and validity. */
Test(lower, no_deadlock)
{
    uint32_t runs = 0;
    for (uint32_t n = 1; n <= 4; n++) {
        for (uint32_t m = 1; m <= 6; m++) {
            for (uint32_t a = 0; a <= 5; a++) {
                for (uint32_t b = a == 0 ? 1 : 2; b <= 6; b++) {
                    fixture f;
                    make(&f, n, m, 1 + (n + m + a + b) % 2, 7, a, b);
                    f.config.asynchronous = (a + b + m) % 2 == 0;
                    rp_program *p = lower_fixture(&f);
                    cr_assert(eq(int, rp_program_check(p), RP_OK));
                    rpsim_compute_costs costs;
                    make_costs(p, &costs);
                    rp_machine machine = {.upload_Bps = 1e9,
                                          .download_Bps = 1e9,
                                          .host_Bps = 1e9,
                                          .copy_latency_ps = 10};
                    rp_timeline *timeline = NULL;
                    cr_assert(
                        eq(int, rpsim_hardware_run(p, &costs, &machine, &timeline, NULL), RP_OK),
                        "%u GPUs, %u microbatches, %u|%u stages", n, m, a, b);
                    for (uint32_t i = 0; i < p->op_count; i++) {
                        bool piece = p->ops[i].kind == RP_OP_UPLOAD_PARAMS;
                        cr_assert(le(u64, piece ? p->op_bytes[i] : 0, f.lower.piece_bytes));
                    }
                    rp_timeline_destroy(timeline);
                    rp_program_destroy(p);
                    runs++;
                }
            }
        }
    }
    cr_expect(gt(u32, runs, 700));
}

static bool waits_for_loss(const rp_program *p, uint32_t op, uint32_t microbatch)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        const rp_op *target = &p->ops[rp_wait_op(p->waits[w])];
        bool head = (p->stages[target->stage].roles & RP_STAGE_HEAD) != 0;
        if (head && target->kind == RP_OP_FORWARD && target->microbatch == microbatch) {
            return true;
        }
    }
    return false;
}

/* A call begins after the last loss of the call before; its later rounds do not wait. */
Test(lower, rounds_of_a_call_follow_without_the_loss)
{
    for (uint32_t rounds = 0; rounds <= 3; rounds++) {
        fixture f;
        uint32_t seen = 0;
        make(&f, 3, 2, 6, 6, 2, 3);
        f.config.iterations = 1;
        f.lower.call_rounds = rounds;
        rp_program *p = lower_fixture(&f);
        cr_expect(eq(int, rp_program_check(p), RP_OK));
        for (uint32_t i = 0; i < p->op_count; i++) {
            const rp_op *op = &p->ops[i];
            if (op->kind == RP_OP_UPLOAD_ACT && op->stage == p->forward_chain[0] &&
                op->microbatch % 2 == 0 && op->microbatch > 0) {
                bool first = rounds == 0 || op->microbatch / 2 % rounds == 0;
                cr_expect(eq(int, waits_for_loss(p, i, op->microbatch - 1), first),
                          "%u rounds, microbatch %u", rounds, op->microbatch);
                seen++;
            }
        }
        cr_expect(eq(u32, seen, 5));
        rp_program_destroy(p);
    }
}

Test(lower, text_round_trip)
{
    fixture f;
    make(&f, 3, 4, 2, 9, 2, 4);
    rp_program *p = lower_fixture(&f);
    static char text[1 << 20];
    FILE *stream = fmemopen(text, sizeof text, "w");
    rp_program_write(p, stream);
    fclose(stream);
    rp_program *again = NULL;
    cr_assert(eq(int, rp_program_read("lowered.txt", text, strlen(text), &again), RP_OK));
    cr_expect(eq(u64, rp_program_hash(again), rp_program_hash(p)));
    rp_program_destroy(again);
    rp_program_destroy(p);
}

/* The validator follows tensors through transfers: it notices any missing link. */
Test(lower, a_missing_transfer_wait_is_refused)
{
    static const rp_op_kind kinds[] = {RP_OP_UPLOAD_ACT, RP_OP_UPLOAD_GRAD, RP_OP_DOWNLOAD_ACT,
                                       RP_OP_DOWNLOAD_GRAD};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        fixture f;
        make(&f, 3, 4, 1, 9, 2, 4);
        rp_program *p = lower_fixture(&f);
        uint32_t refused = 0;
        for (uint32_t i = 0; i < p->op_count && refused == 0; i++) {
            for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
                if (p->ops[i].kind == kinds[k] && !rp_wait_is_control(p->waits[w])) {
                    char message[512];
                    drop_wait(p, i, w);
                    rp_log_capture_begin(message, sizeof message);
                    cr_expect(eq(int, rp_program_check(p), RP_INVALID_PROGRAM));
                    rp_log_capture_end();
                    cr_expect(ne(ptr, strstr(message, "must come after"), NULL), "%s", message);
                    refused++;
                    break;
                }
            }
        }
        cr_expect(eq(u32, refused, 1));
        rp_program_destroy(p);
    }
}

/* Messages about wrong combinations of schedule and placement name the valid values. */
Test(lower, placements_that_do_not_fit)
{
    fixture f;
    char message[512];
    make(&f, 2, 2, 1, 4, 2, 3);
    rp_program *schedule = NULL;
    rp_program *program = NULL;
    cr_assert(eq(int, rp_schedule_build(rp_schedule_find("roundpipe"), &f.config, &schedule, NULL),
                 RP_OK));
    schedule->traits.placement = RP_PLACEMENT_RESIDENT;
    rp_log_capture_begin(message, sizeof message);
    cr_expect(eq(int, rp_lower(schedule, &f.lower, f.sequences, &program, NULL), RP_USAGE));
    rp_log_capture_end();
    cr_expect(ne(ptr, strstr(message, "valid is offload"), NULL), "%s", message);
    rp_program_destroy(schedule);
}
