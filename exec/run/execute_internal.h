/** @file execute_internal.h  Inside of a run (execute*.c). Not for other modules. */
#pragma once

#include "exec/run/execute.h"

#include <pthread.h>
#include <stdatomic.h>

struct rpexec_run {
    rpexec_execution *e;
    rp_arena *arena; /**< memory of the run and of all that is in it */
    bool has_run;
    const rpexec_plan *plan;
    const rp_program *program;
    rpexec_driver *driver;
    const rpexec_operators *operators; /**< for the lanes of the driver */
    rp_status transferred;             /**< status of moving the state to the GPUs and back */
    uint64_t *first_sequence; /**< [microbatch + 1] first sequence of a microbatch in its batch */
    double *loss_of;          /**< [iteration][microbatch], in memory that the GPUs can add to */
    int32_t **ids;            /**< [iteration] the batches, in memory that the GPUs can read */
    int32_t **labels;
    rpexec_stage_save *saves; /**< [save] of the plan */
    atomic_ullong uploaded;   /**< bytes */
    atomic_ullong downloaded;
    atomic_ullong exchanged;         /**< bytes between GPUs */
    rpexec_collective_array *arrays; /**< [gpu][rpexec_plan_most_arrays] of the GPU's collective */
    int32_t **slice_ids; /**< tensor parallel: [gpu][iteration] ids, counted from the rank's first
                              id */
    void **staging;      /**< tensor parallel: [gpu] host memory for a layer of the rank's slice */
    /* Ops submitted so far: an op is submitted after all ops that it waits for. */
    pthread_mutex_t lock;
    pthread_cond_t submitted_one;
    bool *submitted; /**< [op] */
    bool stopped;
    /* Iterations, under the same lock. */
    uint32_t begun;    /**< number of iterations of which an op has run or runs */
    uint32_t run_most; /**< most iterations that run: `begun`, after the follower has ended the
                            run */
    bool exhausted;    /**< the state's: no further iteration begins */
    float *scales;     /**< [iteration + 1] scale of the loss */
    double *norms;     /**< [iteration] norm of the gradients */
    struct rpexec_agreement *agreements; /**< [iteration] */
    double *losses;                      /**< [iteration] loss over all processes, as far as
                                              known */
    uint32_t losses_known;
    int8_t *verdicts; /**< [iteration] decision of process 0: 1 it runs, -1 it does not, 0 none
                           yet */
};

/** Tags of the messages between processes (exec/processes/processes.h): a kind and a number. */
enum {
    RPEXEC_TAG_LAYER, /**< gradients of a layer in host memory */
    RPEXEC_TAG_JOB,   /**< gradients of a job on a GPU */
    RPEXEC_TAG_LOSS,
};

static inline uint64_t rpexec_run_tag(uint32_t kind, uint32_t number)
{
    return (uint64_t)kind << 32 | number;
}

/** Common decision of all GPUs with resident weights to take a step, which a single overflow
 * prevents, and the norm of all their gradients. */
typedef struct rpexec_agreement {
    uint32_t expected; /**< UPDATE ops of the iteration */
    uint32_t arrived;
    rpexec_squares squares; /**< sum over the UPDATEs that have arrived */
    double clip;            /**< factor that clips the step's gradients; valid when all have
                                 arrived */
    uint64_t step;          /**< number of the step, from 1 on; valid when all have arrived */
} rpexec_agreement;

/** Makes room for a run's loss scales. @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_run_open_scales(rpexec_run *run);

/** Sets the first iteration's scale to the state's and forgets all agreements. */
void rpexec_run_begin_scales(rpexec_run *run);

/** @return true if a run's GPUs agree before a step: losses are scaled, or gradients clipped. */
static inline bool rpexec_run_agrees(const rpexec_run *run)
{
    return rpexec_scaler_needed(run->plan->model->dtype) || run->e->adam.clip_norm > 0;
}

/** An Adam step of a GPU. */
typedef struct rpexec_run_step {
    rpexec_adam adam; /**< with this step's clipping */
    uint64_t number;  /**< from 1 on; 0: the step is skipped */
} rpexec_run_step;

/**
 * With resident weights: the UPDATE `op` adds the squares of its gradients, which no other UPDATE
 * counts and which are not divided by the loss scale. If losses are scaled or gradients clipped, it
 * waits for all other UPDATEs.
 * @return false if the run has failed meanwhile
 */
bool rpexec_run_agree(rpexec_run *run, uint32_t op, const rpexec_squares *squares,
                      rpexec_run_step *step_out);

/** Notes the norm of the gradients of the op's iteration, as far as they are known. */
void rpexec_run_note_norm(rpexec_run *run, uint32_t op, double norm);

/**
 * Takes Adam's step for a part of a layer, tensors with and without weight decay apart.
 * @param layer the layer; `update` has its trained values from `first` on
 */
void rpexec_run_adam(const rpexec_run *run, rpexec_lane *lane, const rpexec_run_step *step,
                     const rpexec_layer *layer, uint64_t first, const rpexec_update *update);

/** @return address of tensor `value` of the plan; NULL for RPEXEC_NO_TENSOR. */
void *rpexec_run_at(const rpexec_run *run, uint32_t value);

/** An op of an iteration is about to run. @return true if the iteration runs at all. */
bool rpexec_run_begins(rpexec_run *run, uint32_t iteration);

/** Performs `op`, or nothing if its iteration does not run; a driver's callback. @param context the
 * run
 * @retval RP_OK, RP_BROKEN (another op has failed), RP_LOST (another process has), RP_TOOL (a test
 * asked for it) */
rp_status rpexec_run_perform(void *context, uint32_t op, rpexec_lane *lane);

/** Copies between host and GPU before or after the run; writes zeroes if `from` is NULL. */
void rpexec_run_transfer(rpexec_run *run, void *to, const void *from, uint64_t bytes);

/** @return the array [trained values] for the gradients of an UPDATE's iteration; NULL: nobody
 * wants them. */
float *rpexec_run_wanted(const rpexec_run *run, uint32_t op);

/** @return true if somebody wants gradients: they are kept apart from the step. */
bool rpexec_run_wants_gradients(const rpexec_execution *execution);

/** Copies the gradients of an update, divided by their scale, as fp32 to the host's `to`. @retval
 * RP_OK, RP_BROKEN */
rp_status rpexec_run_keep(rpexec_run *run, uint32_t op, const rpexec_update *update, float *to);

/** OPTIMIZER of weights in host memory: keeps the gradients if they are wanted, then steps. */
void rpexec_run_optimise(rpexec_run *run, uint32_t op);

/** Copies in the queue of `op` between host and GPU, and counts the bytes. */
void rpexec_run_copy(rpexec_run *run, uint32_t op, void *to, const void *from, uint64_t bytes);

/** The work of an op. @retval as rpexec_run_perform */
typedef rp_status rpexec_run_op(rpexec_run *run, uint32_t op, rpexec_lane *lane);

/** Data-parallel systems: the work of all ops but the passes. */
rpexec_run_op rpexec_run_sharded_upload, rpexec_run_sharded_gather, rpexec_run_sharded_reduce,
    rpexec_run_sharded_download, rpexec_run_sharded_collect, rpexec_run_sharded_optimise,
    rpexec_run_sharded_update;

/** @return true for a data-parallel system whose GPUs take the optimizer's step. */
bool rpexec_run_shards_are_trained(const rpexec_run *run);

/** Data-parallel systems: rpexec_run_load and rpexec_run_store. */
void rpexec_run_load_sharded(rpexec_run *run);
void rpexec_run_store_sharded(rpexec_run *run);

/** The ranks that perform an op together. */
typedef struct rpexec_run_ranks {
    rpexec_ranks ranks;
    rpexec_run *run;
    uint32_t op;
    rp_status status; /**< status of their collectives */
} rpexec_run_ranks;

/** Weights in host memory: the gradients of an op's layer are complete, and are added to the
 * norm. */
void rpexec_run_measure(rpexec_run *run, uint32_t op, uint32_t layer);

/** Several processes with weights in host memory: the sum of a layer's gradients. @retval as
 * rpexec_run_perform */
rp_status rpexec_run_network_reduce(rpexec_run *run, uint32_t op, rpexec_lane *lane);

/** Copies of a pipeline: the sum of a stage's gradients. @retval as rpexec_run_perform */
rp_status rpexec_run_reduce_gradients(rpexec_run *run, uint32_t op, rpexec_lane *lane);

/**
 * With resident weights: the two gradients of a tied table, or of the rank's rows of it, become
 * their sum, as in Megatron-LM's all-reduce between the first and the last stage.
 * @retval as rpexec_run_perform
 */
rp_status rpexec_run_reduce_table(rpexec_run *run, uint32_t op, uint32_t gpu, rpexec_lane *lane);

/**
 * With resident weights: in a job with both copies of a tied table the head's copy is set to the
 * embedding's, which has been trained.
 * @return values at the end of the layer that need no step of their own; 0: another layer, or the
 * job has a single copy
 */
uint64_t rpexec_run_follow_table(const rpexec_run *run, const rpexec_job *job, uint32_t layer,
                                 rpexec_lane *lane);

/** @return the ranks that a compute op has to sum with, in `ranks_out`; NULL: there are no
 * others. */
rpexec_ranks *rpexec_run_ranks_begin(rpexec_run *run, uint32_t op, rpexec_run_ranks *ranks_out);

/** Tensor parallelism: the work of an UPDATE. @retval as rpexec_run_perform */
rp_status rpexec_run_update_slices(rpexec_run *run, uint32_t op, rpexec_lane *lane);

/** Tensor parallelism: makes room for ids and for moving slices. @retval RP_OK, RP_NO_MEMORY,
 * RP_TOOL */
rp_status rpexec_run_open_slices(rpexec_run *run);

/** Tensor parallelism: fills in the ids of the batches as each rank counts them. */
void rpexec_run_fill_slices(rpexec_run *run);

/** Tensor parallelism: rpexec_run_load and rpexec_run_store. */
void rpexec_run_load_slices(rpexec_run *run);
void rpexec_run_store_slices(rpexec_run *run);

/** Resident weights: the GPUs get weights and Adam's moments from the state. */
void rpexec_run_load(rpexec_run *run);

/** Resident weights: the weights and moments that the GPUs have trained become the state again. */
void rpexec_run_store(rpexec_run *run);
