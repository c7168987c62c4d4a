/* Shipped servers: data sheets, rules of moved values, runs on part of the GPUs. */
#include "common/inputs/changes.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/provenance.h"
#include "common/inputs/write/platform_write.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(servers, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

/* NVIDIA's data sheets and architecture white papers: dense fp16 with fp32 accumulation (half the
 * rate on GeForce cards), nominal bandwidth, sold memory, PCIe, both directions of NVLink together.
 */
typedef struct server {
    const char *name;
    double tflops, halved;
    double memory_gb_per_s, memory_gb;
    double link_gb_per_s;
    double nvlink_gb_per_s; /* 0: none */
    uint32_t joined;        /* by NVLink: 2 of a bridge, 0: all */
    double cores, ghz;      /* two fp32 FLOP per clock each; 0: not published */
} server;

static const server servers[] = {
    {"rtx3090x8", 71, 2, 936, 24, 32, 112.5, 2, 10496, 1.695},
    {"rtx4090x8", 165.2, 2, 1008, 24, 32, 0, 0, 16384, 2.52},
    {"rtx5090x8", 209.5, 2, 1792, 32, 64, 0, 0, 21760, 2.407},
    {"a6000x8", 154.8, 1, 768, 48, 32, 112.5, 2, 10752, 1.8},
    {"rtx6000-adax8", 364.2, 1, 960, 48, 32, 0, 0, 18176, 2.505},
    {"rtxpro6000x8", 480, 1, 1597, 96, 64, 0, 0, 0, 0},
    {"l40sx8", 362.05, 1, 864, 48, 32, 0, 0, 18176, 2.52},
    {"a100-40-pciex8", 312, 1, 1555, 40, 32, 600, 2, 6912, 1.41},
    {"a100-80-pciex8", 312, 1, 1935, 80, 32, 600, 2, 6912, 1.41},
    {"a100-40x8", 312, 1, 1555, 40, 32, 600, 0, 6912, 1.41},
    {"a100-80x8", 312, 1, 2039, 80, 32, 600, 0, 6912, 1.41},
    {"h100-pciex8", 756.5, 1, 2039, 80, 64, 600, 2, 14592, 1.755},
    {"h100x8", 989.5, 1, 3350, 80, 64, 900, 0, 16896, 1.98},
    {"h200x8", 989.5, 1, 4800, 141, 64, 900, 0, 16896, 1.98},
    {"b200x8", 2250, 1, 8000, 180, 64, 1800, 0, 18944, 1.965},
};
#define SERVERS (sizeof servers / sizeof servers[0])

static rp_platform load(const char *name)
{
    rp_platform platform;
    cr_assert(eq(int, rp_platform_load(name, rp_test_tool_arena(), &platform), RP_OK), "%s", name);
    return platform;
}

Test(servers, data_sheets)
{
    for (size_t i = 0; i < SERVERS; i++) {
        const server *s = &servers[i];
        rp_platform p = load(s->name);
        const char *name = s->name;
        cr_expect(eq(u32, p.gpus, 8), "%s", name);
        cr_expect(epsilon_eq(dbl, p.fp16_tflops_fp32_acc, s->tflops, 0.1), "%s", name);
        cr_expect(epsilon_eq(dbl, p.fp16_tflops_fp16_acc, s->halved * s->tflops, 0.5), "%s", name);
        double single = 2e-3 * s->cores * s->ghz;
        cr_expect(gt(dbl, p.fp32_tflops, 0), "%s", name);
        cr_expect(single == 0 || fabs(p.fp32_tflops / single - 1) < 0.01, "%s: %g, %g", name,
                  p.fp32_tflops, single);
        cr_expect(eq(dbl, p.memory_gb_per_s, s->memory_gb_per_s), "%s", name);
        cr_expect(eq(dbl, p.link_gb_per_s, s->link_gb_per_s), "%s", name);
        /* GiB is sold as GB except for HBM3e; ECC in ordinary memory takes a 16th. */
        cr_expect(ge(dbl, p.memory_gb, 0.99 * s->memory_gb), "%s", name);
        cr_expect(le(dbl, p.memory_gb, 1.075 * s->memory_gb), "%s", name);
        bool nvlink = p.peer_access == RP_PEER_NVLINK;
        cr_expect(eq(int, nvlink, s->nvlink_gb_per_s > 0), "%s", name);
        cr_expect(eq(dbl, nvlink ? 2 * p.peer_gb_per_s : 0, s->nvlink_gb_per_s), "%s", name);
        cr_expect(eq(u32, p.nvlink_gpus, s->joined), "%s", name);
        cr_expect(ne(ptr, (void *)p.gpu_names, NULL), "%s", name);
        cr_expect(gt(dbl, p.host_memory_gb, 0), "%s", name);
    }
}

static bool near(double value, double rule)
{
    return fabs(value / rule - 1) < 0.001;
}

/* Only the RTX 4090 was measured, and B200's memory: other rates move by the data sheets' ratios
 * and are marked as moved, so that intervals are wide. */
Test(servers, moved_rates_follow_their_rule)
{
    static const char *const moved[] = {"attention_fwd_tflops", "attention_bwd_tflops",
                                        "memory_effective_gb_per_s", "link_efficiency"};
    rp_platform from = load("rtx4090x8");
    for (size_t i = 0; i < SERVERS; i++) {
        rp_platform p = load(servers[i].name);
        double peaks = p.fp16_tflops_fp16_acc / from.fp16_tflops_fp16_acc;
        double bandwidths = p.memory_gb_per_s / from.memory_gb_per_s;
        cr_expect(near(p.attention_fwd_tflops, peaks * from.attention_fwd_tflops), "%s", p.name);
        cr_expect(near(p.attention_bwd_tflops, peaks * from.attention_bwd_tflops), "%s", p.name);
        bool memory = strcmp(p.gpu, "b200") == 0;
        cr_expect(memory || near(p.memory_effective_gb_per_s,
                                 bandwidths * from.memory_effective_gb_per_s),
                  "%s", p.name);
        for (size_t k = 0; k < sizeof moved / sizeof moved[0] && strcmp(p.gpu, from.gpu) != 0;
             k++) {
            rp_provenance kind = memory && k == 2 ? RP_MEASURED : RP_MOVED;
            cr_expect(eq(int, rp_platform_provenance(&p, moved[k]), kind), "%s: %s", p.name,
                      moved[k]);
        }
    }
}

static double tokens_per_s(const char *schedule, const char *server_name, uint32_t gpus,
                           const char *more)
{
    char line[512];
    snprintf(line, sizeof line,
             "--schedule %s --platform %s --gpus %u --model llama3.1-8b --fidelity hardware "
             "--intervals off --iterations 1 --format json %s",
             schedule, server_name, gpus, more);
    json_t *rows = rp_test_rpsim_json(line);
    double value = rp_test_json_number(json_array_get(rows, 0), "tokens_per_s");
    json_decref(rows);
    return value;
}

Test(servers, run_with_some_of_their_gpus)
{
    static const char *const schedules[] = {"roundpipe", "1f1b"};
    for (size_t i = 0; i < SERVERS; i++) {
        for (size_t s = 0; s < 2; s++) {
            double fewer = 0;
            for (uint32_t gpus = 1; gpus <= 8; gpus *= 2) {
                double more = tokens_per_s(schedules[s], servers[i].name, gpus, "");
                cr_expect(gt(dbl, more, 1.2 * fewer), "%s, %s, %u GPUs", servers[i].name,
                          schedules[s], gpus);
                fewer = more;
            }
        }
    }
}

/* Compute-bound runs follow the peaks reached by fp16 kernels; schedules that only compute on GPUs
 * show it. */
Test(servers, faster_gpus_are_faster)
{
    static const char *const ascending[] = {"rtx3090x8", "a6000x8",      "rtx4090x8",
                                            "rtx5090x8", "rtxpro6000x8", "h100-pciex8",
                                            "h100x8",    "h200x8",       "b200x8"};
    static const char *const pairs[][2] = {{"a6000x8", "a100-80x8"},
                                           {"a100-80x8", "h100x8"},
                                           {"a100-40x8", "a100-80x8"},
                                           {"a100-80-pciex8", "a100-80x8"},
                                           {"a100-40-pciex8", "a100-80-pciex8"},
                                           {"l40sx8", "rtx6000-adax8"},
                                           {"rtx6000-adax8", "rtxpro6000x8"}};
    for (size_t i = 0; i + 1 < sizeof ascending / sizeof ascending[0]; i++) {
        cr_expect(lt(dbl, tokens_per_s("1f1b", ascending[i], 8, ""),
                     tokens_per_s("1f1b", ascending[i + 1], 8, "")),
                  "%s", ascending[i]);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        cr_expect(lt(dbl, tokens_per_s("1f1b", pairs[i][0], 4, ""),
                     tokens_per_s("1f1b", pairs[i][1], 4, "")),
                  "%s, %s", pairs[i][0], pairs[i][1]);
    }
}

static double host_bytes(const char *line)
{
    json_t *rows = rp_test_rpsim_json(line);
    double bytes = rp_test_json_number(json_array_get(rows, 0), "host_memory_bytes");
    json_decref(rows);
    return bytes;
}

/* Runs take the first GPUs, which share switches as usual, and the whole host. Four of sixteen are
 * on one switch; with four switches of two, two GPUs are as fast and four faster. */
Test(servers, some_gpus_keep_their_switches_and_the_host)
{
    const char *wide = "--set platform.gpus_per_switch=2";
    const char *slow = "--set platform.gpus_per_switch=4,platform.switch_gb_per_s=16";
    cr_expect(eq(dbl, tokens_per_s("roundpipe", "rtx4090x16", 1, ""),
                 tokens_per_s("roundpipe", "rtx4090x16", 1, wide)));
    cr_expect(eq(dbl, tokens_per_s("roundpipe", "rtx4090x16", 2, ""),
                 tokens_per_s("roundpipe", "rtx4090x16", 2, wide)));
    cr_expect(lt(dbl, tokens_per_s("roundpipe", "rtx4090x16", 4, ""),
                 tokens_per_s("roundpipe", "rtx4090x16", 4, wide)));
    cr_expect(lt(dbl, tokens_per_s("roundpipe", "rtx4090x16", 2, slow),
                 tokens_per_s("roundpipe", "rtx4090x16", 2, wide)));
#define HOST                                                                                       \
    "--fidelity hardware --schedule 1f1b --model qwen3-1.7b --intervals off --iterations 1 "       \
    "--format json "
    cr_expect(eq(dbl, host_bytes(HOST "--platform rtx4090x16 --gpus 2"),
                 host_bytes(HOST "--platform rtx4090x16 --gpus 16")));
}

/* True if both have the same value; compares texts, not pointers. */
static bool is_same(const rp_config_field *field, const rp_platform *a, const rp_platform *b)
{
    const char *at = (const char *)a + field->offset;
    const char *bt = (const char *)b + field->offset;
    if (field->type == RP_CONFIG_U32) {
        return memcmp(at, bt, sizeof(uint32_t)) == 0;
    }
    if (field->type == RP_CONFIG_DOUBLE) {
        return memcmp(at, bt, sizeof(double)) == 0;
    }
    const char *texts[2];
    memcpy(&texts[0], at, sizeof texts[0]);
    memcpy(&texts[1], bt, sizeof texts[1]);
    return texts[0] == texts[1] ||
           (texts[0] != NULL && texts[1] != NULL && strcmp(texts[0], texts[1]) == 0);
}

/* rpsim --platform-out writes every platform as read, and with --set's changes. */
Test(servers, platform_out_is_the_platform)
{
    char path[512];
    snprintf(path, sizeof path, "%s/copy.yaml", rp_test_tool_folder());
    for (size_t i = 0; i < SERVERS; i++) {
        char line[640];
        snprintf(line, sizeof line, "--platform %s --platform-out %s", servers[i].name, path);
        (void)rp_test_rpsim_well(line);
        rp_platform before = load(servers[i].name);
        rp_platform after = load(path);
        cr_expect(eq(str, (char *)after.name, "copy"));
        for (size_t f = 0; f < rp_platform_schema.field_count; f++) {
            const rp_config_field *field = &rp_platform_schema.fields[f];
            bool listed = strcmp(field->table, "ORIGIN") == 0;
            if (strcmp(field->key, "name") == 0 || listed) { /* lists are in key order */
                continue;
            }
            cr_expect(is_same(field, &before, &after), "%s: %s", servers[i].name, field->key);
            cr_expect(eq(int, rp_platform_provenance(&after, field->key),
                         rp_platform_provenance(&before, field->key)),
                      "%s: %s", servers[i].name, field->key);
        }
    }
    char line[640];
    snprintf(line, sizeof line, "--platform rtx5090x8 --set platform.pcie_gen=3 --platform-out %s",
             path);
    (void)rp_test_rpsim_well(line);
    rp_platform changed = load(path);
    cr_expect(eq(str, (char *)changed.gpu, "rtx5090"));
    cr_expect(eq(dbl, changed.link_gb_per_s, 16));
}

/* An intercept of 0 is a measurement; read again, it must not count as assumed. */
Test(servers, measured_zero_is_written)
{
    char path[512];
    snprintf(path, sizeof path, "%s/zero.yaml", rp_test_tool_folder());
    rp_platform before = load("h100x8");
    before.network_hop_us = before.op_gap_us = 0;
    rp_platform_note note = {"network_hop_us", "measured: sums over the processes"};
    FILE *stream = fopen(path, "w");
    cr_assert(ne(ptr, stream, NULL));
    rp_platform_write(&before, "", &note, 1, stream);
    cr_assert(eq(int, fclose(stream), 0));
    rp_platform after = load(path);
    cr_expect(eq(dbl, after.network_hop_us, 0));
    cr_expect(eq(int, rp_platform_provenance(&after, "network_hop_us"), RP_MEASURED));
    cr_expect(eq(int, rp_platform_provenance(&after, "op_gap_us"), RP_ASSUMED));
}
