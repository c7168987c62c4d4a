/* ZeRO-Offload: ZeRO-2 with gradients and optimizer in host memory. Gradients are reduce-scattered
 * after each microbatch and the owned shard is downloaded; after the last microbatch the host runs
 * Adam on all shards, each GPU uploads its shard of the weights and the shards are all-gathered
 * (schedules.md 9). */
#include "common/schedule/orders/data_parallel.h"

const rp_schedule_type rp_schedule_zero_offload = {
    .name = "zero-offload",
    .summary = "ZeRO-Offload: ZeRO-2 with gradients and optimizer in host memory",
    .source = "Ren et al., ZeRO-Offload, USENIX ATC 2021, section 4",
    .traits =
        {
            .placement = RP_PLACEMENT_SHARDED,
            .sharding =
                {
                    .reductions = 1,
                    .host_gradients = true,
                    .host_collects = true,
                    .host_optimizer = true,
                    .pins = true, /* pin_memory, as configurations in use and our export have it */
                    .gather_after_step = true,
                    .bucket_bytes = UINT64_C(1000000000), /* as ZeRO-2 */
                },
            .unfused_loss = true,
            .communicator = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
