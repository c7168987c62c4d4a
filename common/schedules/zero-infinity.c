/* ZeRO-Infinity: everything sharded, weights and optimizer in host memory.
 * Per microbatch the weights are gathered for the forward and for the backward and the gradients
 * reduced, three volumes in all; the owned shard comes up before and its gradients go down after,
 * and the host takes them in. Nothing overlaps (shared/design/prediction.md section 3). */
#include "common/data_parallel.h"

static const rp_sharding sharding = {
    .forward_gathers = 1,
    .backward_gathers = 1,
    .reductions = 1,
    .host_weights = true,
    .host_gradients = true,
    .host_collects = true,
    .host_optimizer = true,
};

const rp_schedule_type rp_schedule_zero_infinity = {
    .name = "zero-infinity",
    .summary = "ZeRO-Infinity: everything sharded, weights and optimizer in host memory",
    .source =
        "Rajbhandari et al., ZeRO-Infinity, SC 2021, section 5; volumes of prediction.md section 3",
    .data_parallel = true,
    .placement = RP_PLACEMENT_SHARDED,
    .sharding = &sharding,
    .unfused_loss = true,
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
