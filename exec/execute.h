/** @file execute.h  Runs a planned program once: all its iterations, on a backend. */
#pragma once

#include "common/timeline.h"
#include "exec/driver.h"
#include "exec/state.h"

/** The tokens of one iteration, all microbatches one after the other. */
typedef struct rpexec_batch {
    const int32_t *ids;    /**< [sequences][seq_len], below the vocabulary */
    const int32_t *labels; /**< alike; RPEXEC_IGNORED where there is none */
    uint64_t valid_tokens; /**< labels that are not ignored, of all microbatches */
} rpexec_batch;

typedef struct rpexec_execution {
    const rpexec_plan *plan;
    rpexec_state *state;
    rpexec_adam adam;
    const rpexec_batch *batches; /**< [iteration] */
    const rpexec_driver_type *driver_type;
    rpexec_driver_config driver; /**< `plan` is filled in */
    uint32_t fail_op;            /**< tests: this op fails; RP_MAX_OPS: none */
    bool keep_gradients; /**< resident weights: state.gradients are the last step's afterwards */
    /* Results. */
    double *losses; /**< [iteration] mean over the valid tokens */
    uint64_t uploaded_bytes;
    uint64_t downloaded_bytes;
    uint64_t exchanged_bytes; /**< received by GPUs from GPUs */
    rp_timeline *timeline;    /**< filled in where it is not NULL */
} rpexec_execution;

/**
 * Runs the program. `state` is where training goes on; after a failure its content is undefined.
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL, RP_BROKEN (the watchdog), or what an op returned; logged
 *         with the op's stage and microbatch
 */
rp_status rpexec_execute(rpexec_execution *execution);
