/* FSDP (ZeRO-3): weights, gradients and optimizer sharded, gathered stage by stage. Weights are
 * gathered before each forward and each backward, a stage ahead of the compute; gradients are
 * reduce-scattered once, after the last microbatch (sim/model.md section 3). The root unit
 * (embedding, final norm, head) is gathered once per microbatch: FSDP does not reshard it after the
 * forward, and it is part of the memory that section 4 counts. Assumption: no backward prefetch, so
 * a stage's reduction comes before the next stage's gather. */
#include "common/schedule/orders/data_parallel.h"

const rp_schedule_type rp_schedule_fsdp = {
    .name = "fsdp",
    .summary = "FSDP (ZeRO-3): weights, gradients and optimizer sharded",
    .source = "Zhao et al., PyTorch FSDP, VLDB 2023, section 3; no reduction on intermediate "
              "microbatches",
    .traits =
        {
            .placement = RP_PLACEMENT_SHARDED,
            .sharding =
                {
                    .forward_gathers = 1,
                    .backward_gathers = 1,
                    .overlap = true,
                    .keeps_root = true,
                },
            .unfused_loss = true,
            .communicator = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_data_parallel_order,
};
