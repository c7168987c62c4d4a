/** @file v_slots.h  The V schedules with a controllable share of 1F1B's activations (schedules.md
 * 5): in unit slots, each rank repeats a pattern of six every microbatch. */
#pragma once

#include "common/schedule/orders/v_placement.h"

#define RP_V_PERIOD 6u

/** Slot of each op of microbatch 0 on one rank; that of microbatch m is 6 m later. No two ops of a
 * rank share a slot: the four differ modulo 6. */
typedef struct rp_v_slots {
    uint64_t forward[RP_V_CHUNKS];
    uint64_t input[RP_V_CHUNKS];
} rp_v_slots;

/**
 * Emits the ops of a rank in the order of their slots; each slot without one takes a weight part
 * that is pending (the upper stage's first, the oldest first), and the rest of them come last.
 */
void rp_v_slots_order(const rp_schedule_config *config, uint32_t rank, const rp_v_slots *slots,
                      rp_emitter *emitter);
