/* Mobius: more stages than GPUs, weights in host memory. A GPU runs all microbatches of its stage,
 * then its next stage, whose weights have been uploaded meanwhile: apart from transfers this is
 * looped BFS (schedules.md 6; from secondary sources, as its code is closed).
 *
 * Assumptions: stages go round the GPUs in order (the cross mapping over root complexes needs a
 * topology, which is not published for the measurements); boundary activations are kept in host
 * memory; the last stage's weights are uploaded again for its backward; microbatches descend in the
 * backward as in looped BFS. Calls of a step follow each other, and each uploads a stage's weights
 * again. */
#include "common/schedule/orders/pipeline.h"

const rp_schedule_type rp_schedule_mobius = {
    .name = "mobius",
    .summary = "looped BFS with weights and optimizer in host memory",
    .source = "Feng et al., Mobius, ASPLOS 2023; schedules.md 6",
    .published_as = "looped-bfs",
    .many_stages = true,
    .traits =
        {
            .placement = RP_PLACEMENT_OFFLOAD,
            .unfused_loss = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_looped_bfs_calls_order,
};
