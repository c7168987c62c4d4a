/* --graphs of the GPU driver (exec/gpu/graphs.h) on the machine of threads: the bits are those of
 * the host backend, most operators run in graphs, and an error of graphs does not fail the run. */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"
#include "exec/run/runs.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/fake/cuda.h"
#include "tests/support/gpu_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_LEN 7u

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_gpu_end(arena);
}

TestSuite(exec_gpu_graphs, .init = begin, .fini = end, .timeout = 240);

/* ---- whole runs ------------------------------------------------------------------------------ */

/* Counts of launches to streams. */
typedef struct launches {
    uint32_t captures, graphs, in_graphs, operators;
} launches;

static launches launched(void)
{
    return (launches){.captures = emulator_counted(EMULATED_CAPTURES),
                      .graphs = emulator_counted(EMULATED_GRAPHS),
                      .in_graphs = emulator_counted(EMULATED_IN_GRAPHS),
                      .operators = emulator_counted(EMULATED_OPERATORS)};
}

static launches since(launches before)
{
    launches now = launched();
    return (launches){.captures = now.captures - before.captures,
                      .graphs = now.graphs - before.graphs,
                      .in_graphs = now.in_graphs - before.in_graphs,
                      .operators = now.operators - before.operators};
}

/* Runs `work` on the host backend and with graphs, and compares all bits. */
static launches compare(const rp_model *config, const rp_resolved *work,
                        const rpexec_driver_type *type, rp_test_twist twist)
{
    rp_test_run plain;
    rp_test_run run;
    const rp_test_twist of_host = {.dtype = twist.dtype};
    launches before = launched();
    twist.driver_type = type;
    twist.devices.graphs = true;
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, work, &of_host, &plain), RP_OK));
    cr_assert(eq(int, rp_test_execute(arena, config, SEQ_LEN, work, &twist, &run), RP_OK),
              "%s on %u GPUs", work->schedule->name, work->gpus);
    cr_expect(rp_test_same(&run, &plain, work->decided.iterations), "%s, %u GPUs, %s: other bits",
              work->schedule->name, work->gpus, work->decided.asynchronous ? "async" : "sync");
    return since(before);
}

/* At most two ops of a compute queue are under way, however late their stream is, each with an
 * event for its start and an event for its end. With graphs an op is little work for a stream, so
 * that the streams' short queues have room for many ops. */
Test(exec_gpu_graphs, compute_threads_keep_close_to_their_gpus)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zbv", "gpipe"};
    rp_model config = rp_test_small_decoder(4, false, false);
    for (uint32_t i = 0; i < 4; i++) {
        rp_resolved work = rp_test_work(names[i], 2, 4, 6);
        const emulated_machine machine = {.devices = 2,
                                          .green = i == 0,
                                          .peers = true,
                                          .seed = i,
                                          .delay_us = 300,
                                          .often = true};
        rp_test_twist twist = {.devices = {.is_virtual = i == 0}};
        (void)compare(&config, &work, rp_fake_cuda_driver(&machine), twist);
        cr_expect(le(u32, emulator_counted(EMULATED_RECORDS), 2 * RPEXEC_GPU_AHEAD), "%s",
                  names[i]);
    }
}

/* Every op is a named range for profilers, on GPUs and on the host. */
Test(exec_gpu_graphs, every_op_is_a_range)
{
    rp_model config = rp_test_small_decoder(4, false, false);
    rp_test_run run;
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
    const emulated_machine machine = {.devices = 2};
    const rp_test_twist twist = {.driver_type = rp_fake_cuda_driver(&machine), .observe = true};
    cr_assert(eq(int, rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &run), RP_OK));
    cr_expect(eq(u32, emulator_counted(EMULATED_RANGES), run.program->op_count));
    rp_test_forget(&run);
}

/* A plain run has a sample. */
static bool runs_all(void)
{
    return getenv("RP_LONG") != NULL;
}

/* Eight iterations, as in the programs of a training run, in which tensors keep their addresses. */
Test(exec_gpu_graphs, all_schedules_launch_most_operators_in_graphs)
{
    rp_model config = rp_test_small_decoder(6, true, true);
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const char *why = NULL;
        cr_assert(eq(int, rpexec_runs(rp_schedules[i], false, arena, &why), RP_OK));
        if (why != NULL || (!runs_all() && i / 2 % 2 != 0)) {
            continue;
        }
        rp_resolved work = rp_test_work(rp_schedules[i]->name, 2, 4, 8);
        const emulated_machine machine = {
            .devices = 2, .peers = i % 2 == 0, .seed = i, .delay_us = 100};
        launches l = compare(&config, &work, rp_fake_cuda_driver(&machine),
                             (rp_test_twist){.devices = {.stage_bytes = 1000}});
        cr_expect(gt(u32, l.captures, 0), "%s", work.schedule->name);
        cr_expect(ge(u32, l.graphs, 2 * l.captures), "%s", work.schedule->name);
        cr_expect(gt(u32, l.in_graphs, l.operators), "%s: %u operators in graphs, %u alone",
                  work.schedule->name, l.in_graphs, l.operators);
    }
}

/* The model has as many layers as `tiny`. */
Test(exec_gpu_graphs, a_settled_iteration_is_few_launches)
{
    static const struct {
        const char *schedule;
        uint32_t operators, launches;
    } right[] = {{"roundpipe", 3508, 88}, {"1f1b", 3742, 126}, {"fsdp", 3853, 309}};
    rp_model config = rp_test_small_decoder(8, true, true);
    for (size_t i = 0; i < 3; i++) {
        launches l[2];
        for (uint32_t k = 0; k < 2; k++) { /* the difference is the launches of eight iterations */
            rp_resolved work = rp_test_work(right[i].schedule, 4, 8, 12 + 8 * k);
            const emulated_machine machine = {.devices = 4, .peers = true};
            work.decided.piece_bytes = UINT64_C(256) << 20;
            l[k] = compare(&config, &work, rp_fake_cuda_driver(&machine), (rp_test_twist){0});
        }
        cr_expect(eq(u32, l[1].captures, l[0].captures), "%s", right[i].schedule);
        cr_expect(eq(u32, l[1].in_graphs + l[1].operators - l[0].in_graphs - l[0].operators,
                     8 * right[i].operators),
                  "%s", right[i].schedule);
        cr_expect(eq(u32, l[1].graphs + l[1].operators - l[0].graphs - l[0].operators,
                     8 * right[i].launches),
                  "%s", right[i].schedule);
    }
}

/* Streams and threads are late. Beside operators, ops have finite checks, agreements, gradients
 * that are read, collectives and copies over the host. */
Test(exec_gpu_graphs, late_streams_change_nothing)
{
    static const char *const names[] = {"roundpipe", "1f1b",          "zbv",  "roundpipe-overlap",
                                        "zero2",     "zero-infinity", "fsdp", "interleaved-1f1b"};
    rp_model config = rp_test_small_decoder(6, true, true);
    for (uint32_t i = 0; i < 16; i++) {
        if (!runs_all() && i / 8 == i % 2) {
            continue;
        }
        rp_resolved work = rp_test_work(names[i % 8], 3, 6, 4);
        const emulated_machine machine = {
            .devices = 3, .green = i % 3 == 0, .peers = i % 2 == 0, .seed = i, .delay_us = 600};
        rp_test_twist twist = {
            .dtype = i < 8 ? RP_DTYPE_F16 : RP_DTYPE_F32,
            .delay_seed = i,
            .delay_us = i % 4 == 0 ? 300 : 0,
            .devices = {.is_virtual = i % 3 == 0,
                        .transport = i % 5 == 0 ? RPEXEC_TRANSPORT_STAGED : RPEXEC_TRANSPORT_AUTO,
                        .stage_bytes = 1000}};
        work.decided.asynchronous = i % 8 == 0;
        work.decided.layer_grain = i == 8 || i == 3;
        work.decided.accumulate = i % 8 == 0 || i % 8 == 3 ? 2 : 1;
        work.peer_gpus = i % 8 == 1 || i % 8 == 7 ? UINT32_MAX : 0;
        launches l = compare(&config, &work, rp_fake_cuda_driver(&machine), twist);
        cr_expect(gt(u32, l.graphs, l.captures), "%s", work.schedule->name);
    }
}

Test(exec_gpu_graphs, experts_and_adapters_too)
{
    const emulated_machine machine = {.devices = 2, .peers = true, .seed = 5, .delay_us = 200};
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 6);
    rp_model config = rp_test_small_decoder(4, false, true);
    config.experts = 4;
    config.active_experts = 2;
    launches l = compare(&config, &work, rp_fake_cuda_driver(&machine), (rp_test_twist){0});
    cr_expect(gt(u32, l.graphs, l.captures));
    config = rp_test_small_decoder(4, true, true);
    rp_model_set_lora_rank(&config, 2);
    l = compare(&config, &work, rp_fake_cuda_driver(&machine),
                (rp_test_twist){.dtype = RP_DTYPE_BF16});
    cr_expect(gt(u32, l.graphs, l.captures));
}

/* ---- several programs on the same devices, as in training ------------------------------------ */

static const rpexec_driver_type *fake;
static rpexec_devices *kept;

static rp_status attach_once(const rpexec_devices_config *config, rpexec_devices **devices_out,
                             uint64_t *gpu_bytes_out)
{
    rp_status status = RP_OK;
    if (kept == NULL) {
        status = fake->attach(config, &kept, gpu_bytes_out);
    }
    *devices_out = kept;
    return status;
}

static void keep(rpexec_devices *devices)
{
    cr_expect(devices == kept);
}

static rpexec_driver_type keeping(const emulated_machine *machine)
{
    fake = rp_fake_cuda_driver(machine);
    rpexec_driver_type type = *fake;
    type.attach = attach_once;
    type.detach = keep;
    return type;
}

static void give_back(void)
{
    fake->detach(kept);
    kept = NULL;
}

/* Each run has its own model, so lanes are opened anew while all tensors keep their addresses: a
 * graph that stayed would be found and would work with a closed lane, which the fake refuses. */
Test(exec_gpu_graphs, graphs_go_with_their_lanes)
{
    static rp_test_run runs[3]; /* models at different addresses */
    rp_model config = rp_test_small_decoder(4, true, true);
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 6);
    const emulated_machine machine = {.devices = 2};
    rpexec_driver_type type = keeping(&machine);
    const rp_test_twist twist = {.driver_type = &type, .devices = {.graphs = true}};
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert(eq(int, rp_test_execute(arena, &config, SEQ_LEN, &work, &twist, &runs[i]), RP_OK),
                  "program %u", i);
        cr_expect(rp_test_same(&runs[i], &runs[0], work.decided.iterations), "program %u", i);
        cr_expect(
            eq(u32, emulator_counted(EMULATED_CAPTURES), (i + 1) * emulator_counted(EMULATED_KEPT)),
            "program %u", i);
    }
    give_back();
}

/* Programs for the same model on devices that are kept. */
typedef struct series {
    rp_test_run run; /* gives the programs their model, state and batches */
    rp_program *program;
    rpexec_plan plan;
} series;

/* @param most the largest work of the series */
static void open_series(const emulated_machine *machine, const rp_resolved *most, series *s)
{
    rp_model config = rp_test_small_decoder(4, true, true);
    const rpexec_devices_config devices = {.gpus = most->gpus, .graphs = true};
    rp_model *kept_config = NULL;
    uint64_t bytes = 0;
    cr_assert(eq(int, rp_arena_alloc(arena, 1, sizeof config, &kept_config), RP_OK));
    *kept_config = config;
    *s = (series){0};
    cr_assert(eq(int, rp_test_execute(arena, kept_config, SEQ_LEN, most, NULL, &s->run), RP_OK));
    fake = rp_fake_cuda_driver(machine);
    cr_assert(eq(int, fake->attach(&devices, &kept, &bytes), RP_OK));
}

static void plan_next(series *s, const rp_resolved *work)
{
    rp_costs costs;
    rp_program_destroy(s->program);
    cr_assert(eq(int,
                 rpexec_work_costs(&s->run.model, work->decided.microbatch_size, arena, &costs),
                 RP_OK));
    cr_assert(eq(int, rpexec_work_program(work, &s->run.model, &costs, &s->program, NULL), RP_OK));
    cr_assert(eq(int,
                 rpexec_plan_create(s->program, &s->run.model, &(rpexec_plan_limits){0}, arena,
                                    &s->plan, NULL),
                 RP_OK));
}

/* @return the launches of this run only */
static launches run_next(series *s)
{
    rpexec_execution e = {.plan = &s->plan,
                          .state = &s->run.state,
                          .adam = rpexec_adam_defaults(),
                          .batches = s->run.batches,
                          .driver_type = fake,
                          .driver = {.devices = kept, .watchdog_s = 30, .poison = true},
                          .fail_op = RP_MAX_OPS,
                          .losses = s->run.losses};
    launches before = launched();
    cr_assert(eq(int, rpexec_execute(&e), RP_OK));
    return since(before);
}

static void close_series(series *s)
{
    give_back();
    cr_expect(eq(u32, emulator_counted(EMULATED_KEPT), 0));
    rp_program_destroy(s->program);
}

/* Programs follow each other as in rpexec_train. */
Test(exec_gpu_graphs, later_programs_use_the_graphs_of_earlier_ones)
{
    static const char *const names[] = {"roundpipe", "1f1b", "fsdp"};
    const emulated_machine machine = {.devices = 2, .peers = true};
    for (uint32_t i = 0; i < 3; i++) {
        series s;
        rp_resolved work = rp_test_work(names[i], 2, 4, 4);
        open_series(&machine, &work, &s);
        plan_next(&s, &work);
        for (uint32_t k = 0; k < 4; k++) {
            launches l = run_next(&s);
            cr_expect(k < 2 || l.captures == 0, "%s: program %u captures", names[i], k);
            cr_expect(k < 2 || l.operators < l.in_graphs / 4, "%s: program %u launches one by one",
                      names[i], k);
        }
        launches all = launched();
        rpexec_graph_counts counts;
        fake->graphs(kept, &counts);
        cr_expect(eq(u64, counts.captures, all.captures));
        cr_expect(eq(u64, counts.launches, all.graphs));
        cr_expect(eq(u64, counts.replaced, all.in_graphs));
        cr_expect(eq(u64, counts.single, all.operators));
        close_series(&s);
    }
}

/* A larger program moves the arena, so graphs of the old arena go. A smaller program after it keeps
 * them. */
Test(exec_gpu_graphs, graphs_go_with_their_memory)
{
    const emulated_machine machine = {.devices = 2, .peers = true};
    rp_resolved small = rp_test_work("gpipe", 2, 2, 4);
    rp_resolved large = rp_test_work("gpipe", 2, 8, 4);
    series s;
    open_series(&machine, &large, &s);
    plan_next(&s, &small);
    cr_expect(gt(u32, run_next(&s).captures, 0));
    plan_next(&s, &large);
    launches l = run_next(&s);
    cr_expect(gt(u32, l.captures, 0));
    cr_expect(eq(u32, emulator_counted(EMULATED_KEPT), l.captures), "old graphs have stayed");
    plan_next(&s, &small);
    uint32_t more = run_next(&s).captures;
    cr_expect(eq(u32, emulator_counted(EMULATED_KEPT), l.captures + more));
    close_series(&s);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* If graphs do not work, the run has the same bits without them. */
Test(exec_gpu_graphs, failing_captures_fall_back)
{
    static const emulated_graph_call calls[] = {EMULATED_BEGIN_FAILS, EMULATED_LAUNCH_FAILS,
                                                EMULATED_END_FAILS, EMULATED_MAKE_FAILS};
    static const char *const names[] = {"roundpipe", "1f1b", "fsdp"};
    rp_model config = rp_test_small_decoder(4, true, true);
    for (size_t i = 0; i < 12; i++) {
        rp_resolved work = rp_test_work(names[i % 3], 2, 4, 4);
        const emulated_machine machine = {.devices = 2, .seed = i, .graphs = calls[i % 4]};
        launches l = compare(&config, &work, rp_fake_cuda_driver(&machine),
                             (rp_test_twist){.dtype = RP_DTYPE_F16});
        cr_expect(eq(u32, l.graphs, 0));
        cr_expect(gt(u32, l.operators, 0));
    }
}
