/* Interleaved ZB1P: the order of common/schedule/orders/interleaved.h with P - 1 - r forwards more
 * than the chunks before the last chunk need; each backward has two parts, and a weight part comes
 * r input parts later. With a single stage per GPU it is ZB-H1. Needs M in M div P equal groups. */
#include "common/schedule/orders/interleaved.h"

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    return rp_interleaved_check(config, "zb1p", reason);
}

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_interleaved_order(config, rank, config->gpus - 1 - rank, RP_INTERLEAVED_INPUT, rank,
                         emitter);
}

const rp_schedule_type rp_schedule_zb1p = {
    .name = "zb1p",
    .summary = "ZB-H1 over several stages per GPU, in groups of microbatches",
    .source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024; interleaved as PyTorch's "
              "ScheduleInterleavedZeroBubble",
    .many_stages = true,
    .splits_backward = true,
    .default_recompute = RP_RECOMPUTE_NONE,
    .check = check,
    .order = order,
};
