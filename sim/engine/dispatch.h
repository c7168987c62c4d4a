/** @file dispatch.h  Work of the host before a GPU can work: jobs are prepared and kernels
 * launched by one process under one lock.
 *
 * RoundPipe's library drives all GPUs from one Python process, one worker thread per GPU
 * (executor.md 1.1). Three things follow, and they are modelled as three rules:
 *
 *  1. **Serial host.** A job (one stage over the microbatches of a call) begins with the worker
 *     cloning the stage's modules under the interpreter's lock. As long as one worker holds it no
 *     other worker launches anything. Jobs are handed out in their global order, one at a time.
 *  2. **Launch queue depth.** A GPU takes at most `queue_depth` launches ahead of what it has
 *     done. A worker issues in the order of executor.md 1.3: a job's parameter uploads, then for
 *     each microbatch its uploads and its kernels. What comes after a compute op whose kernels do
 *     not fit waits: with thousands of launches per layer nothing runs ahead, and the next job's
 *     weights are not uploaded early.
 *  3. **Routing synchronises.** In a forward or recompute of MoE layers the host waits for each
 *     layer's routing, so that what it issues next waits for what it has issued.
 *
 * Kernels themselves are launched in no time here: the measured layer times contain that. The only
 * rate is the time per cloned module (platform key `dispatch_us_per_module`).
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
    uint32_t layer_launches; /**< kernels of one layer's forward; its backward has twice as many */
    uint32_t *modules;       /**< [stage] that a job of the stage clones */
    bool routing;            /**< forwards wait for routing */
} rpsim_dispatch_counts;

/**
 * Counts modules and launches from the model's structure.
 *
 * Modules of a layer: linear layers, norms and containers as Hugging Face's implementation has
 * them; with LoRA PEFT wraps a linear layer in 12 (the wrapper, the base layer, dropout, A, B and
 * their containers, embeddings' and magnitudes' containers). 128 experts of three wrapped layers,
 * an activation and a container are 4864; with attention a qwen3-235b layer has 4919 ("4900",
 * sim/model.md section 2). Experts kept in one tensor (gpt-oss: those with biases) are one module.
 *
 * Launches: 40 for a layer's attention, norms and residuals, 10 per expert and one per linear layer
 * of an expert or of a dense MLP, 4 more with LoRA; twice that in a backward. An assumption: it
 * gives the 800 (gpt-oss-20b) to 6400 (qwen3-235b with LoRA) of sim/model.md section 2.
 *
 * @param arena owns the arrays
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_dispatch_count(const rp_program *program, const rp_model *model,
                               uint32_t queue_depth, rp_arena *arena,
                               rpsim_dispatch_counts *counts_out);

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
 * @param arena owns everything
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_dispatcher_create(const rp_program *program, const rpsim_dispatch_counts *counts,
                                  int64_t module_ps, rp_arena *arena,
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

/** The time of the last news' hold_ps has passed: the lock is free. */
const rpsim_dispatch_news *rpsim_dispatcher_release(rpsim_dispatcher *dispatcher);
