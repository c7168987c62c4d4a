/** @file v_placement.h  Two stages per GPU in the shape of a V: rank r has stage r on the way down
 * and stage 2 P - 1 - r on the way up, so that rank 0 has the first and the last stage
 * (schedules.md 3 to 5). */
#pragma once

#include "common/schedule/schedule_type.h"

/** The local stages of a rank, called a and c in schedules.md. */
typedef enum rp_v_chunk {
    RP_V_DOWN,
    RP_V_UP,
    RP_V_CHUNKS,
} rp_v_chunk;

/** Running counters of a rank: the next microbatch of each kind of op and chunk. */
typedef struct rp_v_rank {
    rp_emitter *emitter;
    uint32_t stage[RP_V_CHUNKS];
    uint32_t microbatches; /**< ops of later microbatches are counted, but not emitted */
    uint32_t forwards[RP_V_CHUNKS];
    uint32_t backwards[RP_V_CHUNKS]; /**< whole backwards and input parts */
    uint32_t weights[RP_V_CHUNKS];   /**< weight parts, including those inside whole backwards */
} rp_v_rank;

static inline rp_v_rank rp_v_rank_begin(const rp_schedule_config *config, uint32_t rank,
                                        rp_emitter *emitter)
{
    return (rp_v_rank){.emitter = emitter,
                       .stage = {rank, 2 * config->gpus - 1 - rank},
                       .microbatches = config->microbatches};
}

static inline void rp_v_forward(rp_v_rank *v, rp_v_chunk chunk)
{
    uint32_t microbatch = v->forwards[chunk]++;
    if (microbatch < v->microbatches) {
        rp_emit_forward(v->emitter, v->stage[chunk], microbatch);
    }
}

static inline void rp_v_input(rp_v_rank *v, rp_v_chunk chunk)
{
    uint32_t microbatch = v->backwards[chunk]++;
    if (microbatch < v->microbatches) {
        rp_emit_backward_input(v->emitter, v->stage[chunk], microbatch);
    }
}

/** Emits the weight part for the oldest input part of `chunk` that lacks it. */
static inline void rp_v_weight(rp_v_rank *v, rp_v_chunk chunk)
{
    uint32_t microbatch = v->weights[chunk]++;
    if (microbatch < v->microbatches) {
        rp_emit_backward_weight(v->emitter, v->stage[chunk], microbatch);
    }
}

/** Emits a whole backward. */
static inline void rp_v_backward(rp_v_rank *v, rp_v_chunk chunk)
{
    uint32_t microbatch = v->backwards[chunk]++;
    v->weights[chunk]++;
    if (microbatch < v->microbatches) {
        rp_emit_backward(v->emitter, v->stage[chunk], microbatch);
    }
}

/** Emits a forward of `chunk` together with a whole backward of the other chunk; both microbatches
 * exist. */
static inline void rp_v_overlapped(rp_v_rank *v, rp_v_chunk chunk)
{
    rp_v_chunk other = chunk == RP_V_DOWN ? RP_V_UP : RP_V_DOWN;
    rp_emit_overlapped_forward(v->emitter, v->stage[chunk], v->forwards[chunk]++);
    rp_v_backward(v, other);
}
