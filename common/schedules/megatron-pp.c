/* Megatron pipeline parallelism: 1F1B with resident weights, the partition that the paper lists for
 * 1F1B, and an unfused loss (sim/model.md section 3). */
#include "common/schedule/orders/pipeline.h"

const rp_schedule_type rp_schedule_megatron_pp = {
    .name = "megatron-pp",
    .summary = "Megatron pipeline parallelism: 1F1B with an unfused loss",
    .source = "Narayanan et al., Megatron-LM, SC 2021, section 2.2; sim/model.md section 3",
    .published_as = "1f1b",
    .equal_layers = true, /* num-layers / pipeline-model-parallel-size */
    .traits =
        {
            .unfused_loss = true,
            .communicator = true,
            .scatter_gather = true,
        },
    .default_recompute = RP_RECOMPUTE_WAIT,
    .order = rp_1f1b_order,
};
