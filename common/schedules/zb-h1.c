/* ZB-H1: as 1F1B with min(P - 1 - r, M) warm-up forwards; each backward has two parts, and the
 * weight part of a microbatch comes r input parts later, so that every rank keeps P microbatches.
 * With equal times of forward, input and weight part a third of 1F1B's bubble is left. A GPU has a
 * single stage. */
#include "common/schedule/orders/pipeline.h"

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_zero_bubble_order(config, rank, config->gpus - 1 - rank, rank, emitter);
}

const rp_schedule_type rp_schedule_zb_h1 = {
    .name = "zb-h1",
    .summary = "1F1B with the backward in two parts and weight gradients where it would idle",
    .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2",
    .splits_backward = true,
    .default_recompute = RP_RECOMPUTE_NONE,
    .order = order,
};
