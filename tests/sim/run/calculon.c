/* Closed forms of Calculon: Isaev et al., "Calculon: a Methodology and Tool for High-Level
 * Co-Design of Systems and Large Language Models", SC 2023. With p stages in v chunks and m
 * microbatches GPUs idle for (p - 1) / (m v) of their compute time. Each microbatch crosses a
 * boundary once in each direction, with b s h elements, or a t-th per GPU of a tensor group that
 * scatters and gathers. Sums of tensor groups and copies: layouts.c, copies.c. */
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(calculon, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* Stages of equal time; transfers and steps take none. */
static void expect_bubble(const char *schedule, bool chunked, uint32_t data, uint32_t tensor,
                          uint32_t m)
{
    char line[256];
    rp_timeline *timeline = NULL;
    const int64_t forward = 3000000;
    const int64_t backward = 7000000;
    (void)snprintf(line, sizeof line,
                   "--schedule %s --model gpt:512x8x32 --platform a100-80x8 --nodes 2 "
                   "--iterations 1 --recompute none --data-parallel %u --tensor-parallel %u "
                   "--microbatches %u",
                   schedule, data, tensor, m);
    rp_test_run run = rp_test_run_line(line);
    for (uint32_t stage = 0; stage < run.program->stage_count; stage++) {
        run.costs.ps[stage * RP_OP_KIND_COUNT + RP_OP_FORWARD] = forward;
        run.costs.ps[stage * RP_OP_KIND_COUNT + RP_OP_BACKWARD] = backward;
    }
    memset(run.program->op_bytes, 0, run.program->op_count * sizeof *run.program->op_bytes);
    run.machine.copy_latency_ps = run.machine.collective_latency_ps = 0;
    run.machine.collective_hop_ps = run.machine.network_hop_ps = 0;
    cr_assert(
        eq(int, rpsim_hardware_run(run.program, &run.costs, &run.machine, &timeline, NULL), RP_OK),
        "%s", line);
    int64_t last = 0;
    for (uint32_t i = 0; i < run.program->op_count; i++) {
        last = timeline->end_ps[i] > last ? timeline->end_ps[i] : last;
    }
    uint32_t p = run.program->gpu_count;
    cr_expect(eq(u32, p, 16 / (data * tensor)));
    uint32_t v = run.program->stage_count / p;
    cr_expect(eq(int, v > 1, chunked), "%s", line);
    int64_t busy = (int64_t)m * v * (forward + backward);
    cr_expect(eq(i64, last - busy, (int64_t)(p - 1) * (forward + backward)), "%s", line);
    rp_timeline_destroy(timeline);
    rp_test_run_fini(&run);
}

Test(calculon, bubbles)
{
    static const struct {
        const char *schedule;
        bool chunked;
    } cases[] = {
        {"gpipe", false}, {"1f1b", false}, {"megatron-pp", false}, {"interleaved-1f1b", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_bubble(cases[i].schedule, cases[i].chunked, 1, 4, 8);
        expect_bubble(cases[i].schedule, cases[i].chunked, 2, 2, 16);
        expect_bubble(cases[i].schedule, cases[i].chunked, 4, 1, 12);
    }
}

static void expect_sent(const char *schedule, uint32_t tensor, bool scatters)
{
    char line[256];
    (void)snprintf(line, sizeof line,
                   "--schedule %s --model gpt:512x8x32 --platform a100-80x8 --iterations 1 "
                   "--seq-len 512 --tensor-parallel %u --microbatches 8 --microbatch-size 3",
                   schedule, tensor);
    rp_test_run run = rp_test_run_line(line);
    double boundary = 2.0 * 3 * 512 * 512;
    double crossed = 2.0 * 8 * (run.program->stage_count - 1);
    cr_expect(eq(dbl, rp_test_queue_bytes(run.program, RP_QUEUE_PEER),
                 crossed * boundary / (scatters ? tensor : 1)),
              "%s", line);
    rp_test_run_fini(&run);
}

Test(calculon, boundaries)
{
    for (uint32_t tensor = 1; tensor <= 4; tensor *= 2) {
        expect_sent("1f1b", tensor, false);
        expect_sent("interleaved-1f1b", tensor, false);
        expect_sent("megatron-pp", tensor, true);
    }
}
