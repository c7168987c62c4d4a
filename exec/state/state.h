/** @file state.h  State that training keeps between steps, in host memory.
 *
 * Six arrays over all layers, one after the other as exec/model/model.h lays them out (executor.md
 * 1.6): working weights (read by uploads), gradient slots (written by downloads), master weights,
 * master gradients, Adam's m and v. The first two are of the model's storage type, the others fp32.
 * A tied head has its own slot and working weights, but its table's master is that of the
 * embedding. All arrays but the working weights hold only trained values (rpexec_layer.frozen):
 * frozen weights are kept once, in the storage type, and never change.
 */
#pragma once

#include "exec/model/model.h"
#include "exec/operators/adam.h"
#include "exec/operators/squares.h"
#include "exec/pool/pool.h"
#include "exec/state/scaler.h"

typedef struct rpexec_state {
    const rpexec_model *model;
    uint64_t *offsets; /**< [layer_count + 1] offset of a layer in `working`, in values */
    uint64_t *trained; /**< [layer_count + 1] offset in all other arrays; equal to `offsets` without
                            LoRA */
    void *working;
    void *slots;
    float *master;
    float *gradients; /**< gradients collected so far in this step; after a step the sum over the
                           step */
    float *m;
    float *v;
    uint64_t step;    /**< optimizer steps that have been taken */
    uint64_t skipped; /**< steps that were skipped because of an overflow (fp16) */
    rpexec_scaler scaler;
    uint64_t exhausted; /**< the first step that has overflowed although its loss had the smallest
                             scale; 0: none */
    bool overflow;      /**< an overflow in the step that is being collected */
    rpexec_pool *pool;  /**< works on the arrays; NULL for small models */
    bool is_fused;      /**< a step is a single pass (rpexec_state_fuse) */
    float collected_scale;  /**< scale of that step's loss */
    rpexec_squares squares; /**< sum of squares of the gradients that have been measured for the
                                 next step */
    double norm;            /**< norm of the last step's gradients; NaN if a gradient was not
                                 finite */
} rpexec_state;

/** Makes zeroed arrays in `arena`, which the threads of the pool touch first. A model of at least
 * RPEXEC_POOL_LEAST_PIECES pieces has a pool. @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_state_create(const rpexec_model *model, rp_arena *arena, rpexec_state *state_out);

/** Fills master and working weights from a seed; m, v and step become 0, the scale gets its first
 * value.
 * @param base argument of rpexec_model_initialise; false if rpexec_weights_load comes next
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_state_initialise(rpexec_state *state, uint64_t seed, bool base);

/** Sets a frozen tensor of a layer; layer 0 sets both copies of a tied table.
 * @param values [rows, columns] */
void rpexec_state_freeze(rpexec_state *state, uint32_t layer, const rpexec_tensor *tensor,
                         const float *values);

/** Copies the trained working weights of all layers into an array [trained] of the storage type, or
 * with `back` from it. */
void rpexec_state_copy_working(rpexec_state *state, void *values, bool back);

/** COLLECT of a layer: the slot, divided by the `scale` of its loss, becomes the master gradient;
 * the two slots of a tied table are added, the head's first. Notes an overflow. Call it for the
 * last layer first, and then rpexec_state_measure when all of the layer's gradients are there. */
void rpexec_state_collect(rpexec_state *state, uint32_t layer, float scale);

/** Adds the gradients of another call to those that COLLECT of a layer has delivered. They are laid
 * out like the layer's slot, and are divided by the scale. Call it in the order of calls, after
 * rpexec_state_collect. */
void rpexec_state_add(rpexec_state *state, uint32_t layer, const void *gradients, float scale);

/** COLLECT of a single GPU's microbatch among several, without the sum of a tied table; `add` adds
 * to the master gradients. Call rpexec_state_sum_tables before the step. */
void rpexec_state_collect_part(rpexec_state *state, uint32_t layer, float scale, bool add);

/** Adds the head's master gradient of a tied table to that of the embedding. Does nothing without a
 * tied table. */
void rpexec_state_sum_tables(rpexec_state *state);

/** Adds a layer's complete gradients to the norm of the step, those of a tied table once, and notes
 * an overflow. Call it once per layer and step, for the last layer first. */
void rpexec_state_measure(rpexec_state *state, uint32_t layer);

/**
 * Makes every following step a single pass in OPTIMIZER, with the same bits: COLLECT does nothing,
 * OPTIMIZER reads slots and writes working weights, and REFRESH finds them written. Master
 * gradients are not kept. Use it only for synchronous steps in which slots are not written and
 * working weights are not read between the first COLLECT and the last REFRESH, with a single
 * COLLECT per layer and no rpexec_state_add.
 */
void rpexec_state_fuse(rpexec_state *state, bool fused);

/** Skips a step that has overflowed. @param scale of the step's loss */
void rpexec_state_skip(rpexec_state *state, float scale);

/** OPTIMIZER: an Adam step of all layers from the master gradients, by the pool; no step after an
 * overflow. Gradients are clipped to `adam`'s norm by the norm of all measured gradients, which
 * becomes the state's `norm`. */
void rpexec_state_optimise(rpexec_state *state, const rpexec_adam *adam);

/** @return values of layers [begin, end) that have their own masters and moments: all except a tied
 * head's table at the end, which shares those of the embedding. */
uint64_t rpexec_state_own(const rpexec_state *state, uint32_t begin, uint32_t end);

/** @return a hash of working and master weights: equal bits give equal hashes. It is not safe
 *         against adversaries.
 */
uint64_t rpexec_state_hash(const rpexec_state *state);

/** @return steps of training so far, including skipped steps. */
static inline uint64_t rpexec_state_iterations(const rpexec_state *state)
{
    return state->step + state->skipped;
}

/** @return the beginning of a layer's working weights, or of its slot. */
void *rpexec_state_working(const rpexec_state *state, uint32_t layer);
void *rpexec_state_slot(const rpexec_state *state, uint32_t layer);

/** REFRESH of a layer: its trained working weights become the masters, rounded; for a tied head the
 * masters of the embedding. Layer 0 comes first and also takes over the scale. */
void rpexec_state_refresh(rpexec_state *state, uint32_t layer);
