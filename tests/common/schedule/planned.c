/* Schedules planned with times, against their fixed starting points, an exhaustive search, a slow
 * reference, closed forms and limits of activations. */
#include "common/base/log.h"
#include "common/schedule/build.h"
#include "common/schedule/planned/greedy.h"
#include "sim/run/case.h"
#include "tests/reference/slow_exact.h"
#include "tests/support/assertions.h"
#include "tests/support/stage_case.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MOST_GPUS 16

TestSuite(planned, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

/* Planned schedules, each with its counterpart. */
static const struct {
    const char *name;
    const char *fixed;
    uint32_t chunks;
    uint32_t limit; /* of forwards kept, per GPU of the pipeline; 0: as fixed on each GPU */
} pairs[] = {
    {"zb-auto-1p", "zb-h1", 1, 1},     {"zb-auto-2p", "zb-h2", 1, 2},
    {"zb-auto-2p", "zb-h1", 1, 2},     {"zb-auto-2p", "zb-auto-1p", 1, 2},
    {"zbv-auto", "zbv", 2, 2},         {"v-half-squeezed", "v-half", 2, 0},
    {"v-min-squeezed", "v-min", 2, 0},
};

/* ---- runs ------------------------------------------------------------------------------------ */

static bool run(const char *name, const rp_test_stage_case *c, rpsim_result *result)
{
    char message[512];
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpsim_case_run(rp_schedule_find(name), &c->config, result, NULL);
    rp_log_capture_end();
    cr_assert(status == RP_OK || status == RP_USAGE, "%s: %s", name, message);
    return status == RP_OK;
}

/* The program's orders in the reference's form, without recompute. */
static void rows_of(const rp_program *program, slow_rows *rows)
{
    *rows = (slow_rows){(int)program->gpu_count, (int)program->microbatch_count,
                        (int)program->stage_count, calloc(program->gpu_count, sizeof(int)),
                        calloc(program->gpu_count, sizeof(slow_cell *))};
    for (uint32_t g = 0; g < program->gpu_count; g++) {
        const rp_queue *queue = &program->queues[g];
        rows->counts[g] = (int)(queue->op_end - queue->op_begin);
        rows->cells[g] = calloc((size_t)rows->counts[g], sizeof(slow_cell));
        for (int i = 0; i < rows->counts[g]; i++) {
            const rp_op *op = &program->ops[queue->op_begin + (uint32_t)i];
            rows->cells[g][i] = (slow_cell){.type = rp_op_kind_text((rp_op_kind)op->kind)[0],
                                            .stage = op->stage,
                                            .microbatch = (int)op->microbatch};
        }
    }
}

/* Most forwards of a GPU without their weight part, along its order. */
static uint32_t peak_of(const rp_program *program, uint32_t gpu)
{
    uint32_t live = 0;
    uint32_t peak = 0;
    const rp_queue *queue = &program->queues[gpu];
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        live += program->ops[i].kind == RP_OP_FORWARD ? 1 : 0;
        peak = live > peak ? live : peak;
        live -= program->ops[i].kind == RP_OP_BACKWARD_WEIGHT ? 1 : 0;
    }
    return peak;
}

/* ---- never worse ----------------------------------------------------------------------------- */

static void compare(size_t pair, const rp_test_stage_case *c, const char *what, bool *better)
{
    rpsim_result planned;
    rpsim_result fixed;
    cr_assert(run(pairs[pair].name, c, &planned), "%s", what);
    for (uint32_t g = 0; g < c->config.gpus && pairs[pair].limit != 0; g++) {
        cr_assert(le(u32, peak_of(planned.program, g), pairs[pair].limit * c->config.gpus), "%s",
                  what);
    }
    if (run(pairs[pair].fixed, c, &fixed)) {
        cr_assert(le(i64, planned.metrics.makespan_ps, fixed.metrics.makespan_ps), "%s", what);
        *better = planned.metrics.makespan_ps < fixed.metrics.makespan_ps;
        for (uint32_t g = 0; g < c->config.gpus && pairs[pair].limit == 0; g++) {
            cr_assert(le(u32, peak_of(planned.program, g), peak_of(fixed.program, g)), "%s, GPU %u",
                      what, g);
        }
        rpsim_result_fini(&fixed);
    }
    if (!rp_recompute_has_ops(c->config.recompute)) {
        slow_rows rows;
        rows_of(planned.program, &rows);
        slow_span slow = slow_rows_run(&rows, c->stages, c->costs.hop_ps, 0);
        cr_assert(eq(i64, planned.metrics.makespan_ps, slow.makespan), "%s", what);
        slow_rows_free(&rows);
    }
    rpsim_result_fini(&planned);
}

/* For any times and any recompute, also for stages or hops that take no time. The reference counts
 * empty cells too, so these occur only with recompute. */
Test(planned, never_worse_than_fixed)
{
    rp_random random = {20240116};
    uint32_t better[COUNT(pairs)] = {0};
    for (uint32_t i = 0; i < 300 * COUNT(pairs); i++) {
        size_t pair = i % COUNT(pairs);
        uint32_t gpus = rp_random_between(&random, 1, rp_random_between(&random, 1, MOST_GPUS));
        uint32_t microbatches = rp_random_between(&random, 1, 3 * gpus + 4);
        rp_test_stage_case c;
        rp_test_stage_case_make(gpus, pairs[pair].chunks, microbatches, (slow_split){1, 1, 1},
                                rp_test_arena, &c);
        c.config.recompute = (rp_recompute)rp_random_between(&random, 0, RP_RECOMPUTE_COUNT - 1);
        rp_test_stage_case_draw(&random, rp_recompute_has_ops(c.config.recompute), &c);
        char what[160];
        bool gained = false;
        snprintf(what, sizeof what, "%u: %s and %s, P%u M%u, recompute %s, hop %" PRId64, i,
                 pairs[pair].name, pairs[pair].fixed, gpus, microbatches,
                 rp_recompute_text(c.config.recompute), c.costs.hop_ps);
        compare(pair, &c, what, &gained);
        better[pair] += gained ? 1 : 0;
    }
    for (size_t pair = 0; pair < COUNT(pairs); pair++) { /* their purpose */
        cr_expect(ge(u32, better[pair], 60), "%s is better than %s %u times", pairs[pair].name,
                  pairs[pair].fixed, better[pair]);
    }
}

/* ---- exact ----------------------------------------------------------------------------------- */

/* All orders of small pipelines: none beats the planned by more than a few per cent, most not at
 * all, and no planned order beats them. */
Test(planned, near_the_optimum_of_small_cases)
{
    static const uint32_t sizes[][2] = {{1, 4}, {2, 2}, {2, 3}, {3, 2}, {4, 2}};
    rp_random random = {7};
    uint32_t exact = 0;
    double excess = 0;
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t *size = sizes[i % COUNT(sizes)];
        bool twice = i % 2 == 0;
        rp_test_stage_case c;
        rp_test_stage_case_make(size[0], 1, size[1], (slow_split){1, 1, 1}, rp_test_arena, &c);
        rp_test_stage_case_draw(&random, false, &c);
        rpsim_result result;
        cr_assert(run(twice ? "zb-auto-2p" : "zb-auto-1p", &c, &result));
        int64_t least =
            slow_exact_makespan((int)size[0], (int)size[1], (int)(twice ? 2 * size[0] : size[0]),
                                c.stages, c.costs.hop_ps);
        cr_assert(ge(i64, result.metrics.makespan_ps, least), "%u", i);
        cr_assert(le(i64, result.metrics.lower_bound_ps, least), "%u", i);
        double above = (double)(result.metrics.makespan_ps - least) / (double)least;
        cr_expect(le(dbl, above, 0.15), "%u: %g", i, above);
        exact += above > 0 ? 0 : 1;
        excess += above;
        rpsim_result_fini(&result);
    }
    cr_expect(ge(u32, exact, 170), "%u of 200", exact);
    cr_expect(le(dbl, excess / 200, 0.01), "%g", excess / 200);
}

/* ---- closed forms ---------------------------------------------------------------------------- */

/* With equal times the last stage's GPU begins after P - 1 forwards, then has 3 M cells; in a V of
 * half stages after (P - 1) / 2 (Qi et al. 2024, table 1 and section 6). */
Test(planned, equal_times)
{
    for (uint32_t p = 1; p <= 12; p++) {
        for (uint32_t m = 2 * p; m <= 4 * p; m += p + 1) {
            rp_test_stage_case c;
            rpsim_result result;
            rp_test_stage_case_make(p, 1, m, (slow_split){2, 2, 2}, rp_test_arena, &c);
            cr_assert(run("zb-auto-1p", &c, &result));
            cr_expect(eq(i64, result.metrics.makespan_ps, 2 * (3 * (int64_t)m + p - 1)));
            rpsim_result_fini(&result);
            cr_assert(run("zb-auto-2p", &c, &result));
            cr_expect(eq(i64, result.metrics.makespan_ps, 2 * (3 * (int64_t)m + p - 1)));
            for (uint32_t g = 0; g < p; g++) { /* no idle time inside */
                const rp_queue *queue = &result.program->queues[g];
                int64_t begun = result.timeline->start_ps[queue->op_begin];
                int64_t ended = result.timeline->end_ps[queue->op_end - 1];
                cr_expect(eq(i64, ended - begun, 6 * (int64_t)m), "P%u M%u", p, m);
            }
            rpsim_result_fini(&result);
            rp_test_stage_case_make(p, 2, m, (slow_split){1, 1, 1}, rp_test_arena, &c);
            cr_assert(run("zbv-auto", &c, &result));
            cr_expect(eq(i64, result.metrics.makespan_ps, 6 * (int64_t)m + p - 1));
            rpsim_result_fini(&result);
        }
    }
}

/* Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024: V-Half has about half of
 * 1F1B's activations and, compacted, at most half of its bubble. */
Test(planned, v_half_has_half_the_bubble)
{
    for (uint32_t p = 2; p <= 16; p++) {
        uint32_t m = 3 * p;
        rp_test_stage_case c;
        rpsim_result result;
        rp_test_stage_case_make(p, 2, m, (slow_split){1, 1, 1}, rp_test_arena, &c);
        cr_assert(run("v-half-squeezed", &c, &result));
        int64_t bubble = result.metrics.makespan_ps - 6 * (int64_t)m; /* 1F1B: 2 * 3 (P - 1) */
        cr_expect(le(i64, bubble, 3 * (int64_t)(p - 1)), "P%u: %" PRId64, p, bubble);
        rpsim_result_fini(&result);
    }
}

/* ---- separate parts of a plan ---------------------------------------------------------------- */

typedef struct workshop {
    rp_test_stage_case c;
    rp_cells cells;
    rp_cell_order order;
    rp_greedy greedy;
    uint32_t peaks[MOST_GPUS];
} workshop;

/* Equal or drawn times. */
static void open_workshop(uint32_t gpus, uint32_t chunks, uint32_t microbatches, rp_random *random,
                          workshop *w)
{
    rp_program *program = NULL;
    rp_test_stage_case_make(gpus, chunks, microbatches, (slow_split){1, 1, 1}, rp_test_arena,
                            &w->c);
    if (random != NULL) {
        rp_test_stage_case_draw(random, true, &w->c);
    }
    const rp_schedule_type *any = rp_schedule_find(chunks == 1 ? "zb-h1" : "zbv");
    cr_assert(eq(int, rp_schedule_build(any, &w->c.config, &program, NULL), RP_OK));
    cr_assert(eq(int, rp_cells_make(&w->c.config, program, rp_test_arena, &w->cells, NULL), RP_OK));
    rp_program_destroy(program);
    cr_assert(eq(int, rp_cell_order_make(&w->cells, rp_test_arena, &w->order), RP_OK));
    w->greedy = (rp_greedy){
        .c = &w->cells, .order = &w->order, .chunks = chunks, .capacity = chunks * gpus};
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, gpus, sizeof(rp_greedy_gpu), &w->greedy.gpus),
                 RP_OK));
}

/* Without fixed schedules and compaction the builders still find the closed forms. */
Test(planned, builders_alone)
{
    for (uint32_t p = 1; p <= 12; p++) {
        for (uint32_t bits = 0; bits < 8; bits++) {
            workshop w;
            int64_t m = 2 * p + bits;
            open_workshop(p, 1, (uint32_t)m, NULL, &w);
            rp_zb_switches switches = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
            cr_assert(eq(int, rp_greedy_zb(&w.greedy, &switches), RP_OK));
            cr_expect(eq(i64, w.order.makespan_ps, 3 * m + p - 1), "zb P%u, %u", p, bits);
            cr_expect(le(u32, rp_cell_order_peaks(&w.cells, &w.order, w.peaks), p));
            open_workshop(p, 2, (uint32_t)m, NULL, &w);
            cr_assert(eq(int, rp_greedy_zbv(&w.greedy, (bits & 1) != 0, (bits & 2) != 0), RP_OK));
            cr_expect(eq(i64, w.order.makespan_ps, 6 * m + p - 1), "zbv P%u, %u", p, bits);
            cr_expect(le(u32, rp_cell_order_peaks(&w.cells, &w.order, w.peaks), 2 * p));
            cr_expect(eq(i64, rp_greedy_bubble_ps(&w.greedy), 0), "zbv P%u, %u", p, bits);
        }
    }
}

/* Any order: draws among the cells that can run, until all have. */
static void draw_order(rp_random *random, workshop *w)
{
    rp_greedy *g = &w->greedy;
    rp_greedy_begin(g);
    for (uint32_t left = w->cells.count; left > 0;) {
        uint32_t gpu = rp_random_between(random, 0, w->cells.gpus - 1);
        uint32_t chunk = rp_random_between(random, 0, g->chunks - 1);
        rp_cell_kind kind = (rp_cell_kind)rp_random_between(random, 0, RP_CELL_KINDS - 1);
        if (rp_greedy_can(g, gpu, chunk, kind)) {
            rp_greedy_put(g, gpu, chunk, kind);
            left--;
        }
    }
    cr_assert(eq(int, rp_greedy_end(g), RP_OK));
}

/* Compaction never makes any order worse, in time or in memory of a GPU; it keeps all cells, and
 * pays. */
Test(planned, compaction_of_any_order)
{
    rp_random random = {97};
    double before = 0;
    double after = 0;
    for (uint32_t i = 0; i < 400; i++) {
        workshop w;
        uint32_t gpus = rp_random_between(&random, 1, 8);
        open_workshop(gpus, i % 2 + 1, rp_random_between(&random, 1, 12), &random, &w);
        draw_order(&random, &w);
        int64_t makespan = w.order.makespan_ps;
        uint32_t peaks[MOST_GPUS];
        rp_cell_order_peaks(&w.cells, &w.order, peaks);
        cr_assert(eq(int, rp_cell_order_compact(&w.cells, peaks, &w.order), RP_OK));
        rp_cell_order_peaks(&w.cells, &w.order, w.peaks);
        cr_assert(le(i64, w.order.makespan_ps, makespan), "%u", i);
        uint32_t seen[8 * 2 * 12 * RP_CELL_KINDS] = {0};
        for (uint32_t gpu = 0; gpu < gpus; gpu++) {
            cr_assert(le(u32, w.peaks[gpu], peaks[gpu]), "%u, GPU %u", i, gpu);
            for (uint32_t k = w.cells.begin[gpu]; k < w.cells.begin[gpu + 1]; k++) {
                cr_assert(eq(u32, rp_cell_gpu(&w.cells, w.order.cells[k]), gpu));
                cr_assert(eq(u32, seen[w.order.cells[k]]++, 0));
            }
        }
        cr_assert(eq(int, rp_cell_order_run(&w.cells, &w.order), RP_OK));
        cr_assert(le(i64, w.order.makespan_ps, makespan), "%u: not as run", i);
        before += (double)makespan;
        after += (double)w.order.makespan_ps;
    }
    cr_expect(lt(dbl, after, 0.95 * before), "%g of %g", after, before);
}

/* ---- deferred weight parts ------------------------------------------------------------------- */

static int compare_ops(const void *left, const void *right)
{
    const rp_op *a = left;
    const rp_op *b = right;
    uint64_t x = ((uint64_t)a->kind << 48) | ((uint64_t)a->stage << 32) | a->microbatch;
    uint64_t y = ((uint64_t)b->kind << 48) | ((uint64_t)b->stage << 32) | b->microbatch;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* The set of ops and all forwards and input parts stay; the kept forwards grow by the lag. */
Test(planned, deferring_weight_parts_changes_what_is_kept_and_not_the_ops)
{
    const uint32_t gpus = 4;
    const uint32_t microbatches = 12;
    rp_test_stage_case c;
    rp_test_stage_case_make(gpus, 1, microbatches, (slow_split){2, 2, 2}, rp_test_arena, &c);
    rp_op *first = NULL;
    for (rp_test_lag = 0; rp_test_lag <= microbatches; rp_test_lag++) {
        rp_program *program = NULL;
        cr_assert(eq(int, rp_schedule_build(&rp_test_lagging, &c.config, &program, NULL), RP_OK));
        cr_assert(eq(int, rp_program_check(program), RP_OK));
        for (uint32_t g = 0; g < gpus; g++) {
            /* P - 1 - r warm-up forwards, another in turn, and those that wait for their weight
             * part */
            uint32_t kept = gpus - g + rp_test_lag;
            cr_expect(eq(u32, peak_of(program, g), kept < microbatches ? kept : microbatches),
                      "lag %u, GPU %u", rp_test_lag, g);
        }
        rp_op *ops = calloc(program->op_count, sizeof *ops);
        memcpy(ops, program->ops, program->op_count * sizeof *ops);
        qsort(ops, program->op_count, sizeof *ops, compare_ops);
        for (uint32_t i = 0; i < program->op_count && first != NULL; i++) {
            cr_assert(eq(int, compare_ops(&ops[i], &first[i]), 0), "lag %u", rp_test_lag);
        }
        cr_assert(eq(u32, program->op_count, 3 * gpus * microbatches));
        if (first == NULL) {
            first = ops;
        } else {
            free(ops);
        }
        rp_program_destroy(program);
    }
    free(first);
}

/* ---- refusals -------------------------------------------------------------------------------- */

Test(planned, times_are_needed)
{
    for (size_t pair = 0; pair < COUNT(pairs); pair++) {
        rp_test_stage_case c;
        char message[512];
        rp_test_stage_case_make(4, pairs[pair].chunks, 8, (slow_split){1, 1, 1}, rp_test_arena, &c);
        c.config.costs = NULL;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_schedule_check(rp_schedule_find(pairs[pair].name), &c.config, NULL);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE));
        cr_expect(strstr(message, pairs[pair].name) != NULL &&
                      strstr(message, "valid are runs with a cost table") != NULL,
                  "%s", message);
    }
}
