/** @file execute.h  Runs a planned program once: all its iterations, on a backend. */
#pragma once

#include "common/timeline/timeline.h"
#include "exec/processes/processes.h"
#include "exec/run/driver.h"
#include "exec/state/state.h"

/** The tokens of an iteration, with all its microbatches in order; with several processes only this
 * process's tokens. */
typedef struct rpexec_batch {
    const int32_t *ids;    /**< [sequences][seq_len], below the vocabulary */
    const int32_t *labels; /**< [sequences][seq_len]; RPEXEC_IGNORED: the token has no label */
    uint64_t valid_tokens; /**< labels that are not ignored, of all microbatches and processes */
} rpexec_batch;

/** Follower of a run's iterations, which may end the run between two of them. */
typedef struct rpexec_follower {
    void *context;
    /** An iteration's first op is about to run; called in ascending order. @return false: neither
     * this iteration nor a later one runs. After a step that has exhausted the scale of the loss
     * (state.h) none runs, whatever is returned here. NULL: all run. */
    bool (*begins)(void *context, uint32_t iteration);
    /** An iteration's compute ops have ended, and the norm of its gradients is known; called in
     * ascending order, from the thread that called rpexec_execute. NULL: nobody wants to know. */
    void (*ended)(void *context, uint32_t iteration, double loss, double norm);
} rpexec_follower;

typedef struct rpexec_execution {
    const rpexec_plan *plan;
    rpexec_state *state;
    rpexec_adam adam;
    const rpexec_batch *batches; /**< [iteration] */
    const rpexec_driver_type *driver_type;
    rpexec_driver_config driver; /**< `plan` is filled in */
    uint32_t fail_op;            /**< for tests: the op that fails; RP_MAX_OPS: none */
    bool keep_gradients;         /**< afterwards state.gradients has the last step's gradients, on
                                      every backend */
    float *first_gradients;      /**< [trained values] gets the gradients of the first iteration, on
                                      every backend; NULL: not wanted */
    bool fuses; /**< if no gradients are wanted, offloaded synchronous steps become a single pass
                     when they can; only for lowered schedules, whose ops have the waits that this
                     needs */
    rpexec_follower follower;    /**< zeroes: none */
    rpexec_processes *processes; /**< other processes with copies of their own, each with another
                                      part of a batch. All run the same program, and process 0 asks
                                      its follower for all. NULL: there are none */
    uint32_t evaluates; /**< not 0: number of iterations that run forward only. Nothing is trained,
                             and only `losses` are results */
    /* Results. */
    uint32_t iterations; /**< iterations that have run: the program's, or fewer if the follower said
                              so */
    double *losses;      /**< [iteration] mean over the valid tokens */
    double *norms;       /**< [iteration] norm of the gradients, before clipping; NULL: not
                              wanted */
    uint64_t uploaded_bytes;
    uint64_t downloaded_bytes;
    uint64_t exchanged_bytes; /**< received by GPUs from GPUs */
    rp_timeline *timeline;    /**< filled in unless it is NULL */
} rpexec_execution;

/** A program that is ready to run: arenas and queues exist, resident weights are on the GPUs. */
typedef struct rpexec_run rpexec_run;

/**
 * Gets a program ready to run, any number of times. With resident weights the state's weights and
 * moments go to the GPUs and are trained there until rpexec_execution_keep.
 * @param execution outlives the run; batches, losses, timeline and follower may change between runs
 * @param run_out closed by the caller with rpexec_execution_close
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged)
 */
rp_status rpexec_execution_open(rpexec_execution *execution, rpexec_run **run_out);

/**
 * Runs the program, or only as many first iterations as the follower allows: the state is then the
 * same, bit for bit, as after a program with so many iterations. Results are only this run's. After
 * a failure, or if the follower has ended the run, it can only be kept and closed. A run that
 * evaluates changes nothing but its activations: training goes on as if it had not happened.
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL, RP_BROKEN (the watchdog), or what an op returned; logged
 *         with the op's stage and microbatch. After a failure the state is undefined
 */
rp_status rpexec_execution_run(rpexec_run *run);

/** Weights and moments that GPUs have trained become the state. The steps are counted already.
 * @retval RP_OK, RP_TOOL (logged) */
rp_status rpexec_execution_keep(rpexec_run *run);

/** Gives driver and memory back. Unless rpexec_execution_keep was called before, the training of
 * resident weights is lost. NULL is allowed. */
void rpexec_execution_close(rpexec_run *run);

/** Opens, runs once, keeps and closes. @retval as these functions */
rp_status rpexec_execute(rpexec_execution *execution);
