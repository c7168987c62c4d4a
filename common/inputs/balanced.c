/* A pipeline's partition by parameters. Every block counts as a block of mean size; embedding and
 * head are counted in blocks of that size. */
#include "common/inputs/model.h"
#include "common/inputs/partition.h"

#include <math.h>

/* Parameters in blocks' worth, so that squares of sums stay small. */
typedef struct loads {
    double embedding;
    double head;
    uint32_t stages;
} loads;

static double load_of(const loads *fixed, uint32_t stage, uint32_t blocks)
{
    double load = blocks;
    load += stage == 0 ? fixed->embedding : 0;
    return load + (stage + 1 == fixed->stages ? fixed->head : 0);
}

/* best[s][n]: least sum of squares of stages s .. with n blocks among them. */
static void fill_sums(const loads *fixed, uint32_t blocks, double *best)
{
    size_t row = (size_t)blocks + 1;
    for (uint32_t s = fixed->stages; s-- > 0;) {
        for (uint32_t n = 0; n <= blocks; n++) {
            bool last = s + 1 == fixed->stages;
            double least = INFINITY;
            for (uint32_t own = last ? n : 0; own <= n; own++) {
                double load = load_of(fixed, s, own);
                double rest = last ? 0 : best[(s + 1) * row + n - own];
                least = fmin(least, load * load + rest);
            }
            best[s * row + n] = least;
        }
    }
}

rp_status rp_partition_balanced(const rp_model *model, uint32_t stages, rp_arena *arena,
                                rp_partition *partition_out)
{
    double block = 0;
    for (uint32_t i = 0; i < model->layers; i++) {
        block += (double)rp_model_held_layer(rp_model_of_layer(model, i));
    }
    block /= model->layers;
    double table = (double)model->embedding_parameters;
    loads fixed = {table / block, (table + model->hidden) / block, stages};
    size_t row = (size_t)model->layers + 1;
    double *best = NULL;
    rp_partition partition = {.forward_count = stages};
    RP_TRY(rp_arena_alloc(arena, stages * row, sizeof *best, &best));
    RP_TRY(rp_arena_alloc(arena, stages, sizeof(uint32_t), &partition.forward_layers));
    fill_sums(&fixed, model->layers, best);
    uint32_t left = model->layers;
    for (uint32_t s = 0; s < stages; s++) {
        uint32_t own = left;
        double load = load_of(&fixed, s, own);
        double rest = s + 1 < stages ? best[(s + 1) * row + left - own] : 0;
        while (s + 1 < stages && load * load + rest > best[s * row + left]) {
            own--;
            load = load_of(&fixed, s, own);
            rest = best[(s + 1) * row + left - own];
        }
        partition.forward_layers[s] = own;
        left -= own;
    }
    *partition_out = partition;
    return RP_OK;
}
