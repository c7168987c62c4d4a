/** @file dispatch.h  Work of the host before a GPU can work: jobs are prepared and kernels
 * launched by one process under one lock.
 *
 * RoundPipe's library drives all GPUs from one Python process, one worker thread per GPU
 * (executor.md 1.1). Three things follow, and they are modelled as three rules:
 *
 *  1. **Serial host.** A job (one stage over the microbatches of a call) begins with the worker
 *     cloning the stage's modules under the interpreter's lock, and ends with giving the clones up
 *     under it. As long as one worker holds it no other worker launches anything. Jobs are handed
 *     out in their global order, one at a time, when the host ops and the loss that their weights
 *     wait for have ended. A call begins with two walks through the modules of all layers, one to
 *     plan and one to save buffers.
 *  2. **Launch queue depth.** A GPU takes at most `queue_depth` launches ahead of what it has
 *     done. A worker issues in the order of executor.md 1.3: a job's parameter uploads, then for
 *     each microbatch its uploads and its kernels. What comes after a compute op whose kernels do
 *     not fit waits: with thousands of launches per layer nothing runs ahead, and the next job's
 *     weights are not uploaded early.
 *  3. **Routing synchronises.** In a forward of MoE layers the host waits for each layer's routing,
 *     so that what it issues next waits for what it has issued. A recompute does not: the forward
 *     has saved how many tokens each expert has.
 *
 * Refresh and collection go through the modules and trained tensors of each layer one by one,
 * Adam through the tensors, before their bytes count (`optimizer_us_per_object`). They do so beside
 * the workers: their lock is not held.
 *
 * Kernels themselves are launched in no time here: the measured layer times contain that. A job's
 * modules take `dispatch_us_per_module` each, both of its ends together.
 *
 * Compute ops are cut into chunks of at most half the queue's depth; two are in flight at most.
 */
#pragma once

#include "common/inputs/model.h"
#include "common/program/program.h"

/** Counts of a program's stages; everything NULL and 0: dispatch is not modelled. */
typedef struct rpsim_dispatch_counts {
    uint32_t queue_depth;    /**< launches; 0: not modelled */
    uint32_t *launches;      /**< [stage][RP_OP_KIND_COUNT] kernels of a pass, at least 1 */
    uint32_t layer_launches; /**< kernels of one layer's forward, of the mean one where layers
                                differ; its backward has twice as many */
    uint32_t *modules;       /**< [stage] that a job of the stage clones */
    uint32_t layers;
    uint32_t layer_modules;
    uint32_t layer_tensors; /**< that the optimizer steps, of one layer */
    bool routing;           /**< forwards wait for routing */
} rpsim_dispatch_counts;

/** Kernels of the head's forward: norm, logits, loss. */
#define RPSIM_HEAD_LAUNCHES 20u

/**
 * Counts modules and launches from the model's structure.
 *
 * Modules of a layer: linear layers, norms and containers as Hugging Face's implementation has
 * them; with LoRA PEFT wraps a linear layer, the router included, in 11 (the wrapper, the base
 * layer, dropout, A, B and six containers). A layer of qwen3-235b has 4543 modules then. Experts
 * kept in one tensor (gpt-oss: those with biases) are one module.
 *
 * Launches: 40 for a layer's attention, norms and residuals, 10 per expert and one per linear layer
 * of an expert or of a dense MLP, 4 more with LoRA; twice that in a backward. An assumption. Of
 * experts in one tensor only the active ones of a token run (sim/model.md section 10).
 *
 * @param arena owns the arrays
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_dispatch_count(const rp_program *program, const rp_model *model,
                               uint32_t queue_depth, rp_arena *arena,
                               rpsim_dispatch_counts *counts_out);

/** @return kernels of one layer's forward. */
uint64_t rpsim_layer_launches(const rp_model *model);

/** @return time that the process takes for the objects of a host op, before it touches any bytes.
 * @param object_ps for one module or trained tensor */
int64_t rpsim_dispatch_host_ps(const rpsim_dispatch_counts *counts, const rp_op *op,
                               int64_t object_ps);

/** The state of a run. */
typedef struct rpsim_dispatcher rpsim_dispatcher;

/** Tasks of the engine after it has told the dispatcher something. */
typedef struct rpsim_dispatch_news {
    uint32_t *ops; /**< that have been issued, or whose next chunk has: in this order */
    uint32_t op_count;
    bool holds; /**< the lock has been taken: tell rpsim_dispatcher_release after hold_ps */
    int64_t hold_ps;
} rpsim_dispatch_news;

/**
 * @param module_ps time per cloned module
 * @param object_ps time per module that a call walks through
 * @param arena owns everything
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_dispatcher_create(const rp_program *program, const rpsim_dispatch_counts *counts,
                                  int64_t module_ps, int64_t object_ps, rp_arena *arena,
                                  rpsim_dispatcher **dispatcher_out);

/** All workers begin. The news are valid until the next call. */
const rpsim_dispatch_news *rpsim_dispatcher_begin(rpsim_dispatcher *dispatcher);

/** @return true where a transfer, or the first chunk of a compute op, has been issued. Ops that no
 * worker issues (downloads, the host's) always are. */
bool rpsim_dispatcher_issued(const rpsim_dispatcher *dispatcher, uint32_t op);

/**
 * The share of an op's time that its next chunk takes; call when the chunk begins.
 * @param op_ps time of the whole op
 */
int64_t rpsim_dispatcher_chunk_ps(const rpsim_dispatcher *dispatcher, uint32_t op, int64_t op_ps);

/** State after a chunk. */
typedef enum rpsim_chunk_state {
    RPSIM_CHUNK_LAST, /**< the op has ended */
    RPSIM_CHUNK_NEXT, /**< the next chunk begins */
    RPSIM_CHUNK_HELD, /**< the next chunk has not been issued: it will be among the news */
} rpsim_chunk_state;

/** The running chunk of `op` has ended. @param news_out valid until the next call */
rpsim_chunk_state rpsim_dispatcher_chunk_end(rpsim_dispatcher *dispatcher, uint32_t op,
                                             const rpsim_dispatch_news **news_out);

/** A host op has ended: jobs that waited for it may be handed out. */
const rpsim_dispatch_news *rpsim_dispatcher_host_end(rpsim_dispatcher *dispatcher, uint32_t op);

/** The time of the last news' hold_ps has passed: the lock is free. */
const rpsim_dispatch_news *rpsim_dispatcher_release(rpsim_dispatcher *dispatcher);
