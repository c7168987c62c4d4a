/** @file scaler.h  The scale of the loss with fp16, whose gradients would otherwise vanish.
 *
 * A power of two, so that dividing by it is exact: 2^16 at first, halved when a gradient is not
 * finite, doubled after 2000 steps in a row without that (executor.md 5.2). Between 1 and 2^24: a
 * loss that is not finite itself must not take the scale to zero, nor a vanishing one to infinity.
 * A step that overflows at 1 ends a training run.
 * Other types need none: their scale stays 1.
 *
 * An iteration's gradients are divided by the scale that its own loss had. With the asynchronous
 * optimizer the next iteration begins before this one's gradients are known, so that its scale is
 * one step older, as its weights are (executor.md 1.8).
 */
#pragma once

#include "exec/operators/dtype.h"

typedef struct rpexec_scaler {
    float scale;    /**< after the last step */
    float next;     /**< of the next iteration's loss: `scale`, or one step older */
    uint32_t clean; /**< steps without overflow since the scale has changed */
} rpexec_scaler;

/** @return true where losses are scaled: fp16 only. */
bool rpexec_scaler_needed(rp_dtype dtype);

/** @return 2^16, or 1 where it is not needed. */
rpexec_scaler rpexec_scaler_initial(rp_dtype dtype);

/** @return true of the smallest scale: a loss that overflows with it does so with every other. */
bool rpexec_scaler_is_smallest(float scale);

/** A step has been taken, or skipped because of an overflow: `scale` and `clean` change. */
void rpexec_scaler_step(rpexec_scaler *scaler, bool overflow);

/**
 * to[i] (+)= from[i] / scale in fp32, in one pass.
 * @param scale a power of two
 * @return true where all of `to` is finite, and where the type needs no scale (nothing is checked)
 */
bool rpexec_unscale(rp_dtype dtype, uint64_t count, const void *from, float scale, bool add,
                    float *to);

/** @return true where all values are finite. */
bool rpexec_all_finite(rp_dtype dtype, uint64_t count, const void *values);
