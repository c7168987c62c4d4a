/* PipeDream-2BW: 1F1B over an endless stream of microbatches whose gradients are accumulated over M
 * of them; the update takes effect a step later, so that two versions of the weights suffice. Needs
 * M >= P: otherwise microbatches in flight would use more than two versions. Differs from 1F1B only
 * with the asynchronous optimizer. A GPU has a single stage. */
#include "common/base/reason.h"
#include "common/schedule/orders/pipeline.h"

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    if (config->microbatches >= config->gpus) {
        return RP_OK;
    }
    return rp_refuse(
        reason, RP_USAGE,
        "{microbatches}: pipedream-2bw keeps two versions of the weights, enough for steps "
        "of as many microbatches as GPUs: %u on %u GPUs; valid are %u and more",
        config->microbatches, config->gpus, config->gpus);
}

const rp_schedule_type rp_schedule_pipedream_2bw = {
    .name = "pipedream-2bw",
    .summary = "1F1B without a flush, two versions of the weights, updates delayed by one",
    .source =
        "Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021, section "
        "3.1; with --optimizer async",
    .flushed = &rp_schedule_1f1b,
    .traits =
        {
            .versions = RP_VERSIONS_TWO,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .check = check,
    .order = rp_endless_1f1b_order,
};
