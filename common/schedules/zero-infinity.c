/* ZeRO-Infinity: everything sharded, weights and optimizer in host memory. Per microbatch the
 * weights are gathered for the forward and for the backward and the gradients reduced, three
 * volumes in all; the owned shard is uploaded before, and its gradients are downloaded after and
 * collected by the host. Nothing overlaps (sim/model.md section 3). Weights that the backward soon
 * needs again stay from the forward, as DeepSpeed's coordinator of parameters keeps them. */
#include "common/schedule/orders/data_parallel.h"

const rp_schedule_type rp_schedule_zero_infinity = {
    .name = "zero-infinity",
    .summary = "ZeRO-Infinity: everything sharded, weights and optimizer in host memory",
    .source =
        "Rajbhandari et al., ZeRO-Infinity, SC 2021, section 5; volumes of sim/model.md section 3",
    .traits =
        {
            .placement = RP_PLACEMENT_SHARDED,
            .sharding =
                {
                    .forward_gathers = 1,
                    .backward_gathers = 1,
                    .reductions = 1,
                    .host_weights = true,
                    .host_gradients = true,
                    .host_collects = true,
                    .host_optimizer = true,
                    .pins = true, /* pin_memory, as configurations in use and our export have it */
                    .bucket_bytes =
                        UINT64_C(1000000000),           /* as ZeRO-2; prefetched weights are live */
                    .live_bytes = UINT64_C(2000000000), /* stage3_max_live_parameters, 1e9 */
                    .reuse_distance = UINT64_C(1000000000), /* stage3_max_reuse_distance */
                },
            .unfused_loss = true,
            .communicator = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
