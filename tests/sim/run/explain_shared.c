/* --explain names shared links: the slowed link is the first cause. */
#include "tests/support/assertions.h"
#include "tests/support/lowered_bench.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>

#define GPUS RP_TEST_BENCH_GPUS

TestSuite(explain_shared, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* All times scale with all speeds, so all elasticities sum to 1. */
static void check_sum(const rpsim_sensitivity *s, const char *text)
{
    double sum = s->compute + s->links + s->host + (isnan(s->peer) ? 0 : s->peer);
    for (int k = 0; k < RP_SHARED_COUNT; k++) {
        sum += isnan(s->shared[k]) ? 0 : s->shared[k];
    }
    cr_expect(lt(dbl, fabs(sum - 1.0), 0.02), "%s: %g", text, sum);
}

static void expect_cause(rp_test_bench *b, rpsim_resource_kind kind, uint32_t number,
                         bool stands_out, const char *text)
{
    rpsim_sensitivity s;
    rpsim_first_cause cause = rp_test_bench_cause(b, NULL, &s);
    cr_expect(eq(int, cause.kind, kind), "%s", text);
    cr_expect(eq(u32, cause.gpu, number), "%s", text);
    cr_expect(eq(int, cause.stands_out, stands_out), "%s: %g of %g", text, cause.elasticity,
              cause.group_elasticity);
    cr_expect(gt(dbl, cause.group_elasticity, 0.5), "%s: %g", text, cause.group_elasticity);
}

/* 50 MB take 2.5 ms over a link, a stage's forward 4 ms: links have time to spare. The common
 * uplink carries 12 boundaries per microbatch. */
Test(explain_shared, slow_uplink_of_all)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "1f1b", 16, 1, false);
    rp_test_bench_sizes(&b, 50000000, 0);
    rp_test_bench_lower(&b);
    b.machine.gpus_per_switch = GPUS;
    b.machine.switch_Bps = 2e9;
    expect_cause(&b, RPSIM_RESOURCE_SWITCH, 0, false, "one uplink");
    rpsim_sensitivity s;
    rp_test_bench_cause(&b, NULL, &s);
    check_sum(&s, "one uplink");
    for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
        cr_expect(lt(dbl, fabs(s.link_of[gpu]), 0.02), "GPU %u: %g", gpu, s.link_of[gpu]);
    }
    rp_test_bench_fini(&b);
}

/* Two busy shared resources of each kind, one 20 % slower. Weights of 2 GB per layer take 100 ms
 * over a link of 20 GB/s, but two GPUs share each uplink of 25 GB/s. */
static void slow_down_each(rp_shared kind, const rp_machine *machine)
{
    rp_test_bench b;
    rp_test_bench_make(&b, "roundpipe", 4, 8, true);
    rp_test_bench_sizes(&b, 1000000, 2000000000);
    for (uint32_t i = 0; i < RP_TEST_BENCH_LAYERS + 2; i++) {
        b.lower.sizes.parameters[i] = 0; /* no work for the host */
    }
    rp_test_bench_lower(&b);
    b.machine = *machine;
    cr_assert(eq(u32, rp_machine_shared_count(&b.machine, GPUS, kind), 2));
    for (uint32_t slow = 0; slow < 2; slow++) {
        const double scale[2] = {slow == 0 ? 0.8 : 1.0, slow == 1 ? 0.8 : 1.0};
        b.machine.shared_scale[kind] = scale;
        char text[64];
        snprintf(text, sizeof text, "kind %d, %u slow", (int)kind, slow);
        expect_cause(&b, rpsim_resource_of_shared(kind), slow, true, text);
    }
    rp_test_bench_fini(&b);
}

static const rp_machine base = {.upload_Bps = 20e9, .download_Bps = 20e9, .host_Bps = 100e9};

Test(explain_shared, slow_switch)
{
    rp_machine m = base;
    m.gpus_per_switch = 2;
    m.switch_Bps = 25e9;
    slow_down_each(RP_SHARED_SWITCH, &m);
}

Test(explain_shared, slow_root_complex)
{
    rp_machine m = base;
    m.gpus_per_switch = 1;
    m.switch_Bps = 21e9;
    m.gpus_per_root = 2;
    m.root_Bps = 25e9;
    slow_down_each(RP_SHARED_ROOT, &m);
}

/* Two sockets, each with half of the DRAM, read by two GPUs. */
Test(explain_shared, slow_dram)
{
    rp_machine m = base;
    m.sockets = 2;
    m.dram_Bps = 50e9;
    m.local_memory = true;
    slow_down_each(RP_SHARED_DRAM, &m);
}

/* Half of a node's uploads come from the other node's memory. */
Test(explain_shared, slow_network)
{
    rp_machine m = base;
    m.gpus_per_node = 2;
    m.network_Bps = 5e9;
    slow_down_each(RP_SHARED_NETWORK, &m);
}

/* Two nodes of two sockets. Half of a node's own traffic is between its sockets, but half of all
 * traffic is between nodes, so the network is wide. */
Test(explain_shared, slow_links_between_sockets)
{
    rp_machine m = base;
    m.gpus_per_node = 2;
    m.network_Bps = 500e9;
    m.sockets = 2;
    m.intersocket_Bps = 1e9;
    slow_down_each(RP_SHARED_INTERSOCKET, &m);
}
