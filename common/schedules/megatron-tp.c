/* Megatron tensor parallelism over all GPUs: every layer is split, and its ranks work on the same
 * microbatch. A microbatch is written as a slice for each rank: rank r runs "microbatch" k N + r,
 * its share of the work, and after each unit all ranks all-reduce the boundary tensors of the whole
 * microbatch: 2 per layer in the forward, 2 more in the recompute and 2 in the backward, 1 at the
 * embedding and 1 at the head (sim/model.md section 3). --microbatches and batch therefore count
 * slices. */
#include "common/schedule/orders/data_parallel.h"

const rp_schedule_type rp_schedule_megatron_tp = {
    .name = "megatron-tp",
    .summary = "Megatron tensor parallelism over all GPUs; microbatches count slices",
    .source = "Shoeybi et al., Megatron-LM, 2019, section 3; volumes of sim/model.md section 3",
    .traits =
        {
            .placement = RP_PLACEMENT_SHARDED,
            .sharding =
                {
                    .forward_reduces = 2,
                    .backward_reduces = 2,
                },
            .unfused_loss = true,
            .communicator = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
