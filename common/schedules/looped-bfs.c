/* Looped BFS: local stages ascending, each with all its forwards (microbatches ascending); then
 * local stages descending, each with all its backwards, microbatches descending. */
#include "common/schedule/orders/pipeline.h"

const rp_schedule_type rp_schedule_looped_bfs = {
    .name = "looped-bfs",
    .summary = "breadth first over several stages per GPU",
    .source = "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023; PyTorch's "
              "ScheduleLoopedBFS",
    .many_stages = true,
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_looped_bfs_order,
};
