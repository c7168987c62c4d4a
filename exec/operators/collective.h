/** @file collective.h  Collectives, which the ranks of a group do together: all-gather,
 * reduce-scatter, all-reduce.
 *
 * All ranks call the same collectives in the same order, each in its own queue and in that queue's
 * time. A rank's part begins when all ranks have come to it and ends when nobody needs its memory
 * any more. Sums are taken in fp32 in the order of ranks, 0 first, and rounded once: the same bits
 * on every rank and in every run. Only NCCL (exec/gpu/exchange.c) rounds after every addition and
 * adds in its own order.
 *
 * A call takes several arrays (NCCL: a single group call). Each array is cut in as many shares as
 * there are ranks, which need not be equally long (rpexec_share).
 */
#pragma once

#include "exec/operators/dtype.h"

#include <stdint.h>

typedef enum rpexec_collective_kind {
    RPEXEC_ALL_GATHER,     /**< every rank gets all shares */
    RPEXEC_REDUCE_SCATTER, /**< each rank gets its share of the sum of all ranks' arrays */
    RPEXEC_ALL_REDUCE,     /**< every rank gets the whole sum */
} rpexec_collective_kind;

/** GPUs that do a collective together (schedules.md 16). */
typedef enum rpexec_axis {
    RPEXEC_AXIS_ALL,    /**< all GPUs of the program */
    RPEXEC_AXIS_TENSOR, /**< GPUs that share each layer */
    RPEXEC_AXIS_DATA,   /**< GPUs that are the same rank of all copies of a pipeline */
    RPEXEC_AXIS_COUNT
} rpexec_axis;

/** An array of `count` elements. In place: `from` is the share's own place in `to`, or `to` the
 * share's own place in `from`. */
typedef struct rpexec_collective_array {
    const void *from; /**< all-gather: this rank's share; otherwise its whole array */
    void *to;         /**< reduce-scatter: this rank's share; otherwise the whole array */
    uint64_t count;
} rpexec_collective_array;

/** A rank's part of a collective. */
typedef struct rpexec_collective {
    rpexec_collective_kind kind;
    rpexec_axis axis;
    rp_dtype dtype;
    const rpexec_collective_array *arrays; /**< the same counts on all ranks */
    uint32_t array_count;
    void *scratch;          /**< in the rank's memory; may be NULL in an all-gather */
    uint64_t scratch_bytes; /**< rpexec_collective_scratch for the longest share */
} rpexec_collective;

/** A share begins at a multiple of so many elements: a line of the cache in fp32. */
#define RPEXEC_SHARE_ELEMENTS 16u

/**
 * @return the first element of the share of `rank` in `count` elements; rank `ranks` gives `count`.
 *         Shares differ by RPEXEC_SHARE_ELEMENTS at most, except for the last block, which may be
 *         shorter; some are empty if there are more ranks than blocks.
 */
static inline uint64_t rpexec_share(uint64_t count, uint32_t ranks, uint32_t rank)
{
    uint64_t blocks = (count + RPEXEC_SHARE_ELEMENTS - 1) / RPEXEC_SHARE_ELEMENTS;
    uint64_t begin = blocks * rank / ranks * RPEXEC_SHARE_ELEMENTS;
    return begin < count ? begin : count;
}

/** @return bytes of scratch for reductions of shares of up to `count` elements, `chunk` of them at
 * a time (0: all): a part of the sum and the values of another rank. No bit of a sum depends on
 * `chunk`. */
static inline uint64_t rpexec_collective_scratch(uint64_t count, uint64_t chunk, rp_dtype dtype)
{
    return (chunk == 0 || count < chunk ? count : chunk) * (sizeof(float) + rp_dtype_bytes(dtype));
}
