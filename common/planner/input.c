/* Connects the planner to the project's data: cost tables, models and platforms in, partitions
 * out. */
#include "common/planner/planner.h"

#include <math.h>

#define BYTES_PER_PARAMETER 2u /* fp16 */

static void set_times(const rp_costs *costs, int64_t *fwd, int64_t *bwd)
{
    for (uint32_t i = 0; i < costs->layers; i++) {
        fwd[i + 1] = costs->fwd_ps[i];
        bwd[i + 1] = costs->fwd_ps[i] + costs->bwd_ps[i];
    }
    fwd[costs->layers + 1] = costs->head_fwd_ps;
    bwd[costs->layers + 1] = costs->head_fwd_ps + costs->head_bwd_ps;
}

static void set_bytes(const rp_model *model, uint64_t *fwd, uint64_t *bwd)
{
    uint32_t head = model->layers + 1;
    for (uint32_t i = 0; i <= head; i++) {
        bool block = i != 0 && i != head;
        const rp_model *layer = block ? rp_model_of_layer(model, i - 1) : model;
        uint64_t held = rp_model_held_layer(layer);
        uint64_t trained = rp_model_trainable_layer(layer);
        if (!block) {
            held = model->embedding_parameters + (i == head ? model->hidden : 0);
            trained = model->lora_rank != 0 ? 0 : held; /* LoRA freezes tables and norms */
        }
        fwd[i] = BYTES_PER_PARAMETER * held;
        bwd[i] = fwd[i] + BYTES_PER_PARAMETER * trained;
    }
}

rp_status rp_plan_input_from_costs(const rp_costs *costs, const rp_model *model, rp_arena *arena,
                                   rp_plan_input *input_out)
{
    uint32_t layers = costs->layers + 2;
    int64_t *times[2] = {0};
    uint64_t *bytes[2] = {0};
    for (int i = 0; i < 2; i++) {
        RP_TRY(rp_arena_alloc(arena, layers, sizeof(int64_t), &times[i]));
        RP_TRY(rp_arena_alloc(arena, layers, sizeof(uint64_t), &bytes[i]));
    }
    set_times(costs, times[0], times[1]);
    if (model != NULL) {
        set_bytes(model, bytes[0], bytes[1]);
    }
    *input_out = (rp_plan_input){.name = costs->name,
                                 .mode = RP_PLAN_FUSED,
                                 .layers = layers,
                                 .fwd_time = times[0],
                                 .bwd_time = times[1],
                                 .fwd_bytes = bytes[0],
                                 .bwd_bytes = bytes[1],
                                 .memory_limit = RP_PLAN_UNLIMITED,
                                 .min_stages = 1,
                                 .tolerance_num = 11,
                                 .tolerance_den = 10};
    return RP_OK;
}

uint64_t rp_plan_default_limit(const rp_platform *platform)
{
    /* The library takes the number of GiB as a number of GB, rounded up as cards are sold. */
    double gb = platform->memory_gib > 0 ? ceil(platform->memory_gib) : platform->memory_gb;
    return (uint64_t)llround(gb * 1e9) / 5 * 3;
}

/* Counts the blocks of each stage, which are layers 1 … blocks of the plan. */
static rp_status count_blocks(const rp_interval *stages, uint32_t count, uint32_t blocks,
                              rp_arena *arena, uint32_t **layers_out)
{
    RP_TRY(rp_arena_alloc(arena, count, sizeof **layers_out, layers_out));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t begin = stages[i].begin > 1 ? stages[i].begin : 1;
        uint32_t end = stages[i].end < blocks + 1 ? stages[i].end : blocks + 1;
        (*layers_out)[i] = end > begin ? end - begin : 0;
    }
    return RP_OK;
}

rp_status rp_plan_partition(const rp_plan *plan, uint32_t blocks, rp_arena *arena,
                            rp_partition *partition_out)
{
    partition_out->forward_count = plan->forward_count;
    partition_out->backward_count = plan->backward_count;
    RP_TRY(count_blocks(plan->forward, plan->forward_count, blocks, arena,
                        &partition_out->forward_layers));
    return count_blocks(plan->backward, plan->backward_count, blocks, arena,
                        &partition_out->backward_layers);
}
