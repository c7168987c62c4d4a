/** @file cuda_internal.h  Between the fake's streams and its operators. */
#pragma once

#include "exec/host/lane.h"
#include "exec/operators/calls.h"
#include "tests/support/fake/cuda.h"

/** Numbers of CUDA's errors. */
enum {
    ERROR_INVALID = 1,
    ERROR_MEMORY = 2,
    ERROR_CONTEXT = 201,
    ERROR_PINNED = 712,
    ERROR_HANDLE = 400,
    ERROR_NOT_READY = 600,
    ERROR_ADDRESS = 700,
    ERROR_CAPTURE = 900,     /* not permitted while a stream is captured */
    ERROR_INVALIDATED = 901, /* what was captured cannot be used */
    ERROR_MISUSE = 999,
};

typedef struct rp_fake_stream rp_fake_stream;

/** @return the part of a device that a stream belongs to. */
const rpexec_cuda_part *rp_fake_part_of(const rp_fake_stream *stream);

/** @return the part that the calling thread's calls are about; may be set. */
rpexec_cuda_part *rp_fake_here(void);

/** The machine of this moment. */
const rp_fake_cuda *rp_fake_machine(void);

/** Counts what has to be given back. */
void rp_fake_count(int more);

/** Streams, and NCCL's kernels, are numbered from the beginning again. */
void rp_fake_restart_streams(void);
void rp_fake_restart_nccl(void);

/** It has a lane, so that it is a queue's. @param computes operators of layers run in it */
void rp_fake_stream_of_queue(void *stream, bool computes);

/** @return whose memory it is: -1 the host's, pinned; -2 nobody's that is known. */
int rp_fake_owner(const void *address);

/** The table of NCCL (nccl.c), and the texts of its errors. */
extern const rpexec_nccl_calls rp_fake_nccl;
const char *rp_fake_nccl_text(int error);

/** The parts of the table that are about attention (attention.c); their counts are 0 again. */
bool rp_fake_find_cudnn(const char **name_out, const char **why_out);
rp_status rp_fake_attention_plan(rpexec_lane *lane, rp_arena *arena,
                                 const rpexec_attention_sizes *sizes, const char **why_out);
rp_status rp_fake_attention_try(rpexec_lane *lane, const rpexec_attention_sizes *sizes,
                                rpexec_attention_trial *trial_out, const char **why_out);
void rp_fake_attention_own(rpexec_lane *lane);
void rp_fake_restart_attention(void);

/** Counts of launches are 0 again. */
void rp_fake_restart_graphs(void);

/** The parts of the table that are about streams and events (streams.c). */
int rp_fake_stream_create(const rpexec_cuda_part *part, void **stream_out);
int rp_fake_stream_destroy(void *stream);
int rp_fake_stream_wait(void *stream, void *handle);
int rp_fake_stream_synchronize(void *stream);

/** Waits until the streams have performed everything. */
void rp_fake_wait_idle(void);
int rp_fake_event_create(void **event_out);
int rp_fake_event_destroy(void *handle);
int rp_fake_event_record(void *handle, void *stream);
int rp_fake_event_query(void *handle);
int rp_fake_event_synchronize(void *handle);
int rp_fake_event_elapsed(float *ms_out, void *from, void *to);

void rp_fake_range_begin(const char *name);
void rp_fake_range_end(void);

/** Captures and graphs (graphs.c). */
int rp_fake_capture_begin(void *stream);
int rp_fake_capture_end(void *stream, void **captured_out);
int rp_fake_captured_destroy(void *captured);
int rp_fake_graph_make(void *captured, void **graph_out);
int rp_fake_graph_launch(void *graph, void *stream);
int rp_fake_graph_destroy(void *graph);

/** A lane of the host backend, and the stream in which its operators are performed. */
typedef struct rp_fake_lane {
    rpexec_call_taker taker; /**< rp_fake_taker; the first, see rpexec_noting_operators */
    struct rpexec_lane host;
    rp_fake_stream *stream;
    rp_status status;
    bool is_closed;
    bool is_odd;      /**< its device has the machine's cuDNN */
    uint32_t planned; /**< sequences of the largest shape that attention has a plan for; 0: none */
} rp_fake_lane;

/** An operator that is to be performed. */
typedef struct rp_fake_operator {
    rp_fake_lane *lane;
    uint64_t call[RPEXEC_CALL_WORDS];
} rp_fake_operator;

/** Has `run` called with a copy of `arguments` when the stream comes to it. @return 0 or an error;
 * ERROR_CAPTURE where this thread captures */
int rp_fake_enqueue(rp_fake_stream *stream, void (*run)(const void *arguments),
                    const void *arguments, size_t bytes);

/** The same, or notes it where the stream is captured. */
int rp_fake_enqueue_operator(rp_fake_stream *stream, void (*run)(const void *arguments),
                             const rp_fake_operator *o);

/** Adds an operator of a captured stream to this thread's capture. @retval 0, ERROR_CAPTURE: the
 * thread captures another stream */
int rp_fake_capture_operator(rp_fake_stream *stream, void (*run)(const void *arguments),
                             const rp_fake_operator *o);

/** Counts an operator that is launched by itself. */
void rp_fake_count_operator(void);

/** @return true where this thread captures: a call not permitted then invalidates the capture. */
bool rp_fake_is_capturing(void);
void rp_fake_invalidate(void);

/** Sleeps at random, as before everything that the stream does. */
void rp_fake_delay(rp_fake_stream *stream);

/** Waits until the stream has done everything. @retval 0, ERROR_CAPTURE */
int rp_fake_synchronize(rp_fake_stream *stream);

/** @return true where operators of the lane reach an address, or it is NULL. */
bool rp_fake_is_reached(const rp_fake_lane *lane, const void *address);

/** @return true where the lane is open and reaches all of the operator's addresses. */
bool rp_fake_can_perform(const rp_fake_operator *o);

/** Has operators performed in the lane's stream. */
extern const rpexec_call_taker rp_fake_taker;
