/* Partial runs, made by searches: each part equals the whole run's. */
#include "sim/run/hardware_case.h"
#include "sim/study/study.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(hardware_case, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

static void prepare(const char *optimizer, rpsim_study *study)
{
    const char *const keys[][2] = {{"schedule", "all"},
                                   {"model", "llama3.1-8b"},
                                   {"recompute", "wait"},
                                   {"optimizer", optimizer}};
    rpsim_setup *setup = NULL;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_arena_alloc(arena, 1, sizeof *setup, &setup), RP_OK));
    *setup = (rpsim_setup){.run = RP_RUN_INIT, .quiet = true};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        rp_status status =
            rp_options_set(&rpsim_setup_keys, keys[i][0], keys[i][1], arena, setup, NULL);
        cr_assert(eq(int, status, RP_OK), "%s", keys[i][0]);
    }
    cr_assert(eq(int, rpsim_study_prepare(setup, arena, study, NULL), RP_OK));
    cr_assert(gt(u32, study->row_count, 20));
}

static rpsim_result run(const rpsim_row *row, unsigned without, uint32_t iterations)
{
    rpsim_result result;
    rp_resolved resolved = row->run;
    resolved.decided.iterations = iterations;
    cr_assert(
        eq(int, rpsim_hardware_case_run(&resolved, row->platform, without, &result, NULL), RP_OK),
        "%s", row->schedule_name);
    return result;
}

static void expect_same_memory(const rpsim_memory *a, const rpsim_memory *b, const char *name)
{
    cr_expect(eq(int, a->fits, b->fits), "%s", name);
    cr_expect(eq(u64, a->peak_host_bytes, b->peak_host_bytes), "%s", name);
    cr_assert(eq(u32, a->gpu_count, b->gpu_count));
    cr_expect(
        eq(int, memcmp(a->peak_gpu_bytes, b->peak_gpu_bytes, a->gpu_count * sizeof(uint64_t)), 0),
        "%s", name);
}

static void expect_same(const rpsim_row *row, uint32_t iterations)
{
    const char *name = row->schedule_name;
    rpsim_result whole = run(row, 0, iterations);
    rpsim_result part = run(row, RPSIM_WITHOUT_STEP | RPSIM_WITHOUT_CHECK, iterations);
    bool unknown = isnan(whole.period_ps) && isnan(part.period_ps);
    cr_expect(unknown || whole.period_ps == part.period_ps, "%s", name);
    cr_expect(eq(u64, rp_timeline_hash(whole.timeline), rp_timeline_hash(part.timeline)), "%s",
              name);
    cr_expect(eq(u64, rp_program_hash(whole.program), rp_program_hash(part.program)), "%s", name);
    expect_same_memory(&whole.memory, &part.memory, name);
    cr_expect(gt(i64, whole.metrics.lower_bound_ps, 0), "%s", name);
    cr_expect(eq(i64, part.metrics.lower_bound_ps, 0), "%s", name);
    cr_expect(eq(i64, part.metrics.makespan_ps, rp_metrics_makespan_ps(part.timeline)), "%s", name);
    rpsim_result_fini(&whole);
    rpsim_result_fini(&part);
}

Test(hardware_case, parts_that_are_left_out_change_no_other)
{
    static const char *const optimizers[] = {"sync", "async"};
    for (int i = 0; i < 2; i++) {
        rpsim_study study;
        prepare(optimizers[i], &study);
        for (uint32_t k = 0; k < study.row_count; k++) {
            expect_same(&study.rows[k], 3);
            expect_same(&study.rows[k], 1);
        }
        rpsim_study_fini(&study);
    }
}

/* Two iterations suffice for a search's synchronous run: the second is as long as all later
 * iterations, and holds as much. */
Test(hardware_case, synchronous_runs_repeat_themselves)
{
    rpsim_study study;
    prepare("sync", &study);
    for (uint32_t i = 0; i < study.row_count; i++) {
        const rpsim_row *row = &study.rows[i];
        rpsim_result many = run(row, RPSIM_WITHOUT_STEP, RP_STEADY_ITERATIONS);
        rpsim_result few = run(row, RPSIM_WITHOUT_STEP, 2);
        cr_expect(many.period_ps == few.period_ps, "%s: %.0f and %.0f ps", row->schedule_name,
                  many.period_ps, few.period_ps);
        expect_same_memory(&many.memory, &few.memory, row->schedule_name);
        rpsim_result_fini(&many);
        rpsim_result_fini(&few);
    }
    rpsim_study_fini(&study);
}
