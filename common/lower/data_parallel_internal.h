/** @file data_parallel_internal.h  Inside of the lowering: data-parallel systems. Not for other
 * modules.
 *
 * All ranks run the same units in the same order, so the i-th units of all ranks belong together.
 */
#pragma once

#include "common/lower/lower_internal.h"

/** Ops of a unit other than its compute ops; RP_NO_HANDLE if it has no such op. */
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
    uint32_t gpus;          /**< of the program */
    uint32_t ranks;         /**< rp_program_ranks, between which weights are divided */
    uint32_t per_gpu;       /**< number of units of a GPU */
    uint32_t per_iteration; /**< number of units of a GPU in an iteration */
    uint32_t kept_from;     /**< rp_sharding_kept_from */
    rp_sharded_unit *extra; /**< [unit] */
    rp_handle *steps;     /**< [iteration] the host's optimizer op, or the end of the GPUs' steps */
    rp_handle *updates;   /**< [iteration][gpu] the GPU's optimizer op */
    rp_handle *uploaded;  /**< [iteration][gpu] the upload of its shard of new weights */
    rp_handle *refreshed; /**< [iteration][gpu] the gather of all new weights */
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

/** @return whether it is the first microbatch of a step on this GPU. */
static inline bool rp_sharded_is_first_microbatch(const rp_sharded *s, const rp_op *op)
{
    return op->microbatch < s->gpus;
}

/** @return whether it is the last microbatch of a step on this GPU: units come in the order of
 * microbatches. */
static inline bool rp_sharded_is_last_microbatch(const rp_sharded *s, const rp_op *op)
{
    return op->microbatch + s->gpus >= s->l->schedule->microbatch_count;
}
