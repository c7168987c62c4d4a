/** @file dtype.h  Types that tensors are stored in: fp32, bf16 and fp16.
 *
 * Storage type is a property of a run (rpexec_model.dtype): working weights, boundary tensors, tape
 * and gradients have it, on the GPUs and on the host. Masters, Adam's moments and statistics of
 * operators (factors of norms, logsumexp, the rotary tables, the loss) are fp32 or wider always
 * (executor.md 1.6, 5.2). Pointers to tensors of the run's type are void pointers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** X(enumerator, name in safetensors files, name on the command line, bytes of an element). */
#define RPEXEC_DTYPE_LIST(X)                                                                       \
    X(F32, "F32", "fp32", 4)                                                                       \
    X(F16, "F16", "fp16", 2)                                                                       \
    X(BF16, "BF16", "bf16", 2)

typedef enum rpexec_dtype {
#define RPEXEC_DTYPE_ENUM(name, stored, text, bytes) RPEXEC_DTYPE_##name,
    RPEXEC_DTYPE_LIST(RPEXEC_DTYPE_ENUM)
#undef RPEXEC_DTYPE_ENUM
        RPEXEC_DTYPE_COUNT
} rpexec_dtype;

/** Their names on the command line in that order, as choices of an option (common/cli/options.h).
 */
#define RPEXEC_DTYPE_CHOICE(name, stored, text, bytes) "|" text
#define RPEXEC_DTYPES RPEXEC_DTYPE_LIST(RPEXEC_DTYPE_CHOICE)

/** @return bytes of an element. */
static inline size_t rpexec_dtype_bytes(rpexec_dtype dtype)
{
    return dtype == RPEXEC_DTYPE_F32 ? 4 : 2;
}

/** @return where element `index` of an array of `dtype` is; NULL stays NULL. */
static inline void *rpexec_element(rpexec_dtype dtype, void *array, uint64_t index)
{
    return array == NULL ? NULL : (unsigned char *)array + index * rpexec_dtype_bytes(dtype);
}

/** The same of what may not be written. */
static inline const void *rpexec_element_const(rpexec_dtype dtype, const void *array,
                                               uint64_t index)
{
    return array == NULL ? NULL : (const unsigned char *)array + index * rpexec_dtype_bytes(dtype);
}

/** @return the type's name on the command line: "fp32", "bf16", "fp16". */
const char *rpexec_dtype_text(rpexec_dtype dtype);

/** Converts `count` values to fp32, which is exact. The arrays must not overlap. */
void rpexec_widen(rpexec_dtype dtype, uint64_t count, const void *from, float *to);

/**
 * Rounds `count` values to nearest, ties to even: what is too large becomes infinite, what is too
 * small a subnormal or zero, a NaN stays one. The arrays must not overlap.
 */
void rpexec_narrow(rpexec_dtype dtype, uint64_t count, const float *from, void *to);
