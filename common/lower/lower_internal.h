/** @file lower_internal.h  Inside of the lowering: its working state. Not for other modules. */
#pragma once

#include "common/lower/lower.h"
#include "common/program/assembly.h"
#include "common/program/producers.h"

/** Queues of one GPU in a lowered program, in this order. */
enum {
    RP_LOWER_COMPUTE,
    RP_LOWER_PARAMS,
    RP_LOWER_UPLOAD,
    RP_LOWER_DOWNLOAD,
    RP_LOWER_PEER,
    RP_LOWER_QUEUES_PER_GPU,
    /** Queue of tensors that a GPU receives, where weights are resident and GPUs reach each other:
     * then there are no parameter uploads. */
    RP_LOWER_RECEIVE = RP_LOWER_PARAMS,
};

/** Parameters that copies add up and share: all of a dense model, and apart from them experts that
 * only some copies have. */
typedef enum rp_lower_family {
    RP_LOWER_DENSE,
    RP_LOWER_EXPERTS,
    RP_LOWER_FAMILIES,
} rp_lower_family;

/** One layer of a unit that goes layer by layer. */
typedef struct rp_lower_part {
    uint16_t layer;  /**< as in rp_op */
    rp_handle first; /**< its recompute; a separate stage's head: its forward */
    rp_handle last;  /**< its forward, or backward */
    rp_handle up;    /**< backward: upload of its input */
    rp_handle down;  /**< forward: download of its input, where the unit computes that itself */
} rp_lower_part;

/** One forward, one backward (or its input part) with its pre-work, and its transfers; or a
 * backward's weight part, which has none. */
typedef struct rp_lower_unit {
    uint32_t first; /**< op numbers in the compute schedule */
    uint32_t last;
    uint32_t job;
    rp_handle compute_first;
    rp_handle compute_last;
    rp_handle forward;   /**< its FORWARD op, RP_NO_HANDLE where it has none */
    rp_handle up_act;    /**< upload, or RECV */
    rp_handle up_grad;   /**< likewise */
    bool received;       /**< its input or gradient comes by RECV */
    rp_handle down_out;  /**< boundary activation or gradient: download, or SEND */
    rp_handle down_last; /**< the last of its downloads */
    rp_handle reduce;    /**< of its tensor group: its result is complete behind it */
    rp_handle gather[RP_LOWER_FAMILIES]; /**< of its weights, from the copies that share them
                                              (ZeRO-3) */
    uint32_t part_count;                 /**< 0: not layer by layer */
    rp_lower_part *parts;                /**< in the order in which they run */
    /** Gradients of weights that are reduced layer after layer: `last` of each layer's op, from the
     * last layer to the first. 0: of all layers at once. Units with parts have them there. */
    uint32_t split_count;
    rp_lower_part *splits;
    uint32_t bucket_count; /**< of gradients that the copies reduce */
    struct rp_lower_bucket *buckets;
} rp_lower_unit;

/** One stage over the microbatches of one call, on one GPU. */
typedef struct rp_lower_job {
    uint32_t gpu;
    uint32_t first_unit;
    uint32_t unit_count;
    uint16_t stage;
    uint16_t iteration;
    uint32_t call;
    bool backward;
    bool reduces;           /**< the copies add up its gradients when it is over (copies.c) */
    rp_handle params_first; /**< of its uploads on the parameter queue */
    rp_handle params_last;
    rp_handle param_grads_up;
    rp_handle param_grads_down;
} rp_lower_job;

struct rp_sharded;

typedef struct rp_lowering {
    const rp_program *schedule;
    const rp_lower_config *config;
    const uint32_t *sequences;
    rp_arena *arena;   /**< scratch */
    rp_reason *reason; /**< of the caller */
    rp_assembly *assembly;
    rp_producers producers;
    bool separate; /**< backward stages of their own */
    bool layers;   /**< units that can go layer by layer do */
    bool offload;  /**< weights come up per job; boundaries go through the host and stay there */
    uint32_t host_queue;
    uint32_t tensor_queues;  /**< of GPU 0's tensor group, those of the others follow; 0: none */
    uint32_t data_queues;    /**< likewise of data groups */
    uint32_t expert_queues;  /**< of copies that share experts */
    uint32_t replica_queues; /**< of copies that have the same experts */
    uint32_t calls;          /**< per iteration */
    uint32_t network_queue;  /**< of the hosts of copies; 0: there are none */
    uint32_t unit_count;
    rp_lower_unit *units; /**< queue after queue, as the schedule has them */
    uint32_t *unit_of;    /**< [op of the schedule] */
    uint32_t job_count;
    rp_lower_job *jobs;  /**< likewise */
    uint32_t *job_begin; /**< [gpu + 1] */
    rp_handle *saved;    /**< [iteration][backward position][microbatch] download of the input */
    uint32_t *job_of;    /**< [iteration][call][forward positions, then backward positions] */
    rp_handle *refresh;  /**< [iteration][layers + 2] */
    rp_handle *collect;  /**< [iteration][layers + 2] */
    rp_handle *update;   /**< [iteration][gpu] of resident weights */
    rp_handle *updated;  /**< [iteration][gpu][family] its weights are new: `update`, or a gather */
    uint64_t *trained_bytes;    /**< [gpu][family] of resident weights that it trains */
    struct rp_sharded *sharded; /**< data-parallel systems; otherwise NULL */
} rp_lowering;

/** @return true where a unit is a backward's weight part, which follows its input part on its
 * queue. */
static inline bool rp_lower_is_weight(const rp_lowering *l, const rp_lower_unit *unit)
{
    return rp_op_kind_is_weight_part(l->schedule->ops[unit->last].kind);
}

/** @return true where a unit begins with a recompute. */
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

/** @return true where the backward of a stage begins with the embedding: its input is token ids. */
bool rp_lower_from_ids(const rp_lowering *lowering, uint32_t stage);

/** @return true where the input of a separate backward stage is computed inside of a forward stage:
 * neither its input nor its output. The embedding's output may be, too. */
bool rp_lower_begins_inside(const rp_lowering *lowering, uint32_t backward, uint32_t forward);

/** Adds ops and waits of a data-parallel system instead of the two below. */
rp_status rp_lower_sharded(rp_lowering *lowering);

/** The download that put a separate backward stage's input of `op`'s microbatch into host memory;
 * RP_NO_HANDLE where its input is the token ids. `position` is the stage's in the chain. */
rp_handle rp_lower_saved_input(const rp_lowering *lowering, const rp_op *op, uint32_t position);

/**
 * Adds a unit's compute ops to a queue, layer by layer where the grain says so, and sets all that
 * the unit says about them. @retval RP_OK, RP_USAGE, RP_NO_MEMORY
 */
rp_status rp_lower_add_compute(rp_lowering *lowering, uint32_t queue, rp_lower_unit *unit);

/* Layouts (groups.c): collectives of the GPUs that a GPU of the program stands for. */

/** Queues that groups have on all GPUs together. */
uint32_t rp_lower_group_queues(rp_lowering *lowering);

/** Sets kind and GPU of these queues, of which the first is queue `first` of the program. */
void rp_lower_set_group_queues(rp_lowering *lowering, uint32_t first, rp_queue *queues);

/** @return bytes that pass through each GPU of a ring while `bytes` are gathered or reduced and
 * scattered; an all-reduce does both. */
static inline uint64_t rp_lower_ring_bytes(uint64_t bytes, uint32_t ranks)
{
    return bytes * (ranks - 1) / ranks;
}

/** Adds `count` collectives of a group in a row as one op. @param like its stage and microbatch
 * @param bytes of all of them @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_collective(rp_lowering *lowering, uint32_t queue, rp_op_kind kind,
                                  const rp_op *like, uint32_t count, uint64_t bytes,
                                  rp_handle *handle_out);

/** @return bytes of a sequence's boundary tensor that a GPU of a tensor group sends to the next
 * stage and receives (rp_traits.scatter_gather). */
uint64_t rp_lower_sent_bytes(const rp_lowering *lowering);

/** Adds what a unit's tensor group adds up, or its tokens' ways to experts, as ops behind it
 * (rp_lower_unit.reduce: the last one). @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_tensor_reduce(rp_lowering *lowering, rp_lower_unit *unit);

/* Copies (copies.c): reductions of gradients, and what ZeRO shards. */

/** Sets rp_lower_job.reduces of all jobs. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_lower_find_reductions(rp_lowering *lowering);

/** @return true where whole gradients are in memory from step to step; otherwise a share of them,
 * and whole ones from their backward to their reduction. */
bool rp_lower_keeps_gradients(const rp_lowering *lowering);

/** @return true where a unit's gradients of weights are reduced while it runs: it is then divided
 * into ops of one layer each. */
bool rp_lower_is_split(const rp_lowering *lowering, const rp_lower_unit *unit);

/**
 * Adds all collectives of the copies of a GPU, in the order in which they run, once its compute ops
 * are there, and their waits but those for the step between two iterations.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY
 */
rp_status rp_lower_add_copies(rp_lowering *lowering, uint32_t gpu);

/** @return bytes of what each of the copies holds, where they share `bytes` from this stage of ZeRO
 * on. */
uint64_t rp_lower_share(const rp_lowering *lowering, rp_lower_family family, uint32_t stage,
                        uint64_t bytes);

/** @return the index into `updated` of an iteration and a GPU; into `trained_bytes` with
 * iteration 0. */
static inline size_t rp_lower_family_index(const rp_lowering *l, uint32_t iteration, uint32_t gpu,
                                           rp_lower_family family)
{
    return ((size_t)iteration * l->schedule->gpu_count + gpu) * RP_LOWER_FAMILIES + family;
}

/** @return bytes of a layer's family among `all` of the layer, of which `experts` are experts'. */
static inline uint64_t rp_lower_of_family(const rp_lowering *l, rp_lower_family family,
                                          uint64_t all, uint64_t experts)
{
    uint64_t apart = rp_layout_expert(&l->schedule->traits.layout) > 1 ? experts : 0;
    return family == RP_LOWER_EXPERTS ? apart : all - apart;
}

/** @return bytes of the gradients that the program's gradient bytes are kept in and reduced as. */
uint64_t rp_lower_reduced(const rp_lowering *lowering, uint64_t gradient_bytes);

/** Adds the buffers of a unit's gathered weights, and of gradients that are gone when they are
 * reduced. */
void rp_lower_put_copies(const rp_lowering *lowering, rp_program *program,
                         const rp_lower_unit *unit);

/** @return the number of buffers that rp_lower_put_copies adds for a GPU's units, at most. */
size_t rp_lower_copies_buffers(const rp_lowering *lowering);

/** Adds the sums of a step's gradients over the servers, a layer each, where there are copies:
 * behind its collection, before the step's optimizer. @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_exchanges(rp_lowering *lowering, uint32_t iteration, rp_handle adam);

/** @return memory traffic of the host that a layer's sum over the servers takes. */
uint64_t rp_lower_sum_bytes(const rp_lowering *lowering, uint32_t layer);

/** @return what gives a unit's result to others: its last compute op, or its group's sum. */
static inline rp_handle rp_lower_result(const rp_lower_unit *unit)
{
    return unit->reduce != RP_NO_HANDLE ? unit->reduce : unit->compute_last;
}

/* Layer grain (layers.c), for units with parts. */

/** Prepares a unit's parts where it goes layer by layer: layers are set, handles are not.
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rp_lower_find_parts(rp_lowering *lowering, rp_lower_unit *unit);

/** Offload placement: adds the uploads of a backward's layer inputs, of the labels with the head's.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_layer_uploads(rp_lowering *lowering, rp_lower_unit *unit);

/** Offload placement: adds the downloads of the layer inputs that a forward computes itself.
 * @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_layer_downloads(rp_lowering *lowering, rp_lower_unit *unit);

/** The download that put a layer's input into host memory for a backward unit; RP_NO_HANDLE where
 * it is the token ids. */
rp_handle rp_lower_layer_input(const rp_lowering *lowering, const rp_lower_unit *unit,
                               uint16_t layer);

/** @return the number of buffers that the two functions below add for all units, at most. */
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
    rp_handle before_down;   /**< the one before it */
} rp_lower_flight;

/** Issues a unit without parts: its transfers count, their waits are the caller's. */
void rp_lower_issue(const rp_lower_unit *unit, rp_lower_flight *flight);

/**
 * Issues a unit with parts: an upload waits for the compute before the upload before it, compute
 * for the download before the latest one; two layer inputs at a time in either direction.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_lower_issue_layers(rp_lowering *lowering, const rp_lower_unit *unit,
                                rp_lower_flight *flight);

/** No memory is as large as this; sums of such bytes stay below 2^63. */
#define RP_LOWER_MOST_BYTES (UINT64_C(1) << 46)

/** @return values[layer], at most RP_LOWER_MOST_BYTES; 0 where values is NULL. */
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

/** @return bytes without the part, 0 at least. */
static inline uint64_t rp_lower_less(uint64_t bytes, uint64_t part)
{
    return bytes > part ? bytes - part : 0;
}

/** @return true where something stays on a GPU from a unit's forward to its backward; otherwise the
 * stage's input comes up again. */
static inline bool rp_lower_keeps_tape(const rp_lowering *l)
{
    return !l->offload || (!l->separate && l->schedule->recompute == RP_RECOMPUTE_NONE);
}

/** Adds a buffer to a program whose array has room for it; none without bytes or without ops. */
void rp_lower_put(const rp_lowering *lowering, rp_program *program, rp_buffer_kind kind,
                  uint32_t place, uint64_t bytes, rp_handle from, rp_handle to);

/**
 * Adds the gradients of what a GPU steps itself, and what rp_sizes.fp32_gradients makes of them:
 * fp32 ones in place of bf16 ones that nobody reduces, and otherwise copies of 16-bit ones for the
 * step.
 * @param bytes of all that it keeps
 * @param narrow of the 16-bit ones that it steps; 0: they are fp32 already
 * @param between first and last op that they live to
 * @param updates [iteration][gpu] the GPUs' own steps
 */
void rp_lower_put_gradients(const rp_lowering *lowering, rp_program *program, uint32_t gpu,
                            uint64_t bytes, uint64_t narrow, const rp_handle between[2],
                            const rp_handle *updates);

/**
 * Writes the program's buffers, once the assembly is finished.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_lower_add_buffers(const rp_lowering *lowering, rp_program *program);

/** As rp_lower_add_buffers, of a data-parallel system. */
rp_status rp_lower_add_sharded_buffers(const rp_lowering *lowering, rp_program *program);

/** Adds all ops. @retval RP_OK, RP_USAGE, RP_NO_MEMORY */
rp_status rp_lower_add_ops(rp_lowering *lowering);

/** Adds all waits between them. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_lower_add_waits(rp_lowering *lowering);
