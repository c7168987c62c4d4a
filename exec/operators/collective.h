/** @file collective.h  What the ranks of a group do together: all-gather, reduce-scatter,
 * all-reduce.
 *
 * All ranks call the same collectives in the same order, each in its own queue and in that queue's
 * time. A rank's part begins when all ranks have come to it and ends when nobody needs its memory
 * any more. Sums are taken in fp32 in the order of ranks, 0 first, and rounded once: the same bits
 * on every rank and in every run. Only where NCCL adds (exec/gpu/exchange.c) are they rounded after
 * every addition and in an order of its own.
 *
 * One call takes several arrays (NCCL: one group call). Each array is cut in as many shares as
 * there are ranks, which need not be equally long (rpexec_share).
 */
#pragma once

#include "exec/operators/dtype.h"

#include <stdint.h>

typedef enum rpexec_collective_kind {
    RPEXEC_ALL_GATHER,     /**< everybody gets every rank's share */
    RPEXEC_REDUCE_SCATTER, /**< each rank gets its share of the sum of all ranks' arrays */
    RPEXEC_ALL_REDUCE,     /**< everybody gets the whole sum */
} rpexec_collective_kind;

/** GPUs that do a collective together (schedules.md 16). */
typedef enum rpexec_axis {
    RPEXEC_AXIS_ALL,    /**< all of the program */
    RPEXEC_AXIS_TENSOR, /**< those that share each layer */
    RPEXEC_AXIS_DATA,   /**< those that are the same rank of all copies of a pipeline */
    RPEXEC_AXIS_COUNT
} rpexec_axis;

/** One array of `count` elements. In place: a share is `from` where it lies in `to`, or `to` where
 * it lies in `from`. */
typedef struct rpexec_collective_array {
    const void *from; /**< all-gather: this rank's share; otherwise its whole array */
    void *to;         /**< reduce-scatter: this rank's share; otherwise the whole array */
    uint64_t count;
} rpexec_collective_array;

/** One rank's part. */
typedef struct rpexec_collective {
    rpexec_collective_kind kind;
    rpexec_axis axis;
    rp_dtype dtype;
    const rpexec_collective_array *arrays; /**< the same counts on all ranks */
    uint32_t array_count;
    void *scratch;          /**< in the rank's memory; may be NULL in an all-gather */
    uint64_t scratch_bytes; /**< rpexec_collective_scratch of the longest share */
} rpexec_collective;

/** Elements that a share begins at multiples of: a line of the cache in fp32. */
#define RPEXEC_SHARE_ELEMENTS 16u

/**
 * @return the element that the share of `rank` of `count` elements begins with; rank `ranks` gives
 *         `count`. Shares differ by RPEXEC_SHARE_ELEMENTS at most, and by what the last one lacks;
 *         some are empty where there are more ranks than blocks.
 */
static inline uint64_t rpexec_share(uint64_t count, uint32_t ranks, uint32_t rank)
{
    uint64_t blocks = (count + RPEXEC_SHARE_ELEMENTS - 1) / RPEXEC_SHARE_ELEMENTS;
    uint64_t begin = blocks * rank / ranks * RPEXEC_SHARE_ELEMENTS;
    return begin < count ? begin : count;
}

/** @return bytes of scratch for reductions of shares of up to `count` elements, `chunk` of them at
 * a time (0: all): a part of the sum and what comes of another rank. No bit of a sum depends on
 * `chunk`. */
static inline uint64_t rpexec_collective_scratch(uint64_t count, uint64_t chunk, rp_dtype dtype)
{
    return (chunk == 0 || count < chunk ? count : chunk) * (sizeof(float) + rp_dtype_bytes(dtype));
}
