/* --explain: the attribution sums to all GPU time, the critical path to the makespan, and a slowed
 * part gets the blame. */
#include "sim/run/explain/explain.h"
#include "sim/run/case.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rp_arena *arena;

static void begin(void)
{
    rp_test_tool_begin();
    arena = rp_test_tool_arena();
}

TestSuite(explain, .init = begin, .fini = rp_test_tool_end, .timeout = 300);

/* ---- properties of every explanation --------------------------------------------------------- */

static void check_sums(const rpsim_explanation *e, const char *text)
{
    int64_t total = 0;
    int64_t waits = 0;
    int64_t blame = 0;
    for (uint32_t s = 0; s < RPSIM_SHARE_COUNT; s++) {
        int64_t over_gpus = 0;
        for (uint32_t gpu = 0; gpu < e->gpus; gpu++) {
            cr_assert(ge(i64, e->gpu_share_ps[gpu][s], 0), "%s", text);
            over_gpus += e->gpu_share_ps[gpu][s];
        }
        cr_assert(eq(i64, over_gpus, e->share_ps[s]), "%s", text);
        total += e->share_ps[s];
        waits += s >= RPSIM_SHARE_UPLOAD_PARAMS && s < RPSIM_SHARE_FILL ? e->share_ps[s] : 0;
    }
    cr_assert(eq(i64, total, e->gpus * e->makespan_ps), "%s", text);
    for (uint32_t r = 0; r < rpsim_resource_count(e->gpus); r++) {
        blame += e->blame_ps[r];
    }
    cr_assert(eq(i64, blame, waits), "%s", text);
}

/* Compute, fill and drain equal the timeline's, however the gaps between are explained. */
static void check_parts(const rpsim_explanation *e, const rp_timeline *t, const char *text)
{
    const rp_program *p = t->program;
    int64_t work[RP_OP_KIND_COUNT] = {0};
    int64_t ends = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        int64_t first = e->makespan_ps;
        int64_t last = e->makespan_ps;
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            int64_t took = t->end_ps[i] - t->start_ps[i];
            work[p->ops[i].kind] += took - (t->held_ps != NULL ? t->held_ps[i] : 0);
            if (took > 0) {
                first = t->start_ps[i] < first ? t->start_ps[i] : first;
                last = t->end_ps[i];
            }
        }
        ends += p->queues[q].kind == RP_QUEUE_COMPUTE ? first + e->makespan_ps - last : 0;
    }
    cr_assert(eq(i64, e->share_ps[RPSIM_SHARE_FORWARD], work[RP_OP_FORWARD]), "%s", text);
    cr_assert(eq(i64, e->share_ps[RPSIM_SHARE_RECOMPUTE], work[RP_OP_RECOMPUTE]), "%s", text);
    cr_assert(eq(i64, e->share_ps[RPSIM_SHARE_UPDATE], work[RP_OP_UPDATE]), "%s", text);
    cr_assert(eq(i64, e->share_ps[RPSIM_SHARE_BACKWARD],
                 work[RP_OP_BACKWARD] + work[RP_OP_BACKWARD_INPUT] + work[RP_OP_BACKWARD_WEIGHT]),
              "%s", text);
    cr_assert(eq(i64, e->share_ps[RPSIM_SHARE_FILL] + e->share_ps[RPSIM_SHARE_DRAIN], ends), "%s",
              text);
}

/* @param late ops may begin after all that they wait for in the program */
static void check_path(const rpsim_explanation *e, const rp_timeline *t, bool late,
                       const char *text)
{
    int64_t at = 0;
    int64_t resources = 0;
    int64_t kinds = e->path_hop_ps;
    for (uint32_t i = 0; i < e->segment_count; i++) {
        const rpsim_segment *s = &e->segments[i];
        cr_assert(eq(i64, s->start_ps, at), "%s: segment %u", text, i);
        cr_assert(gt(i64, s->end_ps, s->start_ps), "%s: segment %u", text, i);
        bool hop = s->start_ps >= t->end_ps[s->op];
        bool unissued = late && s->end_ps <= t->start_ps[s->op];
        cr_assert(hop || unissued || s->start_ps >= t->start_ps[s->op], "%s: segment %u", text, i);
        cr_assert(s->reason != RP_DELAY_START || s->start_ps == 0, "%s: segment %u", text, i);
        at = s->end_ps;
    }
    cr_assert(eq(i64, at, e->makespan_ps), "%s", text);
    for (uint32_t r = 0; r < rpsim_resource_count(e->gpus); r++) {
        resources += e->path_ps[r];
    }
    for (uint32_t k = 0; k < RP_OP_KIND_COUNT; k++) {
        kinds += e->path_kind_ps[k];
    }
    cr_assert(eq(i64, resources, e->makespan_ps), "%s", text);
    cr_assert(eq(i64, kinds, e->makespan_ps), "%s", text);
}

static void explain(const rpsim_explain_case *c, const char *text, rpsim_explanation *e)
{
    cr_assert(eq(int, rpsim_explain(c, arena, e, NULL), RP_OK), "%s", text);
    check_sums(e, text);
    check_parts(e, c->timeline, text);
    const rp_machine *m = c->machine;
    bool gaps = m != NULL && (m->op_gap_ps > 0 || m->op_wake_ps > 0);
    check_path(e, c->timeline, gaps || c->timeline->held_ps != NULL, text);
}

/* ---- stage fidelity -------------------------------------------------------------------------- */

/* Hops are charged to transfers between GPUs, at most with the engine's delays. */
Test(explain, random_programs_at_stage_fidelity)
{
    rp_random random = {28};
    rp_random_case *c = malloc(sizeof *c);
    for (uint32_t i = 0; i < 600; i++) {
        rp_random_case_draw(&random, 600, c);
        char text[512];
        rp_random_case_print(c, text, sizeof text);
        rpsim_result result;
        rp_stage_times times;
        cr_assert(eq(int, rpsim_case_run(c->schedule, &c->config, &result, NULL), RP_OK));
        cr_assert(
            eq(int, rp_stage_times_compute(result.program, &c->costs, arena, &times, NULL), RP_OK));
        rpsim_explain_case given = {.timeline = result.timeline, .times = &times};
        rpsim_explanation e;
        explain(&given, text, &e);
        if (c->config.iterations == 1) {
            cr_assert(eq(i64, e.makespan_ps, result.metrics.makespan_ps), "%s", text);
            cr_assert(eq(i64, e.share_ps[RPSIM_SHARE_FILL], result.metrics.fill_ps), "%s", text);
        }
        if (c->costs.hop_ps == 0) {
            cr_assert(eq(i64, e.share_ps[RPSIM_SHARE_PEER], 0), "%s", text);
        }
        static const rp_share never[] = {RPSIM_SHARE_UPLOAD_PARAMS, RPSIM_SHARE_UPLOAD_ACT,
                                         RPSIM_SHARE_DOWNLOAD, RPSIM_SHARE_HOST,
                                         RPSIM_SHARE_MEMORY};
        for (size_t k = 0; k < sizeof never / sizeof never[0]; k++) {
            cr_assert(eq(i64, e.share_ps[never[k]], 0), "%s", text);
        }
        rpsim_result_fini(&result);
    }
    free(c);
}

/* ---- hardware fidelity ----------------------------------------------------------------------- */

static void draw(rp_random *random, rp_random_case *c)
{
    rp_random_case_draw(random, 500, c);
    c->config.iterations = rp_random_between(random, 1, 3);
    if (c->schedule->separate_backward) {
        c->config.round = RP_ROUND_ALL;
    }
}

Test(explain, random_programs_at_hardware_fidelity)
{
    rp_random random = {32};
    bool seen[RPSIM_SHARE_COUNT] = {false};
    for (uint32_t i = 0; i < (getenv("RP_LONG") != NULL ? 250 : 90); i++) {
        rp_test_bench b = {.c = malloc(sizeof *b.c)};
        draw(&random, b.c);
        rp_test_bench_sizes(&b, rp_random_between(&random, 0, 400000000), 30000000u * (i % 7));
        b.lower.grain = i / 2 % 2 == 0 ? RP_GRAIN_STAGE : RP_GRAIN_LAYER;
        rp_test_bench_lower(&b);
        char text[512];
        rp_random_case_print(b.c, text, sizeof text);
        cr_assert(eq(int, rp_program_check(b.program), RP_OK), "%s", text);
        b.machine = (rp_machine){.upload_Bps = 20.97e9,
                                 .download_Bps = 18e9,
                                 .host_Bps = 95e9,
                                 .dram_Bps = i % 3 == 0 ? 40e9 : 0,
                                 .copy_latency_ps = (int64_t)(i % 2) * 5000,
                                 .op_gap_ps = (int64_t)(i / 3 % 2) * 4000,
                                 .op_wake_ps = (int64_t)(i / 5 % 2) * 20000,
                                 .module_ps = (int64_t)(i % 5) * 10000000};
        const rp_model moe = {.experts = 1 + 8 * (i % 2)};
        cr_assert(eq(int,
                     rpsim_dispatch_count(b.program, &moe, i % 4 * 40, arena, &b.costs.dispatch),
                     RP_OK));
        rpsim_explain_case given = rp_test_bench_run(&b);
        rpsim_explanation e;
        explain(&given, text, &e);
        cr_assert(eq(i64, e.path_hop_ps, 0), "%s", text);
        for (uint32_t s = 0; s < RPSIM_SHARE_COUNT; s++) {
            seen[s] = seen[s] || e.share_ps[s] > 0;
        }
        rp_test_bench_fini(&b);
    }
    for (uint32_t s = 0; s < RPSIM_SHARE_COUNT; s++) {
        cr_expect(seen[s] || s == RPSIM_SHARE_PEER, "share %u never occurs", s);
    }
}

Test(explain, free_transfers_are_never_blamed)
{
    rp_random random = {235};
    for (uint32_t i = 0; i < 120; i++) {
        rp_test_bench b = {.c = malloc(sizeof *b.c)};
        draw(&random, b.c);
        rp_test_bench_sizes(&b, 0, 0);
        rp_test_bench_lower(&b);
        b.machine = (rp_machine){.upload_Bps = 1e9, .download_Bps = 1e9, .host_Bps = 1e9};
        char text[512];
        rp_random_case_print(b.c, text, sizeof text);
        rpsim_explain_case given = rp_test_bench_run(&b);
        rpsim_explanation e;
        explain(&given, text, &e);
        int64_t compute = e.share_ps[RPSIM_SHARE_DEPENDENCY] + e.share_ps[RPSIM_SHARE_FILL] +
                          e.share_ps[RPSIM_SHARE_DRAIN] + e.share_ps[RPSIM_SHARE_FORWARD] +
                          e.share_ps[RPSIM_SHARE_BACKWARD] + e.share_ps[RPSIM_SHARE_RECOMPUTE];
        cr_assert(eq(i64, compute, e.gpus * e.makespan_ps), "%s", text);
        rp_test_bench_fini(&b);
    }
}

/* ---- injection ------------------------------------------------------------------------------- */

#define GPUS RP_TEST_BENCH_GPUS
#define LAYERS RP_TEST_BENCH_LAYERS

static rpsim_first_cause first_cause(rp_test_bench *b, const char *text)
{
    rpsim_explain_case given = rp_test_bench_run(b);
    rpsim_explanation e;
    rpsim_sensitivity s;
    explain(&given, text, &e);
    cr_assert(eq(int, rpsim_explain_sensitivity(&given, arena, &s, NULL), RP_OK), "%s", text);
    return rpsim_explain_first_cause(&e, &s);
}

static void slow_down_each_link(rp_test_bench *b, uint32_t begin_gpu, uint32_t end_gpu,
                                const char *text)
{
    static double scale[GPUS];
    b->machine.link_scale = scale;
    for (uint32_t slow = begin_gpu; slow < end_gpu; slow++) {
        for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
            scale[gpu] = gpu == slow ? 0.8 : 1.0;
        }
        rpsim_first_cause cause = first_cause(b, text);
        bool link = cause.kind == RPSIM_RESOURCE_LINK_UP || cause.kind == RPSIM_RESOURCE_LINK_DOWN;
        cr_expect(link, "%s: slow link %u, kind %d", text, slow, (int)cause.kind);
        cr_expect(eq(u32, cause.gpu, slow), "%s", text);
        cr_expect(cause.stands_out, "%s: slow link %u, %g of %g", text, slow, cause.elasticity,
                  cause.group_elasticity);
    }
}

/* 1 GB over a link of 20 GB/s takes 50 ms, a stage's forward 4 ms. The first and last GPU have half
 * the traffic, so that their links are no bottleneck even when slow. */
Test(explain, slow_link_of_a_pipeline)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "1f1b", 16, 1, false);
    rp_test_bench_sizes(&b, 1000000000, 0);
    rp_test_bench_lower(&b);
    slow_down_each_link(&b, 1, GPUS - 1, "1f1b");
    rp_test_bench_fini(&b);
}

/* Weights of 2 GB per layer take 100 ms, a stage at most 48 ms for 4 microbatches. With nine stages
 * on four GPUs every GPU has had every stage after four steps. */
Test(explain, slow_link_of_roundpipe)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "roundpipe", 4, 8, true);
    rp_test_bench_sizes(&b, 1000000, 2000000000);
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        b.lower.sizes.parameters[i] = 0; /* no work for the host */
    }
    rp_test_bench_lower(&b);
    slow_down_each_link(&b, 0, GPUS, "roundpipe");
    rp_test_bench_fini(&b);
}

/* Adam on 1e9 parameters per layer: 32 GB of memory traffic each, 0.32 s. */
Test(explain, slow_host)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "roundpipe", 4, 4, false);
    rp_test_bench_sizes(&b, 1000000, 1000000);
    for (uint32_t i = 0; i < LAYERS + 2; i++) {
        b.lower.sizes.parameters[i] = 1000000000;
    }
    rp_test_bench_lower(&b);
    b.machine.host_Bps *= 0.8;
    rpsim_explain_case given = rp_test_bench_run(&b);
    rpsim_explanation e;
    rpsim_sensitivity s;
    explain(&given, "host", &e);
    cr_assert(eq(int, rpsim_explain_sensitivity(&given, arena, &s, NULL), RP_OK));
    rpsim_first_cause cause = rpsim_explain_first_cause(&e, &s);
    cr_expect(eq(int, cause.kind, RPSIM_RESOURCE_HOST));
    cr_expect(eq(u32, rpsim_explain_most_blamed(&e), rpsim_resource(RPSIM_RESOURCE_HOST, 0, GPUS)));
    cr_expect(gt(dbl, s.host, 0.9));
    cr_expect(lt(dbl, fabs(s.host + s.compute + s.links - 1.0), 0.02));
    rp_test_bench_fini(&b);
}

static void slow_down_each_gpu(const char *schedule, uint32_t iterations)
{
    rp_test_bench b;
    rp_test_bench_make(&b, schedule, 16, iterations, true);
    rp_test_bench_sizes(&b, 1000000, 1000000);
    rp_test_bench_lower(&b);
    cr_assert(
        eq(int, rp_arena_alloc(arena, b.program->op_count, sizeof(double), &b.factors), RP_OK));
    for (uint32_t slow = 0; slow < GPUS; slow++) {
        for (uint32_t i = 0; i < b.program->op_count; i++) {
            uint32_t queue = rp_program_queue_of(b.program, i);
            b.factors[i] = b.program->queues[queue].gpu == slow ? 1.25 : 1.0;
        }
        rpsim_first_cause cause = first_cause(&b, schedule);
        cr_expect(eq(int, cause.kind, RPSIM_RESOURCE_COMPUTE), "%s", schedule);
        cr_expect(eq(u32, cause.gpu, slow), "%s", schedule);
        cr_expect(cause.stands_out, "%s: GPU %u, %g of %g", schedule, slow, cause.elasticity,
                  cause.group_elasticity);
    }
    rp_test_bench_fini(&b);
}

Test(explain, slow_gpu)
{
    slow_down_each_gpu("1f1b", 1);
    slow_down_each_gpu("gpipe", 1);
    slow_down_each_gpu("roundpipe", 12);
}

/* ---- elasticities ---------------------------------------------------------------------------- */

/* All times scale with all speeds, so elasticities sum to 1; the resource that everything waits for
 * has all of it. */
Test(explain, elasticities_of_extremes)
{
    static const char *const schedules[] = {"1f1b", "roundpipe"};
    for (size_t i = 0; i < 2; i++) {
        for (int link_bound = 0; link_bound < 2; link_bound++) {
            rp_test_bench b;
            rp_test_bench_make(&b, schedules[i], 8, 16, true);
            rp_test_bench_sizes(&b, 1000000, 1000000);
            rp_test_bench_lower(&b);
            double scale = link_bound ? 1e-5 : 1e5;
            b.machine.upload_Bps *= scale;
            b.machine.download_Bps *= scale;
            b.machine.host_Bps *= 1e6;
            rpsim_explain_case given = rp_test_bench_run(&b);
            rpsim_sensitivity s;
            cr_assert(eq(int, rpsim_explain_sensitivity(&given, arena, &s, NULL), RP_OK));
            cr_expect(lt(dbl, fabs(s.links - (link_bound ? 1.0 : 0.0)), 0.02), "%s %d: %g",
                      schedules[i], link_bound, s.links);
            cr_expect(lt(dbl, fabs(s.compute - (link_bound ? 0.0 : 1.0)), 0.02), "%s %d: %g",
                      schedules[i], link_bound, s.compute);
            cr_expect(lt(dbl, fabs(s.host), 0.01));
            bool no_peer = isnan(s.peer);
            cr_expect(no_peer);
            rp_test_bench_fini(&b);
        }
    }
}

/* GPUs in a row and a microbatch: forwards with hops, then backwards with hops. GPU g waits for the
 * later GPUs' forwards (4 ms), backwards (8 ms) and hops (3 ms, there and back). */
Test(explain, elasticities_at_stage_fidelity)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "gpipe", 1, 1, false);
    b.c->config.recompute = RP_RECOMPUTE_NONE;
    b.c->costs.hop_ps = INT64_C(3000000000);
    rpsim_result result;
    rp_stage_times times;
    cr_assert(eq(int, rpsim_case_run(b.c->schedule, &b.c->config, &result, NULL), RP_OK));
    cr_assert(
        eq(int, rp_stage_times_compute(result.program, &b.c->costs, arena, &times, NULL), RP_OK));
    rpsim_explain_case given = {.timeline = result.timeline, .times = &times};
    rpsim_explanation e;
    rpsim_sensitivity s;
    explain(&given, "gpipe", &e);
    cr_assert(eq(int, rpsim_explain_sensitivity(&given, arena, &s, NULL), RP_OK));
    double work = LAYERS * 3.0;         /* ms: each layer's forward and backward */
    double hops = 2 * (GPUS - 1) * 3.0; /* ms: there and back */
    cr_expect(eq(i64, e.share_ps[RPSIM_SHARE_DEPENDENCY], (3 + 2 + 1) * INT64_C(12000000000)));
    cr_expect(eq(i64, e.share_ps[RPSIM_SHARE_PEER], (3 + 2 + 1) * INT64_C(6000000000)));
    cr_expect(eq(i64, e.path_hop_ps, (int64_t)(hops * 1e9)));
    cr_expect(eq(i64, e.makespan_ps, (int64_t)((work + hops) * 1e9)));
    cr_expect(lt(dbl, fabs(s.peer - hops / (work + hops)), 1e-4));
    cr_expect(lt(dbl, fabs(s.compute - work / (work + hops)), 1e-4));
    bool unknown = isnan(s.links) && isnan(s.host) && s.link_of == NULL;
    cr_expect(unknown);
    rpsim_result_fini(&result);
    rp_test_bench_fini(&b);
}

/* The same with boundaries of 1 GB: 50 ms down and 50 ms up each. */
Test(explain, closed_form_at_hardware_fidelity)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "gpipe", 1, 1, false);
    b.c->config.recompute = RP_RECOMPUTE_NONE;
    rp_test_bench_sizes(&b, 1000000000, 0);
    rp_test_bench_lower(&b);
    rpsim_explain_case given = rp_test_bench_run(&b);
    rpsim_explanation e;
    explain(&given, "gpipe", &e);
    const int64_t transfers = (3 + 2 + 1) * 2 * INT64_C(50000000000);
    cr_expect(eq(i64, e.share_ps[RPSIM_SHARE_DEPENDENCY], (3 + 2 + 1) * INT64_C(12000000000)));
    cr_expect(eq(i64, e.share_ps[RPSIM_SHARE_DOWNLOAD], transfers));
    cr_expect(eq(i64, e.share_ps[RPSIM_SHARE_UPLOAD_ACT], transfers));
    cr_expect(eq(i64, e.path_kind_ps[RP_OP_DOWNLOAD_ACT], 3 * INT64_C(50000000000)));
    cr_expect(eq(i64, e.path_kind_ps[RP_OP_UPLOAD_GRAD], 3 * INT64_C(50000000000)));
    cr_expect(eq(i64, e.path_kind_ps[RP_OP_BACKWARD], GPUS * INT64_C(8000000000)));
    rp_test_bench_fini(&b);
}

/* ---- the command line ------------------------------------------------------------------------ */

static void check_row(const json_t *row)
{
    const json_t *x = json_object_get(row, "explain");
    bool object = json_is_object(x);
    cr_assert(object);
    double sum = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(json_object_get(x, "attribution_ms"), key, value)
    {
        sum += json_number_value(value);
    }
    double all = rp_test_json_number(row, "gpus") * rp_test_json_number(x, "makespan_ms");
    cr_expect(lt(dbl, fabs(sum - all), 1e-9 * all));
    cr_expect(eq(sz, json_array_size(json_object_get(x, "attribution_of_gpu_ms")), 4));
    const json_t *elasticity = json_object_get(x, "elasticity");
    cr_expect(gt(dbl, rp_test_json_number(elasticity, "compute"), 0.0));
    cr_expect(eq(sz, json_array_size(json_object_get(elasticity, "compute_of_gpu")), 4));
}

Test(explain, command_line)
{
    static const char *const fidelities[] = {"stage", "hardware"};
    for (size_t i = 0; i < 2; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "--schedule 1f1b,roundpipe --gpus 4 --microbatches 8 --fidelity %s --explain "
                 "--format json",
                 fidelities[i]);
        rp_test_outcome outcome = rp_test_rpsim_well(line);
        json_error_t error;
        json_t *rows = json_loads(outcome.output, 0, &error);
        cr_assert(eq(sz, json_array_size(rows), 2), "%s", error.text);
        check_row(json_array_get(rows, 0));
        check_row(json_array_get(rows, 1));
        json_decref(rows);
        line[strlen(line) - strlen(" --format json")] = '\0';
        outcome = rp_test_rpsim_well(line);
        static const char *const words[] = {
            "First cause: ", "Critical path: ", "What would help: the step is ", "idle "};
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
            cr_expect(ne(ptr, strstr(outcome.output, words[k]), NULL), "%s", words[k]);
        }
    }
    rp_test_outcome outcome = rp_test_rpsim("--schedule 1f1b --explain --format csv");
    cr_expect(eq(int, outcome.status, 2));
    cr_expect(ne(ptr, strstr(outcome.messages, "--format table and json"), NULL));
}
