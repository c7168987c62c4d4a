/** @file calls.h  The table of all functions of CUDA that the GPU driver uses.
 *
 * The driver (driver.c) has no other way to a GPU, so that a table which does the same with threads
 * and host memory (exec/cuda/emulator/machine) runs the very same driver on machines without a GPU.
 * exec/cuda/runtime.c fills it with the CUDA runtime. Streams and events are handles of that
 * runtime; functions return 0 or its error code.
 */
#pragma once

#include "exec/gpu/nccl.h"
#include "exec/model/model.h"
#include "exec/operators/operators.h"

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** A GPU of the program: a device, or a part of one. */
typedef struct rpexec_cuda_part {
    int device;
    uint32_t sm_count; /**< multiprocessors of the part */
    void *context;     /**< green context of a part with its own multiprocessors; NULL: the device's
                            context */
    void *green;       /**< handle of the same green context */
} rpexec_cuda_part;

/** Work that a stream's operators are made for. */
typedef struct rpexec_cuda_lane_shape {
    const rpexec_model *model;
    uint64_t tokens;        /**< tokens of the largest microbatch; 0: the operators only add and
                                 copy */
    bool half_accumulation; /**< fp16: products add up in fp16 */
} rpexec_cuda_lane_shape;

/** Comparison of our own attention with cuDNN's on the same data. */
typedef struct rpexec_attention_trial {
    double own_s; /**< median time of a forward */
    double cudnn_s;
    double worst;   /**< the largest difference, divided by the difference that executor.md 3, 1
                         allows; NaN if a value is not finite */
    bool same_bits; /**< two runs of cuDNN's gave the same bits */
} rpexec_attention_trial;

typedef struct rpexec_cuda_calls {
    const rpexec_operators *const *operators; /**< [RP_DTYPE_COUNT] */
    const rpexec_nccl_calls *nccl;            /**< NULL: built without NCCL */
    int not_ready;                            /**< event_query's answer for work under way */
    int no_memory;                            /**< calls' answer if a GPU's memory is full */
    const char *(*text)(int error);           /**< meaning of an error code; NCCL's, too */

    /** @return versions of the driver and of this runtime, for people; valid until the next call */
    const char *(*versions)(void);
    int (*device_count)(int *count_out);
    int (*device_facts)(int device, uint32_t *sm_count_out, uint64_t *free_bytes_out);
    /**
     * Cuts a device into `cuts` parts with the same number of multiprocessors, and makes green
     * contexts of the first `count` parts, `cuts` at most.
     * @param why_out after false: the reason, borrowed
     * @return true if it was done; otherwise parts_out is unchanged
     */
    bool (*split)(int device, uint32_t cuts, uint32_t count, rpexec_cuda_part *parts_out,
                  const char **why_out);
    void (*unsplit)(uint32_t count, rpexec_cuda_part *parts);
    /** @return true if `device` reaches the memory of `peer`; then access is enabled from now
     * on. */
    bool (*reach)(int device, int peer);

    /** Calls of this thread are about `part` until `leave`. A part with a context may be entered by
     * only one thread at a time. */
    int (*enter)(const rpexec_cuda_part *part);
    int (*leave)(const rpexec_cuda_part *part);

    int (*stream_create)(const rpexec_cuda_part *part, void **stream_out); /**< non-blocking */
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream, void *event);
    int (*stream_synchronize)(void *stream);
    int (*event_create)(void **event_out); /**< an event with time; a thread that waits for it
                                                sleeps */
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_synchronize)(void *event);
    int (*event_elapsed)(float *ms_out, void *from, void *to);

    int (*memory_take)(uint64_t bytes, void **memory_out);
    int (*memory_give)(void *memory);
    int (*host_take)(uint64_t bytes, void **memory_out); /**< memory that is pinned, and known to
                                                              all GPUs */
    int (*host_give)(void *memory);
    int (*host_pin)(void *memory, uint64_t bytes);
    int (*host_unpin)(void *memory);
    /** Copies between any two memories that the stream's device reaches. */
    int (*copy)(void *to, const void *from, uint64_t bytes, void *stream);
    int (*fill)(void *to, int byte, uint64_t bytes, void *stream);

    /** Work that this thread enqueues in `stream` from now on is noted, not done; other threads go
     * on with other streams. Only operators of the stream's lane may be called until
     * `capture_end`. */
    int (*capture_begin)(void *stream);
    /** @param captured_out the noted work, for `captured_destroy`; NULL after an error */
    int (*capture_end)(void *stream, void **captured_out);
    int capture_invalidated; /**< the error for a capture in which an operator has failed */
    int (*captured_destroy)(void *captured);
    int (*graph_make)(void *captured, void **graph_out); /**< makes a graph that can be launched */
    int (*graph_launch)(void *graph, void *stream);      /**< does the noted work, in the order of
                                                              noting */
    int (*graph_destroy)(void *graph);                   /**< its launches must have ended */

    /** sum (+)= values as fp32, in the GPU's memory. */
    int (*add)(const rpexec_cuda_part *part, rp_dtype dtype, uint64_t count, const void *values,
               bool add, float *sum, void *stream);
    /** Sets `to` to the sum, rounded to nearest even. */
    int (*narrow)(const rpexec_cuda_part *part, rp_dtype dtype, uint64_t count, const float *sum,
                  void *to, void *stream);

    /** Makes a lane while the part is entered. @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged) */
    rp_status (*lane_open)(const rpexec_cuda_part *part, const rpexec_cuda_lane_shape *shape,
                           void *stream, rp_arena *arena, rpexec_lane **lane_out);
    void (*lane_close)(rpexec_lane *lane); /**< NULL is allowed */
    /** @return RP_OK, or the status of the lane's operator that has failed (logged) */
    rp_status (*lane_status)(const rpexec_lane *lane);
    /** Sets the lane's status to RP_OK again: the failed operator was only to be captured. */
    void (*lane_forgive)(rpexec_lane *lane);

    /** Work that this thread enqueues from `range_begin` to `range_end` is shown by a profiler
     * under that name (NVTX). Both NULL: nobody wants to see it. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);

    /** Looks for cuDNN. @param name_out "cudnn" and its version, @param why_out after false: the
     * reason; both static. NULL: built without cuDNN. */
    bool (*cudnn)(const char **name_out, const char **why_out);
    /**
     * From now on the lane's forward of attention with these sizes is cuDNN's. To be called while
     * nothing is captured and the lane's part is entered.
     * @param arena memory for the lane's plan
     * @param why_out after RP_TOOL the reason, valid until the next call; not logged
     * @retval RP_OK, RP_NO_MEMORY, RP_TOOL
     */
    rp_status (*attention_plan)(rpexec_lane *lane, rp_arena *arena,
                                const rpexec_attention_sizes *sizes, const char **why_out);
    /** Tries these sizes. Takes memory of the GPU and gives it back. @retval as attention_plan */
    rp_status (*attention_try)(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                               rpexec_attention_trial *trial_out, const char **why_out);
    /** All of the lane's attention is our own again. */
    void (*attention_own)(rpexec_lane *lane);
} rpexec_cuda_calls;
