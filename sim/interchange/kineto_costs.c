/* Makes a cost table from the ranges of a trace. */
#include "sim/interchange/kineto.h"

#include "common/base/log.h"
#include "common/base/median.h"
#include "common/base/units.h"
#include "common/formats/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- summaries ------------------------------------------------------------------------------- */

static int compare_keys(const rpsim_range *x, const rpsim_range *y)
{
    const uint32_t a[] = {x->pair, x->stage, x->type, x->recompute, x->pair_stage};
    const uint32_t b[] = {y->pair, y->stage, y->type, y->recompute, y->pair_stage};
    for (size_t i = 0; i < sizeof a / sizeof a[0]; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_ranges(const void *a, const void *b)
{
    const rpsim_range *x = a;
    const rpsim_range *y = b;
    int order = compare_keys(x, y);
    return order != 0 ? order : x->ps < y->ps ? -1 : x->ps > y->ps;
}

/* `sorted` has `count` >= 1 ranges of an action, sorted by time. */
static rpsim_range_summary summarise(const rpsim_range *sorted, uint32_t count)
{
    double sum = 0;
    double squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += (double)sorted[i].ps;
    }
    for (uint32_t i = 0; i < count; i++) {
        double off = (double)sorted[i].ps - sum / count;
        squares += off * off;
    }
    int64_t low = sorted[(count - 1) / 2].ps;
    return (rpsim_range_summary){.stage = sorted->stage,
                                 .pair_stage = sorted->pair_stage,
                                 .type = sorted->type,
                                 .pair = sorted->pair,
                                 .recompute = sorted->recompute,
                                 .count = count,
                                 .min_ps = sorted->ps,
                                 .median_ps = low + (sorted[count / 2].ps - low) / 2,
                                 .mean_ps = sum / count,
                                 .stddev_ps = sqrt(squares / count)};
}

rp_status rpsim_ranges_summarise(rpsim_ranges *ranges, rp_arena *arena,
                                 rpsim_range_summary **summaries_out, uint32_t *count_out)
{
    *count_out = 0;
    RP_TRY(rp_arena_alloc(arena, ranges->count, sizeof **summaries_out, summaries_out));
    if (ranges->count > 0) {
        qsort(ranges->ranges, ranges->count, sizeof *ranges->ranges, compare_ranges);
    }
    for (uint32_t begin = 0, end = 0; begin < ranges->count; begin = end) {
        while (end < ranges->count &&
               compare_keys(&ranges->ranges[begin], &ranges->ranges[end]) == 0) {
            end++;
        }
        (*summaries_out)[(*count_out)++] = summarise(&ranges->ranges[begin], end - begin);
    }
    return RP_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Times of a stage; -1: no such time. */
typedef struct stage_times {
    int64_t ps[RP_TORCH_BACKWARD_WEIGHT + 1]; /* F, B, I, W */
    int64_t backward_ps;                      /* I + W, or else B */
    uint32_t layers;
    /* Time of the last stage that does not belong to its layers. */
    int64_t head_forward_ps;
    int64_t head_backward_ps;
} stage_times;

static int64_t value_of(const rpsim_range_summary *s, rpsim_statistic statistic)
{
    return statistic == RPSIM_STATISTIC_MIN ? s->min_ps : s->median_ps;
}

static rp_status missing(const rpsim_ranges *ranges, uint32_t stage, const char *what)
{
    if (ranges->roundpipe) {
        rp_log_error_at(ranges->name, 0,
                        "layer %" PRIu32 " has no time of its %s; valid are whole training steps, "
                        "with a forward or recompute and a backward of each layer",
                        stage, what[0] == 'F' ? "forward" : "backward");
        return RP_INPUT;
    }
    rp_log_error_at(ranges->name, 0,
                    "stage %" PRIu32 " has no %s by itself in these traces; valid are the traces "
                    "of all ranks, with at least one F and one B, or I and W, of each stage",
                    stage, what);
    return RP_INPUT;
}

static rp_status collect_stages(const rpsim_ranges *ranges, const rpsim_range_summary *summaries,
                                uint32_t count, rpsim_statistic statistic, rp_arena *arena,
                                stage_times **stages_out, uint32_t *stage_count_out)
{
    uint32_t stage_count = ranges->stage_count;
    stage_times *stages = NULL;
    RP_TRY(rp_arena_alloc(arena, stage_count, sizeof *stages, &stages));
    for (uint32_t s = 0; s < stage_count; s++) {
        stages[s] = (stage_times){.ps = {-1, -1, -1, -1}, .layers = 1};
    }
    for (uint32_t i = 0; i < count; i++) {
        int64_t *ps = &stages[summaries[i].stage].ps[summaries[i].type];
        if (!summaries[i].pair && (!summaries[i].recompute || *ps < 0)) {
            *ps = value_of(&summaries[i], statistic);
        }
    }
    for (uint32_t s = 0; s < stage_count; s++) {
        const int64_t *ps = stages[s].ps;
        bool split = ps[RP_TORCH_BACKWARD_INPUT] >= 0 && ps[RP_TORCH_BACKWARD_WEIGHT] >= 0;
        if (ps[RP_TORCH_FORWARD] < 0) {
            return missing(ranges, s, "F");
        }
        if (!split && ps[RP_TORCH_BACKWARD] < 0) {
            return missing(ranges, s, "B, or I and W,");
        }
        stages[s].backward_ps = split ? ps[RP_TORCH_BACKWARD_INPUT] + ps[RP_TORCH_BACKWARD_WEIGHT]
                                      : ps[RP_TORCH_BACKWARD];
        stages[s].ps[RP_TORCH_BACKWARD_INPUT] = split ? ps[RP_TORCH_BACKWARD_INPUT] : -1;
    }
    *stages_out = stages;
    *stage_count_out = stage_count;
    return RP_OK;
}

/* The time of the last stage beyond the time of `layers` layers of the stages before it. */
static int64_t excess(int64_t last_ps, uint32_t layers, double sum_ps, uint64_t sum_layers)
{
    int64_t expected = (int64_t)llround(sum_ps / (double)sum_layers * layers);
    return expected < last_ps ? last_ps - expected : 0;
}

static rp_status set_layers(const rpsim_ranges *ranges, const rp_partition *partition,
                            stage_times *stages, uint32_t stage_count)
{
    double forward_ps = 0;
    double backward_ps = 0;
    uint64_t layers = 0;
    if (partition == NULL) {
        return RP_OK;
    }
    if (partition->backward_count != 0 || partition->forward_count != stage_count) {
        rp_log_error("{partition}: %" PRIu32 " stages, and the traces have %" PRIu32
                     "; valid are lists of %" PRIu32 " stages",
                     partition->forward_count + partition->backward_count, stage_count,
                     stage_count);
        return RP_INPUT;
    }
    stage_times *last = &stages[stage_count - 1];
    for (uint32_t s = 0; s < stage_count; s++) {
        stages[s].layers = partition->forward_layers[s];
        if (stages[s].layers == 0 && &stages[s] != last) {
            rp_log_error_at(ranges->name, 0,
                            "stage %" PRIu32 " takes time and {partition} gives it no layers; "
                            "valid are stages with layers, but for the last one",
                            s);
            return RP_INPUT;
        }
        bool before = &stages[s] != last;
        forward_ps += before ? (double)stages[s].ps[RP_TORCH_FORWARD] : 0;
        backward_ps += before ? (double)stages[s].backward_ps : 0;
        layers += before ? stages[s].layers : 0;
    }
    if (layers == 0) {
        if (last->layers != 0) {
            return RP_OK;
        }
        rp_log_error("{partition}: no layers at all; valid are lists with one at least");
        return RP_INPUT;
    }
    last->head_forward_ps = excess(last->ps[RP_TORCH_FORWARD], last->layers, forward_ps, layers);
    last->head_backward_ps = excess(last->backward_ps, last->layers, backward_ps, layers);
    int64_t input_ps = last->ps[RP_TORCH_BACKWARD_INPUT]; /* contains the head's backward */
    if (last->layers != 0 && input_ps >= 0 && last->head_backward_ps > input_ps) {
        last->head_backward_ps = input_ps;
    }
    return RP_OK;
}

/* Shares a time evenly; the first layers get the rest. */
static void share(int64_t ps, uint32_t layers, int64_t *layers_ps)
{
    for (uint32_t i = 0; i < layers; i++) {
        layers_ps[i] = ps / layers + (i < ps % layers ? 1 : 0);
    }
}

static rp_status set_overlap(const rpsim_range_summary *summaries, uint32_t count,
                             const stage_times *stages, rpsim_statistic statistic, rp_arena *arena,
                             rp_costs *costs)
{
    uint32_t pairs = 0;
    double *savings = NULL;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *savings, &savings));
    for (uint32_t i = 0; i < count; i++) {
        const rpsim_range_summary *s = &summaries[i];
        if (!s->pair) {
            continue;
        }
        int64_t forward_ps = stages[s->stage].ps[RP_TORCH_FORWARD];
        int64_t backward_ps = stages[s->pair_stage].backward_ps;
        int64_t shorter_ps = forward_ps < backward_ps ? forward_ps : backward_ps;
        int64_t saved_ps = forward_ps + backward_ps - value_of(s, statistic);
        savings[pairs++] =
            saved_ps <= 0 || shorter_ps == 0 ? 0 : fmin(1, (double)saved_ps / (double)shorter_ps);
    }
    if (pairs > 0) {
        costs->overlap_saving = rp_median(savings, pairs);
    }
    return RP_OK;
}

/* Checks the limits of a cost table, and every sum before it is made. */
static rp_status check_sizes(const rpsim_ranges *ranges, const stage_times *stages,
                             uint32_t stage_count)
{
    const int64_t most_ps = rp_ms_to_ps(RP_MAX_COST_MS);
    int64_t total_ps = 0;
    for (uint32_t s = 0; s < stage_count; s++) {
        int64_t forward_ps = stages[s].ps[RP_TORCH_FORWARD];
        int64_t backward_ps = stages[s].backward_ps;
        total_ps += 2 * forward_ps + backward_ps;
        if (backward_ps > most_ps || total_ps > RP_MAX_MICROBATCH_PS) {
            rp_log_error_at(ranges->name, 0,
                            "stage %" PRIu32 " and those before it take too long for one "
                            "microbatch; valid values are backwards up to %.0f ms, and all "
                            "together %.0f ms",
                            s, RP_MAX_COST_MS, rp_ps_to_ms(RP_MAX_MICROBATCH_PS));
            return RP_INPUT;
        }
    }
    return RP_OK;
}

rp_status rpsim_kineto_costs(const rpsim_ranges *ranges, const rpsim_range_summary *summaries,
                             uint32_t count, rpsim_statistic statistic,
                             const rp_partition *partition, rp_arena *arena, rp_costs *costs_out)
{
    stage_times *stages = NULL;
    uint32_t stage_count = 0;
    *costs_out = (rp_costs){.source = ""};
    RP_TRY(collect_stages(ranges, summaries, count, statistic, arena, &stages, &stage_count));
    RP_TRY(check_sizes(ranges, stages, stage_count));
    RP_TRY(set_layers(ranges, partition, stages, stage_count));
    uint64_t layers = 0;
    for (uint32_t s = 0; s < stage_count; s++) {
        layers += stages[s].layers;
    }
    if (layers > RP_MAX_LAYERS) {
        rp_log_error("{partition}: %llu layers; valid are up to %u", (unsigned long long)layers,
                     RP_MAX_LAYERS);
        return RP_INPUT;
    }
    costs_out->layers = (uint32_t)layers;
    RP_TRY(rp_arena_alloc(arena, costs_out->layers, sizeof(int64_t), &costs_out->fwd_ps));
    RP_TRY(rp_arena_alloc(arena, costs_out->layers, sizeof(int64_t), &costs_out->bwd_ps));
    RP_TRY(rp_arena_alloc(arena, costs_out->layers, sizeof(int64_t), &costs_out->bwd_input_ps));
    for (uint32_t s = 0, layer = 0; s < stage_count; layer += stages[s++].layers) {
        const stage_times *t = &stages[s];
        int64_t backward_ps = t->backward_ps - t->head_backward_ps;
        int64_t input_ps = t->ps[RP_TORCH_BACKWARD_INPUT];
        input_ps = input_ps < 0 ? backward_ps / 2 : input_ps - t->head_backward_ps;
        share(t->ps[RP_TORCH_FORWARD] - t->head_forward_ps, t->layers, costs_out->fwd_ps + layer);
        share(backward_ps, t->layers, costs_out->bwd_ps + layer);
        share(input_ps, t->layers, costs_out->bwd_input_ps + layer);
        costs_out->head_fwd_ps += t->head_forward_ps;
        costs_out->head_bwd_ps += t->head_backward_ps;
    }
    return set_overlap(summaries, count, stages, statistic, arena, costs_out);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_list(FILE *stream, const char *key, const int64_t *ps, uint32_t count)
{
    fprintf(stream, "%s: [", key);
    for (uint32_t i = 0; i < count; i++) {
        char text[RP_JSON_NUMBER_SIZE];
        rp_json_print_ms(ps[i], text);
        fprintf(stream, "%s%s", i == 0 ? "" : ", ", text);
    }
    fputs("]\n", stream);
}

static void write_time(FILE *stream, const char *key, int64_t ps, const char *comment)
{
    char text[RP_JSON_NUMBER_SIZE];
    rp_json_print_ms(ps, text);
    fprintf(stream, "%s: %s%s\n", key, text, comment);
}

static void write_summary(FILE *stream, const rpsim_range_summary *s)
{
    char name[RP_TORCH_NAME_SIZE];
    char median[RP_JSON_NUMBER_SIZE];
    char least[RP_JSON_NUMBER_SIZE];
    const char *type = s->recompute ? "R" : rp_torch_type_text((rp_torch_type)s->type);
    if (s->pair) {
        snprintf(name, sizeof name, "(%" PRIu32 "F;%" PRIu32 "B)", s->stage, s->pair_stage);
    } else {
        snprintf(name, sizeof name, "%" PRIu32 "%s", s->stage, type);
    }
    rp_json_print_ms(s->median_ps, median);
    rp_json_print_ms(s->min_ps, least);
    fprintf(stream, "#   %-10s %6" PRIu32 "  %14s  %14s  %14.6f  %14.6f\n", name, s->count, median,
            least, s->mean_ps / 1e9, s->stddev_ps / 1e9);
}

void rpsim_kineto_write(const rp_costs *costs, const rpsim_ranges *ranges,
                        const rpsim_range_summary *summaries, uint32_t count, FILE *stream)
{
    fprintf(stream,
            "# Measured by %s. In milliseconds:\n"
            "#   %-10s %6s  %14s  %14s  %14s  %14s\n",
            ranges->timer    ? "RoundPipe's ModelTimer, CUDA events"
            : ranges->on_gpu ? "PyTorch's profiler, ranges of the GPU"
                             : "PyTorch's profiler, ranges of the CPU",
            "action", "count", "median", "min", "mean", "stddev");
    for (uint32_t i = 0; i < count; i++) {
        write_summary(stream, &summaries[i]);
    }
    fprintf(stream, "name: %s\nsource: %s\nlayers: %" PRIu32 "\n", costs->name, costs->source,
            costs->layers);
    write_list(stream, "fwd_ms", costs->fwd_ps, costs->layers);
    write_list(stream, "bwd_ms", costs->bwd_ps, costs->layers);
    write_list(stream, "bwd_input_ms", costs->bwd_input_ps, costs->layers);
    write_time(stream, "head_fwd_ms", costs->head_fwd_ps, "");
    write_time(stream, "head_bwd_ms", costs->head_bwd_ps, "");
    write_time(stream, "hop_ms", costs->hop_ps, "  # not in these ranges");
    if (costs->overlap_saving > 0) {
        char text[RP_JSON_NUMBER_SIZE];
        rp_json_print_double(costs->overlap_saving, text);
        fprintf(stream, "overlap_saving: %s\n", text);
    }
    fprintf(stream,
            "microbatch_size: %" PRIu32 "\nseq_len: %" PRIu32
            "\n# Not in these ranges: dtype (bf16, or fp16 with accumulation: fp32, or fp32).\n",
            costs->microbatch_size, costs->seq_len);
}
