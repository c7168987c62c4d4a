/* ZB-V: two stages per GPU in a V, so that the last forward and the first backward of a microbatch
 * are on the same rank. The order is made for max(2 P - 1, M) microbatches, and ops of microbatches
 * beyond M are left out. With equal times of forward, input and weight part no rank idles between
 * its first and its last op, with the activations of 1F1B. */
#include "common/schedule/orders/v_placement.h"

static void warm_up(rp_v_rank *v, uint32_t gpus, uint32_t rank)
{
    for (uint32_t i = 0; i < 2 * (gpus - rank) - 1; i++) {
        rp_v_forward(v, RP_V_DOWN);
    }
    for (uint32_t i = 0; i < rank; i++) {
        rp_v_forward(v, RP_V_UP);
        rp_v_forward(v, RP_V_DOWN);
    }
    for (uint32_t i = 0; i < gpus - rank; i++) {
        rp_v_forward(v, RP_V_UP);
        rp_v_input(v, RP_V_UP);
        rp_v_weight(v, RP_V_UP);
    }
}

static void steady(rp_v_rank *v, uint32_t count)
{
    while (v->forwards[RP_V_UP] < v->forwards[RP_V_DOWN] || v->forwards[RP_V_DOWN] < count) {
        if (v->forwards[RP_V_DOWN] < count) {
            rp_v_forward(v, RP_V_DOWN);
        }
        rp_v_input(v, RP_V_DOWN);
        rp_v_weight(v, RP_V_DOWN);
        rp_v_forward(v, RP_V_UP);
        rp_v_input(v, RP_V_UP);
        rp_v_weight(v, RP_V_UP);
    }
}

static void cool_down(rp_v_rank *v, uint32_t gpus, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++) { /* weight parts wait, as the next rank needs these */
        rp_v_input(v, RP_V_DOWN);
        rp_v_input(v, RP_V_UP);
    }
    for (uint32_t i = 0; i < gpus - rank; i++) {
        rp_v_input(v, RP_V_DOWN);
        rp_v_weight(v, RP_V_DOWN);
    }
    while (v->weights[RP_V_UP] < v->backwards[RP_V_UP]) {
        rp_v_weight(v, RP_V_UP);
    }
    while (v->weights[RP_V_DOWN] < v->backwards[RP_V_DOWN]) {
        rp_v_weight(v, RP_V_DOWN);
    }
}

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    uint32_t gpus = config->gpus;
    uint32_t least = 2 * gpus - 1;
    rp_v_rank v = rp_v_rank_begin(config, rank, emitter);
    warm_up(&v, gpus, rank);
    steady(&v, config->microbatches > least ? config->microbatches : least);
    cool_down(&v, gpus, rank);
}

const rp_schedule_type rp_schedule_zbv = {
    .name = "zbv",
    .summary = "zero bubble over two stages per GPU in a V, with 1F1B's activations",
    .source =
        "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 6; order of PyTorch's "
        "ScheduleZBVZeroBubble",
    .stages_per_gpu = 2,
    .splits_backward = true,
    .default_recompute = RP_RECOMPUTE_NONE,
    .order = order,
};
