/* Interleaved 1F1B: the order of common/schedule/orders/interleaved.h with 2 (P - 1 - r) forwards
 * more than the chunks before the last chunk need. Needs M in M div P equal groups. */
#include "common/schedule/orders/interleaved.h"

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    return rp_interleaved_check(config, "interleaved-1f1b", reason);
}

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_interleaved_order(config, rank, 2 * (config->gpus - 1 - rank), RP_INTERLEAVED_WHOLE, 0,
                         emitter);
}

const rp_schedule_type rp_schedule_interleaved_1f1b = {
    .name = "interleaved-1f1b",
    .summary = "1F1B over several stages per GPU, in groups of microbatches",
    .source = "Narayanan et al., Megatron-LM, SC 2021, section 2.2; group rule of PyTorch's "
              "ScheduleInterleaved1F1B",
    .many_stages = true,
    .default_recompute = RP_RECOMPUTE_WAIT,
    .check = check,
    .order = order,
};
