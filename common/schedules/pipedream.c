/* PipeDream: 1F1B over an endless stream of microbatches. The weights are updated after every
 * backward; a microbatch's backward uses the version that its forward used, so that rank r keeps P
 * - r versions. Differs from 1F1B only with the asynchronous optimizer. A GPU has a single
 * stage. */
#include "common/schedule/orders/pipeline.h"

const rp_schedule_type rp_schedule_pipedream = {
    .name = "pipedream",
    .summary = "1F1B without a flush, a version of the weights per microbatch in flight",
    .source =
        "Narayanan et al., PipeDream, SOSP 2019, sections 3.2 and 3.3; with --optimizer async",
    .flushed = &rp_schedule_1f1b,
    .traits =
        {
            .versions = RP_VERSIONS_STASHED,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_endless_1f1b_order,
};
