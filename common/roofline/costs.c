/* Makes cost tables from the roofline, and moves measured tables with it to other GPUs and to the
 * arithmetic of runs. */
#include "common/base/reason.h"
#include "common/base/units.h"
#include "common/inputs/data.h"
#include "common/inputs/load/platforms.h"
#include "common/machine/platform_machine.h"
#include "common/roofline/roofline.h"

#include <math.h>
#include <string.h>

/* Times of the passes of a layer or of the head, in seconds. */
typedef struct times {
    double pass[RP_PASS_COUNT];
    double least[RP_PASS_COUNT]; /* time of the pass's FLOP at the peak */
} times;

typedef struct table {
    times *layers; /* [model->layers] */
    times head;
    double hop_s;
} table;

static times sum(const rp_operator *operators, uint32_t count, const rp_roof *roof)
{
    times total = {{0}, {0}};
    for (uint32_t i = 0; i < count; i++) {
        for (int p = 0; p < RP_PASS_COUNT; p++) {
            total.pass[p] += rp_pass_s(&operators[i], (rp_pass)p, roof);
        }
    }
    return total;
}

/* Sums the times of single kernels. The host launches a pass's kernels one by one, and the pass
 * takes no less time than these launches. */
static times sum_kernels(const rp_operator *operators, uint32_t count, const rp_kernel_run *run)
{
    times total = {{0}, {0}};
    for (int p = 0; p < RP_PASS_COUNT; p++) {
        double launches = 0;
        for (uint32_t i = 0; i < count; i++) {
            total.pass[p] += rp_kernel_s(&operators[i], (rp_pass)p, run);
            launches += operators[i].work[p].launches;
        }
        total.pass[p] = fmax(total.pass[p], launches * 1e-6 * run->host_launch_us);
    }
    return total;
}

/* Sums the times of a stack's kernels, and of a layer the time between them.
 * @param layer NULL: the head */
static times sum_stack(const rp_operator *operators, uint32_t count, const rp_model *layer,
                       const rp_kernel_run *run)
{
    const rp_stack *stack = run->roof.stack;
    times total = {{0}, {0}};
    for (int p = 0; p < RP_PASS_COUNT; p++) {
        for (uint32_t i = 0; i < count; i++) {
            total.pass[p] += rp_stack_s(&operators[i], (rp_pass)p, run);
        }
    }
    double more = 0; /* kernels that dequantise weights */
    for (uint32_t i = 0; i < count; i++) {
        bool makes = operators[i].vector == RP_VECTOR_DEQUANTISED;
        more += makes ? operators[i].work[RP_PASS_FORWARD].launches : 0;
    }
    if (layer != NULL) {
        double kernel_s = 1e-6 * stack->kernel_us;
        total.pass[RP_PASS_FORWARD] += kernel_s * (rp_stack_launches(stack, layer, false) + more);
        total.pass[RP_PASS_BACKWARD_INPUT] +=
            kernel_s * (rp_stack_launches(stack, layer, true) + more);
    }
    return total;
}

static double backward(const double pass[RP_PASS_COUNT])
{
    return pass[RP_PASS_BACKWARD_INPUT] + pass[RP_PASS_BACKWARD_WEIGHT];
}

/* Bandwidth of a hop. If NVLink joins only some GPUs, most hops go through the host. */
static double hop_bytes_per_s(const rp_platform *platform)
{
    bool peers = platform->peer_gb_per_s > 0 && rp_platform_joins_all(platform);
    return peers ? rp_peer_bytes_per_s(platform) : rp_link_bytes_per_s(platform);
}

/* @param layer number of the layer; model->layers means the head */
static times total_of(const rp_model *model, uint32_t layer, uint32_t sequences,
                      const rp_kernel_run *run, bool detailed)
{
    rp_operator operators[RP_MAX_OPERATORS];
    uint32_t seq_len = (uint32_t)run->seq_len;
    uint32_t count = layer < model->layers
                         ? rp_layer_operators(model, layer, sequences, seq_len, operators)
                         : rp_head_operators(model, sequences, seq_len, operators);
    const rp_model *kind = layer < model->layers ? rp_model_of_layer(model, layer) : NULL;
    times t = run->roof.stack != NULL ? sum_stack(operators, count, kind, run)
              : detailed              ? sum_kernels(operators, count, run)
                                      : sum(operators, count, &run->roof);
    double peak = model->fp8_products ? 1e12 * run->roof.platform->fp8_tflops
                                      : rp_peak_flops_per_s(&run->roof);
    rp_layer_flop(model, layer, sequences, seq_len, t.least);
    for (int p = 0; p < RP_PASS_COUNT; p++) {
        t.least[p] /= peak;
    }
    return t;
}

static rp_status compute(const rp_model *model, const rp_roof *roof, uint32_t sequences,
                         uint32_t seq_len, bool detailed, rp_arena *arena, table *t,
                         rp_reason *reason)
{
    const rp_kernel_run run = {*roof, seq_len, model->host_launch_us, model->documents};
    /* 16-bit values in a value. */
    double values = (double)rp_dtype_bytes(roof->arithmetic.dtype) / 2;
    RP_TRY(rp_roofline_check(roof, reason));
    RP_TRY(rp_arena_alloc(arena, model->layers, sizeof *t->layers, &t->layers));
    for (uint32_t i = 0; i < model->layers; i++) {
        t->layers[i] = total_of(model, i, sequences, &run, detailed);
    }
    t->head = total_of(model, model->layers, sequences, &run, detailed);
    t->hop_s =
        values * rp_boundary_bytes(model, sequences, seq_len) / hop_bytes_per_s(roof->platform);
    return RP_OK;
}

static int64_t to_ps(double time_s)
{
    return rp_ms_to_ps(time_s * 1e3);
}

static rp_status allocate_times(uint32_t layers, rp_arena *arena, rp_costs *costs)
{
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->fwd_ps));
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_ps));
    return rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_input_ps);
}

/* Checks the sum of all times, which counts forwards twice as a margin, so that the times rounded
 * to ps are in range. */
static rp_status check_total(const rp_model *model, const table *t, uint32_t sequences,
                             uint32_t seq_len, rp_reason *reason)
{
    double total_s = t->head.pass[RP_PASS_FORWARD] + backward(t->head.pass) + t->hop_s;
    for (uint32_t i = 0; i < model->layers; i++) {
        total_s += 2 * t->layers[i].pass[RP_PASS_FORWARD] + backward(t->layers[i].pass);
    }
    double most_s = 1e-3 * rp_ps_to_ms(RP_MAX_MICROBATCH_PS);
    if (total_s > most_s) {
        return rp_refuse(
            reason, RP_INPUT,
            "{seq_len}: a microbatch of %u sequences of %u tokens takes %.3g s through "
            "%s; valid are sizes that take at most %.0f s",
            sequences, seq_len, total_s, model->name, most_s);
    }
    return RP_OK;
}

/* The arithmetic in which USUAL accumulation is replaced: products add up in fp32. */
static rp_arithmetic resolved(rp_arithmetic asked)
{
    bool usual = asked.accumulation == RP_ACCUMULATION_USUAL;
    return (rp_arithmetic){asked.dtype, usual ? RP_ACCUMULATION_F32 : asked.accumulation};
}

rp_status rp_roofline_costs(const rp_model *model, const rp_roof *roof, uint32_t sequences,
                            uint32_t seq_len, rp_arena *arena, rp_costs *costs_out,
                            rp_reason *reason)
{
    table t;
    const rp_platform *platform = roof->platform;
    bool detailed = platform->gemm_fp32_acc_efficiency > 0 && model->host_launch_us > 0;
    RP_TRY(compute(model, roof, sequences, seq_len, detailed, arena, &t, reason));
    RP_TRY(check_total(model, &t, sequences, seq_len, reason));
    rp_costs costs = {.kind = RP_ASSUMED,
                      .arithmetic = resolved(roof->arithmetic),
                      .frozen = model->frozen,
                      .fp8_products = model->fp8_products,
                      .layers = model->layers,
                      .stack = roof->stack,
                      .head_fwd_ps = to_ps(t.head.pass[RP_PASS_FORWARD]),
                      .head_bwd_ps = to_ps(backward(t.head.pass)),
                      .hop_ps = to_ps(t.hop_s),
                      .microbatch_size = sequences,
                      .seq_len = seq_len,
                      .documents = model->documents,
                      .computed = true};
    RP_TRY(rp_arena_print(arena, &costs.name, "%s@%s (%s%s)", model->name, platform->gpu,
                          roof->stack != NULL ? "stack " : "roofline",
                          roof->stack != NULL ? roof->stack->name : ""));
    RP_TRY(rp_arena_print(arena, &costs.source,
                          "roofline: FLOP and bytes of each operator over the rates of platform "
                          "%s; nobody has measured %s on any GPU",
                          platform->name, model->name));
    RP_TRY(allocate_times(model->layers, arena, &costs));
    for (uint32_t i = 0; i < model->layers; i++) {
        costs.fwd_ps[i] = to_ps(t.layers[i].pass[RP_PASS_FORWARD]);
        costs.bwd_ps[i] = to_ps(backward(t.layers[i].pass));
        int64_t input_ps = to_ps(t.layers[i].pass[RP_PASS_BACKWARD_INPUT]);
        costs.bwd_input_ps[i] = input_ps < costs.bwd_ps[i] ? input_ps : costs.bwd_ps[i];
    }
    *costs_out = costs;
    return RP_OK;
}

static int64_t move(int64_t measured_ps, double from_s, double to_s, double least_s)
{
    return to_ps(fmax((double)measured_ps * 1e-12 * (to_s / from_s), least_s));
}

static void move_times(const rp_costs *measured, const table *from, const table *to,
                       rp_costs *costs)
{
    for (uint32_t i = 0; i < measured->layers; i++) {
        const times *f = &from->layers[i];
        const times *t = &to->layers[i];
        costs->fwd_ps[i] = move(measured->fwd_ps[i], f->pass[RP_PASS_FORWARD],
                                t->pass[RP_PASS_FORWARD], t->least[RP_PASS_FORWARD]);
        costs->bwd_ps[i] =
            move(measured->bwd_ps[i], backward(f->pass), backward(t->pass), backward(t->least));
        int64_t input_ps = move(measured->bwd_input_ps[i], f->pass[RP_PASS_BACKWARD_INPUT],
                                t->pass[RP_PASS_BACKWARD_INPUT], t->least[RP_PASS_BACKWARD_INPUT]);
        costs->bwd_input_ps[i] = input_ps < costs->bwd_ps[i] ? input_ps : costs->bwd_ps[i];
    }
    const times *f = &from->head;
    const times *t = &to->head;
    costs->head_fwd_ps = move(measured->head_fwd_ps, f->pass[RP_PASS_FORWARD],
                              t->pass[RP_PASS_FORWARD], t->least[RP_PASS_FORWARD]);
    costs->head_bwd_ps =
        move(measured->head_bwd_ps, backward(f->pass), backward(t->pass), backward(t->least));
    costs->hop_ps = move(measured->hop_ps, from->hop_s, to->hop_s, 0);
}

/* Bounds the ratios by which the measured times are multiplied; the measured times themselves are
 * in range. */
static rp_status check_moved(const rp_costs *costs, const table *from, const table *to,
                             rp_reason *reason)
{
    double most = to->head.pass[RP_PASS_FORWARD] / from->head.pass[RP_PASS_FORWARD];
    for (uint32_t i = 0; i < costs->layers; i++) {
        double ratio = to->layers[i].pass[RP_PASS_FORWARD] / from->layers[i].pass[RP_PASS_FORWARD];
        most = ratio > most ? ratio : most;
    }
    most = to->hop_s / from->hop_s > most ? to->hop_s / from->hop_s : most;
    double total_ps =
        (double)costs->head_fwd_ps + (double)costs->head_bwd_ps + (double)costs->hop_ps;
    for (uint32_t i = 0; i < costs->layers; i++) {
        total_ps += 2 * (double)costs->fwd_ps[i] + (double)costs->bwd_ps[i];
    }
    /* Backward moves by nearly the same ratio as forward: 8 leaves room. */
    if (!(most * 8 * total_ps <= (double)RP_MAX_MICROBATCH_PS)) {
        return rp_refuse(reason, RP_INPUT,
                         "{platform}: cost table %s would take %.3g times as long there; valid are "
                         "platforms on which a microbatch takes at most %.0f s",
                         costs->name, most, 1e-3 * rp_ps_to_ms(RP_MAX_MICROBATCH_PS));
    }
    return RP_OK;
}

/* Names a moved table "MODEL@GPU (moved from GPU, bf16)", or "TABLE (bf16)" if the GPU is the
 * same. */
static rp_status name_moved(const rp_costs *measured, const rp_model *model, const rp_roof *from,
                            const rp_roof *to, rp_arena *arena, rp_costs *costs)
{
    const rp_platform *there = to->platform;
    bool half = to->arithmetic.dtype == RP_DTYPE_F16;
    bool same = rp_arithmetic_equal(from->arithmetic, to->arithmetic);
    const char *type = same   ? ""
                       : half ? rp_accumulation_text(to->arithmetic.accumulation)
                              : rp_dtype_text(to->arithmetic.dtype);
    const char *before = same ? "" : half ? "fp16/" : "";
    if (from->platform == there) {
        RP_TRY(rp_arena_print(arena, &costs->name, "%s (%s%s)", measured->name, before, type));
        return rp_arena_print(
            arena, &costs->source, "moved: %s (%s) from %s to %s by the peaks of platform %s",
            measured->name, measured->source, rp_arithmetic_text(from->arithmetic),
            rp_arithmetic_text(to->arithmetic), there->name);
    }
    RP_TRY(rp_arena_print(arena, &costs->name, "%s@%s (moved from %s%s%s%s)", model->name,
                          there->gpu, from->platform->gpu, same ? "" : ", ", before, type));
    return rp_arena_print(arena, &costs->source,
                          "moved: %s (%s) x roofline of platform %s / roofline of platform %s",
                          measured->name, measured->source, there->name, from->platform->name);
}

rp_status rp_moved_costs(const rp_costs *measured, const rp_model *model, const rp_roof *from,
                         const rp_roof *to, rp_arena *arena, rp_costs *costs_out, rp_reason *reason)
{
    if (measured->layers != model->layers) {
        return rp_refuse(
            reason, RP_INPUT,
            "cost table %s has %u layers, model %s %u; valid is a table of the same model",
            measured->name, measured->layers, model->name, model->layers);
    }
    table here;
    table there;
    rp_model timed = *model;
    uint32_t sequences = measured->microbatch_size;
    timed.documents = measured->documents;
    rp_model as_measured = timed;
    as_measured.frozen = measured->frozen;
    RP_TRY(compute(&as_measured, from, sequences, measured->seq_len, false, arena, &here, reason));
    RP_TRY(compute(&timed, to, sequences, measured->seq_len, false, arena, &there, reason));
    RP_TRY(check_moved(measured, &here, &there, reason));
    RP_TRY(check_total(model, &there, sequences, measured->seq_len, reason));
    rp_costs costs = *measured;
    RP_TRY(name_moved(measured, model, from, to, arena, &costs));
    RP_TRY(allocate_times(model->layers, arena, &costs));
    move_times(measured, &here, &there, &costs);
    costs.kind = RP_MOVED;
    costs.arithmetic = resolved(to->arithmetic);
    costs.frozen = model->frozen;
    *costs_out = costs;
    return RP_OK;
}

/* The arithmetic of a run. If the run leaves the accumulation of fp16 open, the table's applies; a
 * table without this key was measured with fp16 accumulation. */
static rp_arithmetic of_run(const rp_costs *measured, rp_arithmetic asked)
{
    rp_arithmetic of_table = measured->arithmetic;
    bool usual = asked.accumulation == RP_ACCUMULATION_USUAL && asked.dtype == RP_DTYPE_F16;
    if (usual && of_table.accumulation == RP_ACCUMULATION_USUAL) {
        asked.accumulation = RP_ACCUMULATION_F16;
    } else if (usual && of_table.dtype == RP_DTYPE_F16) {
        asked.accumulation = of_table.accumulation;
    }
    return resolved(asked);
}

rp_status rp_costs_for_run(const rp_costs *measured, const rp_model *model, const rp_roof *run,
                           rp_arena *arena, rp_costs *costs_out, rp_reason *reason)
{
    const rp_roof from = {run->platform, measured->arithmetic, NULL};
    const rp_roof to = {run->platform, of_run(measured, run->arithmetic), NULL};
    bool known = measured->arithmetic.accumulation != RP_ACCUMULATION_USUAL;
    bool alike = (from.arithmetic.dtype == RP_DTYPE_F32) == (to.arithmetic.dtype == RP_DTYPE_F32) &&
                 rp_peak_flops_per_s(&from) == rp_peak_flops_per_s(&to);
    bool stored = measured->frozen == model->frozen;
    if ((known && !alike) || !stored) {
        return rp_moved_costs(measured, model, &from, &to, arena, costs_out, reason);
    }
    *costs_out = *measured;
    costs_out->arithmetic = to.arithmetic;
    return RP_OK;
}

/* ---- choice of the rule ---------------------------------------------------------------------- */

/* The first platform with this GPU that has the rates a roofline needs: a user's file may lack
 * some. */
static rp_status find_platform(const char *gpu, rp_arithmetic arithmetic, rp_arena *arena,
                               rp_platform *platform_out, bool *found_out)
{
    const char **names = NULL;
    uint32_t count = 0;
    const rp_roof roof = {platform_out, arithmetic, NULL};
    *found_out = false;
    RP_TRY(rp_data_list("platforms", arena, &names, &count));
    for (uint32_t i = 0; i < count && !*found_out; i++) {
        RP_TRY(rp_platform_load(names[i], arena, platform_out));
        rp_reason lacks = {0};
        *found_out =
            strcmp(platform_out->gpu, gpu) == 0 && rp_roofline_check(&roof, &lacks) == RP_OK;
    }
    return RP_OK;
}

/* Moves the first of the model's tables, in order of their names, whose GPU has a platform file. */
static rp_status find_moved(const rp_model *model, const rp_roof *run, rp_arena *arena,
                            rp_costs *costs_out, bool *found_out, rp_reason *reason)
{
    const char **names = NULL;
    uint32_t count = 0;
    size_t length = strlen(model->recorded);
    *found_out = false;
    RP_TRY(rp_data_list("costs", arena, &names, &count));
    for (uint32_t i = 0; i < count && !*found_out; i++) {
        if (strncmp(names[i], model->recorded, length) != 0 || names[i][length] != '@') {
            continue;
        }
        rp_platform from;
        RP_TRY(find_platform(names[i] + length + 1, run->arithmetic, arena, &from, found_out));
        if (*found_out) {
            rp_costs measured;
            RP_TRY(rp_costs_load(names[i], arena, &measured));
            const rp_roof to = {run->platform, of_run(&measured, run->arithmetic), NULL};
            bool known = measured.arithmetic.accumulation != RP_ACCUMULATION_USUAL;
            const rp_roof there = {&from, known ? measured.arithmetic : to.arithmetic, NULL};
            RP_TRY(rp_moved_costs(&measured, model, &there, &to, arena, costs_out, reason));
        }
    }
    return RP_OK;
}

rp_status rp_find_costs(const rp_model *model, const rp_roof *run, uint32_t sequences,
                        uint32_t seq_len, rp_arena *arena, rp_costs *costs_out, rp_reason *reason)
{
    const char *name = NULL;
    const char **names = NULL;
    uint32_t count = 0;
    if (model->recorded == NULL || run->stack != NULL) {
        return rp_roofline_costs(model, run, sequences, seq_len, arena, costs_out, reason);
    }
    RP_TRY(rp_arena_print(arena, &name, "%s@%s", model->recorded, run->platform->gpu));
    RP_TRY(rp_data_list("costs", arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            rp_costs measured;
            RP_TRY(rp_costs_load(name, arena, &measured));
            return rp_costs_for_run(&measured, model, run, arena, costs_out, reason);
        }
    }
    bool moved = false;
    RP_TRY(find_moved(model, run, arena, costs_out, &moved, reason));
    return moved ? RP_OK
                 : rp_roofline_costs(model, run, sequences, seq_len, arena, costs_out, reason);
}
