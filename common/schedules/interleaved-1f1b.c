/* Interleaved 1F1B: V stages per GPU, stage = chunk * P + rank. With q = M / max(1, M div P),
 * w = min((V-1) q + 2 (P-1-r), VM): forward number k runs local chunk (k div q) mod V, backward
 * number k - w runs chunk V-1 - ((k-w) div q mod V); the microbatch is a running counter per stage.
 * For k = 0 .. w+VM-1: a forward while k < VM; a backward once k >= w. Needs an integer q. */
#include "common/log.h"
#include "common/schedule.h"

static uint32_t group_count(const rp_schedule_config *config)
{
    uint32_t groups = config->microbatches / config->gpus;
    return groups == 0 ? 1 : groups;
}

/* M is allowed when it is a multiple of M div P; these are the nearest on both sides. */
static rp_status check(const rp_schedule_config *config)
{
    uint32_t m = config->microbatches;
    if (m % group_count(config) == 0) {
        return RP_OK;
    }
    uint32_t below = m / config->gpus * config->gpus;
    uint32_t above = below + config->gpus;
    rp_log_error("--microbatches: interleaved-1f1b runs the microbatches in M div P equal groups; "
                 "%u in %u groups is no whole number; valid are up to %u, any multiple of %u (such "
                 "as %u or %u), and multiples of M div P",
                 m, group_count(config), 2 * config->gpus - 1, config->gpus, below, above);
    return RP_USAGE;
}

/* Group, chunk and microbatch as counters instead of divisions: number k is microbatch
 * (k div qV) q + k mod q of chunk (k div q) mod V. */
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

static void order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                  uint32_t iteration, rp_emitter *emitter)
{
    (void)plan;
    (void)iteration;
    uint32_t gpus = config->gpus;
    uint32_t chunks = config->partition->forward_count / gpus;
    uint32_t q = config->microbatches / group_count(config);
    uint64_t all = (uint64_t)chunks * config->microbatches;
    uint64_t warmup = (uint64_t)(chunks - 1) * q + 2 * (uint64_t)(gpus - 1 - rank);
    warmup = warmup < all ? warmup : all;
    cursor forward = {0};
    cursor backward = {0};
    for (uint64_t k = 0; k < warmup + all; k++) {
        if (k < all) {
            rp_emit_forward(emitter, forward.chunk * gpus + rank, forward.base + forward.in_group);
            advance(&forward, q, chunks);
        }
        if (k >= warmup) {
            uint32_t chunk = chunks - 1 - backward.chunk;
            rp_emit_backward(emitter, chunk * gpus + rank, backward.base + backward.in_group);
            advance(&backward, q, chunks);
        }
    }
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
