/* Interleaved 1F1B and ZB1P: see interleaved.h. */
#include "common/schedule/orders/interleaved.h"

#include "common/base/reason.h"

static uint32_t group_count(const rp_schedule_config *config)
{
    uint32_t groups = config->microbatches / config->gpus;
    return groups == 0 ? 1 : groups;
}

/* M must be a multiple of M div P; finds the nearest valid values on both sides. */
rp_status rp_interleaved_check(const rp_schedule_config *config, const char *name,
                               rp_reason *reason)
{
    uint32_t m = config->microbatches;
    if (m % group_count(config) == 0) {
        return RP_OK;
    }
    uint32_t below = m / config->gpus * config->gpus;
    uint32_t above = below + config->gpus;
    return rp_refuse(
        reason, RP_USAGE,
        "{microbatches}: %s runs the microbatches in M div P equal groups; "
        "%u in %u groups is no whole number; valid are up to %u, any multiple of %u (such "
        "as %u or %u), and multiples of M div P",
        name, m, group_count(config), 2 * config->gpus - 1, config->gpus, below, above);
}

/* Counters of group, chunk and microbatch, instead of divisions: number k is microbatch (k div qV)
 * q + k mod q of chunk (k div q) mod V. */
typedef struct cursor {
    uint32_t in_group; /* k mod q */
    uint32_t chunk;    /* (k div q) mod V */
    uint32_t base;     /* (k div qV) q */
} cursor;

static inline void advance(cursor *c, uint32_t q, uint32_t chunks)
{
    if (++c->in_group == q) {
        c->in_group = 0;
        if (++c->chunk == chunks) {
            c->chunk = 0;
            c->base += q;
        }
    }
}

/* Emits backward number k, as a whole or in part. */
static inline void emit_backward(const rp_schedule_config *config, uint32_t rank, uint32_t chunks,
                                 const cursor *c, rp_interleaved_part part, rp_emitter *emitter)
{
    uint32_t stage = (chunks - 1 - c->chunk) * config->gpus + rank;
    uint32_t microbatch = c->base + c->in_group;
    switch (part) {
    case RP_INTERLEAVED_WHOLE:
        rp_emit_backward(emitter, stage, microbatch);
        break;
    case RP_INTERLEAVED_INPUT:
        rp_emit_backward_input(emitter, stage, microbatch);
        break;
    case RP_INTERLEAVED_WEIGHT:
        rp_emit_backward_weight(emitter, stage, microbatch);
        break;
    }
}

void rp_interleaved_order(const rp_schedule_config *config, uint32_t rank, uint32_t ahead,
                          rp_interleaved_part part, uint32_t lag, rp_emitter *emitter)
{
    uint32_t gpus = config->gpus;
    uint32_t chunks = config->partition->forward_count / gpus;
    uint32_t q = config->microbatches / group_count(config);
    uint64_t all = (uint64_t)chunks * config->microbatches;
    uint64_t warmup = (uint64_t)(chunks - 1) * q + ahead;
    warmup = warmup < all ? warmup : all;
    cursor forward = {0};
    cursor backward = {0};
    cursor weight = {0};
    uint64_t weights = 0;
    for (uint64_t k = 0; k < warmup + all; k++) {
        if (k < all) {
            rp_emit_forward(emitter, forward.chunk * gpus + rank, forward.base + forward.in_group);
            advance(&forward, q, chunks);
        }
        if (k >= warmup) {
            emit_backward(config, rank, chunks, &backward, part, emitter);
            advance(&backward, q, chunks);
        }
        if (part == RP_INTERLEAVED_INPUT && k >= warmup + lag) {
            emit_backward(config, rank, chunks, &weight, RP_INTERLEAVED_WEIGHT, emitter);
            advance(&weight, q, chunks);
            weights++;
        }
    }
    for (; part == RP_INTERLEAVED_INPUT && weights < all; weights++) {
        emit_backward(config, rank, chunks, &weight, RP_INTERLEAVED_WEIGHT, emitter);
        advance(&weight, q, chunks);
    }
}
