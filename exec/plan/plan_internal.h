/** @file plan_internal.h  Inside of the planner (plan*.c). Not for other modules. */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/sizes.h"
#include "common/program/producers.h"
#include "exec/plan/plan.h"
#include "exec/state/scaler.h"

/** State of a (stage, microbatch) of an iteration on the way through its ops. */
typedef struct rpexec_plan_record {
    uint32_t input, ids, labels, output, d_output, d_input, tape, weight_tape, head_gradient;
    uint32_t embedded;
    bool recomputes;
    bool layered; /**< the backward goes layer by layer */
} rpexec_plan_record;

/** The same for a single layer, if ops go layer by layer. */
typedef struct rpexec_plan_layer {
    uint32_t input; /**< tensor on the GPU, from its forward on; resident weights */
    uint32_t tape, weight_tape;
} rpexec_plan_layer;

/** Users of a tensor while they are collected: a list. */
typedef struct rpexec_plan_user {
    uint32_t op;
    uint32_t next; /**< index + 1 */
} rpexec_plan_user;

typedef struct rpexec_planner {
    rpexec_plan *plan;
    const rp_program *program;
    rpexec_plan_limits limits;
    rp_arena *arena;
    rp_reason *reason; /**< the caller's */
    rp_sizes sizes;    /**< sizes that the program counts with: tensors without padding */
    rp_producers producers;
    bool offload;
    rpexec_plan_record *records; /**< [iteration][stage][microbatch] */
    rpexec_plan_layer *layers;   /**< [iteration][layer][microbatch]; NULL: no op computes a single
                                      layer */
    uint32_t *first_user;        /**< [value] index + 1 */
    rpexec_plan_user *users;
    uint32_t user_count;
    uint32_t *receivers; /**< [op] for a SEND: the GPU that receives */
    uint32_t *downloads; /**< [op] for a FORWARD: number of its downloads so far */
    uint32_t most_values;
    struct rpexec_sharding_plan *sharding; /**< data_parallel.c's own; NULL elsewhere */
} rpexec_planner;

/** Refuses `op`, which moves a tensor that nobody gives or takes. @return RP_INPUT */
rp_status rpexec_plan_refuse_stray(const rpexec_planner *planner, uint32_t op);

/** Notes that `op` uses a tensor; RPEXEC_NO_TENSOR is allowed. */
void rpexec_plan_use(rpexec_planner *planner, uint32_t value, uint32_t op);

/** @return a new tensor of `bytes`, first used by `op`; RP_NO_OP: resident. */
uint32_t rpexec_plan_new_value(rpexec_planner *planner, uint32_t place, uint64_t bytes,
                               uint32_t op);

/** @return the GPU of an op's queue. */
uint32_t rpexec_plan_gpu_of(const rpexec_planner *planner, uint32_t op);

/** @return the record of the op's iteration and microbatch in `stage`. */
rpexec_plan_record *rpexec_plan_record_of(const rpexec_planner *planner, const rp_op *op,
                                          uint32_t stage);

/** @return tokens of the op's microbatch. */
uint64_t rpexec_plan_tokens(const rpexec_planner *planner, const rp_op *op);

/** @return bytes of a boundary tensor of the op's microbatch. */
uint64_t rpexec_plan_boundary_bytes(const rpexec_planner *planner, const rp_op *op);

/** The layers of a stage as exec/model/model.h counts them: embedding and head included.
 * [begin, end) */
void rpexec_plan_layers(const rpexec_planner *planner, uint32_t stage, uint32_t *begin_out,
                        uint32_t *end_out);

/** @return bytes that the program gives the weights of layers [begin, end), or only their trained
 * weights; arrays hold padding beyond that (exec/model/layout.c). */
uint64_t rpexec_plan_counted_bytes(const rpexec_planner *planner, uint32_t begin, uint32_t end,
                                   bool trained);

/** @return bytes of the weights of a job's layers. */
uint64_t rpexec_plan_job_bytes(const rpexec_planner *planner, const rpexec_job *job);

/** @return bytes of the gradients of the trained weights of a job's layers. */
uint64_t rpexec_plan_gradient_bytes(const rpexec_planner *planner, const rpexec_job *job);

/**
 * Finds the jobs of all GPUs and, with offloaded weights, the bytes that each upload moves.
 * @retval RP_OK, RP_USAGE (lowered for another model; given as the reason), RP_NO_MEMORY
 */
rp_status rpexec_plan_find_jobs(rpexec_planner *planner, rp_arena *scratch);

/** Adds a job of a stage. @return its number */
uint32_t rpexec_plan_new_job(rpexec_planner *planner, uint32_t stage, uint32_t gpu);

/**
 * Data-parallel systems: finds the jobs, one per stage, microbatch and direction, the ops that move
 * their tensors, and the tensors that each rank has all the time.
 * @retval RP_OK, RP_USAGE (not supported by the executor, or lowered for another model; given as
 *         the reason), RP_NO_MEMORY
 */
rp_status rpexec_plan_sharded_jobs(rpexec_planner *planner, rp_arena *scratch);

/** Plans an op. @retval as rpexec_plan_compute */
typedef rp_status rpexec_plan_op(rpexec_planner *planner, uint32_t op);

/** Data-parallel systems: the ops that a rank has. */
rpexec_plan_op rpexec_plan_sharded_compute, rpexec_plan_sharded_upload, rpexec_plan_sharded_gather,
    rpexec_plan_sharded_reduction, rpexec_plan_sharded_download, rpexec_plan_sharded_update,
    rpexec_plan_sharded_collect;

/**
 * Checks the bytes of a collective of n ranks: (n - 1) / n of `whole` through each GPU, `times`
 * times.
 * @retval RP_OK, RP_USAGE (lowered for another model; given as the reason)
 */
rp_status rpexec_plan_check_bytes(const rpexec_planner *planner, uint32_t op, uint32_t ranks,
                                  uint64_t volumes, uint64_t whole);

/**
 * Tensor parallelism: finds each rank's slice of the model.
 * @retval RP_OK, RP_USAGE (it cannot be cut; logged), RP_NO_MEMORY
 */
rp_status rpexec_plan_slices(rpexec_planner *planner);

/** Tensor parallelism: checks that an ALL_REDUCE stands for the sums of its unit's ops.
 * @retval RP_OK, RP_USAGE (lowered for another model; given as the reason) */
rp_status rpexec_plan_activation_reduces(rpexec_planner *planner, uint32_t op);

/** Copies of a pipeline: the sum of a stage's gradients. @retval RP_OK, RP_INPUT (its GPU does not
 * have the stage), RP_USAGE (lowered for another model); given as the reason */
rp_status rpexec_plan_gradient_reduce(rpexec_planner *planner, uint32_t op);

/** Checks that copies sum the gradients of each stage of each GPU in each step: otherwise their
 * weights would diverge.
 * @retval RP_OK, RP_INPUT (given as the reason) */
rp_status rpexec_plan_check_copies(const rpexec_planner *planner);

/** Tensor parallelism: makes further tensors that a compute op needs; otherwise none.
 * @param record the op's; NULL: an UPDATE has none */
void rpexec_plan_exchange(rpexec_planner *planner, uint32_t op, rpexec_plan_record *record);

/** Gives the parameter gradients of DOWNLOAD_PARAM_GRAD `op` their target: the state's slot or, if
 * calls overlap, a tensor of their own. */
void rpexec_plan_slot(rpexec_planner *planner, uint32_t op);

/** COLLECT: finds the slots that it adds to the state's. @retval RP_OK */
rp_status rpexec_plan_collect(rpexec_planner *planner, uint32_t op);

/**
 * Plans a compute op of a stage.
 * @retval RP_OK, RP_USAGE (a backward's tensors were not kept; given as the reason)
 */
rp_status rpexec_plan_compute(rpexec_planner *planner, uint32_t op);

/**
 * 16-bit types: finds the gradients that are added to more than once, and gives them fp32 tensors
 * in which they are added up, from the first op that adds to the last op before they are moved.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_plan_sums(rpexec_planner *planner, rp_arena *scratch);

/**
 * Checks that all GPUs can agree on skipping a step, if fp16 needs that.
 * @retval RP_OK, RP_USAGE (given as the reason), RP_NO_MEMORY
 */
rp_status rpexec_plan_check_scaling(const rpexec_planner *planner, rp_arena *scratch);

/**
 * Gives every tensor its offset: in the order of their first ops, each tensor gets the lowest place
 * that is free of tensors which may still be in use.
 * @retval RP_OK, RP_USAGE (does not fit; given as the reason), RP_NO_MEMORY
 */
rp_status rpexec_plan_place(rpexec_plan *plan, uint64_t cap_bytes, rp_arena *scratch,
                            rp_reason *reason);
