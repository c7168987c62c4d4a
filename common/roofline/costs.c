/* Cost tables made of the roofline, and measured ones moved by it. */
#include "common/base/log.h"
#include "common/base/units.h"
#include "common/inputs/data.h"
#include "common/machine/platform_machine.h"
#include "common/roofline/roofline.h"

#include <math.h>
#include <string.h>

/* Seconds of the passes of a layer or of the head. */
typedef struct times {
    double pass[RP_PASS_COUNT];
} times;

typedef struct table {
    times *layers; /* [model->layers] */
    times head;
    double hop_s;
} table;

static times sum(const rp_operator *operators, uint32_t count, const rp_platform *platform)
{
    times total = {{0}};
    for (uint32_t i = 0; i < count; i++) {
        for (int p = 0; p < RP_PASS_COUNT; p++) {
            total.pass[p] += rp_pass_s(&operators[i], (rp_pass)p, platform);
        }
    }
    return total;
}

/* In detail. The host launches a pass's kernels one after the other: a pass takes no less. */
static times sum_kernels(const rp_operator *operators, uint32_t count, const rp_kernel_run *run)
{
    times total = {{0}};
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

static times total_of(const rp_operator *operators, uint32_t count, const rp_kernel_run *run,
                      bool detailed)
{
    return detailed ? sum_kernels(operators, count, run) : sum(operators, count, run->platform);
}

static double backward(const times *t)
{
    return t->pass[RP_PASS_BACKWARD_INPUT] + t->pass[RP_PASS_BACKWARD_WEIGHT];
}

/* Where only some GPUs are joined, most hops go through the host. */
static double hop_bytes_per_s(const rp_platform *platform)
{
    bool peers = platform->peer_gb_per_s > 0 && platform->nvlink_gpus == 0;
    return peers ? rp_peer_bytes_per_s(platform) : rp_link_bytes_per_s(platform);
}

static rp_status compute(const rp_model *model, const rp_platform *platform, uint32_t sequences,
                         uint32_t seq_len, bool detailed, rp_arena *arena, table *t)
{
    rp_operator operators[RP_MAX_OPERATORS];
    const rp_kernel_run run = {platform, seq_len, model->host_launch_us};
    RP_TRY(rp_roofline_check(platform));
    RP_TRY(rp_arena_alloc(arena, model->layers, sizeof *t->layers, &t->layers));
    for (uint32_t i = 0; i < model->layers; i++) {
        uint32_t count = rp_layer_operators(model, i, sequences, seq_len, operators);
        t->layers[i] = total_of(operators, count, &run, detailed);
    }
    uint32_t count = rp_head_operators(model, sequences, seq_len, operators);
    t->head = total_of(operators, count, &run, detailed);
    t->hop_s = rp_boundary_bytes(model, sequences, seq_len) / hop_bytes_per_s(platform);
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

/* Everything once more than it counts, so that what is rounded to ps is in range. */
static rp_status check_total(const rp_model *model, const table *t, uint32_t sequences,
                             uint32_t seq_len)
{
    double total_s = t->head.pass[RP_PASS_FORWARD] + backward(&t->head) + t->hop_s;
    for (uint32_t i = 0; i < model->layers; i++) {
        total_s += 2 * t->layers[i].pass[RP_PASS_FORWARD] + backward(&t->layers[i]);
    }
    double most_s = 1e-3 * rp_ps_to_ms(RP_MAX_MICROBATCH_PS);
    if (total_s > most_s) {
        rp_log_error("--seq-len: a microbatch of %u sequences of %u tokens takes %.3g s through "
                     "%s; valid are sizes that take at most %.0f s",
                     sequences, seq_len, total_s, model->name, most_s);
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rp_roofline_costs(const rp_model *model, const rp_platform *platform, uint32_t sequences,
                            uint32_t seq_len, rp_arena *arena, rp_costs *costs_out)
{
    table t;
    RP_TRY(compute(model, platform, sequences, seq_len,
                   platform->sms != 0 && model->host_launch_us > 0, arena, &t));
    RP_TRY(check_total(model, &t, sequences, seq_len));
    rp_costs costs = {.kind = RP_ASSUMED,
                      .layers = model->layers,
                      .head_fwd_ps = to_ps(t.head.pass[RP_PASS_FORWARD]),
                      .head_bwd_ps = to_ps(backward(&t.head)),
                      .hop_ps = to_ps(t.hop_s),
                      .microbatch_size = sequences,
                      .seq_len = seq_len};
    RP_TRY(rp_arena_print(arena, &costs.name, "%s@%s (roofline)", model->name, platform->gpu));
    RP_TRY(rp_arena_print(arena, &costs.source,
                          "roofline: FLOP and bytes of each operator over the rates of platform "
                          "%s; nobody has measured %s on any GPU",
                          platform->name, model->name));
    RP_TRY(allocate_times(model->layers, arena, &costs));
    for (uint32_t i = 0; i < model->layers; i++) {
        costs.fwd_ps[i] = to_ps(t.layers[i].pass[RP_PASS_FORWARD]);
        costs.bwd_ps[i] = to_ps(backward(&t.layers[i]));
        int64_t input_ps = to_ps(t.layers[i].pass[RP_PASS_BACKWARD_INPUT]);
        costs.bwd_input_ps[i] = input_ps < costs.bwd_ps[i] ? input_ps : costs.bwd_ps[i];
    }
    *costs_out = costs;
    return RP_OK;
}

static int64_t move(int64_t measured_ps, double from_s, double to_s)
{
    return to_ps((double)measured_ps * 1e-12 * (to_s / from_s));
}

static void move_times(const rp_costs *measured, const table *from, const table *to,
                       rp_costs *costs)
{
    for (uint32_t i = 0; i < measured->layers; i++) {
        const times *f = &from->layers[i];
        const times *t = &to->layers[i];
        costs->fwd_ps[i] =
            move(measured->fwd_ps[i], f->pass[RP_PASS_FORWARD], t->pass[RP_PASS_FORWARD]);
        costs->bwd_ps[i] = move(measured->bwd_ps[i], backward(f), backward(t));
        int64_t input_ps = move(measured->bwd_input_ps[i], f->pass[RP_PASS_BACKWARD_INPUT],
                                t->pass[RP_PASS_BACKWARD_INPUT]);
        costs->bwd_input_ps[i] = input_ps < costs->bwd_ps[i] ? input_ps : costs->bwd_ps[i];
    }
    costs->head_fwd_ps = move(measured->head_fwd_ps, from->head.pass[RP_PASS_FORWARD],
                              to->head.pass[RP_PASS_FORWARD]);
    costs->head_bwd_ps = move(measured->head_bwd_ps, backward(&from->head), backward(&to->head));
    costs->hop_ps = move(measured->hop_ps, from->hop_s, to->hop_s);
}

/* The measured times are in range; what they are multiplied by is bounded here. */
static rp_status check_moved(const rp_costs *costs, const table *from, const table *to)
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
        rp_log_error("--platform: cost table %s would take %.3g times as long there; valid are "
                     "platforms on which a microbatch takes at most %.0f s",
                     costs->name, most, 1e-3 * rp_ps_to_ms(RP_MAX_MICROBATCH_PS));
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rp_moved_costs(const rp_costs *measured, const rp_model *model, const rp_platform *from,
                         const rp_platform *to, rp_arena *arena, rp_costs *costs_out)
{
    if (measured->layers != model->layers) {
        rp_log_error("cost table %s has %u layers, model %s %u; valid is a table of the same model",
                     measured->name, measured->layers, model->name, model->layers);
        return RP_INPUT;
    }
    table here;
    table there;
    uint32_t sequences = measured->microbatch_size;
    RP_TRY(compute(model, from, sequences, measured->seq_len, false, arena, &here));
    RP_TRY(compute(model, to, sequences, measured->seq_len, false, arena, &there));
    RP_TRY(check_moved(measured, &here, &there));
    rp_costs costs = *measured;
    RP_TRY(rp_arena_print(arena, &costs.name, "%s@%s (moved from %s)", model->name, to->gpu,
                          from->gpu));
    RP_TRY(rp_arena_print(arena, &costs.source,
                          "moved: %s (%s) x roofline of platform %s / roofline of platform %s",
                          measured->name, measured->source, to->name, from->name));
    RP_TRY(allocate_times(model->layers, arena, &costs));
    move_times(measured, &here, &there, &costs);
    costs.kind = RP_MOVED;
    *costs_out = costs;
    return RP_OK;
}

/* ---- which rule -------------------------------------------------------------------------------
 */

static rp_status find_platform(const char *gpu, rp_arena *arena, rp_platform *platform_out,
                               bool *found_out)
{
    const char **names = NULL;
    uint32_t count = 0;
    *found_out = false;
    RP_TRY(rp_data_list("platforms", arena, &names, &count));
    for (uint32_t i = 0; i < count && !*found_out; i++) {
        RP_TRY(rp_platform_load(names[i], arena, platform_out));
        *found_out = strcmp(platform_out->gpu, gpu) == 0;
    }
    return RP_OK;
}

/* The model's tables in order of their names; the first one whose GPU has a platform file moves. */
static rp_status find_moved(const rp_model *model, const rp_platform *platform, rp_arena *arena,
                            rp_costs *costs_out, bool *found_out)
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
        RP_TRY(find_platform(names[i] + length + 1, arena, &from, found_out));
        if (*found_out) {
            rp_costs measured;
            RP_TRY(rp_costs_load(names[i], arena, &measured));
            RP_TRY(rp_moved_costs(&measured, model, &from, platform, arena, costs_out));
        }
    }
    return RP_OK;
}

rp_status rp_find_costs(const rp_model *model, const rp_platform *platform, uint32_t sequences,
                        uint32_t seq_len, rp_arena *arena, rp_costs *costs_out)
{
    const char *name = NULL;
    const char **names = NULL;
    uint32_t count = 0;
    if (model->recorded == NULL) {
        return rp_roofline_costs(model, platform, sequences, seq_len, arena, costs_out);
    }
    RP_TRY(rp_arena_print(arena, &name, "%s@%s", model->recorded, platform->gpu));
    RP_TRY(rp_data_list("costs", arena, &names, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return rp_costs_load(name, arena, costs_out);
        }
    }
    bool moved = false;
    RP_TRY(find_moved(model, platform, arena, costs_out, &moved));
    return moved ? RP_OK : rp_roofline_costs(model, platform, sequences, seq_len, arena, costs_out);
}
