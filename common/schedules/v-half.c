/* V-Half: two stages per GPU in a V; each rank repeats a pattern of six slots per microbatch, with
 * about half of 1F1B's activations. */
#include "common/schedule/orders/v_slots.h"

static rp_v_slots slots_of(const rp_schedule_config *config, uint32_t rank)
{
    uint64_t p = config->gpus;
    uint64_t gap = p % 2 == 0 ? 3 : 0; /* keeps input parts out of the forwards' slots */
    return (rp_v_slots){.forward = {2 * (uint64_t)rank, 3 * p - rank - 2},
                        .input = {6 * p + gap - rank - 2, 3 * p + gap + 2 * (uint64_t)rank - 1}};
}

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_v_slots slots = slots_of(config, rank);
    rp_v_slots_order(config, rank, &slots, emitter);
}

const rp_schedule_type rp_schedule_v_half = {
    .name = "v-half",
    .summary = "two stages per GPU in a V with about half of 1F1B's activations",
    .source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 4; "
              "as planned, not compacted",
    .stages_per_gpu = 2,
    .splits_backward = true,
    .default_recompute = RP_RECOMPUTE_NONE,
    .order = order,
};
