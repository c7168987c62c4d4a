/* DeepSpeed ZeRO-2: weights on every GPU, gradients and optimizer sharded.
 * After each microbatch the gradients are reduced with as much traffic as two all-gathers of the
 * weights, and nothing overlaps with it (shared/design/prediction.md section 3). */
#include "common/data_parallel.h"

static const rp_sharding sharding = {
    .reductions = 2,
};

const rp_schedule_type rp_schedule_zero2 = {
    .name = "zero2",
    .summary = "DeepSpeed ZeRO-2: data parallel, gradients and optimizer sharded",
    .source = "Rajbhandari et al., ZeRO, SC 2020, section 5; volumes of prediction.md section 3",
    .data_parallel = true,
    .placement = RP_PLACEMENT_SHARDED,
    .sharding = &sharding,
    .unfused_loss = true,
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
