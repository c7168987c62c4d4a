#include "tests/support/hand_run.h"

rp_resolved rp_test_hand_run(const char *schedule, const rp_model *model, const rp_costs *costs,
                             const rp_partition *partition, uint32_t gpus, uint32_t microbatches)
{
    return (rp_resolved){.schedule = rp_schedule_find(schedule),
                         .model = model,
                         .costs = costs,
                         .partition = partition,
                         .gpus = gpus,
                         .decided.seq_len = costs->seq_len,
                         .decided.dtype = RP_DTYPE_F16,
                         .global_batch = microbatches,
                         .decided.accumulate = 1,
                         .decided.microbatches = microbatches,
                         .decided.iterations = 1,
                         .decided.round = RP_ROUND_ALL};
}
