/** @file scaler.h  The scale of the loss with fp16, whose gradients would otherwise vanish.
 *
 * The scale is a power of two, so that dividing by it is exact. It is 2^16 at first, halved when a
 * gradient is not finite, and doubled after 2000 successive steps with finite gradients
 * (executor.md 5.2). It stays between 1 and 2^24: a loss that is not finite must not take the scale
 * to zero, nor a vanishing loss take it to infinity. A step that overflows at scale 1 ends a
 * training run. Other types need no scaling: their scale stays 1.
 *
 * An iteration's gradients are divided by the scale of its own loss. With the asynchronous
 * optimizer the next iteration begins before the gradients of the current iteration are known, so
 * that its scale is a step older, as are its weights (executor.md 1.8).
 */
#pragma once

#include "exec/operators/dtype.h"

typedef struct rpexec_scaler {
    float scale;    /**< after the last step */
    float next;     /**< scale of the next iteration's loss: `scale`, or its value a step earlier */
    uint32_t clean; /**< steps without overflow since the scale has changed */
} rpexec_scaler;

/** @return whether losses are scaled: in fp16 only. */
bool rpexec_scaler_needed(rp_dtype dtype);

/** @return 2^16, or 1 if no scale is needed. */
rpexec_scaler rpexec_scaler_initial(rp_dtype dtype);

/** @return whether this is the smallest scale: a loss that overflows with it overflows with every
 *         scale. */
bool rpexec_scaler_is_smallest(float scale);

/** Updates `scale` and `clean` after a step that was taken, or skipped because of an overflow. */
void rpexec_scaler_step(rpexec_scaler *scaler, bool overflow);

/**
 * to[i] (+)= from[i] / scale in fp32, in one pass.
 * @param scale a power of two
 * @return true if all of `to` is finite; also true, without a check, if the type needs no scale
 */
bool rpexec_unscale(rp_dtype dtype, uint64_t count, const void *from, float scale, bool add,
                    float *to);

/** @return whether all values are finite. */
bool rpexec_all_finite(rp_dtype dtype, uint64_t count, const void *values);
