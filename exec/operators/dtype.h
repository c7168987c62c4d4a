/** @file dtype.h  Types that tensors are stored in: fp32, bf16 and fp16.
 *
 * Storage type is a property of a run (rpexec_model.dtype): working weights, boundary tensors, tape
 * and gradients have it, on the GPUs and on the host. Masters, Adam's moments and statistics of
 * operators (factors of norms, logsumexp, the rotary tables, the loss) are fp32 or wider always
 * (executor.md 1.6, 5.2). Pointers to tensors of the run's type are void pointers.
 */
#pragma once

#include "common/program/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** @return the address of element `index` of an array of `dtype`; NULL stays NULL. */
static inline void *rpexec_element(rp_dtype dtype, void *array, uint64_t index)
{
    return array == NULL ? NULL : (unsigned char *)array + index * rp_dtype_bytes(dtype);
}

/** The same for an array that may not be written. */
static inline const void *rpexec_element_const(rp_dtype dtype, const void *array, uint64_t index)
{
    return array == NULL ? NULL : (const unsigned char *)array + index * rp_dtype_bytes(dtype);
}

/** Converts `count` values to fp32, which is exact. The arrays must not overlap. */
void rpexec_widen(rp_dtype dtype, uint64_t count, const void *from, float *to);

/**
 * Rounds `count` values to nearest, ties to even: too large values become infinite, too small
 * values subnormal or zero, and NaN stays NaN. The arrays must not overlap.
 */
void rpexec_narrow(rp_dtype dtype, uint64_t count, const float *from, void *to);
