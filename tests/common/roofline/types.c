/* Types of runs: peaks by type against white papers, tables that move and their ratios, valid types
 * in a table's file. */
#include "common/base/log.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/roofline/roofline.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(types, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 60);

static const rp_arithmetic half = {RP_DTYPE_F16, RP_ACCUMULATION_F16};
static const rp_arithmetic usual = {RP_DTYPE_F16, RP_ACCUMULATION_USUAL};
static const rp_arithmetic mixed = {RP_DTYPE_F16, RP_ACCUMULATION_F32};
static const rp_arithmetic brain = {RP_DTYPE_BF16, RP_ACCUMULATION_F32};
static const rp_arithmetic single = {RP_DTYPE_F32, RP_ACCUMULATION_F32};

static rp_platform load_platform(const char *name)
{
    rp_platform platform;
    cr_assert(eq(int, rp_platform_load(name, rp_test_tool_arena(), &platform), RP_OK), "%s", name);
    return platform;
}

static rp_model load_model(const char *name)
{
    rp_model model;
    cr_assert(eq(int, rp_model_load(name, rp_test_tool_arena(), &model), RP_OK), "%s", name);
    return model;
}

static rp_costs load_costs(const char *name)
{
    rp_costs costs;
    cr_assert(eq(int, rp_costs_load(name, rp_test_tool_arena(), &costs), RP_OK), "%s", name);
    return costs;
}

static rp_costs costs_for(const rp_costs *table, const rp_model *model, const rp_platform *platform,
                          rp_arithmetic asked)
{
    rp_costs costs;
    const rp_roof run = {platform, asked, NULL};
    cr_assert(
        eq(int, rp_costs_for_run(table, model, &run, rp_test_tool_arena(), &costs, NULL), RP_OK));
    return costs;
}

static rp_costs roofline(const rp_model *model, const rp_platform *platform, rp_arithmetic in)
{
    rp_costs costs;
    const rp_roof roof = {platform, in, NULL};
    cr_assert(eq(int, rp_roofline_costs(model, &roof, 4, 2048, rp_test_tool_arena(), &costs, NULL),
                 RP_OK));
    return costs;
}

/* NVIDIA's architecture white papers, for cards in them: TFLOP/s of tensor cores with fp16 and with
 * fp32 accumulation (bf16's too), and of fp32 without tensor cores (Ada GPU architecture, appendix
 * A; Ampere GA102, table 3; RTX Blackwell, appendix A; A100, table 1; H100, table 1). */
Test(types, white_papers)
{
    static const struct {
        const char *platform;
        double half, mixed, single;
    } papers[] = {{"rtx4090x8", 330.3, 165.2, 82.6}, {"rtx3090x8", 142, 71, 35.6},
                  {"rtx5090x8", 419, 209.5, 104.8},  {"rtx6000-adax8", 364.2, 364.2, 91.06},
                  {"a100-80x8", 312, 312, 19.5},     {"h100x8", 989.4, 989.4, 66.9}};
    for (size_t i = 0; i < sizeof papers / sizeof papers[0]; i++) {
        rp_platform p = load_platform(papers[i].platform);
        const struct {
            rp_arithmetic in;
            double tflops;
        } peaks[] = {{half, papers[i].half},
                     {mixed, papers[i].mixed},
                     {brain, papers[i].mixed},
                     {single, papers[i].single}};
        for (size_t k = 0; k < sizeof peaks / sizeof peaks[0]; k++) {
            const rp_roof roof = {&p, peaks[k].in, NULL};
            cr_expect(lt(dbl, fabs(1e-12 * rp_peak_flops_per_s(&roof) / peaks[k].tflops - 1), 2e-3),
                      "%s, %s", p.name, rp_arithmetic_text(peaks[k].in));
        }
    }
}

/* FLOP of a pass's products in a layer by its config.json: 2 per token and weight. */
static double products(const rp_model *m)
{
    double h = m->head_dim;
    double weights = m->hidden * (m->heads + 2.0 * m->kv_heads) * h + m->heads * h * m->hidden +
                     3.0 * m->hidden * m->intermediate;
    return 2 * 4 * 2048 * weights;
}

/* At half the rate only products take twice as long. A measured table moves in proportion to the
 * products' share of the roofline's time. */
Test(types, between_types_of_16_bits_products_alone_move)
{
    static const char *const names[] = {"qwen3-1.7b", "llama3.1-8b", "qwen3-32b"};
    rp_platform p = load_platform("rtx4090x8");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[64];
        rp_model model = load_model(names[i]);
        snprintf(name, sizeof name, "%s@rtx4090", names[i]);
        rp_costs table = load_costs(name);
        rp_costs fast = roofline(&model, &p, half);
        rp_costs slow = roofline(&model, &p, brain);
        double more_s = products(&model) / (0.82e12 * 330.3) * (330.3 / 165.2 - 1);
        double fwd_s = 1e-12 * (double)(slow.fwd_ps[0] - fast.fwd_ps[0]);
        double bwd_s = 1e-12 * (double)(slow.bwd_ps[0] - fast.bwd_ps[0]);
        cr_expect(lt(dbl, fabs(fwd_s / more_s - 1), 1e-6), "%s: %g %g", names[i], fwd_s, more_s);
        cr_expect(lt(dbl, fabs(bwd_s / more_s - 2), 1e-6), "%s: %g %g", names[i], bwd_s, more_s);
        rp_costs moved = costs_for(&table, &model, &p, brain);
        double share = 1e12 * more_s / (double)fast.fwd_ps[0];
        double ratio = (double)moved.fwd_ps[0] / (double)table.fwd_ps[0];
        cr_expect(lt(dbl, fabs(ratio - 1 - share), 1e-6), "%s: %g %g", names[i], ratio, share);
        ratio = (double)moved.head_bwd_ps / (double)table.head_bwd_ps;
        cr_expect(ratio > 1.5 && ratio < 2, "%s: %g", names[i], ratio); /* nearly all products */
        cr_expect(eq(i64, moved.hop_ps, table.hop_ps));
        cr_expect(eq(int, moved.kind, RP_MOVED));
        snprintf(name, sizeof name, "%s@rtx4090 (bf16)", names[i]);
        cr_expect(eq(str, (char *)(uintptr_t)moved.name, name));
    }
}

/* By table and request: the run's accumulation, and whether its times differ from the table's. */
Test(types, which_tables_move)
{
    const struct {
        const char *platform;
        rp_arithmetic table, asked, run;
        bool moves;
    } cases[] = {
        {"rtx4090x8", {RP_DTYPE_F16, RP_ACCUMULATION_F16}, usual, half, false},
        {"rtx4090x8", {RP_DTYPE_F16, RP_ACCUMULATION_F16}, half, half, false},
        {"rtx4090x8", {RP_DTYPE_F16, RP_ACCUMULATION_F16}, mixed, mixed, true},
        {"rtx4090x8", {RP_DTYPE_F16, RP_ACCUMULATION_F16}, brain, brain, true},
        {"rtx4090x8", {RP_DTYPE_F16, RP_ACCUMULATION_F16}, single, single, true},
        {"rtx4090x8", {RP_DTYPE_F16, RP_ACCUMULATION_F32}, usual, mixed, false},
        {"rtx4090x8", {RP_DTYPE_F16, RP_ACCUMULATION_F32}, brain, brain, false},
        {"rtx4090x8", {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, usual, mixed, false},
        {"rtx4090x8", {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, half, half, true},
        {"rtx4090x8", {RP_DTYPE_F32, RP_ACCUMULATION_F32}, brain, brain, true},
        {"h100x8", {RP_DTYPE_F16, RP_ACCUMULATION_F16}, brain, brain, false}, /* as fast */
        {"h100x8", {RP_DTYPE_F16, RP_ACCUMULATION_F16}, single, single, true},
        /* an older file without a type */
        {"rtx4090x8", {RP_DTYPE_F32, RP_ACCUMULATION_USUAL}, usual, half, false},
        {"rtx4090x8", {RP_DTYPE_F32, RP_ACCUMULATION_USUAL}, brain, brain, false},
        {"rtx4090x8", {RP_DTYPE_F32, RP_ACCUMULATION_USUAL}, single, single, false},
    };
    rp_model model = load_model("qwen3-1.7b");
    rp_costs table = load_costs("qwen3-1.7b@rtx4090");
    cr_expect(rp_arithmetic_equal(table.arithmetic, half)); /* sim/model.md section 1 */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_platform p = load_platform(cases[i].platform);
        table.arithmetic = cases[i].table;
        rp_costs costs = costs_for(&table, &model, &p, cases[i].asked);
        cr_expect(rp_arithmetic_equal(costs.arithmetic, cases[i].run), "%zu", i);
        cr_expect(eq(int, costs.fwd_ps[0] != table.fwd_ps[0], cases[i].moves), "%zu", i);
        cr_expect(eq(int, costs.kind == RP_MEASURED, !cases[i].moves), "%zu", i);
    }
}

/* A table that is impossibly fast moves to the time at the peak, and no lower. */
Test(types, nothing_moves_below_its_flop_at_the_peak)
{
    rp_platform p = load_platform("rtx4090x8");
    rp_model model = load_model("qwen3-1.7b");
    rp_costs table = load_costs("qwen3-1.7b@rtx4090");
    for (uint32_t i = 0; i < table.layers; i++) {
        table.fwd_ps[i] /= 1000;
        table.bwd_ps[i] /= 1000;
        table.bwd_input_ps[i] /= 1000;
    }
    rp_costs moved = costs_for(&table, &model, &p, brain);
    double attention = 2 * 4 * 2048.0 * 2048 * 16 * 128; /* half of 4 s^2 H h per sequence */
    double least_s = (products(&model) + attention) / 165.2e12;
    cr_expect(lt(dbl, fabs(1e-12 * (double)moved.fwd_ps[0] / least_s - 1), 1e-6));
    least_s = (2 * products(&model) + 2.5 * attention) / 165.2e12;
    cr_expect(lt(dbl, fabs(1e-12 * (double)moved.bwd_ps[0] / least_s - 1), 1e-6));
    cr_expect(le(i64, moved.bwd_input_ps[0], moved.bwd_ps[0]));
}

/* fp32 has no tensor cores and twice the bytes: no unit gains, and none loses more than its ratio.
 */
Test(types, fp32_lies_between_the_ratios)
{
    static const char *const platforms[] = {"rtx4090x8", "rtx3090x8", "a100-80x8", "b200x8"};
    rp_model model = load_model("llama3.1-8b");
    for (size_t i = 0; i < sizeof platforms / sizeof platforms[0]; i++) {
        rp_platform p = load_platform(platforms[i]);
        rp_costs two = roofline(&model, &p, brain);
        rp_costs four = roofline(&model, &p, single);
        double ratio = (double)four.fwd_ps[0] / (double)two.fwd_ps[0];
        double peaks = p.fp16_tflops_fp32_acc / p.fp32_tflops;
        cr_expect(ratio > 1.5 && ratio <= fmax(peaks, 2), "%s: %g, %g", p.name, ratio, peaks);
        cr_expect(lt(dbl, fabs((double)four.hop_ps / (double)two.hop_ps - 2), 1e-6), "%s", p.name);
    }
}

/* A platform without a rate in fp32 cannot run work in fp32. */
Test(types, a_platform_without_fp32)
{
    char message[512];
    rp_costs costs;
    rp_platform p = load_platform("rtx4090x8");
    rp_model model = load_model("qwen3-1.7b");
    rp_costs table = load_costs("qwen3-1.7b@rtx4090");
    const rp_roof run = {&p, single, NULL};
    p.fp32_tflops = 0;
    rp_log_capture_begin(message, sizeof message);
    cr_expect(eq(int, rp_costs_for_run(&table, &model, &run, rp_test_tool_arena(), &costs, NULL),
                 RP_INPUT));
    rp_log_capture_end();
    cr_expect(ne(ptr, strstr(message, "rtx4090x8 has no fp32_tflops"), NULL), "%s", message);
    table.arithmetic = single; /* somebody has measured it */
    cr_expect(
        eq(int, rp_costs_for_run(&table, &model, &run, rp_test_tool_arena(), &costs, NULL), RP_OK));
}
