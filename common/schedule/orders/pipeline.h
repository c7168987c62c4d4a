/** @file pipeline.h  Orders that several systems share. */
#pragma once

#include "common/schedule/schedule_type.h"

/** The schedule that rp_endless_1f1b_order becomes when it flushes. */
extern const rp_schedule_type rp_schedule_1f1b;

/** 1F1B with a single stage per GPU (common/schedules/1f1b.c). For rp_schedule_type.order. */
void rp_1f1b_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                   uint32_t iteration, rp_emitter *emitter);

/**
 * 1F1B with another warm-up (schedules.md 1): min(warmup, M) forwards, then a forward and a
 * backward in turn, then the rest of the backwards. A GPU has a single stage.
 */
void rp_1f1b_warmup_order(const rp_schedule_config *config, uint32_t rank, uint32_t warmup,
                          rp_emitter *emitter);

/**
 * ZB-H1 and ZB-H2 (schedules.md 2): as 1F1B with `warmup` forwards first, but each backward has two
 * parts, and the weight part of a microbatch comes `lag` input parts later. A GPU has a single
 * stage.
 */
void rp_zero_bubble_order(const rp_schedule_config *config, uint32_t rank, uint32_t warmup,
                          uint32_t lag, rp_emitter *emitter);

/**
 * 1F1B over all iterations as a single stream, without a flush (schedules.md 1, PipeDream); with a
 * synchronous optimizer it flushes after each iteration. For rp_schedule_type.order.
 */
void rp_endless_1f1b_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                           uint32_t iteration, rp_emitter *emitter);

/** Looped BFS (common/schedules/looped-bfs.c). For rp_schedule_type.order. */
void rp_looped_bfs_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                         uint32_t iteration, rp_emitter *emitter);

/** Looped BFS over config->call_microbatches at a time, call by call. For
 * rp_schedule_type.order. */
void rp_looped_bfs_calls_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                               uint32_t iteration, rp_emitter *emitter);
