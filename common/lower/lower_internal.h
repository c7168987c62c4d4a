/** @file lower_internal.h  Inside of the lowering: its working state. Not for other modules. */
#pragma once

#include "common/lower/lower.h"
#include "common/program/assembly.h"
#include "common/program/producers.h"

/** Queues of a GPU in a lowered program, in this order. */
enum {
    RP_LOWER_COMPUTE,
    RP_LOWER_PARAMS,
    RP_LOWER_UPLOAD,
    RP_LOWER_DOWNLOAD,
    RP_LOWER_PEER,
    RP_LOWER_QUEUES_PER_GPU,
    /** Queue of tensors that a GPU receives, if weights are resident and GPUs reach each other:
     * there are no parameter uploads then. */
    RP_LOWER_RECEIVE = RP_LOWER_PARAMS,
};

/** Parameters that copies add up and share: all parameters of a dense model, and separately the
 * experts that only some copies have. */
typedef enum rp_lower_family {
    RP_LOWER_DENSE,
    RP_LOWER_EXPERTS,
    RP_LOWER_FAMILIES,
} rp_lower_family;

/** A layer of a unit that goes layer by layer. */
typedef struct rp_lower_part {
    uint16_t layer;  /**< as in rp_op */
    rp_handle first; /**< its recompute; for a separate stage's head its forward */
    rp_handle last;  /**< its forward, or its backward */
    rp_handle up;    /**< backward: upload of the layer's input */
    rp_handle down;  /**< forward: download of the layer's input, if the unit computes it itself */
} rp_lower_part;

/** A forward, or a backward (or its input part) with its pre-work, and its transfers; or a
 * backward's weight part, which has no transfers. */
typedef struct rp_lower_unit {
    uint32_t first; /**< op numbers in the compute schedule */
    uint32_t last;
    uint32_t job;
    rp_handle compute_first;
    rp_handle compute_last;
    rp_handle forward;   /**< its FORWARD op, RP_NO_HANDLE if it has none */
    rp_handle up_act;    /**< activation: upload, or RECV */
    rp_handle up_grad;   /**< gradient: upload, or RECV */
    bool received;       /**< RECV brings its input or gradient */
    rp_handle down_out;  /**< boundary activation or gradient: download, or SEND */
    rp_handle down_last; /**< the last of its downloads */
    rp_handle reduce;    /**< collective of its tensor group, after which its result is complete */
    rp_handle gather[RP_LOWER_FAMILIES]; /**< gathers of its weights, from the copies that share
                                            them (ZeRO-3) */
    uint32_t part_count;                 /**< 0: the unit does not go layer by layer */
    rp_lower_part *parts;                /**< in the order in which they run */
    /** Gradients of weights that are reduced layer after layer: `last` of each layer's op, from the
     * last layer to the first. 0: all layers are reduced at once. Units that go layer by layer have
     * them in `parts` instead. */
    uint32_t split_count;
    rp_lower_part *splits;
    uint32_t bucket_count; /**< buckets of gradients that the copies reduce */
    struct rp_lower_bucket *buckets;
} rp_lower_unit;

/** A stage over the microbatches of a call, on a single GPU. */
typedef struct rp_lower_job {
    uint32_t gpu;
    uint32_t first_unit;
    uint32_t unit_count;
    uint16_t stage;
    uint16_t iteration;
    uint32_t call;
    bool backward;
    bool reduces;           /**< the copies add up its gradients when it is over (copies.c) */
    rp_handle params_first; /**< the first of its uploads on the parameter queue */
    rp_handle params_last;
    rp_handle param_grads_up;
    rp_handle param_grads_down;
} rp_lower_job;

/** The way of saved tensors to the host and back; RP_NO_HANDLE: they stay. */
typedef struct rp_lower_trip {
    rp_handle down;
    rp_handle up;
    uint64_t bytes;
} rp_lower_trip;

struct rp_sharded;

typedef struct rp_lowering {
    const rp_program *schedule;
    const rp_lower_config *config;
    const uint32_t *sequences;
    rp_arena *arena;   /**< scratch */
    rp_reason *reason; /**< the caller's */
    rp_assembly *assembly;
    rp_producers producers;
    bool separate; /**< backward stages are stages of their own */
    bool layers;   /**< units go layer by layer if they can */
    bool offload;  /**< weights come up per job; boundaries go through the host and stay there */
    uint32_t host_queue;
    uint32_t tensor_queues;  /**< queue of GPU 0's tensor group, before those of the other GPUs; 0:
                                none */
    uint32_t data_queues;    /**< queues of data groups, in the same way */
    uint32_t expert_queues;  /**< queues of copies that share experts */
    uint32_t replica_queues; /**< queues of copies that have the same experts */
    uint32_t calls;          /**< per iteration */
    uint32_t network_queue;  /**< network queue of the hosts of copies; 0: none */
    uint32_t saved_queues;   /**< queues of saved tensors, if they are offloaded: two per GPU, the
                                first of which takes them to the host */
    uint32_t unit_count;
    rp_lower_unit *units; /**< queue after queue, as the schedule has them */
    uint32_t *unit_of;    /**< [op of the schedule] */
    uint32_t job_count;
    rp_lower_job *jobs;  /**< GPU after GPU */
    uint32_t *job_begin; /**< [gpu + 1] */
    rp_handle *saved;    /**< [iteration][backward position][microbatch] download of the input */
    uint32_t *job_of;    /**< [iteration][call][forward positions, then backward positions] */
    rp_handle *refresh;  /**< [iteration][layers + 2] */
    rp_handle *collect;  /**< [iteration][layers + 2] */
    rp_handle *update;   /**< [iteration][gpu] step of resident weights */
    rp_handle *updated;  /**< [iteration][gpu][family] op after which its weights are new: `update`,
                            or a gather */
    uint64_t *trained_bytes; /**< [gpu][family] bytes of the resident weights that it trains */
    rp_lower_trip *trips;    /**< of forward units, or of each of their parts; NULL: all stay */
    uint32_t *trip_of;       /**< [unit] the first of its trips */
    uint32_t trip_count;
    struct rp_sharded *sharded; /**< state of data-parallel systems; otherwise NULL */
} rp_lowering;

/** @return memory traffic of a step per parameter. */
static inline rp_step_bytes rp_lower_step_bytes(const rp_lowering *l)
{
    const rp_step_bytes *step = &l->config->sizes.step;
    return step->update > 0 ? *step
                            : (rp_step_bytes){.update = RP_GPU_ADAM_BYTES,
                                              .adam = RP_ADAM_BYTES,
                                              .refresh = RP_REFRESH_BYTES,
                                              .collect = RP_COLLECT_BYTES};
}

/** @return bytes of an op that moves `each` bytes for each of some parameters. */
static inline uint64_t rp_lower_traffic(double each, uint64_t parameters)
{
    return (uint64_t)(each * (double)parameters);
}

/** @return whether a unit is a backward's weight part, which follows its input part on its
 * queue. */
static inline bool rp_lower_is_weight(const rp_lowering *l, const rp_lower_unit *unit)
{
    return rp_op_kind_is_weight_part(l->schedule->ops[unit->last].kind);
}

/** @return whether a unit begins with a recompute. */
static inline bool rp_lower_recomputes(const rp_lowering *l, const rp_lower_unit *unit)
{
    return rp_op_kind_is_recompute(l->schedule->ops[unit->first].kind);
}

/** Index into rp_lowering.saved. */
static inline size_t rp_lower_saved_index(const rp_lowering *l, uint32_t iteration,
                                          uint32_t position, uint32_t microbatch)
{
    return rp_producers_backward_index(&l->producers, iteration, position, microbatch);
}

/** Index into rp_lowering.job_of; `position` counts forward stages first. */
static inline size_t rp_lower_job_index(const rp_lowering *l, uint32_t iteration, uint32_t call,
                                        uint32_t position)
{
    size_t positions = (size_t)l->schedule->forward_count + l->schedule->backward_count;
    return ((size_t)iteration * l->calls + call) * positions + position;
}

/** The layers of a stage as sizes count them: embedding and head included. [begin, end) */
void rp_lower_layers(const rp_lowering *lowering, uint32_t stage, bool backward,
                     uint32_t *begin_out, uint32_t *end_out);

/** @return whether the backward of a stage begins with the embedding: its input is token ids. */
bool rp_lower_from_ids(const rp_lowering *lowering, uint32_t stage);

/** @return whether a separate backward stage begins inside of a forward stage: its input is
 * computed there, but is neither the forward stage's input nor its output. The embedding's output
 * counts as inside. */
bool rp_lower_begins_inside(const rp_lowering *lowering, uint32_t backward, uint32_t forward);

/** Adds ops and waits of a data-parallel system, in place of rp_lower_add_ops and
 * rp_lower_add_waits. */
rp_status rp_lower_sharded(rp_lowering *lowering);

/** The download that put a separate backward stage's input of `op`'s microbatch into host memory;
 * RP_NO_HANDLE if its input is the token ids. `position` is the stage's place in the chain. */
rp_handle rp_lower_saved_input(const rp_lowering *lowering, const rp_op *op, uint32_t position);

/**
 * Adds a unit's compute ops to a queue, layer by layer if the grain says so, and sets the unit's
 * handles of them.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY
 */
rp_status rp_lower_add_compute(rp_lowering *lowering, uint32_t queue, rp_lower_unit *unit);

/* Layouts (groups.c): collectives of the GPUs that a GPU of the program stands for. */

/** @return number of queues of groups, over all GPUs. */
uint32_t rp_lower_group_queues(rp_lowering *lowering);

/** Sets kind and GPU of these queues, of which the first is queue `first` of the program. */
void rp_lower_set_group_queues(rp_lowering *lowering, uint32_t first, rp_queue *queues);

/** @return bytes that pass through each GPU of a ring while `bytes` are gathered or reduced and
 * scattered; an all-reduce does both. */
static inline uint64_t rp_lower_ring_bytes(uint64_t bytes, uint32_t ranks)
{
    return bytes * (ranks - 1) / ranks;
}

/** Adds `count` successive collectives of a group as a single op.
 * @param like op with the stage and microbatch
 * @param bytes bytes of all collectives together @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_collective(rp_lowering *lowering, uint32_t queue, rp_op_kind kind,
                                  const rp_op *like, uint32_t count, uint64_t bytes,
                                  rp_handle *handle_out);

/** @return bytes of a sequence's boundary tensor that a GPU of a tensor group sends to the next
 * stage and receives (rp_traits.scatter_gather). */
uint64_t rp_lower_sent_bytes(const rp_lowering *lowering);

/** Adds the sums of a unit's tensor group, and its tokens' ways to experts, as ops behind it;
 * rp_lower_unit.reduce is the last.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_tensor_reduce(rp_lowering *lowering, rp_lower_unit *unit);

/* Copies (copies.c): reductions of gradients, and the state that ZeRO shards. */

/** Sets rp_lower_job.reduces of all jobs. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_lower_find_reductions(rp_lowering *lowering);

/** @return whether whole gradients are in memory from step to step; otherwise a share of them is,
 * and whole gradients exist only from their backward to their reduction. */
bool rp_lower_keeps_gradients(const rp_lowering *lowering);

/** @return whether a unit's gradients of weights are reduced while it runs: it is then divided into
 * ops of a layer each. */
bool rp_lower_is_split(const rp_lowering *lowering, const rp_lower_unit *unit);

/**
 * Adds all collectives of the copies of a GPU, in the order in which they run, after its compute
 * ops, and their waits except those for the step between two iterations.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY
 */
rp_status rp_lower_add_copies(rp_lowering *lowering, uint32_t gpu);

/** @return bytes that each copy holds of `bytes`, which the copies share from this stage of ZeRO
 * on. */
uint64_t rp_lower_share(const rp_lowering *lowering, rp_lower_family family, uint32_t stage,
                        uint64_t bytes);

/** @return the index of an iteration and a GPU into `updated`; with iteration 0 also into
 * `trained_bytes`. */
static inline size_t rp_lower_family_index(const rp_lowering *l, uint32_t iteration, uint32_t gpu,
                                           rp_lower_family family)
{
    return ((size_t)iteration * l->schedule->gpu_count + gpu) * RP_LOWER_FAMILIES + family;
}

/** @return bytes of a family among the `all` bytes of a layer, of which `experts` are the
 * experts'. */
static inline uint64_t rp_lower_of_family(const rp_lowering *l, rp_lower_family family,
                                          uint64_t all, uint64_t experts)
{
    uint64_t apart = rp_layout_expert(&l->schedule->traits.layout) > 1 ? experts : 0;
    return family == RP_LOWER_EXPERTS ? apart : all - apart;
}

/** @return bytes of the gradients in the type in which they are kept and reduced.
 * @param gradient_bytes bytes in the program's type */
uint64_t rp_lower_reduced(const rp_lowering *lowering, uint64_t gradient_bytes);

/** Adds the buffers of a unit's gathered weights, and of gradients that are freed after their
 * reduction. */
void rp_lower_put_copies(const rp_lowering *lowering, rp_program *program,
                         const rp_lower_unit *unit);

/** @return most buffers that rp_lower_put_copies adds for a GPU's units. */
size_t rp_lower_copies_buffers(const rp_lowering *lowering);

/** Adds the sums of a step's gradients over the servers, if there are copies: an op per layer,
 * after its collection and before the step's optimizer.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_exchanges(rp_lowering *lowering, uint32_t iteration, rp_handle adam);

/** @return the host's memory traffic for a layer's sum over the servers. */
uint64_t rp_lower_sum_bytes(const rp_lowering *lowering, uint32_t layer);

/** @return the op that gives a unit's result to others: its last compute op, or its group's sum. */
static inline rp_handle rp_lower_result(const rp_lower_unit *unit)
{
    return unit->reduce != RP_NO_HANDLE ? unit->reduce : unit->compute_last;
}

/* Layer grain (layers.c), for units with parts. */

/** Prepares a unit's parts if it goes layer by layer: layers are set, handles are not.
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rp_lower_find_parts(rp_lowering *lowering, rp_lower_unit *unit);

/** Offload placement: adds the uploads of a backward's layer inputs; the head's input comes with
 * the labels.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_layer_uploads(rp_lowering *lowering, rp_lower_unit *unit);

/** Offload placement: adds the downloads of the layer inputs that a forward computes itself.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_layer_downloads(rp_lowering *lowering, rp_lower_unit *unit);

/** The download that put a layer's input into host memory for a backward unit; RP_NO_HANDLE if the
 * input is the token ids. */
rp_handle rp_lower_layer_input(const rp_lowering *lowering, const rp_lower_unit *unit,
                               uint16_t layer);

/** @return most buffers that the two functions below add for all units. */
size_t rp_lower_layer_buffers(const rp_lowering *lowering);

/** Adds the buffers of the layer inputs that a forward computes, and of its head's tape. */
void rp_lower_put_layered_forward(const rp_lowering *lowering, rp_program *program,
                                  const rp_lower_unit *unit);

/**
 * Adds the buffers of a backward's layers: inputs, tapes, temporaries, and inputs in host memory.
 * @param release the op that frees the tapes: the backward's weight part, or its own last op
 */
void rp_lower_put_layered_backward(const rp_lowering *lowering, rp_program *program,
                                   const rp_lower_unit *unit, rp_handle release);

/** Adds the waits between a unit's layers and their transfers. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_lower_connect_layers(rp_lowering *lowering, const rp_lower_unit *unit);

/** Ops that a GPU's worker has issued (executor.md 1.3); RP_NO_HANDLE: none. */
typedef struct rp_lower_flight {
    rp_handle compute;       /**< the last compute op */
    rp_handle before_upload; /**< the last compute op before the latest upload */
    rp_handle down;          /**< the latest download */
    rp_handle before_down;   /**< the download before the latest */
} rp_lower_flight;

/** Issues a unit without parts: its transfers count as issued; the caller adds their waits. */
void rp_lower_issue(const rp_lower_unit *unit, rp_lower_flight *flight);

/**
 * Issues a unit with parts. An upload waits for the compute before the previous upload, and compute
 * waits for the second latest download: at most two layer inputs at a time in either direction.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_lower_issue_layers(rp_lowering *lowering, const rp_lower_unit *unit,
                                rp_lower_flight *flight);

/** No memory is as large as this; sums of such bytes stay below 2^63. */
#define RP_LOWER_MOST_BYTES (UINT64_C(1) << 46)

/** @return values[layer], at most RP_LOWER_MOST_BYTES; 0 if values is NULL. */
static inline uint64_t rp_lower_at(const uint64_t *values, uint32_t layer)
{
    uint64_t value = values == NULL ? 0 : values[layer];
    return value < RP_LOWER_MOST_BYTES ? value : RP_LOWER_MOST_BYTES;
}

/** @return the product, at most RP_LOWER_MOST_BYTES. */
static inline uint64_t rp_lower_scaled(uint64_t per_sequence, uint64_t sequences)
{
    bool fits = sequences == 0 || per_sequence <= RP_LOWER_MOST_BYTES / sequences;
    return fits ? per_sequence * sequences : RP_LOWER_MOST_BYTES;
}

/** @return bytes without the part, at least 0. */
static inline uint64_t rp_lower_less(uint64_t bytes, uint64_t part)
{
    return bytes > part ? bytes - part : 0;
}

/** @return whether tensors stay on a GPU from a unit's forward to its backward; otherwise the
 * stage's input comes up again. */
static inline bool rp_lower_keeps_tape(const rp_lowering *l)
{
    return !l->offload || (!l->separate && !rp_recompute_has_ops(l->schedule->recompute));
}

/* Tensors that a forward keeps for its backward (kept.c). */

/** In place of the number of a part: the unit as a whole. */
#define RP_LOWER_WHOLE UINT32_MAX

/**
 * @param op an op of a stage and microbatch
 * @param part number of a part of the forward, or RP_LOWER_WHOLE
 * @return the last op that needs what the forward has kept: the backward of the same layers, or the
 *         weight part if the backward has one
 */
rp_handle rp_lower_release(const rp_lowering *lowering, const rp_op *op, uint32_t part);

/** @return the last op for which they stay on the GPU at first: rp_lower_release, or their
 * download. @param forward the forward unit */
rp_handle rp_lower_kept_until(const rp_lowering *lowering, const rp_lower_unit *forward,
                              uint32_t part);

/** Adds the ways of all saved tensors to the host and back, with their waits, once all compute ops
 * are there; nothing unless activations are offloaded. @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_trips(rp_lowering *lowering);

/** Adds the buffers of saved tensors in host memory and, when they have come back, on the GPU: two
 * for each of trip_count. */
void rp_lower_put_trips(const rp_lowering *lowering, rp_program *program);

/** Adds a buffer to a program whose array has room for it; adds nothing without bytes or without
 * ops. */
void rp_lower_put(const rp_lowering *lowering, rp_program *program, rp_buffer_kind kind,
                  uint32_t place, uint64_t bytes, rp_handle from, rp_handle to);

/**
 * Adds the gradients of the parameters that a GPU steps itself. With rp_sizes.fp32_gradients, bf16
 * gradients that are not reduced become fp32 gradients, and other 16-bit gradients get fp32 copies
 * for the step.
 * @param bytes bytes of all gradients that it keeps
 * @param narrow bytes of the 16-bit gradients that it steps; 0: they are fp32 already
 * @param between first and last op of their lives
 * @param updates [iteration][gpu] the GPUs' own steps
 */
void rp_lower_put_gradients(const rp_lowering *lowering, rp_program *program, uint32_t gpu,
                            uint64_t bytes, uint64_t narrow, const rp_handle between[2],
                            const rp_handle *updates);

/** Adds what each step of a GPU's parameters has beside their states (rp_sizes.step_bytes). */
void rp_lower_put_step(const rp_lowering *lowering, rp_program *program, uint32_t gpu,
                       uint64_t parameters, const rp_handle *updates);

/**
 * Writes the program's buffers, once the assembly is finished.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_lower_add_buffers(const rp_lowering *lowering, rp_program *program);

/** As rp_lower_add_buffers, for a data-parallel system. */
rp_status rp_lower_add_sharded_buffers(const rp_lowering *lowering, rp_program *program);

/** Adds all ops. @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_ops(rp_lowering *lowering);

/** Adds all waits between them. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_lower_add_waits(rp_lowering *lowering);
