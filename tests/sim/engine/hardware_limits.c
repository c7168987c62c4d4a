/* A run of more than the clock's 106 days is refused, whichever op takes so long. */
#include "common/base/log.h"
#include "common/timeline/metrics.h"
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(hardware_limits, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

static rp_test_bench bench;

static void make(const char *schedule)
{
    rp_test_bench_make(&bench, schedule, 4, 1, false);
    rp_test_bench_sizes(&bench, 1000000, 1000000000);
    rp_test_bench_lower(&bench);
    rp_test_bench_run(&bench); /* unchanged, it runs */
}

static void expect_refused(const char *why, const char *what)
{
    char message[256];
    rp_timeline *timeline = NULL;
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpsim_hardware_run_scaled(bench.program, &bench.costs, &bench.machine,
                                                 bench.factors, &timeline, NULL);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT), "%s", what);
    cr_expect(eq(ptr, timeline, NULL), "%s", what);
    cr_expect(strstr(message, why) != NULL, "%s: %s", what, message);
    rp_test_bench_fini(&bench);
}

static void expect_too_long(const char *what)
{
    expect_refused("longer than 106 days", what);
}

Test(hardware_limits, links)
{
    make("roundpipe");
    bench.machine.upload_Bps = 1;
    expect_too_long("uploads");
    make("roundpipe");
    bench.machine.host_Bps = 1;
    expect_too_long("host");
    make("1f1b");
    bench.machine.download_Bps = 1e-3;
    expect_too_long("boundaries");
    make("1f1b");
    bench.machine.copy_latency_ps = INT64_MAX / 4;
    expect_too_long("latency");
}

Test(hardware_limits, compute)
{
    make("1f1b");
    bench.costs.ps[RP_OP_FORWARD] = INT64_MAX / 3; /* of the first stage, four times */
    expect_too_long("an op");
    make("1f1b");
    bench.costs.memory_ps_per_byte = 1e300;
    expect_too_long("an update");
    make("1f1b");
    double factors[4096];
    cr_assert(lt(u32, bench.program->op_count, 4096u));
    for (uint32_t i = 0; i < bench.program->op_count; i++) {
        factors[i] = 1e300;
    }
    bench.factors = factors;
    expect_too_long("factors");
}

Test(hardware_limits, cloning)
{
    rp_model model = {.layers = RP_TEST_BENCH_LAYERS, .experts = 1};
    for (int64_t part = 1; part <= 100; part *= 100) {
        make("roundpipe");
        cr_assert(eq(int,
                     rpsim_dispatch_count(bench.program, &model, 1024, rp_test_tool_arena(),
                                          &bench.costs.dispatch),
                     RP_OK));
        bench.machine.module_ps = INT64_MAX / part;
        expect_too_long("cloning");
    }
}

/* The run fits the clock, but not the sum over GPUs. */
Test(hardware_limits, gpu_time)
{
    make("1f1b");
    bench.costs.ps[RP_OP_FORWARD] = INT64_MAX / 6; /* of the first stage, four times */
    rp_test_bench_run(&bench);
    char message[256];
    rp_metrics metrics = {0};
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rp_metrics_measure(bench.timeline, false, &metrics, NULL);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
    cr_expect(strstr(message, "GPU time of the run exceeds 106 days") != NULL, "%s", message);
    rp_test_bench_fini(&bench);
}

/* Programs from a file may have any number of bytes. */
Test(hardware_limits, bytes)
{
    static const rp_op_kind kinds[] = {RP_OP_UPLOAD_ACT, RP_OP_DOWNLOAD_ACT, RP_OP_OPTIMIZER};
    for (size_t k = 0; k < 3; k++) {
        make("roundpipe");
        uint32_t op = 0;
        while (bench.program->ops[op].kind != kinds[k]) {
            op++;
            cr_assert(lt(u32, op, bench.program->op_count));
        }
        bench.program->op_bytes[op] = UINT64_MAX;
        expect_refused("moves 18446744073709551615 bytes", rp_op_kind_text(kinds[k]));
    }
}

/* Counts of the largest model that files allow do not wrap. */
Test(hardware_limits, counts_of_the_largest_model)
{
    rp_stage stage = {.layer_end = RP_MAX_LAYERS, .roles = RP_STAGE_FORWARD_LAYERS};
    rp_program program = {.stage_count = 1, .stages = &stage};
    rp_model model = {.layers = RP_MAX_LAYERS, .experts = 65536, .lora_rank = 1};
    rpsim_dispatch_counts counts;
    cr_assert(eq(int, rpsim_dispatch_count(&program, &model, 1024, rp_test_tool_arena(), &counts),
                 RP_OK));
    cr_expect(eq(u32, counts.modules[0], UINT32_MAX));
    cr_expect(eq(u32, counts.launches[RP_OP_FORWARD], UINT32_MAX));
    cr_expect(eq(u32, counts.launches[RP_OP_BACKWARD], UINT32_MAX));
}
