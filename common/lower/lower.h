/** @file lower.h  From a compute schedule with its placement to a full program with all its
 * transfers.
 *
 * Each GPU gets queues for compute, parameter upload, activation upload and download; the host gets
 * a queue for its optimizer. Boundary tensors go through pinned host memory: GPU to host, host to
 * GPU. With resident weights, GPUs that reach each other send (SEND) and receive (RECV) them
 * instead, into buffers that the receiver has from the beginning of the SEND on: a sender never
 * waits for its receiver. The waits are those of RoundPipe's runtime protocol (executor.md 1.2 to
 * 1.8):
 *
 *  - a microbatch's upload starts only after the compute of the second unit before it, and a unit's
 *    compute only after the download of the second unit before it: at most two microbatch inputs
 *    and two outputs per GPU;
 *  - a job is a stage over the microbatches of a call. Its parameters are uploaded in pieces that
 *    fill the gaps between the activation uploads of the job before it, but only after the second
 *    job before it has finished computing: at most two stages' parameters per GPU;
 *  - gradients go down once per job; from the second call of a step on, the accumulated gradients
 *    come up with the weights;
 *  - the next call begins when the loss of the last microbatch is on the host, unless the calls of
 *    a step overlap (then the next step's first call still does). Calls that overlap have gradient
 *    slots of their own in host memory, which the host sums in the order of calls as it collects
 *    them: nothing goes up again;
 *  - hosts of copies on several servers add up a layer's master gradients over the network, in a
 *    ring, after each has collected the layer, and before the optimizer;
 *  - the host collects gradients layer by layer from the last layer, runs the optimizer and
 *    refreshes the working weights layer by layer from the first layer. Asynchronous: the refresh
 *    waits for all uploads of the step and comes before the step's own optimizer, so weights are a
 *    step stale.
 */
#pragma once

#include "common/base/reason.h"
#include "common/inputs/sizes.h"
#include "common/program/program.h"
#include "common/program/traits.h"

/** Part of a stage that a backward recomputes at a time. */
typedef enum rp_grain {
    RP_GRAIN_STAGE, /**< the whole stage, from its saved input: the tape of all its layers */
    RP_GRAIN_LAYER, /**< each layer right before its backward, from its own saved input: the tape of
                       a single layer. Ops name their layer; with weights in host memory all layers'
                       inputs go down in the forward and come up in the backward */
} rp_grain;

typedef struct rp_lower_config {
    rp_sizes sizes;
    uint32_t
        call_microbatches; /**< microbatches of a call; the last call of a step may have fewer */
    /** Rounds per call, for schedules that run calls in rounds. call_microbatches are those of a
     * round then, a job is a stage over these, and only the first round of a call waits for the
     * loss of the call before. 0: a call is a single round */
    uint32_t call_rounds;
    uint64_t piece_bytes; /**< largest piece of a parameter upload */
    rp_grain grain;       /**< not read if nothing is recomputed and nothing offloaded */
    /** Tensors that forwards save for their backwards, inputs of a recompute or tapes, go to the
     * host and come back, of a stage or layer at a time as `grain` says. Not with weights in host
     * memory. */
    bool offload_activations;
    /** Resident placement: successive GPUs that send boundary tensors to each other directly;
     * UINT32_MAX: all GPUs; 0: none */
    uint32_t peer_gpus;
    const uint32_t *peer_groups; /**< [GPU] the same where groups are not successive: GPUs of equal
                                    numbers send directly; NULL: as peer_gpus says */
} rp_lower_config;

/** Piece size of RoundPipe's library (executor.md 1.4), which rpsim simulates. */
#define RP_PIECE_BYTES (UINT64_C(256) << 20)

/** Host work per trainable parameter in bytes of memory traffic (sim/model.md section 2, term 4):
 * that of rp_step_bytes with fp32 states and masters. */
#define RP_REFRESH_BYTES 8u
#define RP_COLLECT_BYTES 10u
#define RP_SLOT_BYTES 2u /* for each gradient slot after the first */
/** Host work of a ring's sum over servers, per received byte of gradients: two reads, a write. */
#define RP_RING_SUM_BYTES 3u
#define RP_ADAM_BYTES 32u
/** Memory traffic of DeepSpeed's step beside Adam, if weights are also on the host: it looks for
 * infinities and NaN in fp16 gradients (isinf, which takes absolute values first: 6 + 4 + 1; isnan:
 * 4 + 1), divides fp32 gradients by the loss scale (8) and converts fp32 weights to fp16 (8). A
 * result in new memory is read before it is written. */
#define RP_ZERO3_STEP_BYTES 32u

/** Memory traffic of Adam on a GPU, per trained parameter: rp_step_bytes.update with fp32 states
 * and masters. */
#define RP_GPU_ADAM_BYTES 28u

/**
 * Lowers a compute schedule.
 * @param schedule accepted by rp_program_check. An early recompute needs only its stage's input, a
 *        waiting recompute also the incoming gradient
 * @param sequences [microbatch_count] sequences of each microbatch
 * @param program_out owned by the caller; passes rp_program_check
 * @retval RP_OK, RP_USAGE (too many ops, or a form that cannot be lowered; given as the reason),
 * RP_NO_MEMORY
 */
rp_status rp_lower(const rp_program *schedule, const rp_lower_config *config,
                   const uint32_t *sequences, rp_program **program_out, rp_reason *reason);
