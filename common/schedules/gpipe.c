/* GPipe: all forwards, then all backwards, microbatches ascending in both. A GPU has a single
 * stage. M >= P as published; fewer microbatches are valid and only cause more idle time. */
#include "common/schedule/schedule_type.h"

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    for (uint32_t m = 0; m < config->microbatches; m++) {
        rp_emit_forward(emitter, rank, m);
    }
    for (uint32_t m = 0; m < config->microbatches; m++) {
        rp_emit_backward(emitter, rank, m);
    }
}

const rp_schedule_type rp_schedule_gpipe = {
    .name = "gpipe",
    .summary = "all forwards, then all backwards; one stage per GPU",
    .source = "Huang et al., GPipe, NeurIPS 2019, section 2.3",
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = order,
};
