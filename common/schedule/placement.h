/** @file placement.h  Where a system keeps weights, gradients and optimizer, and what it moves for
 * that. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** Where weights and optimizer are. */
typedef enum rp_placement {
    RP_PLACEMENT_RESIDENT, /**< weights, gradients and optimizer stay on the stage's GPU */
    RP_PLACEMENT_OFFLOAD,  /**< weights and optimizer in host memory, uploaded per job */
    RP_PLACEMENT_SHARDED,  /**< spread over all GPUs of a data-parallel group (rp_sharding) */
} rp_placement;

/** Versions of a stage's weights that an asynchronous pipeline keeps (schedules.md 1). */
typedef enum rp_versions {
    RP_VERSIONS_ONE,
    RP_VERSIONS_TWO,     /**< updates are delayed by one */
    RP_VERSIONS_STASHED, /**< rank r of P: P - r, one for each microbatch between its forward and
                            its backward */
} rp_versions;

/**
 * Data that a data-parallel system of n GPUs moves (sim/model.md section 3). A collective
 * of a stage's weights or gradients carries (n - 1) / n of their bytes through each GPU's bus.
 */
typedef struct rp_sharding {
    uint32_t forward_gathers;  /**< all-gathers of a stage's weights before its forward */
    uint32_t backward_gathers; /**< before its backward */
    bool overlap;              /**< gathers run one stage ahead; otherwise nothing overlaps */
    bool keeps_root;           /**< embedding and head: gathered once, before the first forward */
    uint32_t reductions;       /**< volumes reduced after each microbatch; 0: one per step */
    bool host_weights;         /**< the owned shard comes up before each stage is gathered */
    bool host_gradients;       /**< the owned shard goes down after each reduction */
    bool host_collects;        /**< and the host takes it in at a rate of its own (DeepSpeed) */
    bool host_optimizer;       /**< Adam runs on the host */
    /** Tensor parallel: all-reduces of a whole microbatch's boundary per layer, forward and
     * backward, and a recompute has those of the forward again (rp_sharding_reduces); one more at
     * the embedding and one at the head. */
    uint32_t forward_reduces;
    uint32_t backward_reduces;
    bool gather_after_step; /**< resident weights: new shards go up and are gathered */
    /* Memory (sim/model.md section 4); 0: none. */
    uint64_t bucket_bytes; /**< of collectives and prefetch, on every GPU all the time */
    uint64_t live_bytes;   /**< gathered weights stay until there are so many; a larger layer comes
                                on top while it runs. 0: they go when their unit is done */
} rp_sharding;
