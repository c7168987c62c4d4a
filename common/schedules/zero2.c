/* DeepSpeed ZeRO-2: weights on every GPU, gradients and optimizer sharded.
 * After each microbatch the gradients are reduced with as much traffic as two all-gathers of the
 * weights, and nothing overlaps with it (sim/model.md section 3). */
#include "common/schedule/orders/data_parallel.h"

const rp_schedule_type rp_schedule_zero2 = {
    .name = "zero2",
    .summary = "DeepSpeed ZeRO-2: data parallel, gradients and optimizer sharded",
    .source = "Rajbhandari et al., ZeRO, SC 2020, section 5; volumes of sim/model.md section 3",
    .traits =
        {
            .placement = RP_PLACEMENT_SHARDED,
            .sharding =
                {
                    .reductions = 2,
                    .bucket_bytes = UINT64_C(1000000000),  /* reduce_bucket_size, 5e8 elements */
                    .step_group = UINT64_C(1000000000000), /* the whole shard */
                },
            .unfused_loss = true,
            .communicator = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
