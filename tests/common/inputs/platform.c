/* A platform's keys of links and topology, their defaults, and the resulting machine. */
#include "common/inputs/changes.h"
#include "common/inputs/load/platforms.h"
#include "common/machine/platform_machine.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(platform, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

static rp_platform parse(const char *lines)
{
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "name: p\nsource: s\ngpu: g\ngpus: 8\nfp16_tflops_fp16_acc: 100\n"
                          "fp16_tflops_fp32_acc: 100\nmemory_gb: 24\nmemory_gb_per_s: 1000\n"
                          "attention_fwd_tflops: 50\nattention_bwd_tflops: 50\n"
                          "memory_effective_gb_per_s: 900\n%s",
                          lines);
    rp_platform platform;
    cr_assert(eq(int, rp_platform_parse("p", text, (size_t)length, rp_test_tool_arena(), &platform),
                 RP_OK),
              "%s", lines);
    return platform;
}

/* 8, 16 and 32 GT/s per lane, a bit each: 1, 2 and 4 GB/s per lane and direction. */
Test(platform, pcie_generations)
{
    for (uint32_t gen = 3; gen <= 5; gen++) {
        for (uint32_t lanes = 1; lanes <= 16; lanes *= 2) {
            char text[128];
            snprintf(text, sizeof text,
                     "pcie_gen: %u\npcie_lanes: %u\npeer_gb_per_s: 0\nlink_efficiency: 0.75\n", gen,
                     lanes);
            rp_platform p = parse(text);
            double nominal = (double)(1u << (gen - 3)) * lanes;
            cr_expect(eq(dbl, p.link_gb_per_s, nominal));
            cr_expect(eq(dbl, rp_link_bytes_per_s(&p), 0.75e9 * nominal));
        }
    }
    rp_platform p = parse("pcie_gen: 4\npeer_gb_per_s: 0\nlink_effective_gb_per_s: 20.97\n");
    cr_expect(eq(dbl, p.link_gb_per_s, 32));
    cr_expect(eq(dbl, rp_link_bytes_per_s(&p), 1e9 * 20.97));
}

#define CARD_GB (24564 * 1.048576e-3) /* MiB of an RTX 4090 */

/* 1 GiB = 1.073741824 GB; changing either key replaces both. */
Test(platform, memory_in_either_unit)
{
    rp_platform p = parse("link_gb_per_s: 32\npeer_gb_per_s: 0\nhost_memory_gib: 1024\n");
    cr_expect(eq(dbl, p.memory_gb, 24));
    cr_expect(epsilon_eq(dbl, p.host_memory_gb, 1099.511627776, 1e-9));
    rp_arena *arena = rp_test_tool_arena();
    static const struct {
        const char *change;
        double gb;
        double host_gb;
    } rows[] = {{"platform.memory_gib=24", 24 * 1.073741824, 800},
                {"platform.memory_gb=25", 25, 800},
                {"platform.memory_gib*2", 2 * CARD_GB, 800},
                {"platform.memory_gb*2", 2 * CARD_GB, 800},
                {"platform.host_memory_gib=100", CARD_GB, 107.3741824},
                {"platform.host_memory_gib*0.5", CARD_GB, 400},
                {"platform.host_memory_gb*0.5", CARD_GB, 400}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rp_changes changes = {0};
        cr_assert(eq(int, rp_changes_add("set", rows[i].change, arena, &changes, NULL), RP_OK));
        cr_assert(eq(int, rp_platform_load_changed("rtx4090x8", &changes, arena, &p, NULL), RP_OK));
        cr_expect(epsilon_eq(dbl, p.memory_gb, rows[i].gb, 1e-9), "%s", rows[i].change);
        cr_expect(epsilon_eq(dbl, p.host_memory_gb, rows[i].host_gb, 1e-9), "%s", rows[i].change);
    }
}

/* Rates by direction precede the rate of both. */
Test(platform, links_by_direction)
{
    rp_platform p = parse("link_gb_per_s: 64\npeer_gb_per_s: 0\nlink_effective_gb_per_s: 50\n"
                          "download_gb_per_s: 45\ncopy_latency_us: 7.5\nop_gap_us: 2\n"
                          "op_wake_us: 30\nduplex_efficiency: 0.85\n");
    rp_machine m = rp_machine_of(&p);
    cr_expect(eq(dbl, m.upload_Bps, 50e9));
    cr_expect(eq(dbl, m.download_Bps, 45e9));
    cr_expect(eq(i64, m.copy_latency_ps, 7500000));
    cr_expect(eq(i64, m.op_gap_ps, 2000000));
    cr_expect(eq(i64, m.op_wake_ps, 30000000));
    cr_expect(eq(dbl, m.duplex, 0.85));
    p = parse("link_gb_per_s: 64\npeer_gb_per_s: 0\nlink_efficiency: 0.75\nupload_gb_per_s: 55\n");
    m = rp_machine_of(&p);
    cr_expect(eq(dbl, m.upload_Bps, 55e9));
    cr_expect(eq(dbl, m.download_Bps, 48e9));
    cr_expect(eq(i64, m.copy_latency_ps + m.op_gap_ps + m.op_wake_ps, 0));
}

#define LINK "link_gb_per_s: 32\nlink_efficiency: 0.75\n"

/* Each kind of host work has its own rate or the common rate. */
Test(platform, rates_of_host_work)
{
    rp_platform p = parse(LINK "peer_gb_per_s: 0\nhost_optimizer_gb_per_s: 95\n"
                               "host_adam_gb_per_s: 160\nhost_refresh_gb_per_s: 36\n");
    rp_machine m = rp_machine_of(&p);
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_OPTIMIZER), 160e9));
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_REFRESH), 36e9));
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_COLLECT), 95e9));
    p = parse(LINK "peer_gb_per_s: 0\nhost_optimizer_gb_per_s: 95\nhost_collect_gb_per_s: 50\n");
    m = rp_machine_of(&p);
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_OPTIMIZER), 95e9));
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_REFRESH), 95e9));
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_COLLECT), 50e9));
    p = parse(LINK "peer_gb_per_s: 0\noptimizer_threads: 10\noptimizer_thread_gb_per_s: 5\n"
                   "host_adam_gb_per_s: 160\nhost_refresh_gb_per_s: 36\n");
    m = rp_machine_of(&p); /* a pool of 50 GB/s */
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_OPTIMIZER), 50e9));
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_REFRESH), 36e9));
    cr_expect(eq(dbl, rp_machine_host_Bps(&m, RP_OP_COLLECT), 50e9));
}

Test(platform, what_is_absent_limits_nothing)
{
    rp_platform p = parse(LINK "peer_gb_per_s: 0\nhost_optimizer_gb_per_s: 95\n");
    rp_machine m = rp_machine_of(&p);
    for (int kind = 0; kind < RP_SHARED_COUNT; kind++) {
        cr_expect(eq(u32, rp_machine_shared_count(&m, 8, (rp_shared)kind), 0));
    }
    cr_expect(eq(dbl, m.host_Bps, 95e9));
    cr_expect(eq(dbl, m.peer_Bps, 0));
}

Test(platform, counts_of_shared_links)
{
    rp_platform p = parse(LINK "peer_gb_per_s: 0\nhost_optimizer_gb_per_s: 95\nnodes: 2\n"
                               "network_gb_per_s: 12.5\nsockets: 2\nintersocket_gb_per_s: 40\n"
                               "gpus_per_switch: 1\nswitch_gb_per_s: 32\ngpus_per_root: 2\n"
                               "root_gb_per_s: 48\nhost_dram_gb_per_s: 200\n");
    rp_machine m = rp_machine_of(&p);
    const uint32_t of_8[RP_SHARED_COUNT] = {8, 4, 2, 4, 2};
    const uint32_t of_4[RP_SHARED_COUNT] = {4, 2, 1, 2, 0};
    for (int kind = 0; kind < RP_SHARED_COUNT; kind++) {
        cr_expect(eq(u32, rp_machine_shared_count(&m, 8, (rp_shared)kind), of_8[kind]));
        cr_expect(eq(u32, rp_machine_shared_count(&m, 4, (rp_shared)kind), of_4[kind]));
    }
    cr_expect(eq(dbl, m.switch_Bps, 24e9)); /* as efficient as the link */
    cr_expect(eq(dbl, m.root_Bps, 36e9));
    cr_expect(eq(dbl, m.network_Bps, 12.5e9));
}

/* Host work runs at threads x rate per thread, up to the limit for all. */
Test(platform, optimizer_threads)
{
    static const struct {
        const char *text;
        double expected_Bps;
    } rows[] = {
        {"optimizer_threads: 10\noptimizer_thread_gb_per_s: 2.5\n", 25e9},
        {"optimizer_threads: 10\noptimizer_thread_gb_per_s: 2.5\nhost_optimizer_gb_per_s: 95\n",
         25e9},
        {"optimizer_threads: 56\noptimizer_thread_gb_per_s: 2.5\nhost_optimizer_gb_per_s: 95\n",
         95e9},
        {"host_optimizer_gb_per_s: 95\n", 95e9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, LINK "peer_gb_per_s: 0\n%s", rows[i].text);
        rp_platform p = parse(text);
        cr_expect(eq(dbl, rp_machine_of(&p).host_Bps, rows[i].expected_Bps), "%s", rows[i].text);
    }
}

/* none: no ports; pcie: ports, no NVLink; nvlink: all GPUs of a node, or groups. */
Test(platform, peers)
{
    static const struct {
        const char *text;
        double peer_Bps;
        uint32_t nvlink_gpus;
        bool pcie;
    } rows[] = {
        {"peer_gb_per_s: 0\npeer: none\n", 0, 0, false},
        {"peer_gb_per_s: 0\n", 0, 0, false},
        {"peer_gb_per_s: 32\npeer: pcie\n", 24e9, 0, true},
        {"peer_gb_per_s: 400\npeer: nvlink\n", 300e9, 8, true},
        {"peer_gb_per_s: 400\n", 300e9, 8, true},
        {"peer_gb_per_s: 400\nnodes: 2\nnetwork_gb_per_s: 40\n", 300e9, 4, true},
        {"peer_gb_per_s: 56\nnvlink_gpus: 2\n", 42e9, 2, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, LINK "host_optimizer_gb_per_s: 95\n%s", rows[i].text);
        rp_platform p = parse(text);
        rp_machine m = rp_machine_of(&p);
        cr_expect(epsilon_eq(dbl, m.peer_Bps, rows[i].peer_Bps, 1), "%s", rows[i].text);
        cr_expect(eq(u32, m.nvlink_gpus, rows[i].nvlink_gpus), "%s", rows[i].text);
        cr_expect(eq(int, m.peer_pcie, rows[i].pcie), "%s", rows[i].text);
    }
}
