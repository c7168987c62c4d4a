/* 1F1B: min(P - 1 - r, M) warm-up forwards, then a forward and a backward in turn, then the rest of
 * the backwards; microbatches ascending. A GPU has a single stage. */
#include "common/schedule/orders/pipeline.h"

const rp_schedule_type rp_schedule_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward in turn; one stage per GPU",
    .source = "Narayanan et al., PipeDream, SOSP 2019, section 3.2; flushed as in Megatron-LM",
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_1f1b_order,
};
