/* The engine of hardware fidelity: closed forms, conservation, and invariants of any timeline. */
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/lower/lower.h"
#include "common/schedule/build.h"
#include "sim/engine/hardware_engine.h"
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"
#include "tests/support/hand_run.h"
#include "tests/support/random_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(hardware, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

static void stage_costs(const rp_program *program, const rp_costs *table,
                        rpsim_compute_costs *costs)
{
    rp_stage_times times;
    cr_assert(eq(int, rp_stage_times_compute(program, table, rp_test_arena, &times, NULL), RP_OK));
    *costs = (rpsim_compute_costs){.ps = times.ps, .stage_count = program->stage_count};
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_arena, program->microbatch_count, sizeof(uint32_t),
                                &costs->class_of),
                 RP_OK));
}

static rp_lower_config make_lower(const rp_random_case *c, uint64_t boundary, uint64_t weight)
{
    rp_lower_config lower = {.piece_bytes = 1 << 20, .call_microbatches = c->config.microbatches};
    uint32_t count = c->costs.layers + 2;
    lower.sizes = (rp_sizes){
        .layers = c->costs.layers, .boundary_bytes = boundary, .input_bytes = boundary / 8};
    uint64_t **const arrays[] = {&lower.sizes.weight_bytes, &lower.sizes.gradient_bytes,
                                 &lower.sizes.parameters};
    for (size_t a = 0; a < 3; a++) {
        cr_assert(
            eq(int, rp_arena_alloc(rp_test_arena, count, sizeof(uint64_t), arrays[a]), RP_OK));
        for (uint32_t i = 0; i < count; i++) {
            (*arrays[a])[i] = weight;
        }
    }
    return lower;
}

static rp_program *lower_case(const rp_random_case *c, const rp_lower_config *lower)
{
    rp_program *schedule = NULL;
    rp_program *program = NULL;
    uint32_t *sequences = NULL;
    cr_assert(eq(int, rp_schedule_build(c->schedule, &c->config, &schedule, NULL), RP_OK));
    schedule->traits = (rp_traits){
        .placement = c->schedule->separate_backward ? RP_PLACEMENT_OFFLOAD : RP_PLACEMENT_RESIDENT};
    cr_assert(
        eq(int, rp_arena_alloc(rp_test_arena, c->config.microbatches, sizeof(uint32_t), &sequences),
           RP_OK));
    for (uint32_t m = 0; m < c->config.microbatches; m++) {
        sequences[m] = 1;
    }
    cr_assert(eq(int, rp_lower(schedule, lower, sequences, &program, NULL), RP_OK));
    rp_program_destroy(schedule);
    cr_assert(eq(int, rp_program_check(program), RP_OK));
    return program;
}

/* A random case that can be lowered, of a single iteration or several, without recompute that
 * waits. */
static void draw(rp_random *random, rp_random_case *c)
{
    rp_random_case_draw(random, 600, c);
    if (c->config.recompute == RP_RECOMPUTE_WAIT) {
        c->config.recompute = RP_RECOMPUTE_EARLY;
    }
    c->config.iterations = rp_random_between(random, 1, 3);
    if (c->schedule->separate_backward) {
        c->config.round = RP_ROUND_ALL;
    }
}

static int64_t makespan(const rp_timeline *timeline)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < timeline->program->op_count; i++) {
        bool compute =
            rp_op_kind_class((rp_op_kind)timeline->program->ops[i].kind) == RP_CLASS_COMPUTE;
        last = compute && timeline->end_ps[i] > last ? timeline->end_ps[i] : last;
    }
    return last;
}

/* A plain run has half of the random cases. */
static uint32_t share(void)
{
    return getenv("RP_LONG") != NULL ? 1 : 2;
}

/* If tensors take no time, a pipeline with resident weights and without recompute equals the stage
 * engine's with a hop of 0. */
Test(hardware, without_transfers_it_is_the_stage_engine)
{
    rp_random random = {4090};
    rp_random_case *c = malloc(sizeof *c);
    uint32_t compared = 0;
    for (uint32_t i = 0; i < 300 / share(); i++) {
        draw(&random, c);
        if (c->schedule->separate_backward) {
            continue;
        }
        c->config.recompute = RP_RECOMPUTE_NONE;
        c->config.iterations = 1;
        c->costs.hop_ps = 0;
        rp_lower_config lower = make_lower(c, 0, 0);
        rp_program *program = lower_case(c, &lower);
        rpsim_compute_costs costs;
        stage_costs(program, &c->costs, &costs);
        rp_machine machine = {.upload_Bps = 1e9, .download_Bps = 1e9, .host_Bps = 1e9};
        rp_timeline *timeline = NULL;
        cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline, NULL), RP_OK));
        rpsim_result stage;
        cr_assert(eq(int, rpsim_case_run(c->schedule, &c->config, &stage, NULL), RP_OK));
        cr_assert(eq(i64, makespan(timeline), stage.metrics.makespan_ps), "case %u", i);
        rpsim_result_fini(&stage);
        rp_timeline_destroy(timeline);
        rp_program_destroy(program);
        compared++;
    }
    free(c);
    cr_expect(gt(u32, compared, 100 / share()));
}

typedef struct busy_until {
    int64_t upload;
    int64_t download;
} busy_until;

/* Nothing starts before ops that it waits for, queues keep their order, and no transfer beats its
 * link. */
static void check_timeline(const rp_timeline *t, const rp_machine *machine, uint32_t number)
{
    const rp_program *p = t->program;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        double rate = p->queues[q].kind == RP_QUEUE_DOWNLOAD    ? machine->download_Bps
                      : p->queues[q].kind == RP_QUEUE_OPTIMIZER ? machine->host_Bps
                                                                : machine->upload_Bps;
        bool transfers = p->queues[q].kind != RP_QUEUE_COMPUTE; /* updates use no link */
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            cr_assert(i == p->queues[q].op_begin || t->start_ps[i] >= t->end_ps[i - 1],
                      "case %u: op %u", number, i);
            for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
                cr_assert(ge(i64, t->start_ps[i], t->end_ps[rp_wait_op(p->waits[w])]),
                          "case %u: op %u", number, i);
            }
            double least_ps = transfers ? (double)p->op_bytes[i] / rate * 1e12 : 0;
            cr_assert(ge(dbl, (double)(t->end_ps[i] - t->start_ps[i]) + 1, least_ps),
                      "case %u: op %u", number, i);
        }
    }
}

static int compare_starts(const void *a, const void *b)
{
    const int64_t *left = a;
    const int64_t *right = b;
    return left[0] != right[0] ? (left[0] > right[0]) - (left[0] < right[0])
                               : (left[1] > right[1]) - (left[1] < right[1]);
}

/* Transfers of a GPU's copy engine for a direction never overlap. */
static void check_copies(const rp_timeline *t, uint32_t number)
{
    const rp_program *p = t->program;
    int64_t(*spans)[2] = malloc(p->op_count * sizeof *spans);
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        for (int download = 0; download < 2; download++) {
            size_t count = 0;
            for (uint32_t q = 0; q < p->queue_count; q++) {
                bool down = p->queues[q].kind == RP_QUEUE_DOWNLOAD;
                bool up = p->queues[q].kind == RP_QUEUE_PARAM_UPLOAD ||
                          p->queues[q].kind == RP_QUEUE_ACT_UPLOAD;
                if (p->queues[q].gpu != gpu || !(download ? down : up)) {
                    continue;
                }
                for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
                    spans[count][0] = t->start_ps[i];
                    spans[count++][1] = t->end_ps[i];
                }
            }
            qsort(spans, count, sizeof *spans, compare_starts);
            for (size_t i = 1; i < count; i++) {
                cr_assert(ge(i64, spans[i][0], spans[i - 1][1]), "case %u: GPU %u", number, gpu);
            }
        }
    }
    free(spans);
}

Test(hardware, any_timeline_keeps_the_rules)
{
    rp_random random = {235};
    rp_random_case *c = malloc(sizeof *c);
    for (uint32_t i = 0; i < 150 / share(); i++) {
        draw(&random, c);
        rp_lower_config lower =
            make_lower(c, rp_random_between(&random, 0, 400000000), 30000000u * (i % 7));
        lower.call_microbatches = c->config.microbatches;
        rp_program *program = lower_case(c, &lower);
        rpsim_compute_costs costs;
        stage_costs(program, &c->costs, &costs);
        rp_machine machine = {.upload_Bps = 20.97e9,
                              .download_Bps = 18e9,
                              .host_Bps = 95e9,
                              .dram_Bps = i % 3 == 0 ? 40e9 : 0,
                              .copy_latency_ps = (int64_t)(i % 2) * 5000};
        rp_timeline *first = NULL;
        rp_timeline *second = NULL;
        cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &first, NULL), RP_OK));
        cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, &second, NULL), RP_OK));
        cr_assert(eq(u64, rp_timeline_hash(first), rp_timeline_hash(second)));
        check_timeline(first, &machine, i);
        check_copies(first, i);
        rp_timeline_destroy(first);
        rp_timeline_destroy(second);
        rp_program_destroy(program);
    }
    free(c);
}

/* A switch per GPU acts as a link of its uplink's rate. Uplinks that carry all their links change
 * nothing; a narrow uplink does. */
Test(hardware, switches_at_their_extremes)
{
    rp_random random = {3090};
    rp_random_case *c = malloc(sizeof *c);
    uint32_t slower = 0;
    for (uint32_t i = 0; i < 60; i++) {
        draw(&random, c);
        rp_lower_config lower =
            make_lower(c, rp_random_between(&random, 0, 400000000), 30000000u * (i % 7));
        rp_program *program = lower_case(c, &lower);
        rpsim_compute_costs costs;
        stage_costs(program, &c->costs, &costs);
        uint32_t gpus = program->gpu_count;
        const rp_machine fast = {.upload_Bps = 20e9, .download_Bps = 20e9, .host_Bps = 95e9};
        rp_machine machines[5] = {fast, fast, fast, fast, fast};
        machines[1].gpus_per_switch = gpus;
        machines[1].switch_Bps = 21e9 * gpus;
        machines[2].gpus_per_switch = 1;
        machines[2].switch_Bps = 15e9;
        machines[3].upload_Bps = machines[3].download_Bps = 15e9;
        machines[4].gpus_per_switch = gpus;
        machines[4].switch_Bps = 10e9;
        uint64_t hashes[5];
        for (uint32_t m = 0; m < 5; m++) {
            rp_timeline *t = NULL;
            cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machines[m], &t, NULL), RP_OK));
            check_timeline(t, &machines[m], i);
            check_copies(t, i);
            hashes[m] = rp_timeline_hash(t);
            rp_timeline_destroy(t);
        }
        cr_assert(eq(u64, hashes[0], hashes[1]), "case %u: wide uplinks change the timeline", i);
        cr_assert(eq(u64, hashes[2], hashes[3]), "case %u: an uplink per GPU is not its link", i);
        slower += hashes[4] != hashes[0];
        rp_program_destroy(program);
    }
    free(c);
    cr_expect(gt(u32, slower, 40));
}

/* qwen3-1.7b with the published configuration on a single GPU. With links a thousand times faster,
 * a step takes the sum of its compute times, to a promille. A thousand times slower, it takes at
 * least the bytes through the busier direction and little more. */
static double period_s(double link_scale, rp_platform *platform, double *bytes_up,
                       double *compute_s)
{
    rp_model model;
    rp_costs costs;
    cr_assert(eq(int, rp_model_load("qwen3-1.7b", rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rp_costs_load("qwen3-1.7b@rtx4090", rp_test_arena, &costs), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx4090x8", rp_test_arena, platform), RP_OK));
    platform->link_effective_gb_per_s *= link_scale;
    rp_partition partition;
    cr_assert(eq(int, rp_partition_parse("test", "14,14|0,14,14", rp_test_arena, &partition, NULL),
                 RP_OK));
    rp_resolved run = rp_test_hand_run("roundpipe", &model, &costs, &partition, 1, 4);
    run.global_batch = 16;
    run.decided.iterations = 20;
    run.decided.asynchronous = true;
    run.recompute = RP_RECOMPUTE_EARLY;
    rpsim_result result;
    cr_assert(eq(int, rpsim_hardware_case_run(&run, platform, 0, &result, NULL), RP_OK));
    const rp_program *p = result.program;
    *bytes_up = *compute_s = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        rp_queue_kind kind = (rp_queue_kind)p->queues[rp_program_queue_of(p, i)].kind;
        bool up = kind == RP_QUEUE_PARAM_UPLOAD || kind == RP_QUEUE_ACT_UPLOAD;
        *bytes_up += up ? (double)p->op_bytes[i] / 20 : 0;
        double took_s = (double)(result.timeline->end_ps[i] - result.timeline->start_ps[i]) * 1e-12;
        *compute_s += kind == RP_QUEUE_COMPUTE ? took_s / 20 : 0;
    }
    double period = result.period_ps * 1e-12;
    rpsim_result_fini(&result);
    return period;
}

Test(hardware, compute_bound_and_link_bound)
{
    rp_platform platform;
    double bytes_up = 0;
    double compute_s = 0;
    double fast = period_s(1000, &platform, &bytes_up, &compute_s);
    cr_expect(ge(dbl, fast, compute_s * 0.999999));
    cr_expect(le(dbl, fast, compute_s * 1.001), "%g s for %g s of compute", fast, compute_s);
    double slow = period_s(0.001, &platform, &bytes_up, &compute_s);
    double link_s = bytes_up / (platform.link_effective_gb_per_s * 1e9);
    cr_expect(gt(dbl, slow, link_s * 0.98)); /* no prefetch at the end of the run */
    cr_expect(le(dbl, slow, link_s * 2.1), "%g s for %g s of uploads", slow, link_s);
}

/* Transfers take no time. A microbatch's token ids go up, and it goes through two GPUs and back
 * over the host, with seven changes of queues; it turns in the second GPU's queue, and the update
 * comes last in the first. On a single GPU microbatches follow each other in its queue, then the
 * update. */
Test(hardware, starting_takes_its_time)
{
    const int64_t gap_ps = 3000000, wake_ps = 50000000;
    rp_random random = {12};
    rp_random_case *c = malloc(sizeof *c);
    draw(&random, c);
    c->schedule = rp_schedule_find("gpipe");
    c->config.iterations = 1;
    c->config.recompute = RP_RECOMPUTE_NONE;
    for (uint32_t gpus = 1; gpus <= 2; gpus++) {
        rp_partition even;
        uint32_t microbatches = gpus == 1 ? 5 : 1;
        c->config.gpus = gpus;
        c->config.microbatches = microbatches;
        cr_assert(eq(int,
                     rp_partition_even(c->schedule, &c->costs, gpus, 0, rp_test_arena, &even, NULL),
                     RP_OK));
        c->config.partition = &even;
        rp_lower_config lower = make_lower(c, 0, 0);
        rp_program *program = lower_case(c, &lower);
        rpsim_compute_costs costs;
        int64_t ps[4];
        stage_costs(program, &c->costs, &costs);
        for (int i = 0; i < 4; i++) {
            rp_machine machine = {.upload_Bps = 1e9,
                                  .download_Bps = 1e9,
                                  .host_Bps = 1e9,
                                  .op_gap_ps = i % 2 * gap_ps,
                                  .op_wake_ps = i / 2 * wake_ps};
            rp_timeline *timeline = NULL;
            cr_assert(
                eq(int, rpsim_hardware_run(program, &costs, &machine, &timeline, NULL), RP_OK));
            ps[i] = makespan(timeline);
            rp_timeline_destroy(timeline);
        }
        int64_t gaps_ps = gap_ps * (gpus == 1 ? 2 * microbatches : 2);
        int64_t wakes_ps = wake_ps * (gpus == 1 ? 1 : 7);
        cr_expect(eq(i64, ps[1] - ps[0], gaps_ps), "%u GPUs", gpus);
        cr_expect(eq(i64, ps[2] - ps[0], wakes_ps), "%u GPUs", gpus);
        cr_expect(eq(i64, ps[3] - ps[0], gaps_ps + wakes_ps), "%u GPUs", gpus);
        rp_program_destroy(program);
    }
    free(c);
}
