#include "tests/support/synthetic.h"

#include "common/schedule/orders/pipeline.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>

void rp_test_equal_costs(rp_arena *arena, uint32_t layers, int64_t fwd_ps, int64_t bwd_ps,
                         rp_costs *costs)
{
    *costs = (rp_costs){.name = "equal", .layers = layers, .microbatch_size = 1, .seq_len = 1};
    cr_assert(eq(int, rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->fwd_ps), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_ps), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_input_ps), RP_OK));
    for (uint32_t i = 0; i < layers; i++) {
        costs->fwd_ps[i] = fwd_ps;
        costs->bwd_ps[i] = bwd_ps;
        costs->bwd_input_ps[i] = bwd_ps / 2;
    }
}

rp_status rp_test_run_even(const rp_schedule_type *schedule, const rp_costs *costs, uint32_t gpus,
                           uint32_t microbatches, uint32_t stages_per_gpu, rp_recompute recompute,
                           rp_arena *arena, rpsim_result *result_out)
{
    rp_partition partition;
    uint32_t exactly = rp_schedule_stages(schedule, gpus);
    uint32_t stages = exactly == 0 ? gpus * stages_per_gpu : exactly;
    RP_TRY(rp_partition_even(schedule, costs, gpus, stages, arena, &partition, NULL));
    rp_schedule_config config = {.gpus = gpus,
                                 .microbatches = microbatches,
                                 .iterations = 1,
                                 .round = gpus,
                                 .recompute = recompute,
                                 .layers = costs->layers,
                                 .partition = &partition,
                                 .costs = costs,
                                 .boundary_bytes = 1};
    return rpsim_case_run(schedule, &config, result_out, NULL);
}

uint32_t rp_test_lag;

static void lagging_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                          uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_zero_bubble_order(config, rank, config->gpus - 1 - rank, rp_test_lag, emitter);
}

const rp_schedule_type rp_test_lagging = {.name = "lagging",
                                          .splits_backward = true,
                                          .default_recompute = RP_RECOMPUTE_NONE,
                                          .order = lagging_order};
