/* Looped BFS: local stages ascending, each with all its forwards (microbatches ascending); then
 * local stages descending, each with all its backwards, microbatches descending. */
#include "common/schedule.h"

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    uint32_t chunks = config->partition->forward_count / config->gpus;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        for (uint32_t m = 0; m < config->microbatches; m++) {
            rp_emit_forward(emitter, chunk * config->gpus + rank, m);
        }
    }
    for (uint32_t chunk = chunks; chunk-- > 0;) {
        for (uint32_t m = config->microbatches; m-- > 0;) {
            rp_emit_backward(emitter, chunk * config->gpus + rank, m);
        }
    }
}

const rp_schedule_type rp_schedule_looped_bfs = {
    .name = "looped-bfs",
    .summary = "breadth first over several stages per GPU",
    .source = "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023; PyTorch's "
              "ScheduleLoopedBFS",
    .many_stages = true,
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = order,
};
