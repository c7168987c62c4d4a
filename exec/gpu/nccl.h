/** @file nccl.h  The table of NCCL's functions that the GPU driver uses, separate from calls.h.
 *
 * exec/cuda/nccl.c fills it with the library, exec/cuda/emulator/machine with threads. Functions
 * return 0 or an error from RPEXEC_NCCL_ERRORS on, which `text` of calls.h knows. A communicator is
 * a GPU's membership; only one thread at a time makes calls on it. Between group_begin and
 * group_end of a thread, calls are only noted; group_end enqueues all of them, a communicator's as
 * a single kernel in the stream that its calls name. Communicators perform their kernels in the
 * order of enqueueing, across all streams.
 */
#pragma once

#include "exec/operators/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/** The first error of NCCL; CUDA's errors are smaller numbers. */
#define RPEXEC_NCCL_ERRORS (1 << 20)

typedef struct rpexec_nccl_calls {
    /**
     * Loads the library.
     * @param version_out "2.28.9"; borrowed
     * @param why_out if it is missing or too old: the reason, borrowed
     * @return true if it was loaded
     */
    bool (*load)(const char **version_out, const char **why_out);
    /** Opens a communicator per device, each device once; rank i has devices[i]. All or none. */
    int (*open)(uint32_t count, const int *devices, void **communicators_out);
    /** Closes it after all enqueued work. */
    void (*close)(void *communicator);
    /** Ends its kernels, even if they wait; the communicator is gone. From any thread. */
    void (*abort)(void *communicator);
    /** @return the error that a kernel or a thread of the library has met; 0: none. From any
     * thread. */
    int (*async_error)(void *communicator);

    int (*group_begin)(void);
    int (*group_end)(void);
    /** In place if from = to + rank * count. @param count elements of a share */
    int (*all_gather)(const void *from, void *to, uint64_t count, rp_dtype dtype,
                      void *communicator, void *stream);
    /** In place if to = from + rank * count. @param count elements of a share */
    int (*reduce_scatter)(const void *from, void *to, uint64_t count, rp_dtype dtype,
                          void *communicator, void *stream);
    int (*all_reduce)(const void *from, void *to, uint64_t count, rp_dtype dtype,
                      void *communicator, void *stream);
    /** @param from read only on the rank `root` */
    int (*broadcast)(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                     void *communicator, void *stream);
    /** @param to written only on the rank `root` */
    int (*reduce)(const void *from, void *to, uint64_t count, rp_dtype dtype, uint32_t root,
                  void *communicator, void *stream);
    int (*send)(const void *from, uint64_t bytes, uint32_t to_rank, void *communicator,
                void *stream);
    int (*receive)(void *to, uint64_t bytes, uint32_t from_rank, void *communicator, void *stream);
} rpexec_nccl_calls;
