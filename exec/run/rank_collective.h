/** @file rank_collective.h  Collectives between the memories of the host backend's GPUs.
 *
 * Every rank's thread fetches from the other ranks' memories, so that each byte crosses the links
 * of its sender and its receiver once: a gather or a reduce-scatter moves (n - 1) / n of the bytes
 * into each rank, an all-reduce twice as much, as with a ring.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "exec/operators/collective.h"

#include <stdbool.h>

/** Elements that the host sums at a time: a part of the sum and the arriving values stay in a
 * core's cache, 384 or 512 KiB. */
#define RPEXEC_HOST_CHUNK UINT64_C(65536)

typedef struct rpexec_host_group rpexec_host_group;

/** Copies from a rank's memory into another rank's, throttled as their links are; called by the
 * receiver's thread. */
typedef void (*rpexec_host_fetch)(void *context, uint32_t to_rank, void *to, uint32_t from_rank,
                                  const void *from, uint64_t bytes);

/** Work of ranks on their memory if that is not the host's. All functions are called by the rank's
 * own thread; work that they only enqueue keeps the order of the calls. */
typedef struct rpexec_host_group_moves {
    /** Copies within the rank's memory. */
    void (*copy)(void *context, uint32_t rank, void *to, const void *from, uint64_t bytes);
    /** sum (+)= values, as fp32. */
    void (*add)(void *context, uint32_t rank, rp_dtype dtype, uint64_t count, const void *values,
                bool add, float *sum);
    /** to = sum, rounded. */
    void (*narrow)(void *context, uint32_t rank, rp_dtype dtype, uint64_t count, const float *sum,
                   void *to);
    /** The rank comes to a meeting: others wait for the work that it has enqueued so far. */
    void (*arrive)(void *context, uint32_t rank);
    /** All have come: work that the rank enqueues from now on waits for the work that they enqueued
     * before. Also called if the group was aborted. */
    void (*depart)(void *context, uint32_t rank);
    /** Does a collective for all ranks when all have come to it and mean the same, in the thread of
     * `rank`, who came last; rpexec_host_group_part has their collectives. No queue need wait for
     * another rank's. NULL: the ranks fetch from each other. */
    void (*together)(void *context, uint32_t rank);
} rpexec_host_group_moves;

/**
 * Makes a group of `ranks` ranks.
 * @param most_arrays arrays of a collective, at most
 * @param group_out lives in `arena`; to be closed
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_host_group_open(uint32_t ranks, uint32_t most_arrays, rpexec_host_fetch fetch,
                                 void *context, rp_arena *arena, rpexec_host_group **group_out);

/** Before the first collective: the group works with `moves`, which get the context of `fetch`. */
void rpexec_host_group_set_moves(rpexec_host_group *group, const rpexec_host_group_moves *moves);

/**
 * Takes part in the next collective; returns when it is done for this rank and nobody reads its
 * memory any more.
 * @param moved_out bytes that have come from other ranks
 * @retval RP_OK, RP_BROKEN (the group was aborted, or the ranks called different collectives; the
 *         latter is logged, and aborts the group)
 */
rp_status rpexec_host_group_run(rpexec_host_group *group, uint32_t rank,
                                const rpexec_collective *collective, uint64_t *moved_out);

/** @return a rank's part of the collective under way, for `together`. */
const rpexec_collective *rpexec_host_group_part(const rpexec_host_group *group, uint32_t rank);

/** Wakes everybody who waits in the group, now and later: all of them get RP_BROKEN. */
void rpexec_host_group_abort(rpexec_host_group *group);

/** NULL is allowed. Nobody may be in it any more. */
void rpexec_host_group_close(rpexec_host_group *group);
