/* The roofline: FLOP and bytes against the design's tables, bounds, order, moved tables, LoRA;
 * every model on every platform. */
#include "common/roofline/roofline.h"
#include "common/base/log.h"
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/sizes.h"
#include "sim/engine/layer_costs.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static rp_arena *arena;

static void begin(void)
{
    rp_test_tool_begin();
    arena = rp_test_tool_arena();
}

TestSuite(roofline, .init = begin, .fini = rp_test_tool_end, .timeout = 1200);

static rp_model load_model(const char *name)
{
    rp_model model;
    cr_assert(eq(int, rp_model_load(name, arena, &model), RP_OK), "%s", name);
    return model;
}

static rp_platform load_platform(const char *name)
{
    rp_platform platform;
    cr_assert(eq(int, rp_platform_load(name, arena, &platform), RP_OK), "%s", name);
    return platform;
}

static rp_costs load_costs(const char *name)
{
    rp_costs costs;
    cr_assert(eq(int, rp_costs_load(name, arena, &costs), RP_OK), "%s", name);
    return costs;
}

static rp_costs find_costs(const rp_model *model, const rp_platform *platform, uint32_t sequences,
                           uint32_t seq_len)
{
    rp_costs costs;
    const rp_roof roof = {platform, {RP_DTYPE_F16, RP_ACCUMULATION_USUAL}, NULL};
    cr_assert(eq(int, rp_find_costs(model, &roof, sequences, seq_len, arena, &costs, NULL), RP_OK));
    return costs;
}

/* Like measured tables, products sum in fp16. */
static rp_costs roofline_costs(const rp_model *model, const rp_platform *platform, uint32_t count,
                               uint32_t seq_len)
{
    rp_costs costs;
    const rp_roof on = {platform, {RP_DTYPE_F16, RP_ACCUMULATION_F16}, NULL};
    cr_assert(eq(int, rp_roofline_costs(model, &on, count, seq_len, arena, &costs, NULL), RP_OK));
    return costs;
}

/* TFLOP of matrix products and attention, as in the design's table. */
static double tflop(const rp_operator *operators, uint32_t count, bool backward)
{
    double flops = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rp_pass_work *w = operators[i].work;
        bool counted = operators[i].unit != RP_UNIT_VECTOR;
        double of = backward ? w[RP_PASS_BACKWARD_INPUT].flops + w[RP_PASS_BACKWARD_WEIGHT].flops
                             : w[RP_PASS_FORWARD].flops;
        flops += counted ? of : 0;
    }
    return flops * 1e-12;
}

/* The formulas of executor.md 4.2 and 5, for B = 4, S = 2048. */
static const struct {
    const char *model;
    double fwd, bwd, head_fwd; /* TFLOP */
    double boundary, weights;  /* MiB */
} design[] = {
    {"qwen3-0.6b", 0.326, 0.687, 2.549, 16, 30},   {"qwen3-1.7b", 0.893, 1.821, 5.098, 32, 96},
    {"qwen3-8b", 3.299, 6.666, 10.196, 64, 368},   {"llama3.1-8b", 3.711, 7.490, 8.607, 64, 416},
    {"qwen3-32b", 8.264, 16.664, 12.745, 80, 930},
};

Test(roofline, flop_and_bytes_of_the_design)
{
    for (size_t i = 0; i < sizeof design / sizeof *design; i++) {
        rp_model model = load_model(design[i].model);
        rp_operator ops[RP_MAX_OPERATORS];
        uint32_t count = rp_layer_operators(&model, 1, 4, 2048, ops);
        cr_expect(lt(dbl, fabs(tflop(ops, count, false) - design[i].fwd), 0.00051), "%s",
                  design[i].model);
        cr_expect(lt(dbl, fabs(tflop(ops, count, true) - design[i].bwd), 0.00051), "%s",
                  design[i].model);
        count = rp_head_operators(&model, 4, 2048, ops);
        cr_expect(lt(dbl, fabs(tflop(ops, count, false) - design[i].head_fwd), 0.00051));
        cr_expect(epsilon_eq(dbl, tflop(ops, count, true), 2 * design[i].head_fwd, 0.0011));
        cr_expect(eq(dbl, rp_boundary_bytes(&model, 4, 2048) / 1048576, design[i].boundary));
        rp_sizes sizes;
        cr_assert(eq(int, rp_sizes_of_model(&model, 2048, RP_DTYPE_F16, arena, &sizes), RP_OK));
        cr_expect(lt(dbl, fabs((double)sizes.weight_bytes[1] / 1048576 - design[i].weights), 0.51));
    }
}

/* Main bytes (executor.md section 5) for a block of qwen3-1.7b: T = 8192, d = 2048, Hh = 2048, Kh =
 * 1024, f = 6144. */
Test(roofline, main_bytes_of_every_operator)
{
    static const struct {
        const char *name;
        double bytes;
    } expected[] = {
        {"norms", 2 * 4.0 * 8192 * 2048},
        {"q", 2.0 * (8192.0 * 2048 + 2048.0 * 2048 + 8192.0 * 2048)},
        {"k", 2.0 * (8192.0 * 2048 + 2048.0 * 1024 + 8192.0 * 1024)},
        {"QK-norm", 4.0 * 8192 * 3072},
        {"RoPE", 4.0 * 8192 * 3072},
        {"attention", 2.0 * 8192 * (2 * 2048 + 2 * 1024)},
        {"up", 2.0 * (8192.0 * 2048 + 2048.0 * 6144 + 8192.0 * 6144)},
        {"SwiGLU", 6.0 * 8192 * 6144},
        {"residuals", 2 * 6.0 * 8192 * 2048},
    };
    rp_model model = load_model("qwen3-1.7b");
    rp_operator ops[RP_MAX_OPERATORS];
    uint32_t count = rp_layer_operators(&model, 0, 4, 2048, ops);
    uint32_t found = 0;
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++) {
        for (uint32_t i = 0; i < count; i++) {
            if (strcmp(ops[i].name, expected[e].name) == 0) {
                cr_expect(eq(dbl, ops[i].work[RP_PASS_FORWARD].bytes, expected[e].bytes), "%s",
                          ops[i].name);
                found++;
            }
        }
    }
    cr_expect(eq(u32, found, (uint32_t)(sizeof expected / sizeof *expected)));
}

/* Pairs left by a causal mask with a window, query by query. */
Test(roofline, sliding_windows)
{
    for (uint32_t s = 100; s <= 3000; s += 290) {
        for (uint32_t w = 0; w <= 512; w += 128) {
            double pairs = 0;
            for (uint32_t i = 0; i < s; i++) {
                pairs += (w != 0 && i >= w ? w : i) + (w != 0 && i >= w ? 0 : 0.5);
            }
            cr_expect(epsilon_eq(dbl, rp_attention_pairs(s, w), pairs, 1e-6 * pairs), "%u %u", s,
                      w);
        }
    }
    rp_model model = load_model("gpt-oss-20b");
    cr_expect(eq(u32, rp_model_window(&model, 0), 128)); /* executor.md 4.1: even layers */
    cr_expect(eq(u32, rp_model_window(&model, 1), 0));
}

/* GEMMs and vector operators of mixtures: 22.19B and 3.61B active parameters at 2 FLOP per token
 * are an independent count (executor.md 4.2), except for heads, tables, norms and biases. */
Test(roofline, active_experts_only)
{
    static const char *const names[] = {"qwen3-235b", "gpt-oss-20b"};
    for (size_t i = 0; i < 2; i++) {
        rp_model model = load_model(names[i]);
        rp_operator ops[RP_MAX_OPERATORS];
        uint32_t count = rp_layer_operators(&model, 1, 4, 2048, ops);
        double gemm = 0;
        for (uint32_t k = 0; k < count; k++) {
            gemm += ops[k].unit == RP_UNIT_GEMM ? ops[k].work[RP_PASS_FORWARD].flops : 0;
        }
        double per_layer =
            (double)(model.active_parameters - 2 * model.embedding_parameters) / model.layers;
        cr_expect(epsilon_eq(dbl, gemm / (2 * 8192.0), per_layer, 0.002 * per_layer), "%s",
                  names[i]);
    }
}

/* ---- times ----------------------------------------------------------------------------------- */

typedef void visit_fn(const rp_model *model, const rp_platform *platform);

static void for_all(visit_fn *visit)
{
    const char **models = NULL;
    const char **platforms = NULL;
    uint32_t model_count = 0;
    uint32_t platform_count = 0;
    cr_assert(eq(int, rp_data_list("models", arena, &models, &model_count), RP_OK));
    cr_assert(eq(int, rp_data_list("platforms", arena, &platforms, &platform_count), RP_OK));
    for (uint32_t m = 0; m < model_count; m++) {
        for (uint32_t p = 0; p < platform_count; p++) {
            rp_model model = load_model(models[m]);
            rp_platform platform = load_platform(platforms[p]);
            visit(&model, &platform);
        }
    }
}

/* No operator beats the peak of its arithmetic, or the nominal memory bandwidth. */
static void check_bounds_in(const rp_model *model, const rp_roof *roof)
{
    static const uint32_t lengths[] = {1, 128, 2048, 32768};
    const rp_platform *platform = roof->platform;
    bool wide = roof->arithmetic.dtype == RP_DTYPE_F32;
    double tflops = wide ? platform->fp32_tflops
                    : roof->arithmetic.accumulation == RP_ACCUMULATION_F16
                        ? platform->fp16_tflops_fp16_acc
                        : platform->fp16_tflops_fp32_acc;
    for (size_t i = 0; i < 4; i++) {
        for (uint32_t head = 0; head < 2; head++) {
            rp_operator ops[RP_MAX_OPERATORS];
            uint32_t count = head ? rp_head_operators(model, 2, lengths[i], ops)
                                  : rp_layer_operators(model, 0, 2, lengths[i], ops);
            cr_assert(le(u32, count, RP_MAX_OPERATORS));
            for (uint32_t k = 0; k < count; k++) {
                for (int p = 0; p < RP_PASS_COUNT; p++) {
                    const rp_pass_work *w = &ops[k].work[p];
                    double time_s = rp_pass_s(&ops[k], (rp_pass)p, roof);
                    double compute_s = w->flops / (1e12 * tflops);
                    double bytes = wide ? 2 * w->bytes : w->bytes;
                    double memory_s = bytes / (1e9 * platform->memory_gb_per_s);
                    bool bounded = time_s >= compute_s && time_s >= memory_s;
                    bool moves = w->traffic >= w->bytes && w->wide >= 2 * w->bytes;
                    cr_assert(bounded && isfinite(time_s) && moves, "%s of %s on %s in %s",
                              ops[k].name, model->name, platform->name,
                              rp_arithmetic_text(roof->arithmetic));
                }
            }
        }
    }
}

static void check_bounds(const rp_model *model, const rp_platform *platform)
{
    static const rp_arithmetic all[] = {{RP_DTYPE_F16, RP_ACCUMULATION_F16},
                                        {RP_DTYPE_F16, RP_ACCUMULATION_F32},
                                        {RP_DTYPE_BF16, RP_ACCUMULATION_F32},
                                        {RP_DTYPE_F32, RP_ACCUMULATION_F32}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const rp_roof roof = {platform, all[i], NULL};
        check_bounds_in(model, &roof);
    }
}

Test(roofline, nothing_beats_the_datasheet)
{
    for_all(check_bounds);
}

static int64_t total_ps(const rp_costs *costs)
{
    int64_t total = costs->head_fwd_ps + costs->head_bwd_ps + costs->hop_ps;
    for (uint32_t i = 0; i < costs->layers; i++) {
        cr_assert(costs->fwd_ps[i] > 0 && costs->bwd_ps[i] > 0);
        cr_assert(costs->bwd_input_ps[i] >= 0 && costs->bwd_input_ps[i] <= costs->bwd_ps[i]);
        total += costs->fwd_ps[i] + costs->bwd_ps[i];
    }
    return total;
}

/* Longer and larger microbatches take longer; twice the length takes at least twice the attention.
 */
static void check_monotone(const rp_model *model, const rp_platform *platform)
{
    int64_t before = 0;
    for (uint32_t seq_len = 128; seq_len <= 131072; seq_len *= 2) {
        rp_costs costs = roofline_costs(model, platform, 1, seq_len);
        int64_t total = total_ps(&costs);
        cr_assert(gt(i64, total, before), "%s on %s, %u", model->name, platform->name, seq_len);
        before = total;
    }
    before = 0;
    for (uint32_t sequences = 1; sequences <= 64; sequences += 9) {
        rp_costs costs = roofline_costs(model, platform, sequences, 2048);
        int64_t total = total_ps(&costs);
        cr_assert(gt(i64, total, before), "%s on %s, x %u", model->name, platform->name, sequences);
        before = total;
    }
}

Test(roofline, monotone_in_length_and_sequences)
{
    for_all(check_monotone);
}

/* ---- against measurements -------------------------------------------------------------------- */

/* Predicted / measured - 1 in percent, for a layer and the head, forward and backward. */
static void errors_of(const char *name, double errors_out[4])
{
    rp_model model = load_model(name);
    rp_platform platform = load_platform("rtx4090x8");
    const char *table = NULL;
    cr_assert(eq(int, rp_arena_print(arena, &table, "%s@rtx4090", name), RP_OK));
    rp_costs measured = load_costs(table);
    rp_costs predicted = roofline_costs(&model, &platform, 4, 2048);
    int64_t sums[4] = {0};
    int64_t truth[4] = {0};
    for (uint32_t i = 0; i < model.layers; i++) {
        sums[0] += predicted.fwd_ps[i];
        sums[1] += predicted.bwd_ps[i];
        truth[0] += measured.fwd_ps[i];
        truth[1] += measured.bwd_ps[i];
    }
    sums[2] = predicted.head_fwd_ps;
    sums[3] = predicted.head_bwd_ps;
    truth[2] = measured.head_fwd_ps;
    truth[3] = measured.head_bwd_ps;
    for (int k = 0; k < 4; k++) {
        errors_out[k] = 100 * ((double)sums[k] / (double)truth[k] - 1);
    }
}

/* gemm_efficiency was set on forward + backward of a layer of llama3.1-8b; the other four tables
 * are predictions. The gate is the error reached, rounded up. gpt-oss-20b's backward is known to be
 * wrong: each expert writes all experts' gradients, which the roofline does not model. */
Test(roofline, errors_against_the_measured_tables)
{
    static const struct {
        const char *model;
        double most[4]; /* layer forward, backward; head forward, backward; percent */
    } gates[] = {
        {"llama3.1-8b", {5, 3, 6, 1}},      {"qwen3-1.7b", {5, 7, 1, 7}},
        {"qwen3-32b", {4, 4, 7, 1}},        {"gpt-oss-20b", {17, 53, 11, 4}},
        {"qwen3-235b-lora", {4, 14, 2, 6}},
    };
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        double errors[4];
        errors_of(gates[i].model, errors);
        cr_log_info("%s: layer %+.1f %+.1f, head %+.1f %+.1f %%\n", gates[i].model, errors[0],
                    errors[1], errors[2], errors[3]);
        for (int k = 0; k < 4; k++) {
            cr_expect(le(dbl, fabs(errors[k]), gates[i].most[k]), "%s, time %d: %+.2f %%",
                      gates[i].model, k, errors[k]);
        }
    }
}

static bool same_times(const rp_costs *a, const rp_costs *b)
{
    bool same = a->head_fwd_ps == b->head_fwd_ps && a->head_bwd_ps == b->head_bwd_ps &&
                a->hop_ps == b->hop_ps && a->layers == b->layers;
    for (uint32_t i = 0; same && i < a->layers; i++) {
        same = a->fwd_ps[i] == b->fwd_ps[i] && a->bwd_ps[i] == b->bwd_ps[i] &&
               a->bwd_input_ps[i] == b->bwd_input_ps[i];
    }
    return same;
}

Test(roofline, moving_to_the_same_gpu_changes_nothing)
{
    static const char *const names[] = {"qwen3-1.7b", "llama3.1-8b", "gpt-oss-20b", "qwen3-32b",
                                        "qwen3-235b-lora"};
    rp_platform platform = load_platform("rtx4090x8");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rp_model model = load_model(names[i]);
        const char *table = NULL;
        cr_assert(eq(int, rp_arena_print(arena, &table, "%s@rtx4090", names[i]), RP_OK));
        rp_costs measured = load_costs(table);
        rp_costs moved;
        const rp_roof on = {&platform, measured.arithmetic, NULL};
        cr_assert(eq(int, rp_moved_costs(&measured, &model, &on, &on, arena, &moved, NULL), RP_OK));
        cr_expect(same_times(&measured, &moved), "%s", names[i]);
    }
}

static int64_t time_on(const char *model_name, const char *platform_name)
{
    rp_model model = load_model(model_name);
    rp_platform platform = load_platform(platform_name);
    rp_costs costs = find_costs(&model, &platform, 4, 2048);
    return total_ps(&costs);
}

/* Every rate of the second GPU is at least the first's (sim/model.md section 6). */
Test(roofline, better_gpus_are_not_slower)
{
    static const char *const pairs[][2] = {{"rtx3090x8", "rtx4090x8"}, {"rtx4090x8", "rtx5090x8"},
                                           {"a800x8", "h100x8"},       {"h100x8", "h200"},
                                           {"rtx3090x8", "a800x8"},    {"rtx5090x8", "h100x8"}};
    const char **models = NULL;
    uint32_t count = 0;
    cr_assert(eq(int, rp_data_list("models", arena, &models, &count), RP_OK));
    for (uint32_t m = 0; m < count; m++) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            cr_expect(le(i64, time_on(models[m], pairs[i][1]), time_on(models[m], pairs[i][0])),
                      "%s: %s, %s", models[m], pairs[i][0], pairs[i][1]);
        }
    }
}

/* A time moves by a ratio between those of its units, here fp16-accumulation peak, memory and, for
 * the hop, link (sim/model.md section 6). Launches do not move, hence the slack. */
Test(roofline, moved_times_lie_between_the_ratios)
{
    rp_model model = load_model("llama3.1-8b");
    rp_platform from = load_platform("rtx4090x8");
    rp_platform to = load_platform("h100x8");
    rp_costs measured = load_costs("llama3.1-8b@rtx4090");
    rp_costs moved = find_costs(&model, &to, 4, 2048);
    double compute = from.fp16_tflops_fp16_acc / to.fp16_tflops_fp16_acc;
    double memory = from.memory_gb_per_s / to.memory_gb_per_s;
    double ratio = (double)moved.fwd_ps[0] / (double)measured.fwd_ps[0];
    cr_expect(gt(dbl, ratio, fmin(compute, memory)));
    cr_expect(lt(dbl, ratio, fmax(compute, memory) + 0.02));
    double hop = (double)moved.hop_ps / (double)measured.hop_ps;
    cr_expect(epsilon_eq(dbl, hop, 20.97 / (450 * to.link_efficiency), 1e-3));
    cr_expect(eq(str, (char *)moved.name, "llama3.1-8b@h100 (moved from rtx4090)"));
    cr_expect(ne(ptr, strstr(moved.source, "x roofline of platform h100x8"), NULL), "%s",
              moved.source);
}

/* A platform without a rate is refused with the key's name. */
Test(roofline, missing_rates)
{
    char message[512];
    rp_costs costs;
    rp_model model = load_model("qwen3-8b");
    rp_platform platform = load_platform("h200");
    platform.gemm_efficiency = 0;
    const rp_roof on = {&platform, {RP_DTYPE_BF16, RP_ACCUMULATION_F32}, NULL};
    rp_log_capture_begin(message, sizeof message);
    cr_expect(eq(int, rp_roofline_costs(&model, &on, 4, 2048, arena, &costs, NULL), RP_INPUT));
    rp_log_capture_end();
    cr_expect(ne(ptr, strstr(message, "h200 has no gemm_efficiency"), NULL), "%s", message);
    platform = load_platform("h200");
    rp_log_capture_begin(message, sizeof message);
    cr_expect(eq(int, rp_roofline_costs(&model, &on, 1, 1u << 30, arena, &costs, NULL), RP_INPUT));
    rp_log_capture_end();
    cr_expect(ne(ptr, strstr(message, "valid are sizes"), NULL), "%s", message);
}

/* ---- LoRA ------------------------------------------------------------------------------------ */

/* r (in + out) of every linear layer, from config.json: q, k, v, o; gate, up, down of each expert.
 */
Test(roofline, lora_parameters)
{
    static const struct {
        const char *name;
        uint64_t adapters, layer;
    } rows[] = {
        {"qwen3-1.7b-lora", 32 * (4096 + 2 * 3072 + 4096 + 3 * 8192), 50336000},
        {"llama3.1-8b-lora", 32 * (8192 + 2 * 5120 + 8192 + 3 * 18432), 218112000},
        {"qwen3-32b-lora", 32 * (13312 + 2 * 6144 + 13312 + 3 * 30720), 487598336},
        {"gpt-oss-20b-lora", 32 * (6976 + 2 * 3392 + 6976 + 32 * 3 * 5760), 823186976},
        {"qwen3-235b-lora", 32 * (12288 + 2 * 4608 + 12288 + 128 * 3 * 5632), 2487755008},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rp_model model = load_model(rows[i].name);
        rp_sizes sizes;
        cr_expect(eq(u64, model.adapter_parameters, rows[i].adapters), "%s", rows[i].name);
        cr_expect(eq(u64, model.layer_parameters, rows[i].layer), "%s", rows[i].name);
        cr_assert(eq(int, rp_sizes_of_model(&model, 2048, RP_DTYPE_F16, arena, &sizes), RP_OK));
        for (uint32_t l = 0; l < model.layers + 2; l++) {
            bool block = l > 0 && l <= model.layers;
            cr_expect(eq(u64, sizes.gradient_bytes[l], block ? 2 * rows[i].adapters : 0));
            cr_expect(eq(u64, sizes.parameters[l], block ? rows[i].adapters : 0));
        }
        cr_expect(eq(u64, sizes.weight_bytes[1], 2 * (rows[i].layer + rows[i].adapters)));
        cr_expect(gt(u64, sizes.weight_bytes[0], 0));
    }
}

/* Frozen matrices have no weight gradients, so the backward's products are a forward's plus the
 * adapters'. */
Test(roofline, lora_has_no_gradients_of_frozen_matrices)
{
    rp_model base = load_model("llama3.1-8b");
    rp_model lora = load_model("llama3.1-8b-lora");
    rp_operator ops[RP_MAX_OPERATORS];
    double forward = tflop(ops, rp_layer_operators(&base, 0, 4, 2048, ops), false);
    double attention = 2 * 4 * 2048.0 * 2048 * 4096 * 1e-12;
    double adapters = 2 * 8192.0 * (double)lora.adapter_parameters * 1e-12;
    double fwd = tflop(ops, rp_layer_operators(&lora, 0, 4, 2048, ops), false);
    double bwd = tflop(ops, rp_layer_operators(&lora, 0, 4, 2048, ops), true);
    cr_expect(epsilon_eq(dbl, fwd, forward + adapters, 1e-9));
    cr_expect(epsilon_eq(dbl, bwd, forward - attention + 2.5 * attention + 2 * adapters, 1e-9));
}

/* ---- rpsim ----------------------------------------------------------------------------------- */

/* Every `step`-th model from `first` on. */
static const char *every_model(uint32_t first, uint32_t step)
{
    const char **names = NULL;
    const char *list = "";
    uint32_t count = 0;
    cr_assert(eq(int, rp_data_list("models", arena, &names, &count), RP_OK));
    for (uint32_t i = first; i < count; i += step) {
        cr_assert(eq(int,
                     rp_arena_print(arena, &list, "%s%s%s", list, i == first ? "" : ",", names[i]),
                     RP_OK));
    }
    return list;
}

/* On each platform in turn a third of the models, 1, 2 or all GPUs, and a length: each number meets
 * each length. RP_LONG: all of them. */
Test(roofline, every_model_runs_everywhere)
{
    static const uint32_t lengths[] = {128, 512, 2048, 32768};
    const char **names = NULL;
    uint32_t count = 0;
    bool all = getenv("RP_LONG") != NULL;
    cr_assert(eq(int, rp_data_list("platforms", arena, &names, &count), RP_OK));
    for (uint32_t p = 0; p < count; p++) {
        rp_platform platform = load_platform(names[p]);
        uint32_t gpus[] = {1, 2, platform.gpus};
        const char *models = every_model(all ? 0 : p / 2 % 3, all ? 1 : 3);
        for (size_t g = 0; g < 3; g++) {
            for (size_t s = 0; s < 4 && gpus[g] <= platform.gpus; s++) {
                if (!all && (g != p % 3 || s != p % 4)) {
                    continue;
                }
                char line[1024];
                snprintf(line, sizeof line,
                         "--fidelity hardware --intervals off --schedule roundpipe --partition "
                         "even --platform %s "
                         "--gpus %u --seq-len %u --microbatches 2 --iterations 1 --format csv "
                         "--model %s",
                         names[p], gpus[g], lengths[s], models);
                rp_test_outcome outcome = rp_test_rpsim(line);
                cr_expect(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
            }
        }
    }
}

/* Every schedule on all GPUs of a platform, for a dense model, a mixture or a model with LoRA in
 * turn. RP_LONG: for each of them. */
Test(roofline, every_schedule_runs_everywhere)
{
    const char **names = NULL;
    uint32_t count = 0;
    cr_assert(eq(int, rp_data_list("platforms", arena, &names, &count), RP_OK));
    for (uint32_t p = 0; p < count; p++) {
        static const char *const models[] = {"qwen3-1.7b", "gpt-oss-20b", "qwen3-32b-lora"};
        const char *model =
            getenv("RP_LONG") != NULL ? "qwen3-1.7b,gpt-oss-20b,qwen3-32b-lora" : models[p % 3];
        char line[512];
        rp_platform platform; /* tests/common/schedule/combine.c has more GPUs */
        cr_assert(eq(int, rp_platform_load(names[p], arena, &platform), RP_OK));
        snprintf(line, sizeof line,
                 "--fidelity hardware --intervals off --schedule all --platform %s --seq-len 512 "
                 "--iterations 1 "
                 "--format csv --model %s --gpus %u",
                 names[p], model, platform.gpus < 8 ? platform.gpus : 8);
        rp_test_outcome outcome = rp_test_rpsim(line);
        cr_expect(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
    }
}

Test(roofline, stage_fidelity_still_wants_a_table)
{
    rp_test_outcome outcome = rp_test_rpsim("--fidelity stage --schedule gpipe --platform h200");
    cr_expect(eq(int, outcome.status, 2));
    cr_expect(ne(ptr, strstr(outcome.messages, "there is no qwen3-1.7b@h200"), NULL), "%s",
              outcome.messages);
}

/* A fast GPU's table with a slow GPU's rates, and a single token: no time is negative. */
Test(roofline, short_sequences_never_take_negative_time)
{
    rp_model model = load_model("qwen3-1.7b");
    rp_costs table = load_costs("qwen3-1.7b@rtx4090");
    rpsim_gpu_rates rates = {
        .attention_fwd_flops = 1e12, .attention_bwd_flops = 1e12, .memory_bytes_per_s = 1e9};
    uint32_t sequences[] = {1};
    uint16_t chain[] = {0};
    rp_stage stage = {.layer_end = 28, .roles = RP_STAGE_HEAD | RP_STAGE_FORWARD_LAYERS};
    rp_program program = {.stage_count = 1,
                          .stages = &stage,
                          .layer_count = 28,
                          .microbatch_count = 1,
                          .sequences = sequences,
                          .forward_chain = chain,
                          .forward_count = 1,
                          .iteration_count = 1};
    int64_t before[2] = {0};
    for (uint32_t seq_len = 1; seq_len <= 65536; seq_len *= 4) {
        rpsim_compute_costs costs;
        rp_status status = rpsim_compute_costs_create(&program, &table, &model, &rates, seq_len,
                                                      arena, &costs, NULL);
        cr_assert(eq(int, status, RP_OK));
        cr_expect(gt(i64, costs.ps[RP_OP_FORWARD], before[0]), "%u", seq_len);
        cr_expect(ge(i64, costs.ps[RP_OP_BACKWARD], before[1]), "%u", seq_len);
        before[0] = costs.ps[RP_OP_FORWARD];
        before[1] = costs.ps[RP_OP_BACKWARD];
    }
}
