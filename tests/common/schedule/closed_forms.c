/* Closed forms in the literature, on equal stages without hops. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

TestSuite(closed_forms, .init = rp_test_arena_begin, .fini = rp_test_arena_end);

static rp_metrics run(const char *name, const rp_costs *costs, uint32_t gpus, uint32_t microbatches,
                      uint32_t chunks)
{
    rpsim_result result;
    cr_assert(eq(int,
                 rp_test_run_even(rp_schedule_find(name), costs, gpus, microbatches, chunks,
                                  RP_RECOMPUTE_NONE, rp_test_arena, &result),
                 RP_OK));
    rp_metrics metrics = result.metrics;
    rpsim_result_fini(&result);
    return metrics;
}

/* GPipe (Huang et al. 2019, section 2.3) and 1F1B: a share (p - 1) / (m + p - 1) of GPU time is
 * bubble, whatever the ratio of backward to forward. In integers: bubble (m + p - 1) = (p - 1) GPU
 * time. */
Test(closed_forms, gpipe_and_1f1b_bubble)
{
    static const char *const names[] = {"gpipe", "1f1b"};
    for (uint32_t p = 1; p <= 17; p += 2) {
        for (uint32_t m = p; m <= 5 * p; m += p + 1) {
            rp_costs costs;
            rp_test_equal_costs(rp_test_arena, p, 7, 19, &costs);
            for (size_t i = 0; i < 2; i++) {
                rp_metrics metrics = run(names[i], &costs, p, m, 1);
                int64_t gpu_time = p * metrics.makespan_ps;
                cr_expect(eq(i64, metrics.makespan_ps, (m + p - 1) * INT64_C(26)));
                cr_expect(eq(i64, metrics.bubble_ps * (m + p - 1), (p - 1) * gpu_time),
                          "%s p %u m %u", names[i], p, m);
            }
        }
    }
}

/* Interleaved 1F1B (Narayanan et al. 2021, section 2.2.2): v chunks divide the bubble by v,
 * makespan = (m + (p - 1) / v)(F + B); m a multiple of p. */
Test(closed_forms, interleaved_bubble_shrinks_by_chunks)
{
    for (uint32_t p = 2; p <= 8; p++) {
        for (uint32_t v = 1; v <= 4; v++) {
            for (uint32_t groups = 1; groups <= 4; groups++) {
                rp_costs costs;
                rp_test_equal_costs(rp_test_arena, p * v, 12, 24, &costs);
                uint32_t m = groups * p;
                rp_metrics metrics = run("interleaved-1f1b", &costs, p, m, v);
                cr_expect(eq(i64, metrics.makespan_ps, (v * m + p - 1) * INT64_C(36)),
                          "p %u v %u m %u", p, v, m);
            }
        }
    }
}

Test(closed_forms, one_gpu_never_idles)
{
    rp_costs costs;
    rp_test_equal_costs(rp_test_arena, 6, 5, 11, &costs);
    costs.head_fwd_ps = 3;
    costs.head_bwd_ps = 4;
    costs.hop_ps = 1000;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        for (uint32_t m = 2; m < 8; m++) {
            rp_metrics metrics = run(rp_schedules[i]->name, &costs, 1, m, 3);
            cr_expect(eq(i64, metrics.makespan_ps, m * INT64_C(103)), "%s", rp_schedules[i]->name);
            cr_expect(eq(i64, metrics.bubble_ps, 0));
            cr_expect(eq(i64, metrics.comm_total_ps, 0));
            cr_expect(eq(i64, metrics.lower_bound_ps, metrics.makespan_ps));
        }
    }
}

/* A single microbatch overlaps nothing: the makespan is the chain with its 2 (p - 1) hops, and the
 * rest is bubble. */
Test(closed_forms, one_microbatch_is_the_chain)
{
    static const char *const names[] = {"gpipe", "1f1b", "looped-bfs"};
    for (uint32_t p = 2; p <= 9; p++) {
        rp_costs costs;
        rp_test_equal_costs(rp_test_arena, p, 10, 20, &costs);
        costs.hop_ps = 3;
        for (size_t i = 0; i < 3; i++) {
            rp_metrics metrics = run(names[i], &costs, p, 1, 1);
            int64_t chain = p * INT64_C(30) + 2 * (p - 1) * INT64_C(3);
            cr_expect(eq(i64, metrics.makespan_ps, chain), "%s p %u", names[i], p);
            cr_expect(eq(i64, metrics.bubble_ps, p * chain - p * INT64_C(30)));
            cr_expect(eq(i64, metrics.comm_exposed_ps, 2 * (p - 1) * INT64_C(3)));
            cr_expect(eq(i64, metrics.lower_bound_ps, chain));
        }
    }
}

/* Peak activations of schedules.md 8, in stages: 1F1B keeps P microbatches on its first rank, GPipe
 * all M; interleaved (V = 2) 5.5 and 11.5 for P 4 and 8, that is 11 and 23 chunks of half a stage.
 */
static uint32_t peak_buffers(const rpsim_result *result)
{
    const rp_program *program = result->program;
    uint32_t peak = 0;
    for (uint32_t a = 0; a < program->buffer_count; a++) {
        const rp_buffer *at = &program->buffers[a];
        int64_t now = result->timeline->start_ps[at->alloc_op];
        uint32_t live = 0;
        for (uint32_t b = 0; b < program->buffer_count; b++) {
            const rp_buffer *other = &program->buffers[b];
            live += other->place == at->place &&
                            result->timeline->start_ps[other->alloc_op] <= now &&
                            result->timeline->end_ps[other->free_op] > now
                        ? 1
                        : 0;
        }
        peak = live > peak ? live : peak;
    }
    return peak;
}

Test(closed_forms, peak_activations)
{
    static const struct {
        const char *name;
        uint32_t gpus, microbatches, chunks, peak;
    } rows[] = {
        {"1f1b", 4, 8, 1, 4},
        {"1f1b", 8, 16, 1, 8},
        {"1f1b", 6, 18, 1, 6},
        {"1f1b", 3, 9, 1, 3},
        {"gpipe", 4, 8, 1, 8},
        {"interleaved-1f1b", 4, 8, 2, 11},
        {"interleaved-1f1b", 8, 16, 2, 23},
        {"interleaved-1f1b", 8, 24, 2, 23},
        {"interleaved-1f1b", 6, 18, 2, 17},
        {"interleaved-1f1b", 3, 9, 2, 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rp_costs costs;
        rp_test_equal_costs(rp_test_arena, rows[i].gpus * rows[i].chunks, 1, 2, &costs);
        rpsim_result result;
        cr_assert(eq(int,
                     rp_test_run_even(rp_schedule_find(rows[i].name), &costs, rows[i].gpus,
                                      rows[i].microbatches, rows[i].chunks, RP_RECOMPUTE_NONE,
                                      rp_test_arena, &result),
                     RP_OK));
        cr_expect(eq(u32, peak_buffers(&result), rows[i].peak), "%s P%u M%u", rows[i].name,
                  rows[i].gpus, rows[i].microbatches);
        rpsim_result_fini(&result);
    }
}
