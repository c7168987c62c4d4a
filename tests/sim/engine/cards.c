/* GPUs of different speeds: pipelines by hand, and the time of each op. */
#include "sim/run/card_factors.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>

TestSuite(cards, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

#define MICROBATCHES 12u
#define FORWARD_PS INT64_C(4000000000)   /* a stage of four layers */
#define BACKWARD_PS INT64_C(12000000000) /* with its recompute */

static int64_t compute_end(const rp_timeline *timeline)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < timeline->program->op_count; i++) {
        bool compute =
            rp_op_kind_class((rp_op_kind)timeline->program->ops[i].kind) == RP_CLASS_COMPUTE;
        last = compute && timeline->end_ps[i] > last ? timeline->end_ps[i] : last;
    }
    return last;
}

static int64_t span_with(const char *schedule, const rpsim_gpu_factor *factors)
{
    rp_test_bench b;
    rp_test_bench_make(&b, schedule, MICROBATCHES, 1, false);
    rp_test_bench_sizes(&b, 0, 0);
    rp_test_bench_lower(&b);
    b.costs.gpu_factor = factors;
    (void)rp_test_bench_run(&b);
    int64_t span = compute_end(b.timeline);
    rp_test_bench_fini(&b);
    return span;
}

/* Without transfers. The slow stage never waits once it has begun: before it the first microbatch's
 * forwards pass the stages above, after it the last one's backwards. */
Test(cards, slow_last_stage_by_hand)
{
    static const rpsim_gpu_factor last[] = {{1, 1}, {1, 1}, {1, 1}, {2, 2}};
    static const rpsim_gpu_factor all[] = {{2, 2}, {2, 2}, {2, 2}, {2, 2}};
    int64_t unit = FORWARD_PS + BACKWARD_PS;
    for (int i = 0; i < 2; i++) {
        const char *schedule = i == 0 ? "1f1b" : "gpipe";
        cr_expect(eq(i64, span_with(schedule, NULL), (MICROBATCHES + 3) * unit));
        cr_expect(eq(i64, span_with(schedule, last), 3 * unit + MICROBATCHES * 2 * unit), "%s",
                  schedule);
        cr_expect(eq(i64, span_with(schedule, all), (MICROBATCHES + 3) * 2 * unit));
    }
}

/* GPipe's slow first stage: all its forwards, the last one's forwards and backwards below, and all
 * its backwards; the slow backwards hide the others'. */
Test(cards, slow_first_stage_of_gpipe_by_hand)
{
    static const rpsim_gpu_factor first[] = {{2, 2}, {1, 1}, {1, 1}, {1, 1}};
    int64_t unit = FORWARD_PS + BACKWARD_PS;
    int64_t span = span_with("gpipe", first);
    /* The last stage runs all backwards, one after the other, from the end of its last forward. The
     * first backward reaches the slow stage after 3 of them; those of the slow stage then follow.
     */
    int64_t forwards = MICROBATCHES * 2 * FORWARD_PS + 3 * FORWARD_PS;
    cr_expect(eq(i64, span, forwards + 3 * BACKWARD_PS + MICROBATCHES * 2 * BACKWARD_PS));
    cr_expect(eq(i64, span, MICROBATCHES * 2 * unit + 3 * unit));
}

/* Each op takes its time on one GPU for all, times the factor of its GPU; updates have their own.
 */
Test(cards, every_op_has_its_factor)
{
    static const rpsim_gpu_factor factors[] = {{1, 1}, {1.5, 0.75}, {3, 2}, {1, 1}};
    static const char *const schedules[] = {"1f1b", "zb-h1", "roundpipe", "interleaved-1f1b"};
    for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++) {
        rp_test_bench b;
        rp_test_bench_make(&b, schedules[k], 8, 1, false);
        rp_test_bench_sizes(&b, 1000, 1000000);
        rp_test_bench_lower(&b);
        const rp_program *p = b.program;
        int64_t *plain = NULL;
        int64_t least = 0;
        uint32_t seen = 0;
        cr_assert(eq(int, rp_arena_alloc(rp_test_tool_arena(), p->op_count, sizeof *plain, &plain),
                     RP_OK));
        for (uint32_t i = 0; i < p->op_count; i++) {
            bool compute = rp_op_kind_class((rp_op_kind)p->ops[i].kind) == RP_CLASS_COMPUTE;
            plain[i] = compute ? rpsim_op_ps(&b.costs, p, i) : 0;
        }
        b.costs.gpu_factor = factors;
        (void)rp_test_bench_run(&b);
        for (uint32_t q = 0; q < p->queue_count; q++) {
            const rpsim_gpu_factor *f = &factors[p->queues[q].gpu];
            for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
                bool compute = p->queues[q].kind == RP_QUEUE_COMPUTE;
                bool pass = rp_op_kind_is_pass((rp_op_kind)p->ops[i].kind);
                double factor = pass ? f->pass : f->update;
                int64_t took = b.timeline->end_ps[i] - b.timeline->start_ps[i];
                if (compute) {
                    cr_expect(epsilon_eq(dbl, (double)took, factor * (double)plain[i], 1), "%s %u",
                              schedules[k], i);
                    least += pass ? plain[i] : rp_round_ps(0.75 * (double)plain[i]);
                    seen += factor != 1;
                }
            }
        }
        cr_expect(gt(u32, seen, 8));
        cr_expect(epsilon_eq(dbl, (double)rpsim_card_least_ps(p, &b.costs), (double)least, 64));
        rp_test_bench_fini(&b);
    }
}
