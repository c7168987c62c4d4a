/** @file nccl.h  What the GPU driver asks of NCCL, as a table of its own beside calls.h.
 *
 * exec/cuda/nccl.c fills it with the library, exec/cuda/emulator/machine with threads. Functions
 * give 0 or an error from RPEXEC_NCCL_ERRORS on, which `text` of calls.h knows. A communicator is
 * one GPU's membership; calls on one of them are made by one thread at a time. Between group_begin
 * and group_end of a thread calls are only noted; group_end enqueues all of them, of a communicator
 * as one kernel in the stream that its calls name. Communicators perform their kernels in the order
 * in which these were enqueued, across all streams.
 */
#pragma once

#include "exec/operators/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/** Errors of CUDA are below. */
#define RPEXEC_NCCL_ERRORS (1 << 20)

typedef struct rpexec_nccl_calls {
    /**
     * Loads the library.
     * @param version_out "2.28.9"; borrowed
     * @param why_out where it cannot be had, or is too old: the reason, borrowed
     * @return true where it is there
     */
    bool (*load)(const char **version_out, const char **why_out);
    /** One communicator per device, each device once; rank i has devices[i]. All or none. */
    int (*open)(uint32_t count, const int *devices, void **communicators_out);
    /** Waits for what has been enqueued. */
    void (*close)(void *communicator);
    /** Has its kernels end, also those that wait; the communicator is gone. From any thread. */
    void (*abort)(void *communicator);
    /** @return the error that a kernel or a thread of the library has met; 0: none. From any
     * thread. */
    int (*async_error)(void *communicator);

    int (*group_begin)(void);
    int (*group_end)(void);
    /** In place where from = to + rank * count. @param count elements of a share */
    int (*all_gather)(const void *from, void *to, uint64_t count, rp_dtype dtype,
                      void *communicator, void *stream);
    /** In place where to = from + rank * count. @param count elements of a share */
    int (*reduce_scatter)(const void *from, void *to, uint64_t count, rp_dtype dtype,
                          void *communicator, void *stream);
    int (*all_reduce)(const void *from, void *to, uint64_t count, rp_dtype dtype,
                      void *communicator, void *stream);
    /** @param from read on the rank `root` only */
    int (*broadcast)(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                     void *communicator, void *stream);
    /** @param to written on the rank `root` only */
    int (*reduce)(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                  void *communicator, void *stream);
    int (*send)(const void *from, uint64_t bytes, uint32_t to_rank, void *communicator,
                void *stream);
    int (*receive)(void *to, uint64_t bytes, uint32_t from_rank, void *communicator, void *stream);
} rpexec_nccl_calls;
