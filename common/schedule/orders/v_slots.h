/** @file v_slots.h  The V schedules with a controllable share of 1F1B's activations (schedules.md
 * 5): each rank repeats a pattern of six unit slots every microbatch. */
#pragma once

#include "common/schedule/orders/v_placement.h"

#define RP_V_PERIOD 6u

/** Slot of each op of microbatch 0 on a rank; the op of microbatch m comes 6 m slots later. No two
 * ops of a rank share a slot: the four slots differ modulo 6. */
typedef struct rp_v_slots {
    uint64_t forward[RP_V_CHUNKS];
    uint64_t input[RP_V_CHUNKS];
} rp_v_slots;

/**
 * Emits the ops of a rank in the order of their slots; each slot without an op takes a pending
 * weight part (the upper stage's first, the oldest first), and the remaining weight parts come
 * last.
 */
void rp_v_slots_order(const rp_schedule_config *config, uint32_t rank, const rp_v_slots *slots,
                      rp_emitter *emitter);
