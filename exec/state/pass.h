/** @file pass.h  Work of the host on a layer's values in a step, by the threads of a pool.
 *
 * Passes go over more than caches hold, so that memory decides how long they take. What is written
 * and not read goes past the caches, where that can be asked for. The results are those of the
 * functions named below, bit for bit, with any pool.
 */
#pragma once

#include "exec/operators/adam.h"
#include "exec/operators/squares.h"
#include "exec/pool/pool.h"
#include "exec/state/scaler.h"

/**
 * Memory for one of several arrays that passes walk side by side, untouched. Arrays of the same
 * size would often begin at the same place modulo a large power of two, and the same elements of
 * all of them compete for a few places in a core's first cache: measured on an AMD EPYC, Adam then
 * takes four times as long. So each begins some lines later than the one before.
 * @param number of the array, from 0 on
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_pass_array(rp_arena *arena, uint32_t number, uint64_t count, size_t width,
                            void *array_out);

/** Zeroes `count` values of `width` bytes, by the threads that work on them later. */
void rpexec_pass_zero(rpexec_pool *pool, uint64_t count, size_t width, void *to);

/** rpexec_unscale. */
bool rpexec_pass_collect(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const void *from,
                         float scale, bool add, float *to);

/** Adds the squares of gradients as rpexec_pass_run_step finds them: divided by the scale, with
 * `more` added. @param more [count]; NULL: none */
void rpexec_pass_squares(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const void *gradients,
                         const void *more, float scale, rpexec_squares *sum);

/** rpexec_narrow. */
void rpexec_pass_refresh(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const float *from,
                         void *to);

/** rpexec_adam_update. */
void rpexec_pass_adam(rpexec_pool *pool, const rpexec_adam_factors *factors,
                      const rpexec_adam_slice *slice);

/** All of a step in one pass: gradients are divided by the scale, as collecting does, and used at
 * once; new masters become working weights. */
typedef struct rpexec_pass_step {
    rp_dtype dtype;        /**< of gradients and working weights */
    const void *gradients; /**< [count] */
    const void *more;      /**< [count] added to them; NULL: none */
    float scale;
    rpexec_adam_slice slice; /**< its gradients: NULL, or fp32 ones instead of `gradients` */
    void *working;           /**< [count] */
    void *copy;              /**< [count] the same once more; NULL: none */
} rpexec_pass_step;

/** rpexec_unscale, rpexec_adam_update, rpexec_narrow: 28 instead of 40 B per parameter in 16 bits.
 */
void rpexec_pass_run_step(rpexec_pool *pool, const rpexec_adam_factors *factors,
                          const rpexec_pass_step *step);
