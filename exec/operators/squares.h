/** @file squares.h  Sums of squares that do not depend on the order of addition.
 *
 * The norm of all gradients must be the same number for every schedule and every number of GPUs,
 * though each GPU has different parts of a tensor. So values are squared in double (exactly), 16
 * squares are added in a fixed order, and these sums are added up exactly, in a fixed-point number
 * that is long enough for all of them. Arrays may be cut at multiples of 16 values
 * (RPEXEC_SHARE_ELEMENTS) and summed in any order.
 */
#pragma once

#include "exec/operators/dtype.h"

/** Values whose squares are added in a fixed order; missing values at an array's end count as 0. */
#define RPEXEC_SQUARES_BLOCK 16u

/** Limb i counts 2^(32 i - 352): from 2^-352, below the last bit of a sum, to 2^320 and more. */
#define RPEXEC_SQUARES_LIMBS 21u
#define RPEXEC_SQUARES_EXPONENT 352

/** A sum; zeroes: 0. Up to 2^36 values may be added before rpexec_squares_merge carries. */
typedef struct rpexec_squares {
    uint64_t limbs[RPEXEC_SQUARES_LIMBS];
    uint64_t not_finite; /**< sums of a block that were NaN or too large */
} rpexec_squares;

/** Adds the squares of `count` values of a storage type, which begin at a block's begin. */
void rpexec_squares_add(rp_dtype dtype, uint64_t count, const void *values, rpexec_squares *sum);

/** Adds a sum to another one. */
void rpexec_squares_merge(const rpexec_squares *from, rpexec_squares *to);

/** @return the square root, rounded to double; NaN if a value was not finite. */
double rpexec_squares_root(const rpexec_squares *sum);
