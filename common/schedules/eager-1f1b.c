/* Eager 1F1B: as 1F1B with min(2 (P - 1 - r), M) warm-up forwards, twice as many: a forward's
 * result is sent long before the next rank needs it, at the price of more kept activations. A GPU
 * has a single stage. */
#include "common/schedule/orders/pipeline.h"

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_1f1b_warmup_order(config, rank, 2 * (config->gpus - 1 - rank), emitter);
}

const rp_schedule_type rp_schedule_eager_1f1b = {
    .name = "eager-1f1b",
    .summary = "1F1B with twice the warm-up, for slow links; more activations",
    .source = "Zhuang et al., On Optimizing the Communication of Model Parallelism, MLSys 2023, "
              "section 4 (eager-1F1B)",
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = order,
};
