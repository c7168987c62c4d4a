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

/** Part that is emitted as a backward. */
typedef enum rp_interleaved_part {
    RP_INTERLEAVED_WHOLE,  /**< the whole backward */
    RP_INTERLEAVED_INPUT,  /**< its input part; the weight parts follow, oldest first */
    RP_INTERLEAVED_WEIGHT, /**< of no use to callers */
} rp_interleaved_part;

/**
 * Refuses M that is no multiple of M div P.
 * @param name the schedule's, for the message
 * @retval RP_OK, RP_USAGE (logged, with the nearest allowed)
 */
rp_status rp_interleaved_check(const rp_schedule_config *config, const char *name,
                               rp_reason *reason);

/**
 * Emits the order of `rank`.
 * @param ahead forwards of the warm-up beyond those of all chunks but one
 * @param part RP_INTERLEAVED_WHOLE, or RP_INTERLEAVED_INPUT: then each weight part comes `lag`
 *        input parts after its own, and the last `lag` at the end
 */
void rp_interleaved_order(const rp_schedule_config *config, uint32_t rank, uint32_t ahead,
                          rp_interleaved_part part, uint32_t lag, rp_emitter *emitter);
