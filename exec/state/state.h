/** @file state.h  State that training keeps between steps, in host memory.
 *
 * Six arrays over all layers, one after the other as exec/model/model.h lays them out (executor.md
 * 1.6): working weights (read by uploads), gradient slots (written by downloads), master weights,
 * master gradients, Adam's m and v. The first two are of the model's storage type, the others fp32.
 * A tied head has a slot and working weights of its own, but its table's master is the embedding's.
 * All but the working weights are of what is trained (rpexec_layer.frozen): frozen weights are kept
 * once, in the storage type, and nothing changes them.
 */
#pragma once

#include "exec/model/model.h"
#include "exec/operators/adam.h"
#include "exec/operators/squares.h"
#include "exec/pool/pool.h"
#include "exec/state/scaler.h"

typedef struct rpexec_state {
    const rpexec_model *model;
    uint64_t *offsets; /**< [layer_count + 1] where a layer begins in working, in values */
    uint64_t *trained; /**< [layer_count + 1] the same in all other arrays: without LoRA equal */
    void *working;
    void *slots;
    float *master;
    float *gradients; /**< of the step that is being collected; after a step its sum */
    float *m;
    float *v;
    uint64_t step;    /**< optimizer steps that have been taken */
    uint64_t skipped; /**< and those that were not, because of an overflow (fp16) */
    rpexec_scaler scaler;
    uint64_t exhausted; /**< the first step that has overflowed although its loss had the smallest
                             scale; 0: none */
    bool overflow;      /**< of the step that is being collected */
    rpexec_pool *pool;  /**< works on the arrays; NULL for small models */
    bool is_fused;      /**< a step is one pass (rpexec_state_fuse) */
    float collected_scale;  /**< that the loss of that step had */
    rpexec_squares squares; /**< of the gradients that have been measured for the next step */
    double norm;            /**< of the last step's gradients; NaN where one was not finite */
} rpexec_state;

/** Zeroed arrays in `arena`, touched first by the threads of the pool. The pool is
 * rpexec_pool_create's from RPEXEC_POOL_LEAST_PIECES pieces on. @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_state_create(const rpexec_model *model, rp_arena *arena, rpexec_state *state_out);

/** Fills master and working weights from a seed; m, v and step become 0, the scale what it is at
 * first.
 * @param base of rpexec_model_initialise; false where rpexec_weights_load comes next
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_state_initialise(rpexec_state *state, uint64_t seed, bool base);

/** Sets a frozen tensor of a layer; of a tied table both copies, with layer 0.
 * @param values [rows, columns] */
void rpexec_state_freeze(rpexec_state *state, uint32_t layer, const rpexec_tensor *tensor,
                         const float *values);

/** Copies what is trained of the working weights of all layers into an array [trained] of the
 * storage type, or with `back` from it. */
void rpexec_state_copy_working(rpexec_state *state, void *values, bool back);

/** COLLECT of a layer: the slot divided by the `scale` that its loss had becomes the master
 * gradient; a tied table's two slots are added, the head's first. Notes an overflow. Call for the
 * last layer first, and rpexec_state_measure when all of the layer's gradients are there. */
void rpexec_state_collect(rpexec_state *state, uint32_t layer, float scale);

/** Adds to what COLLECT of a layer has delivered: gradients of another call, laid out as its slot,
 * divided by the scale.
 * Call in the order of calls, after rpexec_state_collect. */
void rpexec_state_add(rpexec_state *state, uint32_t layer, const void *gradients, float scale);

/** COLLECT without a tied table's sum, of one GPU's microbatch among several: `add` to what is
 * there. rpexec_state_sum_tables comes before the step. */
void rpexec_state_collect_part(rpexec_state *state, uint32_t layer, float scale, bool add);

/** The embedding's master gradient becomes the sum of a tied table's two. Without one: nothing. */
void rpexec_state_sum_tables(rpexec_state *state);

/** The gradients of a layer are whole: they join the norm of the step, a tied table's once, and an
 * overflow is noted. Call once per layer and step, for the last layer first. */
void rpexec_state_measure(rpexec_state *state, uint32_t layer);

/**
 * From now on a step is one pass in OPTIMIZER, with the same bits: COLLECT does nothing yet,
 * slots are read and working weights written by OPTIMIZER, and REFRESH finds them done.
 * Master gradients are not kept. For synchronous steps whose slots nobody writes, and whose working
 * weights nobody reads, between the first COLLECT and the last REFRESH, with one COLLECT per layer
 * and no rpexec_state_add.
 */
void rpexec_state_fuse(rpexec_state *state, bool fused);

/** A step is skipped, since it has overflowed. @param scale that its loss had */
void rpexec_state_skip(rpexec_state *state, float scale);

/** OPTIMIZER: one Adam step of all layers from the master gradients, by the pool; none after an
 * overflow. Gradients are clipped to `adam`'s norm by that of all that has been measured, which is
 * the state's afterwards. */
void rpexec_state_optimise(rpexec_state *state, const rpexec_adam *adam);

/** @return values of layers [begin, end) that have masters and moments of their own: the rest, at
 * the end, is a tied head's table, whose are the embedding's. */
uint64_t rpexec_state_own(const rpexec_state *state, uint32_t begin, uint32_t end);

/** @return a hash of working and master weights: the same bits, the same hash. Not for adversaries.
 */
uint64_t rpexec_state_hash(const rpexec_state *state);

/** @return steps of training so far, with those that were skipped. */
static inline uint64_t rpexec_state_iterations(const rpexec_state *state)
{
    return state->step + state->skipped;
}

/** @return where a layer's working weights, or its slot, begin. */
void *rpexec_state_working(const rpexec_state *state, uint32_t layer);
void *rpexec_state_slot(const rpexec_state *state, uint32_t layer);

/** REFRESH of a layer: what is trained of working := master, rounded; of a tied head the
 * embedding's master. Layer 0 comes first and takes over the scale, too. */
void rpexec_state_refresh(rpexec_state *state, uint32_t layer);
