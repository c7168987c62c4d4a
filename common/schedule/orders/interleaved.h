/** @file interleaved.h  The order that interleaved 1F1B and ZB1P share (schedules.md 1, 2).
 *
 * V stages per GPU, stage = chunk * P + rank. With q = M / max(1, M div P) and w = min((V - 1) q +
 * ahead, V M): forward number k runs local chunk (k div q) mod V, backward number k - w runs chunk
 * V - 1 - ((k - w) div q mod V); the microbatch is a running counter per stage. For k = 0 .. w + V
 * M
 * - 1: a forward while k < V M; a backward once k >= w.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/schedule_type.h"

/** Part of a backward that is emitted. */
typedef enum rp_interleaved_part {
    RP_INTERLEAVED_WHOLE,  /**< the whole backward */
    RP_INTERLEAVED_INPUT,  /**< the input part; weight parts follow, oldest first */
    RP_INTERLEAVED_WEIGHT, /**< for internal use */
} rp_interleaved_part;

/**
 * Refuses an M that is not a multiple of M div P.
 * @param name the schedule's name, for the message
 * @retval RP_OK, RP_USAGE (given as the reason, with the nearest valid values)
 */
rp_status rp_interleaved_check(const rp_schedule_config *config, const char *name,
                               rp_reason *reason);

/**
 * Emits the order of `rank`.
 * @param ahead forwards of the warm-up beyond those of all chunks except the last
 * @param part RP_INTERLEAVED_WHOLE, or RP_INTERLEAVED_INPUT: each weight part then comes `lag`
 *        input parts after its own input part, and the last `lag` weight parts come at the end
 */
void rp_interleaved_order(const rp_schedule_config *config, uint32_t rank, uint32_t ahead,
                          rp_interleaved_part part, uint32_t lag, rp_emitter *emitter);
