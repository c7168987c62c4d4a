/* 1F1B: min(P - 1 - r, M) warm-up forwards, then a forward and a backward in turn, then the rest of
 * the backwards; microbatches ascending. One stage per GPU. */
#include "common/schedule.h"

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    uint32_t warmup = config->gpus - 1 - rank;
    uint32_t forward = 0;
    while (forward < warmup && forward < config->microbatches) {
        rp_emit_forward(emitter, rank, forward++);
    }
    for (uint32_t backward = 0; backward < config->microbatches; backward++) {
        if (forward < config->microbatches) {
            rp_emit_forward(emitter, rank, forward++);
        }
        rp_emit_backward(emitter, rank, backward);
    }
}

const rp_schedule_type rp_schedule_1f1b = {
    .name = "1f1b",
    .summary = "one forward, one backward in turn; one stage per GPU",
    .source = "Narayanan et al., PipeDream, SOSP 2019, section 3.2; flushed as in Megatron-LM",
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = order,
};
