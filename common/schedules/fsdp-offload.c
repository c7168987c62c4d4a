/* FSDP with CPU offload: as fsdp, with the shards of weights, gradients and optimizer in host
 * memory. Each GPU uploads its shard of a stage before the stage is gathered, a stage ahead of the
 * compute; after the last microbatch the reduced shards of gradients go down, and after all have
 * arrived the host runs Adam on them. Assumptions: shards move in 16 bits; gradients accumulate
 * unsharded on the GPU (no_sync); Adam reads the shards in place, without a conversion of its own,
 * and moves 32 B per parameter as in the other systems; uploads read pinned memory. */
#include "common/schedule/orders/data_parallel.h"

const rp_schedule_type rp_schedule_fsdp_offload = {
    .name = "fsdp-offload",
    .summary = "FSDP (ZeRO-3) with weights, gradients and optimizer shards in host memory",
    .source = "Zhao et al., PyTorch FSDP, VLDB 2023, section 3; CPUOffload(offload_params=True) of "
              "torch.distributed.fsdp",
    .traits =
        {
            .placement = RP_PLACEMENT_SHARDED,
            .sharding =
                {
                    .forward_gathers = 1,
                    .backward_gathers = 1,
                    .overlap = true,
                    .keeps_root = true,
                    .host_weights = true,
                    .host_gradients = true,
                    .host_optimizer = true,
                },
            .unfused_loss = true,
            .communicator = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
