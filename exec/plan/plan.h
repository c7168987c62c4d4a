/** @file plan.h  Tensors that the ops of a lowered program read and write, and their places.
 *
 * A plan is made once per program, before anything runs: every tensor of the run gets a place in
 * its GPU's arena (or in pinned host memory), so that a run allocates nothing and a program that
 * does not fit is refused at once. Two tensors may share bytes if the program's own order says that
 * the first is no longer used when the second begins (order.h). The run cannot violate this, since
 * queues and events enforce just that order.
 */
#pragma once

#include "common/base/reason.h"
#include "common/program/traits.h"
#include "exec/model/layers.h"
#include "exec/model/tensor_parallel.h"
#include "exec/operators/collective.h"
#include "exec/plan/order.h"

#define RPEXEC_NO_TENSOR UINT32_MAX

/** A tensor of the run: bytes in a memory, from its first user to its last. */
typedef struct rpexec_value {
    uint64_t bytes;
    uint64_t offset;     /**< bytes from the begin of its place's arena, a multiple of 64 */
    uint32_t place;      /**< GPU, or gpu_count for pinned host memory */
    uint32_t first_op;   /**< the op that writes it; all other users come later */
    uint32_t user_begin; /**< its users are plan.users[user_begin .. user_end) */
    uint32_t user_end;
} rpexec_value;

/** A job of offload placement: a stage's weights and gradients on a GPU for a call. With resident
 * weights: a stage on its GPU. */
typedef struct rpexec_job {
    uint32_t stage;
    uint32_t gpu;
    uint32_t begin; /**< layers [begin, end) of the model */
    uint32_t end;
    bool backward;
    bool accumulates; /**< begins with the gradients of the previous call */
    uint32_t first_microbatch;
    uint32_t weights;   /**< tensors */
    uint32_t gradients; /**< RPEXEC_NO_TENSOR if it has none */
    uint32_t moments;   /**< resident: Adam's m, v, and of 16-bit weights the masters, in fp32;
                         otherwise RPEXEC_NO_TENSOR */
    uint32_t root;      /**< embedding and head, if they are kept apart from `weights` (FSDP) */
    uint32_t kept_from; /**< first layer of those that have stayed from the stage's forward
                             (rp_sharding_kept_from); data-parallel systems */
} rpexec_job;

/** A layer of a backward's weight part that uses tapes which were kept layer by layer. */
typedef struct rpexec_part {
    uint32_t begin; /**< layers [begin, end): a block, with the embedding if that precedes it */
    uint32_t end;
    uint32_t tape; /**< tensors */
    uint32_t weight_tape;
} rpexec_part;

/** Tensors that a rank of a data-parallel system has of a stage all the time. */
typedef struct rpexec_home {
    uint32_t begin; /**< layers [begin, end) of the model */
    uint32_t end;
    uint32_t
        weights; /**< whole, or packed shares (exec/state/shard.h); none: they are on the host */
    uint32_t moments; /**< for its packed shares: Adam's m, v, and of 16-bit weights the masters, in
                           fp32; none if the host has them */
} rpexec_home;

/** Data-parallel systems: the ranks' tensors of each stage. */
typedef struct rpexec_sharded {
    const rp_sharding *sharding;
    rpexec_home *homes; /**< [gpu][stage] */
    /** [iteration][gpu][stage] tensor of packed shares of the gradients, for Adam on the GPU */
    uint32_t *gradients;
} rpexec_sharded;

/** Gradients of a call other than the first, which the host adds up if calls overlap. */
typedef struct rpexec_slot {
    uint32_t job;   /**< job whose layers it has */
    uint32_t value; /**< tensor in pinned host memory */
} rpexec_slot;

/** Tensors and ranges that an op works on; RPEXEC_NO_TENSOR: it has none of the kind. */
typedef struct rpexec_task {
    uint32_t job;   /**< job of an op of compute or parameters */
    uint32_t begin; /**< compute: layers [begin, end) of the model, all of the job's or a single
                         layer; the embedding goes with the first block */
    uint32_t end;
    uint32_t input;       /**< activation: source of a transfer, input of a stage */
    uint32_t output;      /**< target of a transfer (for a SEND in the receiver's memory); for a
                               backward, the gradient of the stage's input; for a download of
                               parameter gradients, RPEXEC_NO_TENSOR is the state's slot */
    uint32_t body;        /**< output of the stage's layers below the head */
    uint32_t d_output;    /**< gradient with which a backward begins, or that a RECV has received */
    uint32_t ids;         /**< token ids on the GPU; none: read from host memory */
    uint32_t labels;      /**< labels on the GPU; none: read from host memory */
    uint32_t tape;        /**< tape of the stage (kept) or of a single layer */
    uint32_t weight_tape; /**< split backward */
    uint32_t head_gradient; /**< passed from the head's forward to its backward */
    uint32_t sums;          /**< 16-bit types: fp32 tensor in which the job's gradients are added
                                 up; none if nothing is added to existing gradients */
    uint32_t scratch;
    uint32_t embedded;   /**< tensor parallel: the embedding's output, from a forward to its
                              recompute */
    uint32_t statistics; /**< tensor parallel: values that ranks exchange in the head */
    uint32_t exchange;   /**< tensor parallel: scratch of collectives */
    uint32_t save_begin; /**< plan.saves[save_begin .. save_end): inputs of later backward stages */
    uint32_t save_end;
    uint32_t part_begin; /**< plan.parts[part_begin .. part_end): a weight part's layers, ascending;
                              none: `tape` and `weight_tape` have them all */
    uint32_t part_end;
    uint32_t slot_begin; /**< COLLECT: plan.slots[slot_begin .. slot_end), in the order of calls */
    uint32_t slot_end;
    uint64_t from_byte; /**< parameters: the range of the stage's array that is moved */
    uint64_t to_byte;
    bool keep;        /**< a forward or recompute that keeps the whole tape */
    bool clears;      /**< the job's gradients are zeroed first; a reduction's or a COLLECT's target
                           is empty so far */
    bool begins_sums; /**< `sums` are zeroed first */
    bool ends_sums;   /**< `sums` are added to the job's gradients afterwards */
    bool sends_gradient; /**< SEND: moves a backward's result, not a forward's */
    bool moves_root;     /**< ALL_GATHER, UPLOAD_PARAMS: moves embedding and head, too */
    bool runs_layers;    /**< FORWARD: computes its layers */
    bool runs_head; /**< computes the head: FORWARD, or a backward whose forward was another job */
} rpexec_task;

/** An activation that a forward leaves for a backward stage that begins inside of its stage. */
typedef struct rpexec_save {
    uint32_t layer; /**< layer whose output it is */
    uint32_t value;
} rpexec_save;

/** A plan; all of it lives in the arena in which it was made. */
typedef struct rpexec_plan {
    const rp_program *program;
    const rpexec_model *model;
    rpexec_order order;
    rpexec_task *tasks; /**< [op] */
    uint32_t value_count;
    rpexec_value *values;
    uint32_t *users;
    uint32_t job_count;
    rpexec_job *jobs;
    uint32_t save_count;
    rpexec_save *saves;
    uint32_t part_count;
    rpexec_part *parts;
    uint32_t slot_count;
    rpexec_slot *slots;
    uint32_t job_microbatches;  /**< 16-bit types: microbatches whose gradients are added up in fp32
                                     before they are rounded; 0: all of a step */
    uint32_t slot_microbatches; /**< microbatches that are summed before slots are added up; 0: all
                                     of a step */
    uint64_t *arena_bytes;      /**< [gpu_count + 1] the most that each place holds; host last */
    bool resident;              /**< weights, gradients and Adam's moments stay on the GPUs */
    rpexec_sharded *sharded; /**< data-parallel systems; otherwise NULL, and `resident` is false */
    rpexec_slice *slices;    /**< [gpu_count] tensor parallelism; otherwise NULL */
    uint32_t tensor;         /**< GPUs that share each layer; 1: none do */
    uint32_t data;           /**< copies of the pipeline; 1 in data-parallel systems */
    uint32_t servers;        /**< processes, each of which has as many copies, or a pool of GPUs */
} rpexec_plan;

/** The groups of GPUs along an axis that run collectives together: `groups` groups of `ranks`
 * GPUs. */
typedef struct rpexec_plan_axis {
    uint32_t groups;
    uint32_t ranks;
} rpexec_plan_axis;

/** @return the groups of an axis. */
rpexec_plan_axis rpexec_plan_axis_of(const rpexec_plan *plan, rpexec_axis axis);

/** @return the rank of a GPU in its group of an axis, whose number is in *group_out. */
uint32_t rpexec_plan_rank(const rpexec_plan *plan, rpexec_axis axis, uint32_t gpu,
                          uint32_t *group_out);

/** @return the GPU that is `rank` of a group. */
uint32_t rpexec_plan_gpu(const rpexec_plan *plan, rpexec_axis axis, uint32_t group, uint32_t rank);

/** @return GPUs for each GPU of the pipeline: a GPU belongs to the pipeline of its number modulo
 * this. */
static inline uint32_t rpexec_plan_copies(const rpexec_plan *plan)
{
    return plan->tensor * plan->data;
}

/** @return the copy of the pipeline that a GPU belongs to. */
static inline uint32_t rpexec_plan_copy(const rpexec_plan *plan, uint32_t gpu)
{
    return gpu / plan->tensor % plan->data;
}

/** @return the model that `gpu` computes with: the whole model, or its slice. */
static inline const rpexec_model *rpexec_plan_model(const rpexec_plan *plan, uint32_t gpu)
{
    return plan->slices != NULL ? &plan->slices[gpu].model : plan->model;
}

/**
 * Microbatches [begin, end) whose tokens an op of `microbatch` works on: normally only that one. If
 * ranks work on the same tokens, each rank has its own microbatch, and all work on all of these.
 */
void rpexec_plan_microbatches(const rpexec_plan *plan, uint32_t microbatch, uint32_t *begin_out,
                              uint32_t *end_out);

/** @return sequences of all microbatches that an op of `microbatch` works on. */
uint32_t rpexec_plan_sequences(const rpexec_plan *plan, uint32_t microbatch);

/** @return the most sequences of any op. */
uint32_t rpexec_plan_most_sequences(const rpexec_plan *plan);

/** @return most arrays of a collective. */
uint32_t rpexec_plan_most_arrays(const rpexec_plan *plan);

/** @return the tensors that `gpu` has of `stage` all the time; data-parallel systems. */
rpexec_home *rpexec_plan_home(const rpexec_plan *plan, uint32_t gpu, uint32_t stage);

/** @return the entry for the tensor of a rank's shares of a stage's gradients, in the iteration of
 * `op`; data-parallel systems. */
uint32_t *rpexec_plan_shard_gradients(const rpexec_plan *plan, const rp_op *op, uint32_t gpu,
                                      uint32_t stage);

/** Layers [begin, end) that are gathered only for this job: without embedding and head if those are
 * kept apart, and without layers that have stayed; data-parallel systems. */
void rpexec_plan_body(const rpexec_plan *plan, const rpexec_job *job, uint32_t *begin_out,
                      uint32_t *end_out);

/** Limits that a plan is made for. */
typedef struct rpexec_plan_limits {
    uint64_t cap_bytes; /**< most bytes of each GPU's arena; 0: as many as needed */
    uint64_t chunk;     /**< elements: rpexec_driver_type.chunk of the driver that runs the plan; 0:
                             whole shares */
    bool clips;         /**< gradients are clipped by their global norm */
    uint32_t servers;   /**< processes that share a layout's copies equally; 0 is 1 */
} rpexec_plan_limits;

/**
 * Plans a lowered program. If it has a layout (schedules.md 16), plan->program is the program of
 * all GPUs of a server (common/program/expand.h).
 * @param program accepted by rp_program_check; compiled for `model` and its type
 * @retval RP_OK, RP_USAGE (the executor does not support it, or it does not fit; the reason names
 *         the GPU, the tensor's op and the bytes), RP_INVALID_PROGRAM, RP_NO_MEMORY
 */
rp_status rpexec_plan_create(const rp_program *program, const rpexec_model *model,
                             const rpexec_plan_limits *limits, rp_arena *arena,
                             rpexec_plan *plan_out, rp_reason *reason);
