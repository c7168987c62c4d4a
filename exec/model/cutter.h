/** @file cutter.h  Cuts memory into tensors, each at a multiple of 64 bytes. Used only in
 * exec/model.
 *
 * With a base of NULL it only adds up the bytes needed.
 */
#pragma once

#include "exec/operators/dtype.h"

typedef struct rpexec_cutter {
    unsigned char *base;
    rp_dtype dtype;
    uint64_t used; /**< bytes */
} rpexec_cutter;

/** @return the next `bytes`; NULL without a base. */
static inline void *rpexec_cut_bytes(rpexec_cutter *cutter, uint64_t bytes)
{
    void *at = cutter->base == NULL ? NULL : cutter->base + cutter->used;
    cutter->used += (bytes + 63) / 64 * 64;
    return at;
}

/** @return a tensor of the run's storage type. */
static inline void *rpexec_cut(rpexec_cutter *cutter, uint64_t values)
{
    return rpexec_cut_bytes(cutter, values * rp_dtype_bytes(cutter->dtype));
}

/** @return an array of floats, for statistics. */
static inline float *rpexec_cut_floats(rpexec_cutter *cutter, uint64_t floats)
{
    return rpexec_cut_bytes(cutter, floats * sizeof(float));
}
