/** @file plan.h  Tensors that the ops of a lowered program read and write, and their places.
 *
 * Made once per program, before anything runs: every tensor of the run gets a place in its GPU's
 * arena (or in pinned host memory), so that a run allocates nothing and a program that does not fit
 * is refused at once. Two tensors may share bytes where the program's own order says that one is
 * no longer used when the other begins (order.h); the run cannot violate what the plan relies on,
 * since queues and events enforce just that order.
 */
#pragma once

#include "common/base/reason.h"
#include "common/program/traits.h"
#include "exec/model/layers.h"
#include "exec/model/tensor_parallel.h"
#include "exec/operators/collective.h"
#include "exec/plan/order.h"

#define RPEXEC_NO_TENSOR UINT32_MAX

/** A tensor of the run: bytes in one memory, from its first user to its last. */
typedef struct rpexec_value {
    uint64_t bytes;
    uint64_t offset;     /**< in the arena of its place, a multiple of 64 */
    uint32_t place;      /**< GPU, or gpu_count for pinned host memory */
    uint32_t first_op;   /**< writes it; all other users come after it */
    uint32_t user_begin; /**< its users are plan.users[user_begin .. user_end) */
    uint32_t user_end;
} rpexec_value;

/** One job of offload placement: a stage's weights and gradients on a GPU for a call. With resident
 * weights: a stage on its GPU. */
typedef struct rpexec_job {
    uint32_t stage;
    uint32_t gpu;
    uint32_t begin; /**< layers [begin, end) of the model */
    uint32_t end;
    bool backward;
    bool accumulates; /**< begins with the gradients of the call before */
    uint32_t first_microbatch;
    uint32_t weights;   /**< tensors */
    uint32_t gradients; /**< RPEXEC_NO_TENSOR where it has none */
    uint32_t moments;   /**< resident: Adam's m, v, and of 16-bit weights the masters, in fp32;
                         otherwise RPEXEC_NO_TENSOR */
    uint32_t root;      /**< embedding and head, where they are apart from `weights` (FSDP) */
    uint32_t kept_from; /**< layers from this one on have stayed from the stage's forward
                             (rp_sharding_kept_from); data-parallel systems */
} rpexec_job;

/** A layer of a backward's weight part that goes back through what was kept layer by layer. */
typedef struct rpexec_part {
    uint32_t begin; /**< layers [begin, end): a block, with the embedding where that comes before */
    uint32_t end;
    uint32_t tape; /**< tensors */
    uint32_t weight_tape;
} rpexec_part;

/** Tensors that a rank of a data-parallel system has of a stage all the time. */
typedef struct rpexec_home {
    uint32_t begin; /**< layers [begin, end) of the model */
    uint32_t end;
    uint32_t
        weights; /**< whole, or packed shares (exec/state/shard.h); none where they are on the host
                  */
    uint32_t moments; /**< of its packed shares: Adam's m, v, and of 16-bit weights the masters, in
                           fp32; none where the host has them */
} rpexec_home;

/** Data-parallel systems: the ranks' tensors of each stage. */
typedef struct rpexec_sharded {
    const rp_sharding *sharding;
    rpexec_home *homes; /**< [gpu][stage] */
    /** [iteration][gpu][stage] packed shares of the gradients, for Adam on the GPU; a tensor */
    uint32_t *gradients;
} rpexec_sharded;

/** Gradients of a call beside the first one that the host adds up, where calls overlap. */
typedef struct rpexec_slot {
    uint32_t job;   /**< whose layers it has */
    uint32_t value; /**< in pinned host memory */
} rpexec_slot;

/** Tensors and ranges that one op works on; RPEXEC_NO_TENSOR where it has none of the kind. */
typedef struct rpexec_task {
    uint32_t job;   /**< of compute and parameters */
    uint32_t begin; /**< compute: layers [begin, end) of the model, all of the job's or one;
                         the embedding goes with the first block */
    uint32_t end;
    uint32_t input;       /**< activation: source of a transfer, input of a stage */
    uint32_t output;      /**< of a transfer (of a SEND in the receiver's memory); of a backward the
                               gradient of the stage's input; of parameter gradients that go down
                               RPEXEC_NO_TENSOR for the state's slot */
    uint32_t body;        /**< output of the stage's layers below the head */
    uint32_t d_output;    /**< gradient that a backward begins with, or that a RECV has got */
    uint32_t ids;         /**< token ids on the GPU; none: read from host memory */
    uint32_t labels;      /**< labels on the GPU; none: read from host memory */
    uint32_t tape;        /**< of the stage (kept) or of one layer */
    uint32_t weight_tape; /**< split backward */
    uint32_t head_gradient; /**< from the head's forward to its backward */
    uint32_t sums;          /**< 16-bit types: fp32, that the job's gradients are added up in; none
                                 where nothing is added to what is there already */
    uint32_t scratch;
    uint32_t embedded;   /**< tensor parallel: the embedding's output, from a forward to its
                              recompute */
    uint32_t statistics; /**< tensor parallel: what ranks tell each other in the head */
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
    bool clears;      /**< the job's gradients are zeroed first; of a reduction or a COLLECT: what
                           it adds to is empty so far */
    bool begins_sums; /**< `sums` are zeroed first */
    bool ends_sums;   /**< they are added to the job's gradients afterwards */
    bool sends_gradient; /**< SEND: what a backward has left, not a forward */
    bool moves_root;     /**< ALL_GATHER, UPLOAD_PARAMS: embedding and head, too */
    bool runs_layers;    /**< FORWARD: computes its layers */
    bool runs_head; /**< computes the head: FORWARD, or a backward whose forward was another job */
} rpexec_task;

/** An activation that a forward leaves for a backward stage that begins inside of its stage. */
typedef struct rpexec_save {
    uint32_t layer; /**< whose output it is */
    uint32_t value;
} rpexec_save;

/** Everything lives in the arena it was made in. */
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
    uint32_t job_microbatches; /**< whose gradients are added up in fp32 before they are rounded, in
                                    16-bit types; 0: all of a step */
    uint32_t slot_microbatches; /**< that are summed before slots are added up; 0: all of a step */
    uint64_t *arena_bytes;      /**< [gpu_count + 1] the most that each place holds; host last */
    bool resident;              /**< weights, gradients and Adam's moments stay on the GPUs */
    rpexec_sharded *sharded; /**< data-parallel systems; otherwise NULL, and `resident` is false */
    rpexec_slice *slices;    /**< [gpu_count] tensor parallelism; otherwise NULL */
    uint32_t tensor;         /**< GPUs that share each layer; 1: none do */
    uint32_t data;           /**< copies of the pipeline; 1 of data-parallel systems */
    uint32_t servers;        /**< processes that have as many copies, or a pool of GPUs each */
} rpexec_plan;

/** The GPUs of an axis that one of them is in a collective with: `groups` groups of `ranks`. */
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

/** @return GPUs that stand for one of the pipeline: each is in the pipeline of its number modulo
 * these. */
static inline uint32_t rpexec_plan_copies(const rpexec_plan *plan)
{
    return plan->tensor * plan->data;
}

/** @return which copy of the pipeline a GPU is of. */
static inline uint32_t rpexec_plan_copy(const rpexec_plan *plan, uint32_t gpu)
{
    return gpu / plan->tensor % plan->data;
}

/** @return the model that `gpu` computes with: the whole one, or its slice. */
static inline const rpexec_model *rpexec_plan_model(const rpexec_plan *plan, uint32_t gpu)
{
    return plan->slices != NULL ? &plan->slices[gpu].model : plan->model;
}

/**
 * Microbatches [begin, end) whose tokens an op of a microbatch works on: it alone. Where ranks work
 * on the same tokens each of them has a microbatch of its own, and they work on all of these.
 */
void rpexec_plan_microbatches(const rpexec_plan *plan, uint32_t microbatch, uint32_t *begin_out,
                              uint32_t *end_out);

/** @return sequences of those. */
uint32_t rpexec_plan_sequences(const rpexec_plan *plan, uint32_t microbatch);

/** @return the most of any op. */
uint32_t rpexec_plan_most_sequences(const rpexec_plan *plan);

/** @return most arrays of a collective. */
uint32_t rpexec_plan_most_arrays(const rpexec_plan *plan);

/** @return the tensors that `gpu` has of `stage` all the time; data-parallel systems. */
rpexec_home *rpexec_plan_home(const rpexec_plan *plan, uint32_t gpu, uint32_t stage);

/** @return where the tensor of a rank's shares of a stage's gradients is noted, in the iteration of
 * `op`; data-parallel systems. */
uint32_t *rpexec_plan_shard_gradients(const rpexec_plan *plan, const rp_op *op, uint32_t gpu,
                                      uint32_t stage);

/** Layers [begin, end) that are gathered for a job alone: without embedding and head where those
 * are apart, and without those that have stayed; data-parallel systems. */
void rpexec_plan_body(const rpexec_plan *plan, const rpexec_job *job, uint32_t *begin_out,
                      uint32_t *end_out);

/** Limits that a plan is made for. */
typedef struct rpexec_plan_limits {
    uint64_t cap_bytes; /**< of each GPU's arena; 0: all that is needed */
    uint64_t chunk;     /**< rpexec_driver_type.chunk of the driver that runs it; 0: whole shares */
    bool clips;         /**< gradients are clipped by their global norm */
    uint32_t servers;   /**< that share a layout's copies equally; 0 is 1 */
} rpexec_plan_limits;

/**
 * Plans a lowered program. Of one with a layout (schedules.md 16) plan->program is that of all GPUs
 * of a server (common/program/expand.h).
 * @param program accepted by rp_program_check; compiled for `model` and its type
 * @retval RP_OK, RP_USAGE (it needs what the executor does not do, or does not fit; logged with the
 *         GPU, the tensor's op and the bytes), RP_INVALID_PROGRAM, RP_NO_MEMORY
 */
rp_status rpexec_plan_create(const rp_program *program, const rpexec_model *model,
                             const rpexec_plan_limits *limits, rp_arena *arena,
                             rpexec_plan *plan_out, rp_reason *reason);
