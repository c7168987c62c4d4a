/** @file traits.h  Properties of a program beyond its ops: the places of its system's weights, the
 * data that the system moves, and the way its software runs.
 *
 * A schedule declares them, the builder copies them into the program, and the text form holds them.
 * Simulator and executor take them from the program, never from the schedule's name.
 */
#pragma once

#include "common/program/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** X(enumerator, name in program text, meaning): places of weights and optimizer. */
#define RP_PLACEMENT_LIST(X)                                                                       \
    X(RESIDENT, "resident", "weights, gradients and optimizer stay on the stage's GPU")            \
    X(OFFLOAD, "offload", "weights and optimizer in host memory, uploaded per job")                \
    X(SHARDED, "sharded", "spread over all GPUs of a data-parallel group")

typedef enum rp_placement {
#define RP_PLACEMENT_ENUM(name, text, meaning) RP_PLACEMENT_##name,
    RP_PLACEMENT_LIST(RP_PLACEMENT_ENUM)
#undef RP_PLACEMENT_ENUM
} rp_placement;

/** X(enumerator, name in program text, meaning): versions of a stage's weights that an asynchronous
 * pipeline keeps (schedules.md 1). */
#define RP_VERSIONS_LIST(X)                                                                        \
    X(ONE, "one", "updates are not delayed")                                                       \
    X(TWO, "two", "updates are delayed by one")                                                    \
    X(STASHED, "stashed",                                                                          \
      "rank r of P: P - r, one for each microbatch between its forward and its backward")

typedef enum rp_versions {
#define RP_VERSIONS_ENUM(name, text, meaning) RP_VERSIONS_##name,
    RP_VERSIONS_LIST(RP_VERSIONS_ENUM)
#undef RP_VERSIONS_ENUM
} rp_versions;

/**
 * Data that a data-parallel system of n GPUs moves (sim/model.md section 3). A collective of a
 * stage's weights or gradients carries (n - 1) / n of their bytes through each GPU's bus.
 *
 * X(type, member, name in program text, an rp_trait_hashed).
 *  - forward_gathers, backward_gathers: all-gathers of a stage's weights before its forward and
 *    before its backward;
 *  - overlap: gathers run one stage ahead; otherwise nothing overlaps;
 *  - keeps_root: embedding and head are gathered once, before the first forward;
 *  - reductions: volumes reduced after each microbatch; 0: one per step;
 *  - reduce_bytes: bytes of a gradient's element while it is reduced; 0: those of the program's
 *    dtype;
 *  - host_weights: the owned shard comes up before each stage is gathered;
 *  - host_gradients: the owned shard goes down after each reduction;
 *  - host_collects: the host adds the shard up at a rate of its own (DeepSpeed);
 *  - gpu_adds: with host_collects: the GPU adds instead. Shards of a sum come up and go down again
 *    with every microbatch but the first, and after the last one they go down in fp32, too; one
 *    transfer has it all. The host adds nothing;
 *  - host_optimizer: Adam runs on the host;
 *  - forward_reduces, backward_reduces: tensor parallel: all-reduces of a whole microbatch's
 *    boundary per layer. A recompute has those of the forward again (rp_sharding_reduces).
 *    Embedding and head have another each;
 *  - gather_after_step: resident weights: new shards go up and are gathered;
 *  - bucket_bytes: memory of collectives and prefetch, on every GPU all the time (sim/model.md
 *    section 4);
 *  - live_bytes: gathered weights stay until they have so many bytes; a larger layer comes on top
 *    while it runs. 0: they are freed when their unit is done;
 *  - reuse_distance: a layer's weights stay from its forward to its backward if fewer weights than
 *    this are used between (rp_sharding_kept_from). 0: no weights stay;
 *  - step_group: a GPU steps so many parameters of its shard at a time, from a flat copy of their
 *    gradients and an fp32 copy of that. 0: it steps from the gradients as they lie;
 *  - pins: buffers of host memory are pinned, which rounds each up to a power of two (DeepSpeed's
 *    pin_memory; sim/run/memory/host.h).
 */
#define RP_SHARDING_LIST(X)                                                                        \
    X(uint32_t, forward_gathers, "forward-gathers", ALWAYS)                                        \
    X(uint32_t, backward_gathers, "backward-gathers", ALWAYS)                                      \
    X(bool, overlap, "overlap", ALWAYS)                                                            \
    X(bool, keeps_root, "keeps-root", ALWAYS)                                                      \
    X(uint32_t, reductions, "reductions", ALWAYS)                                                  \
    X(uint32_t, reduce_bytes, "reduce-bytes", ALWAYS)                                              \
    X(bool, host_weights, "host-weights", ALWAYS)                                                  \
    X(bool, host_gradients, "host-gradients", ALWAYS)                                              \
    X(bool, host_collects, "host-collects", ALWAYS)                                                \
    X(bool, host_optimizer, "host-optimizer", ALWAYS)                                              \
    X(uint32_t, forward_reduces, "forward-reduces", ALWAYS)                                        \
    X(uint32_t, backward_reduces, "backward-reduces", ALWAYS)                                      \
    X(bool, gather_after_step, "gather-after-step", ALWAYS)                                        \
    X(uint64_t, bucket_bytes, "bucket-bytes", ALWAYS)                                              \
    X(uint64_t, live_bytes, "live-bytes", ALWAYS)                                                  \
    X(uint64_t, reuse_distance, "reuse-distance", IF_SET)                                          \
    X(uint64_t, step_group, "step-group", IF_SET)                                                  \
    X(bool, pins, "pins", IF_SET)                                                                  \
    X(bool, gpu_adds, "gpu-adds", IF_SET)

#define RP_TRAITS_MEMBER(type, member, ...) type member;

typedef struct rp_sharding {
    RP_SHARDING_LIST(RP_TRAITS_MEMBER)
} rp_sharding;

/**
 * Flags of a program. X(member, name in program text, an rp_trait_hashed).
 *  - overlapping_rounds: rounds are placed by time; at hardware fidelity a call does not wait for
 *    the loss of the call before it;
 *  - unfused_loss: the loss is an unfused fp32 cross-entropy, with 52 B of memory traffic per logit
 *    (sim/model.md section 3);
 *  - one_dispatcher: one interpreter drives all GPUs and launches under one lock
 *    (sim/engine/dispatch.h);
 *  - communicator: processes hold the buffers of a collective library
 *    (rp_platform.communicator_gb);
 *  - scatter_gather: each GPU of a tensor group sends its part of a boundary tensor to the next
 *    stage, whose GPUs gather the whole tensor (Narayanan et al., Megatron-LM, SC 2021, section
 *    4.1).
 */
#define RP_TRAIT_LIST(X)                                                                           \
    X(overlapping_rounds, "overlapping-rounds", ALWAYS)                                            \
    X(unfused_loss, "unfused-loss", ALWAYS)                                                        \
    X(one_dispatcher, "one-dispatcher", ALWAYS)                                                    \
    X(communicator, "communicator", ALWAYS)                                                        \
    X(scatter_gather, "scatter-gather", IF_SET)

/**
 * Layout of a pipeline that is composed with other parallelism (schedules.md 16 and 17). Each GPU
 * of the program then stands for tensor_parallel x data_parallel GPUs that do the same work. A
 * number of 0 means 1.
 *
 * X(type, member, name in program text, highest value, bits of the placements that have it).
 *  - tensor_parallel: GPUs that share each layer of a stage;
 *  - data_parallel: copies of the pipeline, each with microbatches of its own. With weights in host
 *    memory each copy is a server of its own;
 *  - sequence_parallel: GPUs that share a layer also share its tokens, in the parts whose matrices
 *    they do not share;
 *  - expert_parallel: parts into which each layer's experts are divided; successive copies have
 *    successive parts;
 *  - expert_tensor_parallel: GPUs that share each expert, either 0 for tensor_parallel or 1. With
 *    1, GPUs of a tensor group have parts of the experts as copies do;
 *  - zero: state sharded over the copies (ZeRO): 1 the optimizer, 2 also gradients, 3 also weights;
 *  - reduces_each: gradients are reduced over the copies with each microbatch; otherwise with a
 *    step's last microbatch;
 *  - gradient_bytes: bytes of a gradient's element; 0: those of the program's dtype;
 *  - reduction_bucket: bytes of gradients after which a reduction begins, while the backward goes
 *    on; 0: when the stage's backward is over;
 *  - axes: an rp_axes, the order in which GPUs are numbered;
 *  - collectives: an rp_collectives, the algorithm by which groups of these GPUs add up.
 */
#define RP_LAYOUT_LIST(X)                                                                          \
    X(uint32_t, tensor_parallel, "tensor-parallel", RP_MAX_GPUS, 1u << RP_PLACEMENT_RESIDENT)      \
    X(uint32_t, data_parallel, "data-parallel", RP_MAX_GPUS,                                       \
      1u << RP_PLACEMENT_RESIDENT | 1u << RP_PLACEMENT_OFFLOAD)                                    \
    X(bool, sequence_parallel, "sequence-parallel", 1, 1u << RP_PLACEMENT_RESIDENT)                \
    X(uint32_t, expert_parallel, "expert-parallel", RP_MAX_GPUS, 1u << RP_PLACEMENT_RESIDENT)      \
    X(uint32_t, expert_tensor_parallel, "expert-tensor-parallel", RP_MAX_GPUS,                     \
      1u << RP_PLACEMENT_RESIDENT)                                                                 \
    X(uint32_t, zero, "zero", 3, 1u << RP_PLACEMENT_RESIDENT)                                      \
    X(bool, reduces_each, "reduces-each", 1, 1u << RP_PLACEMENT_RESIDENT)                          \
    X(uint32_t, gradient_bytes, "gradient-bytes", 8, 1u << RP_PLACEMENT_RESIDENT)                  \
    X(uint64_t, reduction_bucket, "reduction-bucket", UINT64_MAX, 1u << RP_PLACEMENT_RESIDENT)     \
    X(uint32_t, axes, "axes", RP_AXES_COUNT - 1, 1u << RP_PLACEMENT_RESIDENT)                      \
    X(uint32_t, collectives, "collectives", RP_COLLECTIVES_COUNT - 1, 1u << RP_PLACEMENT_RESIDENT)

/** Orders of the axes of a layout, with the axis of neighbours first: tensor groups, copies (data),
 * places in the pipeline. X(enumerator, word). */
#define RP_AXES_LIST(X)                                                                            \
    X(TDP, "tdp")                                                                                  \
    X(TPD, "tpd")                                                                                  \
    X(DTP, "dtp")                                                                                  \
    X(DPT, "dpt")                                                                                  \
    X(PTD, "ptd")                                                                                  \
    X(PDT, "pdt")

typedef enum rp_axes {
#define RP_AXES_ENUM(name, word) RP_AXES_##name,
    RP_AXES_LIST(RP_AXES_ENUM)
#undef RP_AXES_ENUM
        RP_AXES_COUNT
} rp_axes;

/** Algorithms of an all-reduce (sim/model.md section 14). X(enumerator, word). */
#define RP_COLLECTIVES_LIST(X)                                                                     \
    X(RING, "ring")                                                                                \
    X(TREE, "tree")                                                                                \
    X(HIERARCHICAL, "hierarchical")

typedef enum rp_collectives {
#define RP_COLLECTIVES_ENUM(name, word) RP_COLLECTIVES_##name,
    RP_COLLECTIVES_LIST(RP_COLLECTIVES_ENUM)
#undef RP_COLLECTIVES_ENUM
        RP_COLLECTIVES_COUNT
} rp_collectives;

typedef struct rp_layout {
    RP_LAYOUT_LIST(RP_TRAITS_MEMBER)
} rp_layout;

#undef RP_TRAITS_MEMBER

/** Zeroed: resident weights in a single version, a fused loss, a process per GPU. */
typedef struct rp_traits {
    rp_placement placement;
    rp_versions versions;
    rp_sharding sharding; /**< as its rows say; zero unless placement is RP_PLACEMENT_SHARDED */
    rp_layout layout;     /**< as its rows say; zero without a layout */
#define RP_TRAIT_MEMBER(member, ...) bool member;
    RP_TRAIT_LIST(RP_TRAIT_MEMBER)
#undef RP_TRAIT_MEMBER
    rp_types types; /**< as its rows say */
} rp_traits;

/** @return true for systems whose GPUs all run every stage, each for microbatches of its own. */
static inline bool rp_is_data_parallel(const rp_traits *traits)
{
    return traits->placement == RP_PLACEMENT_SHARDED;
}

/** @return whether every layer is cut between all GPUs: tensor parallelism. */
static inline bool rp_cuts_layers(const rp_traits *traits)
{
    return rp_is_data_parallel(traits) && traits->sharding.forward_reduces != 0;
}

/** @return GPUs that share each layer. */
static inline uint32_t rp_layout_tensor(const rp_layout *layout)
{
    return layout->tensor_parallel != 0 ? layout->tensor_parallel : 1;
}

/** @return copies of the pipeline. */
static inline uint32_t rp_layout_data(const rp_layout *layout)
{
    return layout->data_parallel != 0 ? layout->data_parallel : 1;
}

/** Distance of neighbours along each axis, in GPUs. */
typedef struct rp_strides {
    uint32_t tensor;
    uint32_t data;
    uint32_t pipeline;
    uint32_t expert; /**< GPUs that share the experts; GPUs with the same experts are this times
                        rp_layout_expert apart */
} rp_strides;

/** @param pipeline GPUs of the program */
rp_strides rp_layout_strides(const rp_layout *layout, uint32_t pipeline);

/** @return the word of an order of axes; static. */
const char *rp_axes_text(rp_axes axes);

/** @return GPUs that a GPU of the program stands for. */
static inline uint32_t rp_layout_gpus(const rp_layout *layout)
{
    return rp_layout_tensor(layout) * rp_layout_data(layout);
}

/** @return GPUs that share the tokens of norms, residuals and boundaries. */
static inline uint32_t rp_layout_sequence(const rp_layout *layout)
{
    return layout->sequence_parallel ? rp_layout_tensor(layout) : 1;
}

/** @return parts into which the experts are divided. */
static inline uint32_t rp_layout_expert(const rp_layout *layout)
{
    return layout->expert_parallel != 0 ? layout->expert_parallel : 1;
}

/** @return GPUs that share each expert. */
static inline uint32_t rp_layout_expert_tensor(const rp_layout *layout)
{
    bool whole = rp_layout_expert(layout) > 1 && layout->expert_tensor_parallel == 1;
    return whole ? 1 : rp_layout_tensor(layout);
}

/** @return GPUs of a stage that have the same parts of the same experts. */
static inline uint32_t rp_layout_replicas(const rp_layout *layout)
{
    return rp_layout_gpus(layout) / rp_layout_expert_tensor(layout) / rp_layout_expert(layout);
}

/** @return the state that is sharded over the copies (rp_layout.zero); 0 if there is a single
 * copy. */
static inline uint32_t rp_layout_zero(const rp_layout *layout)
{
    return rp_layout_data(layout) > 1 ? layout->zero : 0;
}

/** @return copies of the program on servers of their own, whose hosts add up gradients; 1: a single
 * copy. */
static inline uint32_t rp_server_copies(const rp_traits *traits)
{
    return traits->placement == RP_PLACEMENT_OFFLOAD ? rp_layout_data(&traits->layout) : 1;
}

/**
 * @return the reason why the asynchronous optimizer would change nothing; NULL: it would change the
 * result. A rank of a sharded system needs the parameters that all ranks have stepped before it
 * goes on.
 */
const char *rp_traits_only_synchronous(const rp_traits *traits);

/** Type of a trait's value. */
typedef enum rp_trait_type {
    RP_TRAIT_BOOL,
    RP_TRAIT_UINT32,
    RP_TRAIT_UINT64,
} rp_trait_type;

/** Tells when a trait is part of a program's hash. A new trait is IF_SET, as all traits of layouts
 * are, so that programs without it keep their hashes. */
typedef enum rp_trait_hashed {
    RP_HASHED_ALWAYS,
    RP_HASHED_IF_SET,
} rp_trait_hashed;

/** A row of RP_SHARDING_LIST, RP_LAYOUT_LIST, RP_TRAIT_LIST or RP_TYPES_LIST. */
typedef struct rp_trait {
    const char *text; /**< name in program text */
    size_t offset;    /**< offset of the member in rp_traits */
    uint64_t most;    /**< highest value; 1 for a flag */
    rp_trait_type type;
    uint32_t placements; /**< bit i: valid with rp_placement i */
    rp_trait_hashed hashed;
} rp_trait;

/** All rows, sharding first. */
extern const rp_trait rp_trait_rows[];
extern const uint32_t rp_trait_count;

/** @return the row called `text`, or NULL. */
const rp_trait *rp_trait_find(const char *text);

/** @return the value of a trait; a flag's is 0 or 1. */
uint64_t rp_trait_get(const rp_traits *traits, const rp_trait *row);

/** @param value at most row->most */
void rp_trait_set(rp_traits *traits, const rp_trait *row, uint64_t value);

/** @return the name in program text; static. */
const char *rp_placement_text(rp_placement placement);
const char *rp_versions_text(rp_versions versions);

/** @return whether `text` is such a name; the value is in the last argument then. */
bool rp_placement_parse(const char *text, rp_placement *placement_out);
bool rp_versions_parse(const char *text, rp_versions *versions_out);

/** Writes the program text's lines `placement`, `versions` and `traits`. */
void rp_traits_write(const rp_traits *traits, FILE *stream);

/** @return `hash` with all traits added. */
uint64_t rp_traits_hash(const rp_traits *traits, uint64_t hash);
