/* ZB-H2: as ZB-H1 with 2 (P - 1 - r) warm-up forwards and a lag of 2 r weight parts: with equal
 * times of forward, input and weight part no rank idles between its first and its last op, at the
 * price of the activations of 2 P - 1 microbatches on the first rank. Needs that many microbatches.
 * A GPU has a single stage. */
#include "common/base/reason.h"
#include "common/schedule/orders/pipeline.h"

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    uint32_t least = 2 * config->gpus - 1;
    if (config->microbatches >= least) {
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE,
                     "{microbatches}: zb-h2 fills the pipeline with %u on %u GPUs, %u are too few; "
                     "valid are %u and more",
                     least, config->gpus, config->microbatches, least);
}

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_zero_bubble_order(config, rank, 2 * (config->gpus - 1 - rank), 2 * rank, emitter);
}

const rp_schedule_type rp_schedule_zb_h2 = {
    .name = "zb-h2",
    .summary = "ZB-H1 with twice the warm-up: no idle time inside, more activations",
    .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2",
    .splits_backward = true,
    .default_recompute = RP_RECOMPUTE_NONE,
    .check = check,
    .order = order,
};
