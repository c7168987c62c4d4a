#include "common/schedule/orders/data_parallel.h"

void rp_data_parallel_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                            uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    uint32_t stages = config->partition->forward_count;
    for (uint32_t m = rank; m < config->microbatches; m += config->gpus) {
        for (uint32_t stage = 0; stage < stages; stage++) {
            rp_emit_forward(emitter, stage, m);
        }
        for (uint32_t stage = stages; stage-- > 0;) {
            rp_emit_backward(emitter, stage, m);
        }
    }
}
