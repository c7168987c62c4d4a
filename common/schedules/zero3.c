/* DeepSpeed ZeRO-3 without offload: weights, gradients and optimizer sharded. Per microbatch the
 * weights are gathered for the forward and, except those that it soon needs, again for the
 * backward, and gradients are reduced and scattered. Gathers run ahead of the compute: stage 3 has
 * a trace of the modules and a stream of its own for them (PartitionedParameterCoordinator, and
 * overlap_comm, which is on by default in stage 3 alone). Numbers are DeepSpeed's defaults. */
#include "common/schedule/orders/data_parallel.h"

const rp_schedule_type rp_schedule_zero3 = {
    .name = "zero3",
    .summary = "DeepSpeed ZeRO-3: weights, gradients and optimizer sharded, all on the GPUs",
    .source = "Rajbhandari et al., ZeRO, SC 2020, section 5.3; DeepSpeed 0.17.5, "
              "runtime/zero/stage3.py, partitioned_param_coordinator.py",
    .traits =
        {
            .placement = RP_PLACEMENT_SHARDED,
            .sharding =
                {
                    .forward_gathers = 1,
                    .backward_gathers = 1,
                    .overlap = true,
                    .reductions = 1,
                    .bucket_bytes = UINT64_C(1000000000),   /* reduce_bucket_size, 5e8 elements */
                    .live_bytes = UINT64_C(2000000000),     /* stage3_max_live_parameters, 1e9 */
                    .reuse_distance = UINT64_C(1000000000), /* stage3_max_reuse_distance */
                    .step_group = UINT64_C(1000000000),     /* sub_group_size */
                },
            .unfused_loss = true,
            .communicator = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
