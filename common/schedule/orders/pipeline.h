/** @file pipeline.h  Orders that several systems share. */
#pragma once

#include "common/schedule/schedule_type.h"

/** The schedule that rp_endless_1f1b_order is where it flushes. */
extern const rp_schedule_type rp_schedule_1f1b;

/** 1F1B with one stage per GPU (common/schedules/1f1b.c). For rp_schedule_type.order. */
void rp_1f1b_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                   uint32_t iteration, rp_emitter *emitter);

/**
 * 1F1B with another warm-up (schedules.md 1): min(warmup, M) forwards, then a forward and a
 * backward in turn, then the rest of the backwards. One stage per GPU.
 */
void rp_1f1b_warmup_order(const rp_schedule_config *config, uint32_t rank, uint32_t warmup,
                          rp_emitter *emitter);

/**
 * ZB-H1 and ZB-H2 (schedules.md 2): as 1F1B with `warmup` forwards first, each backward in two
 * parts, the weight part of a microbatch `lag` input parts later. One stage per GPU.
 */
void rp_zero_bubble_order(const rp_schedule_config *config, uint32_t rank, uint32_t warmup,
                          uint32_t lag, rp_emitter *emitter);

/**
 * 1F1B over all iterations as one stream, without a flush (schedules.md 1, PipeDream); flushed
 * after each iteration where the optimizer is synchronous. For rp_schedule_type.order.
 */
void rp_endless_1f1b_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                           uint32_t iteration, rp_emitter *emitter);

/** Looped BFS (common/schedules/looped-bfs.c). For rp_schedule_type.order. */
void rp_looped_bfs_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                         uint32_t iteration, rp_emitter *emitter);

/** Looped BFS over config->call_microbatches at a time, one call after the other. For
 * rp_schedule_type.order. */
void rp_looped_bfs_calls_order(const rp_schedule_config *config, const void *plan, uint32_t rank,
                               uint32_t iteration, rp_emitter *emitter);
