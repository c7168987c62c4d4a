/* The `even` partition: contiguous stages with the least maximum, ties to the front. */
#include "common/schedule/even.h"
#include "common/base/reason.h"
#include "common/schedule/schedule_type.h"

/* A sequence to split: weights in order, and the weight `head` in addition on the first
 * (head_first) or last stage. */
typedef struct split {
    const int64_t *weights;
    uint32_t count;
    int64_t head;
    bool head_first;
} split;

/* Fills stages from the front, each with as many layers as `cap` allows; false if the layers do not
 * fit. By an exchange argument this succeeds whenever any split within `cap` exists, and gives the
 * split with the most layers in front. `layers` may be NULL. */
static bool fill_front(const split *s, uint32_t stages, int64_t cap, uint32_t *layers)
{
    uint32_t next = 0;
    for (uint32_t stage = 0; stage < stages; stage++) {
        bool holds_head = s->head_first ? stage == 0 : stage + 1 == stages;
        int64_t load = holds_head ? s->head : 0;
        uint32_t begin = next;
        while (next < s->count && load <= cap && s->weights[next] <= cap - load) {
            load += s->weights[next++];
        }
        if (load > cap) {
            return false;
        }
        if (layers != NULL) {
            layers[stage] = next - begin;
        }
    }
    return next == s->count;
}

/* The least cap that `stages` stages can keep; feasibility is monotone, so bisection is exact. */
static int64_t least_cap(const split *s, uint32_t stages)
{
    int64_t low = -1;
    int64_t high = s->head;
    for (uint32_t i = 0; i < s->count; i++) {
        high += s->weights[i];
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (fill_front(s, stages, middle, NULL)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

static rp_status split_even(const split *s, uint32_t stages, rp_arena *arena, uint32_t **layers_out)
{
    RP_TRY(rp_arena_alloc(arena, stages, sizeof(uint32_t), layers_out));
    fill_front(s, stages, least_cap(s, stages), *layers_out);
    return RP_OK;
}

/* The multiple of the GPUs that is nearest to the number of layers, at least 1 stage per GPU. */
static uint32_t default_stages(uint32_t layers, uint32_t gpus)
{
    uint32_t per_gpu = (uint32_t)((2 * (uint64_t)layers + gpus - 1) / (2 * (uint64_t)gpus));
    return gpus * (per_gpu == 0 ? 1 : per_gpu);
}

/* Makes a stage of each layer: data-parallel systems gather weights block by block, independent of
 * the head's time. */
static rp_status each_layer(uint32_t layers, rp_arena *arena, rp_partition *partition_out)
{
    *partition_out = (rp_partition){.forward_count = layers};
    RP_TRY(rp_arena_alloc(arena, layers, sizeof(uint32_t), &partition_out->forward_layers));
    for (uint32_t i = 0; i < layers; i++) {
        partition_out->forward_layers[i] = 1;
    }
    return RP_OK;
}

static rp_status even_pipeline(const rp_schedule_type *schedule, const rp_costs *costs,
                               uint32_t stages, uint32_t gpus, rp_arena *arena,
                               rp_partition *partition_out)
{
    int64_t *weights = NULL;
    if (stages == 0 && rp_is_data_parallel(&schedule->traits)) {
        return each_layer(costs->layers, arena, partition_out);
    }
    RP_TRY(rp_arena_alloc(arena, costs->layers, sizeof *weights, &weights));
    for (uint32_t i = 0; i < costs->layers; i++) {
        weights[i] = 2 * costs->fwd_ps[i] + costs->bwd_ps[i];
    }
    split even = {weights, costs->layers, costs->head_fwd_ps + costs->head_bwd_ps, false};
    if (stages == 0) {
        uint32_t exactly = rp_schedule_stages(schedule, gpus);
        stages = exactly == 0 ? default_stages(costs->layers, gpus) : exactly;
    }
    *partition_out = (rp_partition){.forward_count = stages};
    return split_even(&even, stages, arena, &partition_out->forward_layers);
}

/* Makes `backward_stages` backward stages in execution order. The head's stage is fused, so the
 * forward stages cover the layers before it, with the fewest stages that take no longer than the
 * slowest backward stage. */
static rp_status even_separate(const rp_costs *costs, uint32_t backward_stages, rp_arena *arena,
                               rp_partition *partition_out)
{
    uint32_t layers = costs->layers;
    int64_t *weights = NULL;
    RP_TRY(rp_arena_alloc(arena, layers, sizeof *weights, &weights));
    for (uint32_t i = 0; i < layers; i++) {
        uint32_t layer = layers - 1 - i;
        weights[i] = costs->fwd_ps[layer] + costs->bwd_ps[layer];
    }
    split backward = {weights, layers, costs->head_fwd_ps + costs->head_bwd_ps, true};
    rp_partition partition = {.backward_count = backward_stages};
    RP_TRY(split_even(&backward, backward_stages, arena, &partition.backward_layers));
    int64_t cap = least_cap(&backward, backward_stages);
    split forward = {costs->fwd_ps, layers - partition.backward_layers[0], 0, false};
    uint32_t stages = forward.count == 0 ? 0 : 1;
    while (stages < forward.count && !fill_front(&forward, stages, cap, NULL)) {
        stages++;
    }
    partition.forward_count = stages;
    RP_TRY(split_even(&forward, stages, arena, &partition.forward_layers));
    *partition_out = partition;
    return RP_OK;
}

rp_status rp_partition_even(const rp_schedule_type *schedule, const rp_costs *costs, uint32_t gpus,
                            uint32_t stages, rp_arena *arena, rp_partition *partition_out,
                            rp_reason *reason)
{
    uint32_t least = schedule->stages_per_gpu > 1 ? schedule->stages_per_gpu * gpus : gpus;
    if (stages > RP_MAX_STAGES || (stages == 0 && least > RP_MAX_STAGES)) {
        return rp_refuse(reason, RP_USAGE, "{stages}: %u is out of range; valid values are 1 to %u",
                         stages, RP_MAX_STAGES);
    }
    if (schedule->separate_backward) {
        return even_separate(costs, stages == 0 ? gpus : stages, arena, partition_out);
    }
    return even_pipeline(schedule, costs, stages, gpus, arena, partition_out);
}
