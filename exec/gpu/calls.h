/** @file calls.h  All that the GPU driver asks of CUDA, as one table.
 *
 * The driver (driver.c) has no other way to a GPU, so that a table which does the same with threads
 * and host memory (tests/support/fake_cuda.h) runs the very same driver on machines without one.
 * exec/cuda/runtime.c fills it with the CUDA runtime. Streams and events are handles of that
 * runtime; functions give 0 or its error code.
 */
#pragma once

#include "exec/model/model.h"
#include "exec/operators.h"

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/** A GPU of the program: a device, or a part of one. */
typedef struct rpexec_cuda_part {
    int device;
    uint32_t sm_count; /**< multiprocessors that are its own */
    void *context;     /**< of a part with multiprocessors of its own; NULL: the device's */
    void *green;       /**< the same part's handle */
} rpexec_cuda_part;

/** What a stream's operators are made for. */
typedef struct rpexec_cuda_lane_shape {
    const rpexec_model *model;
    uint64_t tokens;        /**< of the largest microbatch; 0: operators that add and copy only */
    bool half_accumulation; /**< fp16: products add up in fp16 */
} rpexec_cuda_lane_shape;

typedef struct rpexec_cuda_calls {
    const rpexec_operators *const *operators; /**< [RPEXEC_DTYPE_COUNT] */
    int not_ready;                            /**< what event_query gives for work under way */
    const char *(*text)(int error);           /**< what an error code means */

    int (*device_count)(int *count_out);
    int (*device_facts)(int device, uint32_t *sm_count_out, uint64_t *free_bytes_out);
    /**
     * Cuts a device into parts of equally many multiprocessors (green contexts).
     * @param why_out where it cannot be done: the reason, borrowed
     * @return whether it was done; otherwise parts_out is unchanged
     */
    bool (*split)(int device, uint32_t count, rpexec_cuda_part *parts_out, const char **why_out);
    void (*unsplit)(uint32_t count, rpexec_cuda_part *parts);
    /** @return whether `device` reaches the memory of `peer`, which it may from now on. */
    bool (*reach)(int device, int peer);

    /** Calls of this thread are about `part` until `leave`. A part with a context may have entered
     * in one thread at a time. */
    int (*enter)(const rpexec_cuda_part *part);
    int (*leave)(const rpexec_cuda_part *part);

    int (*stream_create)(const rpexec_cuda_part *part, void **stream_out); /**< non-blocking */
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream, void *event);
    int (*stream_synchronize)(void *stream);
    int (*event_create)(void **event_out); /**< with time; waits for it sleep */
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_synchronize)(void *event);
    int (*event_elapsed)(float *ms_out, void *from, void *to);

    int (*memory_take)(uint64_t bytes, void **memory_out);
    int (*memory_give)(void *memory);
    int (*host_take)(uint64_t bytes, void **memory_out); /**< pinned, and known to all GPUs */
    int (*host_give)(void *memory);
    int (*host_pin)(void *memory, uint64_t bytes);
    int (*host_unpin)(void *memory);
    /** Between any two memories that the stream's device reaches. */
    int (*copy)(void *to, const void *from, uint64_t bytes, void *stream);
    int (*fill)(void *to, int byte, uint64_t bytes, void *stream);
    /** sum (+)= values as fp32, in the GPU's memory. */
    int (*add)(const rpexec_cuda_part *part, rpexec_dtype dtype, uint64_t count, const void *values,
               bool add, float *sum, void *stream);
    /** to = sum, rounded to nearest even. */
    int (*narrow)(const rpexec_cuda_part *part, rpexec_dtype dtype, uint64_t count,
                  const float *sum, void *to, void *stream);

    /** Made while the part is entered. @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged) */
    rp_status (*lane_open)(const rpexec_cuda_part *part, const rpexec_cuda_lane_shape *shape,
                           void *stream, rp_arena *arena, rpexec_lane **lane_out);
    void (*lane_close)(rpexec_lane *lane); /**< NULL is allowed */
    /** @return RP_OK, or how an operator of the lane has failed (logged) */
    rp_status (*lane_status)(const rpexec_lane *lane);
} rpexec_cuda_calls;
