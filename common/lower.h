/** @file lower.h  From a compute schedule and a placement to a full program with all its transfers.
 *
 * Each GPU gets queues for compute, parameter upload, activation upload and download; the host one
 * for its optimizer. Boundary tensors always go through pinned host memory: GPU to host, host to
 * GPU. The waits are those of RoundPipe's runtime protocol (executor.md 1.2 to 1.8):
 *
 *  - a microbatch's upload starts only after the compute of the unit before the previous one, and a
 *    unit's compute only after the download of the unit before the previous one: two microbatch
 * inputs and two outputs per GPU at most;
 *  - a job's parameters (a job is one stage over the microbatches of one call) are uploaded in
 * pieces that fill the gaps between the activation uploads of the job before it, and no earlier
 * than the job before that has finished computing: two stages' parameters per GPU at most;
 *  - gradients go down once per job; from the second call of a step on the accumulated ones come up
 *    with the weights;
 *  - the next call begins when the loss of the last microbatch is on the host;
 *  - the host collects gradients layer by layer from the last one, runs the optimizer and refreshes
 * the working weights layer by layer from the first one. Asynchronous: the refresh waits for all
 * uploads of the step and comes before the step's own optimizer, so weights are one step stale.
 */
#pragma once

#include "common/model.h"
#include "common/program.h"

/** Where weights and optimizer are. */
typedef enum rp_placement {
    RP_PLACEMENT_RESIDENT, /**< weights, gradients and optimizer stay on the stage's GPU */
    RP_PLACEMENT_OFFLOAD,  /**< weights and optimizer in host memory, uploaded per job */
} rp_placement;

/** Bytes of everything that moves. Layer 0 is the embedding, 1 .. layers the blocks, last the head.
 */
typedef struct rp_sizes {
    uint32_t layers;          /**< transformer blocks */
    uint64_t *weight_bytes;   /**< [layers + 2] working weights of a layer */
    uint64_t *gradient_bytes; /**< [layers + 2] gradients of its trainable parameters */
    uint64_t *parameters;     /**< [layers + 2] trainable parameters, for the host's work */
    uint64_t boundary_bytes;  /**< activation between two layers, per sequence */
    uint64_t input_bytes;     /**< token ids or labels, per sequence */
} rp_sizes;

typedef struct rp_lower_config {
    rp_placement placement;
    rp_sizes sizes;
    uint32_t
        call_microbatches; /**< microbatches of one call; the last call of a step may have fewer */
    uint64_t piece_bytes;  /**< largest piece of a parameter upload, RP_PIECE_BYTES */
} rp_lower_config;

/** RoundPipe's piece size (executor.md 1.4). */
#define RP_PIECE_BYTES (UINT64_C(256) << 20)

/** Host work per trainable parameter in bytes of memory traffic (prediction.md section 2, term 4).
 */
#define RP_REFRESH_BYTES 8u
#define RP_COLLECT_BYTES 10u
#define RP_ADAM_BYTES 32u

/**
 * Sizes of a model whose weights and gradients are 16 bit wide and all trainable. A tied head has
 * no parameters of its own but its table is moved where the head runs.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_sizes_of_model(const rp_model *model, uint32_t seq_len, rp_arena *arena,
                            rp_sizes *sizes_out);

/**
 * Lowers a compute schedule.
 * @param schedule accepted by rp_program_check. Recompute early: it needs its stage's input only;
 *        wait: the incoming gradient, too
 * @param sequences [microbatch_count] sequences of each microbatch
 * @param program_out owned by the caller; passes rp_program_check
 * @retval RP_OK, RP_USAGE (too many ops, or a form that cannot be lowered; logged), RP_NO_MEMORY
 */
rp_status rp_lower(const rp_program *schedule, const rp_lower_config *config,
                   const uint32_t *sequences, rp_program **program_out);
