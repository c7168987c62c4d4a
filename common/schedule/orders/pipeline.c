#include "common/schedule/orders/pipeline.h"

void rp_1f1b_warmup_order(const rp_schedule_config *config, uint32_t rank, uint32_t warmup,
                          rp_emitter *emitter)
{
    uint32_t forward = 0;
    while (forward < warmup && forward < config->microbatches) {
        rp_emit_forward(emitter, rank, forward++);
    }
    for (uint32_t backward = 0; backward < config->microbatches; backward++) {
        if (forward < config->microbatches) {
            rp_emit_forward(emitter, rank, forward++);
        }
        rp_emit_backward(emitter, rank, backward);
    }
}

void rp_1f1b_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                   uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    rp_1f1b_warmup_order(config, rank, config->gpus - 1 - rank, emitter);
}

static void emit_streamed_forward(const rp_schedule_config *config, uint32_t rank, uint64_t number,
                                  rp_emitter *emitter)
{
    rp_emit_iteration(emitter, (uint32_t)(number / config->microbatches));
    rp_emit_forward(emitter, rank, (uint32_t)(number % config->microbatches));
}

void rp_endless_1f1b_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                           uint32_t iteration, rp_emitter *emitter)
{
    if (!config->asynchronous) {
        rp_1f1b_order(config, plan, rank, iteration, emitter);
        return;
    }
    uint64_t all = (uint64_t)config->microbatches * config->iterations;
    uint64_t warmup = config->gpus - 1 - rank;
    for (uint64_t forward = 0; iteration == 0 && forward < warmup && forward < all; forward++) {
        emit_streamed_forward(config, rank, forward, emitter);
    }
    uint64_t begin = (uint64_t)iteration * config->microbatches;
    for (uint64_t backward = begin; backward < begin + config->microbatches; backward++) {
        if (backward + warmup < all) {
            emit_streamed_forward(config, rank, backward + warmup, emitter);
        }
        rp_emit_iteration(emitter, iteration);
        rp_emit_backward(emitter, rank, (uint32_t)(backward - begin));
    }
}

void rp_zero_bubble_order(const rp_schedule_config *config, uint32_t rank, uint32_t warmup,
                          uint32_t lag, rp_emitter *emitter)
{
    uint32_t microbatches = config->microbatches;
    uint32_t forward = 0;
    uint32_t weight = 0;
    while (forward < warmup && forward < microbatches) {
        rp_emit_forward(emitter, rank, forward++);
    }
    for (uint32_t input = 0; input < microbatches; input++) {
        if (forward < microbatches) {
            rp_emit_forward(emitter, rank, forward++);
        }
        rp_emit_backward_input(emitter, rank, input);
        if (input >= lag) {
            rp_emit_backward_weight(emitter, rank, weight++);
        }
    }
    while (weight < microbatches) {
        rp_emit_backward_weight(emitter, rank, weight++);
    }
}

/* Emits microbatches begin .. end - 1 through all stages of `rank` and back. */
static void emit_loop(const rp_schedule_config *config, uint32_t rank, uint32_t begin, uint32_t end,
                      rp_emitter *emitter)
{
    uint32_t chunks = config->partition->forward_count / config->gpus;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        for (uint32_t m = begin; m < end; m++) {
            rp_emit_forward(emitter, chunk * config->gpus + rank, m);
        }
    }
    for (uint32_t chunk = chunks; chunk-- > 0;) {
        for (uint32_t m = end; m-- > begin;) {
            rp_emit_backward(emitter, chunk * config->gpus + rank, m);
        }
    }
}

void rp_looped_bfs_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                         uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    emit_loop(config, rank, 0, config->microbatches, emitter);
}

void rp_looped_bfs_calls_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                               uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    uint32_t call = config->call_microbatches != 0 ? config->call_microbatches : UINT32_MAX;
    for (uint32_t begin = 0; begin < config->microbatches;) {
        uint32_t left = config->microbatches - begin;
        uint32_t end = begin + (left < call ? left : call);
        emit_loop(config, rank, begin, end, emitter);
        begin = end;
    }
}
