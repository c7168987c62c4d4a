/** @file pass.h  Work of the host on a layer's values in a step, by the threads of a pool.
 *
 * Passes go over more bytes than caches hold, so memory determines their time. Values that are
 * written but not read go past the caches, if the processor has such stores. The results are those
 * of the functions named below, bit for bit, with any pool.
 */
#pragma once

#include "exec/operators/adam.h"
#include "exec/operators/squares.h"
#include "exec/pool/pool.h"
#include "exec/state/scaler.h"

/**
 * Allocates one of several arrays that passes walk side by side, and does not touch its memory.
 * Arrays of the same size would often begin at the same place modulo a large power of two, and then
 * equal elements of all arrays compete for a few places in a core's first cache: measured on an AMD
 * EPYC, Adam takes four times as long. So each array begins some lines later than the array before.
 * @param number number of the array, from 0 on
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_pass_array(rp_arena *arena, uint32_t number, uint64_t count, size_t width,
                            void *array_out);

/** Zeroes `count` values of `width` bytes, by the threads that work on them later. */
void rpexec_pass_zero(rpexec_pool *pool, uint64_t count, size_t width, void *to);

/** Runs rpexec_unscale by the pool. */
bool rpexec_pass_collect(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const void *from,
                         float scale, bool add, float *to);

/** Adds the squares of gradients as rpexec_pass_run_step finds them: divided by the scale, with
 * `more` added. @param more [count]; NULL: none */
void rpexec_pass_squares(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const void *gradients,
                         const void *more, float scale, rpexec_squares *sum);

/** Runs rpexec_narrow by the pool. */
void rpexec_pass_refresh(rpexec_pool *pool, rp_dtype dtype, uint64_t count, const float *from,
                         void *to);

/** Runs rpexec_adam_update by the pool. */
void rpexec_pass_adam(rpexec_pool *pool, const rpexec_adam_factors *factors,
                      const rpexec_adam_slice *slice);

/** All of a step in a single pass: gradients are divided by the scale, as collecting does, and used
 * at once; new masters become working weights. */
typedef struct rpexec_pass_step {
    rp_dtype dtype;        /**< type of gradients and working weights */
    const void *gradients; /**< [count] */
    const void *more;      /**< [count] added to them; NULL: none */
    float scale;
    rpexec_adam_slice slice; /**< its gradients are NULL, or fp32 gradients instead of
                                  `gradients` */
    void *working;           /**< [count] */
    void *copy;              /**< [count] a second copy of `working`; NULL: none */
} rpexec_pass_step;

/** Runs rpexec_unscale, rpexec_adam_update and rpexec_narrow in a pass: 28 instead of 40 B per
 * parameter in 16 bits.
 */
void rpexec_pass_run_step(rpexec_pool *pool, const rpexec_adam_factors *factors,
                          const rpexec_pass_step *step);
