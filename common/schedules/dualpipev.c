/* DualPipeV: two stages per GPU in a V; in the steady state a forward of either stage runs together
 * with a backward of the other stage, so that their communication hides behind each other's
 * computation. Backwards come in two parts if a rank would otherwise keep its neighbour waiting.
 * Step numbers are those of the published code. Needs at least 2 P microbatches. */
#include "common/base/reason.h"
#include "common/schedule/orders/v_placement.h"

static rp_status check(const rp_schedule_config *config, rp_reason *reason)
{
    uint32_t least = 2 * config->gpus;
    if (config->microbatches >= least) {
        return RP_OK;
    }
    return rp_refuse(
        reason, RP_USAGE,
        "{microbatches}: dualpipev fills both directions with %u on %u GPUs, %u are too "
        "few; valid are %u and more",
        least, config->gpus, config->microbatches, least);
}

/* A rank, and its stage that has the oldest input part without a weight part. */
typedef struct dual_rank {
    rp_v_rank v;
    rp_v_chunk oldest;
} dual_rank;

static rp_v_chunk other(rp_v_chunk chunk)
{
    return chunk == RP_V_DOWN ? RP_V_UP : RP_V_DOWN;
}

static bool pending(const rp_v_rank *v, rp_v_chunk chunk)
{
    return v->weights[chunk] < v->backwards[chunk];
}

/* Emits the oldest pending weight part, if any: input parts of the two stages alternate, until only
 * RP_V_DOWN has input parts. */
static void weight_part(dual_rank *d)
{
    rp_v_chunk chunk = pending(&d->v, d->oldest) ? d->oldest : other(d->oldest);
    if (pending(&d->v, chunk)) {
        rp_v_weight(&d->v, chunk);
        d->oldest = other(chunk);
    }
}

/* Steps 1 to 3. */
static void warm_up(dual_rank *d, uint32_t gpus, uint32_t rank)
{
    for (uint32_t i = 0; i < 2 * (gpus - rank - 1); i++) {
        rp_v_forward(&d->v, RP_V_DOWN);
    }
    for (uint32_t i = 0; i < rank + 1; i++) {
        rp_v_forward(&d->v, RP_V_DOWN);
        rp_v_forward(&d->v, RP_V_UP);
    }
    for (uint32_t i = 0; i < gpus - rank - 1; i++) {
        rp_v_input(&d->v, RP_V_UP);
        weight_part(d);
        rp_v_forward(&d->v, RP_V_UP);
    }
}

/* Steps 4 and 5. */
static void steady(dual_rank *d, uint32_t gpus, uint32_t rank)
{
    uint32_t pairs = d->v.microbatches - 2 * gpus + rank + 1;
    for (uint32_t i = 0; i < pairs; i++) {
        if (i == 0 && rank == gpus - 1) { /* the last stage's first backward needs its forward */
            rp_v_forward(&d->v, RP_V_DOWN);
            rp_v_backward(&d->v, RP_V_UP);
        } else {
            rp_v_overlapped(&d->v, RP_V_DOWN);
        }
        rp_v_overlapped(&d->v, RP_V_UP);
    }
    for (uint32_t i = 0; i < gpus - rank - 1; i++) {
        rp_v_backward(&d->v, RP_V_UP);
        rp_v_overlapped(&d->v, RP_V_UP);
    }
}

static void backward(dual_rank *d, rp_v_chunk chunk, bool split)
{
    if (split) {
        rp_v_input(&d->v, chunk);
    } else {
        rp_v_backward(&d->v, chunk);
    }
}

/* Steps 6 to 8. From the middle of step 6 on, backwards come in two parts. */
static void cool_down(dual_rank *d, uint32_t gpus, uint32_t rank)
{
    uint32_t half = (rank + 1) / 2;
    bool odd = rank % 2 == 1;
    d->oldest = odd ? RP_V_UP : RP_V_DOWN; /* stage of the first backward in two parts */
    for (uint32_t i = 0; i < rank + 1; i++) {
        backward(d, RP_V_UP, odd ? i >= half : i > half);
        backward(d, RP_V_DOWN, i >= half);
    }
    for (uint32_t i = 0; i < gpus - rank - 1; i++) {
        weight_part(d);
        rp_v_input(&d->v, RP_V_DOWN);
    }
    for (uint32_t i = 0; i < rank + 1; i++) {
        weight_part(d);
    }
}

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    dual_rank d = {.v = rp_v_rank_begin(config, rank, emitter), .oldest = RP_V_UP};
    warm_up(&d, config->gpus, rank);
    steady(&d, config->gpus, rank);
    cool_down(&d, config->gpus, rank);
}

const rp_schedule_type rp_schedule_dualpipev = {
    .name = "dualpipev",
    .summary = "two stages per GPU in a V; forwards overlap with backwards of the other stage",
    .source = "DeepSeek, DualPipe, 2025, and Qi et al., Cut-in-half, 2025; order of PyTorch's "
              "ScheduleDualPipeV",
    .stages_per_gpu = 2,
    .splits_backward = true,
    .default_recompute = RP_RECOMPUTE_NONE,
    .check = check,
    .order = order,
};
