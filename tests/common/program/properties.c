/* Properties of every registered schedule, including schedules added later. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <string.h>

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(properties, .init = begin, .fini = end, .timeout = 300);

typedef void (*visitor)(const rp_schedule_type *schedule, const rpsim_result *result,
                        const rp_costs *costs, const char *text);

static void awkward_costs(uint32_t layers, rp_costs *costs)
{
    rp_test_equal_costs(arena, layers, 1000, 2100, costs);
    for (uint32_t i = 0; i < layers; i++) {
        costs->fwd_ps[i] += 37 * (i % 5);
        costs->bwd_ps[i] += 91 * (i % 3);
        costs->bwd_input_ps[i] = costs->bwd_ps[i] / 2;
    }
    costs->head_fwd_ps = 1700;
    costs->head_bwd_ps = 3100;
    costs->hop_ps = 250;
}

static const uint32_t gpu_counts[] = {1, 2, 3, 4, 5, 7, 8, 12, 16};
static const uint32_t microbatch_counts[] = {1, 2, 3, 5, 8, 12, 16, 31, 32, 64};

/* Visits all schedules x GPUs x microbatches x recompute modes that the rules allow; a refusal must
 * be RP_USAGE and name the valid values. */
static void visit_all(visitor visit)
{
    rp_costs costs;
    awkward_costs(21, &costs);
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        uint32_t allowed = 0;
        for (size_t i = 0; i < sizeof gpu_counts / sizeof gpu_counts[0]; i++) {
            for (size_t k = 0; k < sizeof microbatch_counts / sizeof microbatch_counts[0]; k++) {
                rp_recompute recompute = (rp_recompute)((i + k) % RP_RECOMPUTE_COUNT);
                char text[256];
                char message[1024];
                snprintf(text, sizeof text, "%s, %u GPUs, %u microbatches, recompute %s",
                         rp_schedules[s]->name, gpu_counts[i], microbatch_counts[k],
                         rp_recompute_text(recompute));
                rpsim_result result;
                rp_log_capture_begin(message, sizeof message);
                rp_status status =
                    rp_test_run_even(rp_schedules[s], &costs, gpu_counts[i], microbatch_counts[k],
                                     2, recompute, arena, &result);
                rp_log_capture_end();
                if (status != RP_OK) {
                    cr_expect(eq(int, status, RP_USAGE), "%s: %s", text, message);
                    cr_expect(ne(ptr, strstr(message, "valid"), NULL), "%s: %s", text, message);
                    continue;
                }
                allowed++;
                visit(rp_schedules[s], &result, &costs, text);
                rpsim_result_fini(&result);
            }
        }
        cr_expect(gt(u32, allowed, 20), "%s is hardly ever allowed", rp_schedules[s]->name);
    }
}

/* All work of all microbatches and nothing else, computed from the cost table. */
static void check_work(const rp_schedule_type *schedule, const rpsim_result *result,
                       const rp_costs *costs, const char *text)
{
    const rp_program *program = result->program;
    int64_t per_microbatch = costs->head_fwd_ps + costs->head_bwd_ps;
    for (uint32_t i = 0; i < costs->layers; i++) {
        per_microbatch += costs->fwd_ps[i] + costs->bwd_ps[i];
    }
    int64_t recompute = 0;
    if (rp_recompute_has_ops(program->recompute)) {
        for (uint32_t i = 0; i < costs->layers; i++) {
            recompute += costs->fwd_ps[i];
        }
        if (schedule->separate_backward) { /* the fused stage recomputes nothing */
            const rp_stage *fused = &program->stages[program->backward_chain[0]];
            for (uint32_t i = fused->layer_begin; i < fused->layer_end; i++) {
                recompute -= costs->fwd_ps[i];
            }
        }
    }
    int64_t expected = program->microbatch_count * (per_microbatch + recompute);
    cr_expect(eq(i64, result->metrics.busy_ps, expected), "%s", text);
}

Test(properties, the_work_is_done_once)
{
    visit_all(check_work);
}

static void check_bounds(const rp_schedule_type *schedule, const rpsim_result *result,
                         const rp_costs *costs, const char *text)
{
    (void)schedule;
    (void)costs;
    const rp_metrics *m = &result->metrics;
    uint32_t gpus = result->program->gpu_count;
    cr_expect(le(i64, m->lower_bound_ps, m->makespan_ps), "%s", text);
    cr_expect(le(i64, m->busy_ps, gpus * m->lower_bound_ps), "%s: weaker than the work", text);
    cr_expect(eq(i64, m->bubble_ps, m->fill_ps + m->switch_ps + m->drain_ps + m->intra_ps));
    cr_expect(ge(i64, m->comm_exposed_ps, 0));
}

Test(properties, bound_and_parts)
{
    visit_all(check_bounds);
}

/* Ops start in turn and after all that they wait for, judged from the timeline alone. */
static void check_order(const rp_schedule_type *schedule, const rpsim_result *result,
                        const rp_costs *costs, const char *text)
{
    (void)schedule;
    const rp_program *p = result->program;
    const rp_timeline *t = result->timeline;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
            if (i > p->queues[q].op_begin) {
                cr_assert(ge(i64, t->start_ps[i], t->end_ps[i - 1]), "%s: op %u", text, i);
            }
            for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
                int64_t hop = rp_wait_is_control(p->waits[w]) ? 0 : costs->hop_ps;
                cr_assert(ge(i64, t->start_ps[i], t->end_ps[rp_wait_op(p->waits[w])] + hop),
                          "%s: op %u", text, i);
            }
        }
    }
}

Test(properties, ops_keep_their_order)
{
    visit_all(check_order);
}

static rp_status run_scaled(const rp_schedule_type *schedule, int64_t factor, rpsim_result *result)
{
    rp_costs costs;
    awkward_costs(21, &costs);
    for (uint32_t i = 0; i < costs.layers; i++) {
        costs.fwd_ps[i] *= factor;
        costs.bwd_ps[i] *= factor;
        costs.bwd_input_ps[i] *= factor;
    }
    costs.head_fwd_ps *= factor;
    costs.head_bwd_ps *= factor;
    costs.hop_ps *= factor;
    return rp_test_run_even(schedule, &costs, 4, 8, 2, schedule->default_recompute, arena, result);
}

/* Time has no unit: doubled inputs double all times. */
Test(properties, times_scale)
{
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        rpsim_result once;
        rpsim_result twice;
        cr_assert(eq(int, run_scaled(rp_schedules[s], 1, &once), RP_OK));
        cr_assert(eq(int, run_scaled(rp_schedules[s], 2, &twice), RP_OK));
        cr_expect(eq(i64, twice.metrics.makespan_ps, 2 * once.metrics.makespan_ps));
        cr_expect(eq(i64, twice.metrics.intra_ps, 2 * once.metrics.intra_ps));
        cr_expect(eq(i64, twice.metrics.lower_bound_ps, 2 * once.metrics.lower_bound_ps));
        cr_expect(eq(u64, rp_program_hash(twice.program), rp_program_hash(once.program)));
        rpsim_result_fini(&once);
        rpsim_result_fini(&twice);
    }
}

/* The even partition against an independent dynamic programme over all cuts. */
static int64_t best_maximum(const rp_costs *costs, uint32_t stages)
{
    int64_t best[33][33]; /* [stages][layers]: least maximum of the first layers, no head */
    uint32_t layers = costs->layers;
    for (uint32_t s = 0; s <= stages; s++) {
        for (uint32_t l = 0; l <= layers; l++) {
            best[s][l] = s == 0 ? (l == 0 ? 0 : INT64_MAX) : INT64_MAX;
            int64_t load = s == stages ? costs->head_fwd_ps + costs->head_bwd_ps : 0;
            for (uint32_t cut = l; s > 0; cut--) {
                int64_t maximum = best[s - 1][cut] > load ? best[s - 1][cut] : load;
                best[s][l] = maximum < best[s][l] ? maximum : best[s][l];
                if (cut == 0) {
                    break;
                }
                load += 2 * costs->fwd_ps[cut - 1] + costs->bwd_ps[cut - 1];
            }
        }
    }
    return best[stages][layers];
}

Test(properties, even_partition_has_the_least_maximum)
{
    for (uint32_t layers = 1; layers <= 24; layers++) {
        for (uint32_t stages = 1; stages <= 12; stages++) {
            rp_costs costs;
            awkward_costs(layers, &costs);
            rp_partition partition;
            cr_assert(eq(int,
                         rp_partition_even(rp_schedule_find("gpipe"), &costs, stages, stages, arena,
                                           &partition, NULL),
                         RP_OK));
            int64_t maximum = 0;
            uint32_t layer = 0;
            for (uint32_t s = 0; s < stages; s++) {
                int64_t load = s + 1 == stages ? costs.head_fwd_ps + costs.head_bwd_ps : 0;
                for (uint32_t i = 0; i < partition.forward_layers[s]; i++, layer++) {
                    load += 2 * costs.fwd_ps[layer] + costs.bwd_ps[layer];
                }
                maximum = load > maximum ? load : maximum;
            }
            cr_expect(eq(u32, layer, layers));
            cr_expect(eq(i64, maximum, best_maximum(&costs, stages)), "%u layers, %u stages",
                      layers, stages);
        }
    }
}

/* Per iteration an asynchronous run is never slower than synchronous, nor faster than its work;
 * metrics are still of an iteration. */
Test(properties, steady_state_of_iterations)
{
    rp_costs costs;
    awkward_costs(21, &costs);
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        rp_partition partition;
        const rp_schedule_type *schedule = rp_schedules[s];
        if (rp_traits_only_synchronous(&schedule->traits) != NULL) {
            continue;
        }
        cr_assert(eq(int,
                     rp_partition_even(schedule, &costs, 4, schedule->many_stages ? 8 : 0, arena,
                                       &partition, NULL),
                     RP_OK));
        rp_schedule_config config = {.gpus = 4,
                                     .microbatches = 8,
                                     .iterations = 24,
                                     .round = 4,
                                     .recompute = schedule->default_recompute,
                                     .layers = costs.layers,
                                     .partition = &partition,
                                     .costs = &costs};
        rpsim_result sync;
        rpsim_result async;
        cr_assert(eq(int, rpsim_case_run(schedule, &config, &sync, NULL), RP_OK));
        config.asynchronous = true;
        cr_assert(eq(int, rpsim_case_run(schedule, &config, &async, NULL), RP_OK));
        cr_expect(ieee_ulp_eq(dbl, sync.period_ps, (double)sync.metrics.makespan_ps, 1));
        cr_expect(le(dbl, async.period_ps, sync.period_ps), "%s", schedule->name);
        cr_expect(ge(dbl, async.period_ps * 4, (double)async.metrics.busy_ps), "%s",
                  schedule->name);
        cr_expect(eq(i64, async.metrics.makespan_ps, sync.metrics.makespan_ps));
        /* The synchronous timeline repeats: it ends after 24 makespans. */
        int64_t last = 0;
        for (uint32_t i = 0; i < sync.program->op_count; i++) {
            int64_t end_ps = sync.timeline->end_ps[i];
            last = end_ps > last ? end_ps : last;
        }
        cr_expect(eq(i64, last, 24 * sync.metrics.makespan_ps), "%s", schedule->name);
        rpsim_result_fini(&sync);
        rpsim_result_fini(&async);
    }
}
