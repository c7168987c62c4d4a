/* Partitions that spread parameters evenly, against every split of a small model. */
#include "common/inputs/load/models.h"
#include "common/inputs/partition.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

TestSuite(balanced, .init = begin, .fini = end, .timeout = 120);

/* Least sum of squares of the stages' parameters over every split. */
static double least_squares(const rp_model *model, uint32_t stage, uint32_t stages, uint32_t left)
{
    double least = INFINITY;
    for (uint32_t own = stage + 1 == stages ? left : 0; own <= left; own++) {
        double load = (double)model->layer_parameters * own;
        load += stage == 0 ? (double)model->embedding_parameters : 0;
        load += stage + 1 == stages ? (double)model->embedding_parameters + model->hidden : 0;
        double rest = stage + 1 == stages ? 0 : least_squares(model, stage + 1, stages, left - own);
        least = fmin(least, load * load + rest);
    }
    return least;
}

Test(balanced, least_squares)
{
    rp_model model;
    rp_partition partition;
    cr_assert(eq(int, rp_model_load("llama3.1-8b", arena, &model), RP_OK));
    model.layers = 9;
    for (uint32_t stages = 1; stages <= 5; stages++) {
        cr_assert(eq(int, rp_partition_balanced(&model, stages, arena, &partition), RP_OK));
        double sum = 0;
        uint32_t layers = 0;
        for (uint32_t s = 0; s < stages; s++) {
            double load = (double)model.layer_parameters * partition.forward_layers[s];
            load += s == 0 ? (double)model.embedding_parameters : 0;
            load += s + 1 == stages ? (double)model.embedding_parameters + model.hidden : 0;
            sum += load * load;
            layers += partition.forward_layers[s];
        }
        cr_expect(eq(u32, layers, 9));
        cr_expect(epsilon_eq(dbl, sum / least_squares(&model, 0, stages, 9), 1, 1e-12));
    }
}
