/** @file data_parallel_internal.h  Inside of the lowering: data-parallel systems. Not for other
 * modules.
 *
 * All ranks run the same units in the same order, so the i-th unit of one rank belongs to the i-th
 * of every other.
 */
#pragma once

#include "common/lower/lower_internal.h"

/** Ops of one unit other than its compute ops; RP_NO_HANDLE where it has none. */
typedef struct rp_sharded_unit {
    rp_handle shard_up;
    rp_handle gather;
    rp_handle reduce;
    rp_handle shard_down;
    rp_handle collect;
} rp_sharded_unit;

typedef struct rp_sharded {
    rp_lowering *l;
    const rp_sharding *sharding;
    uint32_t gpus;
    uint32_t per_gpu;       /**< units of one GPU */
    uint32_t per_iteration; /**< of these, units of one iteration */
    uint32_t kept_from;     /**< rp_sharding_kept_from */
    rp_sharded_unit *extra; /**< [unit] */
    rp_handle *steps;       /**< [iteration] the optimizer on the host, or the end of the GPUs' */
    rp_handle *updates;     /**< [iteration][gpu] the optimizer on the GPU */
    rp_handle *uploaded;    /**< [iteration][gpu] its shard of the new weights is there */
    rp_handle *refreshed;   /**< [iteration][gpu] all new weights are there */
} rp_sharded;

static inline rp_lower_unit *rp_sharded_unit_at(const rp_sharded *s, uint32_t gpu, uint32_t index)
{
    return &s->l->units[(size_t)gpu * s->per_gpu + index];
}

static inline rp_sharded_unit *rp_sharded_extra_at(const rp_sharded *s, uint32_t gpu,
                                                   uint32_t index)
{
    return &s->extra[(size_t)gpu * s->per_gpu + index];
}

static inline const rp_op *rp_sharded_op_of(const rp_sharded *s, const rp_lower_unit *unit)
{
    return &s->l->schedule->ops[unit->last];
}

static inline bool rp_sharded_is_backward(const rp_sharded *s, const rp_lower_unit *unit)
{
    return s->l->jobs[unit->job].backward;
}

/** The last microbatch of a step on this GPU: units come in the order of microbatches. */
static inline bool rp_sharded_is_last_microbatch(const rp_sharded *s, const rp_op *op)
{
    return op->microbatch + s->gpus >= s->l->schedule->microbatch_count;
}
