#include "tests/support/stage_case.h"

#include "tests/support/assertions.h"
#include "tests/support/synthetic.h"

#include <criterion/criterion.h>

static void set_times(rp_test_stage_case *c, uint32_t stage, slow_split times)
{
    c->stages[stage] = times;
    c->costs.fwd_ps[stage] = times.forward;
    c->costs.bwd_ps[stage] = times.input + times.weight;
    c->costs.bwd_input_ps[stage] = times.input;
}

void rp_test_stage_case_make(uint32_t gpus, uint32_t chunks, uint32_t microbatches,
                             slow_split times, rp_arena *arena, rp_test_stage_case *out)
{
    uint32_t stages = gpus * chunks;
    cr_assert(le(u32, stages, RP_TEST_STAGE_CASE_MOST));
    rp_test_equal_costs(arena, stages, 1, 2, &out->costs);
    for (uint32_t s = 0; s < stages; s++) {
        out->layers[s] = 1;
        set_times(out, s, times);
    }
    out->partition = (rp_partition){.forward_count = stages, .forward_layers = out->layers};
    out->config = (rp_schedule_config){.gpus = gpus,
                                       .microbatches = microbatches,
                                       .iterations = 1,
                                       .recompute = RP_RECOMPUTE_NONE,
                                       .layers = stages,
                                       .partition = &out->partition,
                                       .costs = &out->costs,
                                       .boundary_bytes = 1};
}

void rp_test_stage_case_draw(rp_random *random, bool empty, rp_test_stage_case *c)
{
    uint32_t high = rp_random_between(random, 0, 1) == 0 ? 3 : 1000;
    for (uint32_t s = 0; s < c->partition.forward_count; s++) {
        uint32_t low = empty && rp_random_between(random, 0, 9) == 0 ? 0 : 1;
        slow_split times;
        times.forward = rp_random_between(random, low, high);
        times.input = rp_random_between(random, low, high);
        times.weight = rp_random_between(random, low, high);
        set_times(c, s, times);
    }
    c->costs.hop_ps = rp_random_between(random, 0, 2) == 0 ? 0 : rp_random_between(random, 0, high);
}
