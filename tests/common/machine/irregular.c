/* Servers whose GPUs differ: bridges that join some of them, and links of their own. Closed forms;
 * the server of three GPUs and one bridge is a user's (RoundPipe's issue list). */
#include "common/machine/platform_machine.h"
#include "sim/run/memory/memory.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdio.h>

TestSuite(machine_irregular, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

static rp_platform parse(uint32_t gpus, const char *lines)
{
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "name: p\nsource: s\ngpu: g\ngpus: %u\nfp16_tflops_fp16_acc: 100\n"
                          "fp16_tflops_fp32_acc: 100\nmemory_gb_per_s: 1000\n"
                          "host_optimizer_gb_per_s: 95\n%s",
                          gpus, lines);
    rp_platform platform;
    cr_assert(eq(int, rp_platform_parse("p", text, (size_t)length, rp_test_tool_arena(), &platform),
                 RP_OK),
              "%s", lines);
    return platform;
}

#define NVLINK                                                                                     \
    "memory_gb: 48\nlink_gb_per_s: 32\nlink_efficiency: 0.5\npeer: nvlink\npeer_gb_per_s: 50\n"

/* Successive pairs of an odd number of GPUs leave the last alone; of two such servers, too. */
Test(machine_irregular, bridges)
{
    static const struct {
        uint32_t gpus;
        const char *lines;
        const char *joined; /* a letter for each GPU: equal letters are joined */
    } rows[] = {
        {3, "nvlink_gpus: 2\n", "aab"},
        {8, "nvlink_gpus: 3\n", "aaabbbcc"},
        {6, "nvlink_gpus: 2\nnodes: 2\nnetwork_gb_per_s: 10\n", "aabccd"},
        {4, "nvlink_groups: 2-3\n", "abcc"},
        {4, "nvlink_groups: 0-2 1-3\n", "abab"},
        {4, "nvlink_groups: 0-1,2-3\n", "aabb"},
        {5, "nvlink_groups: 3-0-1\n", "aabac"},
        {4, "nvlink_groups: 0-1\nnodes: 2\nnetwork_gb_per_s: 10\n", "aabb"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[256];
        snprintf(lines, sizeof lines, NVLINK "%s", rows[i].lines);
        rp_platform p = parse(rows[i].gpus, lines);
        rp_machine m = rp_machine_of(&p);
        const uint32_t *groups = NULL;
        cr_assert(eq(int, rp_machine_peer_groups(&m, rows[i].gpus, rp_test_tool_arena(), &groups),
                     RP_OK));
        cr_assert(ne(ptr, (void *)groups, NULL));
        cr_expect(not(m.peer_pcie));
        for (uint32_t a = 0; a < rows[i].gpus; a++) {
            for (uint32_t b = 0; b < rows[i].gpus; b++) {
                bool expected = rows[i].joined[a] == rows[i].joined[b];
                cr_expect(eq(int, rp_machine_joined(&m, a, b), expected), "%s%u %u", rows[i].lines,
                          a, b);
                cr_expect(eq(int, groups[a] == groups[b], expected));
            }
        }
    }
}

/* Equal successive groups are as before. */
Test(machine_irregular, regular_bridges_are_not_listed)
{
    rp_platform p = parse(4, NVLINK "nvlink_gpus: 2\n");
    rp_machine m = rp_machine_of(&p);
    cr_expect(eq(u32, m.listed, 0));
    cr_expect(eq(u32, rp_peer_gpus(&p), 2));
}

/* A collective has the rate that the file gives; where it leaves a bridge, at most that of the
 * slowest link to the host, 16 GB/s. */
Test(machine_irregular, collectives_of_all_gpus)
{
    rp_platform p = parse(4, NVLINK "nvlink_groups: 0-1\ncollective_gb_per_s: 20\n");
    rp_machine m = rp_machine_of(&p);
    cr_expect(eq(dbl, rp_machine_bus_Bps(&m, 2), 20e9));
    cr_expect(eq(dbl, rp_machine_bus_Bps(&m, 3), 16e9));
}

/* Tensor groups of two GPUs: within bridges they have the rate of parts, otherwise that of all. A
 * hop between stages uses NVLink if it joins each GPU with its successor's. */
Test(machine_irregular, groups)
{
    static const struct {
        uint32_t gpus;
        uint32_t stages;
        const char *lines;
        double tensor_Bps;
        bool hop;
    } rows[] = {
        {4, 2, "nvlink_groups: 0-1 2-3\n", 40e9, false},
        {4, 2, "nvlink_groups: 0-2 1-3\n", 9e9, true},
        {4, 2, "nvlink_groups: 0-1\n", 9e9, false},
        {4, 2, "nvlink_groups: 0-2\n", 9e9, false},
        {4, 2, "nvlink_groups: 0-1-2-3\n", 40e9, true},
        {4, 1, "nvlink_groups: 2-3\n", 9e9, false},
        {3, 1, "nvlink_gpus: 2\n", 40e9, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[256];
        snprintf(lines, sizeof lines,
                 NVLINK "collective_gb_per_s: 9\ncollective_part_gb_per_s: 40\n%s", rows[i].lines);
        rp_platform p = parse(rows[i].gpus, lines);
        rp_machine m = rp_machine_of(&p);
        const rp_layout layout = {.tensor_parallel = 2};
        cr_assert(eq(int, rp_machine_fold(&m, &layout, rows[i].stages, NULL), RP_OK));
        cr_expect(eq(dbl, m.tensor.Bps, rows[i].tensor_Bps), "%s", rows[i].lines);
        if (rows[i].stages > 1) {
            cr_expect(eq(int, rp_machine_joined(&m, 0, 1), rows[i].hop), "%s", rows[i].lines);
        }
    }
}

/* Each lane of PCIe 4 has 2 GB/s: 16 lanes have 32, 8 have 16. A list of measured rates holds
 * instead; the other keys' values are those of all. */
Test(machine_irregular, links)
{
    static const struct {
        const char *lines;
        double up_gb_per_s[3];
        double down_gb_per_s[3];
    } rows[] = {
        {"pcie_gen: 4\npcie_lanes: [16, 16, 8]\nlink_efficiency: 0.5\n", {16, 16, 8}, {16, 16, 8}},
        {"pcie_gen: 4\npcie_lanes: [4, 16, 8]\nlink_efficiency: 0.5\n", {4, 16, 8}, {4, 16, 8}},
        {"link_gb_per_s: [32, 5, 32]\nlink_efficiency: 0.5\n", {16, 2.5, 16}, {16, 2.5, 16}},
        {"link_gb_per_s: 32\nlink_effective_gb_per_s: [24, 12, 3]\n", {24, 12, 3}, {24, 12, 3}},
        {"link_gb_per_s: [32, 16, 32]\nlink_effective_gb_per_s: 10\nupload_gb_per_s: [20, 10, "
         "25]\n",
         {20, 10, 25},
         {10, 10, 10}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char lines[256];
        snprintf(lines, sizeof lines, "memory_gb: 24\npeer_gb_per_s: 0\n%s", rows[i].lines);
        rp_platform p = parse(3, lines);
        rp_machine m = rp_machine_of(&p);
        for (uint32_t gpu = 0; gpu < 3; gpu++) {
            double up_Bps = 1e9 * rows[i].up_gb_per_s[gpu];
            double down_Bps = 1e9 * rows[i].down_gb_per_s[gpu];
            cr_expect(epsilon_eq(dbl, rp_machine_upload_Bps(&m, gpu), up_Bps, 1), "%s", lines);
            cr_expect(epsilon_eq(dbl, rp_machine_download_Bps(&m, gpu), down_Bps, 1), "%s", lines);
        }
    }
}

/* 24 and 12 GiB less 1 GiB reserved; a GPU that stands for two has the smaller one's memory. */
Test(machine_irregular, memory)
{
    const double gib = 1073741824;
    const rp_traits traits = {0};
    rp_platform p = parse(4, "memory_gib: [24, 24, 12, 24]\nreserved_gib: 1\nlink_gb_per_s: 32\n"
                             "peer_gb_per_s: 0\n");
    rpsim_memory_limits limits = rpsim_memory_limits_of(&p, &traits, 4);
    for (uint32_t gpu = 0; gpu < 4; gpu++) {
        double expected = (gpu == 2 ? 11 : 23) * gib;
        cr_expect(epsilon_eq(dbl, (double)rpsim_memory_limit(&limits, gpu, 4), expected, 2));
    }
    limits.inner = 2;
    cr_expect(epsilon_eq(dbl, (double)rpsim_memory_limit(&limits, 0, 2), 23 * gib, 2));
    cr_expect(epsilon_eq(dbl, (double)rpsim_memory_limit(&limits, 1, 2), 11 * gib, 2));
    limits.inner = 1; /* GPUs 0 and 2, 1 and 3 */
    limits.outer = 2;
    cr_expect(epsilon_eq(dbl, (double)rpsim_memory_limit(&limits, 0, 2), 11 * gib, 2));
    cr_expect(epsilon_eq(dbl, (double)rpsim_memory_limit(&limits, 1, 2), 23 * gib, 2));
}
