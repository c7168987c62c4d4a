/* Every registered schedule on 1 to 16 GPUs with 1 to 64 microbatches, as its rule allows: the
 * program passes the validator, ends, does the work once and respects the bound. properties.c tests
 * more, on more machines. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/synthetic.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* Sanitized builds are ten times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEP 13u
#else
#define STEP (getenv("RP_LONG") != NULL ? 1u : 5u)
#endif

#define MOST_GPUS 16u
#define MOST_MICROBATCHES 64u
#define LAYERS 37u

TestSuite(all_sizes, .timeout = 500);

/* @return time of a microbatch without recompute; `forward_out`: its layers' forwards */
static int64_t draw_costs(rp_arena *arena, rp_costs *costs, int64_t *forward_out)
{
    rp_test_equal_costs(arena, LAYERS, 1000, 2100, costs);
    costs->head_fwd_ps = 1700;
    costs->head_bwd_ps = 3100;
    costs->hop_ps = 250;
    int64_t sum = costs->head_fwd_ps + costs->head_bwd_ps;
    *forward_out = 0;
    for (uint32_t i = 0; i < LAYERS; i++) {
        costs->fwd_ps[i] += 37 * (i % 5);
        costs->bwd_ps[i] += 91 * (i % 3);
        sum += costs->fwd_ps[i] + costs->bwd_ps[i];
        *forward_out += costs->fwd_ps[i];
    }
    return sum;
}

static void check(const rpsim_result *result, int64_t work, int64_t forward, const char *what)
{
    const rp_metrics *m = &result->metrics;
    int64_t microbatches = result->program->microbatch_count;
    bool recomputes = rp_recompute_has_ops(result->program->recompute);
    cr_assert(ge(i64, m->busy_ps, microbatches * work), "%s", what);
    cr_assert(le(i64, m->busy_ps, microbatches * (work + (recomputes ? forward : 0))), "%s", what);
    cr_assert(ge(i64, m->makespan_ps, m->lower_bound_ps), "%s", what);
    cr_assert(ge(i64, m->lower_bound_ps * result->program->gpu_count, m->busy_ps), "%s", what);
    cr_assert(eq(i64, m->bubble_ps, m->fill_ps + m->switch_ps + m->drain_ps + m->intra_ps));
}

/* Each schedule's own test knows the refused sizes; here no rule refuses most sizes. */
static void run_share(uint32_t share)
{
    const uint32_t step = STEP;
    for (uint32_t s = share; s < rp_schedule_count; s += 2) {
        uint32_t allowed = 0;
        for (uint32_t size = 0; size < MOST_GPUS * MOST_MICROBATCHES; size += step) {
            uint32_t gpus = size % MOST_GPUS + 1;
            uint32_t microbatches = size / MOST_GPUS + 1;
            rp_recompute recompute = (rp_recompute)((gpus + microbatches) % RP_RECOMPUTE_COUNT);
            char what[160];
            char message[1024];
            rp_arena *arena = NULL;
            rp_costs costs;
            rpsim_result result;
            int64_t forward = 0;
            snprintf(what, sizeof what, "%s P%u M%u, recompute %s", rp_schedules[s]->name, gpus,
                     microbatches, rp_recompute_text(recompute));
            cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
            int64_t work = draw_costs(arena, &costs, &forward);
            rp_log_capture_begin(message, sizeof message);
            rp_status status = rp_test_run_even(rp_schedules[s], &costs, gpus, microbatches, 2,
                                                recompute, arena, &result);
            rp_log_capture_end();
            cr_assert(status == RP_OK || status == RP_USAGE, "%s: %s", what, message);
            if (status == RP_OK) {
                check(&result, work, forward, what);
                rpsim_result_fini(&result);
                allowed++;
            }
            rp_arena_destroy(arena);
        }
        cr_expect(ge(u32, allowed, 150 / step), "%s is allowed %u times", rp_schedules[s]->name,
                  allowed);
    }
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}

/* Two halves, so that both cores work. */
Test(all_sizes, even_schedules)
{
    run_share(0);
}

Test(all_sizes, odd_schedules)
{
    run_share(1);
}
