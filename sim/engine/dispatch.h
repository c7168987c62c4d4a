/** @file dispatch.h  Work of the host before a GPU can work: jobs are prepared and kernels
 * launched by one process under one lock.
 *
 * RoundPipe's library drives all GPUs from one Python process, one worker thread per GPU
 * (executor.md 1.1). Three rules follow from that and are modelled here:
 *
 *  1. **Serial host.** A job (one stage over the microbatches of a call) begins with the worker
 *     cloning the stage's modules under the interpreter's lock, and ends with releasing the clones
 *     under the same lock. While a worker holds the lock, no other worker launches anything. Jobs
 *     are handed out singly in their global order, each when the host ops and the loss that its
 *     weights wait for have ended. A call begins with two walks through the modules of all layers:
 *     the first plans, the second saves buffers.
 *  2. **Launch queue depth.** A GPU takes at most `queue_depth` launches ahead of the work it has
 *     finished. A worker issues in the order of executor.md 1.3: a job's parameter uploads, then
 *     for each microbatch its uploads and its kernels. If the kernels of a compute op do not fit,
 *     everything issued after the op waits: with thousands of launches per layer nothing runs
 *     ahead, and the next job's weights are not uploaded early.
 *  3. **Routing synchronises.** In a forward of MoE layers the host waits for each layer's routing,
 *     so that its next launch waits until everything issued before has ended. A recompute does not
 *     wait: the forward has saved the number of tokens of each expert.
 *
 * Before any bytes move, refresh and collection visit each module and trained tensor of a layer in
 * turn, and Adam visits the tensors (`optimizer_us_per_object`). The workers go on meanwhile: these
 * walks do not hold the lock.
 *
 * Launching a kernel takes no time here, because the measured layer times contain it. Each module
 * of a job takes `dispatch_us_per_module`, which covers cloning it and releasing the clone.
 *
 * Compute ops are cut into chunks of at most half the queue's depth; at most two chunks are in
 * flight.
 */
#pragma once

#include "common/inputs/model.h"
#include "common/program/program.h"

/** Counts of a program's stages. If everything is NULL and 0, dispatch is not modelled. */
typedef struct rpsim_dispatch_counts {
    uint32_t queue_depth;    /**< launches; 0: not modelled */
    uint32_t *launches;      /**< [stage][RP_OP_KIND_COUNT] kernels of a pass, at least 1 */
    uint32_t layer_launches; /**< kernels of a layer's forward, the mean if layers differ; a
                                backward has twice as many */
    uint32_t *modules;       /**< [stage] modules that a job of the stage clones */
    uint32_t layers;
    uint32_t layer_modules;
    uint32_t layer_tensors; /**< tensors of a layer that the optimizer steps */
    bool routing;           /**< forwards wait for routing */
} rpsim_dispatch_counts;

/** Kernels of the head's forward: norm, logits, loss. */
#define RPSIM_HEAD_LAUNCHES 20u

/**
 * Counts modules and launches from the model's structure.
 *
 * Modules of a layer: linear layers, norms and containers as Hugging Face's implementation has
 * them; with LoRA, PEFT turns a linear layer, the router included, into 11 modules (the wrapper,
 * the base layer, dropout, A, B and six containers), so that a layer of qwen3-235b has 4543
 * modules. Experts stored in a single tensor (gpt-oss, whose experts have biases) count as a single
 * module.
 *
 * Launches: 40 for a layer's attention, norms and residuals, 10 per expert and 1 per linear layer
 * of an expert or of a dense MLP, with LoRA 4 more; a backward has twice as many. These counts are
 * an assumption. If experts are stored in a single tensor, only the active experts of a token run
 * (sim/model.md section 10).
 *
 * @param arena owns the arrays
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_dispatch_count(const rp_program *program, const rp_model *model,
                               uint32_t queue_depth, rp_arena *arena,
                               rpsim_dispatch_counts *counts_out);

/** @return kernels of a layer's forward. */
uint64_t rpsim_layer_launches(const rp_model *model);

/** @return time in ps that the process spends on the objects of a host op before it touches any
 * bytes.
 * @param object_ps time for a single module or trained tensor */
int64_t rpsim_dispatch_host_ps(const rpsim_dispatch_counts *counts, const rp_op *op,
                               int64_t object_ps);

/** The dispatcher's state during a run. */
typedef struct rpsim_dispatcher rpsim_dispatcher;

/** Tasks that the dispatcher returns to the engine after each event it is told of. */
typedef struct rpsim_dispatch_news {
    uint32_t *ops; /**< ops just issued, or with their next chunk just issued, in this order */
    uint32_t op_count;
    bool holds; /**< the lock has been taken: tell rpsim_dispatcher_release after hold_ps */
    int64_t hold_ps;
} rpsim_dispatch_news;

/**
 * @param module_ps time per cloned module
 * @param object_ps time per module that a call walks through
 * @param arena owns the dispatcher and all its arrays
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_dispatcher_create(const rp_program *program, const rpsim_dispatch_counts *counts,
                                  int64_t module_ps, int64_t object_ps, rp_arena *arena,
                                  rpsim_dispatcher **dispatcher_out);

/** Starts all workers. The news returned is valid until the next call. */
const rpsim_dispatch_news *rpsim_dispatcher_begin(rpsim_dispatcher *dispatcher);

/** @return true if the transfer, or the first chunk of the compute op, has been issued. Ops that no
 * worker issues (downloads and host ops) always count as issued. */
bool rpsim_dispatcher_issued(const rpsim_dispatcher *dispatcher, uint32_t op);

/**
 * The time in ps of an op's next chunk, a share of the op's time; call when the chunk begins.
 * @param op_ps time in ps of the whole op
 */
int64_t rpsim_dispatcher_chunk_ps(const rpsim_dispatcher *dispatcher, uint32_t op, int64_t op_ps);

/** State of a compute op after a chunk has ended. */
typedef enum rpsim_chunk_state {
    RPSIM_CHUNK_LAST, /**< the op has ended */
    RPSIM_CHUNK_NEXT, /**< the next chunk begins */
    RPSIM_CHUNK_HELD, /**< the next chunk has not been issued: later news will contain the op */
} rpsim_chunk_state;

/** Tells the dispatcher that the running chunk of `op` has ended. @param news_out valid until the
 * next call */
rpsim_chunk_state rpsim_dispatcher_chunk_end(rpsim_dispatcher *dispatcher, uint32_t op,
                                             const rpsim_dispatch_news **news_out);

/** Tells the dispatcher that a host op has ended: jobs that waited for it may be handed out. */
const rpsim_dispatch_news *rpsim_dispatcher_host_end(rpsim_dispatcher *dispatcher, uint32_t op);

/** Tells the dispatcher that hold_ps of the last news has passed: the lock is free. */
const rpsim_dispatch_news *rpsim_dispatcher_release(rpsim_dispatcher *dispatcher);
